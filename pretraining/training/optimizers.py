"""Muon: matrices between hidden layers move by the orthogonal matrix next to their momentum, all by the same length.

Relations: torch.optim.Muon iterates in bf16 whatever the machine, which a processor without units for it emulates
hundreds of times slower; it takes matrices one by one, and none in shards. Here the iteration has the precision of the
training, matrices of one shape are multiplied together, and those in shards are put together for it. Everything else
(embeddings, biases, LayerNorm, layers of few outputs) is AdamW's, as in the original.

Source: Jordan et al. 2024, “Muon: An optimizer for hidden layers in neural networks”; the length of a step after
Liu et al. 2025, “Muon is Scalable for LLM Training”, section 2.2, by which rates and decay are those of AdamW.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic polynomial, Jordan et al. 2024: singular values end between 0.7 and 1.2 after five steps."""
ITERATIONS = 5
ADAMW_RMS = 0.2
"""Root mean square of AdamW's steps, in units of its rate, as Liu et al. 2025 saw it."""
SMALLEST_SIDE = 8
"""A layer of fewer outputs, such as one that decides between two, has hardly a direction to make orthogonal."""


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Tell whether a parameter is a matrix between hidden layers."""
    return parameter.ndim == 2 and "embedding" not in name and min(parameter.shape) >= SMALLEST_SIDE


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values near 1, by Newton-Schulz iteration.

    Args:
        matrices: (N, R, C), in the precision to compute in.

    Returns:
        (N, R, C).
    """
    a, b, c = COEFFICIENTS
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)  # no singular value above 1
    for _ in range(ITERATIONS):
        gram = x @ x.mT  # (N, S, S), S the shorter side
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal; decoupled weight decay."""

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float = 0.0,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Take over matrices.

        Args:
            params: matrices, (R, C) each.
            lr: as for AdamW.
            momentum: share of the old momentum in the new one.
            weight_decay: as for AdamW.
            dtype: in which the iteration is computed.
        """
        self._dtype = dtype
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for parameters in shapes.values():
                self._move(parameters, group)

    def _move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Move matrices of one shape."""
        directions = torch.stack([self._direction(p, group["momentum"]) for p in parameters])  # (N, R, C)
        length = ADAMW_RMS * max(directions.shape[1:]) ** 0.5
        for parameter, step in zip(parameters, orthogonalise(directions).to(parameters[0].dtype), strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(_like(step, parameter), alpha=-group["lr"] * length)

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        """Take the gradient into the momentum, and return where it leads (Nesterov), whole."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        state["momentum"].lerp_(gradient, 1 - momentum)
        direction = gradient.lerp(state["momentum"], momentum)
        return (direction.full_tensor() if isinstance(direction, DTensor) else direction).to(self._dtype)


def _like(whole: Tensor, parameter: Tensor) -> Tensor:
    """Divide a matrix over the devices as a parameter is."""
    if not isinstance(parameter, DTensor):
        return whole
    return distribute_tensor(whole, parameter.device_mesh, parameter.placements)
