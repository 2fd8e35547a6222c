"""Near-duplicates by MinHash with banding: texts → sets of shingles → signatures → candidate pairs → Jaccard indices.

A *shingle* is a run of letters. The minimum of a hash function over a set is equal for two sets with a probability that
is their Jaccard index (Broder 1997). A *band* of a signature combines the minima of several functions; sets that agree
in one of the bands are candidates (Leskovec et al., Mining of Massive Datasets, chapter 3). The index of candidates is
then counted, not estimated: no wrong pair is found, and with b bands of r rows a pair of Jaccard index s is missed with
a probability of (1 − sʳ)ᵇ.

>>> similar_pairs(["금리가올랐다", "금리가 또 올랐다", "금리가올랐다!"], width=2, min_jaccard=0.6)
{(0, 2)}
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[Any]
HashArray: TypeAlias = NDArray[np.uint64]

SET_BITS, SHINGLE_BITS = np.uint64(24), np.uint64(40)
"""Of a key: the index of a set in the upper bits, the hash of one of its shingles in the lower."""
MAX_SETS = 1 << int(SET_BITS)
BLOCK_KEYS = 1 << 15
"""Keys that are hashed at a time: they stay in the processor's cache."""
SAMPLED = np.uint64(4)
"""One of this many shingles is looked up for contained sets, chosen by its hash."""
COMMONEST = 64
"""Sets with a shingle from which on it says nothing about a contained set."""
PADDING = "\U0010ffff"
"""Fills up texts that are shorter than a shingle; no letter of any text."""


# ---- letters, windows and hashes ----


def letter_codes(text: str) -> NDArray[np.uint32]:
    """Return the code points of TEXT."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def mix(values: HashArray) -> HashArray:
    """Spread the bits of VALUES in place, and return them: the finalizer of SplitMix64 (Steele et al. 2014)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    return values


def window_hashes(codes: NDArray[np.uint32], width: int) -> HashArray:
    """Hash every window of WIDTH codes (N,): a polynomial modulo 2⁶⁴, mixed; returns (N - WIDTH + 1,)."""
    count = max(len(codes) - width + 1, 0)
    hashes = np.zeros(count, np.uint64)
    for offset in range(width):
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes += codes[offset : offset + count]
    return mix(hashes)


def spans(starts: IntArray, lengths: IntArray) -> IntArray:
    """Return the positions `start, start + 1, …` of every span, one after the other."""
    ends = np.cumsum(lengths)
    positions: IntArray = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - lengths), lengths)
    return positions


