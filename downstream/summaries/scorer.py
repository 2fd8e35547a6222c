"""BertSumExt: a Transformer over the sentences of an article, on top of any encoder (Liu and Lapata 2019).

    python -m downstream.extractive train DATA --model klue/bert-base --out runs/bertsum

DATA is AI-Hub's document summaries, the contests' JSONL, or articles with headlines; see
`downstream.summaries.labelled`. Every sentence gets a [CLS] before and a [SEP] behind it, segments alternate from
sentence to sentence, and two more layers let the sentences' vectors see each other. An article that is longer than
the encoder reads is read in overlapping windows: every sentence is scored, whatever the length. Running the command
again continues an interrupted training.

The folder holds an encoder that transformers loads as it is, and beside it `head.safetensors` with `head.json`.
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
from downstream.embeddings.pipeline import quiet_transformers
from downstream.encoders.folder import SCORER_FILE, ModelFolder
from downstream.encoders.hub import resolve
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from downstream.runtimes.network import Network


HEAD_FILE = "head.safetensors"
HEADED = "AutoModelForSequenceClassification"
"""The encoder is taken out of this: `load_model` finds gaps in its weights by the names they have below a head."""
NUM_PROBES, PROBE_SENTENCES, PROBE_SENTENCE = 48, 4, 24
"""Windows that backends are measured with, sentences in each, and tokens of a sentence: small, so that it is quick."""
ALIKE = 0.99
"""Cosine from which on the vectors of a window count as the same."""
States: TypeAlias = Callable[[Mapping[str, NDArray[np.int64]]], NDArray[np.float32]]
"""Inputs of one window, (1, T) each → vectors of its tokens, (1, T, D)."""


class HeadConfig(Config):
    """Shape of the layers over sentences; the defaults are those of Liu and Lapata 2019, section 4.2."""

    num_layers: int = Field(default=2, ge=1)
    num_heads: int = Field(default=8, ge=1)
    feed_forward_size: int = Field(default=2048, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)


# ---- windows ----


@dataclass(frozen=True)
class Window:
    """A run of whole sentences that an encoder reads at once."""

    input_ids: list[int]
    token_type_ids: list[int]
    """Interval segments: 0 and 1 by turns."""
    cls_places: list[int]
    """Where each sentence's [CLS] is."""
    first: int
    """Index of the first sentence."""

    @property
    def sentences(self) -> range:
        """Indices of the window's sentences in the article."""
        return range(self.first, self.first + len(self.cls_places))


def make_windows(sentences: Sequence[str], tokenizer: "PreTrainedTokenizerBase", max_length: int) -> list[Window]:
    """Lay sentences out as `[CLS] a [SEP] [CLS] b [SEP] …` in windows of whole sentences.

    Where one window does not hold the article, each begins in the middle of the one before, so that every sentence but
    those at the ends is read with sentences on both sides. A sentence that is longer than a window is read as far as it
    goes.

    Args:
        sentences: S texts.
        tokenizer: the encoder's.
        max_length: tokens of a window.

    Returns:
        Windows in order; each sentence is in at least one. None for no sentences.
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
        end, room = first, max_length
        while end < len(lengths) and lengths[end] <= room:
            room -= lengths[end]
            end += 1
        # Behind a long sentence a window may end where the one before it does, and shows nothing new.
        if not windows or end > windows[-1].sentences.stop:
            windows.append(_lay_out(encoded[first:end], first, tokenizer))
        if end == len(lengths):
            return windows
        half = (max_length - room) / 2 - lengths[first]
        first += 1
        while first < end and lengths[first] <= half:
            half -= lengths[first]
            first += 1


def _lay_out(encoded: Sequence[Sequence[int]], first: int, tokenizer: "PreTrainedTokenizerBase") -> Window:
    input_ids: list[int] = []
    token_type_ids: list[int] = []
    cls_places = []
    for k, ids in enumerate(encoded):
        cls_places.append(len(input_ids))
        input_ids += [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        token_type_ids += [(first + k) % 2] * (len(ids) + 2)
    return Window(input_ids, token_type_ids, cls_places, first)


def merge_windows(num_sentences: int, windows: Sequence[Window], scores: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Average the scores that sentences got in several windows: (S,)."""
    total, count = np.zeros(num_sentences), np.zeros(num_sentences)
    for window, score in zip(windows, scores, strict=True):
        total[window.first : window.first + len(score)] += score
        count[window.first : window.first + len(score)] += 1
    return np.asarray(total / count)


