"""Groups of points: HDBSCAN on a graph of nearest neighbours, and three steps of refinement.

HDBSCAN (Campello et al. 2013) labels more than half of a day's titles as noise, includes some that do not belong, and
may find one story twice. Three steps correct this. All use the *typicality* of a title for a story: the share of all
members of stories that are no nearer to the centre of their own story (computed without them) than this title is to
this centre. It is a rank, so no threshold depends on the embedder (it is the p-value of conformal prediction; Vovk et
al. 2005).

1. A member leaves its story if its typicality is below a level, unless non-members are much farther away, and if it is
   no nearer than non-members are.
2. Stories whose centres are as near to each other as members are to their centres are merged (average linkage).
3. A title in no story joins the nearest one if its typicality among the remaining members reaches the level.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from corpora.foundation.floors import needs
from corpora.foundation.machine import num_threads

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Points: TypeAlias = NDArray[np.float32]
"""(N, P), rows of length 1 or 0."""
Labels: TypeAlias = NDArray[np.int64]
"""(N,), −1 for points in no group."""
Library: TypeAlias = Literal["sklearn", "hdbscan"]
"""Package whose HDBSCAN runs; both give the same groups."""
Result = TypeVar("Result")

BLOCK_ROWS, BLOCK_SIZE = 512, 1 << 23
"""Maximum rows and maximum values of a block of similarities: a few blocks and their sorted copies fit into memory."""
MIN_DISTANCE = 1e-6
"""Distance of equal points: a sparse graph has no edges of length 0."""
BRIDGE_LENGTH = 3.0
"""Length of the edges that connect the components of the graph: longer than any distance on the sphere."""
NEAR_QUANTILE = 0.95
"""Quantile of the similarities of non-members at which they count as near."""
MAX_SPLIT = 4000
"""Members of a story that are divided into parts: linkage needs memory for all pairs."""


class Clusterer(Protocol):
    """How points are grouped."""

    def __call__(self, points: Points) -> Labels:
        """Return the number of each point's group, −1 for none. Points are distinct and of length 1."""


@dataclass(frozen=True)
class Density:
    """HDBSCAN on the graph of nearest neighbours: all pairs are compared, and only a few are kept."""

    min_size: int = 3
    """Points of the smallest group."""
    min_samples: int = 2
    """Points, itself included, within the core distance of a point."""
    neighbours: int = 16
    selection: Literal["leaf", "eom"] = "leaf"
    library: Library = "sklearn"

    def __call__(self, points: Points) -> Labels:
        """Return groups; fewer points than `min_size` or `min_samples` make none, and a single group is never found.

        HDBSCAN finds groups where the hierarchy splits; `allow_single_cluster` would make a story of any leftover.
        """
        if len(points) < max(self.min_size, self.min_samples, 3):
            return np.full(len(points), -1)
        return self.fit_graph(neighbour_graph(points, max(self.neighbours, self.min_samples)))

    def fit_graph(self, graph: "csr_array") -> Labels:
        """Return the groups of a connected graph of distances, which may be modified."""
        settings: dict[str, Any] = {
            "min_cluster_size": self.min_size,
            "min_samples": max(1, self.min_samples - 1),  # a point is no neighbour of itself in the graph
            "metric": "precomputed",
            "cluster_selection_method": self.selection,
        }
        if self.library == "hdbscan":
            needs("hdbscan")
            import hdbscan

            found = hdbscan.HDBSCAN(**settings).fit(graph)
        else:
            from sklearn.cluster import HDBSCAN

            found = HDBSCAN(**settings, copy=False).fit(graph)
        labels: Labels = found.labels_.astype(np.int64)
        return labels


def neighbour_graph(points: Points, num_neighbours: int) -> "csr_array":
    """Return the symmetric graph of nearest neighbours with Euclidean distances, connected by long edges if needed."""
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import connected_components

    size = len(points)
    indices, similarities = nearest(points, min(num_neighbours, size - 1))
    distances = np.maximum(np.sqrt(np.maximum(2 - 2 * similarities.astype(np.float64), 0)), MIN_DISTANCE)
    starts = np.arange(0, indices.size + 1, indices.shape[1], dtype=np.int32)
    graph = csr_array((distances.ravel(), indices.ravel(), starts), shape=(size, size))
    graph = csr_array(graph.maximum(graph.T))
    num_parts, parts = connected_components(graph, directed=False)
    if num_parts > 1:
        ends = np.unique(parts, return_index=True)[1].astype(np.int32)
        chain = coo_array((np.full(num_parts - 1, BRIDGE_LENGTH), (ends[:-1], ends[1:])), shape=(size, size))
        graph = csr_array(graph + chain + chain.T)
    return graph


