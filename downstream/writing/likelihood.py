"""How likely each word of a text is in its place, by a masked language model.

A word is scored by masking its tokens: each is predicted with the later tokens of the same word masked, too, so that
the rest of a word does not give away its beginning. The sum over a text is its pseudo-log-likelihood. Whether a word
fits its neighbours is asked of its stem alone, the first token: particles and endings stay, since they say more about
the sentence than about the word.

Source: Salazar et al. 2020 (pseudo-log-likelihood); Kauf and Ivanova 2023 (the rest of the word is masked, too).
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.characters import nfc
from corpora.foundation.machine import num_threads
from downstream.encoders.hub import bundled
from downstream.fill_mask import CONTINUATION
from downstream.runtimes.graph import MASKED_POSITIONS, Forward, build_graph, open_session
from downstream.runtimes.plain_bert import PlainTokenizer
from downstream.runtimes.weights import EncoderWeights

MAX_BATCH_TOKENS = 2_048
"""Tokens that are computed together, padding included."""
LONGEST_BEFORE = 100
"""Characters before a word that is to be predicted; more change little and cost time."""


@dataclass(frozen=True)
class WordLikelihood:
    """A word and its log-probability in its place."""

    tokens: tuple[str, ...]
    log_probability: float


@dataclass(frozen=True)
class _Row:
    text: int
    word: int
    ids: list[int]
    position: int
    target: int


@dataclass(frozen=True)
class MaskedScorer:
    """A loaded masked language model. Not for several threads at a time."""

    run: Forward
    tokenizer: Any
    max_length: int

    @classmethod
    def load(cls, folder: str | Path | None = None) -> "MaskedScorer":
        """Load a plain BERT with its masked-LM head, by default the bundled encoder.

        Raises:
            CheckpointError: it is none.
        """
        folder = Path(folder) if folder else bundled("encoder")
        weights, tokenizer = EncoderWeights.from_folder(folder), PlainTokenizer.load(folder)
        graph = build_graph(weights, "masked_tokens", ["input_ids", "attention_mask"])
        return cls(open_session(graph, threads=num_threads()), tokenizer, int(tokenizer.model_max_length))

    def words(self, texts: Sequence[str]) -> list[list[WordLikelihood]]:
        """Return the words of each text with their log-probabilities; the end of a text that is too long is left out.

        Args:
            texts: of one sentence each.
        """
        return self._words(texts, of_stems=False)

    def stems(self, texts: Sequence[str]) -> list[list[WordLikelihood]]:
        """Return the words of each text with the log-probabilities of their first tokens, the others being seen.

        Args:
            texts: of one sentence each.
        """
        return self._words(texts, of_stems=True)

    def _words(self, texts: Sequence[str], *, of_stems: bool) -> list[list[WordLikelihood]]:
        encoded = [list(self.tokenizer(nfc(text))["input_ids"])[: self.max_length] for text in texts]
        tokens = [[self.tokenizer.convert_ids_to_tokens(id_) for id_ in ids] for ids in encoded]
        spans = [_word_spans(row) for row in tokens]
        masked = [[(start, start + 1) for start, _ in found] for found in spans] if of_stems else spans
        rows = [row for k, ids in enumerate(encoded) for row in self._rows(k, ids, masked[k])]
        sums = [np.zeros(len(found)) for found in spans]
        for batch in _batches(rows):
            for row, value in zip(batch, self._score(batch), strict=True):
                sums[row.text][row.word] += value
        return [
            [
                WordLikelihood(tuple(tokens[k][start:end]), float(value))
                for (start, end), value in zip(spans[k], sums[k], strict=True)
            ]
            for k in range(len(texts))
        ]

    def log_likelihoods(self, texts: Sequence[str]) -> list[float]:
        """Return the pseudo-log-likelihood of each text."""
        return [sum(word.log_probability for word in words) for words in self.words(texts)]

    def first_tokens(self, before: str, words: Sequence[str]) -> NDArray[np.float64]:
        """Return the log-probability that each word begins as it does behind a text, (n,).

        Args:
            before: the text; its beginning is left out where it is too long.
            words: candidates for what follows.
        """
        cls, *rest, sep = self.tokenizer(nfc(before[-LONGEST_BEFORE:]))["input_ids"]
        mask = int(self.tokenizer.mask_token_id)
        ids = np.array([[cls, *rest[-(self.max_length - 3) :], mask, sep]], dtype=np.int64)
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids), MASKED_POSITIONS: np.array([ids.shape[1] - 2])}
        logits = self.run(batch).astype(np.float64)[0]
        firsts = [row[1] for row in self.tokenizer(list(map(nfc, words)))["input_ids"]]
        return np.asarray(logits[firsts] - (logits.max() + np.log(np.exp(logits - logits.max()).sum())))

    def _rows(self, text: int, ids: list[int], spans: Sequence[tuple[int, int]]) -> Iterator[_Row]:
        mask = int(self.tokenizer.mask_token_id)
        for word, (start, end) in enumerate(spans):
            for position in range(start, end):
                masked = [*ids[:position], *([mask] * (end - position)), *ids[end:]]
                yield _Row(text, word, masked, position, ids[position])

    def _score(self, batch: Sequence[_Row]) -> list[float]:
        length = max(len(row.ids) for row in batch)
        ids = np.full((len(batch), length), int(self.tokenizer.pad_token_id or 0), dtype=np.int64)
        seen = np.zeros_like(ids)
        for k, row in enumerate(batch):
            ids[k, : len(row.ids)] = row.ids
            seen[k, : len(row.ids)] = 1
        positions = np.array([k * length + row.position for k, row in enumerate(batch)])
        logits = self.run({"input_ids": ids, "attention_mask": seen, MASKED_POSITIONS: positions}).astype(np.float64)
        top = logits.max(axis=1)
        norms = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        targets = logits[np.arange(len(batch)), [row.target for row in batch]]
        return [float(value) for value in targets - norms]


def _word_spans(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return the spans of words in the tokens of a text, special tokens at both ends left out."""
    spans: list[tuple[int, int]] = []
    for k in range(1, len(tokens) - 1):
        if spans and tokens[k].startswith(CONTINUATION):
            spans[-1] = (spans[-1][0], k + 1)
        else:
            spans.append((k, k + 1))
    return spans


def _batches(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    batch: list[_Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if batch and (len(batch) + 1) * len(row.ids) > MAX_BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


@functools.cache
def bundled_scorer() -> MaskedScorer:
    """Return the bundled encoder as a scorer, loaded once."""
    return MaskedScorer.load()
