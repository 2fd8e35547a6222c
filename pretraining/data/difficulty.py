"""How hard the entries of a vocabulary are to predict, learnt in the course of a run, for adaptive masks.

The difficulty of an entry is the running share of wrong predictions among those that had it as their label. All
processes count together, so it is the same for any number of them, and a checkpoint holds it.

Source: Edman and Fraser 2025, “Mask and you shall receive: Optimizing masked language modeling for pretraining
BabyLMs” (BabyLM 2025), “hard” variant; memory, smoothing and floor as in the authors' program.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

OBSERVED = "observed"
"""Output of a model in training, int64 (2, V): predictions by their label, and the wrong ones among them."""
ENTRY = "difficulties|"
"""Prefix of the difficulties among the entries of a checkpoint's optimizer state."""
MEMORY = 0.2
"""Weight of the old difficulty in the new one."""
FLOOR = 1 / 30
"""Smallest weight of an entry in the choice of masks; the authors': 0.005 at a masking rate of 0.15."""


class TokenDifficulties:
    """Difficulties of V entries, and the predictions since their last update."""

    def __init__(self, vocab_size: int, update_every: int | None) -> None:
        """Start with a difficulty of 1 for every entry: an untrained network predicts nothing.

        Args:
            vocab_size: V.
            update_every: steps between updates; None: nothing is learnt.
        """
        self._update_every = update_every
        self.values: npt.NDArray[np.float64] = np.ones(vocab_size)
        self._counts = np.zeros((2, vocab_size), np.int64)
        self._observed: Tensor | None = None  # what `_counts` lacks, on the device

    @property
    def weights(self) -> npt.NDArray[np.float64] | None:
        """Weights of the entries in the choice of masks, float64 (V,); None: all alike."""
        return None if self._update_every is None else np.maximum(self.values, FLOOR)

    def is_due(self, step: int) -> bool:
        """Whether the difficulties change after STEP steps."""
        return self._update_every is not None and step % self._update_every == 0

    def observe(self, counts: "Tensor") -> None:
        """Add the `OBSERVED` of a step, summed over all processes; nothing is read before it is needed."""
        self._observed = counts if self._observed is None else self._observed + counts

    def _read(self) -> None:
        if self._observed is not None:
            self._counts += self._observed.cpu().numpy().astype(np.int64)
            self._observed = None

    def update(self, step: int) -> None:
        """Take the predictions since the last update in, if one is due after STEP steps.

        An entry without predictions keeps its difficulty; the authors' moves towards ½.
        """
        if not self.is_due(step):
            return
        self._read()
        predictions, wrong = self._counts
        recent = (wrong + 0.5) / (predictions + 1)
        self.values = np.where(predictions > 0, MEMORY * self.values + (1 - MEMORY) * recent, self.values)
        self._counts = np.zeros_like(self._counts)

    def entries(self) -> dict[str, "Tensor"]:
        """Return everything for a checkpoint; nothing if nothing is learnt."""
        import torch

        if self._update_every is None:
            return {}
        self._read()
        arrays: dict[str, npt.NDArray[Any]] = {"values": self.values, "counts": self._counts}
        return {f"{ENTRY}{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}

    def restore(self, entries: Mapping[str, "Tensor"]) -> None:
        """Load the difficulties of a checkpoint; other entries are ignored."""
        if self._update_every is not None:
            self.values = entries[f"{ENTRY}values"].numpy().copy()
            self._counts = entries[f"{ENTRY}counts"].numpy().copy()
            self._observed = None
