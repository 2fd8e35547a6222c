"""How often an eojeol occurs in edited text; stored as hashes with counts, five bytes each."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.arrays import read_arrays, write_arrays

LARGEST_COUNT = 255


@dataclass(frozen=True)
class Lexicon:
    """Counts of eojeol."""

    hashes: NDArray[np.uint32]
    """In ascending order (N,)."""
    counts: NDArray[np.uint8]
    """Of each, at most `LARGEST_COUNT` (N,)."""

    @classmethod
    def load(cls, path: Path) -> "Lexicon":
        """Read what `save` wrote."""
        tensors = read_arrays(path, is_required=True)
        return cls(tensors["hashes"], tensors["counts"])

    def save(self, path: Path) -> None:
        """Write hashes and counts."""
        write_arrays(path, {"hashes": self.hashes, "counts": self.counts})

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "Lexicon":
        """Build the lexicon of counted eojeol."""
        hashes = _hash(counts)
        order = np.argsort(hashes, kind="stable")
        values = np.minimum(np.array(list(counts.values()), dtype=np.int64), LARGEST_COUNT).astype(np.uint8)
        return cls(hashes[order], values[order])

    def count(self, eojeol: Iterable[str]) -> NDArray[np.uint8]:
        """Return the counts of eojeol (n,); 0 for unknown ones."""
        wanted = _hash(eojeol)
        at = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        return np.where(self.hashes[at] == wanted, self.counts[at], 0).astype(np.uint8)


def _hash(words: Iterable[str]) -> NDArray[np.uint32]:
    digests = b"".join(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=4).digest() for word in words)
    return np.frombuffer(digests, dtype="<u4").astype(np.uint32)
