"""Family for tags on characters, such as named entities in KLUE-NER's manner.

A text has one tag for every character except the blank. A model tags tokens; the characters of a token are given by its
offsets, which works for [UNK] and for every tokenizer. A text longer than the input is split into windows that overlap
by `stride` tokens; no part is dropped.

Source: Park et al. 2021, KLUE, and KLUE-benchmark/KLUE-baseline: a token is trained on the tag of its first character.
The first character of a token gets the predicted tag, the others the I- tag of its type. KLUE-baseline trains an eojeol
with an [UNK] on the tag of its first character alone; here an [UNK] hides no more than the characters that the
vocabulary lacks, and is a token like others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import DataError, suggest
from downstream.task import Features, Prediction, TextExample

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BLANK = " "
OUTSIDE = "O"


@dataclass(frozen=True)
class Tagging:
    """One tag of an IOB2 scheme for every character except the blank; cross-entropy over tokens, argmax.

    Input: [CLS] text [SEP], both of them tagged O. A prediction, like `TextExample.label`, is one string with the tags
    of all characters in order, joined by blanks. Characters without a token, such as control characters that a
    tokenizer drops, are predicted O.
    """

    tags: tuple[str, ...]
    """Tag names in the order of their ids; `O` is one of them."""
    stride: int = 32
    """Tokens by which neighbouring windows overlap; a token is predicted in the window that is widest around it."""

    auto_class = "AutoModelForTokenClassification"

    def check(self, example: TextExample, where: str) -> None:
        """Raise DataError for an unknown tag, or another number of tags than characters."""
        tags = str(example.label).split()
        if unknown := next((tag for tag in tags if tag not in self.tags), None):
            raise DataError(where, f"tag '{unknown}' is unknown", suggest(unknown, self.tags))
        num_characters = len(_character_indices(example.text))
        if len(tags) != num_characters:
            raise DataError(where, f"{len(tags)} tags for {num_characters} characters", "restore the official file")

    def head_config(self) -> dict[str, Any]:
        """Return tags with ids, so that a saved model names its outputs."""
        return {"id2label": dict(enumerate(self.tags)), "label2id": {tag: k for k, tag in enumerate(self.tags)}}

    def featurize(
        self,
        examples: Sequence[TextExample],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
        *,
        with_labels: bool,
    ) -> list[Features]:
        """Split every example into windows `[CLS] text [SEP]`; `labels` has one tag id per token.

        `_characters` holds the indices of each token's characters, blanks not counted.
        """
        encoded = tokenizer(
            [example.text for example in examples],
            truncation=True,
            max_length=max_length,
            # The overlap must leave room to advance, also for tiny models with short inputs.
            stride=min(self.stride, max(0, (max_length - 2) // 2)),
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        owners = encoded.pop("overflow_to_sample_mapping")
        offsets = encoded.pop("offset_mapping")
        numbers = [_character_indices(example.text) for example in examples]
        features: list[Features] = []
        for k, owner in enumerate(owners):
            characters = [
                [numbers[owner][p] for p in range(*span) if p in numbers[owner]] if side == 0 else []
                for span, side in zip(offsets[k], encoded.sequence_ids(k), strict=True)
            ]
            features.append({key: encoded[key][k] for key in encoded} | {"_example": owner, "_characters": characters})
        if with_labels:
            self._add_labels(features, examples)
        return features

    def _add_labels(self, features: Sequence[Features], examples: Sequence[TextExample]) -> None:
        for feature in features:
            tags = str(examples[feature["_example"]].label).split()
            feature["labels"] = [
                self.tags.index(tags[characters[0]] if characters else OUTSIDE) for characters in feature["_characters"]
            ]

    def logits(self, model: "PreTrainedModel", batch: Mapping[str, Any]) -> "Tensor":
        """Return float (B, T, C)."""
        tensor: Tensor = model(**batch).logits
        return tensor

    def decode(
        self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[Prediction]:
        """Return per example the tags of its characters, joined by blanks."""
        tags = [[OUTSIDE] * len(_character_indices(example.text)) for example in examples]
        margins = [[-1] * len(row) for row in tags]
        for scores, feature in zip(outputs, features, strict=True):
            owner, length = feature["_example"], len(feature["input_ids"])
            taken: set[int] = set()
            for token, characters in enumerate(feature["_characters"]):
                tag = self.tags[int(scores[token].argmax())]
                margin = min(token, length - 1 - token)
                for character in characters:
                    # Byte-level subwords share a character: the first of them decides its tag.
                    if character not in taken and margin > margins[owner][character]:
                        tags[owner][character], margins[owner][character] = tag, margin
                    taken.add(character)
                    tag = tag if tag == OUTSIDE else f"I-{tag[2:]}"
        return [BLANK.join(row) for row in tags]


def _character_indices(text: str) -> dict[int, int]:
    """Return code point offset → index of the character among those that are not blanks."""
    return {point: index for index, point in enumerate(p for p, c in enumerate(text) if c != BLANK)}
