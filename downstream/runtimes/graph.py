"""Networks as ONNX files: exported, fused, quantised, and kept under a digest of all that decides their bytes.

    exports = Exports(finetuned_network(folder))
    exports.read("int8")                                     # bytes of a model, made on the first call

Forms, each made from the one before it or from the plain one:

* `plain`: torch's export in single precision with free batch size and length. Nothing is ever padded to a fixed size.
* `fused`: embeddings, attention, GELU and residual + LayerNorm joined into one node each (onnxruntime's fusions).
* `int8`: `fused` with 8-bit weights and GELU by its tanh formula; the ranges of activations are measured at every call.
  Source: Le and Kaehler 2020, "How we scaled BERT to serve 1+ billion daily requests on CPUs".
* `compressed`: `plain` with 8-bit weights; in how many bits activations are multiplied is left to what runs it.
* `static`: `plain` with 8-bit weights and ranges of activations that were measured beforehand (QDQ format).
"""

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from corpora.foundation.errors import CheckpointError, ResultError, UsageError
from corpora.foundation.files import atomic_file, fingerprint, write_json
from corpora.foundation.machine import versions
from corpora.official import cache_root
from downstream.runtimes.network import Batch, FloatArray, Network

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

Form: TypeAlias = Literal["plain", "fused", "int8", "compressed", "static"]
FORMS: tuple[Form, ...] = get_args(Form)

INSTALL = "pip install 'pressbert[serve]'"
EXPORT_VERSION = 3
"""To be raised with every change of this file that alters what it exports."""
OPSET = 17
"""The first with LayerNormalization as one node."""
SLOW_FUSIONS = ("SkipLayerNormFusion", "BiasGeluFusion")
"""onnxruntime's nodes for sum and LayerNorm in one, and bias and GELU in one, take longer on a CPU than two nodes do:
of the sum and LayerNorm of 20 tokens × 768 84 against 23 µs (onnxruntime 1.31)."""
PROTOBUF_LIMIT = 2**31
"""Bytes that fit in one file; above it weights would lie in files beside it."""
CALIBRATION_INPUTS = 64
FEWEST_COLUMNS = 16
"""Of a product that is compressed: the last one, whose columns are the labels, takes no time and decides."""
MAX_DEVIATION = 1e-3
"""Largest difference to torch, relative to the largest output, that an export in single precision may have."""


def need(module: str) -> Any:
    """Import an optional package, with its reports to its maker off.

    Raises:
        UsageError: it is not installed.
    """
    # Both report their use over the network as soon as they are imported. onnxruntime reads a variable; of OpenVINO the
    # part that reports is a package of its own, without which it works as well.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise UsageError("runtime", f"the package {package} cannot be imported ({error})", INSTALL) from error


def runtime_cache() -> Path:
    """Return the folder of the user's cache for exported networks and remembered choices."""
    return cache_root().with_name("runtime")


def has_int8_units() -> bool:
    """Whether this processor multiplies bytes without overflow (VNNI, AMX, or any ARM); AVX2 alone does not.

    Without them pairs of products are added in 16 bits, which overflow; weights are given 7 bits there.
    """
    capabilities = cpu_capabilities()
    if "arm" in str(capabilities.get("architecture", "")) or capabilities.get("architecture") == "aarch64":
        return True
    return any(capabilities.get(unit) for unit in ("avx512_vnni", "avx_vnni", "amx_int8"))


def cpu_capabilities() -> Mapping[str, Any]:
    """Return the units of the processor, as torch tells them."""
    import torch

    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return capabilities


