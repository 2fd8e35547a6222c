"""Left to right: each token is predicted from those before it, by BERT's own blocks with a triangular mask.

Input: rows as `dynamic_mlm` makes them; nothing is masked. Every token of a sequence but its first, `[CLS]`, is
predicted from the ones to its left, `[SEP]` included, so that a sequence also learns where it ends. Sequences that
share a row do not see each other.

Relations: differs from `dynamic_mlm` in the direction of attention alone, and so from what the paper calls “LTR & No
NSP” in having neither masks nor next sentences. One pass predicts all tokens where a masked one predicts `mask_rate` of
them. What is saved says `is_decoder` in its config, by which transformers keeps the attention causal in everything that
is built on it: `BertLMHeadModel`, and the classes of fine-tuning, where `[CLS]` sees nothing but itself. So classify
with a BiLSTM on top (`features = "last"` and `frozen = false` in fine-tuning), as in section 5.1, not by `[CLS]`.

Source: Devlin et al. 2019, section 5.1; Radford et al. 2018.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pretraining.model import Flops, PretrainingModel
from pretraining.objective import Masked, ObjectiveConfig, RowBatch, Term
from pretraining.objectives.dynamic_mlm import DynamicMlm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import BertConfig, PreTrainedModel

CLM = Term("clm", "causal LM", "masked_at")


class LeftToRight(DynamicMlm):
    """See the module; the settings of masking have no say."""

    name = "left_to_right"
    paper = "Devlin et al. 2019, section 5.1 (LTR)"
    settings = ObjectiveConfig

    @property
    def terms(self) -> tuple[Term, ...]:
        """The next token."""
        return (CLM,)

    def mask(self, batch: RowBatch) -> Masked:
        """Return the input as it is, with every token behind the first of its sequence to be predicted."""
        is_predicted = (batch.sequence_ids > 0) & (batch.position_ids > 0)
        return Masked(batch.input_ids, np.flatnonzero(is_predicted), batch.input_ids[is_predicted])

    def build_model(self, config: "BertConfig") -> PretrainingModel:
        """Return a network whose tokens see those before them."""
        return LeftToRightModel(config)


class LeftToRightModel(PretrainingModel):
    """A BERT under a triangular mask. Letters as in `PretrainingModel`."""

    def __init__(self, config: "BertConfig") -> None:
        """Build it with random weights."""
        super().__init__(config, next_sentence=False)

    def attention_mask(self, sequence_ids: Tensor) -> Tensor:
        """Return a mask, (B, 1, T, T), that lets tokens see themselves and those before them in their own sequence."""
        mask = super().attention_mask(sequence_ids)
        length = sequence_ids.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=mask.device).triu(1)
        if mask.dtype == torch.bool:
            return mask & ~future
        return mask.masked_fill(future, torch.finfo(mask.dtype).min)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_at: Tensor,
        masked_ids: Tensor,
    ) -> dict[str, Tensor]:
        """Return `clm_loss` and `clm_correct`, sums over the M predicted tokens.

        Args:
            input_ids: int64 (B, T).
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_at: int64 (M,), the tokens to predict, counted through the flattened batch; each is told by the state
                of the one before it.
            masked_ids: int64 (M,).
        """
        hidden = self.encode(input_ids, token_type_ids, position_ids, sequence_ids).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(hidden[masked_at - 1], masked_ids)
        return {"clm_loss": outputs["mlm_loss"], "clm_correct": outputs["mlm_correct"]}

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step; masked halves of scores are computed as well."""
        own = super().flops()
        return Flops(own.per_token, own.per_position, {"clm": own.per_prediction["mlm"]})

    def export(self, state: "Mapping[str, Tensor]") -> "PreTrainedModel":
        """Return it as a decoder, which transformers keeps causal."""
        from transformers import BertConfig, BertLMHeadModel

        exported = super().export(state)
        config = BertConfig.from_dict(exported.config.to_dict() | {"is_decoder": True})
        decoder: PreTrainedModel = BertLMHeadModel(config)
        decoder.load_state_dict(exported.state_dict())
        return decoder


OBJECTIVE = LeftToRight
