"""Masking: uniform and independent draws, every choice equally likely, eojeol whole or not at all, 80/10/10."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pretraining.data.masking import Corruption, choose_positions, corrupt, uniforms
from pretraining.data.rows import SPECIAL, WORD_INSIDE, WORD_START, SpecialIds

TAIL = 1e-6
SPECIALS = SpecialIds(pad=0, cls=2, sep=3, mask=4, ordinary=np.arange(10, 2010), vocab_size=2010)
KINDS = st.lists(st.sampled_from([SPECIAL, WORD_START, WORD_INSIDE, WORD_INSIDE]), min_size=1, max_size=24)


def draw(num_rows: int, length: int, key: tuple[int, ...] = (0, 0), *, first: int = 0, epoch: int = 0) -> np.ndarray:
    rows = np.arange(first, first + num_rows)
    return uniforms(key, rows, np.full(num_rows, epoch), length)


def assert_likely(successes: int, trials: int, share: float) -> None:
    low, high = stats.binom.ppf([TAIL, 1 - TAIL], trials, share)
    assert low <= successes <= high


def assert_equally_frequent(counts: list[int]) -> None:
    assert stats.chisquare(counts).pvalue > TAIL


# ---- draws ----


def test_draws_are_uniform() -> None:
    draws = draw(8192, 128)
    assert draws.shape == (8192, 128)
    assert draws.dtype == np.float64
    assert 0 <= draws.min() < draws.max() < 1
    assert stats.kstest(draws.ravel(), "uniform").pvalue > TAIL
    for place in (0, 1, 127):  # consecutive rows at one position
        assert stats.kstest(draws[:, place], "uniform").pvalue > TAIL


def test_draws_of_another_row_epoch_position_seed_or_purpose_are_independent(subtests: pytest.Subtests) -> None:
    for case, key, first, epoch, shift in [
        ("next row", (0, 0), 1, 0, 0),
        ("other rows", (0, 0), 1024, 0, 0),
        ("next pass", (0, 0), 0, 1, 0),
        ("next position", (0, 0), 0, 0, 1),
        ("another seed", (1, 0), 0, 0, 0),
        ("another purpose", (0, 1), 0, 0, 0),
    ]:
        with subtests.test(case):
            draws, other = draw(1024, 64), draw(1024, 64 + shift, key, first=first, epoch=epoch)[:, shift:]
            assert (draws != other).all()
            counts, _, _ = np.histogram2d(draws.ravel(), other.ravel(), bins=16, range=[[0, 1], [0, 1]])
            assert stats.chi2_contingency(counts).pvalue > TAIL


def test_seed_and_purpose_row_and_pass_do_not_stand_for_each_other() -> None:
    assert (
        uniforms((1, 2), np.array([0]), np.array([0]), 8) != uniforms((2, 1), np.array([0]), np.array([0]), 8)
    ).all()
    assert (
        uniforms((0, 0), np.array([1]), np.array([2]), 8) != uniforms((0, 0), np.array([2]), np.array([1]), 8)
    ).all()


@given(
    rows=st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1000)), min_size=1, max_size=5),
    widths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_a_row_is_drawn_alike_in_any_batch(rows: list[tuple[int, int]], widths: tuple[int, int]) -> None:
    numbers, epochs = (np.array([row[side] for row in rows]) for side in (0, 1))
    together = uniforms((7, 1), numbers, epochs, widths[0])
    for place in range(len(rows)):
        alone = uniforms((7, 1), numbers[place : place + 1], epochs[place : place + 1], widths[1])
        shared = min(widths)
        assert (together[place, :shared] == alone[0, :shared]).all()


def test_draws_are_those_of_splitmix64() -> None:
    golden, whole = 0x9E3779B97F4A7C15, (1 << 64) - 1

    def mix(x: int) -> int:
        x = (x + golden) & whole
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & whole
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & whole
        return x ^ (x >> 31)

    assert mix(0) == 0xE220A8397B1DCDAF  # the first number of the published generator for seed 0
    state = 0
    for part in (20240521, 3, 123_456_789_012, 41):
        state = mix(state ^ part)
    expected = [(mix((state + golden * place) & whole) >> 11) / 2**53 for place in (1, 2, 3)]
    assert uniforms((20240521, 3), np.array([123_456_789_012]), np.array([41]), 3)[0].tolist() == expected


# ---- choosing ----


def test_every_set_of_positions_is_equally_likely() -> None:
    num_rows = 40_000
    kinds = np.tile(
        np.array([SPECIAL, WORD_START, WORD_INSIDE, WORD_START, WORD_START, SPECIAL], np.uint8), (num_rows, 1)
    )
    chosen = choose_positions(kinds, np.full(num_rows, 2), draw(num_rows, 6), whole_word=False)
    counts = Counter(map(tuple, chosen.nonzero()[1].reshape(-1, 2).tolist()))
    assert set(counts) == set(combinations([1, 2, 3, 4], 2))
    assert_equally_frequent(list(counts.values()))


@given(
    rows=st.lists(st.tuples(KINDS, st.integers(0, 30)), min_size=1, max_size=4),
    whole_word=st.booleans(),
    seed=st.integers(0, 100),
)
def test_no_special_token_and_never_more_than_requested_is_chosen(
    rows: list[tuple[list[int], int]], whole_word: bool, seed: int
) -> None:
    width = max(len(kinds) for kinds, _ in rows)
    kinds = np.array([row + [SPECIAL] * (width - len(row)) for row, _ in rows], np.uint8)
    wanted = np.array([number for _, number in rows])
    chosen = choose_positions(kinds, wanted, draw(len(rows), width, (seed, 0)), whole_word=whole_word)
    assert not (chosen & (kinds == SPECIAL)).any()
    maskable = (kinds != SPECIAL).sum(axis=1)
    assert (chosen.sum(axis=1) <= wanted).all()
    if not whole_word:
        assert (chosen.sum(axis=1) == np.minimum(wanted, maskable)).all()


def words_of(kinds: list[int]) -> list[list[int]]:
    """Return the positions of each eojeol; what follows a special token begins one."""
    words: list[list[int]] = []
    before = SPECIAL
    for place, kind in enumerate(kinds):
        if kind == WORD_START or (kind == WORD_INSIDE and before == SPECIAL):
            words.append([place])
        elif kind == WORD_INSIDE:
            words[-1].append(place)
        before = kind
    return words


@settings(max_examples=200)
@given(
    kinds=st.lists(st.sampled_from([SPECIAL, WORD_START, WORD_INSIDE]), min_size=4, max_size=20),
    wanted=st.integers(0, 8),
    seed=st.integers(0, 1000),
)
def test_an_eojeol_is_chosen_whole_or_not_at_all(kinds: list[int], wanted: int, seed: int) -> None:
    draws = draw(1, len(kinds), (seed, 0))
    chosen = choose_positions(np.array([kinds], np.uint8), np.array([wanted]), draws, whole_word=True)[0]
    whole = [word for word in words_of(kinds) if chosen[word].all()]
    assert sum(map(len, whole)) == chosen.sum() <= wanted
    # An eojeol is passed over only where it would have been too much.
    left = wanted - int(chosen.sum())
    assert left == 0 or all(len(word) > left for word in words_of(kinds) if word not in whole)


def test_every_eojeol_is_equally_likely() -> None:
    num_rows = 20_000
    inside = [WORD_INSIDE, WORD_INSIDE]  # as behind the begin of a sequence that was cut there
    kinds = np.array([SPECIAL, *inside, WORD_START, WORD_INSIDE, SPECIAL, *inside], np.uint8)
    chosen = choose_positions(np.tile(kinds, (num_rows, 1)), np.full(num_rows, 3), draw(num_rows, 8), whole_word=True)
    assert (chosen.sum(axis=1) == 2).all()
    counts = [int(chosen[:, word].all(axis=1).sum()) for word in ([1, 2], [3, 4], [6, 7])]
    assert sum(counts) == num_rows
    assert_equally_frequent(counts)


def test_subwords_of_an_eojeol_are_chosen_independently_without_whole_words() -> None:
    kinds = np.tile(np.array([WORD_START, WORD_INSIDE], np.uint8), (1000, 1))
    chosen = choose_positions(kinds, np.ones(1000, np.int64), draw(1000, 2), whole_word=False)
    assert_likely(int(chosen[:, 0].sum()), 1000, 0.5)
    assert (chosen.sum(axis=1) == 1).all()


# ---- corrupting ----


def corrupted(num_tokens: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ids = np.resize(SPECIALS.ordinary, num_tokens).reshape(-1, 100)
    chosen = draw(len(ids), 100, (0, 9)) < 0.5
    corruption = Corruption(draw(len(ids), 100, (0, 1)), draw(len(ids), 100, (0, 2)))
    return ids, chosen, corrupt(ids, chosen, corruption, SPECIALS)


def test_eighty_percent_become_masks_ten_a_random_token_and_ten_stay() -> None:
    ids, chosen, fed = corrupted(1_000_000)
    num_chosen = int(chosen.sum())
    num_pieces = len(SPECIALS.ordinary)
    masks, same = fed[chosen] == SPECIALS.mask, fed[chosen] == ids[chosen]
    assert_likely(int(masks.sum()), num_chosen, 0.8)
    # A random token may equal the original.
    assert_likely(int(same.sum()), num_chosen, 0.1 + 0.1 / num_pieces)
    assert_likely(int((~masks & ~same).sum()), num_chosen, 0.1 - 0.1 / num_pieces)


def test_nothing_but_the_chosen_tokens_changes() -> None:
    ids, chosen, fed = corrupted(100_000)
    assert (fed[~chosen] == ids[~chosen]).all()
    assert fed.dtype == ids.dtype


def test_random_tokens_are_uniform_over_ordinary_ones() -> None:
    ordinary = np.array([7, 11, 12, 40, 41])
    specials = SpecialIds(pad=0, cls=2, sep=3, mask=4, ordinary=ordinary, vocab_size=50)
    ids = np.full((500, 100), 30)
    corruption = Corruption(draw(500, 100, (0, 1)), draw(500, 100, (0, 2)))
    fed = corrupt(ids, np.ones(ids.shape, np.bool_), corruption, specials)
    counts = Counter(fed[(fed != specials.mask) & (fed != 30)].tolist())
    assert set(counts) == set(ordinary.tolist())
    assert_equally_frequent(list(counts.values()))


def test_fates_lie_in_this_order(subtests: pytest.Subtests) -> None:
    for fate, fed in [(0.0, 4), (0.7999, 4), (0.8, 17), (0.8999, 17), (0.9, 30), (1 - 2.0**-53, 30)]:
        with subtests.test(fate=fate):
            specials = SpecialIds(pad=0, cls=2, sep=3, mask=4, ordinary=np.array([15, 16, 17]), vocab_size=50)
            corruption = Corruption(np.array([[fate]]), np.array([[1 - 2.0**-53]]))
            assert corrupt(np.array([[30]]), np.array([[True]]), corruption, specials).tolist() == [[fed]]
