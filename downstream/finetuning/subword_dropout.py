"""Subword regularisation: in training, words are sometimes split into other subwords, differently in every epoch.

    augment = SubwordDropout(tokenizer, rate=0.1)
    augment(features, np.random.default_rng(0))                # the same text, possibly in shorter subwords

A word is split from left to right. The longest matching subword is skipped with probability `rate`, then the next
shorter one is tried; a single character is never skipped. An encoder that has seen several segmentations of a word is
less sensitive to typing errors and endings that change it. Predictions always use the longest match.

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
    """Re-segments the words of encoded texts at random."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, rate: float, max_length: int) -> None:
        """Read the vocabulary.

        Args:
            tokenizer: a WordPiece tokenizer.
            rate: probability of skipping a subword.
            max_length: longest output in tokens, special tokens included.

        Raises:
            UsageError: the tokenizer is not WordPiece.
        """
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        special = set(tokenizer.all_special_ids)
        self._starts = {p: id_ for p, id_ in vocabulary.items() if id_ not in special and p[:2] != CONTINUATION}
        self._continuations = {p[2:]: id_ for p, id_ in vocabulary.items() if p[:2] == CONTINUATION and len(p) > 2}
        if not self._continuations:
            raise UsageError(
                "finetune subword_dropout", "the encoder's vocabulary is not WordPiece", "leave subword_dropout out"
            )
        # Characters of each subword that is not special, and whether a word begins with it.
        self._characters = {id_: (subword, True) for subword, id_ in self._starts.items()}
        self._characters |= {id_: (subword, False) for subword, id_ in self._continuations.items()}
        self._longest = max(map(len, (*self._starts, *self._continuations)))
        self._rate, self._max_length = rate, max_length
        self._by_token = [name for name in tokenizer.model_input_names if name != "input_ids"]

    def __call__(self, features: Features, generator: np.random.Generator) -> Features:
        """Return features of the same text with re-segmented words; special tokens and unknown words stay.

        Args:
            features: `input_ids` and the tokenizer's other outputs, (T,) each; everything else is unchanged.
            generator: decides which subwords are skipped.
        """
        ids: list[int] = features["input_ids"]
        new: list[int] = []
        origin: list[int] = []  # index of the old token whose other inputs a new one copies
        start = 0
        while start < len(ids):
            end = self._word_end(ids, start)
            if ids[start] in self._characters:
                word = "".join(self._characters[id_][0] for id_ in ids[start:end])
                is_start = self._characters[ids[start]][1]
                subwords = self._cut(word, is_start=is_start, generator=generator) or ids[start:end]
            else:
                subwords = ids[start:end]
            new += subwords
            origin += [start] * len(subwords)
            start = end
        if len(new) > self._max_length:
            # The last token is [SEP].
            new, origin = [*new[: self._max_length - 1], new[-1]], [*origin[: self._max_length - 1], origin[-1]]
        others = {name: [features[name][k] for k in origin] for name in self._by_token if name in features}
        return {**features, **others, "input_ids": new}

    def _word_end(self, ids: list[int], start: int) -> int:
        """Return the end of the word whose first subword is at START."""
        end = start + 1
        while ids[start] in self._characters and end < len(ids) and not self._characters.get(ids[end], ("", True))[1]:
            end += 1
        return end

    def _cut(self, word: str, *, is_start: bool, generator: np.random.Generator) -> list[int]:
        """Split a word into subwords; returns none if the skips leave a rest that no subword matches."""
        subwords: list[int] = []
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
            # If the single character is not in the vocabulary, the longest match is used.
            chosen = found or longest
            if chosen is None:
                return []
            subwords.append(chosen[0])
            first = chosen[1]
        return subwords
