"""GPT-BERT: one network learns masked and causal language modelling, and is saved as an encoder and as a decoder.

Input: rows as in `dynamic_mlm`. A row is causal with probability `causal_share`, drawn again in every epoch, and masked
otherwise. In a causal row tokens see no later ones and nothing is masked; in a masked row they see both sides, and
`mask_rate` of them is masked. In both the prediction of a token is read at the position before it.

| term | weight | predictions | label |
| --- | --- | --- | --- |
| mlm | 1 − `causal_share` | the masked tokens of masked rows, at the positions before them | the original token |
| clm | `causal_share` | all tokens of causal rows but `[CLS]`, at the positions before them | the token |

The folder of the run is a `ModernBertForMaskedLM`, its folder `decoder` a `ModernBertDecoderForCausalLM` with the same
weights, which generates text from `[CLS]` to `[SEP]`. Plain transformers reads the prediction of a mask at the mask
itself: with this network read `logits[:, i - 1]` for a mask at position i. The encoder's config says so
(`mask_shift = 1`), `python -m pretraining.evaluate` and `downstream.fill_mask` obey, and the `fill-mask` pipeline of
transformers does not. Fine-tuning is not concerned.

Relations: differs from `dynamic_mlm` in the shift and the causal rows. The authors' network is a LTG-BERT; here it is
a ModernBERT, for which transformers has both classes. They give each device rows of one kind, so that each kind has
its share of the devices as its weight; 15 masked rows to 1 causal one is the ratio of their submission.

Source: Charpentier and Samuel 2024, “GPT or BERT: why not both?” (BabyLM 2024).
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from pretraining.data.masking import uniforms
from pretraining.model import Flops, PretrainingModel
from pretraining.objective import LossTerm, MaskedBatch, ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import DynamicMlm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

KIND_PURPOSE = 9
"""Separates the draw of causal rows from those of the masks."""
DECODER = "decoder"
"""Folder of the decoder in that of the run."""


class HybridConfig(ObjectiveConfig):
    """Settings of the hybrid objective."""

    causal_share: float = Field(default=1 / 16, ge=0, le=1)
    """Share of causal rows. Default: the paper's 15 masked ones to 1 causal one."""


class Hybrid(DynamicMlm):
    """See the module."""

    name = "hybrid"
    architectures = ("modernbert",)
    paper = "Charpentier and Samuel 2024 (GPT-BERT)"
    settings = HybridConfig
    pipeline_tag = "feature-extraction"
    note = (
        "The prediction of a masked token is read at the position before it: `logits[:, i - 1]` for a mask at "
        "position i. The `fill-mask` pipeline reads at i and does not suit this model. The folder `decoder` holds the "
        "same weights as a `ModernBertDecoderForCausalLM`, which generates text."
    )

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked and causal prediction of the next token."""
        share = self.config.causal_share
        return (
            LossTerm("mlm", "masked next token", "masked_positions", 1 - share, token_ids="masked_ids"),
            LossTerm("clm", "causal LM", "causal_positions", share, token_ids="causal_ids"),
        )

    def is_causal(self, batch: RowBatch) -> npt.NDArray[np.bool_]:
        """Draw the causal rows, bool (B,), as a function of row and epoch."""
        draws = uniforms((self.layout.seed, KIND_PURPOSE), batch.rows, batch.epochs, 1)
        chosen: npt.NDArray[np.bool_] = draws[:, 0] < self.config.causal_share
        return chosen

    def mask(self, batch: RowBatch) -> MaskedBatch:
        """Draw masks in the masked rows; the causal ones are unchanged."""
        masked, width = super().mask(batch), batch.input_ids.shape[1]
        is_causal = self.is_causal(batch)
        is_kept = ~is_causal[masked.masked_positions // width]
        input_ids = np.where(is_causal[:, None], batch.input_ids, masked.input_ids)
        return MaskedBatch(input_ids, masked.masked_positions[is_kept], masked.masked_ids[is_kept])

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add which rows are causal, and the positions and ids of their tokens."""
        is_causal = self.is_causal(batch)
        is_predicted = (batch.sequence_ids > 0) & (batch.position_ids > 0) & is_causal[:, None]
        return super().inputs(batch) | {
            "causal_rows": is_causal.astype(np.int64),
            "causal_positions": np.flatnonzero(is_predicted),
            "causal_ids": batch.input_ids[is_predicted],
        }

    def build_model(self, config: Any) -> PretrainingModel:
        """Return a network that knows where a text begins and ends."""
        config.bos_token_id, config.eos_token_id = self.layout.specials.cls, self.layout.specials.sep
        config.mask_shift = 1
        return HybridModel(config, next_sentence=False)


