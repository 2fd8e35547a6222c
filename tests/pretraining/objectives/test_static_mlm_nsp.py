"""BERT: sentence pairs and static masking."""

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from corpora.foundation.errors import DataError
from pretraining.data.rows import RowShard
from pretraining.data.shards import Sharded
from pretraining.objectives.static_mlm_nsp import RANDOM_NEXT, REAL_NEXT, StaticMlmNsp, StaticMlmNspConfig
from pretraining.training.batches import collate

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]
Sequences = Callable[[RowShard], list[Any]]
Fails = Callable[..., AbstractContextManager[None]]

TAIL = 1e-6
CLS, SEP, MASK = 2, 3, 4
SHORT_DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=4), max_size=5
)


def assert_likely(successes: int, trials: int, share: float) -> None:
    low, high = stats.binom.ppf([TAIL, 1 - TAIL], trials, share)
    assert low <= successes <= high


def is_running(pieces: list[int]) -> bool:
    return pieces == list(range(pieces[0], pieces[0] + len(pieces)))


# ---- pairs ----


def static(corpus: Any, max_length: int, *, isolate: bool = True, seed: int = 0, **settings: Any) -> StaticMlmNsp:
    layout = corpus.layout(max_length, isolate_documents=isolate, seed=seed)
    return StaticMlmNsp(StaticMlmNspConfig(**({"dupe_factor": 1} | settings)), layout)


def pairs_of(objective: StaticMlmNsp, corpus: Any, sequences_of: Sequences) -> list[Any]:
    shards = range(len(corpus.tokens.shards))
    return [pair for number in shards for pair in sequences_of(objective.make_rows(corpus.tokens, number))]


@pytest.fixture(scope="module")
def news(numbered: Corpus, structure: Draw) -> Any:
    """Return a corpus of many sentences in three shards of different size."""
    bounds = {"sentences": (6, 14), "eojeol": (2, 6), "pieces": (1, 3)}
    return numbered([structure(number, **bounds, seed=number) for number in (150, 100, 50)])


@pytest.fixture(scope="module")
def pairs(news: Any, sequences_of: Sequences) -> list[Any]:
    return pairs_of(static(news, 64, dupe_factor=6), news, sequences_of)


def test_half_of_the_pairs_are_random(pairs: list[Any]) -> None:
    assert len(pairs) > 4500
    assert_likely(sum(pair.label == RANDOM_NEXT for pair in pairs), len(pairs), 0.5)


def test_labels_are_true(news: Any, pairs: list[Any]) -> None:
    for pair in pairs:
        first, second = news.document_of(pair.first[0]), news.document_of(pair.second[0])
        assert is_running(pair.first)
        assert is_running(pair.second)
        assert (first, second) == (news.document_of(pair.first[-1]), news.document_of(pair.second[-1]))
        if pair.label == RANDOM_NEXT:
            assert first != second
        else:
            assert first == second
            assert pair.first[-1] < pair.second[0]
            # Only a pair that was cut to the room may have lost what lay between.
            assert len(pair.ids) == 64 or pair.first[-1] + 1 == pair.second[0]


def test_real_pairs_divide_between_sentences_or_else_eojeol(news: Any, pairs: list[Any]) -> None:
    whole = [pair for pair in pairs if pair.label == REAL_NEXT and len(pair.ids) < 64]
    assert len(whole) > 50
    for pair in whole:
        is_single = pair.second[-1] in news.sentence_of(pair.first[0])
        assert pair.second[0] in (news.eojeol_starts if is_single else news.sentence_starts)


def test_pairs_fit_their_rows_and_have_two_sides(pairs: list[Any]) -> None:
    for pair in pairs:
        assert len(pair.ids) <= 64
        assert pair.first
        assert pair.second
        assert [pair.ids[0], pair.ids[pair.first_length - 1], pair.ids[-1]] == [CLS, SEP, SEP]
        assert min(*pair.first, *pair.second) >= 10


def test_pairs_are_cut_at_either_end(news: Any, pairs: list[Any]) -> None:
    full = [pair for pair in pairs if len(pair.ids) == 64]
    ends = Counter(
        (side, position, piece in news.sentence_starts)
        for pair in full
        for side, own in (("A", pair.first), ("B", pair.second))
        for position, piece in (("front", own[0]), ("back", own[-1] + 1))
    )
    for side in "AB":
        for position in ("front", "back"):
            assert ends[side, position, False] > 0.1 * len(full)