class Exports:
    """The ONNX forms of a network in the user's cache; a form that is missing or damaged is made anew."""

    def __init__(self, network: Network, root: Path | None = None) -> None:
        """Say where the forms of NETWORK lie; nothing is read or made yet.

        Args:
            network: what is exported.
            root: folder of the cache; default: `runtime_cache()`.
        """
        self._network, self._root = network, root

    @functools.cached_property
    def _reduce_range(self) -> bool:
        return not has_int8_units()

    @functools.cached_property
    def folder(self) -> Path:
        """Where the forms lie, or will: found when it is asked for, since that imports torch."""
        key = {
            "network": self._network.digest,
            "export": EXPORT_VERSION,
            "reduce_range": self._reduce_range,
            "versions": versions("torch", "transformers", "onnx", "onnxruntime") if _has_packages() else {},
        }
        return (self._root or runtime_cache()) / "exports" / fingerprint(key)[:32]

    def path(self, form: Form) -> Path:
        """Return where FORM lies, or will."""
        return self.folder / f"{form}.onnx"

    def read(self, form: Form) -> bytes:
        """Return the bytes of FORM, after a check of their digest.

        Raises:
            UsageError: onnx or onnxruntime is not installed.
            CheckpointError: the network cannot be exported.
            ResultError: the cache cannot be written.
        """
        content = self._cached(form)
        if content is None:
            with tempfile.TemporaryDirectory(prefix="pressbert-export-") as scratch:
                content = self._make(form, Path(scratch)).read_bytes()
        check_self_contained(content, self.path(form))
        return content

    def discard(self, *, keep: Sequence[Form]) -> None:
        """Delete the forms that are not in KEEP."""
        for form in FORMS:
            if form not in keep:
                self._stamp(form).unlink(missing_ok=True)
                self.path(form).unlink(missing_ok=True)

    def _stamp(self, form: Form) -> Path:
        return self.path(form).with_suffix(".json")

    def _cached(self, form: Form) -> bytes | None:
        """Return the stored bytes if they are what was written."""
        try:
            stamp = json.loads(self._stamp(form).read_text(encoding="utf-8"))
            content = self.path(form).read_bytes()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read (%s); it is made anew", self.path(form), error)
            return None
        if not isinstance(stamp, dict) or stamp.get("sha256") != hashlib.sha256(content).hexdigest():
            logger.warning("%s is damaged; it is made anew", self.path(form))
            return None
        return content

    def _make(self, form: Form, scratch: Path) -> Path:
        """Make FORM, and what it is made from, in SCRATCH; store it and return the file."""
        target = scratch / f"{form}.onnx"
        if form == "plain":
            export_plain(self._network, target)
        else:
            source = self._source("fused" if form == "int8" else "plain", scratch)
            with _quiet():
                if form == "fused":
                    fuse(source, target, num_heads=self._network.num_heads, hidden_size=self._network.hidden_size)
                elif form == "int8":
                    approximate_gelu(source, scratch / "tanh.onnx")
                    quantise(scratch / "tanh.onnx", target, reduce_range=self._reduce_range)
                elif form == "compressed":
                    compress(source, target)
                else:
                    calibrate = self._network.trial().inputs[:CALIBRATION_INPUTS]
                    quantise(source, target, reduce_range=self._reduce_range, calibrate=calibrate)
        if form in ("plain", "fused"):
            verify(self._network, target)
        content = target.read_bytes()
        try:
            with atomic_file(self.path(form), "wb") as file:
                file.write(content)
            # Written last: without it the form does not count.
            write_json(self._stamp(form), {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)})
        except ResultError as error:
            fix = "free some space, or set XDG_CACHE_HOME to a folder that can be written"
            raise ResultError(self.folder, error.what, fix) from error
        return target

    def _source(self, form: Form, scratch: Path) -> Path:
        """Return a file with FORM in SCRATCH."""
        path = scratch / f"{form}.onnx"
        if path.is_file():
            return path
        content = self._cached(form)
        if content is None:
            return self._make(form, scratch)
        path.write_bytes(content)
        return path


def _has_packages() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("onnx", "onnxruntime"))


def export_plain(network: Network, target: Path) -> None:
    """Write a network as ONNX in single precision.

    Raises:
        CheckpointError: it is too large for one file.
        UsageError: onnx is not installed.
    """
    import torch

    need("onnx")
    # Torch leaves a module in the mode of the outermost one, and a new one is in training mode.
    module = network.build_exported().eval()
    size_bytes = sum(parameter.numel() * 4 for parameter in module.parameters())
    if size_bytes >= PROTOBUF_LIMIT:
        what = f"{size_bytes / 1e9:.1f} GB of weights do not fit in one ONNX file"
        raise CheckpointError(network.where, what, 'use runtime="torch"')
    batches = [_random_batch(network, rows, length) for rows, length in ((2, 7), (3, 9))]
    with torch.inference_mode():
        shapes = [tuple(module(*_tensors(network, batch)).shape) for batch in batches]
    # An axis is free if it follows the batch size or the length.
    free = {axis: f"axis_{axis}" for axis, sizes in enumerate(zip(*shapes, strict=True)) if sizes[0] != sizes[1]}
    with _quiet():
        # torch's newer exporter needs one package more and knows less of what the fusions look for.
        torch.onnx.export(
            module,
            _tensors(network, batches[0]),
            str(target),
            input_names=list(network.inputs),
            output_names=["output"],
            dynamic_axes={name: {0: "batch", 1: "length"} for name in network.inputs} | {"output": free},
            opset_version=OPSET,
            dynamo=False,
        )


