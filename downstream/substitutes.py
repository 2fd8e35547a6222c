"""What tasks made out of other texts share: how much two texts have in common by their letters, and seeded draws.

A derived task asks for what a text says. So nothing that its letters alone tell may give the answer away: its generator
measures how alike texts are, and chooses among them so that likeness and length say nothing.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SALT = "pressbert derivation 1"
GRAMS = (1, 2, 3)
DECIMALS = 6
"""Behind these, sums differ between machines."""


class Overlap:
    """How much of some texts stands in others, by the character n-grams of letters and digits.

    For n from 1 to 3: the share of a text's n-grams that the other has, plain and weighted by IDF; of the six numbers a
    weighted sum.
    """

    def __init__(
        self, texts: Sequence[str], others: Sequence[str], weights: Sequence[float] = (1, 1, 1, 1, 1, 1)
    ) -> None:
        """Count n-grams; how rare one is, is told by OTHERS."""
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer

        letters = ["".join(filter(str.isalnum, text)) for text in (*texts, *others)]
        of_texts, of_others = [], []
        for k, n in enumerate(GRAMS):
            counter = CountVectorizer(
                analyzer="char", ngram_range=(n, n), lowercase=False, binary=True, dtype=np.float64
            )
            table = counter.fit_transform(letters)
            own, theirs = table[: len(texts)], table[len(texts) :]
            idf = np.log((len(others) + 1) / (np.asarray(theirs.sum(axis=0)).ravel() + 1))
            of_texts.append(weights[2 * k] * _shares(own) + weights[2 * k + 1] * _shares(own.multiply(idf)))
            of_others.append(theirs)
        self._texts, self._others = sparse.hstack(of_texts).tocsr(), sparse.hstack(of_others).tocsr()

    def __call__(self, texts: Sequence[int], others: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return how much of each of A texts stands in each of B others, float (A, B).

        Args:
            texts: their numbers.
            others: their numbers.
        """
        table: npt.NDArray[np.float64] = (self._texts[texts] @ self._others[others].T).toarray()
        return np.round(table, DECIMALS)


def _shares(table: Any) -> Any:
    """Return the rows of a sparse table divided by their sums."""
    from scipy import sparse

    sums = np.maximum(np.asarray(table.sum(axis=1)).ravel(), 1e-9)
    return sparse.diags_array(1 / sums) @ table.tocsr()


def draw(purpose: str, number: int) -> int:
    """Return a number below NUMBER that follows from PURPOSE alone, the same on every machine."""
    digest = hashlib.sha256(f"{SALT}\n{purpose}".encode()).digest()
    return int.from_bytes(digest[:8]) * number >> 64
