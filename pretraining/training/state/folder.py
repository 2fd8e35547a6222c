"""The folders of checkpoints, which survive a kill, a full disk or a flipped bit.

A checkpoint is a folder of safetensors files and one `state.json` with their digests and its own. It is written under
another name, synced to disk, and renamed; only then are older ones deleted. A damaged one is detected by its digests,
and the previous one is used. There are two forms: one file of the parameters and one of the optimizer state, or a file
of each process (`pretraining.training.state.sharded`).
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError
from corpora.foundation.files import fingerprint, sha256

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

STATE = "state.json"


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to resume bit-identically."""

    step: int
    """Optimizer steps done."""
    model: "Mapping[str, Tensor]"
    """Parameters by name."""
    optimizer: "Mapping[str, Tensor]"
    """Optimizer state by `parameter|entry`."""
    state: Mapping[str, Any]
    """Counters of the loop; JSON."""


def begin_checkpoint(folder: Path, step: int) -> Path:
    """Make the folder in which the files of a checkpoint are written, and return it.

    Raises:
        OSError: it cannot be made.
    """
    part = part_folder(folder, step)
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    return part


def part_folder(folder: Path, step: int) -> Path:
    """Return the name of a checkpoint's folder until it is finished."""
    return folder / f".{checkpoint_folder(folder, step).name}.part"


def finish_checkpoint(
    part: Path, files: Mapping[str, Mapping[str, str]], step: int, state: Mapping[str, Any], *, keep: int
) -> Path:
    """Give a folder of written files its state and its name, and delete all but the newest KEEP.

    Args:
        part: from `begin_checkpoint`.
        files: digests of the files, under `files` or `shards`.
        step: optimizer steps done.
        state: counters of the loop; JSON.
        keep: checkpoints to keep.

    Raises:
        OSError: it cannot be written.
    """
    folder, final = part.parent, checkpoint_folder(part.parent, step)
    content: dict[str, Any] = {"schema": 1, "step": step, "state": dict(state), **files}
    text = json.dumps(content | {"sha256": fingerprint(content)}, ensure_ascii=False, indent=1, allow_nan=False)
    (part / STATE).write_text(text + "\n", encoding="utf-8")
    for path in [*part.iterdir(), part]:
        _sync(path)
    if final.exists():
        shutil.rmtree(final)  # a damaged one of the same step
    part.rename(final)
    _sync(folder)
    # One of a later step is damaged and was skipped when the run resumed; its steps have been repeated since.
    later = [path for path in _folders(folder) if path.name > final.name]
    for old in [*later, *_folders(folder)[len(later) + keep :]]:
        shutil.rmtree(old, ignore_errors=True)
    return final


@dataclass(frozen=True)
class CheckpointFolder:
    """An undamaged checkpoint on disk."""

    path: Path
    step: int
    state: Mapping[str, Any]
    is_sharded: bool
    """Whether each process has written its part."""


def find_checkpoint(
    folder: Path, *, share: tuple[int, int] = (0, 1), agree: Callable[[bool], bool] = bool
) -> CheckpointFolder | None:
    """Return the newest undamaged checkpoint under FOLDER; None if there is none at all.

    A damaged one is skipped with a warning.

    Args:
        folder: of the checkpoints.
        share: number of this process and of all processes; each checks its share of the files.
        agree: returns whether all processes have found a checkpoint undamaged, from what this one has.

    Raises:
        CheckpointError: there are checkpoints, but all are damaged.
    """
    folders = _folders(folder)
    for path in folders:
        found, damage = _check(path, share)
        if agree(found is not None) and found is not None:
            return found
        logger.warning("%s: damaged (%s); the previous checkpoint is used", path, damage or "seen by another process")
    if folders:
        raise CheckpointError(folder, "every checkpoint is damaged", "delete the folder to start from the beginning")
    return None


def _check(path: Path, share: tuple[int, int]) -> tuple[CheckpointFolder | None, str]:
    """Return a checkpoint, or None and what is wrong with it."""
    pickles = sorted(file.name for file in path.glob("*") if file.name == ".metadata" or file.suffix == ".distcp")
    if pickles:
        return None, f"{pickles[0]} is a pickle, which can run any code when it is read"
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        digest = state.pop("sha256")
        if fingerprint(state) != digest:
            return None, f"{STATE} was changed"
        named = {f"{name}.safetensors": str(one) for name, one in state.get("files", {}).items()}
        named |= dict(state.get("shards", {}))
        step, counters = int(state["step"]), dict(state["state"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        return None, f"{STATE}: {error}"
    differences = sorted(named.keys() ^ {file.name for file in path.glob("*.safetensors")})
    if differences:
        return None, f"{differences[0]} {'is missing' if differences[0] in named else 'was added'}"
    number, count = share
    for name in sorted(named)[number::count]:
        if sha256(path / name) != named[name]:
            return None, f"{name} was changed"
    return CheckpointFolder(path, step, counters, "shards" in state), ""


def checkpoint_folder(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return folder / f"checkpoint-{step:08d}"


def steps_of(folder: Path) -> list[int]:
    """Return the steps whose checkpoints lie under FOLDER, newest first."""
    return [int(path.name.rpartition("-")[2]) for path in _folders(folder)]


def _folders(folder: Path) -> list[Path]:
    """Return the checkpoints under FOLDER, newest first."""
    return sorted(folder.glob("checkpoint-*"), reverse=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