def test_the_longer_side_is_cut_and_of_two_equal_ones_the_second(
    numbered: Corpus, structure: Draw, sequences_of: Sequences
) -> None:
    # Ten sentences of ten tokens, and room for 99.
    corpus = numbered([structure(40, sentences=(30, 30), eojeol=(10, 10), pieces=(1, 1))])
    pairs = pairs_of(static(corpus, 102, short_sequence_probability=0), corpus, sequences_of)
    sides = {(len(pair.first), len(pair.second)) for pair in pairs if pair.label == REAL_NEXT and len(pair.ids) == 102}
    assert sides == {(10, 89), (20, 79), (30, 69), (40, 59), (50, 49), (59, 40), (69, 30), (79, 20), (89, 10)}


def test_shards_of_the_same_shape_are_paired_differently(
    numbered: Corpus, structure: Draw, sequences_of: Sequences
) -> None:
    shape = structure(20, sentences=(20, 20), eojeol=(5, 5), pieces=(1, 1))
    corpus = numbered([shape, shape])
    objective = static(corpus, 64)
    shapes = [
        sorted((pair.first_length, len(pair.ids), pair.label) for pair in sequences_of(rows))
        for rows in (objective.make_rows(corpus.tokens, number) for number in range(2))
    ]
    assert shapes[0] != shapes[1]


def test_random_texts_come_from_every_other_document_equally_often(news: Any, pairs: list[Any]) -> None:
    borders = news.tokens.starts.tolist()
    random = [pair for pair in pairs if pair.label == RANDOM_NEXT]
    own = np.array([news.document_of(pair.first[0]) for pair in random])
    other = np.array([news.document_of(pair.second[0]) for pair in random])
    for shard, (begin, end) in enumerate(pairwise(borders)):
        inside = (own >= begin) & (own < end)
        size = end - begin
        assert_likely(int(((other >= begin) & (other < end) & inside).sum()), int(inside.sum()), (size - 1) / 299)
        for another, (from_, to) in enumerate(pairwise(borders)):
            if another != shard:
                hits = int(((other >= from_) & (other < to) & inside).sum())
                assert_likely(hits, int(inside.sum()), (to - from_) / 299)


def test_random_texts_begin_with_a_sentence_anywhere_in_their_document(news: Any, pairs: list[Any]) -> None:
    begins = [pair.second[0] for pair in pairs if pair.label == RANDOM_NEXT and len(pair.ids) < 64]
    assert all(begin in news.sentence_starts for begin in begins)
    at_front = sum(begin in news.document_starts for begin in begins)
    assert 0 < at_front < 0.3 * len(begins)


def test_two_documents_are_enough(numbered: Corpus, sequences_of: Sequences, subtests: pytest.Subtests) -> None:
    for shards in [[2], [1, 1], [1, 0, 1]]:
        with subtests.test(shards=shards):
            document = [[2, 1], [3], [1, 1, 1]]
            corpus = numbered([[document] * number for number in shards])
            pairs = pairs_of(static(corpus, 16, dupe_factor=20), corpus, sequences_of)
            assert {pair.label for pair in pairs} == {REAL_NEXT, RANDOM_NEXT}
            for pair in pairs:
                documents = corpus.document_of(pair.first[0]), corpus.document_of(pair.second[0])
                assert (documents[0] != documents[1]) == pair.label


def test_one_document_is_an_error(numbered: Corpus, fails: Fails, subtests: pytest.Subtests) -> None:
    for shards in [[[[[2, 1], [3]]]], [[[[2, 1], [3]]], []]]:
        with subtests.test(shards=shards):
            corpus = numbered(shards)
            with fails(DataError, "corpus", "one document"):
                static(corpus, 16).make_rows(corpus.tokens, 0)


def test_a_chunk_of_one_sentence_is_split_between_two_eojeol(
    numbered: Corpus, structure: Draw, sequences_of: Sequences
) -> None:
    corpus = numbered([structure(800, sentences=(1, 1), eojeol=(3, 6), pieces=(1, 3))])
    pairs = pairs_of(static(corpus, 64), corpus, sequences_of)
    assert len(pairs) == 800
    assert_likely(sum(pair.label == RANDOM_NEXT for pair in pairs), len(pairs), 0.5)
    for pair in pairs:
        assert pair.first[0] in corpus.sentence_starts
        assert pair.first[-1] + 1 in corpus.eojeol_starts
        if pair.label == REAL_NEXT:
            assert pair.first + pair.second == list(corpus.sentence_of(pair.first[0]))