class HybridModel(PretrainingModel):
    """A ModernBERT under two attention masks. Shapes as in `PretrainingModel`; C predictions in causal rows."""

    unpads = False

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        causal_rows: Tensor,
        causal_positions: Tensor,
        causal_ids: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts.

        Args:
            input_ids: int64 (B, T), with masks.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,), in the flattened batch; each is predicted at the position before it.
            masked_ids: int64 (M,), the original tokens.
            causal_rows: int64 (B,), 1 where tokens see no later ones.
            causal_positions: int64 (C,), tokens to predict in causal rows; each at the position before it.
            causal_ids: int64 (C,), the tokens there.

        Returns:
            `mlm_loss`, `mlm_correct`, `clm_loss`, `clm_correct`; float32 scalars.
        """
        hidden = self.encode_rows(input_ids, token_type_ids, position_ids, sequence_ids, causal_rows).flatten(0, 1)
        outputs = self.predict_masked(hidden[masked_positions - 1], masked_ids)
        causal = self.predict_masked(hidden[causal_positions - 1], causal_ids)
        return outputs | {"clm_loss": causal["mlm_loss"], "clm_correct": causal["mlm_correct"]}

    def encode_rows(
        self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor, sequence_ids: Tensor, causal_rows: Tensor
    ) -> Tensor:
        """Return the last hidden states, (B, T, D); arguments as in `forward`."""
        length = input_ids.shape[1]
        earlier = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).tril()
        visible = self.visible(sequence_ids) & (earlier | (causal_rows == 0)[:, None, None, None])
        return self.encode_visible(input_ids, token_type_ids, position_ids, visible)

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step; the hidden half of causal scores is computed too."""
        own = super().flops()
        return Flops(own.per_token, own.per_position, dict.fromkeys(("mlm", "clm"), own.per_prediction["mlm"]))

    def variants(
        self,
        exported: "PreTrainedModel",
        state: "Mapping[str, Tensor]",  # noqa: ARG002
    ) -> "dict[str, PreTrainedModel]":
        """Return the decoder."""
        return {DECODER: make_decoder(exported)}


def make_decoder(encoder: Any) -> "PreTrainedModel":
    """Return a `ModernBertDecoderForCausalLM` with the weights of a `ModernBertForMaskedLM`.

    Under a causal mask the encoder gives the same scores.
    """
    from transformers import ModernBertDecoderConfig, ModernBertDecoderForCausalLM

    theirs = encoder.config
    shared = {field.name for field in dataclasses.fields(ModernBertDecoderConfig)}
    settings: dict[str, Any] = {name: value for name, value in theirs.to_dict().items() if name in shared}
    for name in ("architectures", "transformers_version"):
        settings.pop(name, None)
    settings |= {"cls_token_id": theirs.bos_token_id, "sep_token_id": theirs.eos_token_id}
    # transformers' encoder sees `local_attention // 2` tokens to the left; its decoder counts the token itself, too.
    settings["local_attention"] = 2 * (theirs.local_attention // 2 + 1)
    decoder = ModernBertDecoderForCausalLM(ModernBertDecoderConfig(**settings))
    decoder.load_state_dict(_decoder_names(encoder.state_dict()))
    generation: Any = decoder.generation_config
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        setattr(generation, name, getattr(theirs, name))
    return decoder


def _decoder_names(weights: "Mapping[str, Tensor]") -> dict[str, Tensor]:
    """Return an encoder's weights by the names of the decoder, which has a matrix for each of query, key and value."""
    named: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if ".Wqkv." in name:
            for part, rows in zip(("q_proj", "k_proj", "v_proj"), tensor.chunk(3), strict=True):
                named[name.replace("Wqkv", part)] = rows
        else:
            named[f"lm_{name}" if name.startswith("head.") else name] = tensor
    return named


OBJECTIVE = Hybrid