def first_of_runs(*columns: NDArray[Any]) -> IntArray:
    """Return the positions in sorted columns at which a combination of values occurs for the first time."""
    is_first = np.ones(len(columns[0]), np.bool_)
    is_first[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(is_first)


class HashTable:
    """A set of hashes; most misses cost one look into a bitmap."""

    def __init__(self, hashes: HashArray) -> None:
        """Take sorted, distinct HASHES."""
        self._hashes = hashes
        bits = max(16, (8 * len(hashes)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._bitmap = np.zeros(1 << bits, np.bool_)
        self._bitmap[hashes >> self._shift] = True

    def find(self, hashes: HashArray) -> tuple[IntArray, IntArray]:
        """Return the positions in HASHES of those that are in the table, and their indices there."""
        positions = np.flatnonzero(self._bitmap[hashes >> self._shift])
        numbers = np.searchsorted(self._hashes, hashes[positions])
        numbers[numbers == len(self._hashes)] = 0
        is_equal = self._hashes[numbers] == hashes[positions]
        return positions[is_equal], numbers[is_equal]


# ---- sets of shingles ----


@dataclass(frozen=True)
class ShingleSets:
    """Sets of shingles, each an ascending run of keys.

    With 40 bits and a million different shingles, one in a million is mistaken for another.
    """

    keys: HashArray
    """uint64: index of a set and hash of a shingle; see `SET_BITS`."""
    offsets: IntArray
    """(N + 1,): the keys of set n are `keys[offsets[n]:offsets[n + 1]]`."""

    @classmethod
    def from_spans(cls, hashes: HashArray, starts: IntArray, lengths: IntArray, width: int) -> "ShingleSets":
        """Collect the shingles of spans of letters.

        Args:
            hashes: of every window of WIDTH letters, by the position where it begins.
            starts: (N,) positions of the spans.
            lengths: (N,) their letters, WIDTH at least.
            width: letters of a shingle.
        """
        assert len(starts) < MAX_SETS
        num_windows = lengths - width + 1
        owners = np.repeat(np.arange(len(starts), dtype=np.uint64), num_windows)
        keys = (owners << SHINGLE_BITS) | (hashes[spans(starts, num_windows)] >> SET_BITS)
        keys.sort()
        keys = keys[first_of_runs(keys)]
        return cls(keys, np.searchsorted(keys >> SHINGLE_BITS, np.arange(len(starts) + 1, dtype=np.uint64)))

    @property
    def sizes(self) -> IntArray:
        """(N,): shingles of each set."""
        return np.diff(self.offsets)

    @property
    def shingles(self) -> HashArray:
        """The hashes of the shingles without the sets, in the upper 40 bits."""
        return self.keys << SET_BITS

    def select(self, kept: IntArray) -> "ShingleSets":
        """Return some of the sets, by index; their keys keep the indices of before."""
        sizes = self.sizes[kept]
        return ShingleSets(self.keys[spans(self.offsets[:-1][kept], sizes)], np.concatenate([[0], np.cumsum(sizes)]))

    def band_keys(self, bands: int, rows: int) -> HashArray:
        """Return uint64 (bands, N): equal values for sets that agree in all rows of a band."""
        salts = mix(np.arange(1, bands * rows + 1, dtype=np.uint64)).reshape(bands, rows)
        found = np.zeros((bands, len(self.offsets) - 1), np.uint64)
        first = 0
        while first < found.shape[1]:
            # As many whole sets as fit into a block, one at least.
            end = int(np.searchsorted(self.offsets, self.offsets[first] + BLOCK_KEYS, side="right")) - 1
            block = slice(first, max(end, first + 1))
            starts = self.offsets[block]
            shingles = self.keys[starts[0] : self.offsets[block.stop]] << SET_BITS
            for band, row_salts in enumerate(salts):
                for salt in row_salts:
                    minima = np.minimum.reduceat(mix(shingles ^ salt), starts - starts[0])
                    found[band, block] = mix(found[band, block] + minima)
            first = block.stop
        return found


class SimilarSets:
    """An index of sets that finds those similar to others."""

    def __init__(self, sets: ShingleSets, *, bands: int, rows: int, min_jaccard: float) -> None:
        """Index SETS.

        Args:
            sets: none is empty.
            bands: bands of a signature.
            rows: hash functions of a band.
            min_jaccard: Jaccard index from which on sets are similar.
        """
        self._sets, self._bands, self._rows, self._min_jaccard = sets, bands, rows, min_jaccard
        self._shingles = HashTable(np.unique(sets.shingles))
        keys = sets.band_keys(bands, rows)
        self._order = np.argsort(keys, axis=1, kind="stable")
        self._keys = np.take_along_axis(keys, self._order, axis=1)

    def find(self, queries: ShingleSets) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
        """Return pairs of similar sets: index of the query, index of the indexed set, and Jaccard index."""
        kept = self._possible(queries)
        possible = queries.select(kept)
        numbers, indexed = self._candidates(possible)
        similarities = self._jaccard(possible, numbers, indexed)
        is_similar = similarities >= self._min_jaccard
        return kept[numbers[is_similar]], indexed[is_similar], similarities[is_similar]

    def _possible(self, queries: ShingleSets) -> IntArray:
        """Return the queries with enough shingles that occur in any indexed set."""
        sizes = queries.sizes
        known, _ = self._shingles.find(queries.shingles)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        num_known = np.bincount(owners[known], minlength=len(sizes))
        return np.flatnonzero(num_known / sizes >= self._min_jaccard)

    def _candidates(self, queries: ShingleSets) -> tuple[IntArray, IntArray]:
        """Return pairs of a query and an indexed set that agree in a band and have sizes that allow similarity."""
        pairs = [np.zeros(0, np.int64)]
        for keys, order, wanted in zip(
            self._keys, self._order, queries.band_keys(self._bands, self._rows), strict=True
        ):
            first = np.searchsorted(keys, wanted, side="left")
            counts = np.searchsorted(keys, wanted, side="right") - first
            indexed = order[spans(first, counts)]
            pairs.append((np.repeat(np.arange(len(wanted)), counts) << 32) | indexed)
        distinct = np.unique(np.concatenate(pairs))
        numbers, indexed = distinct >> 32, distinct & 0xFFFFFFFF
        ours, theirs = queries.sizes[numbers], self._sets.sizes[indexed]
        is_near = np.minimum(ours, theirs) / np.maximum(ours, theirs) >= self._min_jaccard
        return numbers[is_near], indexed[is_near]

    def _jaccard(self, queries: ShingleSets, numbers: IntArray, indexed: IntArray) -> NDArray[np.float64]:
        """Return the Jaccard index of each pair of a query and an indexed set."""
        ours, theirs = queries.sizes[numbers], self._sets.sizes[indexed]
        shingles = queries.shingles[spans(queries.offsets[:-1][numbers], ours)] >> SET_BITS
        wanted = (np.repeat(indexed.astype(np.uint64), ours) << SHINGLE_BITS) | shingles
        positions = np.searchsorted(self._sets.keys, wanted)
        positions[positions == len(self._sets.keys)] = 0
        is_shared = self._sets.keys[positions] == wanted
        num_shared = np.bincount(np.repeat(np.arange(len(numbers)), ours)[is_shared], minlength=len(numbers))
        return num_shared / (ours + theirs - num_shared)


def similar_pairs(
    letters: Sequence[str], *, width: int, min_jaccard: float, bands: int = 25, rows: int = 5
) -> set[tuple[int, int]]:
    """Return the pairs of texts whose sets of shingles have a Jaccard index of at least MIN_JACCARD.

    Args:
        letters: what is compared of each text, none empty; a text of fewer than WIDTH letters is a shingle by itself.
        width: letters of a shingle.
        min_jaccard: lowest Jaccard index.
        bands: bands of a signature; with 25 bands of 5 rows, one of 20,000 pairs of Jaccard index 0.8 is missed.
        rows: hash functions of a band.

    Returns:
        Indices, the lower one first.
    """
    if len(letters) < 2:
        return set()
    padded = [text.ljust(width, PADDING) for text in letters]
    lengths = np.array([len(text) for text in padded], np.int64)
    hashes = window_hashes(letter_codes("".join(padded)), width)
    sets = ShingleSets.from_spans(hashes, np.cumsum(lengths) - lengths, lengths, width)
    first, second, _ = SimilarSets(sets, bands=bands, rows=rows, min_jaccard=min_jaccard).find(sets)
    is_ordered = first < second
    return set(zip(first[is_ordered].tolist(), second[is_ordered].tolist(), strict=True))


def overlapping_pairs(
    letters: Sequence[str], *, width: int, min_jaccard: float, min_containment: float, least_size: float
) -> set[tuple[int, int]]:
    """Return the pairs of texts that are similar as a whole, or of which one contains the other.

    Candidates are those of `similar_pairs`, and pairs that share most of a sample of their rarer shingles.

    Args:
        letters: what is compared of each text, none empty.
        width: letters of a shingle.
        min_jaccard: lowest Jaccard index of similar texts.
        min_containment: lowest share of the smaller set that the larger one contains.
        least_size: lowest ratio of the sizes of a contained set and the larger one.

    Returns:
        Indices, the lower one first.
    """
    pairs = similar_pairs(letters, width=width, min_jaccard=min_jaccard, bands=40, rows=4)
    if len(letters) < 2:
        return pairs
    hashes = [np.unique(window_hashes(letter_codes(text.ljust(width, PADDING)), width)) for text in letters]
    sizes = np.array([len(some) for some in hashes])
    for first, second in _share_sample(hashes, 0.7 * min_containment):
        smaller, larger = sorted((sizes[first], sizes[second]))
        if smaller >= least_size * larger and (first, second) not in pairs:
            num_shared = len(np.intersect1d(hashes[first], hashes[second], assume_unique=True))
            if num_shared >= min_containment * smaller:
                pairs.add((first, second))
    return pairs


def _share_sample(hashes: Sequence[HashArray], min_containment: float) -> list[tuple[int, int]]:
    """Return the pairs of sets that share a part of the smaller sample of their shingles."""
    from scipy.sparse import csr_array, triu

    samples = [some[some % SAMPLED == 0] for some in hashes]
    starts = np.concatenate([[0], np.cumsum([len(some) for some in samples])])
    _, columns, counts = np.unique(np.concatenate(samples), return_inverse=True, return_counts=True)
    table = csr_array((np.ones(len(columns), np.int32), columns, starts), shape=(len(samples), len(counts)))
    table = table[:, counts <= COMMONEST]
    sizes = np.asarray(table.sum(axis=1))
    shared = triu(table @ table.T, 1).tocoo()
    is_near = shared.data >= min_containment * np.minimum(sizes[shared.row], sizes[shared.col])
    return list(zip(shared.row[is_near].tolist(), shared.col[is_near].tolist(), strict=True))
