"""Finished cells on disk, and the gaps between them.

A cell is `results/TASK/MODEL/seed-N.json`, written whole or not at all, which is what makes a second run skip it. What
became of a cell that could not be filled is `missing/TASK/MODEL/seed-N.json`, until it is.
"""

import contextlib
import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from pydantic import ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import ResultError
from corpora.foundation.files import atomic_file, write_json
from downstream.finetuning.result import Result, read_result
from eval.cells.measurements import KINDS

Status: TypeAlias = Literal["ok", "failed", "unavailable"]
T = TypeVar("T")


class Gap(Config):
    """A cell that could not be filled, and why."""

    task: str
    model: str
    seed: int
    status: Literal["failed", "unavailable"]
    reason: str
    at: str
    """When that was found, in ISO 8601 and UTC."""


def cell_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return where a cell lies."""
    return out / "results" / task / model.replace("/", "--") / f"seed-{seed}.json"


def cell_paths(out: Path, task: str, seed: int) -> list[Path]:
    """Return the cells of all models on a task with a seed."""
    return sorted((out / "results" / task).glob(f"*/seed-{seed}.json"))


def gap_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return where the gap of a cell lies."""
    return out / "missing" / task / model.replace("/", "--") / f"seed-{seed}.json"


def find_cells(out: Path) -> tuple[list[Result], list[ResultError]]:
    """Read all cells under OUT, the newest last; damaged files are returned as errors, not hidden.

    A cell that does not say when it was finished gets the time its file was written.
    """
    cells, errors = [], []
    for path in sorted((out / "results").glob("*/*/seed-*.json")):
        try:
            cell = read_result(path)
        except ResultError as error:
            errors.append(error)
            continue
        if "finished" not in cell.environment:
            written = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
            environment = cell.environment | {"finished": written.isoformat(timespec="microseconds")}
            cell = cell.model_copy(update={"environment": environment})
        cells.append(cell)
    return sorted(cells, key=lambda cell: cell.environment["finished"]), errors


def write_gap(out: Path, gap: Gap) -> None:
    """Note that a cell could not be filled.

    Raises:
        ResultError: the file cannot be written.
    """
    retried(lambda: write_json(gap_path(out, gap.task, gap.model, gap.seed), gap.model_dump()))


def retried(write: Callable[[], T]) -> T:
    """Call WRITE, and again if another process has removed the empty folder it was about to write to.

    Raises:
        ResultError: it cannot write for any other reason.
    """
    for _ in range(100):
        try:
            return write()
        except ResultError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return write()


def read_gap(path: Path) -> Gap:
    """Read what `write_gap` wrote.

    Raises:
        ResultError: the file is damaged.
    """
    try:
        return Gap.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ResultError(path, "not the note of a missing cell", "delete it") from error


def drop_gap(out: Path, task: str, model: str, seed: int) -> None:
    """Remove the note of a cell that is finished now, if there is one."""
    path = gap_path(out, task, model, seed)
    if path.is_file():
        path.unlink(missing_ok=True)
        remove_empty(path.parent, levels=3)


def remove_empty(folder: Path, *, levels: int) -> None:
    """Remove FOLDER and the folders above it, LEVELS in all, up to the first that holds something."""
    with contextlib.suppress(OSError):  # not empty, or another process was quicker
        for empty in [folder, *folder.parents][:levels]:
            empty.rmdir()


def find_gaps(out: Path) -> list[Gap]:
    """Read the gaps under OUT but those whose cell was finished later.

    Raises:
        ResultError: a file is damaged.
    """
    gaps = [read_gap(path) for path in sorted((out / "missing").glob("*/*/seed-*.json"))]
    finished = {(c.task, c.model, c.seed): c.environment["finished"] for c in find_cells(out)[0]} if gaps else {}
    return [gap for gap in gaps if finished.get((gap.task, gap.model, gap.seed), "") < gap.at]


def merge_results(folders: Sequence[Path], out: Path) -> list[ResultError]:
    """Copy the finished cells and gaps of other leaderboard folders to OUT; of the same cell the newest stays.

    What was measured beside a cell goes with it. Nothing is run, and no byte of a cell is changed.

    Returns:
        What could not be read.

    Raises:
        ResultError: a folder holds no results, a gap is damaged, or OUT cannot be written.
    """
    errors: list[ResultError] = []
    for folder in folders:
        if not (folder / "results").is_dir() and not (folder / "missing").is_dir():
            raise ResultError(folder, "no results in it", "give folders that eval/run_all.py has written with --out")
        cells, damaged = find_cells(folder)
        errors += damaged
        present = {(cell.task, cell.model, cell.seed): cell.environment["finished"] for cell in find_cells(out)[0]}
        for cell in cells:
            key = (cell.task, cell.model, cell.seed)
            if present.get(key, "") < cell.environment["finished"]:
                copies = [(kind.path(folder, *key), kind.path(out, *key)) for kind in KINDS]
                for source, target in (*copies, (cell_path(folder, *key), cell_path(out, *key))):
                    if source.is_file():
                        with atomic_file(target, "wb") as file:
                            file.write(source.read_bytes())
        for gap in find_gaps(folder):
            write_gap(out, gap)
    return errors
