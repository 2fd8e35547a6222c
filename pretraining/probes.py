"""Probes: how well labels of texts can be read off the hidden states while a network is still being trained.

A probe is a ridge regression from the mean hidden state of a text to its label; the network is not changed. Four fifths
of the texts are for the regression, the others for the score, chosen by their numbers in the file. A probe takes
seconds, and its score is comparable within a run and between runs on the same file only: it is no benchmark.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from corpora.characters import nfc
from corpora.foundation.errors import DataError
from corpora.readers.records import read_records

if TYPE_CHECKING:
    from pretraining.model import PretrainingModel
    from pretraining.recipe import ProbeConfig

BATCH = 32
SCORED = 5
"""Every fifth text is scored."""
RIDGE = 0.01
"""Penalty of a squared weight, per text, for features of variance 1."""


@dataclass(frozen=True)
class Probe:
    """Texts with their labels, as tokens."""

    name: str
    ids: list[list[int]]
    """With `[CLS]` and `[SEP]`."""
    labels: Tensor
    """int64 (N,)."""
    pad: int

    @classmethod
    def read(cls, config: "ProbeConfig", tokenizer: Any, max_length: int) -> "Probe":
        """Read the texts of a file.

        Args:
            config: of the recipe.
            tokenizer: of `tokenizers`.
            max_length: tokens of a text, special ones included.

        Raises:
            DataError: the file is unusable, lacks a column, or has one label only.
        """
        path, texts, labels = Path(config.file), [], []
        for record in read_records(path):
            if record.error is None and {config.text, config.label} <= record.values.keys():
                texts.append(nfc(str(record.values[config.text])))
                labels.append(str(record.values[config.label]))
            if len(texts) == config.num_texts:
                break
        names = sorted(set(labels))
        if len(names) < 2:
            what = f"{len(names)} labels in the columns {config.text} and {config.label}"
            raise DataError(path, what, "name the columns of text and label in loop.probes")
        cls_id, sep_id = (tokenizer.token_to_id(token) for token in ("[CLS]", "[SEP]"))
        bodies = [found.ids[: max_length - 2] for found in tokenizer.encode_batch(texts, add_special_tokens=False)]
        ids = [[cls_id, *body, sep_id] for body in bodies]
        numbers = torch.tensor([names.index(label) for label in labels])
        return cls(path.name.partition(".")[0], ids, numbers, tokenizer.token_to_id("[PAD]"))

    @torch.no_grad()
    def accuracy(self, model: "PretrainingModel", device: torch.device) -> float:
        """Return the accuracy on the texts that are scored."""
        states = torch.cat([self._states(model, device, k) for k in range(0, len(self.ids), BATCH)])
        is_scored = torch.arange(len(states)) % SCORED == 0
        predicted = ridge(states[~is_scored], self.labels[~is_scored], states[is_scored])
        return float((predicted == self.labels[is_scored]).double().mean())

    def _states(self, model: "PretrainingModel", device: torch.device, first: int) -> Tensor:
        """Return the mean hidden states of some texts, float64 (n, D)."""
        some = self.ids[first : first + BATCH]
        width = max(map(len, some))
        ids = torch.tensor([[*row, *[self.pad] * (width - len(row))] for row in some], device=device)
        is_text = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in some], device=device)
        places = torch.arange(width, device=device).expand(ids.shape)
        hidden = model.encode(ids, torch.zeros_like(ids), places, is_text)
        weights = is_text.unsqueeze(2).to(hidden.dtype)
        return ((hidden * weights).sum(1) / weights.sum(1)).double().cpu()


def ridge(features: Tensor, labels: Tensor, others: Tensor) -> Tensor:
    """Return predicted labels of OTHERS, int64 (m,), by ridge regression on one-hot labels.

    Args:
        features: float64 (n, D).
        labels: int64 (n,).
        others: float64 (m, D).
    """
    mean, scale = features.mean(0), features.std(0).clamp(min=1e-9)
    x, y = (features - mean) / scale, torch.nn.functional.one_hot(labels).double()
    penalty = RIDGE * len(x) * torch.eye(x.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(x.T @ x + penalty, x.T @ (y - y.mean(0)))
    predicted: Tensor = (((others - mean) / scale) @ weights + y.mean(0)).argmax(1)
    return predicted


def probe_scores(probes: list[Probe], model: "PretrainingModel", device: torch.device) -> dict[str, float]:
    """Return `probe_NAME` for each probe; the state of random generators stays as it is."""
    if not probes:
        return {}
    was_training = model.training
    model.eval()
    scores = {f"probe_{probe.name}": round(probe.accuracy(model, device), 6) for probe in probes}
    model.train(was_training)
    return scores
