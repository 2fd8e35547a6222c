"""Retrieval: ranks of neighbours by hand, ties, and what models make of them."""

import numpy as np
import pytest
from scipy import sparse

from downstream.families import retrieval
from downstream.families.retrieval import RetrievalExample, rank_neighbours
from downstream.metrics import mrr, recall_at_1

TEXTS = ("비가 오나요?", "비가 옵니까?", "눈이 오나요?", "눈이 옵니까?")
EXAMPLES = [RetrievalExample(str(k), text, None, str(k // 2)) for k, text in enumerate(TEXTS)]


def test_the_rank_of_the_nearest_text_of_the_group_is_counted_among_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    angles = np.radians([0, 10, 4, 90, 100, 92])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # 0 is nearest to 2 (another group), then to 1; 3 is nearest to 5; 4 to 5, 3.
    groups = ["a", "a", "b", "b", "c", "c"]
    expected = [2, 2, 3, 4, 1, 2]
    assert rank_neighbours(vectors, groups) == expected
    assert rank_neighbours(sparse.csr_array(vectors), groups) == expected
    monkeypatch.setattr(retrieval, "BLOCK", 4)
    assert rank_neighbours(vectors, groups) == expected


def test_equal_vectors_score_worst_and_a_text_alone_in_its_group_ranks_last() -> None:
    assert rank_neighbours(np.ones((4, 1)), ["a", "a", "b", "b"]) == [3, 3, 3, 3]
    assert rank_neighbours(np.ones((3, 1)), ["a", "a", "b"]) == [2, 2, 3]
    assert rank_neighbours(np.ones((1, 1)), ["a"]) == [1]


def test_scores_are_means_of_reciprocal_ranks_and_of_first_ranks() -> None:
    golds = [example.gold for example in EXAMPLES]
    assert (recall_at_1([1.0, 2.0, 4.0, 1.0], golds), mrr([1.0, 2.0, 4.0, 1.0], golds)) == (0.5, 0.6875)
    assert (recall_at_1(golds, golds), mrr(golds, golds)) == (1.0, 1.0)
