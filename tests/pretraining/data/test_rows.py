"""Rows: sequences are built from spans, packed or one per row, and long sentences are split at eojeol."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretraining.data.rows import SPECIAL, WORD_INSIDE, WORD_START, RowShard, SentenceIndex, SequenceBuilder, SpecialIds

CLS, SEP = 2, 3
STRUCTURES = st.lists(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4), min_size=1, max_size=4
)

Corpus = Callable[[list[Any]], Any]
Sequences = Callable[[RowShard], list[Any]]


def build_rows(builder: SequenceBuilder, max_length: int, *, several: bool, seed: int = 0) -> RowShard:
    return builder.rows(max_length, np.random.default_rng(seed), several=several)


def test_a_sequence_is_a_segment_between_special_tokens(numbered: Corpus) -> None:
    corpus = numbered([[[[2, 1], [3]]]])
    builder = SequenceBuilder(corpus.tokens.shards[0], corpus.specials)
    builder.add([(1, 5)])
    rows = build_rows(builder, 8, several=False)
    assert rows.ids[0].tolist() == [CLS, 11, 12, 13, 14, SEP]
    assert rows.kinds.tolist() == [SPECIAL, WORD_INSIDE, WORD_START, WORD_START, WORD_INSIDE, SPECIAL]
    assert rows.lengths[0].tolist() == [6]
    assert rows.first_lengths.tolist() == [6]


def test_a_pair_has_two_segments_and_a_label(numbered: Corpus) -> None:
    corpus = numbered([[[[2, 1], [3]]]])
    builder = SequenceBuilder(corpus.tokens.shards[0], corpus.specials)
    builder.add([(0, 2)], (3, 6), label=1)
    rows = build_rows(builder, 8, several=False)
    assert rows.ids[0].tolist() == [CLS, 10, 11, SEP, 13, 14, 15, SEP]
    assert (rows.first_lengths.tolist(), rows.lengths.values.tolist(), rows.labels.tolist()) == ([4], [8], [1])


def test_stretches_of_several_documents_are_divided_by_a_further_sep(numbered: Corpus) -> None:
    corpus = numbered([[[[2]], [[1]], [[1, 1]]]])
    builder = SequenceBuilder(corpus.tokens.shards[0], corpus.specials)
    builder.add([(0, 2), (2, 3), (3, 5)])
    rows = build_rows(builder, 16, several=False)
    assert rows.ids[0].tolist() == [CLS, 10, 11, SEP, 12, SEP, 13, 14, SEP]
    assert rows.first_lengths.tolist() == rows.lengths.values.tolist() == [9]


def test_a_span_of_another_shard_keeps_its_tokens_and_eojeol(numbered: Corpus) -> None:
    corpus = numbered([[[[2]]], [[[1, 3, 1]]]])
    builder = SequenceBuilder(corpus.tokens.shards[0], corpus.specials)
    builder.add([(0, 2)], builder.append_tokens((corpus.tokens.shards[1], (1, 4))))
    builder.add([(0, 1)], builder.append_tokens((corpus.tokens.shards[1], (4, 5))))
    rows = build_rows(builder, 9, several=False)
    contents = {tuple(rows.ids[row].tolist()) for row in range(2)}
    assert contents == {(CLS, 10, 11, SEP, 13, 14, 15, SEP), (CLS, 10, SEP, 16, SEP)}
    longer = int(rows.ids.lengths.argmax())
    kinds = rows.columns()["kinds"][longer].tolist()
    assert kinds == [
        SPECIAL, WORD_START, WORD_INSIDE, SPECIAL, WORD_START, WORD_INSIDE, WORD_INSIDE, SPECIAL,
    ]  # fmt: skip


def test_every_sequence_is_in_one_row_with_what_belongs_to_it(
    numbered: Corpus, sequences_of: Sequences, subtests: pytest.Subtests
) -> None:
    for several in [False, True]:
        with subtests.test(several=several):
            corpus = numbered([[[[1] * 40]]])
            builder = SequenceBuilder(corpus.tokens.shards[0], corpus.specials)
            expected = set()
            for number in range(30):
                length = number % 7 + 1
                builder.add([(number, number + length)], (0, 2), label=number % 2)
                expected.add((number + 10, length, number % 2))
            assert len(builder) == 30
            rows = build_rows(builder, 20, several=several)
            sequences = sequences_of(rows)
            assert {(s.first[0], len(s.first), s.label) for s in sequences} == expected
            assert all(s.second == [10, 11] and s.first == list(range(s.first[0], s.first[-1] + 1)) for s in sequences)
            assert rows.ids.lengths.max() <= 20
            assert len(sequences) == 30
            assert (len(rows) < 30) is several


def test_the_generator_decides_the_order_of_rows(numbered: Corpus) -> None:
    corpus = numbered([[[[1] * 40]]])
    builder = SequenceBuilder(corpus.tokens.shards[0], corpus.specials)
    for number in range(40):
        builder.add([(number, number + 1)])
    first, same, other = (build_rows(builder, 8, several=False, seed=seed).ids.values.tolist() for seed in (1, 1, 2))
    assert first == same != other
    assert sorted(first) == sorted(other)
    assert first[1::3] != sorted(first[1::3])


def test_no_sequences_make_no_rows(numbered: Corpus, subtests: pytest.Subtests) -> None:
    for several in [False, True]:
        with subtests.test(several=several):
            corpus = numbered([[]])
            rows = build_rows(SequenceBuilder(corpus.tokens.shards[0], corpus.specials), 8, several=several)
            assert len(rows) == len(rows.ids.values) == len(rows.labels) == 0


def test_ids_take_two_bytes_where_the_vocabulary_allows(numbered: Corpus, subtests: pytest.Subtests) -> None:
    for vocab_size, dtype in [(65_536, np.uint16), (65_537, np.int32)]:
        with subtests.test(vocab_size=vocab_size):
            specials = SpecialIds(
                pad=0, cls=2, sep=vocab_size - 1, mask=4, ordinary=np.arange(5, 9), vocab_size=vocab_size
            )
            builder = SequenceBuilder(numbered([[[[2]]]]).tokens.shards[0], specials)
            builder.add([(0, 2)])
            rows = build_rows(builder, 8, several=True)
            assert rows.ids.values.dtype == dtype
            assert rows.ids.values.tolist() == [2, 10, 11, vocab_size - 1]


def test_columns_give_the_rows_back(numbered: Corpus, subtests: pytest.Subtests) -> None:
    for masked in [False, True]:
        with subtests.test(masked=masked):
            corpus = numbered([[[[2, 1], [3]]]])
            builder = SequenceBuilder(corpus.tokens.shards[0], corpus.specials)
            builder.add([(0, 2)], (3, 6), label=1)
            builder.add([(0, 1)])
            rows = build_rows(builder, 11, several=True)
            if masked:
                at = type(rows.ids)(np.array([1, 4], np.int32), np.array([0, 2]))
                rows = RowShard(**vars(rows) | {"masked_positions": at, "masked_ids": np.array([7, 8], np.int32)})
            again = RowShard.from_columns(rows.columns())
            assert (again.masked_positions is not None) is masked
            for name, column in rows.columns().items():
                assert again.columns()[name].values.tolist() == column.values.tolist()
                assert again.columns()[name].offsets.tolist() == column.offsets.tolist()
            assert len(rows.columns()) == len(again.columns()) == (7 if masked else 5)


# ---- sentences ----


def test_a_long_sentence_is_split_at_the_last_eojeol_boundary_that_fits(numbered: Corpus) -> None:
    corpus = numbered([[[[9]], [[2, 2, 3, 1], [2]]]])
    assert SentenceIndex(corpus.tokens.shards[0], longest=6)[1] == [(9, 13), (13, 17), (17, 19)]
    assert SentenceIndex(corpus.tokens.shards[0], longest=7)[1] == [(9, 16), (16, 17), (17, 19)]
    assert SentenceIndex(corpus.tokens.shards[0], longest=8)[1] == [(9, 17), (17, 19)]


def test_an_eojeol_longer_than_a_row_is_cut_where_the_room_ends(numbered: Corpus) -> None:
    corpus = numbered([[[[1, 9, 1]]]])
    assert SentenceIndex(corpus.tokens.shards[0], longest=4)[0] == [(0, 1), (1, 5), (5, 9), (9, 11)]


@given(structure=STRUCTURES, longest=st.integers(1, 20))
def test_the_stretches_of_a_document_cover_it_and_none_is_too_long(
    numbered: Corpus, structure: list[Any], longest: int
) -> None:
    corpus = numbered([structure])
    shard = corpus.tokens.shards[0]
    index = SentenceIndex(shard, longest)
    stretches = [stretch for document in range(len(shard)) for stretch in index[document]]
    borders = [0, *(end for _, end in stretches)]
    assert [begin for begin, _ in stretches] == borders[:-1]
    assert borders[-1] == len(shard.ids.values)
    assert all(0 < end - begin <= longest for begin, end in stretches)
    pieces = {border + 10 for border in borders}
    assert set(corpus.sentence_starts.tolist()) <= pieces
    for piece in pieces - set(corpus.sentence_starts.tolist()):
        assert len(corpus.sentence_of(piece)) > longest
        assert piece in corpus.eojeol_starts or len(corpus.eojeol_of(piece)) > longest
