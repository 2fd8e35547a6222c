"""Checkpoints in parts: any number of processes reads what any number has written, and nothing is a pickle."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from corpora.foundation.errors import CheckpointError, ResultError
from pretraining.data.difficulty import TokenDifficulties
from pretraining.training.optimizers import Muon
from pretraining.training.state.averaging import WeightAverage
from pretraining.training.state.checkpoints import load_checkpoint
from pretraining.training.state.folder import find_checkpoint
from pretraining.training.state.tensors import TrainingState

pytestmark = pytest.mark.usefixtures("one_thread")

Fails = Callable[..., AbstractContextManager[None]]
ROOT = Path(__file__).resolve().parents[4]


def make_state(*, width: int = 7, num_processes: int = 0) -> TrainingState:
    """Return a small model with every kind of state; sharded over NUM_PROCESSES, if there are any."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    if num_processes:
        fully_shard(model, mesh=init_device_mesh("cpu", (num_processes,)))
    named = dict(model.named_parameters())
    matrix = named["0.weight"]
    others = [parameter for parameter in named.values() if parameter is not matrix]
    optimizers = [Muon([matrix], lr=0.1), torch.optim.AdamW(others, lr=0.1, fused=True)]
    average = WeightAverage(list(named), list(named.values()), first_step=1)
    return TrainingState(model, optimizers, list(named), average, TokenDifficulties(11, 2))


def train(state: TrainingState, steps: range) -> None:
    """Do some steps on the data of their numbers."""
    for step in steps:
        inputs = torch.randn(6, 7, generator=torch.Generator().manual_seed(step))
        state.model(inputs).square().sum().backward()
        for optimizer in state.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        state.average.update(step + 1)
        state.difficulties.observe(torch.full((2, 11), step))
        state.difficulties.update(step + 1)


def save(state: TrainingState, folder: Path, step: int, *, is_main: bool = True) -> None:
    state.save(folder, step, {"step": step}, keep=2, by_shards=True, is_main=is_main)


def restore(state: TrainingState, folder: Path) -> None:
    found = find_checkpoint(folder)
    assert found is not None
    state.restore(found)


def everything(state: TrainingState) -> dict[str, Tensor]:
    parameters, entries = state.tensors()
    return parameters | entries


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], case: str = "") -> None:
    assert found.keys() == expected.keys(), case
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), (case, name)


@pytest.fixture(scope="module")
def truth() -> dict[str, Tensor]:
    """Return the state after six steps in one piece."""
    state = make_state()
    train(state, range(6))
    return everything(state)


