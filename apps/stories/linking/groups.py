"""Groups of titles by the log-odds of their pairs, in three steps.

1. Average linkage: two groups are merged while the mean log-odds of their pairs is above a level. It is an absolute
   floor, so a story in a file of 20 titles needs as much in common as one in a file of 20,000, and a file may hold
   none, one or many.
2. Groups on one event in different words are joined: as a whole they share letters and nouns, or the same names and
   numbers with less of the rest.
3. A title in no story joins the one that it shares most with, if that is enough.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from apps.stories.grouping import Labels, in_blocks, renumber
from apps.stories.linking.pairs import Matrix, PairFeatures, unit_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEIGHBOURS = 32
LARGEST_LINKAGE = 1500
"""Titles that are linked at once: linkage needs memory for all pairs. Larger components are cut at higher levels."""
LEVEL_STEP = 0.25
LARGEST_LOG_ODDS = 6.0
NOUN_SHARE = 0.3
"""Share of the nouns in the similarity of two groups; the rest is the letters'."""
MAX_ROUNDS = 8


@dataclass(frozen=True)
class Levels:
    """What the three steps need in common, chosen on one half of the marked events."""

    log_odds: float = 0.0
    join: float = 0.4
    """Similarity of two groups."""
    join_facts: float = 0.6
    """Similarity of their names and numbers, from which on `join_least` is enough."""
    join_least: float = 0.28
    attach: float = 0.3
    """Similarity of a title to a story."""


def link(features: PairFeatures, min_size: int, levels: Levels) -> Labels:
    """Return the group of each title, −1 for titles in none of at least MIN_SIZE."""
    labels = joined(features, _link(features, levels.log_odds), levels)
    labels = _of_size(labels, min_size)
    rest = np.flatnonzero(labels < 0)
    labels[rest] = attached(features, labels, rest, levels.attach)
    return labels


def _of_size(labels: Labels, min_size: int) -> Labels:
    sizes = np.bincount(labels[labels >= 0], minlength=1)
    return renumber(np.where((labels >= 0) & (sizes[labels] >= min_size), labels, -1))


def _link(features: PairFeatures, level: float) -> Labels:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    first, second = _candidates(features)
    odds = features.log_odds_of(first, second)
    labels = np.full(features.size, -1)
    waiting = [(np.arange(features.size), level)]
    while waiting:
        members, least = waiting.pop()
        position = np.full(features.size, -1)
        position[members] = np.arange(len(members))
        is_inside = (odds > least) & (position[first] >= 0) & (position[second] >= 0)
        ends = (position[first[is_inside]], position[second[is_inside]])
        graph = csr_array((np.ones(len(ends[0])), ends), shape=(len(members), len(members)))
        _, parts = connected_components(graph, directed=False)
        order = np.argsort(parts, kind="stable")
        for part in np.split(members[order], np.flatnonzero(np.diff(parts[order])) + 1):
            if len(part) > LARGEST_LINKAGE:
                waiting.append((part, least + LEVEL_STEP))
            elif len(part) > 1:
                labels[part] = labels.max() + 1 + _average_linkage(features, part, level)
    return _of_size(labels, 2)


