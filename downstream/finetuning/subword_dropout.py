"""Subword regularisation: words are cut into other pieces than the longest ones now and then, anew in every epoch.

    vary = SubwordDropout(tokenizer, rate=0.1)
    vary(features, np.random.default_rng(0))                   # the same text, perhaps in shorter pieces

A word is cut from left to right. The longest piece of the vocabulary that fits is passed over with probability `rate`,
then the next shorter one is tried; a single character is never passed over. An encoder that has seen a word in several
forms is not thrown off by a typing error or an ending that cuts it otherwise. Only training varies: whoever answers
takes the longest pieces as always.

Source: Hiraoka 2022, “MaxMatch-Dropout: Subword Regularization for WordPiece”, section 3.
"""

from typing import TYPE_CHECKING

import numpy as np

from corpora.foundation.errors import UsageError
from downstream.task import Features

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTINUATION = "##"


class SubwordDropout:
    """Cuts the words of encoded texts anew."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, rate: float, max_length: int) -> None:
        """Read the vocabulary.

        Args:
            tokenizer: a WordPiece.
            rate: probability with which a piece is passed over.
            max_length: tokens from which on a text is cut, special ones included.

        Raises:
            UsageError: the tokenizer is no WordPiece.
        """
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        special = set(tokenizer.all_special_ids)
        self._starts = {p: id_ for p, id_ in vocabulary.items() if id_ not in special and p[:2] != CONTINUATION}
        self._continuations = {p[2:]: id_ for p, id_ in vocabulary.items() if p[:2] == CONTINUATION and len(p) > 2}
        if not self._continuations:
            raise UsageError(
                "finetune subword_dropout", "the encoder's vocabulary is no WordPiece", "leave subword_dropout out"
            )
        # Of a piece that is not special: its letters, and whether a word begins with it.
        self._letters = {id_: (piece, True) for piece, id_ in self._starts.items()}
        self._letters |= {id_: (piece, False) for piece, id_ in self._continuations.items()}
        self._longest = max(map(len, (*self._starts, *self._continuations)))
        self._rate, self._max_length = rate, max_length
        self._by_token = [name for name in tokenizer.model_input_names if name != "input_ids"]

    def __call__(self, features: Features, generator: np.random.Generator) -> Features:
        """Return features of the same text with words cut anew; special tokens and unknown words stay.

        Args:
            features: `input_ids` and the tokenizer's other outputs, (T,) each; everything else is left as it is.
            generator: decides what is passed over.
        """
        ids: list[int] = features["input_ids"]
        new: list[int] = []
        origin: list[int] = []  # the old token whose further entries a new one takes over
        place = 0
        while place < len(ids):
            end = self._word_end(ids, place)
            if ids[place] in self._letters:
                word = "".join(self._letters[id_][0] for id_ in ids[place:end])
                is_start = self._letters[ids[place]][1]
                pieces = self._cut(word, is_start=is_start, generator=generator) or ids[place:end]
            else:
                pieces = ids[place:end]
            new += pieces
            origin += [place] * len(pieces)
            place = end
        if len(new) > self._max_length:
            # The last token closes the text.
            new, origin = [*new[: self._max_length - 1], new[-1]], [*origin[: self._max_length - 1], origin[-1]]
        others = {name: [features[name][k] for k in origin] for name in self._by_token if name in features}
        return {**features, **others, "input_ids": new}

    def _word_end(self, ids: list[int], place: int) -> int:
        """Return where the word ends whose first piece lies at PLACE."""
        end = place + 1
        while ids[place] in self._letters and end < len(ids) and not self._letters.get(ids[end], ("", True))[1]:
            end += 1
        return end

    def _cut(self, word: str, *, is_start: bool, generator: np.random.Generator) -> list[int]:
        """Cut a word into pieces; returns none if what was passed over leads to an end that no piece fits."""
        pieces: list[int] = []
        first = 0
        while first < len(word):
            vocabulary = self._starts if is_start and not first else self._continuations
            found, longest = None, None
            for end in range(min(len(word), first + self._longest), first, -1):
                id_ = vocabulary.get(word[first:end])
                if id_ is None:
                    continue
                longest = longest or (id_, end)
                if end == first + 1 or generator.random() >= self._rate:
                    found = id_, end
                    break
            # Where the single character is no piece, the longest one has the last word.
            chosen = found or longest
            if chosen is None:
                return []
            pieces.append(chosen[0])
            first = chosen[1]
        return pieces
