"""ELECTRA: a small generator replaces masked tokens, and the encoder detects the replacements.

Input: rows as in `dynamic_mlm`. A share `mask_rate` of the tokens becomes `[MASK]` for the generator, and samples from
its distribution replace them in the encoder's input. The encoder classifies every ordinary token as original (0) or
replaced (1); a sample equal to the original token is original.

| term | network | predictions | weight |
| --- | --- | --- | --- |
| generator | generator | the `mask_rate` of the tokens | 1 |
| rtd | encoder | all ordinary tokens but its own masked ones | `rtd_weight` |
| mlm | encoder | the `mlm_rate` of the tokens, corrupted 80/10/10 | `mlm_weight` |

Relations: with `mlm_rate = 0`, the default, this is the paper's objective, and the saved encoder has no masked-LM head.
With a positive rate additional tokens are masked for the encoder itself, so that one network learns both, and its
masked-LM head is saved. The folder `discriminator` holds the encoder with the classifier of tokens, as transformers'
`ElectraForPreTraining`. As in the paper, generator and encoder share their embeddings; here including the LayerNorm.
The generator has `generator_layers` layers and `generator_size` of the encoder's width. All masked positions are
`[MASK]` for the generator (the authors' code leaves 15 % of them unchanged).

Source: Clark et al. 2020, “ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators”, section 3.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from pretraining.data.masking import Corruption, choose_positions, corrupt, uniforms
from pretraining.data.rows import SPECIAL
from pretraining.model import Flops, PretrainingModel, layer_flops
from pretraining.objective import MLM, LossTerm, ObjectiveConfig, RowBatch, rate_at, token_share
from pretraining.objectives.dynamic_mlm import DynamicMlm

if TYPE_CHECKING:
    from transformers import BertConfig, PreTrainedModel

INIT_STD = 0.02
"""Of BERT."""
DISCRIMINATOR = "discriminator"
"""Folder of the encoder with its classifier of tokens in that of the run."""
NOT_SHARED = ("architectures", "model_type", "transformers_version")
"""Entries of a BERT's config that an ELECTRA has by itself."""


class ReplacedTokenConfig(ObjectiveConfig):
    """Settings of ELECTRA."""

    generator_size: float = Field(default=0.25, gt=0, le=1)
    """Width of the generator as a share of the encoder's. A quarter to a half: section 3.2 of the paper."""
    generator_layers: int | None = Field(default=None, ge=1)
    """Layers of the generator; default: as many as the encoder has."""
    rtd_weight: float = Field(default=50.0, gt=0)
    mlm_rate: float = Field(default=0.0, ge=0, lt=1)
    """Share of tokens that the encoder itself predicts, in addition to those that the generator replaces."""
    mlm_weight: float = Field(default=1.0, gt=0)


