"""Run the cells of a leaderboard: one after another, in worker processes, or a share of them on each of many machines.

A cell is a model on a task with a seed. It is finished when its file is under `OUT/results`, written whole under a
lease of its own, so the folder is a queue that any number of processes and machines may share: none runs what another
runs or has run, each continues with the next free cell, and what a killed one has left is taken over. A cell that fails
leaves a record under `OUT/missing` and never stops the others.

Predictions of a trained cell follow from recipe and seed alone, on one kind of processor with one number of threads:
more threads add in another order, which changes the last digits.
"""

import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, EXIT_USER_MUST_FIX
from corpora.foundation.errors import ResultError
from corpora.foundation.files import package_path
from corpora.foundation.machine import use_one_device
from downstream.finetuning.result import Result, write_result
from downstream.finetuning.search import Grid
from downstream.task import Task, TaskData, get_task, read_task
from eval.cells.archive import reuse_finished
from eval.cells.files import (
    FailedCell,
    cell_path,
    clear_failure,
    clear_log,
    failure_path,
    log_path,
    read_failure,
    read_finished,
    record_failure,
    retried,
)
from eval.cells.leases import POLL_S as LEASE_POLL_S
from eval.cells.leases import LeaseTakenError, is_taken, leased
from eval.cells.manifest import origin
from eval.cells.measurements import MEASUREMENTS, Extra, missing_measurements, write_measurements
from eval.cells.workers import Worker, part_of_machine
from eval.contestants.contestant import Cell, Contestant, Job, Outcome, read_entry

RUN_ALL = package_path("eval", "run_all.py")
POLL_S = 0.05
T = TypeVar("T")


