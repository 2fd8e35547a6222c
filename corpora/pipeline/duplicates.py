"""Stages `exact`, `near` and `clusters`: keys of texts → sorted runs on disk → which documents repeat others.

Every unit writes its keys in order. A task merges one range of keys of all units, so memory is bounded by the size of a
range, and neither the number of tasks nor their order changes a byte. Of texts that are the same the first in reading
order is kept, and of a cluster of near-duplicates likewise.

Near-duplicates share runs of `WIDTH` letters. Of a MinHash signature (Broder 1997) of `FUNCTIONS` functions, the first
`BANDS` × `ROWS` propose pairs that agree in a band (Leskovec et al., Mining of Massive Datasets, chapter 3): one of
Jaccard index 0.8 with a probability of 99.6 %. The share of equal functions estimates the index, with a standard error
of 0.025 at 0.8. Pairs that are `MARGIN` standard errors or more below the limit are no duplicates, so that 2 % of the
pairs at the limit itself are missed, and some pairs below it are taken.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from corpora.cleaning import CleaningConfig, letters_of, text_digest
from corpora.near_duplicates import HashArray, IntArray, first_of_runs, letter_codes, mix, window_hashes
from corpora.pipeline.plan import Build
from corpora.pipeline.workspace import TaskFolder
from corpora.sentences import split_by_rules

EXACT, NEAR, CLUSTERS = "exact", "near", "clusters"
WIDTH = 5
"""Letters of a shingle, one to two words: FineWeb's five words would miss a changed word in each."""
BANDS, ROWS = 18, 6
"""FineWeb's 14 bands of 8 (Penedo et al. 2024, section 3.4) miss 8 % of the pairs of Jaccard index 0.8."""
FUNCTIONS = 256
MARGIN = 2.0
MIN_LETTERS = 120
"""Fewest letters of a text that has near-duplicates. A shorter one is a headline or a sentence, and another word makes
it another message."""
MAX_SENTENCE = 240
"""Letters from which on a text has near-duplicates even if it has one sentence. Hardly a sentence of the news is so
long (docs/benchmarks/corpus.md); most are paragraphs without a full stop."""
RANGE_KEYS = 8_000_000
"""Keys that a task of a later stage sorts at a time, about; 40 bytes of memory each."""
BLOCK_LETTERS = 1 << 15
"""Letters that are hashed at a time: they stay in the processor's cache."""


# ---- keys of the documents of a unit ----


def write_keys(task: TaskFolder, texts: Sequence[str], cleaning: CleaningConfig) -> None:
    """Write what later stages find the duplicates of TEXTS by."""
    if not cleaning.remove_duplicates:
        return
    digests = np.array([text_digest(text) for text in texts], np.uint64)
    order = np.argsort(digests, kind="stable")
    task.write_array("digests.npy", digests[order])
    task.write_array("digests-documents.npy", order.astype(np.uint32))
    if not cleaning.near_duplicates:
        return
    letters = [letters_of(text) for text in texts]
    signed = np.array([k for k, text in enumerate(texts) if is_long_enough(text, len(letters[k]))], np.uint32)
    minima = minhash([letters[k] for k in signed.tolist()])
    task.write_array("signed.npy", signed)
    # The lower bits of a minimum are as good as random: two differ with a probability of 1 − 2⁻¹⁶.
    task.write_array("signatures.npy", minima.astype(np.uint16))
    keys = band_keys(minima)
    order = np.argsort(keys, kind="stable")
    task.write_array("bands.npy", keys[order])
    task.write_array("bands-rows.npy", (order % max(len(signed), 1)).astype(np.uint32))


def is_long_enough(text: str, num_letters: int) -> bool:
    """Return whether TEXT, of so many letters, is long enough to have near-duplicates: more than a sentence."""
    if not MIN_LETTERS <= num_letters < MAX_SENTENCE:
        return num_letters >= MAX_SENTENCE
    return len(split_by_rules(text)) > 1


