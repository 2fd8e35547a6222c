"""Which eojeol follow which: counts of single ones, pairs and triples, small enough to come with the package.

Scores back off from triples to pairs to single eojeol by a fixed factor (Brants et al. 2007, stupid backoff).
"""

import bisect
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.arrays import read_arrays, write_arrays

BACKOFF = 0.4
FEWEST = {1: 3, 2: 2, 3: 2}
"""Occurrences from which on an n-gram is kept, by its length."""
LARGEST = {1: 120_000, 2: 200_000, 3: 120_000}
"""N-grams that are kept, the commonest."""
NO_WORD = -1
Ids = NDArray[np.int32]


@dataclass(frozen=True)
class EojeolNgrams:
    """Counted n-grams."""

    words: list[str]
    """In the order of their code points."""
    counts: Ids
    pairs: Ids
    """(N, 3): first, second, count; in the order of the first, the commonest first."""
    triples: Ids
    """(N, 4): first, second, third, count; likewise."""

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> "EojeolNgrams":
        """Count the n-grams of sentences."""
        singles: Counter[str] = Counter()
        kept: list[Sequence[str]] = []
        for sentence in sentences:
            singles.update(sentence)
            kept.append(sentence)
        frequent = [(word, n) for word, n in singles.most_common(LARGEST[1]) if n >= FEWEST[1]]
        words = sorted(word for word, _ in frequent)
        ids = {word: k for k, word in enumerate(words)}
        pairs: Counter[tuple[int, ...]] = Counter()
        triples: Counter[tuple[int, ...]] = Counter()
        for sentence in kept:
            row = [ids.get(word, NO_WORD) for word in sentence]
            pairs.update(gram for gram in pairwise(row) if NO_WORD not in gram)
            triples.update(gram for gram in zip(row, row[1:], row[2:], strict=False) if NO_WORD not in gram)
        counts = np.array([singles[word] for word in words], dtype=np.int32)
        return cls(words, counts, _array(pairs, 2), _array(triples, 3))

    @classmethod
    def load(cls, path: Path) -> "EojeolNgrams":
        """Read what `save` wrote."""
        tensors = read_arrays(path, is_required=True)
        words = tensors["words"].tobytes().decode("utf-8").split("\n")
        return cls(words, tensors["counts"], tensors["pairs"], tensors["triples"])

    def save(self, path: Path) -> None:
        """Write words and counts."""
        words = np.frombuffer("\n".join(self.words).encode("utf-8"), dtype=np.uint8)
        write_arrays(path, {"words": words, "counts": self.counts, "pairs": self.pairs, "triples": self.triples})

    def find(self, word: str) -> int:
        """Return the number of an eojeol, or `NO_WORD`."""
        k = bisect.bisect_left(self.words, word)
        return k if k < len(self.words) and self.words[k] == word else NO_WORD

    def candidates(self, history: Sequence[str], begun: str, limit: int) -> list[tuple[str, float]]:
        """Return what may follow, with log-scores, the best first.

        Args:
            history: eojeol before, the last one last.
            begun: letters of the eojeol that is being written; may be empty.
            limit: candidates.
        """
        first = bisect.bisect_left(self.words, begun)
        last = bisect.bisect_left(self.words, begun + "\U0010ffff")
        found: dict[int, float] = {}
        for penalty, ids, counts in self._levels(list(history)[-2:], first, last):
            total = max(1, int(counts.sum()))
            for k in np.argsort(-counts, kind="stable")[:limit].tolist():
                found.setdefault(int(ids[k]), penalty + math.log(max(1, int(counts[k])) / total))
        begun_id = self.find(begun)
        ranked = sorted(
            ((score, k) for k, score in found.items() if k != begun_id), key=lambda item: (-item[0], item[1])
        )
        return [(self.words[k], score) for score, k in ranked[:limit]]

    def _levels(self, history: Sequence[str], first: int, last: int) -> Iterator[tuple[float, Ids, Ids]]:
        """Yield penalty, numbers and counts of what follows, from the longest history to none."""
        ids = [self.find(word) for word in history]
        if len(ids) == 2 and NO_WORD not in ids:
            rows = _rows(self.triples, ids)
            rows = rows[(rows[:, 2] >= first) & (rows[:, 2] < last)]
            if len(rows):
                yield 0.0, rows[:, 2], rows[:, 3]
        if ids and ids[-1] != NO_WORD:
            rows = _rows(self.pairs, ids[-1:])
            rows = rows[(rows[:, 1] >= first) & (rows[:, 1] < last)]
            if len(rows):
                yield math.log(BACKOFF), rows[:, 1], rows[:, 2]
        if last > first:
            yield 2 * math.log(BACKOFF), np.arange(first, last, dtype=np.int32), self.counts[first:last]


def _array(counts: Counter[tuple[int, ...]], size: int) -> Ids:
    frequent = [(*gram, n) for gram, n in counts.most_common(LARGEST[size]) if n >= FEWEST[size]]
    frequent.sort(key=lambda row: (*row[: size - 1], -row[-1], row[size - 1]))
    return np.array(frequent, dtype=np.int32).reshape(-1, size + 1)


def _rows(table: Ids, ids: Sequence[int]) -> Ids:
    """Return the rows of a table that begin with these numbers."""
    start, end = 0, len(table)
    for column, id_ in enumerate(ids):
        values = table[start:end, column]
        start, end = start + int(np.searchsorted(values, id_)), start + int(np.searchsorted(values, id_, side="right"))
    return table[start:end]
