"""Groups among points: against the plain algorithms, by hand-made cases, and at the edges."""

from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.cluster import HDBSCAN
from sklearn.metrics import adjusted_rand_score

from apps.stories.clusters import ClusteringConfig
from apps.stories.grouping import (
    Density,
    Groups,
    Library,
    TypicalityScale,
    in_blocks,
    merge_centres,
    nearest,
    nearest_centres,
    neighbour_graph,
    refine,
    renumber,
    split_by_linkage,
    sub_stories,
)
from apps.stories.space import HybridFeatures

Points = NDArray[np.float32]


def unit(rows: NDArray[np.float64]) -> Points:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def bunches(
    sizes: tuple[int, ...] = (12, 9, 7, 5), spread: float = 0.15, dimension: int = 24
) -> tuple[Points, NDArray[np.int64]]:
    """Return points around some directions, and 20 that are anywhere."""
    random = np.random.default_rng(7)
    centres = random.standard_normal((len(sizes), dimension))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    rows = [
        centre + spread * random.standard_normal((size, dimension)) / np.sqrt(dimension) * 2
        for centre, size in zip(centres, sizes, strict=True)
    ]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    points = unit(np.vstack([*rows, random.standard_normal((20, dimension))]))
    return points, np.concatenate([labels, np.full(20, -1)])


def test_density_is_hdbscan_where_all_pairs_are_neighbours() -> None:
    for min_samples in [1, 3, 5]:
        for selection in ["leaf", "eom"]:
            points, _ = bunches()
            ours = Density(4, min_samples, len(points), selection)(points)
            distances = np.sqrt(np.maximum(2 - 2 * points.astype(np.float64) @ points.T, 0))
            np.fill_diagonal(distances, 0)
            plain = HDBSCAN(
                min_cluster_size=4,
                min_samples=min_samples,
                metric="precomputed",
                cluster_selection_method=selection,
                copy=True,
            )
            theirs = plain.fit(distances).labels_
            if min_samples > 1:
                assert adjusted_rand_score(ours, theirs) == pytest.approx(1), (min_samples, selection)
                assert np.array_equal(ours < 0, theirs < 0), (min_samples, selection)
            else:
                assert adjusted_rand_score(ours, theirs) > 0.8, (min_samples, selection)


def test_density_finds_bunches_and_leaves_the_rest() -> None:
    points, labels = bunches()
    found = Density(min_samples=3)(points)
    assert adjusted_rand_score(labels[labels >= 0], found[labels >= 0]) > 0.9
    assert np.mean(found[labels < 0] < 0) > 0.4


def test_what_the_default_takes_apart_is_joined_again() -> None:
    points, labels = bunches()
    found = Density()(points)
    settings = ClusteringConfig()
    better, _ = refine(
        points,
        found,
        min_size=settings.min_size,
        min_typicality=settings.min_typicality,
        join_at=settings.join_at,
    )
    scores = [adjusted_rand_score(labels[labels >= 0], some[labels >= 0]) for some in (found, better)]
    assert scores[0] < scores[1]
    assert scores[1] > 0.95
    assert np.mean(better[labels < 0] < 0) >= np.mean(found[labels < 0] < 0)


def test_density_takes_few_points() -> None:
    for size in [0, 1, 2, 3, 4]:
        points, _ = bunches()
        found = Density()(points[:size])
        assert found.shape == (size,), size
        assert (found < 0).all() or size >= 3, size


def test_equal_points_and_far_parts_make_no_trouble() -> None:
    equal = np.tile(unit(np.ones((1, 4))), (8, 1))
    opposite = np.vstack([equal, -equal])
    graph = neighbour_graph(opposite, 4)
    assert graph.data.min() > 0
    found = Density()(opposite)
    assert len(set(found[:8])) == len(set(found[8:])) == 1
    assert found[0] != found[8]


