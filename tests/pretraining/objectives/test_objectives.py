"""The objectives: which sequences they make of a corpus, and what of them is to be predicted."""

import inspect
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from corpora.foundation.errors import DataError, RecipeError
from pretraining.data.rows import SPECIAL, WORD_INSIDE, WORD_START, RowShard
from pretraining.objective import ObjectiveConfig, RowBatch, all_objectives, get_objective, token_share
from pretraining.objectives.dynamic_mlm import DynamicMlm
from pretraining.objectives.static_mlm_nsp import RANDOM_NEXT, REAL_NEXT, StaticMlmNsp, StaticMlmNspConfig

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


# ---- the registry ----


def test_an_objective_is_found_by_its_name_and_names_its_paper(subtests: pytest.Subtests) -> None:
    for name in sorted(all_objectives()):
        with subtests.test(name=name):
            objective = get_objective(name, "recipe")
            assert objective.name == name
            assert objective.paper
            assert issubclass(objective.settings, ObjectiveConfig)
            assert objective.settings() == objective.settings()
            assert inspect.getdoc(inspect.getmodule(objective))
            assert name in all_objectives()


def test_an_unknown_objective_names_the_nearest(fails: Fails) -> None:
    with fails(RecipeError, "recipe", "'dynamic_mln'", "'dynamic_mlm'"):
        get_objective("dynamic_mln", "recipe")


def test_predictions_are_rounded_so_that_the_share_is_kept() -> None:
    num_tokens = np.array([10, 10, 10, 100, 0])
    draws = np.array([0.0, 0.49, 0.51, 0.999, 0.999])
    assert token_share(0.15, num_tokens, draws).tolist() == [1, 1, 2, 15, 0]


# ---- dynamic_mlm: full sentences ----


def dynamic(corpus: Any, max_length: int, *, isolate: bool = True, **settings: Any) -> DynamicMlm:
    seed = settings.pop("seed", 0)
    layout = corpus.layout(max_length, isolate_documents=isolate, seed=seed)
    return DynamicMlm(ObjectiveConfig(**settings), layout)


@given(structures=st.tuples(SHORT_DOCUMENTS, SHORT_DOCUMENTS), max_length=st.integers(8, 20))
def test_isolated_rows_hold_every_token_once_and_break_where_they_may(
    numbered: Corpus, sequences_of: Sequences, structures: tuple[Any, Any], max_length: int
) -> None:
    corpus, room = numbered(list(structures)), max_length - 2
    objective = dynamic(corpus, max_length)
    shards = [objective.make_rows(corpus.tokens, number) for number in range(2)]
    sequences = sorted(sequence for shard in shards for sequence in sequences_of(shard))
    assert all(shard.ids.lengths.max(initial=0) <= max_length for shard in shards)
    assert all(s.ids[0] == CLS and s.ids[-1] == SEP and s.first_length == len(s.ids) for s in sequences)
    bodies = [sequence.first for sequence in sequences]
    assert [piece for body in bodies for piece in body] == list(range(10, int(corpus.document_starts[-1])))
    assert all(corpus.document_of(body[0]) == corpus.document_of(body[-1]) for body in bodies)
    for before, body in pairwise(bodies):
        assert_broken_well(corpus, before, body[0], room)


def assert_broken_well(corpus: Any, before: list[int], begin: int, room: int) -> None:
    """A segment ends with a document, with the last sentence that fits, or inside a sentence that is too long."""
    if begin in corpus.document_starts:
        return
    sentence = corpus.sentence_of(begin)
    if begin == sentence[0]:
        assert len(before) + len(sentence) > room
    else:
        assert len(sentence) > room
        assert begin in corpus.eojeol_starts or len(corpus.eojeol_of(begin)) > room


def test_a_long_document_is_cut_behind_sentences_and_a_long_sentence_between_eojeol(
    numbered: Corpus, sequences_of: Sequences
) -> None:
    corpus = numbered([[[[3], [3], [2], [4, 4, 4], [1]]]])
    sequences = sequences_of(dynamic(corpus, 10).make_rows(corpus.tokens, 0))
    assert sorted(s.first for s in sequences) == [
        list(range(10, 18)),
        list(range(18, 26)),
        list(range(26, 31)),
    ]


