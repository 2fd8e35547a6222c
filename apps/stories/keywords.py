"""Keywords of stories: c-TF-IDF over Korean nouns, selected by maximal marginal relevance.

c-TF-IDF (Grootendorst 2022) treats all titles of a story as one document: the weight of a term is its share of the
story's terms × log(1 + A / its count over all titles), where A is the mean number of terms of a story. Terms are nouns
with the morphemes attached to them, by Kiwi, and two of these in a row: 얀센, 코로나19, 백신 예약. MMR (Carbonell and
Goldstein 1998) selects the best term first, and then repeatedly the best one after a penalty for what it shares with
those selected: 백신 예약 adds little to 얀센 백신.

>>> [term.text for term in next(find_terms(["얀센 백신 예약 마감"]))]
['얀센', '얀센 백신', '백신', '백신 예약', '예약', '예약 마감', '마감']
"""

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.machine import num_threads

if TYPE_CHECKING:
    from kiwipiepy import Kiwi

NOUNS = {"NNG", "NNP", "SL", "SH", "XR"}
ATTACHED = NOUNS | {"SN", "XPN", "XSN"}
"""Tags within a compound: 재/XPN 보궐/NNG, 위원/NNG 장/XSN, 코로나/NNP 19/SN."""
LONGEST_TERM = 20
Labels: TypeAlias = NDArray[np.int64]


@functools.cache
def kiwi() -> "Kiwi":
    """Return the morphological analyser, loaded once per process, with a thread for each processor."""
    from kiwipiepy import Kiwi

    return Kiwi(num_workers=num_threads())


_ANALYSED: dict[str, list[Any]] = {}
MAX_ANALYSED = 1 << 15
"""Texts whose morphemes are kept: several steps ask for those of one file."""


def analyse(texts: Sequence[str]) -> list[list[Any]]:
    """Return the morphemes of each text; those of a text are found once."""
    missing = [text for text in dict.fromkeys(texts) if text not in _ANALYSED]
    if len(_ANALYSED) + len(missing) > MAX_ANALYSED:
        _ANALYSED.clear()
        missing = list(dict.fromkeys(texts))
    found = dict(zip(missing, kiwi().tokenize(missing), strict=True))
    if len(found) <= MAX_ANALYSED:
        _ANALYSED.update(found)
    return [found[text] if text in found else _ANALYSED[text] for text in texts]


@dataclass(frozen=True)
class Term:
    """A noun, a compound or two of them in a row, as written in the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Keyword:
    """A term and its c-TF-IDF weight in a story."""

    text: str
    weight: float


class Labeller(Protocol):
    """How keywords are found."""

    def __call__(self, texts: Sequence[str], labels: Labels) -> list[tuple[Keyword, ...]]:
        """Return the keywords of each story, 0 to the highest label, the heaviest first.

        Args:
            texts: distinct titles.
            labels: the story of each, −1 for none.
        """


def find_terms(texts: Sequence[str]) -> Iterator[list[Term]]:
    """Yield the terms of each text, in the order of the text."""
    for text, tokens in zip(texts, analyse(texts), strict=True):
        yield list(_terms(text, tokens))


def _terms(text: str, tokens: Sequence[Any]) -> Iterator[Term]:
    """Yield the nouns and the whole of each run of attached morphemes, and pairs of runs."""
    runs: list[list[Any]] = []
    for is_attached, group in groupby(tokens, key=lambda token: token.tag in ATTACHED):
        if is_attached:
            runs += _runs(list(group))
    for run, following in pairwise([*runs, []]):
        spans = {(token.start, token.end) for token in run if token.tag in NOUNS}
        spans.add((run[0].start, run[-1].end))
        if following and text[run[-1].end : following[0].start] == " ":
            spans.add((run[0].start, following[-1].end))
        for start, end in sorted(spans):
            if 2 <= end - start <= LONGEST_TERM:
                yield Term(text[start:end], start, end)


def _runs(tokens: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield runs without a gap that have a noun, and begin neither with a number nor with a suffix."""
    run: list[Any] = []
    for token in [*tokens, None]:
        if run and (token is None or token.start != run[-1].end):
            while run and run[0].tag in {"SN", "XSN"} and not _is_name(run):
                run = run[1:]
            if any(token.tag in NOUNS for token in run):
                yield run
            run = []
        run.append(token)


def _is_name(run: Sequence[Any]) -> bool:
    """Whether a number begins a name, as in 5G and 3M."""
    return len(run) > 1 and run[0].tag == "SN" and run[1].tag == "SL"


@dataclass(frozen=True)
class ClassTfidf:
    """The labeller of this module."""

    num_keywords: int = 8
    diversity: float = 0.3
    """Weight of the penalty for shared characters, in [0, 1]; 0 selects the heaviest terms."""

    def __call__(self, texts: Sequence[str], labels: Labels) -> list[tuple[Keyword, ...]]:
        """Return keywords; terms of a single title are dropped if enough terms occur in several."""
        num_stories = int(labels.max(initial=-1)) + 1
        if not num_stories:
            return []
        counts = [Counter[str]() for _ in range(num_stories + 1)]  # the last one is for titles in no story
        for label, terms in zip(labels.tolist(), find_terms(texts), strict=True):
            counts[label].update({term.text for term in terms})
        total = Counter[str]()
        for count in counts:
            total.update(count)
        mean_size = total.total() / (num_stories + bool(counts[-1]))
        return [self._choose(count, total, mean_size) for count in counts[:-1]]

    def _choose(self, counts: Counter[str], total: Counter[str], mean_size: float) -> tuple[Keyword, ...]:
        shared = {term: count for term, count in counts.items() if count > 1}
        size = counts.total()
        weights = {
            term: count / size * math.log(1 + mean_size / total[term])
            for term, count in (shared if len(shared) >= self.num_keywords else counts).items()
        }
        # Ties are broken by the text, for the counts come in any order.
        candidates = sorted(weights, key=lambda term: (-weights[term], term))[: 5 * self.num_keywords]
        penalties = dict.fromkeys(candidates, 0.0)
        heaviest = max(weights.values(), default=1.0)
        selected: list[str] = []
        while candidates and len(selected) < self.num_keywords:
            best = max(
                candidates,
                key=lambda term: (1 - self.diversity) * weights[term] / heaviest - self.diversity * penalties[term],
            )
            candidates.remove(best)
            selected.append(best)
            for term in candidates:
                penalties[term] = max(penalties[term], _overlap(term, best))
        return tuple(Keyword(term, weights[term]) for term in selected)


@functools.lru_cache(1 << 14)
def _bigrams(term: str) -> frozenset[str]:
    letters = "".join(term.split())
    return frozenset(map("".join, pairwise(letters)))


def _overlap(first: str, second: str) -> float:
    """Return the share that two terms have of the shorter one's pairs of letters: 1 if it is part of the other."""
    ours, theirs = _bigrams(first), _bigrams(second)
    return len(ours & theirs) / min(len(ours), len(theirs))