def minhash(letters: Sequence[str]) -> NDArray[np.uint32]:
    """Return MinHash signatures, (N, FUNCTIONS); no text is shorter than a shingle."""
    count = FUNCTIONS
    factors = mix(np.arange(1, count + 1, dtype=np.uint64)) | np.uint64(1)
    terms = mix(np.arange(count + 1, 2 * count + 1, dtype=np.uint64))
    minima = np.empty((len(letters), count), np.uint32)
    for first, end in _blocks([len(text) for text in letters]):
        lengths = np.array([len(text) for text in letters[first:end]], np.int64)
        hashes = window_hashes(letter_codes("".join(letters[first:end])), WIDTH)
        # Windows across two texts are left out.
        ends = np.cumsum(lengths)
        is_inside = np.ones(len(hashes), np.bool_)
        for offset in range(1, WIDTH):
            is_inside[ends[:-1] - offset] = False
        hashes = hashes[is_inside]
        starts = np.concatenate([[0], np.cumsum(lengths - WIDTH + 1)[:-1]])
        values = np.empty_like(hashes)
        for k in range(count):
            # The hashes are mixed already, so one multiplication permutes them well enough.
            np.multiply(hashes, factors[k], out=values)
            values += terms[k]
            minima[first:end, k] = np.minimum.reduceat(values, starts) >> np.uint64(32)
    return minima