def nearest(points: Points, num_neighbours: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the most similar other points of each point: indices and cosines, (N, num_neighbours) each."""

    def search(block: Points, first: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        similarities = block @ points.T
        rows = np.arange(len(block))
        similarities[rows, first + rows] = -2
        best = np.argpartition(similarities, -num_neighbours, axis=1)[:, -num_neighbours:]
        return best.astype(np.int32), np.take_along_axis(similarities, best, axis=1)

    blocks = in_blocks(points, len(points), search)
    return np.vstack([indices for indices, _ in blocks]), np.vstack([similarities for _, similarities in blocks])


def in_blocks(points: NDArray[Any], width: int, compute: Callable[[NDArray[Any], int], Result]) -> list[Result]:
    """Call COMPUTE with blocks of rows and the index of the first row, on all processors; results in order.

    WIDTH is the number of values that COMPUTE makes of a row. Blocks depend on nothing else, and each product is
    computed in one thread, so results do not depend on the number of threads.
    """
    rows = max(1, min(BLOCK_ROWS, BLOCK_SIZE // max(1, width)))
    with threadpool_limits(1), ThreadPoolExecutor(num_threads()) as pool:
        return list(pool.map(lambda first: compute(points[first : first + rows], first), range(0, len(points), rows)))


@dataclass(frozen=True)
class Groups:
    """Groups of points and their centres."""

    labels: Labels
    sums: NDArray[np.float64]
    """(K, P): sum of each group's members; its direction is the centre."""
    sizes: NDArray[np.int64]

    @classmethod
    def from_labels(cls, points: Points, labels: Labels) -> "Groups":
        """Sum the members of groups; labels become contiguous from 0, in the order of first members."""
        labels = renumber(labels)
        members = np.flatnonzero(labels >= 0)
        sizes = np.bincount(labels[members])
        sums = np.zeros((len(sizes), points.shape[1]))
        np.add.at(sums, labels[members], points[members])
        return cls(labels, sums, sizes)

    @functools.cached_property
    def centres(self) -> Points:
        """(K, P), of length 1."""
        lengths = np.linalg.norm(self.sums, axis=1, keepdims=True)
        centres: Points = (self.sums / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return centres

    def own_similarities(self, points: Points) -> NDArray[np.float32]:
        """Return each member's similarity to the centre of the others: 1 if there are none, −1 if it is in no group."""
        similarities = np.full(len(points), -1, np.float32)
        members = np.flatnonzero(self.labels >= 0)
        similarities[members] = _own_similarities(points[members], self.labels[members], self.sums)
        return similarities


@dataclass(frozen=True)
class TypicalityScale:
    """The similarities of stories' members, against which other similarities are ranked."""

    own: NDArray[np.float32]
    """Ascending: of members to the centre of the other members of their story."""
    strange: NDArray[np.float32]
    """Ascending: of members to the nearest centre of another story (non-members)."""

    @classmethod
    def from_groups(cls, points: Points, groups: Groups, is_core: NDArray[np.bool_] | None = None) -> "TypicalityScale":
        """Collect the similarities of groups.

        Args:
            points: (N, P).
            groups: groups of these points.
            is_core: (N,) members that count; default: all.
        """
        counts = (groups.labels >= 0) & (groups.sizes[groups.labels] > 1 if len(groups.sizes) else False)
        members = np.flatnonzero(counts if is_core is None else counts & is_core)
        own = groups.own_similarities(points)[members]
        _, strange = nearest_centres(points[members], groups.centres, groups.labels[members])
        return cls(np.sort(own), np.sort(strange) if len(groups.sizes) > 1 else np.zeros(0, np.float32))

    def typicality(self, similarities: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the share of members that are no nearer to their centres than each similarity; 0 without members."""
        ranks = np.searchsorted(self.own, similarities, side="right")
        shares: NDArray[np.float32] = (ranks / max(1, len(self.own))).astype(np.float32)
        return shares

    def similarity_at(self, typicality: float) -> float:
        """Return the lowest similarity with a typicality; 1 without members."""
        return float(np.quantile(self.own, typicality)) if len(self.own) else 1.0

    def level(self, min_typicality: float) -> float:
        """Return the lowest similarity of a member: that of a typicality, corrected by the similarities of non-members.

        A quantile alone would remove members however compact the stories are: it is lowered where non-members are far.
        It would also keep members that are no nearer than non-members where stories are loose, as on a day of few
        articles: it is at least the median of the non-members.
        """
        level = self.similarity_at(min_typicality)
        if not len(self.strange):
            return level
        median, near = np.quantile(self.strange, (0.5, NEAR_QUANTILE)).tolist()
        level = max(level, median)
        return float(min(level, (level + near) / 2))


def _own_similarities(points: Points, labels: Labels, sums: NDArray[np.float64]) -> NDArray[np.float32]:
    similarities = np.ones(len(points), np.float32)
    for first in range(0, len(points), BLOCK_ROWS):
        block = points[first : first + BLOCK_ROWS]
        others = sums[labels[first : first + BLOCK_ROWS]] - block
        lengths = np.linalg.norm(others, axis=1)
        products = np.einsum("np,np->n", others, block, dtype=np.float64)
        np.divide(products, lengths, out=products, where=lengths > MIN_DISTANCE)
        similarities[first : first + BLOCK_ROWS] = np.where(lengths > MIN_DISTANCE, products, 1)
    return similarities


def renumber(labels: Labels) -> Labels:
    """Return contiguous labels from 0, in the order of their first points; −1 stays."""
    kept = labels >= 0
    _, first, inverse = np.unique(labels[kept], return_index=True, return_inverse=True)
    ranks = np.argsort(np.argsort(first))
    result = np.full(len(labels), -1)
    result[kept] = ranks[inverse]
    return result


def refine(
    points: Points,
    labels: Labels,
    *,
    min_size: int,
    min_typicality: float,
    join_at: float,
    scale: TypicalityScale | None = None,
) -> tuple[Labels, NDArray[np.bool_]]:
    """Return the groups after the three steps above, and whether a point was in its group before the last step.

    Args:
        points: (N, P) of distinct texts.
        labels: (N,) groups found by a clusterer.
        min_size: groups that step 1 leaves with fewer members are dissolved.
        min_typicality: level of steps 1 and 3; at 0 only members leave that are no nearer than non-members.
        join_at: typicality at which centres are merged in step 2; more than 1 merges none.
        scale: of other groups in the same space; default: of these.
    """
    groups = Groups.from_labels(points, labels)
    if not len(groups.sizes):
        return groups.labels, groups.labels >= 0
    measure = scale or TypicalityScale.from_groups(points, groups)
    labels = np.where(groups.own_similarities(points) < measure.level(min_typicality), -1, groups.labels)
    sizes = np.bincount(labels[labels >= 0], minlength=len(groups.sizes))
    labels[(labels >= 0) & (sizes[labels] < min_size)] = -1
    groups = Groups.from_labels(points, labels)
    if join_at <= 1 and len(groups.sizes):
        labels = np.where(
            groups.labels >= 0, merge_centres(groups.centres, measure.similarity_at(join_at))[groups.labels], -1
        )
        groups = Groups.from_labels(points, labels)
    level = (scale or TypicalityScale.from_groups(points, groups)).level(min_typicality)
    positions, similarities = nearest_centres(points, groups.centres)
    joins = (groups.labels < 0) & (similarities >= level)
    return renumber(np.where(joins, positions, groups.labels)), groups.labels >= 0


def nearest_centres(points: Points, centres: Points, own: Labels | None = None) -> tuple[Labels, NDArray[np.float32]]:
    """Return the index of the most similar centre of each point, and the cosine; −1 and −1 without centres.

    OWN is the index of a centre for each point that is ignored.
    """
    if not len(centres):
        return np.full(len(points), -1), np.full(len(points), -1, np.float32)

    def search(block: Points, first: int) -> tuple[Labels, NDArray[np.float32]]:
        similarities = block @ centres.T
        rows = np.arange(len(block))
        if own is not None:
            similarities[rows, own[first : first + len(block)]] = -2
        best = similarities.argmax(axis=1)
        return best, similarities[rows, best]

    none = np.zeros(0, np.int64), np.zeros(0, np.float32)
    blocks = [none, *in_blocks(points, len(centres), search)]
    return np.concatenate([best for best, _ in blocks]), np.concatenate([cosines for _, cosines in blocks])


def merge_centres(centres: Points, min_cosine: float) -> Labels:
    """Return groups of centres by average linkage: merged while the mean cosine of two is at least MIN_COSINE."""
    if len(centres) < 2:
        return np.arange(len(centres))
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    def search(block: Points, first: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows, columns = np.nonzero(block @ centres.T >= min_cosine)
        return rows + first, columns

    edges = in_blocks(centres, len(centres), search)
    rows, columns = np.concatenate([e[0] for e in edges]), np.concatenate([e[1] for e in edges])
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(centres), len(centres)))
    # A mean of cosines never exceeds all of them: no group spans two components of this graph.
    _, parts = connected_components(graph, directed=False)
    labels = np.full(len(centres), -1)
    order = np.argsort(parts, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(parts[order])) + 1):
        labels[members] = labels.max() + 1 + split_by_linkage(centres[members], min_cosine)
    return labels


def split_by_linkage(points: Points, min_cosine: float) -> Labels:
    """Return groups of points by average linkage, from 0: the mean cosine of any two is below MIN_COSINE."""
    if len(points) < 2:
        return np.zeros(len(points), np.int64)
    from scipy.cluster.hierarchy import fcluster

    groups = fcluster(average_linkage(points), max(0.0, 1 - min_cosine), criterion="distance")
    return renumber(groups.astype(np.int64))


def average_linkage(points: Points) -> NDArray[np.float64]:
    """Return SciPy's average linkage of two or more points by cosine distance."""
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist

    merges: NDArray[np.float64] = linkage(np.maximum(pdist(points.astype(np.float64), "cosine"), 0), "average")
    return merges


def sub_stories(points: Points, min_cosine: float, min_size: int) -> Labels:
    """Divide a story into parts of at least MIN_SIZE members by average linkage, −1 for members in none.

    Args:
        points: of the members, the nearest to the centre first; beyond `MAX_SPLIT` they are in none.
        min_cosine: lowest mean cosine between the halves of a part.
        min_size: members of the smallest part.
    """
    labels = np.full(len(points), -1)
    labels[:MAX_SPLIT] = split_by_linkage(points[:MAX_SPLIT], min_cosine)
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    labels[(labels >= 0) & (sizes[labels] < min_size)] = -1
    return renumber(labels)