# ---- model ----


def build_head(hidden_size: int, config: HeadConfig) -> Any:
    """Return the layers over sentences, at random.

    Its forward takes sentence vectors (B, S, D), the sentences' indices in the article (B, S) and bool (B, S), true for
    sentences that are there, and returns log-odds (B, S).

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

        def forward(self, vectors: "Tensor", indices: "Tensor", is_there: "Tensor") -> "Tensor":
            placed = vectors + sinusoids(indices, hidden_size).to(vectors.dtype)  # (B, S, D)
            seen = self.layers(placed, src_key_padding_mask=~is_there)  # (B, S, D)
            log_odds: Tensor = self.output(seen).squeeze(-1)  # (B, S)
            return log_odds

    return Head()


def sinusoids(indices: "Tensor", size: int) -> "Tensor":
    """Return sine and cosine embeddings of places (…) as (…, size), for places of any height (Vaswani et al. 2017)."""
    import torch

    rates = torch.exp(torch.arange(0, size, 2, device=indices.device) * (-math.log(10_000.0) / size))  # (size / 2,)
    angles = indices.float().unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :size]


def build_model(encoder: Any, head: Any) -> Any:
    """Join an encoder and a head into one module: a batch of `collate` in, `loss` (if labelled) and `logits` out."""
    import torch

    class BertSumExt(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = encoder, head

        def forward(
            self,
            cls_places: "Tensor",
            indices: "Tensor",
            is_there: "Tensor",
            labels: "Tensor | None" = None,
            **inputs: "Tensor",
        ) -> "dict[str, Tensor]":
            hidden = self.encoder(**inputs).last_hidden_state  # (B, T, D)
            rows = torch.arange(len(hidden), device=hidden.device).unsqueeze(1)
            logits = self.head(hidden[rows, cls_places], indices, is_there).float()  # (B, S)
            if labels is None:
                return {"logits": logits}
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[is_there], labels[is_there])
            return {"loss": loss, "logits": logits}

    return BertSumExt()


def collate(
    windows: Sequence[Window], tokenizer: "PreTrainedTokenizerBase", labels: Sequence[Sequence[float]] | None = None
) -> "dict[str, Tensor]":
    """Pad windows to the longest one, tokens and sentences alike.

    Returns:
        `input_ids` and what else the tokenizer's model takes, int64 (B, T); `cls_places` and `indices`, int64 (B, S);
        `is_there`, bool (B, S); `labels`, float32 (B, S), if given.
    """
    import torch

    features = [{"input_ids": w.input_ids, "token_type_ids": w.token_type_ids} for w in windows]
    if "token_type_ids" not in tokenizer.model_input_names:
        features = [{"input_ids": w.input_ids} for w in windows]
    batch: dict[str, Any] = dict(tokenizer.pad(features, return_tensors="pt"))
    num = [len(w.cls_places) for w in windows]
    is_there = torch.arange(max(num)) < torch.tensor(num).unsqueeze(1)  # (B, S)
    batch["is_there"] = is_there
    columns: dict[str, Sequence[Sequence[float]]] = {
        "cls_places": [w.cls_places for w in windows],
        "indices": [list(w.sentences) for w in windows],
    }
    if labels is not None:
        columns["labels"] = labels
    for name, rows in columns.items():
        padded = torch.zeros(is_there.shape, dtype=torch.float32 if name == "labels" else torch.int64)
        for k, row in enumerate(rows):
            padded[k, : len(row)] = torch.tensor(row)
        batch[name] = padded
    return batch


def load_encoder(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> Any:
    """Load the bare encoder of a folder in single precision, its weights complete."""
    with quiet_transformers():
        return load_model(folder, tokenizer, HEADED, {"num_labels": 1}).base_model


# ---- scoring ----


class SentenceScorer:
    """A trained BertSumExt: an article's sentences in, their log-odds out."""

    def __init__(self, encode: States, head: Any, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> None:
        """Use an encoder that is ready to run, and a head in single precision on the CPU; see `load`."""
        self._encode, self._head, self._tokenizer, self._max_length = encode, head.eval(), tokenizer, max_length

    @classmethod
    def load(cls, source: str | Path, runtime: str = "auto") -> "SentenceScorer":
        """Load a folder or hub id that `train` saved.

        Args:
            source: the model.
            runtime: what computes the encoder: a word of `downstream.runtime`. `auto` is the GPU if there is one, else
                the fastest backend of this machine's CPU, which is measured once and remembered.

        Raises:
            CheckpointError: files are missing or damaged.
            UsageError: the runtime is not installed.
        """
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        folder = resolve(str(source))
        settings = read_settings(folder / SCORER_FILE)
        tokenizer = load_tokenizer(folder)
        head = build_head(int(_hidden_size(folder)), settings.head)
        try:
            head.load_state_dict(load_file(folder / HEAD_FILE))
        except (OSError, SafetensorError, RuntimeError) as error:
            what = f"cannot be read as the head of this encoder ({error})"
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

        Windows are computed one by one at their own length. Padding costs more than a batch saves on a CPU, and scores
        cannot depend on what else is summarised.

        Returns:
            (S,) log-odds that an editor would choose them.
        """
        import torch

        windows = make_windows(sentences, self._tokenizer, self._max_length)
        scores = []
        for window in windows:
            batch = collate([window], self._tokenizer)
            inputs = {name: batch[name].numpy() for name in self._tokenizer.model_input_names}
            vectors = torch.from_numpy(self._encode(inputs)[:, window.cls_places])  # (1, S, D)
            with torch.inference_mode():
                scores.append(self._head(vectors, batch["indices"], batch["is_there"])[0].double().numpy())
        return merge_windows(len(sentences), windows, scores)


def states_of(encoder: Any) -> States:
    """Return a torch encoder, on whichever device, as a function of arrays."""
    import torch

    encoder = encoder.eval()

    def encode(inputs: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        batch = {name: torch.from_numpy(array).to(encoder.device) for name, array in inputs.items()}
        with torch.inference_mode():
            states: NDArray[np.float32] = encoder(**batch).last_hidden_state.float().cpu().numpy()
        return states

    return encode


def states_network(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> "Network":
    """Describe an encoder whose output is the vectors of its tokens, float (B, T, D), for `downstream.runtime`."""
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
        return ProbeInputs([{name: batch[name].numpy() for name in names} for batch in batches], _share_alike)

    return Network(
        where=str(folder),
        digest=fingerprint({"files": ModelFolder(folder).digest(), "head": "states"}),
        inputs=names,
        head="states",
        build=lambda: States().eval(),
        weights=lambda: EncoderWeights.from_folder(folder),
        probe=functools.cache(probe),
    )


def _share_alike(reference: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]) -> float:
    """Return the share of windows whose token vectors have nearly the same direction in both, taken together."""
    alike = []
    for a, b in zip(reference, other, strict=True):
        cosine = float((a * b).sum()) / max(1e-12, float(np.linalg.norm(a)) * float(np.linalg.norm(b)))
        alike.append(cosine >= ALIKE)
    return float(np.mean(alike))


def _hidden_size(folder: Path) -> int:
    """Return the encoder's D without loading its weights."""
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(folder).hidden_size)


class Settings(Config):
    """What `head.json` holds."""

    head: HeadConfig
    max_length: int
    """Tokens of a window."""
    recipe: dict[str, Any]
    """What is needed to have the weights again."""
    metrics: dict[str, float]
    """Sentence precision at the number of gold sentences, on what was held out; empty if nothing was."""


def read_settings(path: Path) -> Settings:
    """Read `head.json`.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    try:
        return Settings.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise CheckpointError(path, "missing or damaged", "give a folder that downstream.extractive saved") from error
