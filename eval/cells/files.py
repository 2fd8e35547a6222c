"""Cells on disk: what is finished, and what failed.

A cell is `results/TASK/MODEL/seed-N.json`, written whole or not at all; a second run skips it. A cell that could not be
run is `missing/TASK/MODEL/seed-N.json` until it is finished, and `logs/TASK-MODEL-seed-N.txt` if there is more to say.
"""

import contextlib
import datetime
import logging
import re
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from pydantic import ValidationError

from corpora.foundation.config import Config
from corpora.foundation.errors import DataUnavailableError, ResultError, SuiteError, printable
from corpora.foundation.files import parse_signed, write_signed, write_text
from downstream.encoders.hub import EncoderUnavailableError
from downstream.finetuning.result import Result, read_result, whole_date

logger = logging.getLogger(__name__)

CellKey: TypeAlias = tuple[str, str, int]
"""Task, model and seed."""
Failure: TypeAlias = Literal["failed", "unavailable"]
Status: TypeAlias = Literal["ok", "failed", "unavailable"]
T = TypeVar("T")

NOT_MEASURED = "not measured"
"""Reason of a cell that is planned and that nobody has run."""
PART = re.compile(r"(?!\.)[^/\\\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]{1,200}")
"""A name of a task or model as a folder's: no way up, none to another root, nothing that steers a terminal."""
WRITE_ATTEMPTS = 100
"""How often a file is written again whose folder another process removes meanwhile."""


class FailedCell(Config):
    """A cell that could not be run, and why."""

    task: str
    model: str
    seed: int
    status: Failure
    reason: str
    at: str
    """Time of the failure, in ISO 8601 and UTC."""

    @property
    def key(self) -> CellKey:
        """Task, model and seed."""
        return self.task, self.model, self.seed


# --- paths ----------------------------------------------------------------------------------------------------------


def cell_file(out: Path, folder: str, task: str, model: str, seed: int) -> Path:
    """Return the path of one of the files of a cell.

    Raises:
        ResultError: the names would lead elsewhere.
    """
    name = model.replace("/", "--")
    for part in (task, name):
        if not PART.fullmatch(part):
            raise ResultError(out / folder, f"'{part[:60]}' is no name of a task or model", "give a plain name")
    return out / folder / task / name / f"seed-{seed}.json"


def cell_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return the path of a finished cell."""
    return cell_file(out, "results", task, model, seed)


def cell_paths(out: Path, task: str, seed: int) -> list[Path]:
    """Return the finished cells of all models on a task with a seed."""
    return sorted((out / "results" / task).glob(f"*/seed-{seed}.json"))


def failure_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return the path of a failed cell."""
    return cell_file(out, "missing", task, model, seed)


def log_path(out: Path, task: str, model: str, seed: int) -> Path:
    """Return the path of what a cell's process, or its traceback, says."""
    return out / "logs" / f"{task}-{model.replace('/', '--')}-seed-{seed}.txt"


