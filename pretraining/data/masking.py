"""Choice and corruption of masked tokens, for all masked objectives.

Random numbers are a function of (seed, epoch, row, position), so that a row has the same masks in every process, worker
or resumed run, and all rows of a batch are masked at once.

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
"""80 % become `[MASK]`, 10 % a random token, 10 % stay."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(key: tuple[int, ...], rows: IntArray, epochs: IntArray, length: int) -> Floats:
    """Return uniform numbers in [0, 1), float64 (B, T), that depend on (key, row, epoch, position) alone.

    SplitMix64 (Steele, Lea and Flood 2014) used as a hash: random access, no state, 53 random bits.

    Args:
        key: the run's seed and the purpose; separates independent uses.
        rows: int (B,), row numbers in the corpus.
        epochs: int (B,), epoch of each row.
        length: T.
    """
    state = np.zeros(1, np.uint64)
    for part in key:
        state = _mix(state ^ np.uint64(part))
    state = _mix(_mix(state ^ rows.astype(np.uint64)) ^ epochs.astype(np.uint64))
    cells = state[:, None] + _GOLDEN * np.arange(1, length + 1, dtype=np.uint64)
    floats: Floats = (_mix(cells) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return floats


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit numbers: one step of SplitMix64, which relies on NumPy's silent overflow."""
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def choose_positions(kinds: IntArray, num_predictions: IntArray, draws: Floats, *, whole_word: bool) -> Booleans:
    """Choose the positions to predict; every set is equally likely.

    Args:
        kinds: uint8 (B, T), `SPECIAL`, `WORD_START` or `WORD_INSIDE`; padding is `SPECIAL`.
        num_predictions: int (B,), positions per row; rows with fewer maskable tokens get fewer.
        draws: uniform (B, T).
        whole_word: choose whole eojeol. One that would exceed the number is skipped, and a shorter one may follow.

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
        # A word that is cut off by the start of a row or sequence starts there.
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
    """Random numbers for the corruption of chosen positions."""

    fates: Floats
    """uniform (B, T): `[MASK]`, a random token, or the token itself."""
    replacements: Floats
    """uniform (B, T): selects the random token."""


def corrupt(ids: IntArray, chosen: Booleans, corruption: Corruption, specials: SpecialIds) -> IntArray:
    """Corrupt the chosen tokens, each independently: 80 % `[MASK]`, 10 % a random token, 10 % unchanged.

    Random tokens are ordinary subwords. google-research/bert samples from the whole vocabulary with special tokens and
    unused slots, which occasionally puts a `[SEP]` into a sentence.

    Args:
        ids: int (B, T).
        chosen: bool (B, T).
        corruption: the random numbers.
        specials: of the vocabulary.

    Returns:
        The corrupted ids, int (B, T).
    """
    fates = corruption.fates
    random_ids = specials.ordinary[(corruption.replacements * len(specials.ordinary)).astype(np.int64)]
    corrupted = np.where(chosen & (fates < MASK_UNTIL), specials.mask, ids)
    random = chosen & (fates >= MASK_UNTIL) & (fates < RANDOM_UNTIL)
    return np.where(random, random_ids, corrupted).astype(ids.dtype)