def test_hdbscan_and_scikit_learn_find_the_same_groups() -> None:
    random = np.random.default_rng(0)
    syllables = [chr(code) for code in range(ord("가"), ord("힣"), 97)]
    words = ["".join(random.choice(syllables, size)) for size in random.integers(2, 5, 400)]
    events = [random.choice(words, 5).tolist() for _ in range(50)]
    titles = [
        " ".join([*random.permutation(event)[:4], *random.choice(words, 2)]) for event in events for _ in range(6)
    ]
    vectors = random.standard_normal((len(titles), 16)).astype(np.float32)
    points = HybridFeatures(letter_weight=0.75).fit(titles, vectors).transform(titles, vectors)
    cases: tuple[dict[str, Any], ...] = ({}, {"min_samples": 4}, {"min_size": 5}, {"selection": "eom"})
    for settings in cases:
        ours, theirs = (Density(**settings, library=library)(points) for library in get_args(Library))
        assert len(set(ours.tolist())) > 5, settings
        assert adjusted_rand_score(ours, theirs) == 1.0, settings


def test_nearest_finds_what_sorting_finds() -> None:
    points, _ = bunches()
    indices, cosines = nearest(points, 5)
    similarities = points @ points.T
    np.fill_diagonal(similarities, -2)
    assert np.allclose(np.sort(cosines, axis=1), np.sort(similarities, axis=1)[:, -5:], atol=1e-6)
    assert np.allclose(np.take_along_axis(similarities, indices.astype(np.int64), axis=1), cosines, atol=1e-6)


def test_blocks_come_in_order_and_cover_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.stories.grouping.BLOCK_SIZE", 30)
    points = np.arange(70, dtype=np.float32).reshape(35, 2)
    blocks = in_blocks(points, 10, lambda block, first: (first, block[:, 0].tolist()))
    assert [first for first, _ in blocks] == list(range(0, 35, 3))
    assert [x for _, rows in blocks for x in rows] == points[:, 0].tolist()


def test_own_similarity_leaves_the_member_itself_out() -> None:
    points = unit(np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1], [1, 0, 1]]))
    groups = Groups.from_labels(points, np.array([5, 5, -1, 2, 2]))
    assert groups.labels.tolist() == [0, 0, -1, 1, 1]
    own = groups.own_similarities(points)
    assert own.tolist() == pytest.approx([0, 0, -1, np.sqrt(2 / 3), np.sqrt(2 / 3)], abs=1e-6)
    assert groups.sizes.tolist() == [2, 2]
    scale = TypicalityScale.from_groups(points, groups)
    assert scale.typicality(np.array([-0.1, 0.5, 1.0], np.float32)).tolist() == [0, 0.5, 1]
    # To the other centre, (1, 1, 0) and (2, 1, 2) made as long as 1.
    centres = np.array([[1, 1, 0], [1 + np.sqrt(1.5), 1, 1 + np.sqrt(1.5)]])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    strange = [points[0] @ centres[1], points[1] @ centres[1], points[3] @ centres[0], points[4] @ centres[0]]
    assert scale.strange.tolist() == pytest.approx(sorted(map(float, strange)), abs=1e-6)


def test_only_core_members_of_larger_groups_define_the_scale() -> None:
    points, _ = bunches()
    groups = Groups.from_labels(points, np.array([0, 0, 0, 1, *[-1] * (len(points) - 4)]))
    assert len(TypicalityScale.from_groups(points, groups).own) == 3
    assert len(TypicalityScale.from_groups(points, groups, np.arange(len(points)) != 1).own) == 2
    assert groups.own_similarities(points)[3] == 1


def test_no_one_has_to_leave_where_strangers_are_far_and_no_stranger_stays() -> None:
    tidy = TypicalityScale(np.linspace(0.8, 0.9, 101, dtype=np.float32), np.linspace(0, 0.2, 101, dtype=np.float32))
    mixed = TypicalityScale(np.linspace(0.2, 0.9, 101, dtype=np.float32), np.linspace(0, 0.6, 101, dtype=np.float32))
    assert tidy.level(0.1) == pytest.approx((0.81 + 0.19) / 2)
    assert mixed.level(0.2) == pytest.approx(0.34)
    # The median of the strangers is the least.
    assert mixed.level(0.1) == mixed.level(0) == pytest.approx(0.3)
    alone = TypicalityScale(tidy.own, np.zeros(0, np.float32))
    assert alone.level(0.1) == pytest.approx(0.81)


