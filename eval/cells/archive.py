"""Finished cells of other folders: merged, reused under another name, or packed as one file beside a report.

A cell of an archive counts where its recipe is still the one asked for, on whatever machine it was run.
"""

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from corpora.foundation.errors import ResultError, cannot_write
from corpora.foundation.files import atomic_file, fingerprint, write_text
from corpora.foundation.unpacking import pack_tar, unpack_tar
from downstream.finetuning.result import Result, read_result, write_result
from eval.cells.files import cell_path, cell_paths, find_cells, find_failures, write_failure
from eval.cells.measurements import MEASUREMENTS
from eval.contestants.contestant import Job

if TYPE_CHECKING:
    from tarfile import TarInfo

ARCHIVE = "cells.tar.xz"
"""Name of the file beside a report."""
CELLS = ("results", *(measurement.name for measurement in MEASUREMENTS))
"""Folders of cells, and of what was measured beside them."""
ARMS = "arms"
"""Folder of the records of a study's arms, which say of which encoder its cells are."""


def merge_results(folders: Sequence[Path], out: Path) -> list[ResultError]:
    """Copy the finished and failed cells of other leaderboard folders to OUT; of the same cell the newest stays.

    Measurements beside a cell are copied with it. Nothing is run, and no byte of a cell is changed.

    Returns:
        What could not be read.

    Raises:
        ResultError: a folder holds no results, the record of a failed cell is damaged, or OUT cannot be written.
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
                copies = [(one.path(folder, *key), one.path(out, *key)) for one in MEASUREMENTS]
                for source, target in (*copies, (cell_path(folder, *key), cell_path(out, *key))):
                    if source.is_file():
                        with atomic_file(target, "wb") as file:
                            file.write(source.read_bytes())
        for failed in find_failures(folder):
            write_failure(out, failed)
    return errors


def reuse_finished(job: Job, folders: Sequence[Path], out: Path) -> Result | None:
    """Write a cell that is finished in one of FOLDERS, there perhaps under another name of its model, into OUT.

    Raises:
        ResultError: it cannot be written.
    """
    for path in sorted(path for folder in folders for path in cell_paths(folder, job.task.name, job.seed)):
        with contextlib.suppress(ResultError):  # a damaged cell is reported by the comparison that it belongs to
            theirs = read_result(path)
            if fingerprint(theirs.recipe | {"model": job.model.name}) == job.recipe_sha256:
                named = {"model": job.model.name, "recipe": job.recipe, "recipe_sha256": job.recipe_sha256}
                ours = theirs.model_copy(update=named)
                write_result(cell_path(out, *job.key), ours)
                return ours
    return None


def restore(archive: Path, work: Path) -> None:
    """Unpack the cells of an archive into WORK; of a cell the newer one stays, of an arm WORK's record.

    Raises:
        ResultError: the archive is damaged, or WORK cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            unpack_tar(archive, Path(folder))
        except (ValueError, OSError) as error:
            fix = "delete it; all cells are run again"
            raise ResultError(archive, f"not a readable archive of cells ({error})", fix) from error
        for damaged in merge_results([Path(folder)], work):
            raise damaged
        for record in (Path(folder) / ARMS).glob("*.json"):
            if not (work / ARMS / record.name).is_file():
                write_text(work / ARMS / record.name, record.read_text(encoding="utf-8"))


def pack(work: Path, archive: Path) -> None:
    """Pack the cells of WORK into an archive; the same cells give the same bytes.

    Raises:
        ResultError: the archive cannot be written.
    """

    def plain(entry: "TarInfo") -> "TarInfo":
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.mode = 0, 0, 0, "", "", 0o644
        return entry

    try:
        with atomic_file(archive, "wb") as target, pack_tar(target) as file:
            cells = sorted(path for name in CELLS for path in (work / name).rglob("seed-*.json"))
            for path in (*sorted((work / ARMS).glob("*.json")), *cells):
                file.add(path, path.relative_to(work).as_posix(), filter=plain)
    except OSError as error:
        raise cannot_write(archive, error) from error
