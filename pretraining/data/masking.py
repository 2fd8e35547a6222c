"""Which tokens are predicted, and what stands in their place: shared by all masked objectives.

Randomness is a function of (seed, draw, row, position) and of nothing else, so that a row is masked alike whichever
process, worker or resumed run feeds it, and all rows of a batch are drawn at once.

Source: Devlin et al. 2019, section 3.1; google-research/bert, create_pretraining_data.py, for counts and rounding.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pretraining.data.rows import SPECIAL, WORD_START, SpecialIds
from pretraining.data.shards import IntArray

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

MASK_UNTIL, RANDOM_UNTIL = 0.8, 0.9
"""80 % become `[MASK]`, 10 % a random piece, 10 % stay."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(key: tuple[int, ...], rows: IntArray, draws: IntArray, length: int) -> Floats:
    """Return uniform numbers in [0, 1), float64 (B, T), that depend on (key, row, draw, position) alone.

    SplitMix64 (Steele, Lea and Flood 2014) used as a hash: random access, no state, 53 random bits.

    Args:
        key: the run's seed and the purpose; tells independent uses apart.
        rows: int (B,), numbers of the rows in their corpus.
        draws: int (B,), how often each row was drawn before.
        length: T.
    """
    state = np.zeros(1, np.uint64)
    for part in key:
        state = _mix(state ^ np.uint64(part))
    state = _mix(_mix(state ^ rows.astype(np.uint64)) ^ draws.astype(np.uint64))
    cells = state[:, None] + _GOLDEN * np.arange(1, length + 1, dtype=np.uint64)
    floats: Floats = (_mix(cells) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return floats


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Scatter the bits of 64-bit numbers: one step of SplitMix64. Arrays wrap around silently, as it should be."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def choose_positions(kinds: IntArray, num_predictions: IntArray, draws: Floats, *, whole_word: bool) -> Booleans:
    """Choose the positions to be predicted, every set of them equally likely.

    Args:
        kinds: uint8 (B, T), `SPECIAL`, `WORD_START` or `WORD_INSIDE`; padding is `SPECIAL`.
        num_predictions: int (B,), how many to choose in each row; fewer are taken where fewer can be.
        draws: uniform (B, T).
        whole_word: choose eojeol with all their pieces. One that would exceed the number is passed over, and a
            shorter one may still be taken.

    Returns:
        bool (B, T), never true on a special token.
    """
    if whole_word:
        return _choose_words(kinds, num_predictions, draws)
    keys = np.where(kinds == SPECIAL, 2.0, draws)
    order = np.argsort(keys, axis=1, kind="stable")
    chosen = np.zeros(kinds.shape, np.bool_)
    np.put_along_axis(chosen, order, np.arange(kinds.shape[1]) < num_predictions[:, None], axis=1)
    maskable: Booleans = kinds != SPECIAL
    return chosen & maskable


def _choose_words(kinds: IntArray, num_predictions: IntArray, draws: Floats) -> Booleans:
    chosen = np.zeros(kinds.shape, np.bool_)
    for row in range(len(kinds)):
        maskable = np.flatnonzero(kinds[row] != SPECIAL)
        # A word cut by the row's or the sequence's begin starts there.
        starts = (kinds[row][maskable] == WORD_START) | (np.diff(maskable, prepend=-2) > 1)
        begins = np.flatnonzero(starts)
        sizes = np.diff(np.append(begins, len(maskable)))
        left = int(num_predictions[row])
        for word in np.argsort(draws[row][maskable[begins]], kind="stable").tolist():
            if left <= 0:
                break
            if sizes[word] <= left:
                chosen[row, maskable[begins[word] : begins[word] + sizes[word]]] = True
                left -= int(sizes[word])
    return chosen


@dataclass(frozen=True)
class Corruption:
    """Draws that decide what stands at the chosen positions."""

    fates: Floats
    """uniform (B, T): `[MASK]`, a random piece, or the piece itself."""
    replacements: Floats
    """uniform (B, T): which random piece."""


def corrupt(ids: IntArray, chosen: Booleans, corruption: Corruption, specials: SpecialIds) -> IntArray:
    """Replace the chosen tokens: 80 % by `[MASK]`, 10 % by a random piece, 10 % by themselves, drawn for each piece.

    The random pieces are pieces of text: google-research/bert draws from the whole vocabulary, the special tokens and
    unused slots included, which puts a `[SEP]` into the middle of a sentence now and then.

    Args:
        ids: int (B, T).
        chosen: bool (B, T).
        corruption: the draws.
        specials: of the vocabulary.

    Returns:
        The ids as they are fed, int (B, T).
    """
    fates = corruption.fates
    pieces = specials.ordinary[(corruption.replacements * len(specials.ordinary)).astype(np.int64)]
    corrupted = np.where(chosen & (fates < MASK_UNTIL), specials.mask, ids)
    random = chosen & (fates >= MASK_UNTIL) & (fates < RANDOM_UNTIL)
    return np.where(random, pieces, corrupted).astype(ids.dtype)
