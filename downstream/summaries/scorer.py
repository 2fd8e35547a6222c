"""BertSumExt: score the sentences of an article with an encoder and a Transformer over sentences (Liu and Lapata 2019).

Every sentence gets a [CLS] before and a [SEP] after it, segments alternate from sentence to sentence, and the head's
layers attend from sentence to sentence. Articles longer than the encoder's limit are read in overlapping windows, so
that every sentence is scored. `downstream.extractive` trains such a model.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import CheckpointError, RecipeError
from corpora.foundation.files import fingerprint
from corpora.foundation.machine import quiet_transformers
from downstream.encoders.folder import SCORER_FILE, ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from pretraining.folders import read_tensors

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from downstream.runtimes.network import Network


HEAD_FILE = "head.safetensors"
CLASS_WITH_HEAD = "AutoModelForSequenceClassification"
"""Class that the encoder is taken from: `load_model` detects missing weights only in a model with a head."""
NUM_PROBES, PROBE_SENTENCES, PROBE_SENTENCE = 48, 4, 24
"""Windows for measuring backends, sentences per window, tokens per sentence; small, so that it is quick."""
MIN_COSINE = 0.99
"""Smallest cosine at which the token vectors of a window count as equal in two backends."""
States: TypeAlias = Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]
"""Inputs of one window, (1, T) each → token vectors, (1, T, D)."""


class HeadConfig(Config):
    """Layers over sentences; defaults of Liu and Lapata 2019, section 4.2."""

    num_layers: int = Field(default=2, ge=1)
    num_heads: int = Field(default=8, ge=1)
    feed_forward_size: int = Field(default=2048, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)


# ---- windows ----


@dataclass(frozen=True)
class Window:
    """Consecutive sentences that an encoder reads at once."""

    input_ids: list[int]
    token_type_ids: list[int]
    """Interval segments: 0 and 1 alternate by sentence."""
    cls_positions: list[int]
    """Position of each sentence's [CLS]."""
    first: int
    """Index of the first sentence in the article."""

    @property
    def sentences(self) -> range:
        """Indices of the window's sentences in the article."""
        return range(self.first, self.first + len(self.cls_positions))


def make_windows(sentences: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int) -> list[Window]:
    """Tokenize sentences as `[CLS] a [SEP] [CLS] b [SEP] …` in windows of whole sentences.

    If one window is too short for the article, each window begins in the middle of the one before, so that every
    sentence except the outermost has context on both sides. A sentence longer than a window is truncated.

    Args:
        sentences: S texts.
        tokenizer: tokenizer of the encoder.
        max_length: tokens of a window.

    Returns:
        Windows in order, which cover every sentence; an empty list for no sentences.
    """
    if not sentences:
        return []
    clean = [sentence.encode("utf-8", "replace").decode("utf-8") for sentence in sentences]
    encoded = tokenizer(
        clean, add_special_tokens=False, truncation=True, max_length=max_length - 2, return_attention_mask=False
    )["input_ids"]
    lengths = [len(ids) + 2 for ids in encoded]
    windows: list[Window] = []
    first = 0
    while True:
        end, remaining = first, max_length
        while end < len(lengths) and lengths[end] <= remaining:
            remaining -= lengths[end]
            end += 1
        # After a long sentence, a window may end at the same sentence as the one before it; it is then redundant.
        if not windows or end > windows[-1].sentences.stop:
            windows.append(_build_window(encoded[first:end], first, tokenizer))
        if end == len(lengths):
            return windows
        half = (max_length - remaining) / 2 - lengths[first]
        first += 1
        while first < end and lengths[first] <= half:
            half -= lengths[first]
            first += 1


