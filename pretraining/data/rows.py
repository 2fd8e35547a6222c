"""Rows, the inputs of a model: sequences `[CLS] … [SEP]` packed into rows, stored in Arrow shards.

A *sequence* is one input of an objective: a segment of a document, or a sentence pair. A *row* is one line of a batch
and holds one or more sequences. With isolated documents, the sequences of a row neither attend to each other nor share
positions, so that a packed row gives the same results as its sequences alone.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pretraining.data.packing import expand_spans, pack
from pretraining.data.shards import IntArray, Ragged, Sharded
from pretraining.data.tokens import TokenShard

SPECIAL, WORD_START, WORD_INSIDE, SENTENCE_START = 0, 1, 2, 3
"""Kinds of tokens in whole-word masking; special tokens are never masked. Only objectives that ask for it get the last
one, a `WORD_START` that begins a sentence."""
MASKED_COLUMN = "masked_at"
"""Column of the masked positions in row shards of format 1."""


@dataclass(frozen=True)
class SpecialIds:
    """The token ids of a vocabulary that rows need."""

    pad: int
    cls: int
    sep: int
    mask: int
    ordinary: IntArray
    """int64: all ids but special tokens and `[unused]` slots."""
    vocab_size: int
    unused: tuple[int, ...] = ()
    """Slots `[unused0]`, `[unused1]`, …, by their ids."""
    num_characters: IntArray | None = None
    """int64 (V,): characters of each token, 0 of special ones."""

    @property
    def dtype(self) -> type[np.uint16] | type[np.int32]:
        """The smallest type that holds every id."""
        return np.uint16 if self.vocab_size <= 1 << 16 else np.int32


TokenSpan = tuple[int, int]
"""Start and end (excluded) of a span of tokens, as positions in a token shard or a `SequenceBuilder`."""


class SequenceBuilder:
    """Builds sequences from token spans of one shard, and of others where needed."""

    def __init__(self, shard: TokenShard, specials: SpecialIds, *, with_sentences: bool = False) -> None:
        """Start with the tokens of SHARD; their positions are those in `shard.ids.values`.

        Args:
            shard: of the corpus.
            specials: of the vocabulary.
            with_sentences: whether the starts of the shard's sentences are of the kind `SENTENCE_START`.
        """
        self._specials = specials
        size = len(shard.ids.values)
        self._cls, self._sep = (size, 1), (size + 1, 1)
        self._ids: list[IntArray] = [shard.ids.values, np.array([specials.cls, specials.sep])]
        self._kinds: list[IntArray] = [_kinds(shard, 0, size), np.array([SPECIAL, SPECIAL])]
        if with_sentences:
            self._kinds[0][_sentence_starts(shard)] = SENTENCE_START
        self._size = size + 2
        self._parts: list[TokenSpan] = []  # position and length
        self._lengths: list[int] = []
        self._first_lengths: list[int] = []
        self._labels: list[int] = []

    def __len__(self) -> int:
        """Return the number of sequences so far."""
        return len(self._lengths)

    def append_tokens(self, *parts: tuple[TokenShard, TokenSpan]) -> TokenSpan:
        """Append token spans of any shards to the builder's tokens; return the span that covers all of them."""
        first = self._size
        for shard, (begin, end) in parts:
            self._ids.append(shard.ids.values[begin:end])
            self._kinds.append(_kinds(shard, begin, end))
            self._size += end - begin
        return first, self._size

    def add(self, first: Sequence[TokenSpan], second: TokenSpan | None = None, *, label: int = 0) -> None:
        """Add `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`.

        Args:
            first: segment A; spans of several documents are separated by an additional `[SEP]`.
            second: segment B.
            label: of the sequence, e.g. 1 for a random next sentence.
        """
        first_length = 1
        self._parts.append(self._cls)
        for begin, end in first:
            self._parts += [(begin, end - begin), self._sep]
            first_length += end - begin + 1
        length = first_length
        if second is not None:
            begin, end = second
            self._parts += [(begin, end - begin), self._sep]
            length += end - begin + 1
        self._lengths.append(length)
        self._first_lengths.append(first_length)
        self._labels.append(label)

    def rows(self, max_length: int, rng: np.random.Generator, *, several: bool) -> "RowShard":
        """Pack the sequences into rows.

        Args:
            max_length: tokens of a row; no sequence is longer.
            rng: shuffles sequences and rows.
            several: whether a row holds as many sequences as fit, or one.
        """
        lengths = np.asarray(self._lengths, np.int32)
        if several:
            rows = pack(lengths, max_length, rng)
        else:
            rows = Ragged(rng.permutation(len(lengths)), np.arange(len(lengths) + 1))
        chosen = lengths[rows.values]
        parts = np.asarray(self._parts, np.int64).reshape(-1, 2)
        source = expand_spans(parts[:, 0], parts[:, 1])  # of all tokens, in the order of the sequences
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]
        source = source[expand_spans(starts[rows.values], chosen)]  # in the order of the rows
        row_ends = np.concatenate([[0], np.cumsum(chosen, dtype=np.int64)])[rows.offsets]
        return RowShard(
            ids=Ragged(np.concatenate(self._ids).astype(self._specials.dtype)[source], row_ends),
            kinds=np.concatenate(self._kinds).astype(np.uint8)[source],
            lengths=Ragged(chosen, rows.offsets),
            first_lengths=np.asarray(self._first_lengths, np.int32)[rows.values],
            labels=np.asarray(self._labels, np.int32)[rows.values],
        )


