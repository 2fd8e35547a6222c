"""Ragged columns in memory-mapped Arrow files, and the parallel jobs that write them.

A shard is one Arrow file of one record batch, so that each column is one flat array that NumPy reads in place: a corpus
larger than memory costs address space, not memory. Shards are written by independent jobs, in any order and by any
number of processes, with the same bytes.
"""

import concurrent.futures
import contextlib
import hashlib
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import atomic_file

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

IntArray = npt.NDArray[Any]
TRAILER = b"sha256 of the above:"
"""Stands behind the bytes of a shard, before their digest."""
SHA256_BYTES = 32
BLOCK = 1 << 20


@dataclass(frozen=True)
class Ragged:
    """Many short arrays, concatenated."""

    values: IntArray
    """Their elements."""
    offsets: IntArray
    """int (N + 1,); array k is `values[offsets[k]:offsets[k + 1]]`."""

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> IntArray:
        """Return one array, without copying."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> IntArray:
        """The length of each array, int (N,)."""
        return np.diff(self.offsets)

    @classmethod
    def from_lengths(cls, lengths: IntArray, values: IntArray) -> "Ragged":
        """Split VALUES into arrays of these LENGTHS."""
        return cls(values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def write_shard(path: Path, columns: Mapping[str, Ragged]) -> None:
    """Write COLUMNS with the same number of rows as one Arrow file, atomically.

    Raises:
        ResultError: the folder cannot be written.
    """
    import pyarrow as pa

    # One batch even for no rows, so that a file without a batch is recognised as truncated.
    batch = pa.record_batch({name: _list_array(column) for name, column in columns.items()})
    with atomic_file(path, "wb") as file:
        digested = _Digested(file)
        with pa.ipc.new_stream(pa.PythonFile(digested, "w"), batch.schema) as writer:
            writer.write_batch(batch)
        # Readers of Arrow stop before it.
        file.write(TRAILER + digested.digest.digest())


class _Digested:
    """A file that is written to, and the digest of its bytes."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write bytes."""
        self.digest.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed at its end."""

    def tell(self) -> int:
        """Return the number of written bytes."""
        return self._file.tell()


def _check_digest(path: Path) -> None:
    """Compare the bytes of a shard with the digest behind them; shards of earlier versions have none.

    Raises:
        CheckpointError: they were changed.
    """
    size = path.stat().st_size - len(TRAILER) - SHA256_BYTES
    with path.open("rb") as file:
        file.seek(max(0, size))
        trailer, stored = file.read(len(TRAILER)), file.read()
        num_other = sum(a != b for a, b in zip(trailer, TRAILER, strict=False))
        if size < 0 or num_other > 1:
            return
        file.seek(0)
        digest = hashlib.sha256()
        while size > 0:
            block = file.read(min(size, BLOCK))
            digest.update(block)
            size -= len(block)
    if num_other or digest.digest() != stored:
        what = "changed since it was written: its digest is another one"
        raise CheckpointError(path, what, "delete it and run the same command again")


def _list_array(column: Ragged) -> "pa.Array":
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array(column.offsets.astype(np.int32)), pa.array(column.values))


def read_shard(path: Path) -> dict[str, Ragged]:
    """Memory-map an Arrow file; its columns are views of the file.

    Raises:
        CheckpointError: the file is damaged.
    """
    import pyarrow as pa
    from datasets import Dataset

    try:
        _check_digest(path)
        table = Dataset.from_file(str(path)).data.table
        columns = {name: table.column(name).chunk(0) for name in table.column_names}
    except (pa.ArrowInvalid, OSError, IndexError) as error:
        raise CheckpointError(path, "damaged or truncated", "delete it and run the same command again") from error
    return {
        name: Ragged(chunk.values.to_numpy(zero_copy_only=True), chunk.offsets.to_numpy(zero_copy_only=True))
        for name, chunk in columns.items()
    }


ShardT = TypeVar("ShardT")


@dataclass(frozen=True)
class Sharded(Generic[ShardT]):
    """Shards as one sequence of items."""

    shards: Sequence[ShardT]
    starts: IntArray
    """int64 (num_shards + 1,): number of the first item of each shard, and the total."""

    @classmethod
    def from_lengths(cls, shards: Sequence[ShardT], lengths: Sequence[int]) -> "Sharded[ShardT]":
        """Number the items of SHARDS, which have these LENGTHS."""
        return cls(shards, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))

    def __len__(self) -> int:
        """Return the number of items."""
        return int(self.starts[-1])

    def locate(self, index: int) -> tuple[ShardT, int]:
        """Return the shard of item INDEX and its number in the shard."""
        shard = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.shards[shard], index - int(self.starts[shard])


JobT = TypeVar("JobT")


def run_jobs(
    work: Callable[[JobT], None], jobs: Sequence[JobT], *, num_workers: int, label: str, sizes: Sequence[int]
) -> None:
    """Run independent JOBS in worker processes, with a progress bar on a terminal.

    Args:
        work: runs one job; it and the jobs must be picklable if there are several workers.
        jobs: arguments of `work`.
        num_workers: processes; 1 means this process.
        label: of the progress bar.
        sizes: bytes of each job's input, for the bar.

    Raises:
        SuiteError: of the first job that failed; the files of finished jobs remain.
    """
    from tqdm import tqdm

    with tqdm(total=sum(sizes), desc=label, unit="B", unit_scale=True, disable=None, leave=False) as bar:
        for size in _finished(work, jobs, sizes, min(num_workers, len(jobs))):
            bar.update(size)


def _finished(
    work: Callable[[JobT], None], jobs: Sequence[JobT], sizes: Sequence[int], num_workers: int
) -> Iterator[int]:
    if num_workers <= 1:
        for job, size in zip(jobs, sizes, strict=True):
            work(job)
            yield size
        return
    # Spawned: a fork of a process with threads (torch, tokenizers) can deadlock.
    context = multiprocessing.get_context("spawn")
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(num_workers, mp_context=context))
        stack.callback(pool.shutdown, cancel_futures=True)
        futures = {pool.submit(work, job): size for job, size in zip(jobs, sizes, strict=True)}
        for future in concurrent.futures.as_completed(futures):
            future.result()
            yield futures[future]
