"""XLNet: tokens are predicted in a random order, each from those before it in that order.

Input: rows as in `dynamic_mlm`; nothing is masked. A share `mask_rate` (1/K, K = 6) of the tokens is predicted: for a
length L of up to `max_span` tokens, a span of L tokens at a random place of a context of K · L, and so on to the end of
the text. The order of a row is drawn again in every epoch: first all tokens that are not predicted, which see each
other, and then the predicted ones one by one. A predicted token sees the first group and the predicted ones before it,
and not itself: the query stream knows its position alone, the content stream its content, too.

Distances between tokens are the only positions, so that packed sequences that do not see each other give the results of
each alone.

Relations: as `dynamic_mlm`, but predicted tokens depend on each other, and the network never sees `[MASK]`.
`XLNetLMHeadModel.generate` continues a beginning; the end of a text is not learnt, since special tokens are not
predicted. Differences from the authors: `[CLS]` and `[SEP]` stand at the start and the end, as in our other rows, and
are seen by all; no memory of the segment before (rows are in random order), and no second segment.

Source: Yang et al. 2019, “XLNet: Generalized autoregressive pretraining for language understanding”, sections 2.2,
2.3 and 3.1; the first group sees all of itself as in the authors' data_utils.py.
"""

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import AfterValidator, AliasChoices, Field
from torch import Tensor

from pretraining.data.masking import uniforms
from pretraining.data.rows import SPECIAL
from pretraining.data.shards import IntArray
from pretraining.model import Flops, PretrainingModel, layer_flops
from pretraining.objective import LossTerm, MaskedBatch, MaskRate, ObjectiveConfig, RowBatch, rate_at
from pretraining.objectives.dynamic_mlm import DynamicMlm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

PLM = LossTerm("plm", "permutation LM", "masked_positions", token_ids="masked_ids")
ORDER_PURPOSE = 4
"""Separates the draw of the order from those of the spans."""
Floats = npt.NDArray[np.float64]


def _refuse(whole_word: bool) -> bool:
    if whole_word:
        raise ValueError("spans are of tokens, not of eojeol; leave it out")
    return whole_word


class XlnetConfig(ObjectiveConfig):
    """Settings of permutation language modelling."""

    mask_rate: MaskRate = Field(default=1 / 6, validation_alias=AliasChoices("mask_rate", "masking_rate"))
    """Share of tokens to predict, 1/K. Default: K = 6, section 3.1."""
    max_span: int = Field(default=5, ge=1)
    """Tokens of the longest span; every length is as likely. Default: section 3.1."""
    whole_word: Annotated[bool, AfterValidator(_refuse)] = False
    """Spans are of tokens."""


class Xlnet(DynamicMlm):
    """See the module."""

    name = "xlnet"
    architectures = ("xlnet",)
    paper = "Yang et al. 2019 (XLNet)"
    settings = XlnetConfig
    pipeline_tag = "text-generation"

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """The predicted tokens."""
        return (PLM,)

    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Return the input unchanged, and spans of it to predict, as a function of row and epoch."""
        length = batch.input_ids.shape[1]
        draws = [uniforms((self.layout.seed, k), batch.rows, batch.epochs, length) for k in range(ORDER_PURPOSE)]
        rate = rate_at(self.config.mask_rate, batch.progress)
        chosen = choose_spans(batch.kinds, rate, draws, max_span=self.config.max_span)
        return MaskedBatch(batch.input_ids, np.flatnonzero(chosen), batch.input_ids[chosen])

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add the order in which tokens are predicted."""
        inputs = super().inputs(batch)
        length = batch.input_ids.shape[1]
        draws = uniforms((self.layout.seed, ORDER_PURPOSE), batch.rows, batch.epochs, length)
        chosen = np.zeros(draws.size, np.bool_)
        chosen[inputs["masked_positions"]] = True
        return inputs | {"order": random_order(chosen.reshape(draws.shape), draws)}

    def build_model(self, config: Any) -> PretrainingModel:
        """Return an XLNet."""
        return XlnetModel(config, next_sentence=False)


def choose_spans(kinds: IntArray, rate: float, draws: list[Floats], *, max_span: int) -> npt.NDArray[np.bool_]:
    """Choose spans of tokens to predict; the expected share is exactly RATE.

    Args:
        kinds: uint8 (B, T), `SPECIAL`, `WORD_START` or `WORD_INSIDE`; a text ends at a special token.
        rate: share of tokens to predict.
        draws: four of uniform (B, T): lengths of spans, of contexts, of the spans of shortened contexts, and places.
        max_span: tokens of the longest span.

    Returns:
        bool (B, T), never true on a special token.
    """
    chosen = np.zeros(kinds.shape, np.bool_)
    for row in range(len(kinds)):
        tokens = np.flatnonzero(kinds[row] != SPECIAL)
        for text in np.split(tokens, np.flatnonzero(np.diff(tokens) > 1) + 1):
            begin = 0
            while begin < len(text):
                length, context_length, rest, place = (float(numbers[row, text[begin]]) for numbers in draws)
                span = 1 + int(length * max_span)
                # Fractions are rounded up with a probability equal to the fraction.
                context = int(span / rate + context_length)
                left = len(text) - begin
                if context > left:
                    span, context = int(rate * left + rest), left
                first = begin + int(place * (context - span + 1))
                chosen[row, text[first : first + span]] = True
                begin += context
    return chosen