def fuse(source: Path, target: Path, *, num_heads: int, hidden_size: int) -> None:
    """Join the nodes of a BERT into onnxruntime's large ones.

    Args:
        source: a plain export.
        target: where to write.
        num_heads: of attention.
        hidden_size: D.
    """
    optimizer: Any = need("onnxruntime.transformers.optimizer")
    options = need("onnxruntime.transformers.fusion_options").FusionOptions("bert")
    # A bias costs nothing inside the product before it, and a pass over the tokens inside the node behind it.
    options.enable_bias_skip_layer_norm = options.enable_bias_gelu = False
    options.enable_skip_layer_norm = False  # as in `open_session`
    fused = optimizer.optimize_model(
        str(source),
        model_type="bert",
        num_heads=num_heads,
        hidden_size=hidden_size,
        optimization_options=options,
        opt_level=0,
    )
    fused.save_model_to_file(str(target))


def approximate_gelu(source: Path, target: Path) -> None:
    """Compute GELU by its tanh formula, which takes two thirds of the time (20 tokens × 3072: 46 against 71 µs).

    It is at most 5e-4 from the exact one. The next product makes 8-bit numbers of it, whose step is fifty times as
    large where the outputs reach up to 6. Source: Hendrycks and Gimpel 2016, section 2.

    Args:
        source: a fused form.
        target: where to write.
    """
    onnx = need("onnx")
    model = onnx.load(str(source), load_external_data=False)
    for node in model.graph.node:
        if node.op_type == "Gelu":
            node.op_type = "FastGelu"
    onnx.save(model, str(target))


def quantise(source: Path, target: Path, *, reduce_range: bool, calibrate: Sequence[Batch] = ()) -> None:
    """Give the weights of matrix products 8 bits, each column with a scale of its own.

    Args:
        source: a form in single precision.
        target: where to write.
        reduce_range: use 7 of the 8 bits; see `has_int8_units`.
        calibrate: inputs that measure the ranges of activations; none: they are measured at every call.
    """
    library: Any = need("onnxruntime.quantization")
    float_tensor = need("onnx").TensorProto.FLOAT
    # The quantiser cannot infer what the fused nodes give out.
    options = {"MatMulConstBOnly": True, "DefaultTensorType": float_tensor}
    common = {"per_channel": True, "reduce_range": reduce_range, "weight_type": library.QuantType.QInt8}
    if not calibrate:
        operators = ["MatMul", "Attention", "Gemm"]
        library.quantize_dynamic(
            str(source), str(target), op_types_to_quantize=operators, extra_options=options, **common
        )
        return
    names = {entry.name for entry in need("onnx").load(str(source), load_external_data=False).graph.input}

    library.quantize_static(
        str(source),
        str(target),
        _Reader({name: batch[name] for name in names} for batch in calibrate),
        quant_format=library.QuantFormat.QDQ,
        activation_type=library.QuantType.QUInt8,
        op_types_to_quantize=["MatMul", "Gemm"],
        extra_options=options,
        **common,
    )


