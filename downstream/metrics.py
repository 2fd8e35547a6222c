"""The tasks' official metrics as pure functions, and the bootstrap over examples.

A `Metric` first turns every example into a row of numbers (`columns`), then aggregates weighted rows into one value
(`aggregate`). The score is the aggregate with all weights one; a bootstrap round uses multinomial weights, so an
interval needs no second pass over the texts and is exact for means, correlations and F1 alike.

Values are fractions. An undefined value (Pearson of a constant, F1 without any class) is NaN.

Sources: korquad/korquad.github.io `evaluate-v1.0.py`; KLUE-benchmark/KLUE-baseline `klue_baseline/metrics`;
scikit-learn's macro averages and SciPy's correlations, as monologg/KoELECTRA calls them.
"""

import collections
import difflib
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.texts import Language

FloatArray: TypeAlias = NDArray[np.float64]

BOOTSTRAP_ROUNDS = 10_000


@dataclass(frozen=True)
class Metric:
    """A metric: `metric(predictions, golds)` is its value as a fraction."""

    key: str
    """Name in results, e.g. `exact_match`."""
    title: str
    """Name in tables."""
    columns: Callable[[Sequence[Any], Sequence[Any]], FloatArray]
    """Predictions and golds of N examples → (N, K) numbers that determine the value."""
    aggregate: Callable[[FloatArray, FloatArray], FloatArray]
    """Rows (U, K) and weights (R, U) → R values."""
    higher_is_better: bool = True
    """Whether a larger value is a better one."""

    def __call__(self, predictions: Sequence[Any], golds: Sequence[Any]) -> float:
        """Score PREDICTIONS against GOLDS.

        Raises:
            ValueError: they differ in number, or there are none.
        """
        if len(predictions) != len(golds) or not golds:
            raise ValueError(f"{self.key}: {len(predictions)} predictions for {len(golds)} examples")
        return self.fold(self.columns(predictions, golds))

    def title_in(self, language: Language) -> str:
        """Return the name in tables; in English the key where the title is Korean."""
        return self.title if language == "ko" or self.title.isascii() else self.key

    def fold(self, columns: FloatArray) -> float:
        """Return the value of (N, K) columns, each example weighted equally."""
        return float(self.aggregate(columns, np.ones((1, len(columns))))[0])


