"""What can be run by another runtime than torch: networks of token ids, and what each is measured and checked with.

A `Network` is a description; nothing is loaded before `build`. `finetuned_network` describes the folder of a finished
fine-tuning, `pooled_network` an encoder whose text vector is the mean of its token vectors.

A classifier reads nothing but [CLS] of its last layer. The BERT that is exported for one computes nothing else there:
the same numbers, and most of a layer less work.

Source of the length distribution: 20,000 comments on Korean news (kocohub/korean-hate-speech, unlabeled) have 26.3
tokens of kpfBERT's vocabulary in the mean and 18 in the median, and their logarithms a standard deviation of 0.77.
"""

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import fingerprint
from corpora.foundation.machine import no_file_bars
from downstream.encoders.folder import ModelFolder
from downstream.encoders.tokenizers import load_tokenizer
from downstream.encoders.weights import load_model
from downstream.families.classification import Regression
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.finetune import RESULT_FILE, load_finetuned
from downstream.finetuning.result import read_result
from downstream.runtimes.numpy_bert import NumpyBert, PlainTokenizer, is_plain_bert
from downstream.task import SAMPLE_ROOT, Family, Features, Task, TextExample, get_task

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase

Batch: TypeAlias = Mapping[str, NDArray[np.int64]]
"""Input name → (B, T)."""
FloatArray: TypeAlias = NDArray[np.float32]

MEAN_TOKENS, LOG_DEVIATION = 25.0, 0.75
"""Of the lognormal lengths of comments, special tokens included."""
MIN_TOKENS, MAX_TOKENS = 4, 128
LENGTH_SEED = 20260101
NUM_TRIALS = 200
SCORE_TOLERANCE = 0.01
"""Difference of scores, as a fraction of their scale, up to which they agree."""
COSINE_TOLERANCE = 0.99
"""Cosine of two vectors of a text from which on they agree."""
SEQUENCE_HEAD = "AutoModelForSequenceClassification"


@dataclass(frozen=True)
class Trial:
    """What a network is measured, checked and calibrated with."""

    inputs: Sequence[Batch]
    """One row each, without padding."""
    agreement: Callable[[Sequence[FloatArray], Sequence[FloatArray]], float]
    """Output rows of the reference and of another runtime for the first inputs → share of decisions that agree."""


@dataclass(frozen=True)
class PlainFunction:
    """What a BERT of `downstream.runtimes.numpy_bert` is asked."""

    load: Callable[[], NumpyBert]
    ask: Callable[[NumpyBert, Batch], FloatArray]
    """The BERT, or another of its class, and inputs → the network's output."""


@dataclass(frozen=True)
class Network:
    """A function of token ids that is to be run: what it is, before anything is loaded."""

    where: str
    """Folder, for messages."""
    digest: str
    """Of all that decides the outputs: weights, config, tokenizer, head."""
    inputs: tuple[str, ...]
    """Names of the inputs, int64 (B, T), in the order of `forward`; `input_ids` and `attention_mask` are among them."""
    build: Callable[[], "nn.Module"]
    """Loads the reference: the network as transformers computes it. Its output is one float tensor, B first."""
    trial: Callable[[], Trial]
    build_exported: Callable[[], "nn.Module"]
    """Loads the same function in the form that is exported."""
    num_heads: int
    hidden_size: int
    """By these two the fusion of attention knows it when it sees it."""
    plain: PlainFunction | None = None
    """The same function without torch; None: it is none that `downstream.runtimes.numpy_bert` knows."""


def lognormal_lengths(count: int, *, seed: int = LENGTH_SEED) -> list[int]:
    """Return the fixed lengths, in tokens, of everything that is timed: mean about 25, median 19, at most 128.

    They are the distribution's quantiles in an order drawn by SEED: of a hundred lengths drawn at random the median is
    often a token or two off, which is up to a tenth of every time that is told of it.
    """
    normal = statistics.NormalDist(math.log(MEAN_TOKENS) - LOG_DEVIATION**2 / 2, LOG_DEVIATION)
    quantiles = [math.exp(normal.inv_cdf((place + 0.5) / count)) for place in range(count)]
    lengths = np.clip(np.rint(quantiles), MIN_TOKENS, MAX_TOKENS)
    return [int(length) for length in np.random.default_rng(seed).permutation(lengths)]


