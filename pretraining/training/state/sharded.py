"""Checkpoints of a sharded model: each process writes its part, and any number of processes reads them.

This is `torch.distributed.checkpoint` with its safetensors files. The default files of that library are pickles, which
can run any code when they are read: they are neither written nor read here. The folder must be on a disk that all
processes share.
"""

import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from corpora.foundation.errors import cannot_write
from corpora.foundation.files import sha256
from pretraining.training.state.folder import Checkpoint, begin_checkpoint, checkpoint_folder, finish_checkpoint

MODEL, OPTIMIZER = "model/", "optimizer/"
"""Prefixes of the tensors' names in the files."""


def save_sharded(folder: Path, checkpoint: Checkpoint, *, keep: int) -> None:
    """Write a checkpoint under FOLDER and delete all but the newest KEEP; every process must call it.

    Args:
        folder: shared by all processes.
        checkpoint: of this process: its parts of sharded tensors, and others, which are the same everywhere.
        keep: checkpoints to keep.

    Raises:
        ResultError: it cannot be written; the older ones are left as they are.
    """
    step, final = checkpoint.step, checkpoint_folder(folder, checkpoint.step)
    part = Path(_on_main(lambda: begin_checkpoint(folder, step), final))
    try:
        writer = HuggingFaceStorageWriter(str(part), save_distributed=True)
        save(_named(checkpoint.model, checkpoint.optimizer), storage_writer=writer)
        digests = _gathered({path.name: sha256(path) for path in _own_files(part)})
    except (OSError, SafetensorError, CheckpointException) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise cannot_write(final, _cause(error)) from error
    # Nobody goes on before the checkpoint has its name.
    _on_main(lambda: finish_checkpoint(part, {"shards": digests}, step, checkpoint.state, keep=keep), final)


def load_shards(path: Path, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
    """Fill tensors, sharded in any way, from the files of a checkpoint that was checked; every process must call it."""
    load(_named(model, optimizer), storage_reader=HuggingFaceStorageReader(str(path)))


def read_shards(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return all tensors of a checkpoint that was checked, unsharded: parameters, and optimizer state."""
    names = stored_tensors(path)
    whole = {name: torch.empty(size, dtype=dtype) for name, (size, dtype) in names.items()}
    with warnings.catch_warnings():
        # torch warns that it takes this for a single process, which is intended: each one reads everything.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        load(dict(whole), storage_reader=HuggingFaceStorageReader(str(path)), no_dist=True)
    model, optimizer = (
        {name.removeprefix(prefix): tensor for name, tensor in whole.items() if name.startswith(prefix)}
        for prefix in (MODEL, OPTIMIZER)
    )
    return model, optimizer


def stored_tensors(path: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Return shape and dtype of the tensors of a checkpoint by their names in the files."""
    found: Mapping[str, Any] = HuggingFaceStorageReader(str(path)).read_metadata().state_dict_metadata
    return {
        name: (entry.size, entry.properties.dtype)
        for name, entry in found.items()
        if isinstance(entry, TensorStorageMetadata)
    }


def _named(model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> dict[str, Any]:
    own = {MODEL + name: tensor for name, tensor in model.items()}
    return own | {OPTIMIZER + name: tensor for name, tensor in optimizer.items()}


def _number() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _own_files(part: Path) -> list[Path]:
    """Return the files that this process has written; they are numbered from 1."""
    return sorted(part.glob(f"shard-{_number() + 1:05d}-*.safetensors"))


def _on_main(action: Callable[[], object], path: Path) -> str:
    """Run what writes PATH on the main process, and return its result as text; if it fails there, it fails everywhere.

    Raises:
        ResultError: it has failed.
    """
    result = reason = ""
    if _number() == 0:
        try:
            result = str(action())
        except OSError as error:
            reason = error.strerror or str(error)
    box = [result, reason]
    if dist.is_initialized():
        dist.broadcast_object_list(box)
    result, reason = box
    if reason:
        raise cannot_write(path, OSError(0, reason))
    return result


def _gathered(own: dict[str, str]) -> dict[str, str]:
    """Return the entries of all processes."""
    if not dist.is_initialized():
        return own
    every: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(every, own)
    return {name: digest for entries in every for name, digest in sorted(entries.items())}


def _cause(error: BaseException) -> Exception:
    """Return what went wrong, on the first process with a failure."""
    if isinstance(error, CheckpointException):
        error = error.failures[min(error.failures)][0]
    return error if isinstance(error, Exception) else OSError(str(error))
