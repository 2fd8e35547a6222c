"""Scores without the examples that training text contains are those of the other examples scored alone."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpora.foundation.errors import ResultError
from corpora.foundation.files import write_json
from downstream.finetuning.result import Result, score
from downstream.metrics import bootstrap_ci95
from downstream.summaries.family import SentenceChoice
from downstream.task import Prediction, Split, Task, all_tasks, get_task
from eval.board.clean_scores import Touched, clean_score, with_clean_scores
from eval.board.rows import build_table
from eval.contamination.files import Pair, pair_path

Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
NSMC, NLI, STS = (get_task(f"{name}-sample") for name in ("nsmc", "klue-nli", "klue-sts"))


def evaluation(task: Task) -> Split:
    return task.read_split(task.eval_split, NOWHERE)


def result_of(task: Task, predictions: Sequence[Prediction], seed: int = 0) -> Result:
    split = evaluation(task)
    return score(
        task,
        split,
        predictions,
        model="pressbert-scratch",
        seed=seed,
        data_sha256=f"{'d' * 64}+{split.sha256}",
        recipe={},
        recipe_sha256="a" * 64,
        train_s=1,
        eval_s=1,
        device="cpu",
    )


def guesses(task: Task, seed: int) -> list[Prediction]:
    """Return every other gold, and for the rest the gold of another example."""
    golds = [gold[0] if isinstance(gold, tuple) else gold for gold in evaluation(task).golds]
    rng = np.random.default_rng(seed)
    return [golds[k] if rng.random() < 0.5 else golds[rng.integers(len(golds))] for k in range(len(golds))]


def touch(task: Task, positions: Sequence[int]) -> Touched:
    split = evaluation(task)
    return Touched(task.name, split.sha256, len(split.examples), frozenset(positions))


GUESSED = [task for task in all_tasks().values() if task.is_sample and not isinstance(task.family, SentenceChoice)]


def test_a_clean_score_is_that_of_the_other_examples_scored_alone() -> None:
    for task in GUESSED:
        predictions, golds = guesses(task, 1), evaluation(task).golds
        positions = [0, 3, 4, 10, len(golds) - 1]
        scores = clean_score(result_of(task, predictions), touch(task, positions), seed=5)
        assert list(scores) == [metric.key for metric in task.metrics], task.name
        groups = {
            "all": range(len(golds)),
            "clean": [k for k in range(len(golds)) if k not in positions],
            "touched": positions,
        }
        for metric in task.metrics:
            for name, group in groups.items():
                figure = getattr(scores[metric.key], name)
                ours, theirs = [predictions[k] for k in group], [golds[k] for k in group]
                where = (task.name, metric.key, name)
                assert figure.value == pytest.approx(metric(ours, theirs), abs=1e-12), where
                assert figure.num_examples == len(group), where
                known = evaluation(task).cluster_numbers
                clusters = None if known is None else [known[k] for k in group]
                expected = bootstrap_ci95(metric, [metric.columns(ours, theirs)], seed=5, clusters=clusters)
                assert figure.ci95 == pytest.approx(expected), where


def test_a_clean_score_averages_seeds() -> None:
    results = [result_of(NSMC, guesses(NSMC, seed), seed) for seed in (1, 2, 3)]
    touched = touch(NSMC, [1, 2, 3])
    each = [clean_score(result, touched)["accuracy"].clean.value for result in results]
    together = clean_score(results, touched)["accuracy"].clean
    assert len(set(each)) > 1
    assert together.value == pytest.approx(np.mean([value for value in each if value is not None]))
    assert together.value is not None
    assert together.ci95 is not None
    assert together.ci95[0] < together.value < together.ci95[1]


def test_a_score_on_no_examples_is_undefined_and_no_error() -> None:
    result = result_of(NSMC, guesses(NSMC, 1))
    nothing = clean_score(result, touch(NSMC, []))["accuracy"]
    assert (nothing.touched.value, nothing.touched.ci95, nothing.touched.num_examples) == (None, None, 0)
    assert nothing.clean == nothing.all
    everything = clean_score(result, touch(NSMC, range(140)))["accuracy"]
    assert (everything.clean.value, everything.clean.num_examples) == (None, 0)
    assert everything.touched == everything.all
    single = clean_score(result_of(STS, [1.0] * 70), touch(STS, [0]))
    assert single["pearson"].clean.value is None  # of a constant


def test_clean_scores_are_refused_for_another_task_or_other_data(fails: Fails) -> None:
    result = result_of(NSMC, guesses(NSMC, 1))
    with fails(ResultError, "pressbert-scratch on nsmc-sample, seed 0", "klue-nli-sample"):
        clean_score(result, touch(NLI, [0]))
    with fails(ResultError, "pressbert-scratch on nsmc-sample, seed 0", "other data"):
        clean_score(result, replace(touch(NSMC, [0]), data_sha256="b" * 64))
    with pytest.raises(ValueError, match="no result"):
        clean_score([], touch(NSMC, [0]))


def test_the_positions_of_a_pair_suffice_where_its_list_of_hits_is_an_excerpt(tmp_path: Path) -> None:
    result, touched = result_of(NSMC, guesses(NSMC, 1)), touch(NSMC, range(30))
    pair = Pair(
        task=NSMC.name,
        split=NSMC.eval_split,
        corpus="train",
        source="split",
        num_examples=touched.num_examples,
        data_sha256=touched.data_sha256,
        num_hits=30,
        positions=sorted(touched.positions),
        is_excerpt=True,
    )
    write_json(pair_path(tmp_path, NSMC.name, "train"), pair.model_dump(by_alias=True))
    table, pairs, errors = with_clean_scores(build_table([result], []), tmp_path)
    assert (pairs, errors) == ([pair], [])
    (figure,) = table.rows[0].clean
    expected = clean_score(result, touched)["accuracy"]
    assert (figure.value, figure.ci95, figure.touched_value) == (
        expected.clean.value,
        expected.clean.ci95,
        expected.touched.value,
    )
    assert figure.num_touched == 30
