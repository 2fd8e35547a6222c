"""Family for a text with several continuations of which one is correct, such as SWAG.

Every choice is encoded with the text as a pair and gets one score; the highest score wins. Source: Devlin et al. 2019,
section 4.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import DataError
from downstream.task import ChoiceExample, Features, Prediction

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class MultipleChoice:
    """One of a fixed number of choices; cross-entropy over them, argmax.

    Input: `[CLS] text [SEP] choice [SEP]` for each. A text that is too long is truncated at its beginning, far
    from the choice. A prediction, like `ChoiceExample.label`, is the number of a choice as text.
    """

    num_choices: int = 4

    auto_class = "AutoModelForMultipleChoice"

    def check(self, example: ChoiceExample, where: str) -> None:
        """Raise DataError for another number of choices, equal choices, or a label that names none of them."""
        if len(set(example.choices)) != self.num_choices or len(example.choices) != self.num_choices:
            what = f"{len(set(example.choices))} different choices where there should be {self.num_choices}"
            raise DataError(where, what, "restore the official file")
        if example.label not in [str(number) for number in range(self.num_choices)]:
            raise DataError(where, f"label '{example.label}' is not a choice", f"use 0 to {self.num_choices - 1}")

    def head_config(self) -> dict[str, Any]:
        """Return nothing: a head with one output needs no names."""
        return {}

    def featurize(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
        *,
        with_labels: bool,
    ) -> list[Features]:
        """Tokenise; each entry of an example's features is a list with one item per choice."""
        before, tokenizer.truncation_side = tokenizer.truncation_side, "left"
        try:
            encoded = tokenizer(
                [example.text for example in examples for _ in example.choices],
                [choice for example in examples for choice in example.choices],
                truncation="longest_first",
                max_length=max_length,
            )
        finally:
            tokenizer.truncation_side = before
        features: list[Features] = []
        for k in range(len(examples)):
            some = slice(k * self.num_choices, (k + 1) * self.num_choices)
            features.append({key: encoded[key][some] for key in encoded} | {"_example": k})
        if with_labels:
            for feature, example in zip(features, examples, strict=True):
                feature["labels"] = int(example.label)
        return features

    def logits(self, model: "PreTrainedModel", batch: Mapping[str, Any]) -> "Tensor":
        """Return float (B, C)."""
        tensor: Tensor = model(**batch).logits
        return tensor

    def decode(
        self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[ChoiceExample]
    ) -> list[Prediction]:
        """Return the number of the choice with the highest score per example."""
        assert len(outputs) == len(features) == len(examples)
        return [str(int(row.argmax())) for row in outputs]


def pad_choices(
    tokenizer: "PreTrainedTokenizerBase", rows: Sequence[Features], multiple: int = 1
) -> dict[str, "Tensor"]:
    """Return a batch of examples with C choices each, padded to the longest pair: (B, C, T); `labels` (B,).

    T is rounded up to a multiple of MULTIPLE.
    """
    import torch

    inputs = [key for key in rows[0] if key != "labels"]
    flat = [{key: row[key][c] for key in inputs} for row in rows for c in range(len(row["input_ids"]))]
    padded: dict[str, Tensor] = dict(tokenizer.pad(flat, pad_to_multiple_of=multiple, return_tensors="pt"))  # (B·C, T)
    batch = {key: value.view(len(rows), -1, value.shape[-1]) for key, value in padded.items()}
    if "labels" in rows[0]:
        batch["labels"] = torch.tensor([row["labels"] for row in rows])
    return batch