# --- fine-tuned folders -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finetuned:
    """What is known of a fine-tuned folder without its weights."""

    folder: Path
    task: Task
    tokenizer: "PreTrainedTokenizerBase"
    """One of `downstream.runtimes.numpy_bert`, which is ready sooner, where it can do all that the family asks for."""
    max_length: int
    """Longest input in tokens, as the model was trained."""

    @property
    def model(self) -> ModelFolder:
        """The folder as such."""
        return ModelFolder(self.folder)

    @property
    def family(self) -> Family:
        """The task's."""
        return self.task.family

    @property
    def num_parameters(self) -> int:
        """Of the encoder, head left out, as in results."""
        return self.model.num_parameters

    @property
    def size_bytes(self) -> int:
        """Of the weights on disk, head included."""
        return self.model.weights_bytes


def read_finetuned(folder: Path) -> Finetuned:
    """Read all of a fine-tuned folder but its weights.

    Raises:
        CheckpointError: the folder is no finished fine-tuning.
    """
    task = get_task(ModelFolder(folder).task_name)
    is_light = task.family.auto_class == SEQUENCE_HEAD and is_plain_bert(folder)
    tokenizer: Any = PlainTokenizer.load(folder) if is_light else load_tokenizer(folder)
    max_length = task.finetune.max_length
    if (folder / RESULT_FILE).is_file():
        recipe = read_result(folder / RESULT_FILE).recipe
        max_length = int(recipe.get("finetune", {}).get("max_length", max_length))
    return Finetuned(folder, task, tokenizer, min(max_length, int(tokenizer.model_max_length)))


def finetuned_network(finetuned: Finetuned) -> Network:
    """Describe a fine-tuned model; its output is what its family's `decode` takes.

    Raises:
        CheckpointError: the model cannot be exported.
    """
    family, names = finetuned.family, tuple(finetuned.tokenizer.model_input_names)
    if finetuned.model.has_bilstm:
        what = "a BiLSTM on top of its encoder cannot be exported"
        raise CheckpointError(finetuned.folder, what, "use downstream.finetune.predict, or fine-tune without features=")

    def load() -> Any:
        with no_file_bars():
            return load_finetuned(finetuned.folder)[0]

    return Network(
        where=str(finetuned.folder),
        digest=fingerprint(
            {
                "files": ModelFolder(finetuned.folder).digest(),
                "head": family.auto_class,
                "max_length": finetuned.max_length,
            }
        ),
        inputs=names,
        build=lambda: headed(load(), family, names),
        build_exported=lambda: exportable(load(), family, names),
        plain=PlainFunction(lambda: NumpyBert.load(finetuned.folder), lambda bert, batch: bert.label_logits(**batch))
        if isinstance(finetuned.tokenizer, PlainTokenizer)
        else None,
        trial=functools.cache(lambda: _task_trial(finetuned)),
        **_attention_of(finetuned.folder),
    )


def _attention_of(folder: Path) -> dict[str, int]:
    """Return the two numbers by which attention is known; 0 for a network that has none of that kind."""
    model = ModelFolder(folder)
    return {"num_heads": model.num_attention_heads, "hidden_size": model.hidden_size}


def headed(model: Any, family: Family, names: Sequence[str]) -> "nn.Module":
    """Return the model as a function from its inputs, in order, to what its family decodes."""
    from torch import nn

    class Headed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: "Tensor") -> "Tensor":
            """Return what `Family.logits` does."""
            output: Tensor = family.logits(self.model, dict(zip(names, inputs, strict=True)))
            return output

    return Headed().eval()


def exportable(model: Any, family: Family, names: Sequence[str]) -> "nn.Module":
    """Return the same function in the form that is exported."""
    model.set_attn_implementation("eager")  # plain products are what the fusions look for
    if family.auto_class == SEQUENCE_HEAD and model.config.model_type == "bert" and not model.config.is_decoder:
        return _lean(model, names)
    return headed(model, family, names)


