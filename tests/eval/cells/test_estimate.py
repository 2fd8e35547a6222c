"""Times of unfinished cells: per example of a trial, times the examples, epochs and seeds of the task."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from corpora.foundation.errors import CheckpointError
from downstream.task import FinetuneConfig, Task, TaskData, few_shot_name, get_task, read_task
from eval.cells.estimate import TRIAL_EXAMPLES, estimate_cells, show_estimates, try_cell
from eval.cells.plan import plan_cells
from eval.cells.run import CellRunner
from eval.contestants.contestant import Contestant, Job, Outcome
from eval.contestants.majority import Majority
from eval.measures.noise import num_conditions

NSMC, STS = get_task("nsmc-sample"), get_task("klue-sts-sample")
NOWHERE = Path("/nonexistent")
TRAIN_S, EVAL_S = 0.25, 2.0
"""Seconds of an example."""


class Clocked(Contestant):
    """A model that guesses and says how long it took: as long as its examples take."""

    kind = "clocked"
    is_deterministic = False
    epochs: float = 1.0

    def finetune_config(self, task: Task) -> FinetuneConfig | None:
        return task.finetune.model_copy(update={"epochs": self.epochs, "train_examples": None})

    def with_overrides(self, overrides: dict[str, Any]) -> Contestant:
        return self.model_copy(update=overrides)

    def settings(self, task: Task) -> dict[str, Any]:
        return {"epochs": self.epochs, "task": task.name}

    def libraries(self) -> Sequence[str]:
        return ("numpy",)

    def run(self, job: Job, work: Path) -> Outcome:
        outcome = Majority(name=self.name).run(job, work)
        number = job.task.few_shot or len(job.data.train.examples)
        assert self.epochs == 1 or number > TRIAL_EXAMPLES
        times = {"train_s": TRAIN_S * self.epochs * number, "eval_s": EVAL_S * len(job.data.eval.examples)}
        return Outcome(outcome.result.model_copy(update=times), outcome.fitted)


class Starting(Clocked):
    """A model of which every run takes 2 s to start."""

    kind = "starting"

    def run(self, job: Job, work: Path) -> Outcome:
        outcome = super().run(job, work)
        trained, predicted = len(job.data.train.examples), len(job.data.eval.examples)
        times = {"train_s": 2 + 0.004 * self.epochs * trained, "eval_s": 2 + 0.001 * predicted}
        return Outcome(outcome.result.model_copy(update=times), outcome.fitted)


class Absent(Clocked):
    """A model without weights."""

    kind = "absent"

    def recipe(self, task: Task, data: TaskData) -> dict[str, Any]:
        raise CheckpointError(self.name, f"no weights for {task.name}, {data.sha256[:4]}", "get some")


@pytest.mark.usefixtures("ran")
def test_seconds_are_those_of_the_trial_for_all_examples_and_epochs(tmp_path: Path) -> None:
    model = Clocked(name="clocked", epochs=3)
    few = get_task(few_shot_name(NSMC, 16))
    cells = plan_cells([model, Majority(name="majority")], [NSMC, few], 2)
    found = {
        (one.task, one.model): one
        for one in estimate_cells(cells, root=NOWHERE, out=tmp_path / "out", with_noise=False)
    }
    data = read_task(NSMC, NOWHERE)
    num_train, num_eval = len(data.train.examples), len(data.eval.examples)
    assert num_train > TRIAL_EXAMPLES
    for task, trained in ((NSMC, num_train), (few, 16)):
        one = found[task.name, "clocked"]
        assert (one.num_cells, one.reason) == (2, "")
        assert one.cell_s == pytest.approx(3 * trained * TRAIN_S + num_eval * EVAL_S), task.name
    assert not (tmp_path / "out").exists()
    (noisy,) = estimate_cells(plan_cells([model], [NSMC], 1), root=NOWHERE, out=tmp_path)
    more = noisy.cell_s - found[NSMC.name, "clocked"].cell_s
    assert more == pytest.approx(num_conditions(NSMC) * num_eval * EVAL_S)


def test_finished_cells_take_no_time_and_cells_that_cannot_run_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    models: list[Contestant] = [Majority(name="majority"), Clocked(name="clocked"), Absent(name="absent")]
    CellRunner(plan_cells(models[:1], [STS], 1), root=NOWHERE, out=tmp_path).run()
    found = list(estimate_cells(plan_cells(models, [STS, get_task("korquad")], 2), root=tmp_path, out=tmp_path))
    assert [(one.num_cells, bool(one.cell_s), bool(one.reason)) for one in found] == [
        *((0, False, False), (2, True, False), (2, False, True)),
        *((1, False, True), (2, False, True), (2, False, True)),
    ]
    console = Console(width=120, file=io.StringIO())
    show_estimates(found, console, "en")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    seconds = 2 * found[1].cell_s
    assert f"2 cells left, about {seconds / 60:.0f} min on this machine" in text or f"about {seconds:.0f} s" in text
    assert "7 cells blocked" in text
    assert "→ absent: no weights" in text
    assert text.count("cannot run") == 4


def test_what_a_run_takes_to_start_is_not_multiplied_by_the_examples() -> None:
    data = read_task(NSMC, NOWHERE)
    assert len(data.train.examples) > 2 * TRIAL_EXAMPLES
    speed = try_cell(Starting(name="starting"), NSMC, data)
    assert (speed.train_s, speed.eval_s) == (pytest.approx(0.004), pytest.approx(0.001))


def test_a_trial_of_an_encoder_trains_and_predicts(tiny_encoder: Path) -> None:
    from eval.contestants.encoder import Encoder

    model = Encoder(name="tiny", encoder=str(tiny_encoder), finetune={"epochs": 7, "max_length": 16})
    speed = try_cell(model, NSMC, read_task(NSMC, NOWHERE))
    assert min(speed.train_s, speed.eval_s) > 0
    assert speed.train_s * TRIAL_EXAMPLES < 60
