"""Smaller vectors: fewer dimensions, and integers of 8 bits.

>>> small = as_int8(shorten(vectors, 64))     # a sixteenth of the bytes of (N, 256) in single precision
>>> cosines(small[:1], small)

Fewer dimensions lose little if the model was trained for them (`dimensions` in its recipe; Kusupati et al. 2022,
“Matryoshka representation learning”). Integers are scaled row by row, so that no table of ranges has to be kept beside
them: the cosine of two vectors does not depend on their lengths.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from downstream.embeddings.pooling import Vectors

LARGEST = 127
"""Of 8 bits with a sign, symmetric."""


def shorten(vectors: Vectors, dimension: int) -> Vectors:
    """Return the first components of vectors, scaled to length 1.

    Args:
        vectors: (N, D), finite.
        dimension: number of components, from 1 to D.

    Returns:
        float32 (N, dimension).

    Raises:
        ValueError: there are not that many components, or the first ones of a vector are all zero.
    """
    if not 1 <= dimension <= vectors.shape[1]:
        raise ValueError(
            f"dimension={dimension}: the vectors have {vectors.shape[1]} components; give 1 or more of them"
        )
    first = vectors[:, :dimension].astype(np.float64)
    lengths = np.linalg.norm(first, axis=1, keepdims=True)
    if not (lengths > 0).all():
        raise ValueError(f"dimension={dimension}: the first components of a vector are all zero; give a larger one")
    unit: Vectors = (first / lengths).astype(np.float32)
    return unit


def as_int8(vectors: Vectors) -> NDArray[np.int8]:
    """Return vectors in 8 bits: of each row, the largest component in absolute value becomes 127.

    Args:
        vectors: (N, D), finite.

    Returns:
        int8 (N, D); rows of zeros stay zeros.
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scale = np.divide(LARGEST, largest, out=np.zeros_like(largest, dtype=np.float64), where=largest > 0)
    small: NDArray[np.int8] = np.rint(vectors * scale).astype(np.int8)
    return small


def cosines(one: NDArray[Any], other: NDArray[Any]) -> Vectors:
    """Return the cosine of every vector with every other, of vectors of any length or precision.

    Args:
        one: (N, D).
        other: (M, D).

    Returns:
        float32 (N, M); 0 for a vector of zeros.
    """
    rows = [array.astype(np.float32) for array in (one, other)]
    units = [row / np.maximum(np.linalg.norm(row, axis=1, keepdims=True), np.finfo(np.float32).tiny) for row in rows]
    found: Vectors = units[0] @ units[1].T
    return found
