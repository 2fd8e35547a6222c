"""DistilBERT: a student with some of its teacher's layers learns what the teacher expects, not the right answer alone.

Input: rows and masks as `dynamic_mlm` makes them. The student begins with the teacher's embeddings, its masked-LM head
and every n-th of its layers.

| term | predictions | of | weight |
| --- | --- | --- | --- |
| soft | masked tokens | T² · KL(teacher ‖ student), both softened by the temperature T | `soft_weight` |
| mlm | masked tokens | cross-entropy with what stood there | `mlm_weight` |
| cosine | all tokens of text | 1 − cosine of the last hidden states | `cosine_weight` |

“Accuracy” of `soft` is how often teacher and student prefer the same piece; of `cosine`, the mean cosine.

Relations: the authors' code softens all tokens where this one softens the masked ones, which is what the masked-LM head
was trained for and a sixth of the work. The teacher is any BERT of the same width and vocabulary.

Source: Sanh et al. 2019, “DistilBERT, a distilled version of BERT”, section 3; weights and temperature of the authors'
code, huggingface/transformers-research-projects.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from pydantic import Field
from torch import Tensor

from corpora.foundation.errors import CheckpointError, RecipeError
from pretraining.data.rows import SPECIAL
from pretraining.model import Flops, MaskedLanguageModel, PretrainingModel
from pretraining.objective import MLM, ObjectiveConfig, RowBatch, Term
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.training.checkpoints import read_weights

if TYPE_CHECKING:
    from transformers import BertConfig


class DistillationConfig(ObjectiveConfig):
    """Settings of DistilBERT."""

    teacher: str = ""
    """Folder of a BERT with its masked-LM head."""
    temperature: float = Field(default=2.0, gt=0)
    soft_weight: float = Field(default=5.0, gt=0)
    mlm_weight: float = Field(default=2.0, gt=0)
    cosine_weight: float = Field(default=1.0, gt=0)


class Distillation(DynamicMlm):
    """See the module."""

    name = "distillation"
    paper = "Sanh et al. 2019 (DistilBERT)"
    settings = DistillationConfig

    @property
    def terms(self) -> tuple[Term, ...]:
        """Masked tokens first, by which models are compared."""
        config = self.config
        return (
            Term(MLM.name, MLM.title, MLM.counted_by, config.mlm_weight),
            Term("soft", "agreement", "masked_at", config.soft_weight),
            Term("cosine", "cosine", "text_at", config.cosine_weight),
        )

    @property
    def sources(self) -> tuple[Path, ...]:
        """The teacher."""
        return tuple(sorted(_teacher_folder(self.config).glob("*.safetensors")))

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add where text is."""
        return super().inputs(batch) | {"text_at": np.flatnonzero(batch.kinds != SPECIAL)}

    def build_model(self, config: "BertConfig") -> PretrainingModel:
        """Return a student that begins with layers of its teacher.

        Raises:
            RecipeError: the teacher has another width or vocabulary, or fewer layers.
        """
        return DistillationModel(config, self.config)


def _teacher_folder(config: DistillationConfig) -> Path:
    folder = Path(config.teacher)
    if not config.teacher or not (folder / "config.json").is_file():
        raise RecipeError("objective.teacher", f"'{config.teacher}' is no model folder", "give a pretrained BERT")
    return folder


