"""Extractive summaries as a task: the sample's splits, what systems choose, and what that scores."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpora.foundation.errors import CheckpointError, DataError, UsageError
from corpora.foundation.files import SAMPLE_ROOT
from downstream.metrics import bootstrap_ci95
from downstream.summaries.evaluation import RULES, evaluate
from downstream.summaries.family import SentenceChoice, SummaryExample, choose_sentences, indices_of, to_prediction
from downstream.summarize import Summarizer
from downstream.task import Split, get_task

Fails = Callable[..., AbstractContextManager[None]]

TASK = get_task("news-summary-sample")


@pytest.fixture(scope="module")
def dev() -> Split:
    return TASK.read_split("dev", SAMPLE_ROOT)


def test_the_sample_s_splits_share_no_story_and_no_article_is_lost(dev: Split) -> None:
    train = TASK.read_split("train", SAMPLE_ROOT)
    assert (len(train.examples), len(dev.examples)) == (90, 30)
    assert not {e.article.group for e in train.examples} & {e.article.group for e in dev.examples}
    records = [json.loads(line) for line in (SAMPLE_ROOT / "news.jsonl").read_text("utf-8").splitlines()]
    assert {r["id"] for r in records} == {e.id for e in (*train.examples, *dev.examples)}
    assert train.sha256 != dev.sha256


def test_an_editor_s_choice_scores_one_and_an_empty_choice_zero(dev: Split) -> None:
    gold = [to_prediction(article.extractive) for article in dev.golds]
    assert {round(metric(gold, dev.golds), 9) for metric in TASK.metrics} == {1.0}
    for nothing in ("", "-1 -1 -1"):
        assert {metric([nothing] * len(gold), dev.golds) for metric in TASK.metrics} == {0.0}


def test_random_choices_score_the_chance_of_the_task(dev: Split) -> None:
    generator = np.random.default_rng(0)
    metric = TASK.metrics[0]
    lots = [
        [to_prediction(generator.permutation(len(a.sentences))[:3].tolist()) for a in dev.golds] for _ in range(200)
    ]
    assert np.mean([metric(lot, dev.golds) for lot in lots]) == pytest.approx(TASK.chance, abs=0.01)


def test_scores_are_those_of_the_summarizers_own_evaluation(dev: Split) -> None:
    theirs = {system.name: system for system in evaluate(Summarizer.load(), list(dev.golds), "summarizer")}
    assert {*RULES, "summarizer"} == set(theirs)
    for name, system in theirs.items():
        predictions = choose_sentences(name)(dev.examples)
        for key, metric in zip(("f1", "precision", "recall"), TASK.metrics, strict=False):
            assert metric(predictions, dev.golds) == pytest.approx(system.mean(key))
        rouge = {metric.key: metric for metric in TASK.metrics}["rouge_2_kiwi_morphemes"]
        # A summarizer that splits differently is scored on the editor's sentences here, on its own there.
        assert rouge(predictions, dev.golds) == pytest.approx(system.mean("rouge_2_kiwi-morphemes"), abs=0.01)


def test_the_interval_is_about_the_figure(dev: Split) -> None:
    metric, predictions = TASK.metrics[0], choose_sentences("lead-3")(dev.examples)
    interval = bootstrap_ci95(metric, [metric.columns(predictions, dev.golds)])
    assert interval is not None
    assert interval[0] < metric(predictions, dev.golds) < interval[1]


def test_predictions_are_indices_and_may_be_none() -> None:
    assert indices_of(to_prediction([4, -1, 0])) == [4, -1, 0]
    assert indices_of(to_prediction([])) == []


def test_an_article_without_a_choice_is_refused(dev: Split, fails: Fails) -> None:
    with fails(DataError, "here", "no sentence is chosen"):
        TASK.family.check(SummaryExample(replace(dev.golds[0], extractive=())), "here")


def test_an_encoder_with_a_head_is_refused_with_the_command_that_trains_one(fails: Fails) -> None:
    family = SentenceChoice()
    for refuse in (family.head_config, family.featurize, family.decode, family.logits):
        with fails(UsageError, "news-summary", "downstream.extractive train"):
            refuse()


def test_unknown_systems_and_models_are_named(tmp_path: Path, fails: Fails) -> None:
    with fails(UsageError, "system", "'lead-4' is unknown", "summarizer"):
        choose_sentences("lead-4")
    with fails(CheckpointError, str(tmp_path)):
        choose_sentences("summarizer", tmp_path)