def test_a_single_eojeol_makes_no_pair(numbered: Corpus, sequences_of: Sequences) -> None:
    corpus = numbered([[[[4]], [[2]], [[3]]]])
    assert pairs_of(static(corpus, 64, dupe_factor=5), corpus, sequences_of) == []


def test_single_sentences_can_always_be_random_pairs(
    numbered: Corpus, structure: Draw, sequences_of: Sequences
) -> None:
    single = numbered([structure(300, sentences=(1, 1), eojeol=(3, 6))])
    assert {pair.label for pair in pairs_of(static(single, 64, single_sentence="random"), single, sequences_of)} == {1}
    mixed = numbered([structure(1500, sentences=(1, 3), eojeol=(3, 6))])
    for way, is_tipped in (("random", True), ("split", False)):
        labels = [pair.label for pair in pairs_of(static(mixed, 64, single_sentence=way), mixed, sequences_of)]
        assert bool(sum(labels) > stats.binom.ppf(1 - TAIL, len(labels), 0.5)) is is_tipped


def test_short_sequences_have_the_configured_probability(
    numbered: Corpus, structure: Draw, sequences_of: Sequences, subtests: pytest.Subtests
) -> None:
    for probability in [0.0, 0.1, 1.0]:
        with subtests.test(probability=probability):
            # Sentences of one token: a real pair that does not end its document has exactly the target's length.
            corpus = numbered([structure(500, sentences=(60, 60), eojeol=(1, 1), pieces=(1, 1))])
            objective = static(corpus, 13, short_sequence_probability=probability)
            targets: dict[int, set[int]] = {}
            for pair in pairs_of(objective, corpus, sequences_of):
                if pair.label == REAL_NEXT and pair.second[-1] + 1 not in corpus.document_starts:
                    targets.setdefault(corpus.document_of(pair.first[0]), set()).add(len(pair.first) + len(pair.second))
            assert all(len(lengths) == 1 for lengths in targets.values())
            assert len(targets) > 450
            counts = Counter(length for lengths in targets.values() for length in lengths)
            assert_likely(
                len(targets) - counts[10], len(targets), probability * 8 / 9
            )  # 2 … 10, and 10 is the whole room
            if probability:
                assert set(counts) == set(range(2, 11))
            if probability == 1:
                assert stats.chisquare(list(counts.values())).pvalue > TAIL


def test_each_pass_over_the_corpus_makes_other_pairs(news: Any, sequences_of: Sequences) -> None:
    def contents(dupe_factor: int) -> Counter[tuple[int, ...]]:
        pairs = pairs_of(static(news, 64, dupe_factor=dupe_factor), news, sequences_of)
        return Counter(tuple(pair.ids) for pair in pairs)

    one, three = contents(1), contents(3)
    assert one <= three
    assert 2.8 < three.total() / one.total() < 3.2
    assert len(three) > 0.9 * three.total()


def test_pairs_share_rows_only_where_they_do_not_see_each_other(
    news: Any, sequences_of: Sequences, subtests: pytest.Subtests
) -> None:
    for isolate in [True, False]:
        with subtests.test(isolate=isolate):
            rows = static(news, 64, isolate=isolate).make_rows(news.tokens, 0)
            pairs = sequences_of(rows)
            contents = sorted(pair.ids for pair in pairs)
            assert (len(rows) < len(pairs)) is isolate
            other = sequences_of(static(news, 64, isolate=not isolate).make_rows(news.tokens, 0))
            assert sorted(pair.ids for pair in other) == contents


def test_the_seed_decides_about_pairs_and_masks(news: Any) -> None:
    first, same, other = (static(news, 64, seed=seed).make_rows(news.tokens, 1) for seed in (1, 1, 2))
    for name, column in first.columns().items():
        assert (same.columns()[name].values == column.values).all()
    assert first.ids.values.tolist() != other.ids.values.tolist()