def test_without_groups_nothing_is_near() -> None:
    points, _ = bunches()
    groups = Groups.from_labels(points, np.full(len(points), -1))
    assert groups.centres.shape == (0, points.shape[1])
    scale = TypicalityScale.from_groups(points, groups)
    assert scale.typicality(np.array([0.9], np.float32)).tolist() == [0]
    assert scale.level(0.5) == scale.similarity_at(0.5) == 1.0
    positions, cosines = nearest_centres(points, groups.centres)
    assert set(positions.tolist()) == set(cosines.tolist()) == {-1}


def test_one_group_has_no_strangers() -> None:
    points, _ = bunches()
    scale = TypicalityScale.from_groups(points, Groups.from_labels(points, np.zeros(len(points), np.int64)))
    assert len(scale.strange) == 0
    assert len(scale.own) == len(points)


def test_labels_run_from_0_in_the_order_of_their_first_points() -> None:
    assert renumber(np.array([7, -1, 3, 7, 0])).tolist() == [0, -1, 1, 0, 2]
    assert renumber(np.zeros(0, np.int64)).tolist() == []


def test_refine_sends_away_joins_and_takes_in() -> None:
    points, labels = bunches((20, 20, 20), spread=0.1)
    found = labels.copy()
    stranger, lost = 60, [18, 19, 38, 39]
    found[stranger], found[lost] = 1, -1
    found[10:18] = 5  # one story found twice
    better, is_core = refine(points, found, min_size=3, min_typicality=0.03, join_at=0.5)
    assert better[stranger] == -1
    assert adjusted_rand_score(labels[:60], better[:60]) > 0.95
    assert (better[60:] < 0).all()
    assert not is_core[lost].any()
    assert is_core[10:18].all()


def test_refine_obeys_each_of_its_levels() -> None:
    # So wide that strangers are near enough for the quantile to decide.
    points, labels = bunches((20, 20, 20), spread=0.5)
    labels[10:20] = 5
    labels[38:40] = -1

    def count(**levels: float) -> tuple[int, int]:
        settings = {"min_typicality": 0.1, "join_at": 0.5, "min_size": 3} | levels
        better, _ = refine(points, labels, **settings)
        return len(set(better.tolist()) - {-1}), int((better < 0).sum())

    assert count(join_at=2)[0] == count()[0] + 1
    assert count(min_typicality=0.5)[1] > count()[1] > count(min_typicality=0)[1]
    assert count(min_size=19)[0] < count()[0]


def test_refine_uses_the_scale_of_other_stories() -> None:
    points, labels = bunches((20, 20, 20), spread=0.1)
    strict, _ = refine(
        points,
        labels,
        min_size=3,
        min_typicality=0.05,
        join_at=2,
        scale=TypicalityScale(np.full(9, 0.9999, np.float32), np.zeros(0, np.float32)),
    )
    assert (strict < 0).all()


def test_refine_without_groups_finds_none() -> None:
    points, _ = bunches()
    labels, is_core = refine(points, np.full(len(points), -1), min_size=3, min_typicality=0.05, join_at=0.25)
    assert (labels < 0).all()
    assert not is_core.any()


def test_centres_are_merged_as_by_average_linkage_of_all() -> None:
    for min_cosine in [0.2, 0.5, 0.8, 0.95]:
        points, _ = bunches((15, 15, 10), spread=0.4)
        distances = np.maximum(pdist(points.astype(np.float64), "cosine"), 0)
        theirs = fcluster(linkage(distances, "average"), 1 - min_cosine, criterion="distance")
        assert adjusted_rand_score(merge_centres(points, min_cosine), theirs) == pytest.approx(1), min_cosine
        assert adjusted_rand_score(split_by_linkage(points, min_cosine), theirs) == pytest.approx(1), min_cosine


def test_one_centre_is_joined_with_nothing() -> None:
    for size in [0, 1]:
        points, _ = bunches()
        assert (
            merge_centres(points[:size], 0.5).tolist() == split_by_linkage(points[:size], 0.5).tolist() == [0] * size
        ), size


def test_a_story_is_divided_into_parts_of_some_size(monkeypatch: pytest.MonkeyPatch) -> None:
    points, _ = bunches((8, 6, 2), spread=0.1)
    parts = sub_stories(points[:16], 0.7, 3)
    assert parts.tolist() == [0] * 8 + [1] * 6 + [-1] * 2
    monkeypatch.setattr("apps.stories.grouping.MAX_SPLIT", 10)
    assert (sub_stories(points[:16], 0.7, 3)[10:] < 0).all()
