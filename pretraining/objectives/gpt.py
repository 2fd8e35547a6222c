"""GPT: a decoder predicts each token from those before it, and can generate text.

Input and loss as in `left_to_right`, in the architecture of GPT-2. A text begins with `[CLS]` and ends with `[SEP]`;
the saved folder says so, and `GPT2LMHeadModel.generate` continues a beginning and stops at the end.

Relations: differs from `left_to_right` in the architecture: LayerNorm before attention and feed-forward layer instead
of behind them, and no segments. The authors train on running text without marks of where a document begins.

Source: Radford et al. 2018, “Improving language understanding by generative pre-training”; the architecture is that of
Radford et al. 2019, “Language models are unsupervised multitask learners”.
"""

from typing import TYPE_CHECKING, Any

from pretraining.model import PretrainingModel
from pretraining.objectives.left_to_right import CausalModel, LeftToRight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from transformers import PreTrainedModel


class Gpt(LeftToRight):
    """See the module; the masking settings are ignored."""

    name = "gpt"
    architectures = ("gpt2",)
    paper = "Radford et al. 2018 (GPT)"

    def build_model(self, config: Any) -> PretrainingModel:
        """Return a decoder that knows where a text begins and ends."""
        config.bos_token_id, config.eos_token_id = self.layout.specials.cls, self.layout.specials.sep
        return GptModel(config)


class GptModel(CausalModel):
    """A GPT-2. Shapes as in `PretrainingModel`."""

    def export(self, state: "Mapping[str, Tensor]", num_positions: int | None = None) -> "PreTrainedModel":
        """Return the decoder, which generates up to its last position."""
        exported = super().export(state, num_positions)
        generation: Any = exported.generation_config
        generation.bos_token_id, generation.eos_token_id = exported.config.bos_token_id, exported.config.eos_token_id
        generation.pad_token_id = exported.config.pad_token_id
        return exported


OBJECTIVE = Gpt