def _build_window(encoded: Sequence[Sequence[int]], first: int, tokenizer: "PreTrainedTokenizerBase") -> Window:
    input_ids: list[int] = []
    token_type_ids: list[int] = []
    cls_positions = []
    for k, ids in enumerate(encoded):
        cls_positions.append(len(input_ids))
        input_ids += [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        token_type_ids += [(first + k) % 2] * (len(ids) + 2)
    return Window(input_ids, token_type_ids, cls_positions, first)


def merge_windows(num_sentences: int, windows: Sequence[Window], scores: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Average each sentence's scores over its windows: (S,)."""
    total, count = np.zeros(num_sentences), np.zeros(num_sentences)
    for window, score in zip(windows, scores, strict=True):
        total[window.first : window.first + len(score)] += score
        count[window.first : window.first + len(score)] += 1
    return np.asarray(total / count)


# ---- model ----


def build_head(hidden_size: int, config: HeadConfig) -> Any:
    """Return the layers over sentences with random weights.

    The forward pass takes sentence vectors (B, S, D), the sentences' indices in the article (B, S) and a bool mask
    (B, S), False for padding, and returns log-odds (B, S).

    Raises:
        RecipeError: the heads do not divide the hidden size.
    """
    import torch

    if hidden_size % config.num_heads:
        what = f"num_heads={config.num_heads} does not divide the encoder's {hidden_size}"
        raise RecipeError("head", what, "set head.num_heads to a divisor")

    class Head(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(
                hidden_size,
                config.num_heads,
                config.feed_forward_size,
                config.dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            norm = torch.nn.LayerNorm(hidden_size, eps=1e-6)
            self.layers = torch.nn.TransformerEncoder(layer, config.num_layers, norm, enable_nested_tensor=False)
            self.output = torch.nn.Linear(hidden_size, 1)
            for name, parameter in self.named_parameters():
                if parameter.dim() > 1:
                    torch.nn.init.xavier_uniform_(parameter)
                elif name.endswith("bias"):
                    torch.nn.init.zeros_(parameter)

        def forward(self, vectors: "Tensor", indices: "Tensor", sentence_mask: "Tensor") -> "Tensor":
            positioned = vectors + sinusoids(indices, hidden_size).to(vectors.dtype)  # (B, S, D)
            seen = self.layers(positioned, src_key_padding_mask=~sentence_mask)  # (B, S, D)
            log_odds: Tensor = self.output(seen).squeeze(-1)  # (B, S)
            return log_odds

    return Head()


def sinusoids(indices: "Tensor", size: int) -> "Tensor":
    """Return the sinusoidal embeddings of positions (…) as (…, size); unbounded (Vaswani et al. 2017)."""
    import torch

    rates = torch.exp(torch.arange(0, size, 2, device=indices.device) * (-math.log(10_000.0) / size))  # (size / 2,)
    angles = indices.float().unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :size]


def build_model(encoder: Any, head: Any) -> Any:
    """Join an encoder and a head into a module from a batch of `collate` to `logits`, and `loss` if labelled."""
    import torch

    class BertSumExt(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = encoder, head

        def forward(
            self,
            cls_positions: "Tensor",
            indices: "Tensor",
            sentence_mask: "Tensor",
            labels: "Tensor | None" = None,
            **inputs: "Tensor",
        ) -> "dict[str, Tensor]":
            hidden = self.encoder(**inputs).last_hidden_state  # (B, T, D)
            rows = torch.arange(len(hidden), device=hidden.device).unsqueeze(1)
            logits = self.head(hidden[rows, cls_positions], indices, sentence_mask).float()  # (B, S)
            if labels is None:
                return {"logits": logits}
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[sentence_mask], labels[sentence_mask])
            return {"loss": loss, "logits": logits}

    return BertSumExt()


def collate(
    windows: Sequence[Window], tokenizer: "PreTrainedTokenizerBase", labels: Sequence[Sequence[float]] | None = None
) -> "dict[str, Tensor]":
    """Pad the tokens and the sentences of windows to a batch.

    Returns:
        `input_ids` and the other inputs of the tokenizer's model, int64 (B, T); `cls_positions` and `indices`, int64
        (B, S); `sentence_mask`, bool (B, S); `labels`, float32 (B, S), if given.
    """
    import torch

    features = [{"input_ids": w.input_ids, "token_type_ids": w.token_type_ids} for w in windows]
    if "token_type_ids" not in tokenizer.model_input_names:
        features = [{"input_ids": w.input_ids} for w in windows]
    batch: dict[str, Any] = dict(tokenizer.pad(features, return_tensors="pt"))
    num = [len(w.cls_positions) for w in windows]
    sentence_mask = torch.arange(max(num)) < torch.tensor(num).unsqueeze(1)  # (B, S)
    batch["sentence_mask"] = sentence_mask
    columns: dict[str, Sequence[Sequence[float]]] = {
        "cls_positions": [w.cls_positions for w in windows],
        "indices": [list(w.sentences) for w in windows],
    }
    if labels is not None:
        columns["labels"] = labels
    for name, rows in columns.items():
        padded = torch.zeros(sentence_mask.shape, dtype=torch.float32 if name == "labels" else torch.int64)
        for k, row in enumerate(rows):
            padded[k, : len(row)] = torch.tensor(row)
        batch[name] = padded
    return batch


def load_encoder(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> Any:
    """Load the encoder of a folder without its head, in single precision; incomplete weights are an error."""
    with quiet_transformers():
        return load_model(folder, tokenizer, CLASS_WITH_HEAD, {"num_labels": 1}).base_model


# ---- scoring ----


class SentenceScorer:
    """A trained BertSumExt, which maps an article's sentences to log-odds."""

    def __init__(self, encode: States, head: Any, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> None:
        """Use a loaded encoder, and a head in single precision on the CPU; see `load`."""
        self._encode, self._head, self._tokenizer, self._max_length = encode, head.eval(), tokenizer, max_length

    @classmethod
    def load(cls, source: str | Path, runtime: str = "auto") -> "SentenceScorer":
        """Load a model that `downstream.extractive` saved.

        Args:
            source: folder or hub id.
            runtime: backend of the encoder, see `downstream.runtime`; `auto` is the GPU if there is one, else the
                fastest backend of this CPU, which is measured once and remembered.

        Raises:
            CheckpointError: files are missing or damaged.
            UsageError: the runtime is not installed.
        """
        import torch

        folder = resolve(str(source))
        settings = read_settings(folder / SCORER_FILE)
        tokenizer = load_tokenizer(folder)
        head = build_head(int(_hidden_size(folder)), settings.head)
        try:
            head.load_state_dict(read_tensors(folder / HEAD_FILE))
        except RuntimeError as error:
            what = f"does not fit the encoder or is damaged ({error})"
            raise CheckpointError(folder / HEAD_FILE, what, "restore or train it again") from error
        if runtime == "torch" or (runtime == "auto" and torch.cuda.is_available()):
            encode = states_of(load_encoder(folder, tokenizer).to("cuda" if torch.cuda.is_available() else "cpu"))
        else:
            from downstream.runtimes.predictor import Runtime

            network = states_network(folder, tokenizer)
            encode = Runtime.load(network, runtime, threads=torch.get_num_threads()).run
        return cls(encode, head, tokenizer, min(settings.max_length, tokenizer.model_max_length))

    def log_odds(self, sentences: Sequence[str]) -> NDArray[np.float64]:
        """Score the sentences of an article.

        Windows run one at a time without padding: on a CPU padding costs more than a batch saves, and scores cannot
        depend on other windows.

        Returns:
            (S,) log-odds that an editor would choose a sentence.
        """
        import torch

        windows = make_windows(sentences, self._tokenizer, self._max_length)
        scores = []
        for window in windows:
            batch = collate([window], self._tokenizer)
            inputs = {name: batch[name].numpy() for name in self._tokenizer.model_input_names}
            vectors = torch.from_numpy(self._encode(inputs)[:, window.cls_positions])  # (1, S, D)
            with torch.inference_mode():
                scores.append(self._head(vectors, batch["indices"], batch["sentence_mask"])[0].double().numpy())
        return merge_windows(len(sentences), windows, scores)


def states_of(encoder: Any) -> States:
    """Wrap a torch encoder on any device as a function of NumPy arrays."""
    import torch

    encoder = encoder.eval()

    def encode(inputs: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        batch = {name: torch.from_numpy(array).to(encoder.device) for name, array in inputs.items()}
        with torch.inference_mode():
            states: NDArray[np.float32] = encoder(**batch).last_hidden_state.float().cpu().numpy()
        return states

    return encode


def states_network(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> "Network":
    """Describe an encoder with the output token vectors, float (B, T, D), for `downstream.runtime`."""
    from torch import nn

    from downstream.runtimes.network import Network
    from downstream.runtimes.probes import ProbeInputs, probe_texts
    from downstream.runtimes.weights import EncoderWeights

    names = tuple(tokenizer.model_input_names)

    class States(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = load_encoder(folder, tokenizer)

        def forward(self, *inputs: "Tensor") -> "Tensor":
            states: Tensor = self.encoder(**dict(zip(names, inputs, strict=True))).last_hidden_state
            return states

    def probe() -> ProbeInputs:
        sentences = probe_texts(tokenizer, [PROBE_SENTENCE] * PROBE_SENTENCES * NUM_PROBES)
        groups = [sentences[k : k + PROBE_SENTENCES] for k in range(0, len(sentences), PROBE_SENTENCES)]
        batches = [collate(make_windows(group, tokenizer, 512)[:1], tokenizer) for group in groups]
        return ProbeInputs([{name: batch[name].numpy() for name in names} for batch in batches], _share_equal)

    return Network(
        where=str(folder),
        digest=fingerprint({"files": ModelFolder(folder).digest(), "head": "states"}),
        inputs=names,
        head="states",
        build=lambda: States().eval(),
        weights=lambda: EncoderWeights.from_folder(folder),
        probe=functools.cache(probe),
    )


def _share_equal(reference: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]) -> float:
    """Return the share of windows whose concatenated token vectors have a cosine of at least `MIN_COSINE`."""
    are_equal = []
    for a, b in zip(reference, other, strict=True):
        cosine = float((a * b).sum()) / max(1e-12, float(np.linalg.norm(a)) * float(np.linalg.norm(b)))
        are_equal.append(cosine >= MIN_COSINE)
    return float(np.mean(are_equal))


def _hidden_size(folder: Path) -> int:
    """Return the encoder's D without loading its weights."""
    return ModelFolder(folder).hidden_size


class Settings(Config):
    """Contents of `head.json`."""

    head: HeadConfig
    max_length: int
    """Tokens of a window."""
    recipe: dict[str, Any]
    """Encoder, data, settings and versions, from which the weights can be reproduced."""
    metrics: dict[str, float]
    """Precision at the number of gold sentences, on held-out articles; empty if none were held out."""


def read_settings(path: Path) -> Settings:
    """Read `head.json`.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        return Settings.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise CheckpointError(path, "missing or damaged", "give a folder that downstream.extractive saved") from error
