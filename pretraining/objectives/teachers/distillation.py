"""DistilBERT: a student with some of its teacher's layers learns from the teacher's predictions and from the labels.

Input: rows and masks as in `dynamic_mlm`. The student is initialised with the teacher's embeddings, masked-LM head and
every n-th layer.

| term | predictions | loss | weight |
| --- | --- | --- | --- |
| soft | masked tokens | T² · KL(teacher ‖ student), both at the temperature T | `soft_weight` |
| mlm | masked tokens | cross-entropy with the original token | `mlm_weight` |
| cosine | all ordinary tokens | 1 − cosine of the last hidden states | `cosine_weight` |

“Accuracy” of `soft` is the share of masked tokens for which teacher and student agree; of `cosine`, the mean cosine.

Relations: the authors' code distils all tokens; here only the masked ones are distilled, for which the masked-LM head
was trained, at a sixth of the cost. The teacher is any BERT of the same width and vocabulary.

Source: Sanh et al. 2019, “DistilBERT, a distilled version of BERT”, section 3; weights and temperature of the authors'
code, huggingface/transformers-research-projects.
"""

from dataclasses import replace
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
from pretraining.folders import check_sizes, count_stored, open_config
from pretraining.model import Flops, MaskedLanguageModel, PretrainingModel, read_weights
from pretraining.objective import MLM, LossTerm, ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import DynamicMlm

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
    architectures = ("bert",)
    paper = "Sanh et al. 2019 (DistilBERT)"
    settings = DistillationConfig

    @property
    def terms(self) -> tuple[LossTerm, ...]:
        """Masked tokens first: their loss is comparable across objectives."""
        config = self.config
        return (
            replace(MLM, weight=config.mlm_weight),
            LossTerm("soft", "teacher's tokens", "masked_positions", config.soft_weight, measure="agreement"),
            LossTerm("cosine", "hidden states", "text_positions", config.cosine_weight, measure="cosine"),
        )

    @property
    def sources(self) -> tuple[Path, ...]:
        """The teacher's weights."""
        return tuple(sorted(_teacher_folder(self.config).glob("*.safetensors")))

    def inputs(self, batch: RowBatch) -> dict[str, npt.NDArray[Any]]:
        """Add the positions of ordinary tokens."""
        return super().inputs(batch) | {"text_positions": np.flatnonzero(batch.kinds != SPECIAL)}

    def build_model(self, config: Any) -> PretrainingModel:
        """Return a student with layers of its teacher.

        Raises:
            RecipeError: the teacher has another width or vocabulary, fewer layers, or fewer positions than a row.
        """
        model = DistillationModel(config, self.config)
        length, positions = self.layout.max_length, model.teacher_positions
        if length > positions:
            what = f"data.max_length={length}, the teacher has {positions} positions"
            raise RecipeError("recipe", what, "give the student rows that its teacher can read")
        return model


def _teacher_folder(config: DistillationConfig) -> Path:
    folder = Path(config.teacher)
    if not config.teacher or not (folder / "config.json").is_file():
        raise RecipeError("objective.teacher", f"'{config.teacher}' is not a model folder", "give a pretrained BERT")
    return folder


