"""The devices of a run: accelerate's `Accelerator`, the precision of matrix products, and the device's name."""

import warnings
from typing import TYPE_CHECKING

import torch

from corpora.foundation.machine import cpu_name, training_precision
from pretraining.recipe import LoopConfig

if TYPE_CHECKING:
    from accelerate import Accelerator


def compute_dtype(config: LoopConfig) -> torch.dtype:
    """Return the dtype of matrix products: the recipe's, or the one that suits this machine."""
    return torch.bfloat16 if training_precision(config.precision) == "bf16" else torch.float32


def make_accelerator(config: LoopConfig, *, cpu: bool = False) -> "Accelerator":
    """Return the accelerator of this process, with the precision of the recipe.

    Args:
        config: settings of the loop.
        cpu: stay on the CPU even if there is a GPU.
    """
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    # It is process-wide and keeps the precision of an earlier training; transformers resets it in the same way.
    AcceleratorState._reset_state()
    with warnings.catch_warnings():
        # accelerate warns on every CPU that it sets the number of threads, which is intended.
        warnings.filterwarnings("ignore", message="OMP_NUM_THREADS", category=UserWarning)
        return Accelerator(
            mixed_precision="bf16" if compute_dtype(config) == torch.bfloat16 else "no",
            # By default accelerate looks for other processes only on machines with a GPU.
            cpu=cpu or not torch.accelerator.is_available(),
            step_scheduler_with_optimizer=False,
        )


def device_name(accelerator: "Accelerator") -> str:
    """Return the name of the processor, or the number and name of the GPUs."""
    if accelerator.device.type == "cuda":
        return f"{accelerator.num_processes} × {torch.cuda.get_device_name(accelerator.device)}"
    return cpu_name()