def compress(source: Path, target: Path) -> None:
    """Store the weights of matrix products in 8 bits, symmetric about zero, each column with a scale of its own.

    Args:
        source: a form in single precision.
        target: where to write; every weight is followed by a node that gives its numbers back.
    """
    onnx = need("onnx")
    model = onnx.load(str(source), load_external_data=False)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    restored = []
    for node in graph.node:
        # A weight that two layers share is stored once.
        tensor = weights.pop(node.input[1], None) if node.op_type in ("MatMul", "Gemm") else None
        if tensor is None or len(tensor.dims) != 2 or min(tensor.dims) < FEWEST_COLUMNS:
            continue
        is_transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
        columns = 0 if is_transposed else 1
        numbers = onnx.numpy_helper.to_array(tensor)
        largest = np.abs(numbers).max(axis=1 - columns, keepdims=True)
        scales = (np.maximum(largest, np.finfo(np.float32).tiny * 127) / 127).astype(np.float32)
        stored = {
            "bits": np.rint(numbers / scales).astype(np.int8),
            "scales": scales.ravel(),
            "zeros": np.zeros(scales.size, np.int8),
        }
        names = [f"{tensor.name}.{part}" for part in stored]
        restored.append(onnx.helper.make_node("DequantizeLinear", names, [tensor.name], axis=columns))
        graph.initializer.remove(tensor)
        graph.initializer.extend(map(onnx.numpy_helper.from_array, stored.values(), names))
    for place, node in enumerate(restored):
        graph.node.insert(place, node)
    onnx.save(model, str(target))


class _Reader:
    """What the calibration takes its inputs from; it asks for nothing but this method."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches

    def get_next(self) -> Batch | None:
        return next(self._batches, None)


def verify(network: Network, path: Path) -> None:
    """Compare an export in single precision with torch, on a padded batch of another shape than it was traced with.

    Raises:
        CheckpointError: they differ.
    """
    import torch

    batch = _random_batch(network, 4, 13)
    with torch.inference_mode():
        reference = network.build().eval()(*_tensors(network, batch)).float().numpy()
    output = open_session(path.read_bytes(), threads=1)(batch)
    same_shape = output.shape == reference.shape
    deviation = float(np.abs(output - reference).max() / max(1.0, np.abs(reference).max())) if same_shape else np.inf
    if not deviation <= MAX_DEVIATION:
        what = f"the exported network ({path.stem}) differs from torch by {deviation:.2g} of its largest output"
        raise CheckpointError(network.where, what, 'use runtime="torch"')


def open_session(content: bytes, *, threads: int) -> Callable[[Batch], FloatArray]:
    """Open an ONNX model in onnxruntime on the CPU; returns a function from inputs to output."""
    library = need("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Plans of memory are kept per shape of the input, and shapes never end here.
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    if threads > 1:
        # Threads that wait in a loop take the cores of other workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = library.InferenceSession(
        content, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOW_FUSIONS
    )
    names = [entry.name for entry in session.get_inputs()]

    def run(batch: Batch) -> FloatArray:
        output: FloatArray = session.run(None, {name: batch[name] for name in names})[0]
        return output

    return run


def check_self_contained(content: bytes, where: Path) -> None:
    """Refuse an ONNX model that is damaged or takes weights from other files: such a path may lead anywhere.

    Raises:
        CheckpointError: it is one.
    """
    onnx = need("onnx")
    message = importlib.import_module("google.protobuf.message")
    try:
        model = onnx.load_model_from_string(content)
    except message.DecodeError as error:
        raise CheckpointError(where, f"not an ONNX model ({error})", "delete it; it is made anew") from error
    outside = next((t.name for t in _tensors_of(model.graph) if t.data_location == onnx.TensorProto.EXTERNAL), None)
    if outside is not None:
        raise CheckpointError(where, f"tensor '{outside}' lies in another file", "delete it; it is made anew")


def _tensors_of(graph: Any) -> Iterator[Any]:
    """Walk the constants of a graph and of the graphs inside its nodes."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors_of(inner)


def _random_batch(network: Network, rows: int, length: int) -> Batch:
    """Return ids that every vocabulary has; the last row ends in padding."""
    generator = np.random.default_rng(0)
    mask = np.ones((rows, length), dtype=np.int64)
    mask[-1, length // 2 :] = 0
    batch = {name: np.zeros((rows, length), dtype=np.int64) for name in network.inputs}
    return batch | {"input_ids": generator.integers(5, 50, (rows, length)), "attention_mask": mask}


def _tensors(network: Network, batch: Batch) -> tuple["Tensor", ...]:
    import torch

    return tuple(torch.from_numpy(batch[name]) for name in network.inputs)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the libraries say of every graph: what may go wrong is checked by its numbers."""
    root, level = logging.getLogger(), logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(max(level, logging.WARNING) if not root.isEnabledFor(logging.DEBUG) else level)
        try:
            yield
        finally:
            logging.disable(level)