class DistillationModel(PretrainingModel):
    """A student and its teacher. Shapes as in `PretrainingModel`; N ordinary tokens."""

    def __init__(self, config: "BertConfig", settings: DistillationConfig) -> None:
        """Build the student of CONFIG's shape from its teacher.

        Raises:
            RecipeError: see `Distillation.build_model`.
            CheckpointError: the teacher's weights are damaged or lack their masked-LM head.
        """
        super().__init__(config, next_sentence=False)
        self._temperature = settings.temperature
        teacher = _open_teacher(_teacher_folder(settings), self.vocab_size)
        # A tuple hides the teacher from PyTorch: it is neither trained nor saved with the student.
        self._teacher = (teacher,)
        student, full = self.network.config, teacher.network.config
        for name in ("hidden_size", "num_attention_heads", "intermediate_size", "type_vocab_size"):
            if getattr(student, name) != getattr(full, name):
                what = f"model.{name}={getattr(student, name)}, the teacher has {getattr(full, name)}"
                raise RecipeError("recipe", what, "give the student the width of its teacher; only layers may differ")
        if student.num_hidden_layers > full.num_hidden_layers:
            what = f"model.num_hidden_layers={student.num_hidden_layers}, the teacher has {full.num_hidden_layers}"
            raise RecipeError("recipe", what, "give the student fewer layers")
        self.load(_student_weights(dict(teacher.network.named_parameters()), student, full, self.vocab_size))

    @property
    def teacher_positions(self) -> int:
        """Longest row in tokens that the teacher reads."""
        return int(self._teacher[0].network.config.max_position_embeddings)

    def use_attention(self, device: torch.device) -> None:
        """Choose the attention implementation for a device, and move the teacher to it."""
        super().use_attention(device)
        self._teacher[0].use_attention(device)
        self._teacher[0].to(device)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        position_ids: Tensor,
        sequence_ids: Tensor,
        masked_positions: Tensor,
        masked_ids: Tensor,
        text_positions: Tensor,
    ) -> dict[str, Tensor]:
        """Return summed losses and counts.

        Args:
            input_ids: int64 (B, T), with masks.
            token_type_ids: int64 (B, T).
            position_ids: int64 (B, T).
            sequence_ids: int64 (B, T).
            masked_positions: int64 (M,), in the flattened batch.
            masked_ids: int64 (M,), the original tokens.
            text_positions: int64 (N,), positions of all ordinary tokens in the flattened batch.
        """
        rows = (input_ids, token_type_ids, position_ids, sequence_ids)
        teacher = self._teacher[0]
        with torch.no_grad():
            teacher_states = teacher.encode(*rows).flatten(0, 1)  # (B·T, D)
            target = teacher.scores(teacher_states[masked_positions]).float() / self._temperature  # (M, V)
        states = self.encode(*rows).flatten(0, 1)
        scores = self.scores(states[masked_positions]).float()  # (M, V)
        log_probabilities = F.log_softmax(scores / self._temperature, -1)
        divergence = F.kl_div(log_probabilities, F.log_softmax(target, -1), reduction="sum", log_target=True)
        predicted = scores.argmax(-1)
        cosine = F.cosine_similarity(
            states[text_positions].float(), teacher_states[text_positions].float(), dim=-1
        )  # (N,)
        return {
            "mlm_loss": F.cross_entropy(scores, masked_ids, reduction="sum"),
            "mlm_correct": (predicted == masked_ids).sum().float(),
            "soft_loss": divergence * self._temperature**2,
            "soft_correct": (predicted == target.argmax(-1)).sum().float(),
            "cosine_loss": (1 - cosine).sum(),
            "cosine_correct": cosine.detach().sum(),
        }

    def flops(self) -> Flops:
        """Return the floating-point operations of a training step; the teacher does the forward pass only."""
        own, teacher = super().flops(), self._teacher[0].flops()
        return Flops(
            own.per_token + teacher.per_token / 3,
            own.per_position + teacher.per_position / 3,
            {"mlm": own.per_prediction["mlm"] + teacher.per_prediction["mlm"] / 3},
        )


def _open_teacher(folder: Path, vocab_size: int) -> MaskedLanguageModel:
    config: Any = open_config(folder)
    check_sizes(folder, config, count_stored(folder.glob("*.safetensors")))
    if config.vocab_size != vocab_size:
        what = f"the teacher has {config.vocab_size:,} entries, data.tokenizer {vocab_size:,}"
        raise RecipeError("recipe", what, "train the student with its teacher's tokenizer")
    teacher = MaskedLanguageModel(config, next_sentence=False)
    missing = teacher.load(read_weights(folder))
    if missing:
        raise CheckpointError(folder, f"{missing[0]} is missing", "give a teacher with its masked-LM head")
    teacher.requires_grad_(requires_grad=False)
    teacher.eval()
    return teacher


def _student_weights(
    teacher: dict[str, Tensor], student: "BertConfig", full: "BertConfig", vocab_size: int
) -> dict[str, Tensor]:
    """Return the weights of a student with every n-th layer of its teacher, by the student's names."""
    step = full.num_hidden_layers / student.num_hidden_layers
    source = {int(k * step): k for k in range(student.num_hidden_layers)}
    weights = {}
    for name, weight in teacher.items():
        before, is_layer, rest = name.partition("encoder.layer.")
        if is_layer:
            number, _, part = rest.partition(".")
            if int(number) not in source:
                continue
            name = f"{before}{is_layer}{source[int(number)]}.{part}"
        if "position_embeddings" in name:
            weight = weight[: student.max_position_embeddings]
        weights[name] = weight[:vocab_size] if len(weight) > vocab_size else weight
    return weights


OBJECTIVE = Distillation