class ReplacedToken(DynamicMlm):
    """See the module."""

    name = "replaced_token"
    architectures = ("bert",)
    paper = "Clark et al. 2020 (ELECTRA)"
    settings = ReplacedTokenConfig

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked tokens if the encoder predicts some, replaced tokens, and the generator's masked tokens."""
        config = self.config
        rtd = LossTerm("rtd", "RTD", "judged_positions", config.rtd_weight)
        mlm = (replace(MLM, weight=config.mlm_weight),) if config.mlm_rate else ()
        return (*mlm, rtd, LossTerm("generator", "generator", "replaced_positions", token_ids="replaced_ids"))

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Choose replaced and masked positions; the generator samples the replacements later."""
        seed, length = self.layout.seed, batch.input_ids.shape[1]
        choice, fates, random_ids, rounding, draws = (
            uniforms((seed, purpose), batch.rows, batch.epochs, length) for purpose in range(5)
        )
        num_tokens = (batch.kinds != SPECIAL).sum(axis=1)
        whole_word = self.config.whole_word
        num_replaced = token_share(rate_at(self.config.mask_rate, batch.progress), num_tokens, rounding[:, 0])
        replaced = choose_positions(batch.kinds, num_replaced, choice, whole_word=whole_word)
        remaining = np.where(replaced, SPECIAL, batch.kinds)
        num_masked = token_share(self.config.mlm_rate, num_tokens, rounding[:, 1])
        masked = choose_positions(remaining, num_masked, choice, whole_word=whole_word)
        judged = (batch.kinds != SPECIAL) & ~masked
        inputs = {
            "input_ids": corrupt(batch.input_ids, masked, Corruption(fates, random_ids), self.layout.specials),
            "token_type_ids": batch.token_type_ids,
            "position_ids": batch.position_ids,
            "sequence_ids": batch.sequence_ids,
            "judged_positions": np.flatnonzero(judged),
            "replaced_positions": np.flatnonzero(replaced),
            "replaced_ids": batch.input_ids[replaced],
            "draws": draws[replaced],
        }
        if self.config.mlm_rate:
            inputs |= {"masked_positions": np.flatnonzero(masked), "masked_ids": batch.input_ids[masked]}
        return inputs

    def build_model(self, config: Any) -> PretrainingModel:
        """Return an encoder and its generator."""
        return ReplacedTokenModel(config, self.config, mask_id=self.layout.specials.mask)


class ReplacedTokenModel(PretrainingModel):
    """An encoder that classifies tokens, and the generator that replaces them. Shapes as in `PretrainingModel`.

    R replaced positions, J judged positions, G the generator's width.
    """

    def __init__(self, config: "BertConfig", settings: ReplacedTokenConfig, *, mask_id: int) -> None:
        """Build both with random weights.

        Args:
            config: of the encoder as it will be saved.
            settings: of the objective.
            mask_id: of `[MASK]`, in the generator's input.
        """
        super().__init__(config, next_sentence=False)
        self._mask_id = mask_id
        self._keeps_head = settings.mlm_rate > 0
        self.generator = _Generator(self.network.config, settings)
        self.judge = nn.Sequential(
            nn.Linear(config.hidden_size, config.hidden_size), nn.GELU(), nn.Linear(config.hidden_size, 1)
        )
        _initialise(self.judge)
        if not self._keeps_head:
            self.network.cls.predictions.transform.requires_grad_(requires_grad=False)
            self.network.cls.predictions.bias.requires_grad_(False)

    def use_attention(self, device: torch.device) -> None:
        """Choose the attention implementation for a device; see `PretrainingModel`."""
        super().use_attention(device)
        self.generator.config._attn_implementation = self.network.config._attn_implementation

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        judged_positions: Tensor,
        replaced_positions: Tensor,
        replaced_ids: Tensor,
        draws: Tensor,
        masked_positions: Tensor | None = None,
        masked_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts.

        Args:
            input_ids: int64 (B, T), with the encoder's own masks, before replacement.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            judged_positions: int64 (J,), in the flattened batch, as all positions here.
            replaced_positions: int64 (R,), of the generator's samples.
            replaced_ids: int64 (R,), the original tokens there.
            draws: float64 (R,), uniform in [0, 1); they select the samples from the generator's distribution.
            masked_positions: int64 (M,), tokens that the encoder predicts.
            masked_ids: int64 (M,), the original tokens there.
        """
        layout = (token_type_ids, position_ids, sequence_ids)
        shown = input_ids.flatten().index_fill(0, replaced_positions, self._mask_id).view_as(input_ids)
        embedded = self.network.bert.embeddings(
            input_ids=shown, token_type_ids=token_type_ids, position_ids=position_ids
        )
        hidden = self.generator(embedded, self.attention_mask(sequence_ids), replaced_positions)  # (R, D)
        loss, correct, samples = self.vocabulary_loss(hidden, self.generator.bias, replaced_ids, draws)
        outputs = {"generator_loss": loss, "generator_correct": correct}
        replaced = input_ids.flatten().index_copy(0, replaced_positions, samples).view_as(input_ids)
        is_replaced = torch.zeros_like(input_ids, dtype=torch.bool).flatten()
        is_replaced[replaced_positions] = samples != replaced_ids
        labels = is_replaced[judged_positions]
        states = self.encode(replaced, *layout).flatten(0, 1)  # (B·T, D)
        scores = self.judge(states[judged_positions]).squeeze(-1).float()  # (J,)
        outputs["rtd_loss"] = F.binary_cross_entropy_with_logits(scores, labels.float(), reduction="sum")
        outputs["rtd_correct"] = ((scores > 0) == labels).sum().float()
        if masked_positions is not None and masked_ids is not None:
            outputs |= self.predict_masked(states[masked_positions], masked_ids)
        return outputs

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step."""
        own, generator = super().flops(), self.generator.config
        width = self.network.config.hidden_size
        return Flops(
            own.per_token + layer_flops(self.generator),
            own.per_position + 12.0 * generator.num_hidden_layers * generator.hidden_size,
            {
                **own.per_prediction,
                "generator": 6.0 * width * self.vocab_size,
                "rtd": 6.0 * width * width,
            },
        )

    def export(self, state: Mapping[str, Tensor], num_positions: int | None = None) -> "PreTrainedModel":
        """Return the encoder, with its masked-LM head if it was trained."""
        exported: Any = super().export(state, num_positions)
        whole: PreTrainedModel = exported if self._keeps_head else exported.bert
        return whole

    def variants(self, exported: "PreTrainedModel", state: Mapping[str, Tensor]) -> "dict[str, PreTrainedModel]":
        """Return the discriminator as transformers' `ElectraForPreTraining`."""
        from transformers import ElectraConfig, ElectraForPreTraining

        encoder: Any = exported.base_model
        shared = {name: value for name, value in encoder.config.to_dict().items() if name not in NOT_SHARED}
        discriminator = ElectraForPreTraining(ElectraConfig(**shared, embedding_size=encoder.config.hidden_size))
        weights = {f"electra.{name}": tensor for name, tensor in encoder.state_dict().items() if "pooler" not in name}
        for name, place in (("dense", 0), ("dense_prediction", 2)):
            for kind in ("weight", "bias"):
                weights[f"discriminator_predictions.{name}.{kind}"] = state[f"judge.{place}.{kind}"]
        discriminator.load_state_dict(weights)
        return {DISCRIMINATOR: discriminator}


