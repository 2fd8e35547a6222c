"""ELECTRA: a small generator fills masked places, and the encoder tells its pieces from the original ones.

Input: rows as `dynamic_mlm` makes them. Of the tokens a share `mask_rate` becomes `[MASK]` for the generator, whose
guesses, drawn from its own distribution, stand in the encoder's input. The encoder judges every token of text:
original (0) or replaced (1); a piece that the generator guessed right is original.

| term | who | predictions | weight |
| --- | --- | --- | --- |
| generator | generator | the `mask_rate` of the tokens | 1 |
| rtd | encoder | all tokens but special and masked ones | `rtd_weight` |
| mlm | encoder | the `mlm_rate` of the tokens, corrupted 80/10/10 | `mlm_weight` |

Relations: with `mlm_rate = 0`, the default, this is the paper's objective, and what is saved is an encoder without a
masked-LM head. With a positive rate further tokens are masked for the encoder itself, so that one network learns both,
and a head that can fill `[MASK]` is saved with it. As in the paper, generator and encoder share their embeddings; here
with the LayerNorm behind them, and the generator is as deep as `generator_layers` says and as wide as its share of the
encoder. All masked places are `[MASK]` for the generator (the authors' code leaves 15 % of them as they are).

Source: Clark et al. 2020, “ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators”, section 3.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor, nn

from pretraining.data.masking import Corruption, choose_positions, corrupt, uniforms
from pretraining.data.rows import SPECIAL
from pretraining.model import Flops, PretrainingModel
from pretraining.objective import MLM, ObjectiveConfig, RowBatch, Term, token_share
from pretraining.objectives.dynamic_mlm import DynamicMlm

if TYPE_CHECKING:
    from transformers import BertConfig, PreTrainedModel

INIT_STD = 0.02
"""Of BERT."""


class ReplacedTokenConfig(ObjectiveConfig):
    """Settings of ELECTRA."""

    generator_size: float = Field(default=0.25, gt=0, le=1)
    """Width of the generator as a share of the encoder's. A quarter to a half: section 3.2 of the paper."""
    generator_layers: int | None = Field(default=None, ge=1)
    """Layers of the generator; default: as many as the encoder has."""
    rtd_weight: float = Field(default=50.0, gt=0)
    mlm_rate: float = Field(default=0.0, ge=0, lt=1)
    """Share of tokens that the encoder itself predicts, besides those that the generator replaces."""
    mlm_weight: float = Field(default=1.0, gt=0)


class ReplacedToken(DynamicMlm):
    """See the module."""

    name = "replaced_token"
    paper = "Clark et al. 2020 (ELECTRA)"
    settings = ReplacedTokenConfig

    @property
    def terms(self) -> tuple[Term, ...]:
        """The generator's, the encoder's, and masked tokens where the encoder predicts some."""
        config = self.config
        found = Term("rtd", "RTD", "judged_at", config.rtd_weight)
        mlm = (Term(MLM.name, MLM.title, MLM.counted_by, config.mlm_weight),) if config.mlm_rate else ()
        return (*mlm, found, Term("generator", "generator", "replaced_at"))

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Draw what is replaced and what is masked; the replacements themselves are the generator's."""
        seed, length = self.layout.seed, batch.input_ids.shape[1]
        choice, fates, pieces, rounding, guesses = (
            uniforms((seed, purpose), batch.rows, batch.epochs, length) for purpose in range(5)
        )
        num_tokens = (batch.kinds != SPECIAL).sum(axis=1)
        whole_word = self.config.whole_word
        num_replaced = token_share(self.config.mask_rate, num_tokens, rounding[:, 0])
        replaced = choose_positions(batch.kinds, num_replaced, choice, whole_word=whole_word)
        left = np.where(replaced, SPECIAL, batch.kinds)
        num_masked = token_share(self.config.mlm_rate, num_tokens, rounding[:, 1])
        masked = choose_positions(left, num_masked, choice, whole_word=whole_word)
        judged = (batch.kinds != SPECIAL) & ~masked
        inputs = {
            "input_ids": corrupt(batch.input_ids, masked, Corruption(fates, pieces), self.layout.specials),
            "token_type_ids": batch.token_type_ids,
            "position_ids": batch.position_ids,
            "sequence_ids": batch.sequence_ids,
            "judged_at": np.flatnonzero(judged),
            "replaced_at": np.flatnonzero(replaced),
            "replaced_ids": batch.input_ids[replaced],
            "guesses": guesses[replaced],
        }
        if self.config.mlm_rate:
            inputs |= {"masked_at": np.flatnonzero(masked), "masked_ids": batch.input_ids[masked]}
        return inputs

    def build_model(self, config: "BertConfig") -> PretrainingModel:
        """Return an encoder with its generator."""
        return ReplacedTokenModel(config, self.config, mask_id=self.layout.specials.mask)


