"""What fits in memory: failed allocations recognised, and the largest micro-batch that a training step has room for."""

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FAILURES = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
"""What torch says on a GPU and in main memory."""
ROOM = 0.9
"""Share of the free main memory that a step may fill: past it the system ends the process without an error."""
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an allocation failed, on a GPU or in main memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error).lower() for part in FAILURES)


def largest_micro_batch(
    compute: Callable[[int], object], batch_size: int, *, model: nn.Module, fixed_bytes: int
) -> int:
    """Return the largest of BATCH_SIZE, its half, its quarter, … that fits in memory; 0 if not even one row does.

    Args:
        compute: does the forward and backward pass of so many of the longest rows, and clears the gradients.
        batch_size: rows of a step.
        model: that computes; its weights are there already.
        fixed_bytes: what a step needs besides activations: gradients and the optimizer's states.
    """
    device = next(model.parameters()).device
    sizes = [batch_size]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    if device.type != "cpu":
        return next((size for size in sizes if _fits(compute, size, fixed_bytes, device)), 0)
    # Main memory has no allocator that fails in time, and a trial takes as long as a step: activations are counted.
    try:
        one, two = (saved_bytes(partial(compute, size), model) for size in (1, min(2, batch_size)))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return 0
    room = ROOM * free_bytes() - fixed_bytes
    return next((size for size in sizes if one + (size - 1) * (two - one) <= room), 0)


def _fits(compute: Callable[[int], object], size: int, fixed_bytes: int, device: torch.device) -> bool:
    try:
        reserved = torch.empty(fixed_bytes, dtype=torch.uint8, device=device)
        compute(size)
        del reserved
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        release(device)
    return True


def saved_bytes(compute: Callable[[], object], model: nn.Module) -> int:
    """Return the bytes that a computation keeps for its backward pass, weights of MODEL left out."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks: Any = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
    with hooks:
        compute()
    return sum(seen.values())


def release(device: torch.device) -> None:
    """Give freed memory back, so that another trial or process finds it."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free_bytes() -> int:
    """Return the main memory that this process may still take: of the machine, or of its control group if less."""
    found = [int(line.split()[1]) * 1024 for line in _lines(MEMINFO) if line.startswith("MemAvailable:")]
    limit, used = (_lines(CGROUP / name) for name in ("memory.max", "memory.current"))
    if limit and used and limit[0].strip().isdecimal():
        found.append(int(limit[0]) - int(used[0]) + _reclaimable())
    return min(found) if found else 1 << 62


def _reclaimable() -> int:
    """Return the bytes of the control group's file cache, which the system gives up when memory is short."""
    entries = (line.split() for line in _lines(CGROUP / "memory.stat"))
    return sum(int(value) for name, value in entries if name == "inactive_file")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
