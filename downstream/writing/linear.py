"""A linear model of gaps between letters: is there a blank here, or should this word be another one?

The features of a gap are hashed n-grams of the letters before and behind it, with the blanks between those letters;
whether a blank stands in the gap itself is no feature. Weights are whole numbers of 8 bits, so that the file has a
byte a feature, and a text of any length is scored by a few dozen array operations.

Source: feature hashing, Weinberger et al. 2009; the window of letters, Lee et al. 2007 (Korean word spacing).
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.arrays import read_arrays, write_arrays

logger = logging.getLogger(__name__)

WIDTH = 6
"""Letters on either side."""
CROSSINGS = ((1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (1, 3), (3, 2), (2, 3), (3, 3), (4, 1), (1, 4), (4, 2), (2, 4))
"""Lengths of the n-grams before and behind the gap that form features together."""
NUM_FEATURES = 2 * WIDTH + len(CROSSINGS)
FACTOR, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
SHIFT = np.uint64(32)
EDGE = np.uint64(3)
"""Stands for a letter beyond the ends of the text."""

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Letters:
    """A text without its blanks."""

    codes: NDArray[np.uint32]
    """Code points (N,)."""
    blanks: NDArray[np.uint8]
    """Whether a blank precedes each letter, (N,)."""
    positions: NDArray[np.int64]
    """Offset of each letter in the text, (N,)."""

    @classmethod
    def of(cls, text: str) -> "Letters":
        """Take the letters of a text; any white space is a blank."""
        kept = [k for k, letter in enumerate(text) if not letter.isspace()]
        positions = np.array(kept, dtype=np.int64)
        codes = np.array([ord(text[k]) for k in kept], dtype=np.uint32)
        blanks = np.ones(len(kept), dtype=np.uint8)
        blanks[1:] = np.diff(positions) > 1
        return cls(codes, blanks, positions)


def hash_gaps(letters: Letters, num_buckets: int) -> NDArray[np.int64]:
    """Return the buckets of the features of the gap before each letter, (N, `NUM_FEATURES`).

    Args:
        letters: of a text.
        num_buckets: a power of two.
    """
    number = len(letters.codes)
    padded = np.full(number + 2 * WIDTH, EDGE, dtype=np.uint64)
    padded[WIDTH : WIDTH + number] = letters.codes.astype(np.uint64) << np.uint64(1)
    flags = np.zeros(number + 2 * WIDTH + 1, dtype=np.uint64)
    flags[WIDTH : WIDTH + number] = letters.blanks
    before: list[Hashes] = [np.zeros(number, dtype=np.uint64)]
    behind: list[Hashes] = [np.zeros(number, dtype=np.uint64)]
    for k in range(1, WIDTH + 1):
        start = WIDTH - k
        symbols = padded[start : start + number] | (flags[start + 1 : start + 1 + number] if k > 1 else np.uint64(0))
        before.append((before[-1] + symbols + np.uint64(1)) * FACTOR)
        start = WIDTH + k - 1
        symbols = padded[start : start + number] | (flags[start : start + number] if k > 1 else np.uint64(0))
        behind.append((behind[-1] + symbols + np.uint64(1)) * FACTOR)
    pairs = [(k, 0) for k in range(1, WIDTH + 1)] + [(0, k) for k in range(1, WIDTH + 1)] + list(CROSSINGS)
    buckets = np.empty((number, NUM_FEATURES), dtype=np.int64)
    last = np.uint64(num_buckets - 1)
    for column, (left, right) in enumerate(pairs):
        mixed = (before[left] ^ (behind[right] >> SHIFT) ^ behind[right] * MIX) * FACTOR
        mixed = mixed + np.uint64(column * int(MIX) % 2**64)
        buckets[:, column] = ((mixed ^ (mixed >> SHIFT)) & last).astype(np.int64)
    return buckets


@dataclass(frozen=True)
class GapModel:
    """Weights of the features of a gap."""

    weights: NDArray[np.int8]
    scale: float
    """Log-odds of one unit."""
    bias: float

    @classmethod
    def load(cls, path: Path) -> "GapModel":
        """Read the weights of a file that `save` wrote."""
        tensors = read_arrays(path, is_required=True)
        return cls(tensors["weights"], float(tensors["scale"][0]), float(tensors["bias"][0]))

    def save(self, path: Path) -> None:
        """Write the weights."""
        numbers = {"scale": np.array([self.scale], np.float32), "bias": np.array([self.bias], np.float32)}
        write_arrays(path, {"weights": self.weights, **numbers})

    def log_odds(self, letters: Letters) -> NDArray[np.float32]:
        """Return the log-odds of a blank before each letter, (N,)."""
        buckets = hash_gaps(letters, len(self.weights))
        sums = self.weights[buckets].sum(axis=1, dtype=np.int32)
        return np.asarray(sums * np.float32(self.scale) + np.float32(self.bias), dtype=np.float32)


def train_gaps(
    batches: Callable[[int], Iterable[tuple[Letters, NDArray[np.uint8]]]],
    *,
    num_buckets: int,
    epochs: int,
    learning_rate: float,
    smallest: float,
) -> GapModel:
    """Fit the weights by logistic regression with AdaGrad, one gap at a time.

    Args:
        batches: epoch → iterable of (letters, targets): whether a blank belongs before each letter.
        num_buckets: a power of two.
        epochs: over all batches.
        learning_rate: of AdaGrad.
        smallest: weights below it are left out.
    """
    import numba

    weights, squares = np.zeros(num_buckets, np.float32), np.full(num_buckets, 1e-2, np.float32)
    bias = np.zeros(2, np.float32)
    bias[1] = 1e-2

    @numba.njit(fastmath=True)
    def fit(buckets: Any, targets: Any, weights: Any, squares: Any, bias: Any, rate: float) -> float:
        loss = 0.0
        for k in range(len(targets)):
            score = bias[0]
            for bucket in buckets[k]:
                score += weights[bucket]
            chance = 1.0 / (1.0 + np.exp(-score))
            slope = chance - targets[k]
            loss -= np.log(max(1e-9, chance if targets[k] else 1.0 - chance))
            if abs(slope) < 1e-3:
                continue
            bias[1] += slope * slope
            bias[0] -= rate * slope / np.sqrt(bias[1])
            for bucket in buckets[k]:
                squares[bucket] += slope * slope
                weights[bucket] -= rate * slope / np.sqrt(squares[bucket])
        return float(loss)

    for epoch in range(epochs):
        total, count = 0.0, 0
        for letters, targets in batches(epoch):
            total += fit(hash_gaps(letters, num_buckets), targets, weights, squares, bias, learning_rate)
            count += len(targets)
        logger.info("epoch=%d loss=%.4f num_gaps=%d", epoch, total / max(1, count), count)
    weights[np.abs(weights) < smallest] = 0
    scale = float(np.abs(weights).max()) / 127 or 1.0
    return GapModel(np.rint(weights / scale).astype(np.int8), scale, float(bias[0]))
