"""Checkpoints: bit-identical after loading, and safe from kills, full disks and flipped bits."""

import contextlib
import itertools
import logging
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

import pretraining.training.state.folder
from corpora.foundation.errors import CheckpointError, ResultError
from pretraining.training.state.checkpoints import load_checkpoint, save_checkpoint
from pretraining.training.state.folder import Checkpoint

Fails = Callable[..., AbstractContextManager[None]]

FILES = ("state.json", "model.safetensors", "optimizer.safetensors")


def make_checkpoint(step: int, *, size: int = 40) -> Checkpoint:
    """Return a checkpoint whose every number depends on STEP."""
    generator = torch.Generator().manual_seed(step)
    weight = torch.randn(size, 3, generator=generator)
    return Checkpoint(
        step=step,
        model={"network.weight": weight, "network.bias": torch.randn(3, generator=generator)},
        optimizer={
            "network.weight|exp_avg": torch.randn(3, size, generator=generator).t(),  # not contiguous
            "network.weight|exp_avg_sq": weight.square().to(torch.bfloat16),
            "network.weight|step": torch.tensor(float(step)),
        },
        state={"step": step, "elapsed_s": step / 3, "window": {"mlm_loss": step * 1.1}, "제목": "벼리시"},
    )


def assert_same(found: Checkpoint | None, expected: Checkpoint) -> None:
    assert found is not None
    assert (found.step, dict(found.state)) == (expected.step, dict(expected.state))
    for ours, theirs in ((found.model, expected.model), (found.optimizer, expected.optimizer)):
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert (ours[name].dtype, ours[name].shape) == (tensor.dtype, tensor.shape)
            assert torch.equal(ours[name], tensor), name


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Return a folder with checkpoints of steps 5 and 10."""
    for step in (5, 10):
        save_checkpoint(tmp_path / "checkpoints", make_checkpoint(step), keep=2)
    return tmp_path / "checkpoints"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return such a folder that tests do not change."""
    folder = tmp_path_factory.mktemp("originals")
    for step in (5, 10):
        save_checkpoint(folder, make_checkpoint(step), keep=2)
    return folder


# --- what is saved --------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_loaded_bit_identically(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path / "new" / "folder", make_checkpoint(7), keep=2)
    assert names(path) == sorted(FILES)
    assert_same(load_checkpoint(tmp_path / "new" / "folder"), make_checkpoint(7))


@hypothesis.given(
    numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=4),
    bits=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), min_size=1, max_size=6),
)
@hypothesis.settings(max_examples=25)
def test_numbers_of_every_kind_are_loaded_bit_identically(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float], bits: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("bits")
    patterns = torch.tensor(bits, dtype=torch.int32)  # as floats: infinities, NaNs and denormals among them
    state = {"window": dict(zip("abcd", numbers, strict=False))}
    save_checkpoint(folder, Checkpoint(1, {"w": patterns.view(torch.float32)}, {}, state), keep=1)
    found = load_checkpoint(folder)
    assert found is not None
    assert torch.equal(found.model["w"].view(torch.int32), patterns)
    assert dict(found.state) == state


