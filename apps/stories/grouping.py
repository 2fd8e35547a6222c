"""Stories among points: HDBSCAN on a graph of nearest neighbours, and what an editor needs on top of it.

HDBSCAN (Campello et al. 2013) leaves more than half of a day's titles out, takes some in that do not belong, and may
find one story twice. So three steps follow, all measured by *typicality*: the share of all stories' members that are no
nearer to the centre of their own story, themselves left out, than this title is to this centre. It is a rank and needs
no threshold that depends on the embedder (it is the p-value of conformal prediction; Vovk et al. 2005).

1. A member whose typicality is below a level leaves, unless strangers are much farther away; so does one that is no
   nearer than strangers are.
2. Stories whose centres are as near to each other as members are to theirs become one (average linkage).
3. A title that is in no story joins the nearest, if its typicality among those that are left reaches the level.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist
from sklearn.cluster import HDBSCAN
from threadpoolctl import threadpool_limits

from corpora.foundation.machine import num_threads

Points: TypeAlias = NDArray[np.float32]
"""(N, P), rows of length 1 or 0."""
Labels: TypeAlias = NDArray[np.int64]
"""(N,), −1 for what is in no group."""
Result = TypeVar("Result")

BLOCK, BLOCK_SIZE = 512, 1 << 23
"""Most rows and most numbers of a block of similarities: a few of them, with what sorts them, fit into the memory."""
SHORTEST = 1e-6
"""Distance of points that are equal: a graph has no edges of length 0."""
APART = 3.0
"""Length of the edges that tie together what no neighbours connect: longer than any distance on the sphere."""
SELDOM = 0.95
"""Share of members that are less similar to any other story than what counts as the nearness of strangers."""
LARGEST_DIVIDED = 4000
"""Members of the largest story that is divided: linkage needs memory for all pairs."""


class Clusterer(Protocol):
    """How stories are found among points."""

    def __call__(self, points: Points) -> Labels:
        """Return the number of each point's group, −1 for none. Points are distinct and of length 1."""


@dataclass(frozen=True)
class Density:
    """HDBSCAN on the graph of the nearest neighbours: all pairs are compared, and only a few remembered."""

    min_size: int = 3
    """Points of the smallest group."""
    min_samples: int = 2
    """A point and its neighbours that tell how dense it is around it."""
    neighbours: int = 16
    selection: Literal["leaf", "eom"] = "leaf"

    def __call__(self, points: Points) -> Labels:
        """Return groups; fewer points than `min_size` or `min_samples` make none, and one group alone is not found.

        HDBSCAN sees a group only where it parts from another; `allow_single_cluster` would make one of any day's rest.
        """
        if len(points) < max(self.min_size, self.min_samples, 3):
            return np.full(len(points), -1)
        graph = neighbour_graph(points, max(self.neighbours, self.min_samples))
        found = HDBSCAN(
            min_cluster_size=self.min_size,
            min_samples=max(1, self.min_samples - 1),  # in a graph, a point is not a neighbour of itself
            metric="precomputed",
            cluster_selection_method=self.selection,
            copy=False,
        ).fit(graph)
        labels: Labels = found.labels_.astype(np.int64)
        return labels


def neighbour_graph(points: Points, num_neighbours: int) -> sparse.csr_array:
    """Return the symmetric graph of nearest neighbours as Euclidean distances, made connected by long edges."""
    size = len(points)
    indices, similarities = nearest(points, min(num_neighbours, size - 1))
    distances = np.maximum(np.sqrt(np.maximum(2 - 2 * similarities.astype(np.float64), 0)), SHORTEST)
    starts = np.arange(0, indices.size + 1, indices.shape[1])
    graph = sparse.csr_array((distances.ravel(), indices.ravel(), starts), shape=(size, size))
    graph = sparse.csr_array(graph.maximum(graph.T))
    num_parts, parts = connected_components(graph, directed=False)
    if num_parts > 1:
        ends = np.unique(parts, return_index=True)[1]
        chain = sparse.coo_array((np.full(num_parts - 1, APART), (ends[:-1], ends[1:])), shape=(size, size))
        graph = sparse.csr_array(graph + chain + chain.T)
    return graph


