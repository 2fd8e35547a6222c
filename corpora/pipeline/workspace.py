"""Results of tasks on disk: a folder a task, with a mark that names the digest of every file in it.

A task's folder appears whole, under the digest of all that decides its content. So a kill costs the tasks that were
running, any number of processes and machines may share a workspace, and work is used again where nothing changed.
"""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import DataError, cannot_write
from corpora.foundation.files import fingerprint, sha256

MARK = "mark.json"
"""Of a finished task: its counts, and size and digest of its files."""
NPY_HEADER = 128
"""Bytes of a file of NumPy without elements."""


class TaskFolder:
    """The folder of a task while it runs."""

    def __init__(self, path: Path) -> None:
        """Take an empty folder."""
        self.path = path
        self.counts: dict[str, Any] = {}
        """What is known of the result without its files; it must be JSON."""

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """Write an array as a file of NumPy."""
        with (self.path / name).open("wb") as file:
            np.save(file, array, allow_pickle=False)

    def write_records(self, name: str, records: Iterator[Mapping[str, Any]] | list[dict[str, Any]]) -> None:
        """Write records as JSON lines."""
        with (self.path / name).open("w", encoding="utf-8") as file:
            for record in records:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")


class Workspace:
    """Folders of tasks, by stage and key."""

    def __init__(self, root: Path) -> None:
        """Open the workspace in ROOT, which need not exist."""
        self.root = root
        self._checked: dict[Path, int] = {}

    def folder(self, stage: str, key: str) -> Path:
        """Return the folder of a finished task."""
        return self.root / stage / key

    def is_finished(self, stage: str, key: str) -> bool:
        """Whether a task is finished, and its files have their recorded sizes."""
        folder = self.folder(stage, key)
        if not (folder / MARK).is_file():
            return False
        files = self._mark(folder)["files"]
        sizes_hold = all(
            (folder / name).is_file() and (folder / name).stat().st_size == size for name, (size, _) in files.items()
        )
        if not sizes_hold:
            shutil.rmtree(folder)
        return sizes_hold

    @contextlib.contextmanager
    def task(self, stage: str, key: str) -> Iterator[TaskFolder]:
        """Give a folder to write to; at the end it becomes that of the finished task.

        Raises:
            ResultError: the disk is full or cannot be written.
        """
        parent = self.root / stage
        scratch: Path | None = None
        try:
            parent.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=parent))
            task = TaskFolder(scratch)
            yield task
            files = {path.name: (path.stat().st_size, sha256(path)) for path in sorted(scratch.iterdir())}
            mark = {"files": files, "counts": task.counts}
            (scratch / MARK).write_text(json.dumps(mark | {"digest": fingerprint(mark)}), encoding="utf-8")
            # What a crash of the machine leaves of a file has another digest, so nothing waits for the disk.
            with contextlib.suppress(FileExistsError):
                scratch.replace(self.folder(stage, key))
        except OSError as error:
            # Another process may have finished the same task in the meantime.
            if not (self.folder(stage, key) / MARK).is_file():
                raise cannot_write(parent, error) from error
        finally:
            if scratch is not None:
                shutil.rmtree(scratch, ignore_errors=True)

    def counts(self, stage: str, key: str) -> dict[str, Any]:
        """Return the counts of a finished task."""
        counts: dict[str, Any] = self._mark(self.folder(stage, key))["counts"]
        return counts

    def file(self, stage: str, key: str, name: str) -> Path:
        """Return the path of a file of a finished task, once its bytes match the mark.

        Raises:
            DataError: they do not; the task is then taken for unfinished.
        """
        path = self.folder(stage, key) / name
        written_at = path.stat().st_mtime_ns if path.is_file() else None
        if written_at is None or self._checked.get(path) != written_at:
            if written_at is None or sha256(path) != self._mark(path.parent)["files"][name][1]:
                shutil.rmtree(path.parent)
                raise DataError(path, "changed since it was written", "check the disk and run the same command again")
            self._checked[path] = written_at
        return path

    def array(self, stage: str, key: str, name: str) -> NDArray[Any]:
        """Return an array of a finished task as a view of its file; see `file`."""
        path = self.file(stage, key, name)
        is_empty = path.stat().st_size <= NPY_HEADER  # which cannot be mapped
        array: NDArray[Any] = np.load(path, mmap_mode=None if is_empty else "r", allow_pickle=False)
        return array

    def records(self, stage: str, key: str, name: str) -> Iterator[dict[str, Any]]:
        """Yield the records of a finished task; see `file`."""
        with self.file(stage, key, name).open(encoding="utf-8", newline="\n") as lines:
            yield from map(json.loads, lines)

    @staticmethod
    def _mark(folder: Path) -> dict[str, Any]:
        path = folder / MARK
        try:
            mark: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if mark.pop("digest") != fingerprint(mark):
                raise ValueError("another digest")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            shutil.rmtree(folder)
            what = "changed since it was written"
            raise DataError(path, what, "check the disk and run the same command again") from error
        return mark

    def remove_unfinished(self) -> None:
        """Remove what killed tasks left behind; none may be running."""
        for scratch in self.root.glob("*/.*.part"):
            shutil.rmtree(scratch, ignore_errors=True)
