"""`--dry-run` of a study: time, memory and disk of its encoders and cells, from a few steps of each on this machine."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora.foundation.files import fingerprint
from downstream.task import Task, TaskData, get_task, read_task
from eval.cells.estimate import Speed, try_cell
from eval.cells.files import read_finished
from eval.cells.plan import plan_cells
from eval.contestants.encoder import Encoder
from eval.studies.page import ArmRecord
from eval.studies.run import MANIFEST, StudyRun
from pretraining.training.run import Run


@dataclass(frozen=True)
class ArmEstimate:
    """Cost of an arm, in seconds and bytes."""

    arm: str
    steps: int
    training_s: float
    memory_bytes: int
    disk_bytes: int
    device: str
    """Device of pretraining, or why there is none."""
    cells: int
    """Unfinished cells."""
    finetuning_s: float


def estimate(run: StudyRun) -> list[ArmEstimate]:
    """Estimate the unfinished work of each arm.

    Raises:
        SuiteError: an error that would stop the study, too.
    """
    estimator = _Estimator(run)
    return [estimator.arm(name) for name in run.study.arms]


def dry_run(run: StudyRun) -> str:
    """Return a Markdown table of the cost of each arm and of its cells."""
    estimates = estimate(run)
    lines = ["| arm | steps | hours | memory (GB) | disk (GB) | on | cells | hours of cells |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | --- | ---: | ---: |"]
    lines += [
        f"| {e.arm} | {e.steps:,} | {e.training_s / 3600:.2f} | {e.memory_bytes / 1e9:.2f} | "
        f"{e.disk_bytes / 1e9:.2f} | {e.device} | {e.cells} | {e.finetuning_s / 3600:.2f} |"
        for e in estimates
    ]
    hours = [sum(e.training_s for e in estimates) / 3600, sum(e.finetuning_s for e in estimates) / 3600]
    disk = sum(e.disk_bytes for e in estimates) / 1e9
    cells = sum(e.cells for e in estimates)
    lines += ["", f"{hours[0]:.2f} hours of pretraining, then {cells:,} cells of fine-tuning in {hours[1]:.2f} hours,"]
    lines += [f"{sum(hours):.2f} hours of this device in all; {disk:.2f} GB of disk."]
    return "\n".join(lines) + "\n"


class _Estimator:
    """Measures every shape and task once for all arms."""

    def __init__(self, run: StudyRun) -> None:
        self._run = run
        self._runs: set[Path] = set()
        self._speeds: dict[str, Speed] = {}

    def arm(self, name: str) -> ArmEstimate:
        study = self._run.study
        # First, because it copies the record of an arm that another study has finished.
        pretraining = self._pretraining(name)
        record = self._run.made(name)
        cells, seconds = 0, 0.0
        for task in map(get_task, study.tasks_of(name)):
            left = study.seeds - (self._num_finished(record, task) if record else 0)
            cells += left
            seconds += left * self._cell_s(name, task) if left else 0.0
        return ArmEstimate(arm=name, cells=cells, finetuning_s=seconds, **pretraining)

    def _num_finished(self, record: ArmRecord, task: Task) -> int:
        """Return the number of an arm's finished cells on a task; a cell of another recipe does not count."""
        [entry] = self._run.entries([record])
        recipe = fingerprint(entry.recipe(task, read_task(task, self._run.root)))
        found = [read_finished(self._run.out, cell.key) for cell in plan_cells([entry], [task], self._run.study.seeds)]
        return sum(result is not None and result.recipe_sha256 == recipe for result in found)

    def _pretraining(self, arm: str) -> dict[str, Any]:
        study = self._run.study
        nothing = {"steps": 0, "training_s": 0.0, "disk_bytes": 0, "memory_bytes": 0}
        if study.encoder_of(arm) or study.arms[arm].is_random:
            return nothing | {"device": ""}
        plan = self._run.plan(arm)
        if (plan.folder / MANIFEST).is_file() or self._run.finished(arm, plan):
            return nothing | {"device": "done"}
        if plan.folder in self._runs:
            return nothing | {"device": "the same run"}
        self._runs.add(plan.folder)
        phases = [phase for phase in (plan.first, plan) if phase and not (phase.folder / MANIFEST).is_file()]
        workers, cpu = self._run.num_workers, self._run.cpu
        found = [Run(p.recipe, p.folder, num_workers=workers, cpu=cpu).estimate() for p in phases]
        return {
            "steps": sum(phase.recipe.loop.steps for phase in phases),
            "training_s": sum(phase.training_s for phase in found),
            "disk_bytes": sum(phase.disk_bytes for phase in found),
            "memory_bytes": max(phase.memory_bytes for phase in found),
            "device": found[0].device,
        }

    def _cell_s(self, arm: str, task: Task) -> float:
        """Estimate the seconds of one cell from a trial with an encoder of the arm's shape."""
        study = self._run.study
        overrides = study.finetune_of(arm, task.name)
        data = read_task(task, self._run.root)
        entry = Encoder(name=arm, encoder=study.encoder_of(arm) or "", finetune=overrides)
        return self._speed(entry, task, data).cell_s(entry, task, data)

    def _speed(self, entry: Encoder, task: Task, data: TaskData) -> Speed:
        """Time an encoder on a task; times depend on shapes, not on weights."""
        recipe = None if entry.encoder else self._run.plan(entry.name).recipe
        # The tokenizer decides the length of inputs.
        shape = [recipe.model.model_dump(), recipe.data.tokenizer] if recipe else entry.encoder
        settings = entry.finetune_config(task).model_dump(exclude={"epochs", "train_examples", "peak_lr"})
        key = fingerprint([shape, task.name, settings])
        if key not in self._speeds:
            with tempfile.TemporaryDirectory(prefix="pressbert-") as folder:
                if recipe:
                    self._run.save_random_weights(recipe, Path(folder))
                    entry = entry.model_copy(update={"encoder": folder})
                self._speeds[key] = try_cell(entry, task, data, turns=2)
        return self._speeds[key]
