"""Arrow shards: round trip, memory mapping, damage; and jobs that fail with one line in any process."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.foundation.errors import CheckpointError, DataError, ResultError
from pretraining.data.shards import Ragged, Sharded, read_shard, run_jobs, write_shard

Fails = Callable[..., AbstractContextManager[None]]

ARRAYS = st.lists(st.lists(st.integers(0, 60_000), max_size=5), max_size=6)


def ragged(arrays: list[list[int]], dtype: type = np.int32) -> Ragged:
    lengths = np.array([len(array) for array in arrays], np.int64)
    return Ragged.from_lengths(lengths, np.array([value for array in arrays for value in array], dtype))


def arrays_of(column: Ragged) -> list[list[int]]:
    return [column[number].tolist() for number in range(len(column))]


@given(ARRAYS)
def test_values_cut_by_lengths_are_the_arrays(arrays: list[list[int]]) -> None:
    column = ragged(arrays)
    assert arrays_of(column) == arrays
    assert column.lengths.tolist() == [len(array) for array in arrays]


def test_what_is_read_is_what_was_written(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (arrays, dtype) in enumerate(
        itertools.product([[[5, 6], [], [7]], [[], []], []], [np.uint8, np.uint16, np.int32])
    ):
        with subtests.test(arrays=arrays, dtype=dtype):
            folder = tmp_path / str(number)
            folder.mkdir()
            columns = {"ids": ragged(arrays, dtype), "ends": ragged([[number] for number in range(len(arrays))])}
            write_shard(folder / "s.arrow", columns)
            read = read_shard(folder / "s.arrow")
            assert list(read) == ["ids", "ends"]
            assert {name: arrays_of(column) for name, column in read.items()} == {
                "ids": arrays,
                "ends": [[number] for number in range(len(arrays))],
            }
            assert read["ids"].values.dtype == dtype


def test_a_shard_is_memory_mapped(tmp_path: Path) -> None:
    write_shard(tmp_path / "s.arrow", {"ids": ragged([[1, 2], [3]])})
    values = read_shard(tmp_path / "s.arrow")["ids"].values
    assert not values.flags.owndata
    assert not values.flags.writeable


def test_the_same_columns_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shard(tmp_path / name, {"ids": ragged([[1, 2], [3]]), "ends": ragged([[2], [1]])})
    write_shard(tmp_path / "c", {"ids": ragged([[1, 2], [4]]), "ends": ragged([[2], [1]])})
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


def test_a_file_that_was_cut_short_is_noticed_or_has_lost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.arrow"
    write_shard(path, {"ids": ragged([[5, 6], [7]])})
    whole = path.read_bytes()
    silent: list[int] = []
    for size in range(0, len(whole), 4):
        path.write_bytes(whole[:size])
        try:
            if arrays_of(read_shard(path)["ids"]) != [[5, 6], [7]]:
                silent.append(size)
        except CheckpointError:
            pass
    assert silent == []


def test_a_file_that_is_not_a_shard_is_an_error(tmp_path: Path, fails: Fails, subtests: pytest.Subtests) -> None:
    for number, content in enumerate([b"", b"no arrow file", b"\x00" * 1000, b"\xff\xff\xff\xff\x10\x00\x00\x00" * 20]):
        with subtests.test(content=content):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "s.arrow").write_bytes(content)
            with fails(CheckpointError, folder / "s.arrow", "damaged", "delete it"):
                read_shard(folder / "s.arrow")


def test_an_unwritable_shard_is_an_error(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("")
    with fails(ResultError, tmp_path / "file", "cannot write"):
        write_shard(tmp_path / "file" / "s.arrow", {"ids": ragged([[1]])})


@given(st.lists(st.text("abc", max_size=3), max_size=6))
def test_a_row_is_found_in_its_shard(shards: list[str]) -> None:
    sharded = Sharded.from_lengths(shards, [len(shard) for shard in shards])
    assert len(sharded) == sum(map(len, shards))
    found = [shard[position] for shard, position in map(sharded.locate, range(len(sharded)))]
    assert found == list("".join(shards))


def test_one_worker_does_the_jobs_in_order_and_in_this_process() -> None:
    done: list[int] = []
    run_jobs(done.append, [3, 1, 2], num_workers=1, label="", sizes=[1, 1, 1])
    assert done == [3, 1, 2]


def test_no_jobs_are_done_at_once() -> None:
    run_jobs(lambda _: pytest.fail("there was no job"), [], num_workers=4, label="", sizes=[])


def test_a_failed_job_leaves_what_was_finished(tmp_path: Path, fails: Fails) -> None:
    def work(job: int) -> None:
        if job == 2:
            raise DataError("job 2", "is bad", "leave it out")
        write_shard(tmp_path / f"{job}.arrow", {"ids": ragged([[job]])})

    with fails(DataError, "job 2", "is bad"):
        run_jobs(work, [1, 2, 3], num_workers=1, label="", sizes=[1, 1, 1])
    assert [path.name for path in tmp_path.iterdir()] == ["1.arrow"]


def test_the_error_of_a_worker_is_raised_here(tmp_path: Path, fails: Fails) -> None:
    paths = [tmp_path / "a.arrow", tmp_path / "b.arrow"]
    for path in paths:
        path.write_bytes(b"no arrow file")
    with fails(CheckpointError, tmp_path, "damaged", "delete it"):
        run_jobs(read_shard, paths, num_workers=2, label="", sizes=[1, 1])
