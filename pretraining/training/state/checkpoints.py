"""Checkpoints of a run: written by one process, and read whatever number of processes has written them."""

import shutil
from pathlib import Path

from corpora.foundation.errors import CheckpointError, cannot_write
from corpora.foundation.files import sha256
from pretraining.training.state.folder import (
    Checkpoint,
    CheckpointFolder,
    begin_checkpoint,
    checkpoint_folder,
    find_checkpoint,
    finish_checkpoint,
    part_folder,
)
from pretraining.training.state.sharded import read_shards

FILES = ("model", "optimizer")


def save_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write a checkpoint under FOLDER and delete all but the newest KEEP.

    Raises:
        ResultError: it cannot be written; the older ones are left as they are.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        part = begin_checkpoint(folder, checkpoint.step)
        for name, tensors in zip(FILES, (checkpoint.model, checkpoint.optimizer), strict=True):
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, part / f"{name}.safetensors")
        digests = {name: sha256(part / f"{name}.safetensors") for name in FILES}
        return finish_checkpoint(part, {"files": digests}, checkpoint.step, checkpoint.state, keep=keep)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part_folder(folder, checkpoint.step), ignore_errors=True)
        raise cannot_write(checkpoint_folder(folder, checkpoint.step), error) from error


def read_checkpoint(found: CheckpointFolder) -> Checkpoint:
    """Read all of a checkpoint.

    Raises:
        CheckpointError: a file has its digest and is no safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if found.is_sharded:
            return Checkpoint(found.step, *read_shards(found.path), found.state)
        model, optimizer = (load_file(found.path / f"{name}.safetensors") for name in FILES)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(found.path, f"damaged ({error})", "delete it to use the previous one") from error
    return Checkpoint(found.step, model, optimizer, found.state)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Load the newest undamaged checkpoint under FOLDER; None if there is none at all.

    A damaged one is skipped with a warning.

    Raises:
        CheckpointError: there are checkpoints, but all are damaged.
    """
    found = find_checkpoint(folder)
    return None if found is None else read_checkpoint(found)