def _kinds(shard: TokenShard, begin: int, end: int) -> IntArray:
    kinds: IntArray = WORD_INSIDE - shard.eojeol_starts[begin:end]
    return kinds


def eojeol_spans(shard: TokenShard, span: TokenSpan) -> list[TokenSpan]:
    """Return the spans of the eojeol in a span of a shard; the first and the last one may be parts of eojeol."""
    begin, end = span
    boundaries = [begin, *(begin + 1 + np.flatnonzero(shard.eojeol_starts[begin + 1 : end])).tolist(), end]
    return list(itertools.pairwise(boundaries))


def _sentence_starts(shard: TokenShard) -> IntArray:
    """Return the positions in a shard at which its sentences start; each ends where the next one starts."""
    begins = np.repeat(shard.ids.offsets[:-1], shard.sentence_ends.lengths)
    ends = begins + shard.sentence_ends.values
    starts = np.concatenate([[0], ends[:-1]])
    return starts[starts < len(shard.ids.values)]


class SentenceIndex:
    """Token spans of the sentences of a shard; a sentence longer than a limit is split.

    The spans of a document's sentences cover it without gaps.
    """

    def __init__(self, shard: TokenShard, longest: int) -> None:
        """Index SHARD; sentences are split at LONGEST tokens."""
        self._shard, self._longest = shard, longest

    def __getitem__(self, document: int) -> list[TokenSpan]:
        """Return the sentences of a document as spans of `shard.ids.values`."""
        shard = self._shard
        begin = int(shard.ids.offsets[document])
        spans: list[TokenSpan] = []
        for relative in shard.sentence_ends[document].tolist():
            end = int(shard.ids.offsets[document]) + relative
            while end - begin > self._longest:
                cut = begin + self._longest
                # Split at the last eojeol boundary that fits; an eojeol longer than the limit is split at the limit.
                boundaries = np.flatnonzero(shard.eojeol_starts[begin + 1 : cut + 1])
                cut = begin + 1 + int(boundaries[-1]) if len(boundaries) else cut
                spans.append((begin, cut))
                begin = cut
            spans.append((begin, end))
            begin = end
        return spans

    def segments(self, document: int) -> Iterator[TokenSpan]:
        """Yield consecutive spans that cover a document, each of as many whole sentences as fit the limit."""
        begin = end = int(self._shard.ids.offsets[document])
        for sentence_begin, sentence_end in self[document]:
            if sentence_end - begin > self._longest:
                yield begin, end
                begin = sentence_begin
            end = sentence_end
        yield begin, end


@dataclass(frozen=True)
class RowShard:
    """Rows with their sequences. Q sequences, T tokens in total."""

    ids: Ragged
    """Token ids of each row, special ones included."""
    kinds: IntArray
    """uint8 (T,): `SPECIAL`, `WORD_START` or `WORD_INSIDE`."""
    lengths: Ragged
    """int32: tokens of each sequence of a row."""
    first_lengths: IntArray
    """int32 (Q,): tokens of segment A with `[CLS]` and its `[SEP]`."""
    labels: IntArray
    """int32 (Q,): label of each sequence."""
    masked_positions: Ragged | None = None
    """int32: positions in the row to predict, for static masking; None for dynamic masking."""
    masked_ids: IntArray | None = None
    """The original tokens; `ids` holds the corrupted ones."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.ids)

    def columns(self) -> dict[str, Ragged]:
        """Return the shard as Arrow columns."""
        columns = {
            "input_ids": self.ids,
            "kinds": Ragged(self.kinds, self.ids.offsets),
            "lengths": self.lengths,
            "first_lengths": Ragged(self.first_lengths, self.lengths.offsets),
            "labels": Ragged(self.labels, self.lengths.offsets),
        }
        if self.masked_positions is not None and self.masked_ids is not None:
            columns[MASKED_COLUMN] = self.masked_positions
            columns["masked_ids"] = Ragged(self.masked_ids, self.masked_positions.offsets)
        return columns

    @classmethod
    def from_columns(cls, columns: dict[str, Ragged]) -> "RowShard":
        """Return the shard of Arrow columns."""
        return cls(
            ids=columns["input_ids"],
            kinds=columns["kinds"].values,
            lengths=columns["lengths"],
            first_lengths=columns["first_lengths"].values,
            labels=columns["labels"].values,
            masked_positions=columns.get(MASKED_COLUMN),
            masked_ids=columns["masked_ids"].values if "masked_ids" in columns else None,
        )


RowCorpus = Sharded[RowShard]