@given(structure=SHORT_DOCUMENTS, max_length=st.integers(8, 20))
def test_rows_across_documents_are_full_sentences_with_one_sep_at_each_boundary(
    numbered: Corpus, sequences_of: Sequences, structure: Any, max_length: int
) -> None:
    corpus = numbered([structure])
    rows = dynamic(corpus, max_length, isolate=False).make_rows(corpus.tokens, 0)
    sequences = sorted(sequences_of(rows))
    assert len(sequences) == len(rows)  # each row is one sequence
    assert all(s.ids[0] == CLS and s.ids[-1] == SEP and s.first_length == len(s.ids) <= max_length for s in sequences)
    pieces = [[piece for piece in s.ids if piece >= 10] for s in sequences]
    assert [piece for row in pieces for piece in row] == list(range(10, int(corpus.document_starts[-1])))
    for sequence, own in zip(sequences, pieces, strict=True):
        expected = [CLS]
        for piece in own:
            is_border = piece != own[0] and piece in corpus.document_starts
            expected += [SEP, piece] if is_border else [piece]
        assert sequence.ids == [*expected, SEP]
    for sequence, following in pairwise(sequences):
        begin = following.ids[1]
        sentence, is_border = corpus.sentence_of(begin), begin in corpus.document_starts
        assert begin == sentence[0] or len(sentence) > max_length - 2
        if begin == sentence[0] and len(sentence) <= max_length - 2:
            assert len(sequence.ids) + is_border + len(sentence) > max_length


def test_rows_run_across_documents(numbered: Corpus) -> None:
    corpus = numbered([[[[2]], [[3]], [[1], [2]], [[5]]]])
    rows = dynamic(corpus, 11, isolate=False).make_rows(corpus.tokens, 0)
    contents = sorted(rows.ids[row].tolist() for row in range(len(rows)))
    assert contents == [
        [CLS, 10, 11, SEP, 12, 13, 14, SEP, 15, SEP],
        [CLS, 16, 17, SEP, 18, 19, 20, 21, 22, SEP],
    ]


def test_the_same_seed_makes_the_same_rows_and_another_shuffles_them(
    numbered: Corpus, structure: Draw, subtests: pytest.Subtests
) -> None:
    corpus = numbered([structure(40)])

    def rows(seed: int, *, isolate: bool) -> list[int]:
        objective = dynamic(corpus, 32, isolate=isolate, seed=seed)
        ids: list[int] = objective.make_rows(corpus.tokens, 0).ids.values.tolist()
        return ids

    for isolate in (True, False):
        with subtests.test(isolate=isolate):
            assert rows(5, isolate=isolate) == rows(5, isolate=isolate) != rows(6, isolate=isolate)


# ---- dynamic_mlm: masks ----


def running_batch(num_rows: int, length: int, *, epoch: int = 0, first: int = 0) -> RowBatch:
    """Return synthetic rows of one sequence each, whose eojeol have three tokens."""
    kinds = np.tile(np.where(np.arange(length) % 3 == 1, WORD_START, WORD_INSIDE), (num_rows, 1))
    kinds[:, [0, -1]] = SPECIAL
    ids = 10 + np.arange(num_rows * length).reshape(num_rows, length) % 5000
    ids[:, 0], ids[:, -1] = CLS, SEP
    return RowBatch(
        rows=np.arange(first, first + num_rows),
        epochs=np.full(num_rows, epoch),
        input_ids=ids,
        kinds=kinds,
        sequence_ids=np.ones_like(ids),
        position_ids=np.tile(np.arange(length), (num_rows, 1)),
        token_type_ids=np.zeros_like(ids),
        sequence_starts=np.arange(num_rows) * length,
        labels=np.zeros(num_rows, np.int64),
        masked_positions=None,
        masked_ids=None,
    )


