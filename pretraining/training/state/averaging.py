"""The mean of the weights after each of the last steps of a run; it replaces a part of the learning rate's decay.

Source: Izmailov et al. 2018, “Averaging weights leads to wider optima and better generalization”.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

ENTRY = "|average"
"""Suffix of the averages among the entries of a checkpoint's optimizer state."""


class WeightAverage:
    """Running mean of parameters, in their own precision and sharding."""

    def __init__(self, names: Sequence[str], parameters: Sequence[Tensor], *, first_step: int) -> None:
        """Start with nothing.

        Args:
            names: of the parameters.
            parameters: as the optimizers update them.
            first_step: the first step, counted from 1, whose weights are part of the mean.
        """
        self._parameters = dict(zip(names, parameters, strict=True))
        self._means: dict[str, Tensor] = {}
        self.first_step = first_step

    def __bool__(self) -> bool:
        """Whether the mean holds the weights of a step."""
        return bool(self._means)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after STEP to the mean, if it is one of the last ones."""
        if step < self.first_step:
            return
        if not self._means:
            self._means = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        share = 1 / (step - self.first_step + 1)
        for name, parameter in self._parameters.items():
            self._means[name].lerp_(parameter.detach(), share)

    def entries(self, *, whole: bool = True) -> dict[str, Tensor]:
        """Return the means for a checkpoint; every process must call it.

        Args:
            whole: unsharded and on the CPU; otherwise as each process has them.
        """
        named = {f"{name}{ENTRY}": mean for name, mean in self._means.items()}
        if not whole:
            return named
        return {name: (mean.full_tensor() if isinstance(mean, DTensor) else mean).cpu() for name, mean in named.items()}

    def restore(self, entries: Mapping[str, Tensor]) -> None:
        """Load the means of a checkpoint; other entries are ignored."""
        self._means = {}
        for name, parameter in self._parameters.items():
            if f"{name}{ENTRY}" in entries:
                mean = entries[f"{name}{ENTRY}"].to(parameter.device, parameter.dtype)
                if isinstance(parameter, DTensor) and not isinstance(mean, DTensor):
                    mean = distribute_tensor(mean, parameter.device_mesh, parameter.placements)
                self._means[name] = mean

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Put the means in the place of the parameters, if there are any, for the duration of the block."""
        if not self._means:
            yield
            return
        kept = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
        self._copy(self._means)
        try:
            yield
        finally:
            self._copy(kept)

    @torch.no_grad()
    def _copy(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(values[name])
