"""The tensors of a run by name: gathered from a sharded model, or as each process has them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor

from corpora.foundation.errors import CheckpointError
from pretraining.data.difficulty import ENTRY as DIFFICULTY_ENTRY
from pretraining.data.difficulty import TokenDifficulties
from pretraining.training.state.averaging import ENTRY as AVERAGE_ENTRY
from pretraining.training.state.averaging import WeightAverage
from pretraining.training.state.checkpoints import read_checkpoint, save_checkpoint
from pretraining.training.state.folder import Checkpoint, CheckpointFolder
from pretraining.training.state.sharded import MODEL, OPTIMIZER, load_shards, save_sharded, stored_tensors


@dataclass(frozen=True)
class TrainingState:
    """Parameters, optimizer state, averaged weights and difficulties of tokens."""

    model: Any
    """As accelerate prepared it."""
    optimizers: Sequence[torch.optim.Optimizer]
    """Without accelerate's wrappers."""
    names: Sequence[str]
    """Of the parameters."""
    average: WeightAverage
    difficulties: TokenDifficulties

    @property
    def is_sharded(self) -> bool:
        """Whether each process has a part of the model."""
        return isinstance(next(iter(self.model.parameters())), DTensor)

    def tensors(self, *, whole: bool = True) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return parameters by name, and everything else; every process must call it.

        Args:
            whole: on the main process unsharded and on the CPU; otherwise as each process has them.
        """
        parameters, entries = gather_state(self.model, self.optimizers, self.names, whole=whole)
        return parameters, entries | self.average.entries(whole=whole) | self.difficulties.entries()

    def save(
        self, folder: Path, step: int, progress: Mapping[str, Any], *, keep: int, by_shards: bool, is_main: bool
    ) -> None:
        """Write a checkpoint under FOLDER; every process must call it.

        Args:
            folder: of the checkpoints.
            step: optimizer steps done.
            progress: counters of the loop; JSON.
            keep: checkpoints to keep.
            by_shards: whether each process of a sharded model writes its part.
            is_main: whether this is the main process.

        Raises:
            ResultError: it cannot be written.
        """
        by_shards = by_shards and self.is_sharded
        checkpoint = Checkpoint(step, *self.tensors(whole=not by_shards), progress)
        if by_shards:
            save_sharded(folder, checkpoint, keep=keep)
        elif is_main:
            save_checkpoint(folder, checkpoint, keep=keep)

    def restore(self, found: CheckpointFolder) -> None:
        """Load a checkpoint, whatever number of processes has written it; every process must call it.

        Raises:
            CheckpointError: it is of another model.
        """
        if not (found.is_sharded and self.is_sharded):
            checkpoint = read_checkpoint(found)
            self._require_names(checkpoint.model, found.path)
            restore_model(self.model, checkpoint.model)
            self._restore_entries(checkpoint.optimizer)
            return
        stored = stored_tensors(found.path)
        self._require_names([name.removeprefix(MODEL) for name in stored if name.startswith(MODEL)], found.path)
        parameters, entries = gather_state(self.model, self.optimizers, self.names, whole=False)
        entries |= self.difficulties.entries()
        for name, parameter in parameters.items():
            if f"{OPTIMIZER}{name}{AVERAGE_ENTRY}" in stored:
                entries[f"{name}{AVERAGE_ENTRY}"] = torch.zeros_like(parameter)
        load_shards(found.path, parameters, entries)
        restore_model(self.model, parameters, whole=False)
        self._restore_entries(entries, whole=False)

    def _restore_entries(self, entries: Mapping[str, Tensor], *, whole: bool = True) -> None:
        self.average.restore(entries)
        self.difficulties.restore(entries)
        self.restore_optimizers(entries, whole=whole)

    def restore_optimizers(self, entries: Mapping[str, Tensor], *, whole: bool = True) -> None:
        """Load the optimizer state among the entries of a checkpoint; WHOLE as in `tensors`."""
        own = {
            name: tensor
            for name, tensor in entries.items()
            if not name.endswith(AVERAGE_ENTRY) and not name.startswith(DIFFICULTY_ENTRY)
        }
        restore_optimizers(self.model, self.optimizers, own, whole=whole)

    def _require_names(self, names: Iterable[str], path: Path) -> None:
        if sorted(names) != sorted(self.names):
            what = "its parameters are not those of this model"
            raise CheckpointError(path.parent, what, "start in another folder with --out")


def gather_state(
    model: Any, optimizers: Sequence[torch.optim.Optimizer], names: Sequence[str], *, whole: bool = True
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return parameters and optimizer state.

    Args:
        model: as accelerate prepared it; every process must call.
        optimizers: without accelerate's wrappers.
        names: of the parameters.
        whole: on the main process unsharded and on the CPU, elsewhere nothing; otherwise as each process has them.

    Returns:
        Parameters by name, and optimizer state by `parameter|entry`.
    """
    options = StateDictOptions(full_state_dict=whole, cpu_offload=whole)
    weights: dict[str, Any] = get_model_state_dict(model, options=options)
    optimizer: dict[str, Any] = get_optimizer_state_dict(model, list(optimizers), options=options)
    entries = {
        f"{name}|{entry}": torch.as_tensor(value)
        for name, values in optimizer.get("state", {}).items()
        for entry, value in values.items()
    }
    return {name: weights[name] for name in names if name in weights}, entries


def restore_model(model: Any, weights: Mapping[str, Tensor], *, whole: bool = True) -> None:
    """Load parameters by name; arguments as in `gather_state`."""
    options = StateDictOptions(full_state_dict=whole, strict=False)
    set_model_state_dict(model, dict(weights), options=options)


def restore_optimizers(
    model: Any, optimizers: Sequence[torch.optim.Optimizer], entries: Mapping[str, Tensor], *, whole: bool = True
) -> None:
    """Load optimizer state by `parameter|entry`; arguments as in `gather_state`."""
    state: dict[str, dict[str, Tensor]] = {}
    for key, tensor in entries.items():
        name, _, entry = key.rpartition("|")
        state.setdefault(name, {})[entry] = tensor
    # With `cpu_offload` only the main process would get the template.
    options = StateDictOptions(full_state_dict=whole)
    template: Any = get_optimizer_state_dict(model, list(optimizers), options=options)
    # Everything but the state follows from the recipe.
    options = StateDictOptions(full_state_dict=whole, strict=False)
    set_optimizer_state_dict(model, list(optimizers), template | {"state": state}, options=options)
