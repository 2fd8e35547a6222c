"""The optimizers of a run, AdamW and Muon, and the learning rate schedule.

Muon orthogonalises the momentum of matrices between hidden layers, so that all updates have the same length. Unlike
torch.optim.Muon, the iteration runs in the precision of the training (the library's bf16 is emulated, and hundreds of
times slower, on processors without bf16 units), matrices of one shape are multiplied together, and sharded matrices
are gathered first. Everything else (embeddings, biases, LayerNorm, layers of few outputs) uses AdamW, as in the
original.

Source: Jordan et al. 2024, “Muon: An optimizer for hidden layers in neural networks”; the length of an update from
Liu et al. 2025, “Muon is Scalable for LLM Training”, section 2.2, which allows AdamW's learning rate and decay.
"""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from pretraining.recipe import LoopConfig
from pretraining.training.accelerator import compute_dtype

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic polynomial, Jordan et al. 2024: singular values end between 0.7 and 1.2 after five iterations."""
ITERATIONS = 5
ADAMW_RMS = 0.2
"""Root mean square of AdamW's updates, in units of its learning rate; measured by Liu et al. 2025."""
EMBEDDING = re.compile(r"embeddings\.|embedding\.|\.w[tp]e\.|\.shared\.|\.embed_|_emb(ed)?$|_bias(\.weight)?$")
"""Names of embeddings and of tables of biases; GPT-2's are wte and wpe, those of BART and T5 shared, T5 has one of
relative positions, and XLNet mask_emb and seg_embed."""
SMALLEST_SIDE = 8
"""Layers with fewer outputs, such as a binary classifier, gain nothing from orthogonal updates."""


def learning_rate(config: LoopConfig, step: int) -> float:
    """Return the learning rate of a step, counted from 0: linear warm-up, then `config.decay`.

    The first step has a positive learning rate, as in transformers; google-research/bert starts at 0 and drops by
    `warmup_steps / steps` of the peak at the end of the warm-up.
    """
    if step < config.warmup_steps:
        return config.peak_lr * (step + 1) / (config.warmup_steps + 1)
    if config.decay == "warmup_stable_decay":
        return config.peak_lr * min(1.0, (config.steps - step) / config.decay_steps)
    left = (config.steps - step) / max(1, config.steps - config.warmup_steps)
    if config.decay == "cosine":
        return config.peak_lr * 0.5 * (1 + math.cos(math.pi * (1 - left)))
    return config.peak_lr * (left if config.decay == "linear" else 1.0)


def make_optimizers(model: torch.nn.Module, config: LoopConfig) -> list[torch.optim.Optimizer]:
    """Return AdamW with decoupled weight decay, preceded by Muon for hidden matrices if the recipe selects it.

    Biases and LayerNorm are not decayed. AdamW corrects its bias, which google-research/bert's Adam does not.
    """
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in trained if config.optimizer == "muon" and is_hidden_matrix(name, p)]
    taken = {id(p) for p in matrices}
    rest = [(name, p) for name, p in trained if id(p) not in taken]
    decayed = [p for name, p in rest if _is_decayed(name, p)]
    others = [p for name, p in rest if not _is_decayed(name, p)]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(
        groups, lr=0.0, betas=(config.adam_beta1, config.adam_beta2), eps=config.adam_epsilon, fused=True
    )
    if not matrices:
        return [adamw]
    dtype = compute_dtype(config)
    return [Muon(matrices, momentum=config.momentum, weight_decay=config.weight_decay, dtype=dtype), adamw]


def _is_decayed(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is neither a bias, that of a relative position included, nor a weight of a norm."""
    return parameter.ndim > 1 and "bias" not in name


def is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    """Whether a parameter is a matrix between hidden layers; XLNet's are divided into heads, (D, heads, D / heads)."""
    if parameter.ndim < 2 or EMBEDDING.search(name):
        return False
    return min(len(parameter), parameter[0].numel()) >= SMALLEST_SIDE


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values near 1, by Newton-Schulz iteration.

    Args:
        matrices: (N, R, C), in the precision of the computation.

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
    """Orthogonalised momentum with decoupled weight decay."""

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float = 0.0,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Optimize matrices.

        Args:
            params: matrices, (R, C) each, or divided into heads.
            lr: learning rate, on AdamW's scale.
            momentum: weight of the old momentum in the new one.
            weight_decay: on AdamW's scale.
            dtype: of the iteration.
        """
        self._dtype = dtype
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient.

        If `found_inf`, float (), is set and 1, everything stays as it is, as in torch's own optimizers.
        """
        assert closure is None
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    shapes.setdefault(parameter.shape, []).append(parameter)
            for parameters in shapes.values():
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """Update matrices of one shape."""
        found_inf = getattr(self, "found_inf", None)
        is_bad = torch.zeros((), dtype=torch.bool, device=parameters[0].device) if found_inf is None else found_inf > 0
        # A matrix that is divided into heads is one matrix.
        directions = [self._direction(p, group["momentum"], is_bad).flatten(1) for p in parameters]
        length = ADAMW_RMS * max(directions[0].shape) ** 0.5
        steps = orthogonalise(torch.stack(directions)).to(parameters[0].dtype)  # (N, R, C)
        steps = torch.where(is_bad, torch.zeros_like(steps), steps)
        decay = torch.where(is_bad, 1.0, 1 - group["lr"] * group["weight_decay"]).to(parameters[0].dtype)
        for parameter, step in zip(parameters, steps, strict=True):
            parameter.mul_(decay)
            parameter.add_(_shard_like(step.reshape(parameter.shape), parameter), alpha=-group["lr"] * length)

    def _direction(self, parameter: Tensor, momentum: float, is_bad: Tensor) -> Tensor:
        """Update the momentum, and return the direction of Nesterov's step, gathered from all shards."""
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        updated = state["momentum"].lerp(gradient, 1 - momentum)
        state["momentum"].copy_(torch.where(is_bad, state["momentum"], updated))
        direction = gradient.lerp(state["momentum"], momentum)
        return (direction.full_tensor() if isinstance(direction, DTensor) else direction).to(self._dtype)


def _shard_like(whole: Tensor, parameter: Tensor) -> Tensor:
    """Shard a matrix over the devices as a parameter is."""
    if not isinstance(parameter, DTensor):
        return whole
    return distribute_tensor(whole, parameter.device_mesh, parameter.placements)
