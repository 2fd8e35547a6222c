"""RoBERTa: full sentences and dynamic masking."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pretraining.data.rows import SPECIAL, WORD_INSIDE, WORD_START, RowShard
from pretraining.objective import ObjectiveConfig, RowBatch
from pretraining.objectives.dynamic_mlm import DynamicMlm

Corpus = Callable[[list[Any]], Any]
Draw = Callable[..., Any]
Sequences = Callable[[RowShard], list[Any]]

TAIL = 1e-6
CLS, SEP, MASK = 2, 3, 4
SHORT_DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1, max_size=4), max_size=5
)


def assert_likely(successes: int, trials: int, share: float) -> None:
    low, high = stats.binom.ppf([TAIL, 1 - TAIL], trials, share)
    assert low <= successes <= high


# ---- full sentences ----


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


# ---- masks ----


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
