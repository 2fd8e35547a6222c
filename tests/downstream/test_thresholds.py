"""Precision and recall at a threshold agree with scikit-learn; the interval with a published value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import precision_score, recall_score

from downstream.thresholds import threshold_points, wilson95


@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=40), st.integers(0, 10))
def test_counts_agree_with_scikit_learn(rows: list[tuple[int, bool]], tenths: int) -> None:
    scores, gold = [score / 10 for score, _ in rows], [positive for _, positive in rows]
    [point] = threshold_points(scores, gold, [tenths / 10])
    flagged = [score >= tenths / 10 for score in scores]
    if any(flagged):
        assert point.precision == pytest.approx(precision_score(gold, flagged, zero_division=0))
    else:
        assert point.precision is None
    if any(gold):
        assert point.recall == pytest.approx(recall_score(gold, flagged, zero_division=0))
    else:
        assert point.recall is None


def test_f1_is_the_harmonic_mean() -> None:
    [point] = threshold_points([0.9, 0.8, 0.7, 0.1], [True, True, False, True], [0.5])
    assert (point.precision, point.recall) == (2 / 3, 2 / 3)
    assert point.f1 == pytest.approx(2 / 3)
    assert threshold_points([], [], [0.5])[0].f1 is None


def test_wrong_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="scores for"):
        threshold_points([0.1], [True, False], [0.5])
    with pytest.raises(ValueError, match="not finite"):
        threshold_points([np.nan], [True], [0.5])


def test_the_interval_is_wilsons() -> None:
    # Newcombe 1998, table I, method 3: 81 of 263 and 0 of 20.
    assert wilson95(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson95(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson95(0, 0) is None