def now() -> str:
    """Return the time in ISO 8601 and UTC, to the microsecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


# --- finished cells -------------------------------------------------------------------------------------------------


def find_cells(out: Path) -> tuple[list[Result], list[ResultError]]:
    """Read all cells under OUT, the newest last; damaged files are returned as errors.

    A cell without a time of its own gets that of its file.
    """
    cells, errors = [], []
    for path in sorted((out / "results").glob("*/*/seed-*.json")):
        try:
            cell = read_result(path)
            if cell_path(out, cell.task, cell.model, cell.seed) != path:
                what = f"it is the cell of {cell.model} on {cell.task} with seed {cell.seed}"
                raise ResultError(path, what, "delete it, or put it where it belongs")
        except ResultError as error:
            errors.append(error)
            continue
        if "finished" not in cell.environment:
            written = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
            environment = cell.environment | {"finished": written.isoformat(timespec="microseconds")}
            cell = cell.model_copy(update={"environment": environment})
        cells.append(cell)
    return sorted(cells, key=lambda cell: cell.environment["finished"]), errors


def read_finished(out: Path, key: CellKey, *, warn: bool = False) -> Result | None:
    """Return a finished cell of any recipe; None if it is missing or damaged, which is logged if WARN."""
    path = cell_path(out, *key)
    try:
        return read_result(path) if path.is_file() else None
    except ResultError as error:
        if warn:
            logger.warning("%s", error)
        return None


# --- failed cells ---------------------------------------------------------------------------------------------------


def record_failure(out: Path, key: CellKey, error: Exception | str) -> FailedCell:
    """Write why a cell could not be run.

    Args:
        out: folder of results.
        key: of the cell.
        error: exception, or the reason; the traceback of what is not a `SuiteError` goes to the cell's log.

    Raises:
        ResultError: the file cannot be written.
    """
    reason = str(error)
    if isinstance(error, Exception) and not isinstance(error, SuiteError):
        log = log_path(out, *key)
        retried(lambda: write_text(log, "".join(traceback.format_exception(error))))
        reason = f"{type(error).__name__}: {error}".splitlines()[0] + f"; see {log}"
    is_unavailable = isinstance(error, DataUnavailableError | EncoderUnavailableError)
    status: Failure = "unavailable" if is_unavailable else "failed"
    task, model, seed = key
    failed = FailedCell(task=task, model=model, seed=seed, status=status, reason=reason, at=now())
    write_failure(out, failed)
    return failed


def write_failure(out: Path, failed: FailedCell) -> None:
    """Write a failed cell.

    Raises:
        ResultError: the file cannot be written.
    """
    retried(lambda: write_signed(failure_path(out, *failed.key), failed.model_dump()))


def read_failure(path: Path) -> FailedCell:
    """Read a failed cell.

    Raises:
        ResultError: the file is damaged.
    """
    try:
        failed = FailedCell(**parse_signed(path.read_text(encoding="utf-8")))
        datetime.datetime.fromisoformat(whole_date(failed.at))
        for one in (failed.task, failed.model.replace("/", "--")):
            if not PART.fullmatch(one):
                raise ValueError(f"{one[:60]!r} is no name of a task or model")
    except (ValueError, TypeError) as error:
        detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error).splitlines()[0]
        raise ResultError(path, f"not the record of a failed cell ({detail})", "delete it") from error
    return failed.model_copy(update={"reason": printable(failed.reason)})


def find_failures(out: Path) -> list[FailedCell]:
    """Read the failed cells under OUT but those that were finished later.

    Raises:
        ResultError: a file is damaged.
    """
    failures = [read_failure(path) for path in sorted((out / "missing").glob("*/*/seed-*.json"))]
    cells = find_cells(out)[0] if failures else []
    finished = {(cell.task, cell.model, cell.seed): cell.environment["finished"] for cell in cells}
    return [failed for failed in failures if finished.get(failed.key, "") < failed.at]


def not_measured(out: Path, keys: Iterable[CellKey]) -> list[FailedCell]:
    """Return those of KEYS whose model has neither a finished nor a failed cell on the task, whatever the seed."""
    return [
        FailedCell(task=task, model=model, seed=seed, status="unavailable", reason=NOT_MEASURED, at="")
        for task, model, seed in keys
        if not any(path(out, task, model, seed).parent.is_dir() for path in (cell_path, failure_path))
    ]


def clear_failure(out: Path, key: CellKey) -> None:
    """Remove the records of earlier failures of a cell that is finished now."""
    _remove(failure_path(out, *key), levels=3)
    clear_log(out, key)


def clear_log(out: Path, key: CellKey) -> None:
    """Remove the log of a cell that no failure refers to."""
    _remove(log_path(out, *key), levels=1)


def _remove(path: Path, *, levels: int) -> None:
    if path.is_file():
        path.unlink(missing_ok=True)
        remove_empty(path.parent, levels=levels)


# --- folders that several processes share ---------------------------------------------------------------------------


def retried(write: Callable[[], T]) -> T:
    """Call WRITE, and again if another process has removed the empty folder it was about to write to.

    Raises:
        ResultError: it cannot write for any other reason.
    """
    for _ in range(WRITE_ATTEMPTS):
        try:
            return write()
        except ResultError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return write()


def remove_empty(folder: Path, *, levels: int) -> None:
    """Remove FOLDER and the folders above it, LEVELS in all, up to the first that is not empty."""
    with contextlib.suppress(OSError):  # not empty, or another process was quicker
        for empty in [folder, *folder.parents][:levels]:
            empty.rmdir()
