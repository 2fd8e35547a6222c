"""Probabilities, and the weights of words: exact where the model adds up scores of words."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from corpora.foundation.errors import CheckpointError
from downstream.classify import MAX_OCCLUSIONS, Classifier
from downstream.encoders.hub import bundled
from downstream.runtimes.predictor import Predictor
from downstream.task import get_task

SCORES = {"좋았다": 2.0, "지루했다": -3.0, "배우": 0.25}


class AddingPredictor:
    """Its logits are sums over words: half of a word's score for `positive`, half against `negative`."""

    def __init__(self, task: str = "nsmc") -> None:
        self.finetuned = SimpleNamespace(task=get_task(task), family=get_task(task).family, folder=Path("model"))
        self.num_texts = 0

    def outputs(self, examples: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        self.num_texts += len(examples)
        sums = [sum(SCORES.get(word, 0.0) for word in example.text.split()) for example in examples]
        return [np.array([-s / 2, s / 2], dtype=np.float32) for s in sums], [{} for _ in sums]


def adding(task: str = "nsmc") -> tuple[Classifier, AddingPredictor]:
    predictor = AddingPredictor(task)
    return Classifier(cast(Predictor, predictor)), predictor


def test_probabilities_are_the_softmax() -> None:
    classifier, _ = adding()
    rows = classifier.probabilities(["배우 좋았다", "지루했다"])
    assert rows.sum(axis=1) == pytest.approx([1, 1])
    assert rows[:, 1] == pytest.approx([1 / (1 + np.exp(-2.25)), 1 / (1 + np.exp(3))])
    assert classifier.probabilities([]).shape == (0, 2)


def test_weights_are_what_the_log_odds_lose() -> None:
    classifier, _ = adding()
    text = "배우  좋았다 지루했다 그리고"
    weights = classifier.weigh(text, "positive")
    assert [text[w.start : w.end] for w in weights] == text.split()
    assert [w.weight for w in weights] == pytest.approx([0.25, 2, -3, 0])
    assert [w.weight for w in classifier.weigh(text, "negative")] == pytest.approx([-0.25, -2, 3, 0])


def test_a_long_text_is_weighed_in_groups_of_neighbours() -> None:
    classifier, predictor = adding()
    text = " ".join(["배우"] * 300)
    weights = classifier.weigh(text, "positive")
    assert predictor.num_texts <= MAX_OCCLUSIONS + 1
    assert sum(w.weight for w in weights) == pytest.approx(300 * 0.25)
    assert " ".join(text[w.start : w.end] for w in weights) == text


def test_an_empty_text_has_no_words_and_an_unknown_label_is_refused() -> None:
    classifier, _ = adding()
    assert classifier.weigh("   ", "positive") == []
    with pytest.raises(ValueError, match="choose from negative, positive"):
        classifier.weigh("좋았다", "neutral")


@pytest.mark.parametrize("task", ["klue-nli", "klue-sts", "korquad"])
def test_models_of_other_things_are_refused(task: str) -> None:
    with pytest.raises(CheckpointError, match="does not label single texts"):
        adding(task)


def test_paths_may_be_strings_and_texts_may_be_decomposed() -> None:
    classifier = Classifier.load(str(bundled("classifier")))
    text = "배우들 연기가 정말 좋았다"
    composed, decomposed = classifier.probabilities([text, unicodedata.normalize("NFD", text)])
    assert composed.tolist() == decomposed.tolist()
    assert classifier.is_cut(text) == classifier.is_cut(unicodedata.normalize("NFD", text))


def test_what_is_no_list_of_texts_is_refused() -> None:
    classifier = Classifier.load()
    for texts, what in (("배우", "a single string"), (["배우", None], "not a string"), ([1], "not a string")):
        with pytest.raises(ValueError, match=what):
            classifier.probabilities(cast(Any, texts))