def test_the_newest_checkpoint_is_loaded(two: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert_same(load_checkpoint(two), make_checkpoint(10))
    assert not caplog.records


def test_the_newest_is_that_of_the_highest_step_however_long_its_number(tmp_path: Path) -> None:
    for step in (9, 10, 99_999_999):
        save_checkpoint(tmp_path, make_checkpoint(step), keep=3)
        assert_same(load_checkpoint(tmp_path), make_checkpoint(step))


def test_without_checkpoints_there_is_nothing_to_load(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "missing") is None
    assert load_checkpoint(tmp_path) is None


@hypothesis.given(steps=st.lists(st.integers(0, 500), min_size=1, max_size=5, unique=True), keep=st.integers(1, 3))
@hypothesis.settings(max_examples=15)
def test_only_the_newest_are_kept(tmp_path_factory: pytest.TempPathFactory, steps: list[int], keep: int) -> None:
    folder = tmp_path_factory.mktemp("kept")
    for step in sorted(steps):
        save_checkpoint(folder, make_checkpoint(step, size=1), keep=keep)
    assert names(folder) == [f"checkpoint-{step:08d}" for step in sorted(steps)[-keep:]]


# --- damage ---------------------------------------------------------------------------------------------------------


def damage(path: Path, place: float, flip: int) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= flip
    path.write_bytes(data)


@pytest.mark.parametrize("name", FILES)
@hypothesis.given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@hypothesis.settings(max_examples=30)
def test_a_changed_byte_is_noticed_and_the_checkpoint_before_is_loaded(
    originals: Path, tmp_path_factory: pytest.TempPathFactory, name: str, place: float, flip: int
) -> None:
    folder = tmp_path_factory.mktemp("flipped") / "checkpoints"
    shutil.copytree(originals, folder)
    damage(folder / "checkpoint-00000010" / name, place, flip)
    with warnings_of("pretraining.training.state.folder") as told:
        found = load_checkpoint(folder)
    assert found is not None
    if found.step == 10:  # white space of the JSON, and the last digit of a number that means the same one
        assert name == "state.json"
        assert_same(found, make_checkpoint(10))
        assert told == []
        return
    assert_same(found, make_checkpoint(5))
    (line,) = told
    assert line.startswith(str(folder / "checkpoint-00000010"))
    assert "damaged" in line
    assert len(line.splitlines()) == 1


@contextlib.contextmanager
def warnings_of(name: str) -> Iterator[list[str]]:
    """Collect the warnings of a logger; Hypothesis does not allow `caplog`."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    collector = Collector(logging.WARNING)
    logging.getLogger(name).addHandler(collector)
    try:
        yield lines
    finally:
        logging.getLogger(name).removeHandler(collector)


def test_each_kind_of_damage_to_each_file_is_noticed(
    caplog: pytest.LogCaptureFixture, originals: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, (name, kind) in enumerate(
        itertools.product(FILES, ["first byte", "last byte", "cut short", "emptied", "deleted", "of the one before"])
    ):
        with subtests.test(name=name, kind=kind):
            two = tmp_path / str(number)
            shutil.copytree(originals, two)
            caplog.clear()
            path = two / "checkpoint-00000010" / name
            data = path.read_bytes()
            first, last = bytes([data[0] ^ 1]) + data[1:], data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
            if kind == "deleted":
                path.unlink()
            else:
                older = (two / "checkpoint-00000005" / name).read_bytes()
                path.write_bytes(
                    {
                        "first byte": first,
                        "last byte": last,
                        "cut short": data[: len(data) // 2],
                        "emptied": b"",
                        "of the one before": older,
                    }[kind]
                )
            if (name, kind) == ("state.json", "of the one before"):
                name = "model.safetensors"  # to whose digest it does not belong
            assert_same(load_checkpoint(two), make_checkpoint(5))
            (record,) = caplog.records
            assert record.levelno == logging.WARNING
            assert "checkpoint-00000010" in record.getMessage()
            assert name in record.getMessage()


def test_only_damaged_checkpoints_are_an_error(two: Path, fails: Fails) -> None:
    for folder, name in (("checkpoint-00000010", "model.safetensors"), ("checkpoint-00000005", "state.json")):
        damage(two / folder / name, 0.5, 0x40)
    before = content(two)
    with fails(CheckpointError, two, "every checkpoint is damaged"):
        load_checkpoint(two)
    assert content(two) == before


def test_a_damaged_checkpoint_is_replaced_by_a_new_one_of_its_step(two: Path) -> None:
    damage(two / "checkpoint-00000010" / "model.safetensors", 0.9, 1)
    save_checkpoint(two, make_checkpoint(10), keep=2)
    assert_same(load_checkpoint(two), make_checkpoint(10))
    assert names(two) == ["checkpoint-00000005", "checkpoint-00000010"]


def test_a_new_checkpoint_is_never_deleted_in_favour_of_a_damaged_one(
    originals: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for number, keep in enumerate([1, 2]):
        with subtests.test(keep=keep):
            two = tmp_path / str(number)
            shutil.copytree(originals, two)
            damage(two / "checkpoint-00000010" / "model.safetensors", 0.9, 1)
            save_checkpoint(two, make_checkpoint(6), keep=keep)
            assert_same(load_checkpoint(two), make_checkpoint(6))


# --- kills ----------------------------------------------------------------------------------------------------------


class KilledError(BaseException):
    """A signal that ends the process."""


class DyingOs:
    """Kills the process at a certain call of a function that writes a checkpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def kill_at(self, owner: Any, name: str, call: int) -> None:
        original = getattr(owner, name)
        calls = 0

        def function(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == call:
                raise KilledError
            return original(*arguments, **options)

        self._monkeypatch.setattr(owner, name, function)


KILLS = {
    "before the folder is made": (Path, "mkdir", 1),
    "before the model": ("safetensors.torch", "save_file", 1),
    "before the optimizer": ("safetensors.torch", "save_file", 2),
    "before the state": (Path, "write_text", 1),
    "before the model is on the disk": (os, "fsync", 1),
    "before the folder is on the disk": (os, "fsync", 4),
    "before the damaged one is deleted": (shutil, "rmtree", 2),
    "before it has its name": (Path, "rename", 1),
    "before its name is on the disk": (os, "fsync", 5),
}


def test_a_kill_while_saving_keeps_the_older_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    originals: Path,
    tmp_path: Path,
    subtests: pytest.Subtests,
) -> None:
    for number, moment in enumerate(KILLS):
        with subtests.test(moment=moment):
            two = tmp_path / str(number)
            shutil.copytree(originals, two)
            caplog.clear()
            damage(two / "checkpoint-00000010" / "model.safetensors", 0.9, 1)  # so that there is one of the same step
            older = content(two / "checkpoint-00000005")
            owner, name, call = KILLS[moment]
            target: Any = __import__(owner, fromlist=["_"]) if isinstance(owner, str) else owner
            with monkeypatch.context() as context:
                DyingOs(context).kill_at(target, name, call)
                with pytest.raises(KilledError):
                    save_checkpoint(two, make_checkpoint(10), keep=2)
            assert content(two / "checkpoint-00000005") == older
            is_done = moment == "before its name is on the disk"
            assert_same(load_checkpoint(two), make_checkpoint(10 if is_done else 5))
            caplog.clear()
            save_checkpoint(two, make_checkpoint(10), keep=2)
            assert names(two) == ["checkpoint-00000005", "checkpoint-00000010"]
            assert_same(load_checkpoint(two), make_checkpoint(10))
            assert not caplog.records


def test_a_kill_before_old_ones_are_deleted_leaves_too_many_and_not_too_few(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        DyingOs(context).kill_at(shutil, "rmtree", 2)
        with pytest.raises(KilledError):
            save_checkpoint(two, make_checkpoint(15), keep=2)
    assert_same(load_checkpoint(two), make_checkpoint(15))
    save_checkpoint(two, make_checkpoint(20), keep=2)
    assert names(two) == ["checkpoint-00000015", "checkpoint-00000020"]


def test_everything_is_on_the_disk_before_it_has_its_name(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut can lose data that is written but not synced."""
    events: list[str] = []
    to_disk, rename = os.fsync, Path.rename

    def fsync(handle: int) -> None:
        events.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        to_disk(handle)

    def renamed(path: Path, target: Path) -> Path:
        events.append("renamed")
        return rename(path, target)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("run on Linux: this test reads the names of open files from /proc")
    monkeypatch.setattr(pretraining.training.state.folder.os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", renamed)
    save_checkpoint(two, make_checkpoint(15), keep=2)
    position = events.index("renamed")
    assert set(events[:position]) == {*FILES, ".checkpoint-00000015.part"}
    assert events[position + 1 :] == ["checkpoints"]


# --- full disks -----------------------------------------------------------------------------------------------------


@pytest.fixture
def full_disk() -> Iterator[Path]:
    """Return a folder on a private file system of 1 MB; skip where mounting is not allowed."""
    script = "d=$(mktemp -d) && mount -t tmpfs -o size=1m tmpfs $d && echo $d && cat; rmdir $d"
    command = ["unshare", "--mount", "sh", "-c", script]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        pytest.skip("install util-linux (unshare) to fill a small disk in this test")
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        place = process.stdout.readline().strip()
        folder = Path(f"/proc/{process.pid}/root{place}")
        try:
            if not place or not folder.is_dir():
                pytest.skip("run as root to fill a small disk in this test")
            yield folder
        finally:
            process.stdin.close()
    if place:
        Path(place).rmdir()


def test_a_full_disk_is_one_error_line_and_keeps_older_checkpoints(full_disk: Path, fails: Fails) -> None:
    folder = full_disk / "checkpoints"
    for step in (5, 10):
        save_checkpoint(folder, make_checkpoint(step, size=10_000), keep=2)
    before = content(folder)
    with fails(ResultError, folder / "checkpoint-00000015", "cannot write", "No space left on device"):
        save_checkpoint(folder, make_checkpoint(15, size=30_000), keep=2)
    assert content(folder) == before
    assert names(folder) == ["checkpoint-00000005", "checkpoint-00000010"]
    assert_same(load_checkpoint(folder), make_checkpoint(10, size=10_000))


def test_whichever_file_finds_the_disk_full_nothing_half_is_left(full_disk: Path, fails: Fails) -> None:
    folder = full_disk / "checkpoints"
    save_checkpoint(folder, make_checkpoint(5), keep=2)
    before = content(folder)
    page = os.statvfs(full_disk).f_bsize
    filler = full_disk / "filler"
    filler.write_bytes(bytes(os.statvfs(full_disk).f_bavail * page))
    for room in range(len(FILES)):  # in pages; each of the files takes one
        os.truncate(filler, filler.stat().st_size - (page if room else 0))
        with fails(ResultError, folder / "checkpoint-00000010", "cannot write", "No space left on device"):
            save_checkpoint(folder, make_checkpoint(10), keep=2)
        assert content(folder) == before
        assert names(folder) == ["checkpoint-00000005"]
    os.truncate(filler, filler.stat().st_size - page)
    save_checkpoint(folder, make_checkpoint(10), keep=2)
    assert_same(load_checkpoint(folder), make_checkpoint(10))


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_size_limit_is_one_error_line_and_keeps_older_checkpoints(two: Path, fails: Fails) -> None:
    before = content(two)
    with fails(ResultError, two / "checkpoint-00000015", "cannot write"), file_size_limit(100_000):
        save_checkpoint(two, make_checkpoint(15, size=30_000), keep=2)
    assert content(two) == before
    assert names(two) == ["checkpoint-00000005", "checkpoint-00000010"]
    save_checkpoint(two, make_checkpoint(15, size=30_000), keep=2)
    assert_same(load_checkpoint(two), make_checkpoint(15, size=30_000))


def test_an_unwritable_folder_is_one_error_line(tmp_path: Path, fails: Fails) -> None:
    (tmp_path / "file").write_text("in the way")
    with fails(ResultError, tmp_path / "file" / "checkpoint-00000001", "cannot write"):
        save_checkpoint(tmp_path / "file", make_checkpoint(1), keep=2)
