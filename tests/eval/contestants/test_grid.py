"""Every trained model is tuned by the same grid, on the same part of its own training split."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from downstream.finetuning.search import Choice, Grid, split_off_validation
from downstream.task import get_task, read_task
from eval.contestants import encoder as encoder_module
from eval.contestants import scratch as scratch_module
from eval.contestants.contestant import Job, load_leaderboard
from eval.contestants.scratch import Scratch
from eval.contestants.tfidf import Tfidf

NOWHERE = Path("/nonexistent")
GRID = Grid((16,), (1e-4,), (1,), regularisations=(0.25, 1, 64))


@pytest.mark.slow
def test_a_baseline_gets_the_strength_that_scores_highest_on_the_validation_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for name in ("nsmc-sample", "klue-sts-sample", "klue-nli-sample"):
        with subtests.test(task=name):
            task = get_task(name)
            data = read_task(task, NOWHERE)
            tuned = Tfidf(name="tfidf").with_grid(GRID, task, data.train, tmp_path / name)
            key, points = task.metrics[0].key, tuned.choice["points"]
            assert [point["regularisation"] for point in points] == list(GRID.regularisations)
            parts = split_off_validation(task, data.train, seed=0)
            for point in points:
                model = Tfidf(name="tfidf", regularisation=point["regularisation"])
                predictions = list(model.fit(task, parts.train.examples).predict(parts.eval.examples))
                assert point[key] == pytest.approx(task.metrics[0](predictions, parts.eval.golds))
            assert tuned.regularisation == points[int(np.argmax([point[key] for point in points]))]["regularisation"]
            assert len({point[key] for point in points}) > 1  # the strength matters
            recipe = tuned.recipe(task, data)
            assert recipe["grid"]["carved_examples"] == len(parts.eval.examples)
            assert Tfidf.from_recipe("tfidf", "", recipe) == tuned
            result = tuned.run(Job(tuned, task, 0, data, recipe), tmp_path).result
            assert result.recipe["grid"] == tuned.choice
            with monkeypatch.context() as patch:  # finished points are not computed again
                patch.setattr(Tfidf, "fit", lambda *_: pytest.fail("fitted again"))
                assert Tfidf(name="tfidf").with_grid(GRID, task, data.train, tmp_path / name) == tuned


def test_an_untuned_baseline_keeps_its_recipe() -> None:
    task = get_task("nsmc-sample")
    recipe = Tfidf(name="tfidf").recipe(task, read_task(task, NOWHERE))
    assert "grid" not in recipe
    assert "regularisation" not in recipe["settings"]


def test_a_model_without_pretraining_is_tuned_with_a_vocabulary_of_the_rest_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = get_task("nsmc-sample")
    train = read_task(task, NOWHERE).train
    seen: list[Any] = []
    monkeypatch.setattr(scratch_module, "build_scratch", lambda data, folder, **_: seen.append(data) or folder)

    def choose(*arguments: Any, **more: Any) -> Choice:
        seen.append((arguments[1], more["train"]))
        return Choice({"peak_lr": 1e-4, "epochs": 1, "batch_size": 16}, {"points": [{"peak_lr": 1e-4}]})

    monkeypatch.setattr(encoder_module, "choose", choose)
    tuned = Scratch(name="scratch").with_grid(GRID, task, train, tmp_path)
    rest, (source, whole) = seen
    validation = split_off_validation(task, train, seed=0).eval.examples
    assert not set(rest.train.examples) & set(validation)
    assert (source, whole) == (str(tmp_path / "encoder"), train)
    assert tuned.overrides(task)["peak_lr"] == 1e-4
    assert tuned.settings(task)["grid"] == {"points": [{"peak_lr": 1e-4}]}


def test_every_model_that_is_trained_here_takes_a_grid() -> None:
    kinds = {entry.kind: entry.takes_grid for entry in load_leaderboard().models.values()}
    assert {kind for kind, takes in kinds.items() if takes} >= {"encoder", "scratch", "tfidf"}
    assert not kinds["majority"]
