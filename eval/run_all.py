"""Run the missing cells of models × tasks × seeds and write the leaderboard.

    python eval/run_all.py                                    # baselines on the embedded sample, a few minutes
    python eval/run_all.py --tasks nsmc --models tfidf majority --data DATA

A cell that fails or lacks its data is a row with its reason and never stops the rest. Finished cells are skipped.
"""

import os
import sys
from pathlib import Path

# Small models on a busy machine: threads that wait by spinning slow each other down tenfold.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if not __package__:
    # Run by path, Python puts eval/ on the path and not the root that holds the five packages.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import datetime
import logging
import shutil
import subprocess
import time
import traceback
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from corpora.official import data_root
from corpora.runtime import (
    EXIT_DONE,
    EXIT_FAILED_CELLS,
    ArgumentParser,
    DataUnavailableError,
    ResultError,
    SuiteError,
    UsageError,
    atomic_file,
    fingerprint,
    run_command,
    validate,
    write_text,
)
from downstream.encoders import EncoderUnavailableError
from downstream.finetune import TaskData, parse_overrides, read_task
from downstream.result import Result, read_result, write_result
from downstream.task import SAMPLE_SUFFIX, FinetuneConfig, Task, all_tasks, get_task
from eval.leaderboard import build_board, print_terminal, write_leaderboard
from eval.models import ModelEntry, cell_recipe, choose_models, load_leaderboard, run_cell
from eval.results import (
    LeaderboardFile,
    Row,
    Status,
    cell_path,
    find_cells,
    missing_rows,
    reported_rows,
    rows_of_cells,
)
from pretraining.machine import cpu_name, versions

logger = logging.getLogger(__name__)