def _lean(model: Any, names: Sequence[str]) -> "nn.Module":
    """Return a BERT with a sequence head whose last layer computes [CLS] alone: one query meets all keys.

    Source of the arithmetic: Vaswani et al. 2017, section 3.2.
    """
    import torch
    import torch.nn.functional as F  # noqa: N812
    from torch import nn

    class Lean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            *front, self.last = model.bert.encoder.layer
            self.pooler, self.classifier = model.bert.pooler, model.classifier
            self.front = model.bert
            self.front.encoder.layer, self.front.pooler = nn.ModuleList(front), None

        def forward(self, *inputs: "Tensor") -> "Tensor":
            """Return logits (B, C) of ids (B, T)."""
            batch = dict(zip(names, inputs, strict=True))
            states = self.front(**batch).last_hidden_state  # (B, T, D)
            attention = self.last.attention.self
            heads, width = attention.num_attention_heads, attention.attention_head_size
            first = states[:, :1]  # (B, 1, D)
            query = attention.query(first).view(-1, 1, heads, width).transpose(1, 2)  # (B, heads, 1, width)
            both = F.linear(
                states,
                torch.cat([attention.key.weight, attention.value.weight]),
                torch.cat([attention.key.bias, attention.value.bias]),
            ).view(states.shape[0], -1, 2, heads, width)  # (B, T, 2, heads, width)
            key, value = both.permute(2, 0, 3, 1, 4)  # (B, heads, T, width)
            scores = query @ key.transpose(2, 3) / width**0.5  # (B, heads, 1, T)
            is_padding = 1 - batch["attention_mask"][:, None, None, :].to(scores.dtype)  # (B, 1, 1, T)
            context = (scores + is_padding * torch.finfo(scores.dtype).min).softmax(-1) @ value  # (B, heads, 1, width)
            attended = self.last.attention.output(context.transpose(1, 2).reshape(-1, 1, heads * width), first)
            logits: Tensor = self.classifier(self.pooler(self.last.output(self.last.intermediate(attended), attended)))
            return logits

    return Lean().eval()


def _task_trial(finetuned: Finetuned) -> Trial:
    """Return inputs of the kind that the model was trained on, cut from the embedded sample."""
    family, tokenizer = finetuned.family, finetuned.tokenizer
    examples = _trial_examples(finetuned)
    features = family.featurize(examples, tokenizer, finetuned.max_length, with_labels=False)
    owners = [feature["_example"] for feature in features]

    def agreement(reference: Sequence[FloatArray], other: Sequence[FloatArray]) -> float:
        # A question counts when all its windows are there.
        num_whole = owners[len(reference)] if len(reference) < len(owners) else len(examples)
        count = owners.index(num_whole) if num_whole < len(examples) else len(owners)
        both = [family.decode(rows[:count], features[:count], examples[:num_whole]) for rows in (reference, other)]
        return _share_equal(family, *both)

    return Trial([single(feature, tokenizer.model_input_names) for feature in features], agreement)


def single(feature: Features, names: Sequence[str]) -> Batch:
    """Return one feature as a batch of its own, without padding."""
    return {name: np.array([feature[name]], dtype=np.int64) for name in names}


def _trial_examples(finetuned: Finetuned) -> list[Any]:
    if isinstance(finetuned.family, SpanQA):
        task = get_task("korquad-sample")
        return [example for split in ("dev", "train") for example in task.read_split(split, SAMPLE_ROOT).examples]
    texts = trial_texts(finetuned.tokenizer, lognormal_lengths(NUM_TRIALS))
    if not finetuned.task.takes_pairs:
        return [TextExample(str(k), text, None, "") for k, text in enumerate(texts)]
    halves = [_in_two(text) for text in texts]
    return [TextExample(str(k), first, second, "") for k, (first, second) in enumerate(halves)]