class _Generator(nn.Module):
    """A narrow stack of layers between the encoder's embeddings and a vocabulary layer tied to them."""

    def __init__(self, config: "BertConfig", settings: ReplacedTokenConfig) -> None:
        from transformers.models.bert.modeling_bert import BertEncoder

        super().__init__()
        # Attention heads of the encoder's width, at least one.
        head_size = config.hidden_size // config.num_attention_heads
        num_heads = max(1, round(config.num_attention_heads * settings.generator_size))
        self.config = type(config).from_dict(
            config.to_dict()
            | {
                "hidden_size": num_heads * head_size,
                "num_attention_heads": num_heads,
                "intermediate_size": round(config.intermediate_size * num_heads / config.num_attention_heads),
                "num_hidden_layers": settings.generator_layers or config.num_hidden_layers,
            }
        )
        width = self.config.hidden_size
        self.narrow = nn.Linear(config.hidden_size, width)
        encoder: Any = BertEncoder  # not annotated
        self.encoder = encoder(self.config)
        self.widen = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        _initialise(self)

    def forward(self, embedded: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Return the states to multiply with the word embeddings, (R, D).

        Args:
            embedded: (B, T, D).
            mask: (B, 1, T, T).
            positions: int64 (R,), in the flattened batch.
        """
        hidden = self.encoder(self.narrow(embedded), attention_mask=mask).last_hidden_state  # (B, T, G)
        widened: Tensor = self.LayerNorm(F.gelu(self.widen(hidden.flatten(0, 1)[positions])))
        return widened


def _initialise(module: nn.Module) -> None:
    """Initialise weights as BERT does."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=INIT_STD)
            nn.init.zeros_(part.bias)


OBJECTIVE = ReplacedToken
