"""The backends: what can run a network on this machine's CPU.

| backend | what it computes |
| --- | --- |
| `torch` | what transformers computes, in single precision |
| `onnx-fp32` | the same in onnxruntime, for BERT, RoBERTa and ELECTRA |
| `onnx-int8` | the same with 8-bit weights |
| `numba-int8` | our own 8-bit kernels, for BERTs that label or embed texts (extra `kernels`) |

A word such as `onnx` or `auto` stands for several, of which `downstream.runtimes.selection` measures the best.
"""

import functools
import importlib.util
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from corpora.foundation.errors import UsageError, suggest
from corpora.foundation.machine import cpu_units, torch_threads
from corpora.foundation.plugins import refuse_taken, with_plugins
from downstream.runtimes.graph import Batch, Forward, build_graph, open_session
from downstream.runtimes.network import Network
from downstream.runtimes.weights import FloatArray

REFERENCE, LIGHT_REFERENCE = "torch", "onnx-fp32"
"""The backend that all others are compared with, and the one where PyTorch is not installed."""


@dataclass(frozen=True)
class Backend:
    """What runs a network."""

    open: Callable[[Network, int], Forward]
    """Makes a network ready to run in so many threads."""
    is_compiled: bool = False
    """Whether every start takes seconds for a compiler."""
    unsupported: Callable[[], str] = str
    """Returns why this machine does not support it, or nothing."""


@functools.cache
def all_backends() -> Mapping[str, Backend]:
    """Return our backends and those of plug-ins, by name."""
    return with_plugins(BACKENDS, "backends", Backend, key="")


@functools.cache
def all_words() -> Mapping[str, tuple[str, ...]]:
    """Return what may be given as `runtime`, with the backends it stands for; `auto` is all of them."""
    added = {name: (name,) for name in all_backends() if name not in BACKENDS}
    refuse_taken("backends", added, WORDS)
    return {**WORDS, **added, "auto": tuple(all_backends())}


def backends_for(word: str) -> tuple[str, ...]:
    """Return the backends that a word stands for.

    Raises:
        UsageError: there is no such word.
    """
    if word not in all_words():
        raise UsageError("runtime", f"unknown runtime '{word}'", suggest(word, all_words()))
    return all_words()[word]


def unsupported_reason(name: str) -> str:
    """Return why a backend is unsupported on this machine, or nothing."""
    if name == "torch" and importlib.util.find_spec("torch") is None:
        return "torch not installed: pip install 'pressbert[train]'"
    if name == "numba-int8":
        if importlib.util.find_spec("numba") is None:
            return "numba not installed: pip install 'pressbert[kernels]'"
        if not cpu_capabilities().get("avx512_vnni"):
            return "it is written for processors with AVX-512 VNNI"
    return all_backends()[name].unsupported()


def reference_backend() -> str:
    """Return the backend that decides whether the others agree."""
    return LIGHT_REFERENCE if unsupported_reason(REFERENCE) else REFERENCE


def open_backend(name: str, network: Network, *, threads: int) -> Forward:
    """Make a network ready to run.

    Args:
        name: a key of `all_backends()`.
        network: what is run.
        threads: that compute.

    Raises:
        UsageError: the backend is unsupported on this machine, or in so many threads.
        CheckpointError: the network cannot be loaded, or not by this backend.
    """
    if reason := unsupported_reason(name):
        raise UsageError(f"runtime {name}", reason, f'or use runtime="{reference_backend()}"')
    return all_backends()[name].open(network, threads)


def _open_torch(network: Network, threads: int) -> Forward:
    import torch

    module = network.build().eval()

    def run(batch: Batch) -> FloatArray:
        with torch_threads(threads), torch.inference_mode():
            output: torch.Tensor = module(*(torch.from_numpy(batch[name]) for name in network.inputs))
            return np.asarray(output.float().numpy())

    return run


def _open_onnx_fp32(network: Network, threads: int) -> Forward:
    return open_session(build_graph(network.weights(), network.head, network.inputs), threads=threads)


def _open_onnx_int8(network: Network, threads: int) -> Forward:
    reduce_range = not has_int8_units()
    content = build_graph(network.weights(), network.head, network.inputs, is_int8=True, reduce_range=reduce_range)
    return open_session(content, threads=threads)


def _open_kernels(network: Network, threads: int) -> Forward:
    from threadpoolctl import ThreadpoolController

    from downstream.runtimes.kernels.bert import Int8Bert  # imports Numba

    if threads > 1:
        raise UsageError("runtime numba-int8", f"it computes in 1 thread, not in {threads}", "start more workers")
    bert, pools = Int8Bert.from_weights(network.weights(), network.head), ThreadpoolController()

    def run(batch: Batch) -> FloatArray:
        with pools.limit(limits=threads, user_api="blas"):
            return bert.run(batch)

    return run


BACKENDS: Mapping[str, Backend] = {
    REFERENCE: Backend(_open_torch),
    "onnx-fp32": Backend(_open_onnx_fp32),
    "onnx-int8": Backend(_open_onnx_int8),
    "numba-int8": Backend(_open_kernels, is_compiled=True),
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "auto": tuple(BACKENDS),
    **{name: (name,) for name in BACKENDS},
    "onnx": ("onnx-fp32", "onnx-int8"),
}
"""Words for our own backends; `all_words` has those of plug-ins too."""


def has_int8_units() -> bool:
    """Whether this processor multiplies bytes without overflow (VNNI, AMX, or any ARM); AVX2 alone does not.

    Without them pairs of products are added in 16 bits, which overflow; weights are given 7 bits there.
    """
    capabilities = cpu_capabilities()
    if "arm" in str(capabilities.get("architecture", "")) or capabilities.get("architecture") == "aarch64":
        return True
    return any(capabilities.get(unit) for unit in ("avx512_vnni", "avx_vnni", "amx_int8"))


def cpu_capabilities() -> Mapping[str, Any]:
    """Return the architecture of the processor and, where Linux lists them, its units, in the kernel's spelling."""
    return {"architecture": platform.machine().lower()} | dict.fromkeys(cpu_units(), True)
