"""Fill the cells of a leaderboard: one after another, in worker processes, or a share of them on each of many machines.

A cell is a model on a task with a seed. It is finished when its file lies under `OUT/results`, written whole under its
own lock, so that any number of processes and machines may work on the same folder: none runs what another runs or has
run, and a kill leaves finished cells and nothing else. A cell that cannot be filled leaves a note under `OUT/missing`
and never stops the others.

Predictions of a trained cell follow from recipe and seed alone, on one kind of processor with one number of threads:
sums over more threads are taken in another order and differ in their last digits.
"""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from corpora.foundation.command import EXIT_DONE, EXIT_FAILED_CELLS, EXIT_USER_MUST_FIX
from corpora.foundation.errors import DataUnavailableError, ResultError, SuiteError, cannot_write
from corpora.foundation.files import fingerprint, package_path, write_text
from downstream.encoders.hub import EncoderUnavailableError
from downstream.finetune import TaskData, read_task
from downstream.finetuning.result import Result, read_result, write_result
from downstream.grid import Grid
from downstream.task import Task, get_task
from eval.cells.files import Gap, cell_path, cell_paths, drop_gap, gap_path, read_gap, remove_empty, retried, write_gap
from eval.cells.manifest import now, origin
from eval.cells.measurements import COST, CURVES, KINDS, NOISE, SCHEMA, CostFile, CurveFile, NoiseFile
from eval.cells.workers import Worker, end_with, part_of_machine, use_one_device
from eval.contestants.contestant import Filled, ModelEntry, cell_recipe, code_sha256, run_cell
from eval.measures.noise import can_be_noised, robustness

logger = logging.getLogger(__name__)

RUN_ALL = package_path("eval", "run_all.py")
POLL_S = 0.05

Extra: TypeAlias = Literal["noise", "cost"]
EXTRAS: tuple[Extra, ...] = ("noise", "cost")
"""What can be measured of a model beside its score."""


@dataclass(frozen=True)
class Cell:
    """A model on a task with a seed."""

    model: ModelEntry
    task: Task
    seed: int

    @property
    def label(self) -> str:
        """Name in what is told."""
        return f"{self.model.name} · {self.task.name} · seed {self.seed}"

    @property
    def key(self) -> tuple[str, str, int]:
        """Task, model and seed, as in file names."""
        return self.task.name, self.model.name, self.seed


def plan_cells(models: Sequence[ModelEntry], tasks: Sequence[Task], seeds: int) -> list[Cell]:
    """Return the cells of models × tasks × seeds, task by task; a deterministic model has one seed.

    An embedder has cells on similarity tasks only, a summariser on summaries, a fine-tuned model on its own task.
    """
    return [
        Cell(model, task, seed)
        for task in tasks
        for model in models
        if model.applies_to(task)
        for seed in range(1 if model.is_deterministic else seeds)
    ]


def share_of(cells: Sequence[Cell], index: int, count: int) -> list[Cell]:
    """Return share INDEX of COUNT: every COUNT-th cell from the INDEX-th on, counted from 1.

    It follows from the plan alone, whatever is finished already, so that the shares of a job array never meet.
    """
    return list(cells[index - 1 :: count])


