"""Packing of sequences into rows of a fixed maximum length, with almost no padding.

Best-fit decreasing on the histogram of lengths, as in Krell et al. 2021, “Efficient sequence packing without
cross-contamination”: its time depends on the number of distinct lengths, not of sequences.
"""

from collections import Counter, defaultdict

import numpy as np

from pretraining.data.shards import IntArray, Ragged


def pack(lengths: IntArray, max_length: int, rng: np.random.Generator) -> Ragged:
    """Distribute sequences over rows.

    Args:
        lengths: int (N,), each in 1 … max_length.
        max_length: tokens of a row.
        rng: shuffles sequences of equal length, and the rows.

    Returns:
        Sequence numbers of each row, longest first. Every sequence is in exactly one row.
    """
    mixes = _best_fit(Counter(lengths.tolist()), max_length)
    order = np.argsort(rng.permuted(np.arange(len(lengths))))  # random ranks
    order = np.lexsort((order, lengths))  # by length, randomly within
    bounds = np.searchsorted(lengths[order], np.arange(max_length + 2))
    taken = bounds.copy()
    rows: list[IntArray] = []
    sizes: list[IntArray] = []
    for mix, count in sorted(mixes.items(), reverse=True):
        columns = []
        for length in mix:
            first = taken[length]
            taken[length] = first + count
            columns.append(order[first : first + count])
        rows.append(np.stack(columns, axis=1).ravel())
        sizes.append(np.full(count, len(mix)))
    if not rows:
        return Ragged(np.zeros(0, np.int64), np.zeros(1, np.int64))
    packed = Ragged.from_lengths(np.concatenate(sizes), np.concatenate(rows))
    return permuted(packed, rng.permutation(len(packed)))


def permuted(ragged: Ragged, order: IntArray) -> Ragged:
    """Return the arrays of RAGGED in the given order."""
    lengths = ragged.lengths[order]
    return Ragged.from_lengths(lengths, ragged.values[expand_spans(ragged.offsets[:-1][order], lengths)])


def expand_spans(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the positions `start, start + 1, …` of all spans, concatenated, int64."""
    ends = np.cumsum(lengths, dtype=np.int64)
    shifts = np.asarray(starts, np.int64) - (ends - lengths)
    positions: IntArray = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) + np.repeat(shifts, lengths)
    return positions


def _best_fit(counts: Counter[int], max_length: int) -> Counter[tuple[int, ...]]:
    """Return the combinations of lengths that fill rows, and the number of rows of each."""
    open_rows: dict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)  # by remaining room
    for length in sorted(counts, reverse=True):
        left = counts[length]
        # The fullest rows first; the rest opens new rows.
        open_rows[max_length] = Counter({(): left})
        for room in range(length, max_length + 1):
            candidates, open_rows[room] = open_rows[room], Counter()
            for mix, count in candidates.items():
                fit = room // length
                full = min(left // fit, count)
                rest = left - full * fit if full < count and left - full * fit < fit else 0
                for rows, taken in ((full, fit), (bool(rest), rest), (count - full - bool(rest), 0)):
                    if rows:
                        open_rows[room - taken * length][mix + (length,) * taken] += int(rows)
                left -= full * fit + rest
        del open_rows[max_length]
    total: Counter[tuple[int, ...]] = Counter()
    for mixes in open_rows.values():
        total.update(mixes)
    return total
