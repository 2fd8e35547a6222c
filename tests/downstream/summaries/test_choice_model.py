"""The conditional logit against its definition, solved by hand where that is possible."""

import math

import numpy as np
import pytest

from downstream.summaries.choice_model import fit_choices

NO_PENALTY = 1e9


def test_the_weight_of_one_feature_is_the_log_of_the_odds_within_articles() -> None:
    """Of two sentences, the one with the feature is chosen in three articles of four: odds of 3."""
    values = [np.array([[1.0], [0.0]])] * 4
    labels = [np.array([1.0, 0.0])] * 3 + [np.array([0.0, 1.0])]
    weights, bias = fit_choices(values, labels, [1.0] * 4, inverse_l2=NO_PENALTY)
    assert weights == pytest.approx([math.log(3)], abs=1e-3)
    # The scores are probabilities: they add up to the number of chosen sentences.
    scores = 1 / (1 + np.exp(-(np.concatenate(values) @ weights + bias)))
    assert scores.sum() == pytest.approx(4, abs=1e-6)


def test_only_differences_within_an_article_count() -> None:
    values = [np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]])]
    labels = [np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([1.0, 0.0])]
    weights, _ = fit_choices(values, labels, [1.0] * 3, inverse_l2=1.0)
    shifted, _ = fit_choices([value + 5.0 * k for k, value in enumerate(values)], labels, [1.0] * 3, inverse_l2=1.0)
    assert shifted == pytest.approx(weights, abs=1e-4)


def test_weights_of_articles_count_like_copies_and_the_penalty_shrinks() -> None:
    generator = np.random.default_rng(0)
    values = [generator.normal(size=(6, 2)) for _ in range(5)]
    labels = [np.array([1.0, 0, 1, 0, 0, 0]) for _ in values]
    weighted, bias = fit_choices(values, labels, [2.0, 1, 1, 1, 1], inverse_l2=1.0)
    copied, same_bias = fit_choices([values[0], *values], [labels[0], *labels], [1.0] * 6, inverse_l2=1.0)
    assert weighted == pytest.approx(copied, abs=1e-4)
    assert bias == pytest.approx(same_bias, abs=1e-4)
    shrunk, _ = fit_choices(values, labels, [1.0] * 5, inverse_l2=0.01)
    assert np.abs(shrunk).max() < np.abs(weighted).max()
