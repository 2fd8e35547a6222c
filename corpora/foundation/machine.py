"""The machine: processor, precision, threads, memory, and versions of libraries."""

import contextlib
import ctypes
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "scikit-learn", "numpy", "kiwipiepy")
MATMUL_SIDE = 2048
NUM_WARM_UPS = 2
"""Matrix products before those that are timed."""
Precision: TypeAlias = Literal["auto", "bf16", "fp32"]
"""Of a training. `auto`: bf16 where the processor multiplies it fast, else fp32."""


def devices() -> list[str]:
    """Return the accelerators this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def use_one_device() -> None:
    """Keep this process to one accelerator: given several, transformers' Trainer would multiply the batch by them."""
    if len(found := devices()) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = found[0]


def training_precision(asked: Precision = "auto") -> Literal["bf16", "fp32"]:
    """Return ASKED, or the faster precision of this machine; emulated bf16 is a hundred times slower than fp32."""
    import torch

    if asked != "auto":
        return asked
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    capabilities = torch.cpu.get_capabilities()
    return "bf16" if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else "fp32"


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of threads of torch to COUNT inside the context."""
    import torch

    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


def num_threads() -> int:
    """Return the threads this process may use: `OMP_NUM_THREADS`, else the processors it is allowed on."""
    given = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, this suite and PACKAGES (default: all that decide results)."""
    found = {"python": platform.python_version(), "pressbert": metadata.version("pressbert")}
    return found | {name: metadata.version(name) for name in packages or PACKAGES}


def environment() -> dict[str, str]:
    """Return the machine's description."""
    return {"platform": platform.platform(), "cpu": cpu_name()}


def cpu_name() -> str:
    """Return the model name of the processor, if the system reports it."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def cpu_units() -> frozenset[str]:
    """Return the units of the processor that Linux lists, e.g. `avx512_vnni`; empty on other systems."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return frozenset(next((line.split(":", 1)[1] for line in lines if line.startswith("flags")), "").split())


def matmul_flops_per_s(
    device: "torch.device", dtype: "torch.dtype", *, rounds: int = 8, seconds: float = math.inf
) -> float:
    """Measure the rate of a large square matrix product, an upper bound for training.

    Args:
        device: where.
        dtype: of the factors.
        rounds: products timed; the fastest counts.
        seconds: no further product is begun after this time; one at least is timed.

    Returns:
        Floating-point operations per second.
    """
    import torch

    a, b = (torch.rand(MATMUL_SIDE, MATMUL_SIDE, device=device).to(dtype) for _ in range(2))
    times = []
    for _ in range(NUM_WARM_UPS + rounds):
        started = time.perf_counter()
        product = a @ b
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
        del product
        if len(times) > NUM_WARM_UPS and sum(times) >= seconds:
            break
    return 2 * MATMUL_SIDE**3 / min(times[NUM_WARM_UPS:])


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory instead of returning it to the system.

    A training step on a CPU frees and allocates the same large tensors; by default glibc maps each of them again, and
    the system zeroes the pages at first touch.
    `benchmarks/pretraining.py` measures the cost.

    Returns:
        Whether it worked: on Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # malloc.h
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return all(mallopt(*option) == 1 for option in ((mmap_max, 0), (trim_threshold, 1 << 30), (top_pad, 1 << 26)))


@contextlib.contextmanager
def no_file_bars() -> Iterator[None]:
    """Disable the progress bars of transformers for reading and writing files, which litter logs."""
    import transformers

    library: Any = transformers.utils.logging  # annotates only parts of itself
    was_on = library.is_progress_bar_enabled()
    library.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            library.enable_progress_bar()


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence transformers' reports on missing heads and poolers, for models that are used without them."""
    import transformers

    library: Any = transformers.utils.logging  # annotates only parts of itself
    before = library.get_verbosity()
    library.set_verbosity_error()
    try:
        with no_file_bars():
            yield
    finally:
        library.set_verbosity(before)