class DistillationModel(PretrainingModel):
    """A student beside its teacher. Letters as in `PretrainingModel`; N tokens of text."""

    def __init__(self, config: "BertConfig", settings: DistillationConfig) -> None:
        """Build the student of the shape CONFIG out of its teacher.

        Raises:
            RecipeError: see `Distillation.build_model`.
            CheckpointError: the teacher's weights are damaged or lack their masked-LM head.
        """
        super().__init__(config, next_sentence=False)
        self._temperature = settings.temperature
        teacher = _open_teacher(_teacher_folder(settings), self.vocab_size)
        # In a tuple the teacher is no part of the student: neither trained nor saved with it.
        self._teacher = (teacher,)
        own, whole = self.network.config, teacher.network.config
        for name in ("hidden_size", "num_attention_heads", "intermediate_size", "type_vocab_size"):
            if getattr(own, name) != getattr(whole, name):
                what = f"model.{name}={getattr(own, name)}, the teacher has {getattr(whole, name)}"
                raise RecipeError("recipe", what, "make the student as wide as its teacher; only layers are left out")
        if own.num_hidden_layers > whole.num_hidden_layers:
            what = f"model.num_hidden_layers={own.num_hidden_layers}, the teacher has {whole.num_hidden_layers}"
            raise RecipeError("recipe", what, "give the student fewer layers")
        self.load(_student_weights(dict(teacher.network.named_parameters()), own, whole, self.vocab_size))

    def use_attention(self, device: torch.device) -> None:
        """Choose the attention for a device, and take the teacher there."""
        super().use_attention(device)
        self._teacher[0].use_attention(device)
        self._teacher[0].to(device)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_at: Tensor,
        masked_ids: Tensor,
        text_at: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts.

        Args:
            input_ids: int64 (B, T), as fed.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_at: int64 (M,).
            masked_ids: int64 (M,).
            text_at: int64 (N,), positions of all tokens but special ones.
        """
        rows = (input_ids, token_type_ids, position_ids, sequence_ids)
        teacher = self._teacher[0]
        with torch.no_grad():
            taught = teacher.encode(*rows).flatten(0, 1)  # (B·T, D)
            target = teacher.scores(taught[masked_at]).float() / self._temperature  # (M, V)
        states = self.encode(*rows).flatten(0, 1)
        scores = self.scores(states[masked_at]).float()  # (M, V)
        soft = F.log_softmax(scores / self._temperature, -1)
        divergence = F.kl_div(soft, F.log_softmax(target, -1), reduction="sum", log_target=True)
        preferred = scores.argmax(-1)
        cosine = F.cosine_similarity(states[text_at].float(), taught[text_at].float(), dim=-1)  # (N,)
        return {
            "mlm_loss": F.cross_entropy(scores, masked_ids, reduction="sum"),
            "mlm_correct": (preferred == masked_ids).sum().float(),
            "soft_loss": divergence * self._temperature**2,
            "soft_correct": (preferred == target.argmax(-1)).sum().float(),
            "cosine_loss": (1 - cosine).sum(),
            "cosine_correct": cosine.detach().sum(),
        }

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step; the teacher's are those of a forward pass."""
        own, teacher = super().flops(), self._teacher[0].flops()
        return Flops(
            own.per_token + teacher.per_token / 3,
            own.per_position + teacher.per_position / 3,
            {"mlm": own.per_prediction["mlm"] + teacher.per_prediction["mlm"] / 3},
        )


def _open_teacher(folder: Path, vocab_size: int) -> MaskedLanguageModel:
    from transformers import BertConfig

    config = BertConfig.from_pretrained(folder)
    if config.vocab_size != vocab_size:
        what = f"the teacher has {config.vocab_size:,} pieces, data.tokenizer {vocab_size:,}"
        raise RecipeError("recipe", what, "train the student with its teacher's tokenizer")
    teacher = MaskedLanguageModel(config, next_sentence=False)
    missing = teacher.load(read_weights(folder))
    if missing:
        raise CheckpointError(folder, f"{missing[0]} is missing", "give a teacher with its masked-LM head")
    teacher.requires_grad_(requires_grad=False)
    teacher.eval()
    return teacher


def _student_weights(
    teacher: dict[str, Tensor], own: "BertConfig", whole: "BertConfig", vocab_size: int
) -> dict[str, Tensor]:
    """Return the teacher's weights by the names of a student that has every n-th of its layers."""
    step = whole.num_hidden_layers / own.num_hidden_layers
    source = {int(k * step): k for k in range(own.num_hidden_layers)}
    weights = {}
    for name, weight in teacher.items():
        before, is_layer, rest = name.partition("encoder.layer.")
        if is_layer:
            number, _, part = rest.partition(".")
            if int(number) not in source:
                continue
            name = f"{before}{is_layer}{source[int(number)]}.{part}"
        if "position_embeddings" in name:
            weight = weight[: own.max_position_embeddings]
        weights[name] = weight[:vocab_size] if len(weight) > vocab_size else weight
    return weights


OBJECTIVE = Distillation