def _in_two(text: str) -> tuple[str, str]:
    words = text.split()
    middle = max(1, len(words) // 2)
    return " ".join(words[:middle]), " ".join(words[middle:])


def trial_texts(tokenizer: "PreTrainedTokenizerBase", lengths: Sequence[int]) -> list[str]:
    """Return texts of about so many tokens, special ones included: embedded reviews, and what follows them, cut short.

    What follows a review has its label, as far as there is any: in one text of praise and blame a sentiment model finds
    neither, and its answer hangs on rounding. Texts end with an eojeol, and so have a token or two less than asked for.
    """
    examples = get_task("nsmc-sample").read_split("train", SAMPLE_ROOT).examples
    reviews = [example.text.split() for example in sorted(examples, key=lambda example: str(example.label))]
    starts = [0, *accumulate(map(len, reviews))][:-1]
    half = len(starts) // 2
    starts = [
        start for pair in zip(starts[:half], starts[half:], strict=False) for start in pair
    ]  # both labels in turn
    words = [word for review in reviews for word in review]
    counts = [len(ids) for ids in tokenizer(words, add_special_tokens=False)["input_ids"]]
    texts = []
    for k, length in enumerate(lengths):
        at = end = starts[k % len(starts)] % (len(words) - MAX_TOKENS)
        room = length - 2 - counts[at]
        while room >= 0:
            end += 1
            room -= counts[end]
        texts.append(" ".join(words[at : max(end, at + 1)]))
    return texts


def _share_equal(family: Family, reference: Sequence[Any], other: Sequence[Any]) -> float:
    """Return which share of the predictions agree."""
    if isinstance(family, Regression):
        room = SCORE_TOLERANCE * (family.high - family.low)
        equal = [abs(a - b) <= room for a, b in zip(reference, other, strict=True)]
    elif isinstance(family, Tagging):
        pairs = zip(" ".join(reference).split(), " ".join(other).split(), strict=True)
        equal = [a == b for a, b in pairs]
    else:
        equal = [a == b for a, b in zip(reference, other, strict=True)]
    return float(np.mean(equal)) if equal else 0.0


# --- encoders ---------------------------------------------------------------------------------------------------------


def pooled_network(folder: Path, tokenizer: "PreTrainedTokenizerBase") -> Network:
    """Describe an encoder whose output is the mean of its token vectors, float (B, D), of any length."""
    names = tuple(tokenizer.model_input_names)

    def build(attention: str) -> "nn.Module":
        with no_file_bars():
            model = load_model(folder, tokenizer, SEQUENCE_HEAD, {}).base_model
        model.set_attn_implementation(attention)
        return _pooled(model, names)

    def trial() -> Trial:
        texts = trial_texts(tokenizer, lognormal_lengths(NUM_TRIALS))
        encoded = tokenizer(texts, truncation=True, max_length=int(tokenizer.model_max_length))
        features = [{name: encoded[name][k] for name in names} for k in range(len(texts))]
        return Trial([single(feature, names) for feature in features], share_parallel)

    return Network(
        where=str(folder),
        digest=fingerprint({"files": ModelFolder(folder).digest(), "head": "mean"}),
        inputs=names,
        build=lambda: build("sdpa"),
        build_exported=lambda: build("eager"),
        plain=PlainFunction(lambda: NumpyBert.load(folder), lambda bert, batch: bert.means(**batch))
        if is_plain_bert(folder)
        else None,
        trial=functools.cache(trial),
        **_attention_of(folder),
    )


def _pooled(model: Any, names: Sequence[str]) -> "nn.Module":
    from torch import nn

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: "Tensor") -> "Tensor":
            """Return the mean (B, D) over the tokens that are no padding."""
            batch = dict(zip(names, inputs, strict=True))
            states = self.model(**batch).last_hidden_state  # (B, T, D)
            seen = batch["attention_mask"].unsqueeze(-1).to(states.dtype)  # (B, T, 1)
            mean: Tensor = (states * seen).sum(dim=1) / seen.sum(dim=1)
            return mean

    return Pooled().eval()


def share_parallel(reference: Sequence[FloatArray], other: Sequence[FloatArray]) -> float:
    """Return the share of vectors that point in the same direction, up to `COSINE_TOLERANCE`."""
    a, b = np.stack(reference), np.stack(other)  # (N, D)
    cosines = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(np.mean(cosines >= COSINE_TOLERANCE))