def _candidates(features: PairFeatures) -> tuple[Labels, Labels]:
    """Return pairs of titles that share most letters and nouns, each once."""
    size = features.size
    if size < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    kept = min(NEIGHBOURS, size - 1)

    def search(block: NDArray[np.int64], first: int) -> Labels:
        shared = (features.letters[block] @ features.letters.T + features.nouns[block] @ features.nouns.T).toarray()
        rows = np.arange(len(block))
        shared[rows, first + rows] = -1
        best = np.argpartition(shared, -kept, axis=1)[:, -kept:]
        pairs: Labels = np.column_stack([np.repeat(block, kept), best.ravel()])
        return pairs

    pairs = np.concatenate(in_blocks(np.arange(size), size, search))
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _average_linkage(features: PairFeatures, members: NDArray[np.int64], level: float) -> Labels:
    """Return groups of MEMBERS, from 0."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    odds = np.clip(features.log_odds(members, members), -LARGEST_LOG_ODDS, LARGEST_LOG_ODDS).astype(np.float64)
    distances = LARGEST_LOG_ODDS - (odds + odds.T) / 2
    np.fill_diagonal(distances, 0)
    merges = linkage(squareform(distances, checks=False), "average")
    groups: Labels = fcluster(merges, LARGEST_LOG_ODDS - level, criterion="distance").astype(np.int64) - 1
    return groups


@dataclass(frozen=True)
class Profiles:
    """What the titles of each group have on average, as rows of length 1."""

    letters: "csr_array"
    nouns: "csr_array"
    facts: "csr_array"
    """Names and numbers."""

    @classmethod
    def of_groups(cls, features: PairFeatures, labels: Labels) -> "Profiles":
        """Sum the titles of each label; −1 is no group."""
        members = np.flatnonzero(labels >= 0)
        return cls.of_members(features, labels[members], members)

    @classmethod
    def of_members(cls, features: PairFeatures, groups: Labels, members: Labels) -> "Profiles":
        """Sum the titles of each group; GROUPS and MEMBERS are pairs, and a title may be in several groups."""
        from scipy.sparse import csr_array

        shape = (int(groups.max(initial=-1)) + 1, features.size)
        sums = csr_array((np.ones(len(members), np.float32), (groups, members)), shape=shape)
        facts = csr_array(features.names + features.numbers)
        tables = (features.letters, features.nouns, facts)
        return cls(*(unit_rows(csr_array(sums @ table)) for table in tables))

    def similarities(self, letters: "csr_array", nouns: "csr_array") -> Matrix:
        """Return the similarity of some rows to each group."""
        similarities: Matrix = (
            (1 - NOUN_SHARE) * (letters @ self.letters.T) + NOUN_SHARE * (nouns @ self.nouns.T)
        ).toarray()
        return similarities

    def similarity_of(self, features: PairFeatures, titles: Labels, groups: Labels) -> Matrix:
        """Return (N,): the similarity of N titles, each to its group."""

        def shared(table: "csr_array", profile: "csr_array") -> Matrix:
            return np.asarray(table[titles].multiply(profile[groups]).sum(axis=1), np.float32).ravel()

        letters, nouns = shared(features.letters, self.letters), shared(features.nouns, self.nouns)
        similarities: Matrix = (1 - NOUN_SHARE) * letters + NOUN_SHARE * nouns
        return similarities


def joined(features: PairFeatures, labels: Labels, levels: Levels) -> Labels:
    """Merge groups that are each other's nearest and near enough, until there are none."""
    for _ in range(MAX_ROUNDS):
        size = int(labels.max(initial=-1)) + 1
        if size < 2:
            break
        profiles = Profiles.of_groups(features, labels)
        similarities = profiles.similarities(profiles.letters, profiles.nouns)
        facts = (profiles.facts @ profiles.facts.T).toarray()
        is_near = (similarities >= levels.join) | ((facts >= levels.join_facts) & (similarities >= levels.join_least))
        scores = np.where(is_near, similarities + facts, -1)
        np.fill_diagonal(scores, -1)
        # Ties go to the lower number, so that the result is the same on any machine.
        nearest = scores.argmax(axis=1)
        rows = np.arange(size)
        merged = (scores[rows, nearest] > 0) & (nearest[nearest] == rows) & (rows < nearest)
        if not merged.any():
            break
        parents = rows.copy()
        parents[nearest[merged]] = rows[merged]
        labels = renumber(np.where(labels >= 0, parents[labels], -1))
    return labels


def attached(features: PairFeatures, labels: Labels, rest: NDArray[np.int64], level: float) -> Labels:
    """Return the group that each title of REST shares most with, −1 for those that share too little."""
    if not len(rest) or labels.max(initial=-1) < 0:
        return np.full(len(rest), -1)
    profiles = Profiles.of_groups(features, labels)

    def search(block: NDArray[np.int64], _: int) -> tuple[Labels, Matrix]:
        similarities = profiles.similarities(features.letters[block], features.nouns[block])
        nearest = similarities.argmax(axis=1)
        return nearest, similarities[np.arange(len(block)), nearest]

    found = in_blocks(rest, features.size, search)
    nearest, similarities = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return np.where(similarities >= level, nearest, -1)


def cut_by_category(labels: Labels, categories: NDArray[np.object_], min_size: int) -> Labels:
    """Cut stories by category: parts of MIN_SIZE articles, or the largest one of two or more, remain."""
    parts: dict[tuple[int, str], list[int]] = {}
    for index, (label, category) in enumerate(zip(labels.tolist(), categories.tolist(), strict=True)):
        if label >= 0:
            parts.setdefault((label, category), []).append(index)
    largest: dict[int, tuple[int, str]] = {}
    for label, category in sorted(parts):
        best = largest.get(label)
        if best is None or len(parts[label, category]) > len(parts[best]):
            largest[label] = (label, category)
    cut = np.full(len(labels), -1)
    kept = [k for k in sorted(parts) if len(parts[k]) >= min_size or (largest[k[0]] == k and len(parts[k]) > 1)]
    for number, part in enumerate(kept):
        cut[parts[part]] = number
    return cut
