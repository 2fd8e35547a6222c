"""ROUGE for Korean with a named tokenizer, and the greedy oracle that turns a reference into sentence labels.

The usual implementations keep only `a–z` and `0–9` and score every Hangul text 0. Here a score always names its
tokenizer: `characters` (letters and digits, one by one) needs no model; `kiwi-morphemes` gives shared particles less
weight than shared words.

Source: Lin 2004 (ROUGE-N, ROUGE-L); the oracle is that of Liu and Lapata 2019 (PreSumm).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from corpora.sentences import kiwi

Tokens: TypeAlias = Sequence[str]


@dataclass(frozen=True)
class Overlap:
    """Precision and recall of a candidate's tokens, as fractions."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if both are 0."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def characters(text: str) -> list[str]:
    """Return the letters and digits of TEXT one by one, without white space and punctuation.

    >>> characters("3.5% 올랐다.")
    ['3', '5', '올', '랐', '다']
    """
    return [character for character in text.casefold() if character.isalnum()]


def morphemes(text: str) -> list[str]:
    """Return the forms of Kiwi's morphemes, without punctuation.

    >>> morphemes("금리가 올랐다.")
    ['금리', '가', '오르', '었', '다']
    """
    # Kiwi refuses lone surrogates.
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return [
        token.form for token in kiwi().tokenize(clean) if not token.tag.startswith(("SF", "SP", "SS", "SE", "SO", "SW"))
    ]


TOKENIZERS: Mapping[str, Callable[[str], list[str]]] = {"characters": characters, "kiwi-morphemes": morphemes}
"""Name in scores → tokenizer."""


def rouge_n(candidate: Tokens, reference: Tokens, n: int) -> Overlap:
    """Return ROUGE-N: shared n-grams, each counted as often as both texts contain it."""
    ours, theirs = _ngrams(candidate, n), _ngrams(reference, n)
    shared = (ours & theirs).total()
    return Overlap(shared / max(1, ours.total()), shared / max(1, theirs.total()))


def rouge_l(candidate: Tokens, reference: Tokens) -> Overlap:
    """Return ROUGE-L: the longest common subsequence of the two whole texts."""
    length = longest_common_subsequence(candidate, reference)
    return Overlap(length / max(1, len(candidate)), length / max(1, len(reference)))


def _ngrams(tokens: Tokens, n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[k:] for k in range(n)), strict=False))


def longest_common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence, by Hyyrö's bit-parallel method (2004)."""
    positions: dict[Hashable, int] = {}  # token → bit mask of its positions in a
    for k, token in enumerate(a):
        positions[token] = positions.get(token, 0) | 1 << k
    all_bits = (1 << len(a)) - 1
    unmatched = all_bits
    for token in b:
        matches = unmatched & positions.get(token, 0)
        unmatched = ((unmatched + matches) | (unmatched - matches)) & all_bits
    return len(a) - unmatched.bit_count()


def greedy_oracle(
    sentences: Sequence[Tokens],
    reference: Tokens,
    *,
    max_sentences: int = 3,
    measure: Literal["f1", "recall"] = "f1",
) -> list[int]:
    """Choose sentences that cover a reference: repeatedly the one with the largest gain, while there is a gain.

    The gain is that of ROUGE-1 plus ROUGE-2, on sets of n-grams within sentences.

    Args:
        sentences: tokens of S sentences.
        reference: tokens of an abstract or a headline.
        max_sentences: maximum number of sentences.
        measure: `f1`, or `recall` for a reference that is shorter than a sentence.

    Returns:
        Indices in the order of choice; ties go to the earlier sentence. Empty if no sentence shares an n-gram.
    """
    targets = [set(_ngrams(reference, n)) for n in (1, 2)]
    grams = [[set(_ngrams(sentence, n)) for n in (1, 2)] for sentence in sentences]
    covered: list[set[tuple[str, ...]]] = [set(), set()]
    chosen: list[int] = []
    best = 0.0
    while len(chosen) < max_sentences:
        scores = [
            (-1.0 if k in chosen else _coverage(zip(covered, grams[k], strict=True), targets, measure), -k)
            for k in range(len(sentences))
        ]
        score, negative_index = max(scores, default=(0.0, 0))
        if score <= best:
            break
        best = score
        chosen.append(-negative_index)
        covered = [old | new for old, new in zip(covered, grams[-negative_index], strict=True)]
    return chosen


def _coverage(
    parts: Iterable[tuple[set[tuple[str, ...]], set[tuple[str, ...]]]],
    targets: Sequence[set[tuple[str, ...]]],
    measure: Literal["f1", "recall"],
) -> float:
    total = 0.0
    for (old, new), target in zip(parts, targets, strict=True):
        united = old | new
        shared = len(united & target)
        overlap = Overlap(shared / max(1, len(united)), shared / max(1, len(target)))
        total += overlap.f1 if measure == "f1" else overlap.recall
    return total
