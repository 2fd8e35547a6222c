"""Rows: what a model is fed. Sequences `[CLS] … [SEP]` are packed into rows, which are kept in Arrow shards.

A *sequence* is what an objective reads as one input: a stretch of a document, or a sentence pair. A *row* is one line
of a batch and holds one or more sequences. Where documents are isolated, the sequences of a row neither attend to each
other nor share positions, so that a packed row gives the results of its sequences one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pretraining.data.packing import pack, spans
from pretraining.data.shards import IntArray, Ragged, Sharded
from pretraining.data.tokens import TokenShard

SPECIAL, WORD_START, WORD_INSIDE = 0, 1, 2
"""What a token is to whole-word masking; special tokens are never masked."""


@dataclass(frozen=True)
class SpecialIds:
    """What rows need to know of a vocabulary."""

    pad: int
    cls: int
    sep: int
    mask: int
    ordinary: IntArray
    """int64: the pieces of text, without special tokens and `[unused]` slots."""
    vocab_size: int

    @property
    def dtype(self) -> type[np.uint16] | type[np.int32]:
        """The smallest type that holds every id."""
        return np.uint16 if self.vocab_size <= 1 << 16 else np.int32


Stretch = tuple[int, int]
"""Begin and end (excluded) of some tokens, as positions that a `SequenceBuilder` knows."""


class SequenceBuilder:
    """Puts sequences together from stretches of one token shard, and of others where needed."""

    def __init__(self, shard: TokenShard, specials: SpecialIds) -> None:
        """Start with the tokens of SHARD; their positions are those in `shard.ids.values`."""
        self._specials = specials
        size = len(shard.ids.values)
        self._cls, self._sep = (size, 1), (size + 1, 1)
        self._ids: list[IntArray] = [shard.ids.values, np.array([specials.cls, specials.sep])]
        self._kinds: list[IntArray] = [_kinds(shard, 0, size), np.array([SPECIAL, SPECIAL])]
        self._size = size + 2
        self._pieces: list[Stretch] = []  # position and length
        self._lengths: list[int] = []
        self._first_lengths: list[int] = []
        self._labels: list[int] = []

    def __len__(self) -> int:
        """Return the number of sequences so far."""
        return len(self._lengths)

    def bring(self, *parts: tuple[TokenShard, Stretch]) -> Stretch:
        """Make known, one behind the other, stretches of this shard or of others; return the position here of all."""
        first = self._size
        for shard, (begin, end) in parts:
            self._ids.append(shard.ids.values[begin:end])
            self._kinds.append(_kinds(shard, begin, end))
            self._size += end - begin
        return first, self._size

    def add(self, first: Sequence[Stretch], second: Stretch | None = None, *, label: int = 0) -> None:
        """Add `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`.

        Args:
            first: segment A; stretches of several documents are divided by a further `[SEP]`.
            second: segment B.
            label: of the sequence, e.g. 1 for a random next sentence.
        """
        first_length = 1
        self._pieces.append(self._cls)
        for begin, end in first:
            self._pieces += [(begin, end - begin), self._sep]
            first_length += end - begin + 1
        length = first_length
        if second is not None:
            begin, end = second
            self._pieces += [(begin, end - begin), self._sep]
            length += end - begin + 1
        self._lengths.append(length)
        self._first_lengths.append(first_length)
        self._labels.append(label)

    def rows(self, max_length: int, rng: np.random.Generator, *, several: bool) -> "RowShard":
        """Pack the sequences into rows.

        Args:
            max_length: tokens of a row; no sequence is longer.
            rng: decides which sequences meet in a row, and the order of the rows.
            several: whether a row holds as many sequences as fit, or just one.
        """
        lengths = np.asarray(self._lengths, np.int32)
        if several:
            rows = pack(lengths, max_length, rng)
        else:
            rows = Ragged(rng.permutation(len(lengths)), np.arange(len(lengths) + 1))
        chosen = lengths[rows.values]
        pieces = np.asarray(self._pieces, np.int64).reshape(-1, 2)
        source = spans(pieces[:, 0], pieces[:, 1])  # of all tokens, in the order of the sequences
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])[:-1]
        source = source[spans(starts[rows.values], chosen)]  # and now of the rows
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


class SentenceIndex:
    """Where the sentences of a shard's documents lie; one longer than a limit is cut into several.

    Nothing of a document is lost: the stretches of its sentences cover it without gaps.
    """

    def __init__(self, shard: TokenShard, longest: int) -> None:
        """Index SHARD, with no sentence longer than LONGEST tokens."""
        self._shard, self._longest = shard, longest

    def __getitem__(self, document: int) -> list[Stretch]:
        """Return the sentences of a document as positions in `shard.ids.values`."""
        shard = self._shard
        begin = int(shard.ids.offsets[document])
        stretches: list[Stretch] = []
        for relative in shard.sentence_ends[document].tolist():
            end = int(shard.ids.offsets[document]) + relative
            while end - begin > self._longest:
                cut = begin + self._longest
                # At the last eojeol border that fits; an eojeol longer than all is cut where the room ends.
                borders = np.flatnonzero(shard.eojeol_starts[begin + 1 : cut + 1])
                cut = begin + 1 + int(borders[-1]) if len(borders) else cut
                stretches.append((begin, cut))
                begin = cut
            stretches.append((begin, end))
            begin = end
        return stretches

    def stretches(self, document: int) -> Iterator[Stretch]:
        """Yield the whole of a document in stretches of as many sentences as fit into the longest."""
        begin = end = int(self._shard.ids.offsets[document])
        for sentence_begin, sentence_end in self[document]:
            if sentence_end - begin > self._longest:
                yield begin, end
                begin = sentence_begin
            end = sentence_end
        yield begin, end


@dataclass(frozen=True)
class RowShard:
    """Rows with their sequences. R rows, Q sequences, T tokens in all."""

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
    masked_at: Ragged | None = None
    """int32: positions in the row that are predicted, where masks are static; None where they are dynamic."""
    masked_ids: IntArray | None = None
    """The tokens that stood there; `ids` holds what replaced them."""

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
        if self.masked_at is not None and self.masked_ids is not None:
            columns["masked_at"] = self.masked_at
            columns["masked_ids"] = Ragged(self.masked_ids, self.masked_at.offsets)
        return columns

    @classmethod
    def from_columns(cls, columns: dict[str, Ragged]) -> "RowShard":
        """Return the shard that `columns` was made from."""
        return cls(
            ids=columns["input_ids"],
            kinds=columns["kinds"].values,
            lengths=columns["lengths"],
            first_lengths=columns["first_lengths"].values,
            labels=columns["labels"].values,
            masked_at=columns.get("masked_at"),
            masked_ids=columns["masked_ids"].values if "masked_ids" in columns else None,
        )


RowCorpus = Sharded[RowShard]
