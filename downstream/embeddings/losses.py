"""The loss of learning from a teacher's vectors, for sentence-transformers' trainer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from pretraining.data.vectors import MEAN_ROWS, StoredVectors


class TeacherLoss(nn.Module):
    """1 − cosine between a linear map of the student's vectors and the teacher's, plus the difference of cosines.

    With student vectors s (B, D), teacher vectors t (B, T), their mean removed, and a linear map W:
    mean(1 − cos(W s, t)) + `cosine_weight` · mean((cos(sᵢ, sⱼ) − cos(tᵢ, tⱼ))²). With `dimensions`, the second term
    is the mean of those of the first components and of all.
    """

    def __init__(
        self, model: Any, vectors: Sequence[StoredVectors], cosine_weight: float, dimensions: Sequence[int] = ()
    ) -> None:
        """Build the loss with a new map.

        Args:
            model: a `SentenceTransformer`, the student.
            vectors: of the teacher; the label of a text is its number in all of them together.
            cosine_weight: weight of the second term.
            dimensions: numbers of first components that are trained as vectors, too.
        """
        super().__init__()
        self.model = model
        self.cosine_weight = cosine_weight
        self._dimensions = sorted({*dimensions, model.get_embedding_dimension()})
        self._vectors = vectors
        self._starts = np.cumsum([0, *(len(stored.texts) for stored in vectors)])
        dimension = vectors[0].manifest.dimension
        self.map = nn.Linear(model.get_embedding_dimension(), dimension)
        every = max(1, int(self._starts[-1]) // MEAN_ROWS)
        self.mean: Tensor
        self.register_buffer("mean", self._targets(range(0, int(self._starts[-1]), every)).mean(dim=0))

    def _targets(self, rows: Sequence[int]) -> Tensor:
        """Return the teacher's vectors of ROWS, (B, T)."""
        found = np.empty((len(rows), self._vectors[0].manifest.dimension), dtype=np.float32)
        numbers = np.asarray(rows)
        owners = np.searchsorted(self._starts, numbers, side="right") - 1
        for owner in np.unique(owners):
            chosen = owners == owner
            found[chosen] = self._vectors[owner].rows((numbers[chosen] - self._starts[owner]).tolist())
        return torch.from_numpy(found)

    def forward(self, sentence_features: Iterable[Mapping[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: one element, the tokenized texts.
            labels: row numbers (B,).
        """
        (features,) = sentence_features
        student = self.model(features)["sentence_embedding"]  # (B, D)
        teacher = self._targets(labels.tolist()).to(student.device)
        teacher = F.normalize(teacher - self.mean, dim=-1)
        loss = (1 - F.cosine_similarity(self.map(student), teacher, dim=-1)).mean()
        cosines = teacher @ teacher.T
        units = [F.normalize(student[:, :dimension], dim=-1) for dimension in self._dimensions]
        differences = torch.stack([F.mse_loss(unit @ unit.T, cosines) for unit in units])
        return loss + self.cosine_weight * differences.mean()