@pytest.fixture
def alone() -> Iterator[None]:
    """Form a group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def written(alone: None, tmp_path: Path) -> Path:
    """Return a folder with the checkpoints of steps 1 and 3 of a sharded model."""
    del alone
    state = make_state(num_processes=1)
    assert state.is_sharded
    for begin, end in ((0, 1), (1, 3)):
        train(state, range(begin, end))
        save(state, tmp_path / "checkpoints", end)
    return tmp_path / "checkpoints"


def test_a_sharded_run_is_continued_sharded_or_whole(written: Path, truth: dict[str, Tensor]) -> None:
    for num_processes in (0, 1):
        state = make_state(num_processes=num_processes)
        restore(state, written)
        train(state, range(3, 6))
        assert_same(everything(state), truth, f"{num_processes} processes")


def test_the_files_are_safetensors_and_json_and_nothing_half_is_left(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == ["checkpoint-00000001", "checkpoint-00000003"]
    folder = written / "checkpoint-00000003"
    (shard,) = folder.glob("*.safetensors")
    assert {path.name for path in folder.iterdir()} == {shard.name, "state.json"}
    assert {"model/0.weight", "optimizer/0.weight|momentum"} <= load_file(shard).keys()
    assert json.loads((folder / "state.json").read_text(encoding="utf-8"))["shards"].keys() == {shard.name}


def test_a_changed_an_added_and_a_pickled_file_are_not_read(
    written: Path, caplog: pytest.LogCaptureFixture, fails: Fails
) -> None:
    newest = written / "checkpoint-00000003"
    (shard,) = newest.glob("*.safetensors")
    good, stray = shard.read_bytes(), newest / "shard-00002-model-00001-of-00001.safetensors"
    for what, path, content in (
        (f"{shard.name} was changed", shard, good[:-1] + bytes([good[-1] ^ 1])),
        (f"{stray.name} was added", stray, good),
        (".metadata is a pickle", newest / ".metadata", b"\x80\x04N."),
        ("__0_0.distcp is a pickle", newest / "__0_0.distcp", b"\x80\x04N."),
    ):
        caplog.clear()
        path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            found = find_checkpoint(written)
        assert found is not None
        assert found.step == 1, what
        assert what in caplog.text
        path.unlink()
        shard.write_bytes(good)
    assert (found := find_checkpoint(written)) is not None
    assert found.step == 3
    for folder in written.iterdir():
        (folder / ".metadata").write_bytes(b"")
    with fails(CheckpointError, written, "every checkpoint is damaged"):
        find_checkpoint(written)


def test_a_checkpoint_that_one_process_finds_damaged_is_used_by_none(written: Path) -> None:
    # The other process, of two, has seen a flipped byte in its share of the newest one.
    answers = iter([False, True])
    found = find_checkpoint(written, share=(0, 2), agree=lambda own: own and next(answers))
    assert found is not None
    assert found.step == 1


def test_the_shards_of_another_model_are_refused(written: Path, fails: Fails) -> None:
    state = make_state(num_processes=1)
    other = TrainingState(state.model, state.optimizers, [*state.names, "3.weight"], state.average, state.difficulties)
    found = find_checkpoint(written)
    assert found is not None
    with fails(CheckpointError, written, "not those of this model"):
        other.restore(found)


def test_a_write_that_fails_is_one_line_and_leaves_the_older_checkpoints(
    written: Path, monkeypatch: pytest.MonkeyPatch, fails: Fails
) -> None:
    state = make_state(num_processes=1)
    restore(state, written)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    for where in (
        "pretraining.training.state.folder.Path.mkdir",
        "torch.distributed.checkpoint.filesystem.FileSystemWriter._write_data",
        "pretraining.training.state.folder.Path.write_text",
        "pretraining.training.state.folder.Path.rename",
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, full)
            with fails(ResultError, written / "checkpoint-00000004", "No space left on device"):
                save(state, written, 4)
        found = find_checkpoint(written)
        assert found is not None
        assert found.step == 3, where
    save(state, written, 4)
    assert sorted(path.name for path in written.iterdir()) == ["checkpoint-00000003", "checkpoint-00000004"]


PROGRAM = """
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file

sys.path.insert(0, sys.argv[1])
from test_sharded import everything, make_state, restore, save, train

torch.set_num_threads(1)
dist.init_process_group("gloo")
root, is_main = Path(sys.argv[2]), dist.get_rank() == 0
for begin, name in ((0, "begun"), (3, "whole"), (3, "one")):
    state = make_state(num_processes=2)
    if begin:
        restore(state, root / name)
    train(state, range(begin, 3))
    if not begin:
        save(state, root / name, 3, is_main=is_main)
    train(state, range(3, 6))
    found = everything(state)
    if is_main:
        save_file({key: tensor.contiguous() for key, tensor in found.items()}, root / f"{name}.safetensors")
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_one_process_continues_what_two_began_and_two_what_one_began(
    alone: None, tmp_path: Path, truth: dict[str, Tensor]
) -> None:
    del alone
    for name, num_processes in (("whole", 0), ("one", 1)):
        state = make_state(num_processes=num_processes)
        train(state, range(3))
        save(state, tmp_path / name, 3)
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, str(Path(__file__).parent), str(tmp_path)], check=True, timeout=300, env=environment)
    for name in ("begun", "whole", "one"):
        assert_same(load_file(tmp_path / f"{name}.safetensors"), truth, name)
    assert len(list((tmp_path / "begun" / "checkpoint-00000003").glob("shard-*.safetensors"))) == 2
    for num_processes in (0, 1):
        state = make_state(num_processes=num_processes)
        restore(state, tmp_path / "begun")
        train(state, range(3, 6))
        assert_same(everything(state), truth, f"two, then {num_processes}")
    checkpoint = load_checkpoint(tmp_path / "begun")
    assert checkpoint is not None
    assert checkpoint.state == {"step": 3}