@dataclass
class CellRunner:
    """Runs cells of one folder."""

    cells: Sequence[Cell]
    """What is asked for, task by task and model by model."""
    root: Path
    """Data root."""
    out: Path
    """Folder of leaderboard and results."""
    keep: bool = False
    """Whether fine-tuned models stay under `OUT/models/`."""
    jobs: int = 1
    """Cells that run at once."""
    threads: int | None = None
    """CPU threads of each; default: all of them divided by `jobs`."""
    extras: Sequence[Extra] = ()
    """What to measure of every cell that is run, beside its score."""
    grid: Grid | None = None
    """Where the settings of pretrained encoders are selected, for each task, before their cells are run."""
    elsewhere: Sequence[Path] = ()
    """Folders of other comparisons, whose cells of the same recipe are reused."""
    recipes: dict[tuple[str, str], str] = field(default_factory=dict, init=False)
    """(task, model) → fingerprint of the recipe asked for."""
    failed: list[FailedCell] = field(default_factory=list, init=False)
    """Cells that could not be run."""
    _num_begun: int = field(default=0, init=False)
    _num_skipped: int = field(default=0, init=False)
    _num_of_other_code: int = field(default=0, init=False)
    _num_unmeasured: int = field(default=0, init=False)

    def run(self) -> None:
        """Run every cell that is not finished.

        Raises:
            ResultError: results cannot be written.
        """
        is_here = self.threads is None and self.jobs == 1
        if is_here and not all(cell.model.is_deterministic for cell in self.cells):
            use_one_device()
        # Without data, which whoever runs a cell later reads; cells that others run come last.
        queued = [
            Cell(job.model, job.task, job.seed) for job in self._unfinished() if not is_here or not self._run_here(job)
        ]
        if is_here:
            self._run_rest(queued)
        else:
            self._run_in_workers(queued)
        self._report_skipped()

    def unfinished(self) -> list[Job]:
        """Return the cells that `run` would run; those that cannot be run are in `failed`."""
        return list(self._unfinished())

    # --- what is left -----------------------------------------------------------------------------------------------

    def _unfinished(self) -> Iterator[Job]:
        for task, cells in groupby(self.cells, key=lambda cell: cell.task):
            yield from self._unfinished_of_task(task, list(cells))

    def _unfinished_of_task(self, task: Task, cells: Sequence[Cell]) -> Iterator[Job]:
        data = self._attempt(cells, lambda: read_task(task, self.root))
        if data is not None:
            for model, seeds in groupby(cells, key=lambda cell: cell.model):
                yield from self._unfinished_of_model(model, list(seeds), data)

    def _unfinished_of_model(self, model: Contestant, cells: Sequence[Cell], data: TaskData) -> Iterator[Job]:
        task = cells[0].task
        prepared = self._attempt(cells, lambda: self._prepare(model, task, data))
        if prepared is not None:
            for cell in cells:
                job = Job(prepared[0], task, cell.seed, data, prepared[1])
                self.recipes[task.name, model.name] = job.recipe_sha256
                if not self._is_finished(job):
                    yield job

    def _attempt(self, cells: Sequence[Cell], action: Callable[[], T]) -> T | None:
        """Return what ACTION returns; if it fails CELLS have failed, and the others run.

        Raises:
            ResultError: nothing can be written, and running on would only lose more work.
        """
        try:
            return action()
        except (ResultError, LeaseTakenError):
            raise
        except Exception as error:
            for cell in cells:
                self._fail(record_failure(self.out, cell.key, error))
            return None

    def _prepare(self, model: Contestant, task: Task, data: TaskData) -> tuple[Contestant, dict[str, Any]]:
        """Return a model, with settings of the grid if there is one, and its recipe on a task."""
        if self.grid is not None and model.takes_grid:
            folder = self.out / "grid" / task.name / model.name.replace("/", "--")
            label = f"{model.name} · {task.name}: choosing settings"
            report(f"{label} …")
            with leased(folder.with_name(f".{folder.name}.lease"), label):
                model = model.with_grid(self.grid, task, data.train, folder)
            report(f"{label}: " + ", ".join(f"{name}={value}" for name, value in model.overrides(task).items()))
        return model, model.recipe(task, data)

    def _is_finished(self, job: Job) -> bool:
        """Whether a cell is finished, here or elsewhere; then earlier failures are cleared."""
        found = read_finished(self.out, job.key, warn=True)
        if found is None or found.recipe_sha256 != job.recipe_sha256:
            found = reuse_finished(job, self.elsewhere, self.out) or found
        if found is None:
            return False
        if found.recipe_sha256 != job.recipe_sha256:
            report(f"{job.label}: the recipe changed; the cell is run again")
            return False
        self._num_begun += 1
        self._num_skipped += 1
        self._num_of_other_code += found.environment.get("code_sha256") not in {None, job.model.code_sha256(job.task)}
        self._num_unmeasured += bool(missing_measurements(self.out, job, self.extras))
        clear_failure(self.out, job.key)
        return True

    # --- running ----------------------------------------------------------------------------------------------------

    def _run_here(self, job: Job, *, is_waiting: bool = False) -> bool:
        """Run a cell, unless another process runs it and IS_WAITING is false; returns whether it was run."""
        if not is_waiting and is_taken(lease_path(self.out, job)):
            return False
        label = self._begin(job)
        started = time.perf_counter()
        try:
            result = self._attempt(
                [job],
                lambda: run_job(job, out=self.out, keep=self.keep, extras=self.extras, is_waiting=is_waiting),
            )
        except LeaseTakenError:
            self._num_begun -= 1
            return False
        if result is not None:
            self._report_scores(label, result, time.perf_counter() - started)
        return True

    def _run_rest(self, cells: Sequence[Cell]) -> None:
        """Run the cells that other processes had begun, each as soon as it is free."""
        waiting = deque(cells)
        while waiting:
            freed = next((cell for cell in waiting if not is_taken(lease_path(self.out, cell))), None)
            if freed is None:
                time.sleep(LEASE_POLL_S)
                continue
            waiting.remove(freed)
            for job in self._unfinished_of_task(freed.task, [freed]):
                self._run_here(job, is_waiting=True)

    def _run_in_workers(self, queued: Sequence[Cell]) -> None:
        """Run cells in processes of their own, `jobs` at once.

        Raises:
            ResultError: results cannot be written.
        """
        command = [str(RUN_ALL), "--orders", str(os.getpid())]
        # First seeds take longest, because more is measured of them; no worker is left alone with one at the end.
        waiting = deque(sorted(queued, key=lambda cell: cell.seed))
        workers = [Worker(command, part_of_machine(slot, self.jobs, self.threads)) for slot in range(self.jobs)]
        idle, running = deque(workers), list[tuple[Worker, Cell, str]]()
        try:
            while waiting or running:
                while idle and (cell := self._next_free(waiting)) is not None:
                    worker = idle.popleft()
                    retried(partial(worker.give, self._order(cell), log_path(self.out, *cell.key)))
                    running.append((worker, cell, self._begin(cell)))
                for ended in [one for one in running if not one[0].is_busy]:
                    running.remove(ended)
                    idle.append(ended[0])
                    self._collect(*ended)
                time.sleep(POLL_S)
        finally:
            for worker in workers:
                worker.end()

    def _next_free(self, waiting: deque[Cell]) -> Cell | None:
        """Take the first cell that no other process runs."""
        for cell in waiting:
            if not is_taken(lease_path(self.out, cell)):
                waiting.remove(cell)
                return cell
        return None

    def _order(self, cell: Cell) -> dict[str, Any]:
        return {
            "model": {"kind": cell.model.kind, **cell.model.model_dump(mode="json")},
            "task": cell.task.name,
            "seed": cell.seed,
            "data": str(self.root),
            "out": str(self.out),
            "keep": self.keep,
            "extras": self.extras,
        }

    def _collect(self, worker: Worker, cell: Cell, label: str) -> None:
        """Read what a worker that has ended its order leaves behind.

        Raises:
            ResultError: it could not write.
        """
        answer = worker.answer()
        code = answer if isinstance(answer, int) else answer["code"]
        if not isinstance(answer, int) and code == EXIT_USER_MUST_FIX:
            raise ResultError(**answer["error"])
        result, failure = read_finished(self.out, cell.key), failure_path(self.out, *cell.key)
        if code == EXIT_DONE and result is not None:
            clear_failure(self.out, cell.key)
            self._report_scores(label, result, worker.elapsed_s)
        elif code == EXIT_FAILED_CELLS and failure.is_file():
            failed = read_failure(failure)
            self._fail(failed)
            if str(worker.log) not in failed.reason:
                clear_log(self.out, cell.key)
        else:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            self._fail(record_failure(self.out, cell.key, f"its process {how}; see {worker.log}"))

    # --- messages ---------------------------------------------------------------------------------------------------

    def _begin(self, cell: Cell) -> str:
        self._num_begun += 1
        label = f"[{self._num_begun}/{len(self.cells)}] {cell.label}"
        report(f"{label} …")
        return label

    def _report_scores(self, label: str, result: Result, elapsed_s: float) -> None:
        scores = ", ".join(f"{k}={'undefined' if v is None else f'{v:.4f}'}" for k, v in result.metrics.items())
        report(f"{label}: {scores} ({elapsed_s:.1f} s)")

    def _fail(self, failed: FailedCell) -> None:
        """Remember a failed cell; the same reason is reported once for all seeds."""
        if not any((failed.task, failed.model, failed.reason) == (f.task, f.model, f.reason) for f in self.failed):
            report(f"{failed.model} · {failed.task}: {failed.status}: {failed.reason}")
        self.failed.append(failed)

    def _report_skipped(self) -> None:
        results = self.out / "results"
        for number, line in (
            (self._num_skipped, f"of {len(self.cells)} cells were finished before and skipped"),
            (
                self._num_of_other_code,
                f"of them were made by other code of the same version; to run them again, delete them under {results}",
            ),
            (
                self._num_unmeasured,
                "of them lack measurements, which need the trained model; to run and measure them, delete them under "
                f"{results}",
            ),
        ):
            if number:
                report(f"{number} {line}")


