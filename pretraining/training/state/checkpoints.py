"""Checkpoints that survive a kill, a full disk or a flipped bit.

A checkpoint is a folder of safetensors files and one `state.json` with their digests and its own. It is written under
another name, synced to disk, and renamed; only then are older ones deleted. A damaged one is detected by its digests,
and the previous one is used.
"""

import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpora.foundation.errors import CheckpointError, cannot_write
from corpora.foundation.files import fingerprint, sha256

if TYPE_CHECKING:
    import torch
    from torch import Tensor

logger = logging.getLogger(__name__)

STATE = "state.json"
FILES = ("model", "optimizer")


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


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write a checkpoint under FOLDER and delete all but the newest KEEP.

    Raises:
        ResultError: it cannot be written; the older ones are left as they are.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    final = checkpoint_folder(folder, checkpoint.step)
    part = folder / f".{final.name}.part"
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name, tensors in zip(FILES, (checkpoint.model, checkpoint.optimizer), strict=True):
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, part / f"{name}.safetensors")
        state: dict[str, Any] = {"schema": 1, "step": checkpoint.step, "state": dict(checkpoint.state)}
        state["files"] = {name: sha256(part / f"{name}.safetensors") for name in FILES}
        text = json.dumps(state | {"sha256": fingerprint(state)}, ensure_ascii=False, indent=1, allow_nan=False)
        (part / STATE).write_text(text + "\n", encoding="utf-8")
        for path in [*part.iterdir(), part]:
            _sync(path)
        if final.exists():
            shutil.rmtree(final)  # a damaged one of the same step
        part.rename(final)
        _sync(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise cannot_write(final, error) from error
    # One of a later step is damaged and was skipped when the run resumed; its steps have been repeated since.
    later = [path for path in _folders(folder) if path.name > final.name]
    for old in [*later, *_folders(folder)[len(later) + keep :]]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Load the newest undamaged checkpoint under FOLDER; None if there is none at all.

    A damaged one is skipped with a warning.

    Raises:
        CheckpointError: there are checkpoints, but all are damaged.
    """
    folders = _folders(folder)
    for path in folders:
        try:
            return _read(path)
        except _DamagedError as error:
            logger.warning("%s: damaged (%s); the previous checkpoint is used", path, error)
    if folders:
        raise CheckpointError(folder, "every checkpoint is damaged", "delete the folder to start from the beginning")
    return None


class _DamagedError(Exception):
    """The bytes of a checkpoint are not those that were written."""


def _read(path: Path) -> Checkpoint:
    from safetensors.torch import load_file

    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        digest = state.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise _DamagedError(f"{STATE}: {error}") from error
    if fingerprint(state) != digest:
        raise _DamagedError(f"{STATE} was changed")
    for name in FILES:
        file = path / f"{name}.safetensors"
        if not file.is_file() or sha256(file) != state["files"][name]:
            raise _DamagedError(f"{file.name} was changed")
    model, optimizer = (load_file(path / f"{name}.safetensors") for name in FILES)
    return Checkpoint(int(state["step"]), model, optimizer, state["state"])


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


def gather_state(
    model: Any, optimizers: "Sequence[torch.optim.Optimizer]", names: Sequence[str]
) -> "tuple[dict[str, Tensor], dict[str, Tensor]]":
    """Return parameters and optimizer state; on the main process unsharded and on the CPU.

    Args:
        model: as accelerate prepared it; every process must call.
        optimizers: without accelerate's wrappers.
        names: of the parameters.

    Returns:
        Parameters by name, and optimizer state by `parameter|entry`.
    """
    import torch
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
    )

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights: dict[str, Any] = get_model_state_dict(model, options=options)
    optimizer: dict[str, Any] = get_optimizer_state_dict(model, list(optimizers), options=options)
    entries = {
        f"{name}|{entry}": torch.as_tensor(value)
        for name, values in optimizer.get("state", {}).items()
        for entry, value in values.items()
    }
    return {name: weights[name] for name in names if name in weights}, entries


def restore_optimizers(
    model: Any, optimizers: "Sequence[torch.optim.Optimizer]", entries: "Mapping[str, Tensor]"
) -> None:
    """Load optimizer state by `parameter|entry`; arguments as in `gather_state`."""
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    state: dict[str, dict[str, Tensor]] = {}
    for key, tensor in entries.items():
        name, _, entry = key.rpartition("|")
        state.setdefault(name, {})[entry] = tensor
    # With `cpu_offload` only the main process would get the template.
    template: Any = get_optimizer_state_dict(model, list(optimizers), options=StateDictOptions(full_state_dict=True))
    # Everything but the state follows from the recipe.
    options = StateDictOptions(full_state_dict=True, strict=False)
    set_optimizer_state_dict(model, list(optimizers), template | {"state": state}, options=options)