class ReplacedTokenModel(PretrainingModel):
    """An encoder that judges tokens, and the generator that replaces them. Letters as in `PretrainingModel`.

    R replaced tokens, J judged ones, G the generator's width.
    """

    def __init__(self, config: "BertConfig", settings: ReplacedTokenConfig, *, mask_id: int) -> None:
        """Build both with random weights.

        Args:
            config: of the encoder as it will be saved.
            settings: of the objective.
            mask_id: of `[MASK]`, what the generator sees.
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
        """Choose the attention for a device; see `PretrainingModel`."""
        super().use_attention(device)
        self.generator.config._attn_implementation = self.network.config._attn_implementation

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        judged_at: Tensor,
        replaced_at: Tensor,
        replaced_ids: Tensor,
        guesses: Tensor,
        masked_at: Tensor | None = None,
        masked_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts.

        Args:
            input_ids: int64 (B, T), with the encoder's own masks, nothing replaced yet.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            judged_at: int64 (J,), positions through the flattened batch.
            replaced_at: int64 (R,), where the generator's pieces go.
            replaced_ids: int64 (R,), what stood there.
            guesses: float64 (R,), uniform; they decide what is drawn from the generator's distribution.
            masked_at: int64 (M,), what the encoder predicts.
            masked_ids: int64 (M,).
        """
        layout = (token_type_ids, position_ids, sequence_ids)
        shown = input_ids.flatten().index_fill(0, replaced_at, self._mask_id).view_as(input_ids)
        embedded = self.network.bert.embeddings(
            input_ids=shown, token_type_ids=token_type_ids, position_ids=position_ids
        )
        hidden = self.generator(embedded, self.attention_mask(sequence_ids), replaced_at)  # (R, D)
        loss, correct, drawn = self.vocabulary_loss(hidden, self.generator.bias, replaced_ids, guesses)
        outputs = {"generator_loss": loss, "generator_correct": correct}
        fed = input_ids.flatten().index_copy(0, replaced_at, drawn).view_as(input_ids)
        is_replaced = torch.zeros_like(input_ids, dtype=torch.bool).flatten()
        is_replaced[replaced_at] = drawn != replaced_ids
        labels = is_replaced[judged_at]
        states = self.encode(fed, *layout).flatten(0, 1)  # (B·T, D)
        scores = self.judge(states[judged_at]).squeeze(-1).float()  # (J,)
        outputs["rtd_loss"] = F.binary_cross_entropy_with_logits(scores, labels.float(), reduction="sum")
        outputs["rtd_correct"] = ((scores > 0) == labels).sum().float()
        if masked_at is not None and masked_ids is not None:
            outputs |= self.predict_masked(states[masked_at], masked_ids)
        return outputs

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step."""
        own, generator = super().flops(), self.generator.config
        width = self.network.config.hidden_size
        return Flops(
            own.per_token + Flops.of_layers(self.generator),
            own.per_position + 12.0 * generator.num_hidden_layers * generator.hidden_size,
            {
                **own.per_prediction,
                "generator": 6.0 * width * self.vocab_size,
                "rtd": 6.0 * width * width,
            },
        )

    def export(self, state: Mapping[str, Tensor]) -> "PreTrainedModel":
        """Return the encoder, with its masked-LM head if that was trained."""
        exported: Any = super().export(state)
        whole: PreTrainedModel = exported if self._keeps_head else exported.bert
        return whole


class _Generator(nn.Module):
    """A narrow stack of layers between the encoder's embeddings and a vocabulary layer tied to them."""

    def __init__(self, config: "BertConfig", settings: ReplacedTokenConfig) -> None:
        from transformers.models.bert.modeling_bert import BertEncoder

        super().__init__()
        # Heads as wide as the encoder's, one at the least.
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

    def forward(self, embedded: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """Return states to be multiplied with the word embeddings, (R, D).

        Args:
            embedded: (B, T, D).
            mask: (B, 1, T, T).
            places: int64 (R,), through the flattened batch.
        """
        hidden = self.encoder(self.narrow(embedded), attention_mask=mask).last_hidden_state  # (B, T, G)
        widened: Tensor = self.LayerNorm(F.gelu(self.widen(hidden.flatten(0, 1)[places])))
        return widened


def _initialise(module: nn.Module) -> None:
    """Draw weights as BERT does."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=INIT_STD)
            nn.init.zeros_(part.bias)


OBJECTIVE = ReplacedToken
