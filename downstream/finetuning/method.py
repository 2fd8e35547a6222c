"""How a model is trained on a task: the model before the first step, its inputs and its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from downstream.encoders.weights import load_model
from downstream.task import Family, Features, FinetuneConfig

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase


def load_with_new_head(folder: Path, tokenizer: "PreTrainedTokenizerBase", family: Family) -> Any:
    """Load an encoder with the family's head; the head starts at random."""
    return load_model(folder, tokenizer, family.auto_class, family.head_config())


@dataclass(frozen=True)
class TrainingMethod:
    """How a model is trained; by default an encoder with a new head on the labels of its task."""

    build: Callable[[Path, "PreTrainedTokenizerBase", Family], Any] = load_with_new_head
    """Folder, its tokenizer, family → the model before the first step."""
    prepare: "Callable[[list[Features], Path], list[Features]]" = lambda features, _: features
    """Features of the training split, folder for cached computations → the features that are trained on."""
    loss: "Callable[[Any, dict[str, Tensor]], Tensor] | None" = None
    """Model and batch → loss; None: the loss that transformers computes from the labels."""
    description: str = "Fine-tuned"
    """For the model card."""
    command: str = "python -m downstream.finetune {task} --model ENCODER"
    """Reproduces the training; for the model card."""

    @classmethod
    def from_config(cls, config: FinetuneConfig) -> "TrainingMethod":
        """Return how an encoder is trained by CONFIG: with the usual head, or with a BiLSTM on its layers."""
        if config.features == "none":
            return cls()
        from downstream.finetuning import bilstm

        return cls(
            build=lambda folder, tokenizer, family: bilstm.build(folder, tokenizer, family, config),
            description=f"A BiLSTM on {'the frozen' if config.frozen else 'the'} encoder's layers "
            f"(`{config.features}`)",
        )
