"""What is known of a comment: n-grams of its jamo, and its vector by an encoder.

The n-grams run over the stream of jamo without blanks and symbols, so that a word reads the same whether its syllables
are composed or not ("시발", "ㅅㅣ발") and with or without blanks. An n-gram is a hash of 32 bits of its length and its
jamo; which of them a model knows, with weights, is part of the model.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from downstream.moderate.normalization import Reading, is_hangul, is_syllable, jamo_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Hashes = NDArray[np.uint32]
SHORTEST, LONGEST = 3, 9
"""Jamo of an n-gram; a syllable has two or three."""
PRIME = np.uint64(0x9E3779B97F4A7C15)
NO_SALT = np.uint64(0)
HEADLINE_SALT = np.uint64(0xC2B2AE3D27D4EB4F)
EDGE = "^"
"""Stands before and behind every text."""
SIGNS = "?!~"
"""Symbols that are read."""


def jamo_stream(reading: Reading) -> str:
    """Return the jamo, letters, digits and a few signs of a text in one string."""
    parts = [EDGE]
    for character in reading.characters:
        text = character.text
        if is_syllable(text):
            parts += jamo_of(text)
        elif is_hangul(text) or text.isalnum() or text in SIGNS:
            parts.append(text)
    return "".join((*parts, EDGE))


def ngram_hashes(stream: str, salt: np.uint64 = NO_SALT) -> Hashes:
    """Return the hashes of all n-grams of a stream, in no order, repeated as often as they occur."""
    codes = np.array([ord(c) for c in stream], np.uint64)
    found = []
    with np.errstate(over="ignore"):
        running = np.full(len(codes), salt)
        for n in range(1, LONGEST + 1):
            if len(codes) < n:
                break
            # One more jamo for every n-gram that begins at each position.
            running = running[: len(codes) - n + 1] * PRIME + codes[n - 1 :]
            if n >= SHORTEST:
                mixed = (running ^ (running >> np.uint64(29)) ^ np.uint64(n)) * PRIME
                found.append((mixed >> np.uint64(32)).astype(np.uint32))
    return np.concatenate(found) if found else np.empty(0, np.uint32)


class NgramSpace:
    """The n-grams that a model knows: sublinear TF-IDF vectors of unit length."""

    def __init__(self, keys: Hashes, idf: NDArray[np.float32]) -> None:
        """Use F known n-grams.

        Args:
            keys: their hashes, ascending, (F,).
            idf: inverse document frequencies, (F,).
        """
        self.keys, self.idf = keys, idf

    @classmethod
    def fit(cls, texts: Sequence[Hashes], min_frequency: int) -> "NgramSpace":
        """Know the n-grams that occur in at least MIN_FREQUENCY texts."""
        keys, counts = np.unique(np.concatenate([np.unique(text) for text in texts]), return_counts=True)
        is_kept = counts >= min_frequency
        idf = np.log((1 + len(texts)) / (1 + counts[is_kept])) + 1
        return cls(keys[is_kept], idf.astype(np.float16).astype(np.float32))

    def vector(self, hashes: Hashes) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Return the indices and the values of a text's n-grams that are not zero."""
        found, counts = np.unique(hashes, return_counts=True)
        if not len(self.keys):
            return np.empty(0, np.intp), np.empty(0, np.float32)
        at = np.minimum(np.searchsorted(self.keys, found), len(self.keys) - 1)
        is_known = self.keys[at] == found
        indices = at[is_known]
        values = (1 + np.log(counts[is_known])) * self.idf[indices]
        length = float(np.linalg.norm(values))
        return indices, (values / length if length else values).astype(np.float32)

    def matrix(self, texts: Sequence[Hashes]) -> "csr_array":
        """Return the vectors of N texts, sparse (N, F)."""
        from scipy.sparse import csr_array

        rows = [self.vector(text) for text in texts]
        ends = np.cumsum([0, *(len(indices) for indices, _ in rows)])
        values = np.concatenate([values for _, values in rows])
        return csr_array((values, np.concatenate([i for i, _ in rows]), ends), shape=(len(texts), len(self.keys)))
