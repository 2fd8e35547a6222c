"""Inputs with which the backends of a network are timed and compared, cut from the embedded sample.

Source of the length distribution: 20,000 comments on Korean news (kocohub/korean-hate-speech, unlabeled) have 26.3
tokens of kpfBERT's vocabulary in the mean and 18 in the median, and their logarithms a standard deviation of 0.77.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.foundation.files import SAMPLE_ROOT
from downstream.families.classification import Regression
from downstream.families.span_qa import SpanQA
from downstream.families.tagging import Tagging
from downstream.runtimes.graph import Batch
from downstream.runtimes.weights import FloatArray
from downstream.task import Family, Features, Task, TextExample, get_task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MEAN_TOKENS, LOG_DEVIATION = 25.0, 0.75
"""Of the lognormal lengths of comments, special tokens included."""
MIN_TOKENS, MAX_TOKENS = 4, 128
LENGTH_SEED = 20260101
NUM_PROBES = 200
SCORE_TOLERANCE = 0.01
"""Difference of scores, as a fraction of their scale, up to which they agree."""
COSINE_TOLERANCE = 0.99
"""Cosine of two vectors of a text from which on they agree."""


@dataclass(frozen=True)
class ProbeInputs:
    """What the backends of a network are timed and compared with."""

    inputs: Sequence[Batch]
    """One row each, without padding."""
    agreement: Callable[[Sequence[FloatArray], Sequence[FloatArray]], float]
    """Output rows of the reference and of another backend for the first inputs → share of decisions that agree."""


def lognormal_lengths(count: int, *, seed: int = LENGTH_SEED) -> list[int]:
    """Return the fixed lengths, in tokens, of everything that is timed: mean about 25, median 19, at most 128.

    They are the distribution's quantiles in an order drawn by SEED: of a hundred lengths drawn at random the median is
    often a token or two off, which is up to a tenth of every time that is reported.
    """
    normal = statistics.NormalDist(math.log(MEAN_TOKENS) - LOG_DEVIATION**2 / 2, LOG_DEVIATION)
    quantiles = [math.exp(normal.inv_cdf((rank + 0.5) / count)) for rank in range(count)]
    lengths = np.clip(np.rint(quantiles), MIN_TOKENS, MAX_TOKENS)
    return [int(length) for length in np.random.default_rng(seed).permutation(lengths)]


def probe_texts(tokenizer: "PreTrainedTokenizerBase", lengths: Sequence[int]) -> list[str]:
    """Return texts of about so many tokens, special ones included: embedded reviews, and what follows them, cut short.

    What follows a review has its label, as far as there is any: in one text of praise and blame a sentiment model finds
    neither, and its answer depends on rounding. Texts end with an eojeol, and so have a token or two less than asked
    for.
    """
    examples = get_task("nsmc-sample").read_split("train", SAMPLE_ROOT).examples
    reviews = [example.text.split() for example in sorted(examples, key=lambda example: str(example.label))]
    starts = [0, *accumulate(map(len, reviews))][:-1]
    half = len(starts) // 2
    # Both labels in turn.
    starts = [start for pair in zip(starts[:half], starts[half:], strict=False) for start in pair]
    words = [word for review in reviews for word in review]
    counts = [len(ids) for ids in tokenizer(words, add_special_tokens=False)["input_ids"]]
    texts = []
    for k, length in enumerate(lengths):
        begin = end = starts[k % len(starts)] % (len(words) - MAX_TOKENS)
        room = length - 2 - counts[begin]
        while room >= 0:
            end += 1
            room -= counts[end]
        texts.append(" ".join(words[begin : max(end, begin + 1)]))
    return texts


def task_probe(task: Task, tokenizer: "PreTrainedTokenizerBase", max_length: int) -> ProbeInputs:
    """Return inputs of the kind that a model was fine-tuned on.

    Args:
        task: of the model.
        tokenizer: of the model.
        max_length: of an input in tokens.
    """
    family, examples = task.family, _probe_examples(task, tokenizer)
    features = family.featurize(examples, tokenizer, max_length, with_labels=False)
    owners = [feature["_example"] for feature in features]

    def agreement(reference: Sequence[FloatArray], other: Sequence[FloatArray]) -> float:
        # A question counts when all its windows are there.
        num_whole = owners[len(reference)] if len(reference) < len(owners) else len(examples)
        count = owners.index(num_whole) if num_whole < len(examples) else len(owners)
        both = [family.decode(rows[:count], features[:count], examples[:num_whole]) for rows in (reference, other)]
        return _share_equal(family, *both)

    return ProbeInputs([single(feature, tokenizer.model_input_names) for feature in features], agreement)


def pooled_probe(tokenizer: "PreTrainedTokenizerBase") -> ProbeInputs:
    """Return inputs for an encoder of single texts, whose outputs are vectors."""
    texts, names = probe_texts(tokenizer, lognormal_lengths(NUM_PROBES)), tokenizer.model_input_names
    encoded = tokenizer(texts, truncation=True, max_length=int(tokenizer.model_max_length))
    features = [{name: encoded[name][k] for name in names} for k in range(len(texts))]
    return ProbeInputs([single(feature, names) for feature in features], share_parallel)


def single(feature: Features, names: Sequence[str]) -> Batch:
    """Return one feature as a batch of its own, without padding."""
    return {name: np.array([feature[name]], dtype=np.int64) for name in names}


def _probe_examples(task: Task, tokenizer: "PreTrainedTokenizerBase") -> list[Any]:
    if isinstance(task.family, SpanQA):
        sample = get_task("korquad-sample")
        return [example for split in ("dev", "train") for example in sample.read_split(split, SAMPLE_ROOT).examples]
    texts = probe_texts(tokenizer, lognormal_lengths(NUM_PROBES))
    if not task.takes_pairs:
        return [TextExample(str(k), text, None, "") for k, text in enumerate(texts)]
    halves = [_in_two(text) for text in texts]
    return [TextExample(str(k), first, second, "") for k, (first, second) in enumerate(halves)]


def _in_two(text: str) -> tuple[str, str]:
    words = text.split()
    middle = max(1, len(words) // 2)
    return " ".join(words[:middle]), " ".join(words[middle:])


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


def share_parallel(reference: Sequence[FloatArray], other: Sequence[FloatArray]) -> float:
    """Return the share of vectors that point in the same direction, up to `COSINE_TOLERANCE`."""
    a, b = np.stack(reference), np.stack(other)  # (N, D)
    cosines = (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
    return float(np.mean(cosines >= COSINE_TOLERANCE))
