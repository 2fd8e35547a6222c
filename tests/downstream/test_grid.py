"""The grid: what is tried, what it is scored on, what is remembered, and that nothing is computed twice."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import downstream.finetuning.search
import downstream.grid
from corpora.foundation.errors import DataError, UsageError
from downstream.finetune import TaskData, read_task
from downstream.finetuning.result import read_result
from downstream.finetuning.search import GRIDS, Grid, choose, get_grid, split_off_validation
from downstream.finetuning.trainer import TrainingRun
from downstream.grid import finetune_by_grid
from downstream.task import FinetuneConfig, Split, TextExample, get_task

Fails = Callable[..., AbstractContextManager[None]]

NOWHERE = Path("/nonexistent")
TASK = get_task("nsmc-sample")
SMALL = Grid((8,), (1e-3, 1e-4), (1, 2))


@pytest.fixture(scope="module")
def data() -> TaskData:
    whole = read_task(TASK, NOWHERE)
    return TaskData(*(replace(s, examples=s.examples[:n]) for s, n in ((whole.train, 60), (whole.eval, 12))))


def ids(split: Split) -> set[str]:
    return {example.id for example in split.examples}


def test_the_grid_of_the_paper_is_the_papers() -> None:
    grid = GRIDS["paper"]
    assert (grid.batch_sizes, set(grid.peak_lrs), grid.epochs) == ((16, 32), {5e-5, 3e-5, 2e-5}, (3, 4))
    assert all(grid.epochs == tuple(sorted(grid.epochs)) for grid in GRIDS.values())
    assert max(GRIDS["small"].peak_lrs) > max(grid.peak_lrs)


def test_an_unknown_grid_names_the_nearest(fails: Fails) -> None:
    with fails(UsageError, "--grid", "'papper'", "'paper'"):
        get_grid("papper")


# --- the validation part ---


def test_parts_are_the_training_split_and_share_no_text(subtests: pytest.Subtests) -> None:
    for name in (
        "nsmc-sample",
        "klue-nli-sample",
        "korquad-sample",
        "korquad-qnli-sample",
    ):
        with subtests.test(name=name):
            task = get_task(name)
            train = task.read_split(task.train_split, NOWHERE)
            parts = split_off_validation(task, train, seed=0)
            assert ids(parts.train) | ids(parts.eval) == ids(train)
            assert not ids(parts.train) & ids(parts.eval)
            fields = ("context",) if name == "korquad-sample" else ("text", "pair")
            texts = [
                {getattr(example, field) for example in split.examples for field in fields} - {None}
                for split in (parts.train, parts.eval)
            ]
            assert not texts[0] & texts[1]
            assert 0.02 < len(parts.eval.examples) / len(train.examples) < 0.25


def test_another_seed_splits_off_another_part(data: TaskData) -> None:
    first, again, other = (split_off_validation(TASK, data.train, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert ids(first.eval) != ids(other.eval)
    assert first.eval.sha256 != other.eval.sha256 != data.train.sha256


def test_a_split_of_one_text_cannot_be_divided(fails: Fails) -> None:
    same = tuple(TextExample(str(k), "같다", None, "positive") for k in range(9))
    with fails(DataError, "nsmc-sample", "9 examples"):
        split_off_validation(TASK, Split(same, "0" * 64), seed=0)


# --- the search -----------------------------------------------------------------------------------------------------


class Scores:
    """Stands in for fine-tuning: a score for every setting, and a list of what was asked for."""

    def __init__(self, of: Callable[[FinetuneConfig], float | None]) -> None:
        self.of, self.asked, self.data = of, list[tuple[float, ...]](), list[TaskData]()

    def __call__(self, run: TrainingRun) -> Any:
        self.asked.append((run.config.batch_size, run.config.peak_lr, run.config.epochs))
        self.data.append(run.splits)
        run.out.mkdir(parents=True)
        return type("Scored", (), {"metrics": {"accuracy": self.of(run.config)}})


def search(tmp_path: Path, data: TaskData, encoder: Path, grid: Grid, of: Any) -> Any:
    scores = Scores(of)
    overrides = {"max_length": 32}
    return scores, choose(TASK, encoder, grid, out=tmp_path, train=data.train, overrides=overrides, run=scores)


def test_the_best_point_is_chosen_and_of_equals_the_first(
    tmp_path: Path, data: TaskData, standins: dict[str, Path]
) -> None:
    grid = Grid((8, 16), (1e-3, 1e-4), (1, 2))
    of = {(8, 1e-4, 2): 0.9, (16, 1e-3, 1): 0.9}
    scores, choice = search(
        tmp_path,
        data,
        standins["klue-bert"],
        grid,
        lambda c: of.get((c.batch_size, c.peak_lr, c.epochs), 0.1 * c.epochs),
    )
    assert choice.settings == {"max_length": 32, "batch_size": 8, "peak_lr": 1e-4, "epochs": 2}
    assert {"batch_size": 8, "peak_lr": 1e-3, "epochs": 1, "accuracy": 0.1} in choice.record["points"]
    assert choice.record["metric"] == "accuracy"
    assert len(choice.record["points"]) + len(choice.record["left_out"]) == 8
    # The reported split is never looked at: what is scored on is a part of the training split.
    for seen in scores.data:
        assert ids(seen.eval) < ids(data.train)
        assert ids(seen.train) | ids(seen.eval) == ids(data.train)
    json.dumps(choice.record)


def test_more_epochs_are_left_out_once_they_are_no_better(
    tmp_path: Path, data: TaskData, standins: dict[str, Path]
) -> None:
    curve = {1.0: 0.5, 2.0: 0.7, 3.0: 0.7, 4.0: 0.9}
    grid = Grid((8,), (1e-3,), (1, 2, 3, 4))
    scores, choice = search(tmp_path, data, standins["klue-bert"], grid, lambda c: curve[c.epochs])
    assert [epochs for _, _, epochs in scores.asked] == [1, 2, 3]
    assert choice.record["left_out"] == [{"batch_size": 8, "peak_lr": 1e-3, "epochs": 4}]
    assert choice.settings["epochs"] == 2


def test_an_undefined_score_is_never_chosen(tmp_path: Path, data: TaskData, standins: dict[str, Path]) -> None:
    _, choice = search(tmp_path, data, standins["klue-bert"], SMALL, lambda c: None if c.peak_lr == 1e-3 else 0.1)
    assert choice.settings["peak_lr"] == 1e-4


# --- the whole ------------------------------------------------------------------------------------------------------


def test_the_choice_is_in_the_result_and_a_second_run_computes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: TaskData, standins: dict[str, Path]
) -> None:
    asked: dict[str, Any] = {
        "out": tmp_path, "grid": SMALL, "seeds": (0, 1), "data": data, "overrides": {"max_length": 24}
    }  # fmt: skip
    results = finetune_by_grid(TASK, standins["klue-bert"], **asked)
    points = results[0].recipe["grid"]["points"]
    best = max(points, key=lambda point: point["accuracy"])
    assert {key: results[0].recipe["finetune"][key] for key in ("batch_size", "peak_lr", "epochs")} == {
        key: best[key] for key in ("batch_size", "peak_lr", "epochs")
    }
    assert [result.seed for result in results] == [0, 1]
    assert all(result.split == TASK.eval_split and result.num_examples == 12 for result in results)
    assert read_result(tmp_path / "seed-1" / "result.json") == results[1]
    # Of the points nothing stays but their results.
    assert {path.name for folder in (tmp_path / "points").iterdir() for path in folder.iterdir()} == {"result.json"}
    assert len(list((tmp_path / "points").iterdir())) == len(points)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr("downstream.finetuning.trainer._train", refuse)
    assert finetune_by_grid(TASK, standins["klue-bert"], **asked) == results


def test_the_command_prints_choice_and_scores(
    standins: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downstream.finetuning.search, "GRIDS", {"small": Grid((32,), (1e-3,), (0.2,))})
    arguments = ["nsmc-sample", "--model", str(standins["klue-bert"]), "--out", str(tmp_path), "--grid", "small"]
    assert downstream.grid.main([*arguments, "--set", "max_length=16"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["finetune"]["max_length"] == 16
    assert len(told["grid"]["points"]) == len(told["metrics"]) == 1
