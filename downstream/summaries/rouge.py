"""ROUGE for Korean, with its tokenizer named, and the greedy oracle that turns a reference into sentence labels.

The usual implementations keep `a–z` and `0–9` and score every Hangul text 0. Here two tokenizers are told apart, and a
score is always given with the name of one: `characters` (letters and digits one by one) needs no model, `morphemes`
(Kiwi's) does not reward a shared particle as much as a shared word.

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
    """How much two texts share, as fractions."""

    precision: float
    recall: float

    @property
    def f1(self) -> float:
        """Harmonic mean; 0 where nothing is shared."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def characters(text: str) -> list[str]:
    """Return the letters and digits of TEXT one by one; blanks and punctuation are no tokens.

    >>> characters("3.5% 올랐다.")
    ['3', '5', '올', '랐', '다']
    """
    return [character for character in text.casefold() if character.isalnum()]


def morphemes(text: str) -> list[str]:
    """Return the forms of Kiwi's morphemes; punctuation is no token.

    >>> morphemes("금리가 올랐다.")
    ['금리', '가', '오르', '었', '다']
    """
    # A lone surrogate is no character, and the analyser refuses it.
    clean = text.encode("utf-8", "replace").decode("utf-8")
    return [
        token.form for token in kiwi().tokenize(clean) if not token.tag.startswith(("SF", "SP", "SS", "SE", "SO", "SW"))
    ]


TOKENIZERS: Mapping[str, Callable[[str], list[str]]] = {"characters": characters, "kiwi-morphemes": morphemes}
"""By the name that stands with a score."""


def rouge_n(candidate: Tokens, reference: Tokens, n: int) -> Overlap:
    """Return ROUGE-N: shared n-grams, each counted as often as it occurs in both."""
    ours, theirs = _ngrams(candidate, n), _ngrams(reference, n)
    shared = (ours & theirs).total()
    return Overlap(shared / max(1, ours.total()), shared / max(1, theirs.total()))


def rouge_l(candidate: Tokens, reference: Tokens) -> Overlap:
    """Return ROUGE-L: the longest common subsequence of the two texts as wholes."""
    length = longest_common_subsequence(candidate, reference)
    return Overlap(length / max(1, len(candidate)), length / max(1, len(reference)))


def _ngrams(tokens: Tokens, n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[k:] for k in range(n)), strict=False))


def longest_common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence, by Hyyrö's bit-parallel method (2004)."""
    places: dict[Hashable, int] = {}
    for k, token in enumerate(a):
        places[token] = places.get(token, 0) | 1 << k
    everything = (1 << len(a)) - 1
    open_ = everything
    for token in b:
        matches = open_ & places.get(token, 0)
        open_ = ((open_ + matches) | (open_ - matches)) & everything
    return len(a) - open_.bit_count()


def greedy_oracle(
    sentences: Sequence[Tokens],
    reference: Tokens,
    *,
    max_sentences: int = 3,
    measure: Literal["f1", "recall"] = "f1",
) -> list[int]:
    """Choose sentences that cover a reference: each time the one that adds most, until nothing helps.

    What counts is ROUGE-1 plus ROUGE-2 on sets of n-grams that do not cross sentences.

    Args:
        sentences: tokens of S sentences.
        reference: tokens of an abstract or a headline.
        max_sentences: chosen at most.
        measure: `f1`, or `recall` for a reference that is shorter than a sentence.

    Returns:
        Indices in the order they were chosen; the first of equals. Empty if no sentence shares anything.
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
        score, place = max(scores, default=(0.0, 0))
        if score <= best:
            break
        best = score
        chosen.append(-place)
        covered = [old | new for old, new in zip(covered, grams[-place], strict=True)]
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