class Filler:
    """Fills cells of one folder, and remembers what became of each."""

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        root: Path,
        out: Path,
        keep: bool = False,
        jobs: int = 1,
        threads: int | None = None,
        extras: Sequence[Extra] = (),
        grid: Grid | None = None,
        elsewhere: Sequence[Path] = (),
    ) -> None:
        """Take note of the task; nothing runs yet.

        Args:
            cells: what is asked for.
            root: data root.
            out: folder of leaderboard and results.
            keep: whether fine-tuned models stay under `OUT/models/`.
            extras: what to measure of every cell that is run, beside its score.
            jobs: cells that run at once.
            threads: CPU threads of each; default: all of them divided by JOBS.
            grid: what the settings of pretrained encoders are chosen from, for each task, before their cells are run.
            elsewhere: folders of other comparisons, whose cells of the same recipe are taken over.
        """
        self.cells, self.root, self.out, self.keep = list(cells), root, out, keep
        self.jobs, self.threads, self.extras, self.grid = jobs, threads, tuple(extras), grid
        self.elsewhere = [folder for folder in elsewhere if folder != out]
        self.recipes: dict[tuple[str, str], str] = {}
        """(task, model) → fingerprint of the recipe asked for."""
        self.gaps: list[Gap] = []
        self._begun, self._skipped, self._aged, self._unmeasured = 0, 0, 0, 0

    def fill(self) -> None:
        """Run every cell that is not finished.

        Raises:
            ResultError: results cannot be written.
        """
        is_here = self.threads is None and self.jobs == 1
        if is_here and not all(cell.model.is_deterministic for cell in self.cells):
            use_one_device()
        queued: list[Cell] = []
        for cell, data, recipe in self._left():
            if is_here:
                self._fill_here(cell, data, recipe)
            else:
                queued.append(cell)
        self._fill_in_workers(queued)
        self._tell_skipped()

    def unfinished(self) -> list[Cell]:
        """Return the cells that `fill` would run; those that it could not are in `gaps`."""
        return [cell for cell, *_ in self._left()]

    def _left(self) -> Iterator[tuple[Cell, TaskData, dict[str, Any]]]:
        """Yield the cells that have to run, with the splits of their task and their recipe."""
        for task, group in groupby(self.cells, key=lambda cell: cell.task):
            cells = list(group)
            try:
                data = read_task(task, self.root)
            except SuiteError as error:
                for cell in cells:
                    self._miss(cell, error)
                continue
            for model, some in groupby(cells, key=lambda cell: cell.model):
                seeds = list(some)
                if self.grid is not None and model.kind == "encoder":
                    seeds = self._chosen(seeds, data, self.grid)
                for cell, recipe in self._unfinished(seeds, data):
                    yield cell, data, recipe

    def _tell_skipped(self) -> None:
        if self._skipped:
            self._tell(f"{self._skipped} of {len(self.cells)} cells were finished before and skipped")
        if self._aged:
            self._tell(
                f"{self._aged} of them were made by other code of the same version; "
                f"where that matters, delete them under {self.out / 'results'} to run them anew"
            )
        if self._unmeasured:
            self._tell(
                f"{self._unmeasured} of them lack what is measured beside the score; it takes the trained model, so "
                f"that they would have to be deleted under {self.out / 'results'} and run anew"
            )

    def _chosen(self, seeds: Sequence[Cell], data: TaskData, grid: Grid) -> list[Cell]:
        """Return the cells of a model on a task with settings of a grid; none if it cannot be gone through."""
        model, task = seeds[0].model, seeds[0].task
        folder = self.out / "grid" / task.name / model.name.replace("/", "--")
        label = f"{model.name} · {task.name}: choosing settings"
        self._tell(f"{label} …")
        try:
            with _locked(folder.with_name(f".{folder.name}.lock"), label):
                chosen = model.chosen(grid, task, data.train, folder)
        except ResultError:
            raise
        except Exception as error:  # the edge: whatever one model does, the others run
            for cell in seeds:
                self._miss(cell, error)
            return []
        self._tell(f"{label}: " + ", ".join(f"{name}={value}" for name, value in chosen.finetune.items()))
        return [replace(cell, model=chosen) for cell in seeds]

    def _unfinished(self, seeds: Sequence[Cell], data: TaskData) -> list[tuple[Cell, dict[str, Any]]]:
        """Return those cells of a model on a task that have to run, with their recipe."""
        if not seeds:
            return []
        model, task = seeds[0].model, seeds[0].task
        try:
            recipe = cell_recipe(model, task, data)
        except Exception as error:  # the edge: whatever one cell does, the others run
            for cell in seeds:
                self._miss(cell, error)
            return []
        self.recipes[task.name, model.name] = fingerprint(recipe)
        unfinished = []
        for cell in seeds:
            found = read_finished(self.out, cell, tell=True)
            if found is None or found.recipe_sha256 != fingerprint(recipe):
                found = take_over(cell, recipe, self.elsewhere, self.out) or found
            if found is not None and found.recipe_sha256 == fingerprint(recipe):
                self._begun += 1
                self._skipped += 1
                self._aged += found.environment.get("code_sha256") not in {None, code_sha256(model, task)}
                self._unmeasured += bool(unmeasured(self.out, cell, fingerprint(recipe), self.extras))
                drop_gap(self.out, *cell.key)
                self._drop_log(cell)
                continue
            if found is not None:
                self._tell(f"{cell.label}: the recipe changed, the cell is run anew")
            unfinished.append((cell, recipe))
        return unfinished

    def _fill_here(self, cell: Cell, data: TaskData, recipe: dict[str, Any]) -> None:
        label = self._begin(cell)
        started = time.perf_counter()
        try:
            result = fill_cell(cell, data, recipe, out=self.out, keep=self.keep, extras=self.extras)
        except ResultError:
            raise  # nothing can be written: going on would only lose more work
        except Exception as error:  # the edge, as above
            self._miss(cell, error)
        else:
            self._tell_scores(label, result, time.perf_counter() - started)
            self._drop_log(cell)

    def _begin(self, cell: Cell) -> str:
        self._begun += 1
        label = f"[{self._begun}/{len(self.cells)}] {cell.label}"
        self._tell(f"{label} …")
        return label

    def _tell_scores(self, label: str, result: Result, elapsed_s: float) -> None:
        scores = ", ".join(f"{k}={'undefined' if v is None else f'{v:.4f}'}" for k, v in result.metrics.items())
        self._tell(f"{label}: {scores} ({elapsed_s:.1f} s)")

    def _miss(self, cell: Cell, error: Exception) -> None:
        unavailable = isinstance(error, DataUnavailableError | EncoderUnavailableError)
        reason = str(error) if isinstance(error, SuiteError) else f"{type(error).__name__}: {error}".splitlines()[0]
        if not isinstance(error, SuiteError):
            retried(lambda: write_text(self._log_path(cell), "".join(traceback.format_exception(error))))
            reason += f"; see {self._log_path(cell)}"
        self._note(_gap(cell, "unavailable" if unavailable else "failed", reason))

    def _log_path(self, cell: Cell) -> Path:
        task, model, seed = cell.key
        return self.out / "logs" / f"{task}-{model.replace('/', '--')}-seed-{seed}.txt"

    def _drop_log(self, cell: Cell) -> None:
        """Remove what was logged of a cell that has come to its end, or of an earlier attempt."""
        path = self._log_path(cell)
        if path.is_file():
            path.unlink(missing_ok=True)
            remove_empty(path.parent, levels=1)

    def _note(self, gap: Gap) -> None:
        write_gap(self.out, gap)
        if not any((gap.task, gap.model, gap.reason) == (g.task, g.model, g.reason) for g in self.gaps):
            self._tell(f"{gap.model} · {gap.task}: {gap.status}: {gap.reason}")
        self.gaps.append(gap)

    # --- worker processes -------------------------------------------------------------------------------------------

    def _fill_in_workers(self, cells: Sequence[Cell]) -> None:
        """Run cells as commands of their own, JOBS at once.

        Raises:
            ResultError: results cannot be written.
        """
        waiting, slots = deque(cells), list(range(self.jobs))
        running: list[tuple[Worker, int, Cell, str]] = []
        try:
            while waiting or running:
                while waiting and slots:
                    cell, slot = waiting.popleft(), slots.pop(0)
                    running.append((self._start(cell, slot), slot, cell, self._begin(cell)))
                for ended in [one for one in running if not one[0].is_running]:
                    running.remove(ended)
                    worker, slot, cell, label = ended
                    slots.append(slot)
                    self._collect(worker, cell, label)
                time.sleep(POLL_S)
        finally:
            for worker, *_ in running:
                worker.end()

    def _start(self, cell: Cell, slot: int) -> Worker:
        order = {
            "model": cell.model.model_dump(),
            "task": cell.task.name,
            "seed": cell.seed,
            "data": str(self.root),
            "out": str(self.out),
            "keep": self.keep,
            "extras": self.extras,
            "parent": os.getpid(),
        }
        arguments = [str(RUN_ALL), "--cell", json.dumps(order, ensure_ascii=False)]
        part = part_of_machine(slot, self.jobs, self.threads)
        return retried(lambda: Worker(arguments, self._log_path(cell), part))

    def _collect(self, worker: Worker, cell: Cell, label: str) -> None:
        """Take note of what a worker that has ended leaves behind.

        Raises:
            ResultError: it could not write.
        """
        code, told = worker.outcome()
        if code == EXIT_USER_MUST_FIX and told:
            raise ResultError(**json.loads(told))
        result, note = read_finished(self.out, cell), gap_path(self.out, *cell.key)
        if code == EXIT_DONE and result is not None:
            self._tell_scores(label, result, worker.elapsed_s)
        elif code == EXIT_FAILED_CELLS and note.is_file():
            self._note(read_gap(note))
        else:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            self._note(_gap(cell, "failed", f"its process {how}; see {worker.log}"))
        if not any(str(worker.log) in gap.reason for gap in self.gaps):
            self._drop_log(cell)

    @staticmethod
    def _tell(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _gap(cell: Cell, status: Literal["failed", "unavailable"], reason: str) -> Gap:
    task, model, seed = cell.key
    return Gap(task=task, model=model, seed=seed, status=status, reason=reason, at=now())


def read_finished(out: Path, cell: Cell, *, tell: bool = False) -> Result | None:
    """Return a cell's result if its file is there and sound; a damaged one is logged if asked, and run anew."""
    path = cell_path(out, *cell.key)
    if not path.is_file():
        return None
    try:
        return read_result(path)
    except ResultError as error:
        if tell:
            logger.warning("%s", error)
        return None


def take_over(cell: Cell, recipe: dict[str, Any], folders: Sequence[Path], out: Path) -> Result | None:
    """Write a cell that is finished in one of FOLDERS, there perhaps under another name of its model, into OUT.

    Raises:
        ResultError: it cannot be written.
    """
    for path in sorted(path for folder in folders for path in cell_paths(folder, cell.task.name, cell.seed)):
        with contextlib.suppress(ResultError):  # one that is damaged is told by whom it belongs to
            theirs = read_result(path)
            if fingerprint(theirs.recipe | {"model": cell.model.name}) == fingerprint(recipe):
                named = {"model": cell.model.name, "recipe": recipe, "recipe_sha256": fingerprint(recipe)}
                ours = theirs.model_copy(update=named)
                write_result(cell_path(out, *cell.key), ours)
                return ours
    return None


def fill_cell(
    cell: Cell,
    data: TaskData,
    recipe: dict[str, Any],
    *,
    out: Path,
    keep: bool = False,
    extras: Sequence[Extra] = (),
) -> Result:
    """Run one cell under its lock and write its file; returns what another process has finished meanwhile instead.

    Args:
        cell: what to run.
        data: the task's splits.
        recipe: of `cell_recipe`.
        out: folder of leaderboard and results.
        keep: whether the fine-tuned model stays under `OUT/models/`.
        extras: what to measure of the model beside its score.

    Raises:
        ResultError: the result cannot be written.
        SuiteError: the encoder is unusable.
    """
    task, model, seed = cell.key
    path = cell_path(out, *cell.key)
    # The recipe names the folder, so that an interrupted training is continued only by its own kind.
    work = out / "models" / task / model.replace("/", "--") / f"seed-{seed}-{fingerprint(recipe)[:8]}"
    with _locked(work.parent / f".seed-{seed}.lock", cell.label):
        result = read_finished(out, cell)
        if result is None or result.recipe_sha256 != fingerprint(recipe):
            filled = run_cell(cell.model, cell.task, data, recipe, seed=seed, work=work)
            _measure(cell, data, filled, fingerprint(recipe), out=out, extras=extras)
            noted = filled.result.environment | origin(cell.model, cell.task)
            result = filled.result.model_copy(update={"environment": noted})
            # Last, because it is what makes the cell a finished one.
            write_result(path, result)
            for written in (path, *(kind.path(out, *cell.key) for kind in KINDS)):
                for torn in written.parent.glob(f".{written.name}.*.part"):
                    torn.unlink()  # of a write that was killed; nobody else writes here while the lock is held
        drop_gap(out, *cell.key)
        if not keep:
            shutil.rmtree(work, ignore_errors=True)
    return result


def unmeasured(out: Path, cell: Cell, recipe_sha256: str, extras: Sequence[Extra]) -> list[Extra]:
    """Return those of EXTRAS that are to be measured of a cell and have no file yet; speed is of the first seed."""
    is_there = {
        "noise": not can_be_noised(cell.task) or NOISE.is_there(out, cell.key, recipe_sha256),
        "cost": cell.seed > 0 or COST.is_there(out, cell.key, recipe_sha256),
    }
    return [extra for extra in extras if not is_there[extra]]


def _measure(
    cell: Cell, data: TaskData, filled: Filled, recipe_sha256: str, *, out: Path, extras: Sequence[Extra]
) -> None:
    """Measure what is missing beside the score. What an earlier run that was killed has measured stays."""
    task, model, seed = cell.key
    about: dict[str, Any] = {"schema": SCHEMA, "task": task, "model": model, "seed": seed}
    about["recipe_sha256"] = recipe_sha256
    if filled.curve:
        CURVES.write(out, CurveFile(**about, points=list(filled.curve)))
    missing = unmeasured(out, cell, recipe_sha256, extras)
    if not missing:
        return
    fitted, examples = filled.fitted(), data.eval.examples
    if "noise" in missing:
        NOISE.write(out, NoiseFile(**about, robustness=robustness(cell.task, examples, fitted.predict)))
    if "cost" in missing:
        COST.write(out, CostFile(**about, cost=fitted.cost(examples), train_s=filled.result.train_s))


@contextlib.contextmanager
def _locked(path: Path, label: str) -> Iterator[None]:
    """Hold the lock of PATH, which the system lets go of when a process ends in whatever way.

    The file and the folders made for it are gone afterwards.
    """
    with _open_lock(path, label):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    remove_empty(path.parent, levels=3)


def _open_lock(path: Path, label: str) -> IO[str]:
    is_told = False
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a", encoding="utf-8")
        except FileNotFoundError:
            continue  # another process removed the folder in between
        except OSError as error:
            raise cannot_write(path, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if is_told else fcntl.LOCK_NB))
        except BlockingIOError:
            file.close()
            sys.stderr.write(f"{label}: another process runs it; waiting\n")
            is_told = True
            continue
        except OSError as error:
            # Some network file systems know no locks. Cells are still written whole.
            logger.warning("%s: no locks here (%s); do not run the same cells twice at once", path, error)
            return file
        # Whoever held it before has removed the file: a lock on that name counts no more.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        file.close()


def run_worker(order: str) -> int:
    """Fill the one cell that a parent process orders; returns the exit code.

    Why it cannot write goes to stdout for the parent, which has to stop then.
    """
    wanted = json.loads(order)
    end_with(wanted["parent"])
    cell = Cell(ModelEntry(**wanted["model"]), get_task(wanted["task"]), wanted["seed"])
    filler = Filler(
        [cell], root=Path(wanted["data"]), out=Path(wanted["out"]), keep=wanted["keep"], extras=wanted["extras"]
    )
    try:
        filler.fill()
    except ResultError as error:
        sys.stdout.write(json.dumps({"where": error.where, "what": error.what, "fix": error.fix}))
        return EXIT_USER_MUST_FIX
    return EXIT_FAILED_CELLS if filler.gaps else EXIT_DONE
