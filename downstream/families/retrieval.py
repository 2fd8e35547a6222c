"""Family for retrieval among the texts of a task: the other texts of its group are what a text should find.

Nothing is fine-tuned: a model turns texts into vectors, and all texts but the one asked for are ranked by the product
of vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from corpora.foundation.errors import DataError, UsageError
from downstream.task import TextExample

DECIMALS = 6
"""Similarities are rounded to these: further decimals differ between machines."""
BLOCK = 1_000
"""Texts that are compared with all others at once."""


@dataclass(frozen=True)
class RetrievalExample(TextExample):
    """A text with its group as the label. A prediction is the rank of the nearest text of its group, from 1."""

    @property
    def gold(self) -> float:
        """The best rank."""
        return 1.0


@dataclass(frozen=True)
class Retrieval:
    """Texts whose neighbours are scored."""

    auto_class = ""

    def check(self, example: RetrievalExample, where: str) -> None:
        """Raise DataError for a text without content or group."""
        if not example.text.strip() or not example.label:
            raise DataError(where, "an empty text or no group", "restore the official file")

    def refuse(self, *_arguments: Any, **_settings: Any) -> NoReturn:
        """Raise UsageError: there is nothing to fine-tune."""
        raise UsageError("task", "an encoder cannot be fine-tuned on retrieval", 'compare it with kind = "embedder"')

    head_config = featurize = decode = logits = refuse


def rank_neighbours(vectors: Any, groups: Sequence[str]) -> list[float]:
    """Return for each text the rank of the nearest text of its group among all others.

    Texts of other groups that are equally similar come first, so that equal vectors for all texts score worst. A text
    that is alone in its group, as when its cost is measured, finds nothing: its rank is N.

    Args:
        vectors: float (N, D), of unit length; a NumPy array or a sparse array.
        groups: of the N texts.
    """
    ids = np.unique(np.asarray(groups), return_inverse=True)[1]
    ranks: list[float] = []
    for first in range(0, len(ids), BLOCK):
        rows = np.arange(first, min(first + BLOCK, len(ids)))
        product = vectors[rows] @ vectors.T
        similarity = np.round(product.toarray() if hasattr(product, "toarray") else product, DECIMALS)
        similarity[np.arange(len(rows)), rows] = -np.inf
        is_own = ids[rows][:, None] == ids[None, :]
        best = np.where(is_own, similarity, -np.inf).max(axis=1)
        ahead = (~is_own & (similarity >= best[:, None])).sum(axis=1)
        ranks += [float(1 + number) for number in ahead]
    return ranks
