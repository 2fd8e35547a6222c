"""Left-to-right language modelling: BERT with causal attention predicts each token from those before it.

Input: rows as in `dynamic_mlm`; nothing is masked. Every token of a sequence but `[CLS]` is predicted from the tokens
to its left, `[SEP]` included, so that the end of a sequence is learnt too. Sequences of a packed row do not attend to
each other.

Relations: differs from `dynamic_mlm` in the causal attention; the paper's “LTR & No NSP”. One pass predicts all tokens
instead of `mask_rate` of them. The saved config has `is_decoder`, so that transformers keeps the attention causal in
`BertLMHeadModel` and in all classes for fine-tuning, where `[CLS]` attends to itself alone. Therefore classify with a
BiLSTM on top (`features = "last"` and `frozen = false` in fine-tuning), as in section 5.1, and not by `[CLS]`.

Source: Devlin et al. 2019, section 5.1; Radford et al. 2018.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pretraining.model import Flops, PretrainingModel
from pretraining.objective import LossTerm, MaskedBatch, ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import DynamicMlm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

CLM = LossTerm("clm", "causal LM", "masked_positions", token_ids="masked_ids")


class LeftToRight(DynamicMlm):
    """See the module; the masking settings are ignored."""

    name = "left_to_right"
    architectures = ("bert",)
    paper = "Devlin et al. 2019, section 5.1 (LTR)"
    settings = ObjectiveConfig
    pipeline_tag = "text-generation"

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """The next token."""
        return (CLM,)

    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Return the input unchanged; every token but the first of its sequence is to be predicted."""
        is_predicted = (batch.sequence_ids > 0) & (batch.position_ids > 0)
        return MaskedBatch(batch.input_ids, np.flatnonzero(is_predicted), batch.input_ids[is_predicted])

    def build_model(self, config: Any) -> PretrainingModel:
        """Return a network with causal attention."""
        return LeftToRightModel(config)


class CausalModel(PretrainingModel):
    """A network with causal attention. Shapes as in `PretrainingModel`."""

    def __init__(self, config: Any) -> None:
        """Build it with random weights."""
        super().__init__(config, next_sentence=False)

    def visible(self, sequence_ids: Tensor) -> Tensor:
        """Return which tokens attend to which: each to itself and to earlier ones of its sequence."""
        length = sequence_ids.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool, device=sequence_ids.device).tril()
        return super().visible(sequence_ids) & earlier

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
    ) -> dict[str, Tensor]:
        """Return `clm_loss` and `clm_correct`, sums over the M predicted tokens.

        Args:
            input_ids: int64 (B, T).
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,), tokens to predict, in the flattened batch; each from the hidden state of the
                token before it.
            masked_ids: int64 (M,), the tokens there.
        """
        hidden = self.encode(input_ids, token_type_ids, position_ids, sequence_ids).flatten(0, 1)  # (B·T, D)
        outputs = self.predict_masked(hidden[masked_positions - 1], masked_ids)
        return {"clm_loss": outputs["mlm_loss"], "clm_correct": outputs["mlm_correct"]}

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step; the masked half of the scores is computed too."""
        own = super().flops()
        return Flops(own.per_token, own.per_position, {"clm": own.per_prediction["mlm"]})


class LeftToRightModel(CausalModel):
    """A BERT with causal attention."""

    def export(self, state: "Mapping[str, Tensor]", num_positions: int | None = None) -> "PreTrainedModel":
        """Return a decoder, whose attention transformers keeps causal."""
        from transformers import BertConfig, BertLMHeadModel

        exported = super().export(state, num_positions)
        config = BertConfig.from_dict(exported.config.to_dict() | {"is_decoder": True})
        decoder: PreTrainedModel = BertLMHeadModel(config)
        decoder.load_state_dict(exported.state_dict())
        return decoder


OBJECTIVE = LeftToRight
