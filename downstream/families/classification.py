"""Families for one text or a pair of texts: a label (`Classification`) or a score (`Regression`)."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import DataError, suggest
from downstream.task import Family, Features, Prediction, TextExample

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class _SequenceHead(abc.ABC):
    """Shared by both: the tensors of a text or pair, one output row per example."""

    auto_class = "AutoModelForSequenceClassification"

    def featurize(
        self,
        examples: Sequence[TextExample],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
        *,
        with_labels: bool,
    ) -> list[Features]:
        """Tokenise; a pair that is too long loses tokens at the end of its longer text first."""
        encoded = tokenizer(
            [example.text for example in examples],
            None if examples[0].pair is None else [example.pair or "" for example in examples],
            truncation="longest_first" if examples[0].pair is not None else True,
            max_length=max_length,
        )
        features: list[Features] = [
            {key: encoded[key][k] for key in encoded} | {"_example": k} for k in range(len(examples))
        ]
        if with_labels:
            for feature, example in zip(features, examples, strict=True):
                feature["labels"] = self.label_id(example)
        return features

    @abc.abstractmethod
    def label_id(self, example: TextExample) -> int | float:
        """Return the target of the loss."""

    def logits(self, model: "PreTrainedModel", batch: Mapping[str, Any]) -> "Tensor":
        """Return float (B, C)."""
        tensor: Tensor = model(**batch).logits
        return tensor


@dataclass(frozen=True)
class Classification(_SequenceHead):
    """One of a fixed set of labels; cross-entropy, argmax."""

    labels: tuple[str, ...]
    """Label names in the order of their ids."""

    def check(self, example: TextExample, where: str) -> None:
        """Raise DataError for a label that is not in `labels`."""
        if example.label not in self.labels:
            raise DataError(where, f"label '{example.label}' is unknown", suggest(str(example.label), self.labels))

    def head_config(self) -> dict[str, Any]:
        """Return labels with ids, so that a saved model names its outputs."""
        return {
            "id2label": dict(enumerate(self.labels)),
            "label2id": {label: k for k, label in enumerate(self.labels)},
            "problem_type": "single_label_classification",
        }

    def label_id(self, example: TextExample) -> int:
        """Return the id of the gold label."""
        return self.labels.index(str(example.label))

    def decode(
        self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[Prediction]:
        """Return the most probable label's name per example."""
        assert len(outputs) == len(features) == len(examples)
        return [self.labels[int(row.argmax())] for row in outputs]


@dataclass(frozen=True)
class Regression(_SequenceHead):
    """A score on a scale; mean squared error on the raw scale, output neither clipped nor rescaled (KLUE-STS)."""

    low: float
    high: float

    def check(self, example: TextExample, where: str) -> None:
        """Raise DataError for a score off the scale."""
        if not isinstance(example.label, float) or not self.low <= example.label <= self.high:
            raise DataError(where, f"score {example.label} is off the scale", f"use {self.low:g} to {self.high:g}")

    def head_config(self) -> dict[str, Any]:
        """Return the one-output head that transformers trains by mean squared error."""
        return {"num_labels": 1, "problem_type": "regression"}

    def label_id(self, example: TextExample) -> float:
        """Return the gold score."""
        return float(example.label)

    def decode(
        self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[Prediction]:
        """Return the raw output per example."""
        assert len(outputs) == len(features) == len(examples)
        return [float(row[0]) for row in outputs]


def check_labels_differ(family: Family, examples: Sequence[Any], where: str) -> None:
    """Raise DataError for a training split of labels that has only one of them."""
    if isinstance(family, Classification) and len({example.label for example in examples}) < 2:
        what = (
            f"all {len(examples):,} training examples have one label ('{examples[0].label}')"
            if examples
            else "it is empty"
        )
        raise DataError(where, what, "train on a split with at least two labels")