def test_the_share_of_predicted_tokens_is_the_masking_rate(numbered: Corpus, subtests: pytest.Subtests) -> None:
    for rate in [0.15, 0.3]:
        with subtests.test(rate=rate):
            objective = dynamic(numbered([[[[1] * 5000]]]), 128, mask_rate=rate)
            batch = running_batch(8000, 128)
            masked = objective.mask(batch)
            num_tokens = int((batch.kinds != SPECIAL).sum())
            assert num_tokens > 1_000_000
            assert_likely(len(masked.masked_positions), num_tokens, rate)
            # Each row has the whole part of its share, and one more as often as the rest says.
            counts = np.bincount(masked.masked_positions // 128, minlength=8000)
            whole = int(rate * 126)
            assert set(counts.tolist()) == {whole, whole + 1}
            assert_likely(int((counts - whole).sum()), 8000, rate * 126 - whole)
            # And every position is as likely as every other.
            places = np.bincount(masked.masked_positions % 128, minlength=128)
            assert places[0] == places[-1] == 0
            for count in places[1:-1].tolist():
                assert_likely(count, 8000, rate)


def test_predicted_tokens_become_masks_random_tokens_or_stay(numbered: Corpus) -> None:
    objective = dynamic(numbered([[[[1] * 5000]]]), 128, mask_rate=0.3)
    batch = running_batch(8000, 128)
    masked = objective.mask(batch)
    before, fed = batch.input_ids.ravel(), masked.input_ids.ravel()
    at = masked.masked_positions
    assert (np.diff(at) > 0).all()
    assert (masked.masked_ids == before[at]).all()
    assert (np.delete(fed, at) == np.delete(before, at)).all()
    assert (batch.kinds.ravel()[at] != SPECIAL).all()
    same = 0.1 + 0.1 / 5000
    assert_likely(int((fed[at] == MASK).sum()), len(at), 0.8)
    assert_likely(int((fed[at] == before[at]).sum()), len(at), same)
    assert fed[at].min() == MASK
    assert fed[at][fed[at] != MASK].min() >= 10


def masked_places(objective: Any, batch: RowBatch) -> list[list[int]]:
    width = batch.input_ids.shape[1]
    at = objective.mask(batch).masked_positions
    return [(at[at // width == row] % width).tolist() for row in range(len(batch.rows))]


def test_masks_differ_between_epochs_and_are_reproducible_within_one(numbered: Corpus) -> None:
    corpus = numbered([[[[1] * 5000]]])
    objective = dynamic(corpus, 64)
    first, again, second = (masked_places(objective, running_batch(200, 64, epoch=epoch)) for epoch in (3, 3, 4))
    assert first == again
    assert all(before != after for before, after in zip(first, second, strict=True))
    assert masked_places(dynamic(corpus, 64, seed=1), running_batch(200, 64, epoch=3)) != first
    assert len(set(map(tuple, first))) == 200
    # What is predicted in two epochs overlaps as chance has it: 9 of 62 positions, twice.
    overlap = sum(len(set(before) & set(after)) for before, after in zip(first, second, strict=True))
    assert_likely(overlap, sum(map(len, first)), 0.15)


def test_a_row_has_the_same_masks_in_any_batch(numbered: Corpus) -> None:
    objective = dynamic(numbered([[[[1] * 5000]]]), 64, whole_word=False)
    together = masked_places(objective, running_batch(20, 40))
    assert [masked_places(objective, running_batch(1, 40, first=row))[0] for row in range(20)] == together


def test_whole_words_are_predicted_whole(numbered: Corpus) -> None:
    objective = dynamic(numbered([[[[1] * 5000]]]), 128, whole_word=True)
    for places in masked_places(objective, running_batch(100, 128)):
        words = Counter((place - 1) // 3 for place in places)
        assert set(words.values()) == {3}
        assert len(words) == 6  # 18 or 19 tokens are wanted


# ---- static_mlm_nsp: pairs ----


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
        (side, place, piece in news.sentence_starts)
        for pair in full
        for side, own in (("A", pair.first), ("B", pair.second))
        for place, piece in (("front", own[0]), ("back", own[-1] + 1))
    )
    for side in "AB":
        for place in ("front", "back"):
            assert ends[side, place, False] > 0.1 * len(full)


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


# ---- static_mlm_nsp: masks ----


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
    chosen = [(pair.ids[place], pair.fed[place]) for pair in pairs for place in pair.masked_positions]
    num_pieces = len(news.specials.ordinary)
    assert len(chosen) > 30_000
    assert_likely(sum(fed == MASK for _, fed in chosen), len(chosen), 0.8)
    assert_likely(sum(fed == piece for piece, fed in chosen), len(chosen), 0.1 + 0.1 / num_pieces)
    assert min(piece for piece, _ in chosen) >= 10
    assert all(fed == MASK or fed >= 10 for _, fed in chosen)


def test_pairs_are_masked_at_different_positions(news: Any, sequences_of: Sequences) -> None:
    pairs = [pair for pair in pairs_of(static(news, 64), news, sequences_of) if len(pair.ids) == 64]
    assert len({tuple(pair.masked_positions) for pair in pairs}) == len(pairs)
    places = Counter(place for pair in pairs for place in pair.masked_positions)
    # Where the middle [SEP] may stand, a place is predicted a little less often.
    assert set(places) == set(range(1, 63))
    assert max(places.values()) < 3 * min(places.values())


def test_whole_words_of_pairs_are_predicted_whole(news: Any, sequences_of: Sequences) -> None:
    for pair in pairs_of(static(news, 64, whole_word=True), news, sequences_of)[:400]:
        assert len(pair.masked_positions) <= min(10, max(1, round(0.15 * len(pair.ids))))
        chosen = {pair.ids[place] for place in pair.masked_positions}
        for piece in chosen:
            here = set(pair.first) if piece in pair.first else set(pair.second)
            assert set(news.eojeol_of(piece)) & here <= chosen


def test_masks_of_pairs_are_the_same_in_every_epoch(news: Any) -> None:
    objective = static(news, 64)
    batch = running_batch(2, 8)
    given = RowBatch(**vars(batch) | {"masked_positions": np.array([3, 9]), "masked_ids": np.array([11, 12])})
    for epoch in (0, 7):
        masked = objective.mask(RowBatch(**vars(given) | {"epochs": np.full(2, epoch)}))
        assert masked.input_ids.tolist() == batch.input_ids.tolist()
        assert (masked.masked_positions.tolist(), masked.masked_ids.tolist()) == ([3, 9], [11, 12])