def bootstrap_ci95(
    metric: Metric,
    columns: Sequence[FloatArray],
    *,
    seed: int = 0,
    rounds: int = BOOTSTRAP_ROUNDS,
    clusters: Sequence[int] | None = None,
) -> tuple[float, float] | None:
    """Return the 95 % percentile interval over examples of a metric averaged over seeds.

    One round draws N examples with replacement, the same for every seed, and averages the seeds' values. With clusters
    it draws as many whole clusters as there are, because examples of a cluster resemble each other: questions on one
    article are right or wrong together.

    Args:
        metric: the metric of the columns.
        columns: one (N, K) array per seed, examples in the same order.
        seed: of the resampling.
        rounds: number of resamples.
        clusters: number of each example's cluster; default: every example is drawn by itself.

    Returns:
        Lower and upper bound, or None where the metric itself is undefined.
    """
    if any(np.isnan(metric.fold(array)) for array in columns):
        return None
    # Equal rows are interchangeable: drawing the count of each distinct row is equivalent to drawing indices, and for
    # 50,000 binary outcomes it is one binomial draw instead of 50,000 indices.
    table = np.concatenate(columns, axis=1)
    if clusters is not None:
        table = np.column_stack([table, clusters])  # rows of different clusters are not interchangeable
    rows, counts = np.unique(table, axis=0, return_counts=True)
    owners = None if clusters is None else np.unique(rows[:, -1], return_inverse=True)[1]
    width = columns[0].shape[1]
    generator = np.random.default_rng(seed)
    figures: list[FloatArray] = []
    block = max(1, 2_000_000 // len(rows))
    for first in range(0, rounds, block):
        size = min(block, rounds - first)
        weights = _draw_weights(generator, size, counts, owners)
        per_seed = [metric.aggregate(rows[:, k * width : (k + 1) * width], weights) for k in range(len(columns))]
        figures.append(np.mean(per_seed, axis=0))
    low, high = np.nanpercentile(np.concatenate(figures), [2.5, 97.5])
    return float(low), float(high)


def _draw_weights(
    generator: np.random.Generator, rounds: int, counts: NDArray[np.int64], owners: NDArray[np.int64] | None
) -> FloatArray:
    """Return float (R, U): how often a resample holds each distinct row.

    Args:
        generator: source of randomness.
        rounds: R.
        counts: (U,) how often the sample holds it.
        owners: (U,) number of its cluster, from 0, where whole clusters are drawn.
    """
    if owners is None:
        return generator.multinomial(counts.sum(), counts / counts.sum(), size=rounds).astype(np.float64)
    number = int(owners.max()) + 1
    drawn = generator.multinomial(number, np.full(number, 1 / number), size=rounds)  # (R, clusters)
    return (drawn[:, owners] * counts).astype(np.float64)


def _weighted_mean(columns: FloatArray, weights: FloatArray) -> FloatArray:
    known = ~np.isnan(columns[:, 0])
    total = weights[:, known].sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(weights[:, known] @ columns[known, 0] / total)


def mean_metric(key: str, title: str, of_example: Callable[[Any, Any], float]) -> Metric:
    """Return the mean over examples of a score of prediction and gold; examples with NaN are left out."""

    def columns(predictions: Sequence[Any], golds: Sequence[Any]) -> FloatArray:
        return np.array([[of_example(p, g)] for p, g in zip(predictions, golds, strict=True)], dtype=np.float64)

    return Metric(key, title, columns, _weighted_mean)


# --- classification -------------------------------------------------------------------------------------------------


def _matches(predictions: Sequence[Any], golds: Sequence[Any]) -> FloatArray:
    return np.array([[float(p == g)] for p, g in zip(predictions, golds, strict=True)])


def _label_pairs(predictions: Sequence[Any], golds: Sequence[Any]) -> FloatArray:
    ids = {label: k for k, label in enumerate(sorted({*map(str, predictions), *map(str, golds)}))}
    return np.array([[ids[str(p)], ids[str(g)]] for p, g in zip(predictions, golds, strict=True)], dtype=np.float64)


def _macro(which: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]) -> Callable[..., FloatArray]:
    """Average `which(hits, predicted, gold)` over the classes that occur in predictions or golds, as scikit-learn."""

    def aggregate(columns: FloatArray, weights: FloatArray) -> FloatArray:
        classes = np.unique(columns)
        predicted = np.stack([weights @ (columns[:, 0] == c) for c in classes])  # (C, R)
        gold = np.stack([weights @ (columns[:, 1] == c) for c in classes])
        hits = np.stack([weights @ ((columns[:, 0] == c) & (columns[:, 1] == c)) for c in classes])
        occurs = predicted + gold > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            scores = np.where(hits > 0, which(hits, predicted, gold), 0.0)
        return np.asarray((scores * occurs).sum(axis=0) / occurs.sum(axis=0))

    return aggregate


accuracy = Metric("accuracy", "Acc", _matches, _weighted_mean)
macro_f1 = Metric("macro_f1", "macro-F1", _label_pairs, _macro(lambda hits, p, g: 2 * hits / (p + g)))
macro_precision = Metric("macro_precision", "macro-P", _label_pairs, _macro(lambda hits, p, _: hits / p))
macro_recall = Metric("macro_recall", "macro-R", _label_pairs, _macro(lambda hits, _, g: hits / g))


def _without(label: str) -> Callable[[Sequence[Any], Sequence[Any]], FloatArray]:
    """Columns of a micro-averaged F1 over all classes but LABEL: hits, predictions and golds of the others."""

    def columns(predictions: Sequence[Any], golds: Sequence[Any]) -> FloatArray:
        return np.array(
            [
                [float(p == g != label), float(p != label), float(g != label)]
                for p, g in zip(predictions, golds, strict=True)
            ]
        )

    return columns


