"""Similarity without fine-tuning: cosines on the task's scale, lexical baselines, and results for the harness."""

import json
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from corpora.foundation.errors import DataUnavailableError, UsageError
from downstream.embed import Embedder, encode, main
from downstream.embeddings.similarity import (
    LEXICAL,
    evaluate_embedder,
    evaluate_lexical,
    jaccard_similarities,
    similarity_task,
    tfidf_similarities,
)
from downstream.finetuning.result import Result, read_result, write_result
from downstream.metrics import bootstrap_ci95
from downstream.task import Task, get_task

Fails = Callable[..., AbstractContextManager[None]]
NOWHERE = Path("/nonexistent")

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


@pytest.fixture(scope="module")
def embedder(standins: dict[str, Path]) -> Embedder:
    return Embedder.load(standins["klue-bert"])


@pytest.fixture(scope="module")
def task() -> Task:
    return get_task("klue-sts-sample")


@pytest.fixture(scope="module")
def result(embedder: Embedder, task: Task, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return evaluate_embedder(task, embedder, data=tmp_path_factory.mktemp("data"), name="mean")


def test_a_prediction_is_the_cosine_on_the_tasks_scale(result: Result, task: Task, embedder: Embedder) -> None:
    examples = task.read_split("dev", NOWHERE).examples
    one, two = (encode(texts, model=embedder) for texts in ([e.text for e in examples], [e.pair for e in examples]))
    cosines = [float(cosine_similarity([a], [b])[0, 0]) for a, b in zip(one, two, strict=True)]
    assert result.predictions == pytest.approx([5 * cosine for cosine in cosines], abs=1e-4)


def test_the_scores_are_scipys(result: Result, task: Task) -> None:
    golds = task.read_split("dev", NOWHERE).golds
    assert result.metrics["pearson"] == pytest.approx(stats.pearsonr(result.predictions, golds).statistic)
    assert result.metrics["spearman"] == pytest.approx(stats.spearmanr(result.predictions, golds).statistic)
    hits = sum(float(p) >= 3 and g >= 3 for p, g in zip(result.predictions, golds, strict=True))
    total = sum(float(p) >= 3 for p in result.predictions) + sum(g >= 3 for g in golds)
    assert result.metrics["f1"] == pytest.approx(2 * hits / total)


def test_the_result_is_one_of_the_harness(result: Result, task: Task, tmp_path: Path, embedder: Embedder) -> None:
    assert (result.model, result.task, result.split, result.num_examples) == ("mean", "klue-sts-sample", "dev", 70)
    assert result.data_sha256 == task.read_split("dev", NOWHERE).sha256
    assert result.recipe["embedder_sha256"] == embedder.sha256
    assert result.num_parameters == embedder.num_parameters
    for metric in similarity_task(task).metrics:
        columns = result.metric_columns(metric.key)
        assert metric.fold(columns) == pytest.approx(result.metrics[metric.key])
        low, high = bootstrap_ci95(metric, [columns], rounds=200) or (math.nan, math.nan)
        assert low < (result.metrics[metric.key] or math.nan) < high
    write_result(tmp_path / "seed-0.json", result)
    assert read_result(tmp_path / "seed-0.json") == result


def test_metrics_that_a_task_lacks_are_added_behind_its_own() -> None:
    assert [metric.key for metric in similarity_task("klue-sts").metrics] == ["pearson", "f1", "spearman"]
    assert [metric.key for metric in similarity_task("korsts").metrics] == ["spearman", "pearson"]


def test_tasks_without_pairs_and_missing_splits_are_named(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    with fails(UsageError, "nsmc", "not pairs with a similarity score", "korsts"):
        evaluate_embedder("nsmc", embedder, data=tmp_path)
    with fails(UsageError, "klue-nli-sample", "not pairs with a similarity score"):
        evaluate_lexical("klue-nli-sample", "tfidf", data=tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DataUnavailableError, match=r"sts-test\.tsv"):
        evaluate_embedder("korsts", embedder, data=tmp_path)


# --- lexical baselines ---------------------------------------------------------------------------------------------


def test_jaccard_is_the_share_of_common_ngrams() -> None:
    # Of one and two characters, spaces removed: {가, 나, 다, 가나, 나다}, {가, 나, 라, 가나, 나라}, three of seven.
    values = jaccard_similarities(
        ["가나 다", "가나다", "가나", "", "", "가"], ["가 나라", "가나다", "다라", "", "가", "가"]
    )
    assert values.tolist() == pytest.approx([3 / 7, 1, 0, 0, 0, 1])


def test_tfidf_is_scikit_learns_cosine(task: Task) -> None:
    examples = task.read_split("dev", NOWHERE).examples
    one, two = [e.text for e in examples], [e.pair or "" for e in examples]
    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True, lowercase=False)
    vectors = vectorizer.fit_transform(one + two)
    expected = np.diag(cosine_similarity(vectors[: len(one)], vectors[len(one) :]))
    assert tfidf_similarities(one, two) == pytest.approx(expected)


@given(pairs=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
def test_lexical_similarity_is_symmetric_and_between_zero_and_one(pairs: list[tuple[str, str]]) -> None:
    one, two = [a for a, _ in pairs] + ["예산"], [b for _, b in pairs] + ["예산"]
    for measure, similarities in LEXICAL.items():
        forwards = similarities(one, two)
        assert forwards == pytest.approx(similarities(two, one), abs=1e-12), measure
        assert (forwards > -1e-12).all(), measure
        assert (forwards < 1 + 1e-12).all(), measure
        assert forwards[-1] == pytest.approx(1), measure


def test_lexical_baselines_are_scored_on_the_same_pairs(result: Result, task: Task, tmp_path: Path) -> None:
    scores = {measure: evaluate_lexical(task, measure, data=tmp_path) for measure in LEXICAL}
    for measure, lexical in scores.items():
        assert (lexical.model, lexical.data_sha256) == (f"lexical-{measure}", result.data_sha256)
        assert lexical.metrics.keys() == result.metrics.keys()
        assert (lexical.metrics["pearson"] or 0) > 0.1
    assert scores["tfidf"].recipe_sha256 != scores["jaccard"].recipe_sha256


@pytest.mark.real_data
def test_the_lexical_bar_on_official_data(real_data: Path) -> None:
    measured = {
        (name, measure): evaluate_lexical(name, measure, data=real_data).metrics
        for name in ("korsts-dev", "klue-sts")
        for measure in LEXICAL
    }
    pearsons = {key: round(metrics["pearson"] or 0, 3) for key, metrics in measured.items()}
    assert pearsons == {
        ("korsts-dev", "tfidf"): 0.742,
        ("korsts-dev", "jaccard"): 0.645,
        ("klue-sts", "tfidf"): 0.455,
        ("klue-sts", "jaccard"): 0.302,
    }


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_line_for_each_model(embedder: Embedder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "klue-sts-sample", "--model", str(embedder.folder), "--lexical"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["model"] for line in lines] == ["klue-bert", "lexical-tfidf", "lexical-jaccard"]
    assert all(set(line["metrics"]) == {"pearson", "f1", "spearman"} for line in lines)