@settings(max_examples=60)
@given(
    structures=st.tuples(SHORT_DOCUMENTS, SHORT_DOCUMENTS),
    max_length=st.integers(8, 24),
    way=st.sampled_from(["split", "random"]),
    whole_word=st.booleans(),
)
def test_whatever_the_corpus_pairs_are_sound(
    numbered: Corpus, sequences_of: Sequences, structures: tuple[Any, Any], max_length: int, way: str, whole_word: bool
) -> None:
    corpus = numbered([*structures, [[[2, 2], [1]], [[3], [1, 1]]]])
    objective = static(corpus, max_length, single_sentence=way, whole_word=whole_word)
    for pair in pairs_of(objective, corpus, sequences_of):
        assert len(pair.ids) <= max_length
        assert is_running(pair.first)
        assert is_running(pair.second)
        documents = corpus.document_of(pair.first[0]), corpus.document_of(pair.second[0])
        assert (documents[0] != documents[1]) == pair.label
        assert not {0, pair.first_length - 1, len(pair.ids) - 1} & set(pair.masked_positions)


# ---- masks ----


def test_a_pair_has_exactly_as_many_predictions_as_the_paper_counts(
    news: Any, sequences_of: Sequences, subtests: pytest.Subtests
) -> None:
    for changes, isolate in itertools.product(
        [{}, {"max_predictions": 5}, {"mask_rate": 0.4}, {"mask_rate": 0.02}], [True, False]
    ):
        with subtests.test(changes=changes, isolate=isolate):
            objective = static(news, 64, isolate=isolate, short_sequence_probability=0.5, **changes)
            rate = changes.get("mask_rate", 0.15)
            cap = changes.get("max_predictions", {0.15: 10, 0.4: 26, 0.02: 2}[rate])  # 9.6, 25.6 and 1.28, rounded up
            pairs = pairs_of(objective, news, sequences_of)
            assert {len(pair.ids) for pair in pairs} >= {30, 50, 64}  # 4.5 and 7.5 predictions: 4 and 8
            for pair in pairs:
                assert len(pair.masked_positions) == min(cap, max(1, round(rate * len(pair.ids))))


def test_predicted_tokens_of_pairs_become_masks_random_tokens_or_stay(news: Any, sequences_of: Sequences) -> None:
    pairs = pairs_of(static(news, 64, dupe_factor=3, mask_rate=0.3), news, sequences_of)
    chosen = [(pair.ids[position], pair.fed[position]) for pair in pairs for position in pair.masked_positions]
    num_pieces = len(news.specials.ordinary)
    assert len(chosen) > 30_000
    assert_likely(sum(fed == MASK for _, fed in chosen), len(chosen), 0.8)
    assert_likely(sum(fed == piece for piece, fed in chosen), len(chosen), 0.1 + 0.1 / num_pieces)
    assert min(piece for piece, _ in chosen) >= 10
    assert all(fed == MASK or fed >= 10 for _, fed in chosen)


def test_pairs_are_masked_at_different_positions(news: Any, sequences_of: Sequences) -> None:
    pairs = [pair for pair in pairs_of(static(news, 64), news, sequences_of) if len(pair.ids) == 64]
    assert len({tuple(pair.masked_positions) for pair in pairs}) == len(pairs)
    positions = Counter(position for pair in pairs for position in pair.masked_positions)
    # Positions that may hold the middle [SEP] are predicted a little less often.
    assert set(positions) == set(range(1, 63))
    assert max(positions.values()) < 3 * min(positions.values())


def test_whole_words_of_pairs_are_predicted_whole(news: Any, sequences_of: Sequences) -> None:
    for pair in pairs_of(static(news, 64, whole_word=True), news, sequences_of)[:400]:
        assert len(pair.masked_positions) <= min(10, max(1, round(0.15 * len(pair.ids))))
        chosen = {pair.ids[position] for position in pair.masked_positions}
        for piece in chosen:
            here = set(pair.first) if piece in pair.first else set(pair.second)
            assert set(news.eojeol_of(piece)) & here <= chosen


def test_masks_of_pairs_are_the_same_in_every_epoch(news: Any) -> None:
    objective = static(news, 64)
    rows = objective.make_rows(news.tokens, 0)
    batch = collate(Sharded.from_lengths([rows], [len(rows)]), np.array([0, 5]), np.zeros(2, np.int64), pad_id=0)
    assert batch.masked_positions is not None
    assert len(batch.masked_positions) > 4
    for epoch in (0, 7):
        masked = objective.mask(replace(batch, epochs=np.full(2, epoch)))
        assert masked.input_ids.tolist() == batch.input_ids.tolist()
        for name in ("masked_positions", "masked_ids"):
            assert getattr(masked, name).tolist() == getattr(batch, name).tolist(), name