def nearest(points: Points, num_neighbours: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the most similar other points of each point: indices and cosines, (N, num_neighbours)."""

    def search(block: Points, first: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        similarities = block @ points.T
        rows = np.arange(len(block))
        similarities[rows, first + rows] = -2
        best = np.argpartition(similarities, -num_neighbours, axis=1)[:, -num_neighbours:]
        return best.astype(np.int32), np.take_along_axis(similarities, best, axis=1)

    blocks = in_blocks(points, len(points), search)
    return np.vstack([indices for indices, _ in blocks]), np.vstack([similarities for _, similarities in blocks])


def in_blocks(points: Points, width: int, compute: Callable[[Points, int], Result]) -> list[Result]:
    """Call COMPUTE for blocks of rows and the place of the first, on all processors; results in order.

    WIDTH is how many numbers COMPUTE makes of a row. Blocks depend on nothing else, and each product is made in one
    thread, so that the same points give the same bytes whatever the number of threads.
    """
    rows = max(1, min(BLOCK, BLOCK_SIZE // max(1, width)))
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
    def of(cls, points: Points, labels: Labels) -> "Groups":
        """Sum up groups; their numbers are made to run from 0 without gaps, in the order of their first members."""
        labels = renumbered(labels)
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
class Yardstick:
    """How near is near: the similarities of stories' members, by which others are measured."""

    own: NDArray[np.float32]
    """Ascending: of members to the centre of the others of their story, if there are others."""
    strange: NDArray[np.float32]
    """Ascending: of members to the nearest centre of another story."""

    @classmethod
    def of(cls, points: Points, groups: Groups, is_core: NDArray[np.bool_] | None = None) -> "Yardstick":
        """Measure groups.

        Args:
            points: what is grouped.
            groups: their groups.
            is_core: which members count; default: all.
        """
        counts = (groups.labels >= 0) & (groups.sizes[groups.labels] > 1 if len(groups.sizes) else False)
        members = np.flatnonzero(counts if is_core is None else counts & is_core)
        own = groups.own_similarities(points)[members]
        _, strange = nearest_centres(points[members], groups.centres, groups.labels[members])
        return cls(np.sort(own), np.sort(strange) if len(groups.sizes) > 1 else np.zeros(0, np.float32))

    def typicality(self, similarities: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the share of members that are no nearer to their centres than this; 0 where there are no members."""
        ranks = np.searchsorted(self.own, similarities, side="right")
        shares: NDArray[np.float32] = (ranks / max(1, len(self.own))).astype(np.float32)
        return shares

    def similarity_at(self, typicality: float) -> float:
        """Return the least similarity that has a typicality; 1 if there are no members."""
        return float(np.quantile(self.own, typicality)) if len(self.own) else 1.0

    def level(self, min_typicality: float) -> float:
        """Return the least similarity of a member: that of a typicality, seen beside the nearness of strangers.

        A quantile alone would send members away however tidy the stories are: it is lowered where strangers are far.
        And it would keep what is no nearer than a stranger where stories are loose, as on a day of few articles: it is
        at least the median of the strangers.
        """
        level = self.similarity_at(min_typicality)
        if not len(self.strange):
            return level
        median, near = np.quantile(self.strange, (0.5, SELDOM)).tolist()
        level = max(level, median)
        return float(min(level, (level + near) / 2))


def _own_similarities(points: Points, labels: Labels, sums: NDArray[np.float64]) -> NDArray[np.float32]:
    similarities = np.ones(len(points), np.float32)
    for first in range(0, len(points), BLOCK):
        block = points[first : first + BLOCK]
        others = sums[labels[first : first + BLOCK]] - block
        lengths = np.linalg.norm(others, axis=1)
        products = np.einsum("np,np->n", others, block, dtype=np.float64)
        np.divide(products, lengths, out=products, where=lengths > SHORTEST)
        similarities[first : first + BLOCK] = np.where(lengths > SHORTEST, products, 1)
    return similarities


def renumbered(labels: Labels) -> Labels:
    """Return labels that run from 0 without gaps, in the order of their first points; −1 stays."""
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
    yardstick: Yardstick | None = None,
) -> tuple[Labels, NDArray[np.bool_]]:
    """Return better stories by the three steps above, and whether a point was in its story before the last step.

    Args:
        points: distinct texts.
        labels: groups that were found among them.
        min_size: a story that step 1 leaves with fewer members is none.
        min_typicality: level of steps 1 and 3; at 0 only members leave that are no nearer than strangers.
        join_at: typicality at which centres are near enough for step 2; more than 1 joins nothing.
        yardstick: of other stories in the same space; default: of these.
    """
    groups = Groups.of(points, labels)
    if not len(groups.sizes):
        return groups.labels, groups.labels >= 0
    measure = yardstick or Yardstick.of(points, groups)
    labels = np.where(groups.own_similarities(points) < measure.level(min_typicality), -1, groups.labels)
    sizes = np.bincount(labels[labels >= 0], minlength=len(groups.sizes))
    labels[(labels >= 0) & (sizes[labels] < min_size)] = -1
    groups = Groups.of(points, labels)
    if join_at <= 1 and len(groups.sizes):
        labels = np.where(groups.labels >= 0, joined(groups.centres, measure.similarity_at(join_at))[groups.labels], -1)
        groups = Groups.of(points, labels)
    level = (yardstick or Yardstick.of(points, groups)).level(min_typicality)
    places, similarities = nearest_centres(points, groups.centres)
    joins = (groups.labels < 0) & (similarities >= level)
    return renumbered(np.where(joins, places, groups.labels)), groups.labels >= 0


def nearest_centres(points: Points, centres: Points, own: Labels | None = None) -> tuple[Labels, NDArray[np.float32]]:
    """Return the number of the most similar centre of each point, and the cosine; −1 and −1 if there are no centres.

    OWN is the number of a centre for each point that does not count.
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


def joined(centres: Points, near: float) -> Labels:
    """Return groups of centres by average linkage: joined while the mean cosine between two groups is at least NEAR."""
    if len(centres) < 2:
        return np.arange(len(centres))

    def search(block: Points, first: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rows, columns = np.nonzero(block @ centres.T >= near)
        return rows + first, columns

    edges = in_blocks(centres, len(centres), search)
    rows, columns = np.concatenate([e[0] for e in edges]), np.concatenate([e[1] for e in edges])
    graph = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(centres), len(centres)))
    # A mean of cosines is not above all of them: groups never reach across parts of this graph.
    _, parts = connected_components(graph, directed=False)
    labels = np.full(len(centres), -1)
    order = np.argsort(parts, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(parts[order])) + 1):
        labels[members] = labels.max() + 1 + divided(centres[members], near)
    return labels


def divided(points: Points, near: float) -> Labels:
    """Return groups of points by average linkage, from 0: the mean cosine between two of them is below NEAR."""
    if len(points) < 2:
        return np.zeros(len(points), np.int64)
    groups = fcluster(average_linkage(points), max(0.0, 1 - near), criterion="distance")
    return renumbered(groups.astype(np.int64))


def average_linkage(points: Points) -> NDArray[np.float64]:
    """Return SciPy's linkage of two points or more by their cosines, computed in one thread."""
    merges: NDArray[np.float64] = linkage(np.maximum(pdist(points.astype(np.float64), "cosine"), 0), "average")
    return merges


def sub_stories(points: Points, near: float, min_size: int) -> Labels:
    """Divide a story: groups of at least MIN_SIZE members by average linkage, −1 for members in none.

    Args:
        points: of the members, the nearest to the centre first; beyond `LARGEST_DIVIDED` they are in none.
        near: least mean cosine between the halves of a group.
        min_size: members of the smallest group.
    """
    labels = np.full(len(points), -1)
    labels[:LARGEST_DIVIDED] = divided(points[:LARGEST_DIVIDED], near)
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    labels[(labels >= 0) & (sizes[labels] < min_size)] = -1
    return renumbered(labels)
