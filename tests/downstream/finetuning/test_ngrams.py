"""The n-gram classifier: what it learns, and how sure it says it is."""

import numpy as np
import pytest

from downstream.finetuning.ngrams import UNSEEN, NgramClassifier

TEXTS = ["정말 좋다", "좋은 영화", "참 좋네요", "정말 나쁘다", "나쁜 영화", "참 나쁘네요"]
LABELS = ["긍정"] * 3 + ["부정"] * 3


def test_letters_tell_the_label() -> None:
    classifier = NgramClassifier(TEXTS, LABELS)
    assert classifier.predict(["좋아요", "나빠요", "좋은데"]) == ["긍정", "부정", "긍정"]


def test_probabilities_come_in_the_order_asked_for_and_sum_to_one() -> None:
    classifier = NgramClassifier(TEXTS, LABELS)
    one, other = (classifier.log_probabilities(["좋아요", "나빠요"], order) for order in (LABELS[::3], LABELS[::-3]))
    np.testing.assert_array_equal(one, other[:, ::-1])
    assert np.exp(one).sum(axis=1) == pytest.approx(1.0)
    assert one[0, 0] > one[0, 1]
    assert one[1, 0] < one[1, 1]


def test_a_label_without_a_text_is_all_but_impossible() -> None:
    found = NgramClassifier(TEXTS, LABELS).log_probabilities(["좋아요"], ["긍정", "중립", "부정"])
    assert found.shape == (1, 3)
    assert found[0, 1] == UNSEEN


def test_what_was_learned_is_counted() -> None:
    """`ab` and `b` have the n-grams a, b, ab: a weight and a coefficient each, and one intercept."""
    assert NgramClassifier(["ab", "b"], ["x", "y"]).num_parameters == 3 + 3 + 1
