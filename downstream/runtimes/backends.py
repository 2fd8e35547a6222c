"""The ways of running a network on this machine's CPU: with torch, NumPy, Numba, onnxruntime or OpenVINO.

A name such as `onnx-int8` is one way of running; a word such as `onnx` or `auto` stands for all ways of a library, or
for all there are, and `downstream.runtimes.selection` measures which is best.
"""

import importlib.util
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from corpora.foundation.errors import CheckpointError, SuiteError, UsageError, suggest
from corpora.foundation.machine import torch_threads
from downstream.runtimes.graph import INSTALL, Exports, Form, cpu_capabilities, has_int8_units, need, open_session
from downstream.runtimes.network import Batch, FloatArray, Network

Engine: TypeAlias = Callable[[Batch], FloatArray]
"""Inputs (B, T) → output (B, …), float32."""

REFERENCE = "torch"
"""The way that all others are compared with: what transformers computes, in single precision."""
BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Way:
    """One way of running a network."""

    library: str
    packages: tuple[str, ...]
    form: Form | None = None
    """What it reads; None: the model's own folder."""
    is_bfloat16: bool = False
    is_compiled: bool = False
    """Whether every start takes seconds for a compiler."""


WAYS: Mapping[str, Way] = {
    REFERENCE: Way("torch", ("torch",)),
    "numpy": Way("numpy", ("numpy",)),
    "numba-int8": Way("numba", ("numba",), is_compiled=True),
    "torch-bf16": Way("torch", ("torch",), is_bfloat16=True),
    "onnx-fp32": Way("onnx", ("onnx", "onnxruntime"), "fused"),
    "onnx-int8": Way("onnx", ("onnx", "onnxruntime"), "int8"),
    "onnx-static": Way("onnx", ("onnx", "onnxruntime"), "static"),
    "openvino-fp32": Way("openvino", ("onnx", "onnxruntime", "openvino"), "plain"),
    "openvino-bf16": Way("openvino", ("onnx", "onnxruntime", "openvino"), "plain", is_bfloat16=True),
    "openvino-int8": Way("openvino", ("onnx", "onnxruntime", "openvino"), "compressed"),
    "openvino-static": Way("openvino", ("onnx", "onnxruntime", "openvino"), "static"),
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "auto": tuple(WAYS),
    **{name: (name,) for name in WAYS},
    **{word: tuple(n for n, way in WAYS.items() if way.library == word) for word in ("onnx", "openvino")},
}
"""What may be given as `runtime`, with the ways it stands for."""


def ways_of(word: str) -> tuple[str, ...]:
    """Return the ways that a word stands for.

    Raises:
        UsageError: there is no such word.
    """
    if word not in WORDS:
        raise UsageError("runtime", f"unknown runtime '{word}'", suggest(word, WORDS))
    return WORDS[word]


def obstacle(name: str) -> str:
    """Return why a way cannot be gone on this machine, or nothing."""
    way = WAYS[name]
    missing = [package for package in way.packages if importlib.util.find_spec(package) is None]
    if missing:
        return f"{', '.join(missing)} not installed: {INSTALL}"
    if way.library == "numba" and not cpu_capabilities().get("avx512_vnni"):
        return "it is written for processors with AVX-512 VNNI"
    if way.is_bfloat16 and not any(cpu_capabilities().get(unit) for unit in BFLOAT16_UNITS):
        return "this processor does not compute in bf16"
    if way.form == "compressed" and not has_int8_units():
        return "OpenVINO multiplies 8-bit numbers on processors with VNNI or AMX alone"
    return ""


def open_engine(name: str, network: Network, exports: Exports, *, threads: int) -> Engine:
    """Make a network ready to run.

    Args:
        name: a key of `WAYS`.
        network: what is run.
        exports: where its ONNX forms are kept.
        threads: that compute.

    Raises:
        UsageError: a package is missing, or the processor cannot do it.
        CheckpointError: the network cannot be loaded, or not by this library.
    """
    way, reason = WAYS[name], obstacle(name)
    if reason:
        raise UsageError(f"runtime {name}", reason, 'or use runtime="torch"')
    if way.library == "numba" and threads > 1:
        raise UsageError(f"runtime {name}", f"it computes in 1 thread, not in {threads}", "start more workers")
    try:
        if way.library in ("numpy", "numba"):
            return _open_plain(network, threads=threads, is_int8=way.library == "numba")
        if way.form is None:
            return _open_torch(network, threads=threads, is_bfloat16=way.is_bfloat16)
        content = exports.read(way.form)
        if way.library == "onnx":
            return open_session(content, threads=threads)
        # Inner sizes are D and its multiples.
        group_size = network.hidden_size if way.form == "compressed" else 0
        return _open_openvino(content, threads=threads, is_bfloat16=way.is_bfloat16, group_size=group_size)
    except SuiteError:
        raise
    except Exception as error:  # each library has exceptions of its own, of all kinds
        what = f"{name} cannot run it ({type(error).__name__}: {str(error)[:200]})"
        raise CheckpointError(network.where, what, 'use runtime="torch"') from error


def _open_torch(network: Network, *, threads: int, is_bfloat16: bool) -> Engine:
    import torch

    module = network.build().eval()
    if is_bfloat16:
        module = module.to(torch.bfloat16)

    def run(batch: Batch) -> FloatArray:
        with torch_threads(threads), torch.inference_mode():
            output: torch.Tensor = module(*(torch.from_numpy(batch[name]) for name in network.inputs))
            return np.asarray(output.float().numpy())

    return run


def _open_plain(network: Network, *, threads: int, is_int8: bool) -> Engine:
    from threadpoolctl import ThreadpoolController

    if network.plain is None:
        what = "NumPy and Numba run plain BERTs that label or embed texts"
        raise CheckpointError(network.where, what, 'use runtime="torch"')
    ask, bert, pools = network.plain.ask, network.plain.load(), ThreadpoolController()
    if is_int8:
        from downstream.runtimes.kernels.bert import Int8Bert

        bert = Int8Bert.of(bert)

    def run(batch: Batch) -> FloatArray:
        with pools.limit(limits=threads, user_api="blas"):
            return ask(bert, batch)

    return run


def _open_openvino(content: bytes, *, threads: int, is_bfloat16: bool, group_size: int) -> Engine:
    """Open a model in OpenVINO; of every GROUP_SIZE activations the range is measured if its weights have 8 bits."""
    openvino: Any = need("openvino")
    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if is_bfloat16 else "f32",
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": group_size,
        # Pinned, the threads of all worker processes would sit on the same core.
        "ENABLE_CPU_PINNING": False,
    }
    compiled = core.compile_model(core.read_model(content, b""), "CPU", settings)
    names = [port.get_any_name() for port in compiled.inputs]
    request, lock = compiled.create_infer_request(), threading.Lock()

    def run(batch: Batch) -> FloatArray:
        with lock:
            # The array belongs to the request, which overwrites it at the next call.
            return np.array(request.infer({name: batch[name] for name in names})[0], dtype=np.float32)

    return run
