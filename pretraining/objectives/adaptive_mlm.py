"""Adaptive masking: tokens that the network still predicts wrongly are masked more often.

Input: rows as in `dynamic_mlm`, and as many masks: exactly `mask_rate` of the tokens of a row, or a falling rate such
as `"0.40->0.15"`, the authors' best one. Which tokens they are is drawn without replacement, with weights: the running
share of wrong predictions among the masks of that entry of the vocabulary (`pretraining.data.difficulty`), updated
every `update_every` steps; a further phase (`model.init`) starts from equal weights. Held-out rows have the masks of
`dynamic_mlm`, so that losses can be compared.

Relations: as `dynamic_mlm` up to the first update.

| | authors | here |
| --- | --- | --- |
| difficulty | (wrong + ½) / (predictions + 1) since the last update; 0.2 of the old one | the same |
| smallest weight | 1/30 | the same |
| masks of a row | each token by itself, weights scaled to `mask_rate` on average | exactly `mask_rate` of them |
| entries without predictions since the last update | move towards ½ | keep their difficulty, 1 at first |
| `whole_word` | none | an eojeol has the mean weight of its tokens |
| “soft” variant, by the loss | tried | none |

Source: Edman and Fraser 2025, “Mask and you shall receive: Optimizing masked language modeling for pretraining
BabyLMs” (BabyLM 2025).
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from pretraining.data.difficulty import OBSERVED
from pretraining.data.rows import SPECIAL, WORD_START
from pretraining.data.shards import IntArray
from pretraining.model import MaskedLanguageModel, PretrainingModel, fill_rows
from pretraining.objective import ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import DynamicMlm

Floats = npt.NDArray[np.float64]


class AdaptiveMlmConfig(ObjectiveConfig):
    """Settings of adaptive masking."""

    update_every: int = Field(default=200, ge=1)
    """Steps between updates of the difficulties. Default: the authors'."""


class AdaptiveMlm(DynamicMlm):
    """See the module."""

    name = "adaptive_mlm"
    paper = "Edman and Fraser 2025 (AMLM)"
    settings = AdaptiveMlmConfig

    @property
    def update_every(self) -> int:
        """Steps between updates of the difficulties."""
        every: int = self.config.update_every
        return every

    def preferences(self, batch: RowBatch, draws: Floats) -> Floats:
        """Return numbers whose smallest ones belong to difficult tokens more often than to easy ones."""
        if batch.weights is None:
            return draws
        weights = batch.weights[batch.input_ids]
        return weighted(draws, word_means(weights, batch.kinds) if self.config.whole_word else weights)

    def build_model(self, config: Any) -> PretrainingModel:
        """Return a masked language model that counts its wrong predictions."""
        return AdaptiveModel(config, next_sentence=False)


def weighted(draws: Floats, weights: Floats) -> Floats:
    """Return numbers in [0, 1) whose order is that of a draw without replacement with the given weights.

    With equal weights it is the order of DRAWS. Source: Efraimidis and Spirakis 2006, “Weighted random sampling with a
    reservoir”: exponential times, the smallest first.

    Args:
        draws: uniform in [0, 1), of any shape.
        weights: positive, of the same shape.
    """
    times: Floats = -np.log1p(-draws) / weights
    return times / (1 + times)


def word_means(weights: Floats, kinds: IntArray) -> Floats:
    """Return the mean weight of the eojeol of each token, float64 (B, T).

    Args:
        weights: float64 (B, T).
        kinds: uint8 (B, T), `SPECIAL`, `WORD_START` or `WORD_INSIDE`.
    """
    is_special = kinds == SPECIAL
    # An eojeol that is cut off starts at the start of its row or behind a special token.
    behind = np.concatenate([np.ones((len(kinds), 1), np.bool_), is_special[:, :-1]], axis=1)
    words = np.cumsum((kinds == WORD_START) | is_special | behind)
    means: Floats = np.bincount(words, weights.ravel()) / np.maximum(np.bincount(words), 1)
    of_tokens: Floats = means[words].reshape(weights.shape)
    return of_tokens


class AdaptiveModel(MaskedLanguageModel):
    """A masked language model that counts its wrong predictions. Shapes as in `PretrainingModel`."""

    def predict_masked(self, states: Tensor, masked_ids: Tensor) -> dict[str, Tensor]:
        """Return `mlm_loss` and `mlm_correct`, and in training `OBSERVED`.

        Args:
            states: (M, D), last hidden states of the masked positions.
            masked_ids: int64 (M,), the original tokens.
        """
        transform, bias = self.architecture.head(self.network)
        loss, hits, _ = self.vocabulary_hits(transform(fill_rows(states)), bias, masked_ids)
        outputs = {"mlm_loss": loss, "mlm_correct": hits.sum().float()}
        if self.training:
            seen = torch.stack([torch.ones_like(masked_ids), (~hits).long()])
            counts = torch.zeros(2, self.vocab_size, dtype=torch.int64, device=masked_ids.device)
            outputs[OBSERVED] = counts.index_add(1, masked_ids, seen)
        return outputs


OBJECTIVE = AdaptiveMlm
