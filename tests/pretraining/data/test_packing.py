"""Packing: every sequence in one row, no row too long, next to no room left over, the same for the same seed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretraining.data.packing import expand_spans, pack, permuted
from pretraining.data.shards import Ragged

CASES = st.integers(1, 40).flatmap(
    lambda max_length: st.tuples(st.just(max_length), st.lists(st.integers(1, max_length), max_size=120))
)


def pack_lengths(lengths: list[int], max_length: int, seed: int = 0) -> list[list[int]]:
    rows = pack(np.array(lengths, np.int64), max_length, np.random.default_rng(seed))
    return [rows[number].tolist() for number in range(len(rows))]


def lognormal_lengths(number: int, seed: int) -> np.ndarray:
    """Draw lengths of a mean of about 20, as those of Korean sentences, that fit 128."""
    drawn = np.random.default_rng(seed).lognormal(math.log(20) - 0.8**2 / 2, 0.8, number)
    return np.clip(np.rint(drawn), 1, 128).astype(np.int64)


@given(CASES)
def test_every_sequence_is_in_exactly_one_row_and_no_row_is_too_long(case: tuple[int, list[int]]) -> None:
    max_length, lengths = case
    rows = pack_lengths(lengths, max_length)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    assert all(0 < sum(lengths[number] for number in row) <= max_length for row in rows)


@given(CASES)
def test_two_rows_that_would_fit_into_one_are_one(case: tuple[int, list[int]]) -> None:
    max_length, lengths = case
    sizes = sorted(sum(lengths[number] for number in row) for row in pack_lengths(lengths, max_length))
    assert len(sizes) < 2 or sizes[0] + sizes[1] > max_length


def test_the_room_behind_a_long_sequence_is_filled_with_short_ones(subtests: pytest.Subtests) -> None:
    for lengths, max_length, num_rows in [
        ([100] * 10 + [5] * 50, 128, 10),
        ([6, 6, 2, 2, 2, 2], 10, 2),
        ([7, 1, 1, 1], 10, 1),
        ([6, 4, 5, 5, 3, 3, 2, 2], 10, 3),
        ([10] * 3, 10, 3),
        ([1] * 25, 10, 3),
    ]:
        with subtests.test(lengths=lengths):
            assert len(pack_lengths(lengths, max_length)) == num_rows


def test_rows_of_sentence_lengths_are_full(subtests: pytest.Subtests) -> None:
    for seed in range(3):
        with subtests.test(seed=seed):
            lengths = lognormal_lengths(20_000, seed)
            assert 19 < lengths.mean() < 21
            rows = pack(lengths, 128, np.random.default_rng(seed))
            assert lengths.sum() / (len(rows) * 128) >= 0.99


def test_the_seed_decides() -> None:
    lengths = lognormal_lengths(500, 0).tolist()
    rows = pack_lengths(lengths, 128, seed=1)
    assert pack_lengths(lengths, 128, seed=1) == rows
    other = pack_lengths(lengths, 128, seed=2)
    assert {frozenset(row) for row in rows} != {frozenset(row) for row in other}
    sizes = [[sum(lengths[number] for number in row) for row in some] for some in (rows, other)]
    assert sizes[0] != sizes[1]
    assert sorted(sizes[0]) == sorted(sizes[1])


def test_equal_sequences_meet_at_random() -> None:
    partners = [frozenset(next(row for row in pack_lengths([4] * 6, 8, seed) if 0 in row)) for seed in range(2000)]
    counts = [partners.count(frozenset({0, other})) for other in range(1, 6)]
    assert sum(counts) == 2000
    # Five standard deviations around a fifth.
    assert all(abs(count - 400) < 5 * math.sqrt(2000 * 0.2 * 0.8) for count in counts)


def test_no_sequences_make_no_rows() -> None:
    assert pack_lengths([], 16) == []


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=8))
def test_spans_are_ranges_end_to_end(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = (np.array([pair[side] for pair in pairs], np.int32) for side in (0, 1))
    expected = [position for start, length in pairs for position in range(start, start + length)]
    assert expand_spans(starts, lengths).tolist() == expected


@given(st.permutations(range(5)))
def test_arrays_are_put_into_another_order(order: list[int]) -> None:
    arrays = [[1, 2, 3], [], [4], [5, 6], []]
    ragged = Ragged.from_lengths(np.array([3, 0, 1, 2, 0]), np.arange(1, 7))
    shuffled = permuted(ragged, np.array(order))
    assert [shuffled[number].tolist() for number in range(5)] == [arrays[number] for number in order]