def random_order(chosen: npt.NDArray[np.bool_], draws: Floats) -> IntArray:
    """Return the order of prediction, int64 (B, T): 0 for tokens that are not predicted, 1, 2, … for the others.

    Args:
        chosen: bool (B, T), tokens to predict.
        draws: uniform (B, T).
    """
    ranks = np.argsort(np.argsort(np.where(chosen, draws, 2.0), axis=1, kind="stable"), axis=1, kind="stable")
    order: IntArray = np.where(chosen, ranks + 1, 0)
    return order


class XlnetModel(PretrainingModel):
    """An XLNet with two streams. Shapes as in `PretrainingModel`; P predictions in the row with the most."""

    def prepare_batch(self, batch: "Mapping[str, Tensor]") -> dict[str, Tensor]:
        """Add what the query stream computes."""
        rows, places = predicted_places(batch["masked_positions"], batch["input_ids"].shape)
        return {**batch, "query_rows": rows, "query_places": places}

    def use_attention(self, device: torch.device) -> None:
        """Leave the attention as it is: transformers has one implementation of relative positions."""

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,  # noqa: ARG002
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        order: Tensor,
        query_rows: Tensor | None = None,
        query_places: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return `plm_loss` and `plm_correct`, sums over the M predicted tokens.

        Args:
            input_ids: int64 (B, T).
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T); distances replace them.
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,), tokens to predict, in the flattened batch, ascending.
            masked_ids: int64 (M,), the tokens there.
            order: int64 (B, T), as from `random_order`.
            query_rows: int64 (M,), as from `predicted_places`; default: computed here, which reads from the device.
            query_places: int64 (B, P), as from `predicted_places`.
        """
        if query_rows is None or query_places is None:
            query_rows, query_places = predicted_places(masked_positions, input_ids.shape)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        targets = (query_places[..., None] == places).float()  # (B, P, T), one-hot
        hidden = self.network.transformer(
            input_ids=input_ids,
            token_type_ids=token_type_ids,
            perm_mask=self.hidden_pairs(sequence_ids, order),
            target_mapping=targets,
        ).last_hidden_state  # (B, P, D)
        outputs = self.predict_masked(hidden.flatten(0, 1)[query_rows], masked_ids)
        return {"plm_loss": outputs["mlm_loss"], "plm_correct": outputs["mlm_correct"]}

    def hidden_pairs(self, sequence_ids: Tensor, order: Tensor) -> Tensor:
        """Return 1.0 where the query of a token does not see another, float32 (B, T, T); arguments as in `forward`."""
        is_seen = (order[:, None, :] == 0) | (order[:, None, :] < order[:, :, None])
        return (~(self.visible(sequence_ids)[:, 0] & is_seen)).float()

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step.

        Query stream: the layers are computed for the predicted tokens, the attention scores for all.
        """
        own = super().flops()
        query = layer_flops(self.architecture.stack(self.network))
        return Flops(own.per_token, 2 * own.per_position, {"plm": own.per_prediction["mlm"] + query})

    def export(self, state: "Mapping[str, Tensor]", num_positions: int | None = None) -> "PreTrainedModel":  # noqa: ARG002
        """Return the network, which has no limit of positions."""
        return super().export(state)


def predicted_places(positions: Tensor, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Return where the query stream computes which token.

    Args:
        positions: int64 (M,), in the flattened batch, ascending.
        shape: B, T.

    Returns:
        Int64 (M,), positions in the flattened predictions, (B · P,); and int64 (B, P), the predicted positions of each
        row, -1 where it has fewer than P. P is at least 1.
    """
    num_rows, length = shape
    rows = positions // length
    counts = torch.bincount(rows, minlength=num_rows)
    longest = max(1, int(counts.max()))
    starts = counts.cumsum(0) - counts
    places = rows * longest + torch.arange(len(positions), device=positions.device) - starts[rows]
    predicted = torch.full((num_rows * longest,), -1, device=positions.device)
    predicted[places] = positions % length
    return places, predicted.view(num_rows, longest)


OBJECTIVE = Xlnet