class Run:
    """One call: which cells are asked for, where they go, and what became of them."""

    def __init__(
        self, models: Sequence[ModelEntry], tasks: Sequence[Task], *, seeds: int, root: Path, out: Path, keep: bool
    ) -> None:
        """Remember the question; nothing runs yet.

        Args:
            models: compared models.
            tasks: compared tasks.
            seeds: seeds per trained model.
            root: data root.
            out: folder of leaderboard and results.
            keep: whether fine-tuned models stay under `OUT/models/`.
        """
        self.models, self.tasks, self.seeds = models, tasks, seeds
        self.root, self.out, self.keep = root, out, keep
        self.finished: dict[tuple[str, str], list[Result]] = {}
        self.missing: dict[tuple[str, str], tuple[Status, str]] = {}
        self._done, self._skipped = 0, 0

    @property
    def num_cells(self) -> int:
        """Cells asked for."""
        return len(self.tasks) * sum(1 if model.is_deterministic else self.seeds for model in self.models)

    def fill(self) -> None:
        """Run every cell that is not finished, task by task."""
        for task in self.tasks:
            try:
                data = read_task(task, self.root)
            except SuiteError as error:
                for model in self.models:
                    self._miss(model, task, error)
                continue
            for model in self.models:
                self._fill_seeds(model, task, data)
        if self._skipped:
            self._tell(f"{self._skipped} of {self.num_cells} cells were finished before and skipped")

    def _fill_seeds(self, model: ModelEntry, task: Task, data: TaskData) -> None:
        for seed in range(1 if model.is_deterministic else self.seeds):
            try:
                result = self._fill_cell(model, task, data, seed)
            except ResultError:
                raise  # nothing can be written: going on would only lose more work
            except Exception as error:  # the edge: whatever one cell does, the others run
                self._miss(model, task, error)
                return
            self.finished.setdefault((task.name, model.name), []).append(result)

    def _fill_cell(self, model: ModelEntry, task: Task, data: TaskData, seed: int) -> Result:
        path = cell_path(self.out, task.name, model.name, seed)
        recipe = cell_recipe(model, task, data)
        if path.is_file():
            try:
                result = read_result(path)
            except ResultError as error:
                logger.warning("%s", error)  # a damaged cell is run anew, and the table says nothing else of it
            else:
                if result.recipe_sha256 == fingerprint(recipe):
                    self._done += 1
                    self._skipped += 1
                    return result
                self._tell(f"{model.name} · {task.name} · seed {seed}: the recipe changed, the cell is run anew")
        self._done += 1
        label = f"[{self._done}/{self.num_cells}] {model.name} · {task.name} · seed {seed}"
        self._tell(f"{label} …")
        # The recipe names the folder, so that an interrupted training is continued only by its own kind.
        work = self.out / "models" / task.name / model.name / f"seed-{seed}-{fingerprint(recipe)[:8]}"
        started = time.perf_counter()
        result = run_cell(model, task, data, recipe, seed=seed, work=work)
        write_result(path, result)
        if not self.keep:
            _remove(work, self.out)
        scores = ", ".join(f"{k}={'undefined' if v is None else f'{v:.4f}'}" for k, v in result.metrics.items())
        self._tell(f"{label}: {scores} ({time.perf_counter() - started:.1f} s)")
        return result

    def _miss(self, model: ModelEntry, task: Task, error: Exception) -> None:
        unavailable = isinstance(error, DataUnavailableError | EncoderUnavailableError)
        status: Status = "unavailable" if unavailable else "failed"
        reason = str(error) if isinstance(error, SuiteError) else f"{type(error).__name__}: {error}".splitlines()[0]
        if not isinstance(error, SuiteError):
            log = self.out / "logs" / f"{task.name}-{model.name.replace('/', '--')}.txt"
            write_text(log, "".join(traceback.format_exception(error)))
            reason += f"; see {log}"
        self.missing[task.name, model.name] = (status, reason)
        self._tell(f"{model.name} · {task.name}: {status}: {reason}")

    def rows(self) -> list[Row]:
        """Return the leaderboard's rows: all finished cells of the folder, this call's gaps, the published figures.

        Cells that another call put into the same folder stay in the table; a gap shows only where nothing is finished.
        """
        cells, damaged = find_cells(self.out)
        for error in damaged:
            self._tell(str(error))
        known = all_tasks()
        found: dict[tuple[str, str], list[Result]] = {}
        for cell in cells:
            if cell.task in known:
                found.setdefault((cell.task, cell.model), []).append(cell)
        found |= self.finished
        order = [task.name for task in self.tasks]
        names = order + sorted({task for task, _ in found} - set(order))
        models = [model.name for model in self.models]
        rows: list[Row] = []
        for name in names:
            for model in models + sorted({m for t, m in found if t == name} - set(models)):
                if (name, model) in found:
                    _, gap = self.missing.get((name, model), ("ok", ""))
                    note = f"일부 시드 실패: {gap}" if gap else ""
                    rows += [
                        row.model_copy(update={"note": note}) for row in rows_of_cells(known[name], found[name, model])
                    ]
                elif (name, model) in self.missing:
                    rows += missing_rows(known[name], model, *self.missing[name, model])
        return rows + reported_rows(known[name] for name in names)

    @staticmethod
    def _tell(line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def _remove(folder: Path, top: Path) -> None:
    """Remove FOLDER, and the folders above it below TOP that are empty then."""
    if not folder.exists():
        return  # baselines leave no model
    shutil.rmtree(folder, ignore_errors=True)
    for parent in folder.parents:
        if parent == top or any(parent.iterdir()):
            return
        parent.rmdir()


def manifest(argv: Sequence[str]) -> dict[str, Any]:
    """Return what the leaderboard was made with."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"versions": versions(), "git": _git_commit(), "device": device, "cpu": cpu_name(), "command": list(argv)}


def _git_commit() -> str:
    """Return the commit of the source tree, with `+` for local changes; empty outside a checkout."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return ""
    done = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=40"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def main(argv: list[str] | None = None) -> int:
    """Fill the cells, write and print the leaderboard; returns the exit code."""
    parser = ArgumentParser("eval/run_all.py", "Run the missing cells of models × tasks and write the leaderboard.")
    parser.add_argument(
        "--models", nargs="+", metavar="MODEL", help="keys of leaderboard.toml, KEY=FOLDER, folders or hub ids"
    )
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="e.g. nsmc korquad nsmc-sample")
    parser.add_argument("--seeds", type=int, help="seeds per trained model (default: leaderboard.toml)")
    parser.add_argument("--data", type=Path, help="data root; default PRESSBERT_DATA, else the user's cache")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder to write (default: reports)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override fine-tuning, e.g. --set epochs=1"
    )
    parser.add_argument("--keep-models", action="store_true", help="keep the fine-tuned models under OUT/models")
    arguments = parser.parse(argv)

    leaderboard = load_leaderboard()
    # Without arguments the embedded sample; with a data root at hand the published comparison.
    suffix = "" if arguments.data else SAMPLE_SUFFIX
    names = arguments.tasks or [name + suffix for name in leaderboard.tasks]
    tasks = list({task.name: task for task in map(get_task, names)}.values())
    quick = [name for name, entry in leaderboard.models.items() if entry.kind != "encoder"]
    models = choose_models(
        arguments.models or (list(leaderboard.models) if arguments.data else quick), leaderboard.models
    )
    overrides = parse_overrides(arguments.set)
    validate(FinetuneConfig, overrides, "--set")
    models = [model.with_overrides(overrides) for model in models]
    seeds = leaderboard.seeds if arguments.seeds is None else arguments.seeds
    if seeds < 1:
        raise UsageError("--seeds", f"{seeds} is less than 1", "give 1 or more")
    root = data_root(arguments.data)
    # Found out now rather than after an hour of training.
    with atomic_file(arguments.out / "results" / "probe"):
        pass
    (arguments.out / "results" / "probe").unlink()

    run = Run(models, tasks, seeds=seeds, root=root, out=arguments.out, keep=arguments.keep_models)
    run.fill()
    board_file = LeaderboardFile(
        schema=1,
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        manifest=manifest(sys.argv if argv is None else argv),
        rows=run.rows(),
    )
    write_leaderboard(arguments.out, board_file, leaderboard.tasks)
    # Piped, a table has no terminal to fit into.
    print_terminal(build_board(board_file.rows, leaderboard.tasks), Console(width=None if sys.stdout.isatty() else 120))
    sys.stderr.write(f"{arguments.out / 'leaderboard.html'}\n")
    return EXIT_FAILED_CELLS if run.missing else EXIT_DONE


if __name__ == "__main__":
    run_command(main)