def report(line: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def run_job(
    job: Job, *, out: Path, keep: bool = False, extras: Sequence[Extra] = (), is_waiting: bool = True
) -> Result:
    """Run one cell under its lease and write its file, or return what another process has finished meanwhile.

    Args:
        job: what to run.
        out: folder of leaderboard and results.
        keep: whether the fine-tuned model stays under `OUT/models/`.
        extras: what to measure of the model beside its score.
        is_waiting: whether to wait for another process that runs the cell.

    Raises:
        LeaseTakenError: another process runs the cell, and IS_WAITING is false.
        ResultError: the result cannot be written.
        SuiteError: the model's folder is unusable.
    """
    task, model, seed = job.key
    # Named by the recipe, so that an interrupted training is continued only by the same one.
    work = out / "models" / task / model.replace("/", "--") / f"seed-{seed}-{job.recipe_sha256[:8]}"
    with leased(lease_path(out, job), job.label, is_waiting=is_waiting) as lease:
        result = read_finished(out, job.key)
        if result is None or result.recipe_sha256 != job.recipe_sha256:
            outcome = run_model(job, work)
            if not lease.is_held():
                # This process was stopped for so long that another took over: the cell is that one's.
                return run_job(job, out=out, keep=keep, extras=extras)
            write_measurements(out, job, outcome, extras)
            noted = outcome.result.environment | origin(job.model, job.task)
            result = outcome.result.model_copy(update={"environment": noted})
            # Last, because it is what finishes the cell.
            write_result(cell_path(out, *job.key), result)
            _remove_partial_files(out, job)
        if not keep:
            shutil.rmtree(work, ignore_errors=True)
    clear_failure(out, job.key)
    return result


def lease_path(out: Path, cell: Cell) -> Path:
    """Return the path of the lease on a cell."""
    return out / "models" / cell.task.name / cell.model.name.replace("/", "--") / f".seed-{cell.seed}.lease"


def run_model(job: Job, work: Path) -> Outcome:
    """Learn and predict a cell; see `Contestant.run`."""
    return job.model.run(job, work)


def _remove_partial_files(out: Path, job: Job) -> None:
    """Remove what killed processes left of this cell; no other process writes it while its lock is held."""
    for path in (cell_path(out, *job.key), *(measurement.path(out, *job.key) for measurement in MEASUREMENTS)):
        for part in path.parent.glob(f".{path.name}.*.part"):
            part.unlink()


def run_ordered(order: Mapping[str, Any]) -> dict[str, Any]:
    """Run the one cell that a parent process orders; returns its exit code, and if it could not write, why."""
    model = read_entry(order["model"]["name"], order["model"], "--orders")
    runner = CellRunner(
        [Cell(model, get_task(order["task"]), order["seed"])],
        root=Path(order["data"]),
        out=Path(order["out"]),
        keep=order["keep"],
        extras=order["extras"],
    )
    try:
        runner.run()
    except ResultError as error:
        return {"code": EXIT_USER_MUST_FIX, "error": {"where": error.where, "what": error.what, "fix": error.fix}}
    return {"code": EXIT_FAILED_CELLS if runner.failed else EXIT_DONE}