def _blocks(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of texts of about `BLOCK_LETTERS` letters."""
    first = size = 0
    for k, length in enumerate(lengths):
        size += length
        if size >= BLOCK_LETTERS:
            yield first, k + 1
            first, size = k + 1, 0
    if first < len(lengths):
        yield first, len(lengths)


def band_keys(minima: NDArray[np.uint32]) -> HashArray:
    """Return (BANDS × N,): a key for each band and signature, equal if the band and all its rows are."""
    keys = np.empty((BANDS, len(minima)), np.uint64)
    for band in range(BANDS):
        key = np.full(len(minima), band, np.uint64)
        for row in range(ROWS):
            key = mix(key + minima[:, band * ROWS + row])
        keys[band] = key
    return keys.ravel()


# ---- ranges of keys of all units ----


def offsets(build: Build, stage: str, keys: Sequence[str]) -> IntArray:
    """Return the number of each unit's first document among all that the filter left, and their total."""
    sizes = [build.workspace.counts(stage, key)["num_documents"] for key in keys]
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def num_ranges(num_keys: int) -> int:
    """Return into how many ranges so many keys are split."""
    return max(1, math.ceil(num_keys / RANGE_KEYS))


def _range_of(keys: HashArray, number: int, count: int) -> slice:
    """Return where sorted KEYS of range NUMBER of COUNT are."""
    width = -(-(1 << 64) // count)
    begin = np.searchsorted(keys, np.uint64(number * width))
    last = (number + 1) * width
    return slice(int(begin), len(keys) if last >= 1 << 64 else int(np.searchsorted(keys, np.uint64(last))))


class KeyedUnits:
    """The keys that the filter wrote of all units."""

    def __init__(self, build: Build, stage: str, keys: Sequence[str]) -> None:
        """Take the finished tasks KEYS of STAGE, in the order of the units."""
        self.workspace, self.stage, self.keys = build.workspace, stage, keys
        self.offsets = offsets(build, stage, keys)

    def merged(self, name: str, rows: str, number: int, count: int) -> tuple[HashArray, IntArray, IntArray]:
        """Return one range of keys in order, and of each the unit and the row there; equal keys in reading order."""
        found, units, all_rows = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for unit, key in enumerate(self.keys):
            values = self.workspace.array(self.stage, key, name)
            part = _range_of(values, number, count)
            found.append(np.asarray(values[part]))
            all_rows.append(np.asarray(self.workspace.array(self.stage, key, rows)[part], np.int64))
            units.append(np.full(part.stop - part.start, unit, np.int64))
        values, owners, numbers = np.concatenate(found), np.concatenate(units), np.concatenate(all_rows)
        order = np.argsort(values, kind="stable")
        return values[order], owners[order], numbers[order]


def find_exact(units: KeyedUnits, number: int, count: int, task: TaskFolder) -> None:
    """Write which documents have the text of an earlier one, of one range of digests."""
    keys, owners, rows = units.merged("digests.npy", "digests-documents.npy", number, count)
    documents = units.offsets[owners] + rows
    first = first_of_runs(keys) if len(keys) else np.zeros(0, np.int64)
    is_first = np.zeros(len(keys), np.bool_)
    is_first[first] = True
    task.write_array("documents.npy", np.sort(documents[~is_first]))
    task.counts["sizes"] = _histogram(np.diff(first, append=len(keys)))


def find_near(units: KeyedUnits, number: int, count: int, min_jaccard: float, task: TaskFolder) -> None:
    """Write pairs of near-duplicates that agree in a band, of one range of the keys of bands."""
    keys, owners, rows = units.merged("bands.npy", "bands-rows.npy", number, count)
    first = first_of_runs(keys) if len(keys) else np.zeros(0, np.int64)
    sizes = np.diff(first, append=len(keys))
    heads = np.repeat(first, sizes)
    others = np.flatnonzero(heads != np.arange(len(keys)))
    # Of a run, each is compared with the one before it and with the first.
    pairs = np.concatenate([np.stack([others - 1, others], axis=1), np.stack([heads[others], others], axis=1)])
    pairs = np.unique(pairs, axis=0) if len(pairs) else pairs
    needed, numbered = np.unique(pairs, return_inverse=True)
    numbered = numbered.reshape(pairs.shape)
    signatures = np.empty((len(needed), FUNCTIONS), np.uint16)
    documents = np.empty(len(needed), np.int64)
    for unit in np.unique(owners[needed]).tolist():
        mine = np.flatnonzero(owners[needed] == unit)
        where = rows[needed[mine]]
        key = units.keys[unit]
        signatures[mine] = units.workspace.array(units.stage, key, "signatures.npy")[where]
        documents[mine] = units.offsets[unit] + units.workspace.array(units.stage, key, "signed.npy")[where]
    least = min_jaccard - MARGIN * math.sqrt(min_jaccard * (1 - min_jaccard) / FUNCTIONS)
    is_similar = np.zeros(len(pairs), np.bool_)
    for block in range(0, len(pairs), 1 << 16):
        some = numbered[block : block + (1 << 16)]
        equal = signatures[some[:, 0]] == signatures[some[:, 1]]
        is_similar[block : block + len(some)] = equal.mean(axis=1) >= least
    edges = np.sort(documents[numbered[is_similar]], axis=1)
    task.write_array("edges.npy", np.unique(edges, axis=0))
    task.counts.update(num_pairs=len(pairs), num_similar=int(is_similar.sum()))


def find_clusters(edges: Sequence[IntArray], task: TaskFolder) -> None:
    """Write which documents are near-duplicates of an earlier one, pairs taken as links of clusters."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    pairs = np.concatenate([np.zeros((0, 2), np.int64), *edges])
    documents, ends = np.unique(pairs, return_inverse=True)
    if not len(documents):
        task.write_array("documents.npy", documents)
        task.counts["sizes"] = {}
        return
    ends = ends.reshape(pairs.shape)
    links = (np.ones(len(pairs), np.int8), (ends[:, 0], ends[:, 1]))
    _, labels = connected_components(csr_array(links, shape=(len(documents),) * 2), directed=False)
    _, first = np.unique(labels, return_index=True)  # the documents are in order
    is_first = np.zeros(len(documents), np.bool_)
    is_first[first] = True
    task.write_array("documents.npy", documents[~is_first])
    task.counts["sizes"] = _histogram(np.bincount(labels))


def _histogram(sizes: IntArray) -> dict[str, int]:
    """Return how many clusters of two documents or more there are of each size."""
    counts = Counter(sizes[sizes > 1].tolist())
    return {str(size): counts[size] for size in sorted(counts)}