def _micro_f1(columns: FloatArray, weights: FloatArray) -> FloatArray:
    hits, predicted, gold = (weights @ columns).T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(predicted + gold > 0, 2 * hits / (predicted + gold), 0.0)


def micro_f1_without(label: str) -> Metric:
    """Return the micro-averaged F1 over all classes but LABEL (KLUE-RE's, without `no_relation`)."""
    return Metric("micro_f1", "micro-F1", _without(label), _micro_f1)


# --- scores ---------------------------------------------------------------------------------------------------------


def _score_pairs(predictions: Sequence[Any], golds: Sequence[Any]) -> FloatArray:
    return np.array([[float(p), float(g)] for p, g in zip(predictions, golds, strict=True)])


def _pearson(columns: FloatArray, weights: FloatArray) -> FloatArray:
    return _correlate(columns[:, 0], columns[:, 1], weights)


def _correlate(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted Pearson r; x and y are (U,) or (R, U), weights (R, U)."""
    total = weights.sum(axis=1, keepdims=True)
    dx = x - (weights * x).sum(axis=1, keepdims=True) / total
    dy = y - (weights * y).sum(axis=1, keepdims=True) / total
    covariance = (weights * dx * dy).sum(axis=1)
    spread_x, spread_y = (weights * dx * dx).sum(axis=1), (weights * dy * dy).sum(axis=1)
    # A constant leaves a rounding error instead of zero variance.
    rounding = 1e-24 * total[:, 0]
    varies = (spread_x > rounding * np.max(x**2, initial=1.0)) & (spread_y > rounding * np.max(y**2, initial=1.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(varies, covariance / np.sqrt(spread_x * spread_y), np.nan)


def _mean_ranks(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Average ranks (R, U) that VALUES (U,) get when each occurs `weights` times."""
    distinct, inverse = np.unique(values, return_inverse=True)
    # Equal values are sorted next to each other, so that each run of them is one sum.
    order = np.argsort(inverse, kind="stable")
    starts = np.searchsorted(inverse[order], np.arange(len(distinct)))
    occurrences = np.add.reduceat(weights[:, order], starts, axis=1)
    below = np.cumsum(occurrences, axis=1) - occurrences
    return np.asarray((below + (occurrences + 1) / 2)[:, inverse], dtype=np.float64)


def _spearman(columns: FloatArray, weights: FloatArray) -> FloatArray:
    return _correlate(_mean_ranks(columns[:, 0], weights), _mean_ranks(columns[:, 1], weights), weights)


def _f1_at_3(columns: FloatArray, weights: FloatArray) -> FloatArray:
    """F1 of the class "similar": 3 of 5 or more, for prediction and gold (KLUE-STS)."""
    predicted, gold = columns[:, 0] >= 3, columns[:, 1] >= 3
    with np.errstate(invalid="ignore", divide="ignore"):
        f1 = 2 * (weights @ (predicted & gold)) / (weights @ predicted.astype(float) + weights @ gold.astype(float))
    return np.where(np.isnan(f1), 0.0, f1)


pearson = Metric("pearson", "Pearson", _score_pairs, _pearson)
spearman = Metric("spearman", "Spearman", _score_pairs, _spearman)
f1_at_3 = Metric("f1", "F1", _score_pairs, _f1_at_3)


# --- answer spans ---------------------------------------------------------------------------------------------------

_KORQUAD_BLANKS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The KLUE script intends a character class, but its pattern matches one quote or bracket followed by ()‘’.
_KLUE_BRACKETS = re.compile("['\"《》<>〈〉]\\(\\)‘’")


def normalize_korquad(text: str) -> str:
    """Normalise an answer as KorQuAD 1.0 does: 12 quotes and brackets become blanks, other punctuation is removed."""
    return " ".join(text.translate(_KORQUAD_BLANKS).lower().translate(_NO_PUNCTUATION).split())


class _TextOfHtml(HTMLParser):
    """Collects the text between tags; character references are resolved."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def normalize_korquad_2(text: str) -> str:
    """Normalise an answer as KorQuAD 2.0 does: tags are removed, the rest is that of KorQuAD 1.0."""
    parser = _TextOfHtml()
    parser.feed(text)
    parser.close()
    return normalize_korquad("".join(parser.parts))


def normalize_klue_mrc(text: str) -> str:
    """Normalise an answer as KLUE-MRC does: ASCII punctuation is removed, other quotes stay."""
    return " ".join(_KLUE_BRACKETS.sub(" ", text).lower().translate(_NO_PUNCTUATION).split())


def korquad_exact_match(prediction: str, gold: str) -> float:
    """Return 1 if the normalised strings are equal, blanks included."""
    return float(normalize_korquad(prediction) == normalize_korquad(gold))


def korquad_f1(prediction: str, gold: str) -> float:
    """Return the F1 of the bags of characters, blanks excluded; 0 if both are empty."""
    return _bag_f1(normalize_korquad(prediction), normalize_korquad(gold))


def _bag_f1(prediction: str, gold: str) -> float:
    """F1 of the bags of characters of normalised answers."""
    characters = [collections.Counter(text.replace(" ", "")) for text in (prediction, gold)]
    overlap = (characters[0] & characters[1]).total()
    return 2 * overlap / (characters[0].total() + characters[1].total()) if overlap else 0.0


def klue_mrc_exact_match(prediction: str, gold: str) -> float:
    """Return 1 if the normalised strings are equal."""
    return float(normalize_klue_mrc(prediction) == normalize_klue_mrc(gold))


def klue_mrc_rouge_w(prediction: str, gold: str) -> float:
    """Return KLUE's "ROUGE-W": F1 of the longest common contiguous substring, blanks being characters.

    The length comes from difflib with its popularity heuristic on, which matters for golds of 200 characters and more.
    """
    ours, theirs = normalize_klue_mrc(prediction), normalize_klue_mrc(gold)
    if not ours or not theirs:
        return float(ours == theirs)
    match = difflib.SequenceMatcher(None, ours, theirs).find_longest_match(0, len(ours), 0, len(theirs))
    return 2 * match.size / (len(ours) + len(theirs))


def _best_of(score: Callable[[str, str], float], *, missing: float) -> Callable[..., FloatArray]:
    """Columns of a span metric: the best score over an example's golds; MISSING for a prediction that is None."""

    def columns(predictions: Sequence[str | None], golds: Sequence[Sequence[str]]) -> FloatArray:
        rows = (
            missing if prediction is None else max(score(prediction, answer) for answer in answers or ("",))
            for prediction, answers in zip(predictions, golds, strict=True)
        )
        return np.array([[row] for row in rows])

    return columns


# KorQuAD scores an unanswered question 0; KLUE's file-level function excludes it from the mean.
korquad_em = Metric("exact_match", "EM", _best_of(korquad_exact_match, missing=0.0), _weighted_mean)
korquad_char_f1 = Metric("f1", "F1", _best_of(korquad_f1, missing=0.0), _weighted_mean)
korquad_2_em = Metric(
    "exact_match",
    "EM",
    _best_of(lambda p, g: float(normalize_korquad_2(p) == normalize_korquad_2(g)), missing=0.0),
    _weighted_mean,
)
korquad_2_char_f1 = Metric(
    "f1",
    "F1",
    _best_of(lambda p, g: _bag_f1(normalize_korquad_2(p), normalize_korquad_2(g)), missing=0.0),
    _weighted_mean,
)
klue_em = Metric("exact_match", "EM", _best_of(klue_mrc_exact_match, missing=np.nan), _weighted_mean)
klue_rouge_w = Metric("rouge_w", "ROUGE-W", _best_of(klue_mrc_rouge_w, missing=np.nan), _weighted_mean)


# --- tags -----------------------------------------------------------------------------------------------------------

KLUE_NER_TYPES = ("PS", "LC", "OG", "DT", "TI", "QT")
# In the order of KLUE-baseline's label ids.
KLUE_NER_TAGS = (*(f"{prefix}-{type_}" for type_ in KLUE_NER_TYPES for prefix in "BI"), "O")


def _tag_pairs(predictions: Sequence[str], golds: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield every sentence's predicted and gold tags: strings with one tag per character, joined by blanks."""
    for number, (prediction, gold) in enumerate(zip(predictions, golds, strict=True), start=1):
        tags = prediction.split(), gold.split()
        if len(tags[0]) != len(tags[1]):
            raise ValueError(f"sentence {number}: {len(tags[0])} tags for {len(tags[1])} characters")
        yield tags


def _entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Return (type, start, end) under strict IOB2: an entity is a B- tag and the I- tags of its type that follow."""
    found = set()
    for start, tag in enumerate(tags):
        if tag.startswith("B-"):
            end = start + 1
            while end < len(tags) and tags[end] == f"I-{tag[2:]}":
                end += 1
            found.add((tag[2:], start, end))
    return found


def class_counts(
    classes: Sequence[str], hits: Iterable[str], predicted: Iterable[str], gold: Iterable[str]
) -> list[float]:
    """Return one row: counts of true positives, predictions and golds for each class."""
    return [float(counter[c]) for counter in map(collections.Counter, (hits, predicted, gold)) for c in classes]


def _entity_counts(predictions: Sequence[str], golds: Sequence[str]) -> FloatArray:
    rows = []
    for ours, theirs in _tag_pairs(predictions, golds):
        found, real = _entities(ours), _entities(theirs)
        kinds = ([kind for kind, _, _ in spans] for spans in (found & real, found, real))
        rows.append(class_counts(KLUE_NER_TYPES, *kinds))
    return np.array(rows)


def _character_counts(predictions: Sequence[str], golds: Sequence[str]) -> FloatArray:
    rows = []
    for ours, theirs in _tag_pairs(predictions, golds):
        # The official sequence has [CLS] before and [SEP] after every sentence, tagged O.
        found, real = ["O", *ours, "O"], ["O", *theirs, "O"]
        hits = [tag for tag, other in zip(found, real, strict=True) if tag == other]
        rows.append(class_counts(KLUE_NER_TAGS, hits, found, real))
    return np.array(rows)


def macro_f1_of_counts(absent: float) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """Average F1 over classes from rows of `class_counts`; a class that never occurs has F1 ABSENT; NaN excludes it."""

    def aggregate(columns: FloatArray, weights: FloatArray) -> FloatArray:
        hits, predicted, gold = np.split(weights @ columns, 3, axis=1)  # (R, C) each
        with np.errstate(invalid="ignore", divide="ignore"):
            scores = np.where(predicted + gold > 0, 2 * hits / (predicted + gold), absent)
            return np.asarray(np.nansum(scores, axis=1) / (~np.isnan(scores)).sum(axis=1))

    return aggregate


# KLUE concatenates all sentences. No entity crosses the O of [CLS] and [SEP], so counts per sentence add up to the
# same values. Entities: exact spans, averaged over the types in golds or predictions. Characters: single tags,
# averaged over all 13, O included; a tag that never occurs counts 1.
entity_f1 = Metric("entity_f1", "entity F1", _entity_counts, macro_f1_of_counts(absent=np.nan))
char_macro_f1 = Metric("char_macro_f1", "char F1", _character_counts, macro_f1_of_counts(absent=1.0))


# --- retrieval ------------------------------------------------------------------------------------------------------

# A prediction is the rank of the first right text, the gold the best rank, 1.
recall_at_1 = mean_metric("recall_at_1", "R@1", lambda rank, best: float(rank <= best))
mrr = mean_metric("mrr", "MRR", lambda rank, best: best / rank)
