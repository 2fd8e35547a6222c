"""Finished cells as one file, to be committed beside a report: whoever has it runs none of them again.

A cell of the archive counts where its recipe is still the one asked for, on whatever machine it was made.
"""

import lzma
import tarfile
import tempfile
from pathlib import Path

from corpora.foundation.errors import ResultError, cannot_write
from corpora.foundation.files import atomic_file, write_text
from eval.cells.files import merge_results
from eval.cells.measurements import KINDS

ARCHIVE = "cells.tar.xz"
"""Name of the file beside a report."""
CELLS = ("results", *(kind.name for kind in KINDS))
"""Folders of cells, and of what was measured beside them."""
ARMS = "arms"
"""Folder of the records of a study's arms, without which nobody could tell which encoder its cells are of."""


def restore(archive: Path, work: Path) -> None:
    """Put the cells of an archive into WORK; where both have a cell, the newer one stays, and WORK's record of an arm.

    Raises:
        ResultError: the archive is damaged, or WORK cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(archive, "r:xz") as file:
                file.extractall(folder, filter="data")
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
            fix = "delete it; all cells are run anew"
            raise ResultError(archive, f"no readable archive of cells ({error})", fix) from error
        for damaged in merge_results([Path(folder)], work):
            raise damaged
        for record in (Path(folder) / ARMS).glob("*.json"):
            if not (work / ARMS / record.name).is_file():
                write_text(work / ARMS / record.name, record.read_text(encoding="utf-8"))


def pack(work: Path, archive: Path) -> None:
    """Put the cells of WORK into an archive; the same cells give the same bytes.

    Raises:
        ResultError: the archive cannot be written.
    """

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname, entry.mode = 0, 0, 0, "", "", 0o644
        return entry

    try:
        with atomic_file(archive, "wb") as target, tarfile.open(fileobj=target, mode="w:xz") as file:
            cells = sorted(path for name in CELLS for path in (work / name).rglob("seed-*.json"))
            for path in (*sorted((work / ARMS).glob("*.json")), *cells):
                file.add(path, path.relative_to(work).as_posix(), filter=plain)
    except OSError as error:
        raise cannot_write(archive, error) from error
