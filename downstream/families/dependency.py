"""Family for dependency parsing: the head of every eojeol and the relation to it.

A biaffine arc scorer on the encoder alone (after Dozat and Manning 2017), made of transformers' head for tokens: its
outputs are a vector of the token as a dependent, a vector of it as a head, and the scores of the relations. The score
of an arc is the product of two vectors. An eojeol is read at its last subword, which carries the particle or ending;
[CLS] is the root. KLUE-baseline has LSTMs and the part of speech of the gold file on top; neither is used here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from corpora.foundation.errors import DataError, suggest
from downstream.families.tagging import BLANK
from downstream.task import Features, Prediction, TextExample

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ROOT = 0
"""Head of the eojeol that has none, and position of [CLS]."""
NO_TARGET = -100
"""Label of a token that is not the last one of an eojeol; the padding of labels."""


@dataclass(frozen=True)
class Dependency:
    """Head and relation of every eojeol; cross-entropy over possible heads plus cross-entropy over relations.

    `TextExample.label` and a prediction are strings with one `HEAD:RELATION` for each eojeol, joined by blanks; heads
    are counted from 1, and 0 is the root. Korean is head-final: only eojeols to the right are predicted as heads.
    """

    relations: tuple[str, ...]
    """Names in the order of their ids."""
    arc_size: int = 128
    """Dimensions of the vectors whose product scores an arc."""

    auto_class = "AutoModelForTokenClassification"

    def check(self, example: TextExample, where: str) -> None:
        """Raise DataError for an unknown relation, a head outside the sentence, or another number of eojeols."""
        items = str(example.label).split(BLANK)
        count = len(example.text.split(BLANK))
        if len(items) != count:
            raise DataError(where, f"{len(items)} heads for {count} eojeols", "restore the official file")
        for number, item in enumerate(items, start=1):
            head, _, relation = item.partition(":")
            if not head.isdecimal() or int(head) > count or int(head) == number:
                raise DataError(where, f"eojeol {number} has the head '{head}'", "restore the official file")
            if relation not in self.relations:
                raise DataError(where, f"relation '{relation}' is unknown", suggest(relation, self.relations))

    def head_config(self) -> dict[str, Any]:
        """Return the number of outputs a token: two vectors and the relations."""
        return {"num_labels": 2 * self.arc_size + len(self.relations)}

    def featurize(
        self,
        examples: Sequence[TextExample],
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int,
        *,
        with_labels: bool,
    ) -> list[Features]:
        """Tokenise `[CLS] text [SEP]`; what is beyond MAX_LENGTH is cut off.

        `_words` maps each eojeol to its last token. `labels` has `head token · number of relations + relation` there,
        and `NO_TARGET` elsewhere, also where the head is cut off.
        """
        encoded = tokenizer(
            [example.text for example in examples], truncation=True, max_length=max_length, return_offsets_mapping=True
        )
        offsets = encoded.pop("offset_mapping")
        features: list[Features] = []
        for k, example in enumerate(examples):
            owners = _eojeol_of(example.text)
            words: dict[int, int] = {}
            for token, (span, side) in enumerate(zip(offsets[k], encoded.sequence_ids(k), strict=True)):
                if side == 0 and span[1] > span[0] and (word := owners[span[1] - 1]) is not None:
                    words[word] = token
            feature: Features = {key: encoded[key][k] for key in encoded} | {"_example": k, "_words": words}
            if with_labels:
                feature["labels"] = self._labels(example, words, len(feature["input_ids"]))
            features.append(feature)
        return features

    def _labels(self, example: TextExample, words: Mapping[int, int], length: int) -> list[int]:
        labels = [NO_TARGET] * length
        for word, item in enumerate(str(example.label).split(BLANK)):
            head, _, relation = item.partition(":")
            target = ROOT if head == "0" else words.get(int(head) - 1)
            if word in words and target is not None:
                labels[words[word]] = target * len(self.relations) + self.relations.index(relation)
        return labels

    def logits(self, model: "PreTrainedModel", batch: Mapping[str, Any]) -> "Tensor":
        """Return float (B, T, 2 · `arc_size` + relations)."""
        tensor: Tensor = model(**batch).logits
        return tensor

    def loss(self, model: "PreTrainedModel", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return the sum of both cross-entropies, a scalar; heads compete with the sentence's eojeols and the root."""
        from torch.nn.functional import cross_entropy

        labels = batch["labels"]  # (B, T)
        outputs = model(**{key: value for key, value in batch.items() if key != "labels"}).logits.float()
        own, heads, relations = outputs.split([self.arc_size, self.arc_size, len(self.relations)], dim=-1)
        arcs = own @ heads.transpose(1, 2)  # (B, T, T), from dependent to head
        is_word = labels != NO_TARGET
        is_candidate = is_word.clone()
        is_candidate[:, ROOT] = True
        arcs = arcs.masked_fill(~is_candidate[:, None, :], float("-inf"))
        targets = labels[is_word]
        arc_loss = cross_entropy(arcs[is_word], targets // len(self.relations))
        return arc_loss + cross_entropy(relations[is_word], targets % len(self.relations))

    def decode(
        self, outputs: Sequence[Any], features: Sequence[Features], examples: Sequence[TextExample]
    ) -> list[Prediction]:
        """Return the best head to the right and the best relation of each eojeol.

        An eojeol without a token depends on the next one, with the first relation.
        """
        predictions: list[Prediction] = []
        for scores, feature, example in zip(outputs, features, examples, strict=True):
            count = len(example.text.split(BLANK))
            parsed = [(word + 2 if word + 1 < count else ROOT, self.relations[0]) for word in range(count)]
            words = list(feature["_words"])
            tokens = [feature["_words"][word] for word in words]
            own, heads = scores[tokens, : self.arc_size], scores[[ROOT, *tokens], self.arc_size : 2 * self.arc_size]
            arcs = own @ heads.T  # (words, root and words)
            for k, word in enumerate(words):
                allowed = [0, *range(k + 2, len(words) + 1)]
                best = allowed[int(np.argmax(arcs[k, allowed]))]
                relation = self.relations[int(scores[tokens[k], 2 * self.arc_size :].argmax())]
                parsed[word] = (words[best - 1] + 1 if best else ROOT, relation)
            predictions.append(BLANK.join(f"{head}:{relation}" for head, relation in parsed))
        return predictions


def _eojeol_of(text: str) -> list[int | None]:
    """Return the number of each character's eojeol, from 0; None for blanks."""
    owners: list[int | None] = []
    for number, word in enumerate(text.split(BLANK)):
        owners += [*([None] if number else []), *([number] * len(word))]
    return owners
