"""Write an encoder with a head as an ONNX graph, straight from its weights, and open it in onnxruntime on the CPU.

    run = open_session(build_graph(EncoderWeights.from_folder(folder), "labels", INPUTS), threads=1)
    run({"input_ids": ids, "token_type_ids": types, "attention_mask": mask})                # (B, C)

Neither torch nor its exporter is needed, and nothing is stored: a graph is ready in a tenth of a second. Embeddings,
attention and GELU are one node of onnxruntime each. Batch size and length are free. Weights are handed over in memory
and not copied into the graph, whose format holds no more than 2 GB.

A head for whole texts reads nothing but [CLS] of the last layer, which therefore computes nothing else: the same
numbers for most of a layer less work.

In 8 bits, weights are symmetric about zero with a scale for every output; the range of a product's inputs is measured
at every call, and GELU is its tanh formula. Source: Le and Kaehler 2020, "How we scaled BERT to serve 1+ billion daily
requests on CPUs".
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from downstream.runtimes.weights import EncoderWeights, FloatArray

Batch: TypeAlias = Mapping[str, NDArray[np.int64]]
"""Input name → (B, T)."""
Forward: TypeAlias = Callable[[Batch], FloatArray]
"""Inputs (B, T) → output (B, …), float32."""
Head: TypeAlias = Literal["labels", "spans", "tags", "mean", "states", "masked_tokens"]
"""What is computed of the last layer's states (B, T, D): `labels` logits (B, C) of [CLS], `spans` scores (B, 2, T),
`tags` logits (B, T, C), `mean` of all tokens but padding (B, D), `states` themselves, `masked_tokens` logits (N, V) at
the positions of an additional input."""

GRAPH_VERSION = 1
"""To be raised with every change that alters what a graph computes."""
OPSET, IR_VERSION = 17, 8
"""The first operators with LayerNormalization as one node, and the file format of their time."""
CONTRIB = "com.microsoft"
"""Domain of onnxruntime's own operators."""
MASKED_POSITIONS = "masked_positions"
"""Additional input of the head `masked_tokens`: (N,), positions in the tokens of all texts."""
SLOW_FUSIONS = ("SkipLayerNormFusion", "BiasGeluFusion")
"""onnxruntime's nodes for sum and LayerNorm in one, and bias and GELU in one, take longer on a CPU than two nodes do:
of the sum and LayerNorm of 20 tokens × 768 84 against 23 µs (onnxruntime 1.31)."""
FEWEST_SHARED_BYTES = 1024
"""Of an array that is handed over in memory: onnxruntime reads smaller ones, such as shapes, when it plans a graph."""


@dataclass(frozen=True)
class Graph:
    """An ONNX model and the arrays that it names."""

    content: bytes
    """A ModelProto."""
    arrays: Mapping[str, NDArray[Any]]
    """Name of a constant → its value, for those that are not in `content`."""


def build_graph(
    weights: EncoderWeights, head: Head, inputs: Sequence[str], *, is_int8: bool = False, reduce_range: bool = False
) -> Graph:
    """Write an encoder and a head.

    Args:
        weights: of both.
        head: what is computed of the last layer.
        inputs: names of the inputs, int64 (B, T); `input_ids` and `attention_mask` are among them.
        is_int8: give the weights of matrix products 8 bits.
        reduce_range: use 7 of the 8 bits; see `downstream.runtimes.backends.has_int8_units`.

    Raises:
        CheckpointError: the folder was saved without the head.
    """
    levels = 0 if not is_int8 else 64 if reduce_range else 127
    builder = _Builder(weights, inputs, levels)
    builder.finish(head)
    return Graph(builder.model.SerializeToString(), builder.arrays)


class _Builder:
    """A graph that grows node by node; what adds a node returns the name of its output."""

    def __init__(self, weights: EncoderWeights, inputs: Sequence[str], levels: int) -> None:
        """Begin a graph; LEVELS is the largest 8-bit number of a weight, 0 for single precision."""
        import onnx

        self._onnx, self._weights, self._inputs, self._levels = onnx, weights, inputs, levels
        operators = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(CONTRIB, 1)]
        self.model = onnx.ModelProto(ir_version=IR_VERSION, opset_import=operators)
        self.arrays: dict[str, NDArray[Any]] = {}
        self._graph = self.model.graph
        self._graph.name = "encoder"
        for name in inputs:
            self._add_input(name, "batch", "length")
        self._mask = self._cast("attention_mask")

    def finish(self, head: Head) -> None:
        """Add embeddings, all layers and the head."""
        states = self._embed()
        for k in range(self._weights.num_layers):
            is_last = k == self._weights.num_layers - 1
            states = self._add_layer(states, f"encoder.layer.{k}.", cls_only=is_last and head == "labels")
        heads = {
            "labels": self._label_logits,
            "spans": lambda states: self._add("Transpose", self._linear(states, "qa_outputs"), perm=[0, 2, 1]),
            "tags": lambda states: self._linear(states, "classifier"),
            "mean": self._mean,
            "states": lambda states: states,
            "masked_tokens": self._masked_token_logits,
        }
        self._graph.node.append(self._onnx.helper.make_node("Identity", [heads[head](states)], ["output"]))
        self._graph.output.append(
            self._onnx.helper.make_tensor_value_info("output", self._onnx.TensorProto.FLOAT, None)
        )

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _add_input(self, name: str, *shape: str) -> None:
        kind = self._onnx.TensorProto.INT64
        self._graph.input.append(self._onnx.helper.make_tensor_value_info(name, kind, shape))

    def _add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        return self._add_several(operator, 1, *inputs, domain=domain, **attributes)[0]

    def _add_several(
        self, operator: str, num_outputs: int, *inputs: str, domain: str = "", **attributes: Any
    ) -> list[str]:
        name = f"{operator}_{len(self._graph.node)}"
        outputs = [f"{name}.{k}" for k in range(num_outputs)]
        node = self._onnx.helper.make_node(operator, inputs, outputs, name, domain=domain, **attributes)
        self._graph.node.append(node)
        return outputs

    def _cast(self, name: str) -> str:
        """Make the 32-bit integers that onnxruntime's own operators read of an input."""
        return self._add("Cast", name, to=self._onnx.TensorProto.INT32)

    def _constant(self, value: Any) -> str:
        """Store an array that some node reads; a list is of whole numbers."""
        array = np.ascontiguousarray(value)
        name = f"constant_{len(self._graph.initializer)}"
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = self._graph.initializer.add(name=name, data_type=kind, dims=array.shape)
        if array.nbytes < FEWEST_SHARED_BYTES:
            tensor.raw_data = array.tobytes()
        else:
            tensor.data_location = self._onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=name)
            self.arrays[name] = array
        return name

    def _linear(self, x: str, *names: str) -> str:
        """Multiply by the weights of linear layers, side by side, and add their biases."""
        weight, bias = self._weights.joint(*names)
        if not self._levels:
            return self._add("Add", self._add("MatMul", x, self._constant(weight)), self._constant(bias))
        rounded, scales = self._round(weight)
        return self._add("DynamicQuantizeMatMul", x, rounded, scales, "", self._constant(bias), domain=CONTRIB)

    def _round(self, weight: FloatArray) -> tuple[str, str]:
        """Store weights (K, M) in 8 bits; returns them and the scales (M,) of their columns."""
        largest = np.maximum(np.abs(weight).max(axis=0), np.finfo(np.float32).tiny * self._levels)
        scales = (largest.astype(np.float64) / self._levels).astype(np.float32)
        return self._constant(np.rint(weight / scales).astype(np.int8)), self._constant(scales)

    def _normalize(self, x: str, name: str) -> str:
        scale, bias = (self._constant(self._weights.require(f"{name}.{part}")) for part in ("weight", "bias"))
        return self._add("LayerNormalization", x, scale, bias, axis=-1, epsilon=self._weights.epsilon)

    def _gelu(self, x: str) -> str:
        """Add GELU; in 8 bits its tanh formula, in two thirds of the time (20 tokens × 3072: 46 against 71 µs).

        That is at most 5e-4 from the exact one. The next product makes 8-bit numbers of it, whose step is fifty times
        as large where the outputs reach up to 6. Source: Hendrycks and Gimpel 2016, section 2.
        """
        return self._add("FastGelu" if self._levels else "Gelu", x, domain=CONTRIB)

    # --- encoder ------------------------------------------------------------------------------------------------------

    def _embed(self) -> str:
        """Add embeddings and their LayerNorm; returns (B, T, D)."""
        words, positions, types = (
            self._weights.require(f"embeddings.{kind}_embeddings.weight") for kind in ("word", "position", "token_type")
        )
        ids, type_ids, types_added = self._cast("input_ids"), "", ""
        if "token_type_ids" in self._inputs:
            type_ids, types_added = self._cast("token_type_ids"), self._constant(types)
        else:
            positions = positions + types[0]
        embedded, _ = self._add_several(
            "EmbedLayerNormalization",
            2,
            ids,
            type_ids,
            self._constant(words),
            self._constant(positions),
            types_added,
            *(self._constant(self._weights.require(f"embeddings.LayerNorm.{part}")) for part in ("weight", "bias")),
            domain=CONTRIB,
            epsilon=self._weights.epsilon,
        )
        # ELECTRA's embeddings may be narrower than its layers.
        is_narrow = "embeddings_project.weight" in self._weights.tensors
        return self._linear(embedded, "embeddings_project") if is_narrow else embedded

    def _add_layer(self, states: str, name: str, *, cls_only: bool) -> str:
        """Add one layer; returns (B, T, D), or (B, 1, D) with the next state of [CLS] alone."""
        if cls_only:
            begin, end, axis = self._constant([0]), self._constant([1]), self._constant([1])
            targets = self._add("Slice", states, begin, end, axis)
            context = self._attend_from(targets, states, f"{name}attention.self.")
        else:
            targets = states
            context = self._attend(states, f"{name}attention.self.")
        attended = self._add("Add", self._linear(context, f"{name}attention.output.dense"), targets)
        attended = self._normalize(attended, f"{name}attention.output.LayerNorm")
        inner = self._gelu(self._linear(attended, f"{name}intermediate.dense"))
        out = self._add("Add", self._linear(inner, f"{name}output.dense"), attended)
        return self._normalize(out, f"{name}output.LayerNorm")

    def _attend(self, states: str, name: str) -> str:
        """Add self-attention; returns the context (B, T, D)."""
        heads = self._weights.num_heads
        weight, bias = self._weights.joint(*(f"{name}{part}" for part in ("query", "key", "value")))
        if not self._levels:
            inputs = (states, self._constant(weight), self._constant(bias), self._mask)
            return self._add("Attention", *inputs, domain=CONTRIB, num_heads=heads)
        rounded, scales = self._round(weight)
        quantized, scale, zero = self._add_several("DynamicQuantizeLinear", 3, states)
        zeros = self._constant(np.zeros(bias.size, np.int8))
        inputs_in_8_bits = (quantized, rounded, self._constant(bias), scale, scales, self._mask, zero, zeros)
        return self._add("QAttention", *inputs_in_8_bits, domain=CONTRIB, num_heads=heads)

    def _attend_from(self, targets: str, states: str, name: str) -> str:
        """Add attention of one token of each text (B, 1, D) to all states (B, T, D); returns its context (B, 1, D)."""
        query = self._linear(targets, f"{name}query")
        both = self._linear(states, f"{name}key", f"{name}value")
        key, value = self._add_several("Split", 2, both, axis=2)
        inputs = (query, key, value, "", self._mask)
        return self._add("MultiHeadAttention", *inputs, domain=CONTRIB, num_heads=self._weights.num_heads)

    # --- heads --------------------------------------------------------------------------------------------------------

    def _label_logits(self, first: str) -> str:
        """Add the head of a text or a pair, which reads [CLS] (B, 1, D)."""
        pooled = self._linear(self._add("Squeeze", first, self._constant([1])), "pooler.dense")
        is_electra = self._weights.model_type == "electra"
        return self._linear(self._gelu(pooled) if is_electra else self._add("Tanh", pooled), "classifier")

    def _mean(self, states: str) -> str:
        seen = self._add("Unsqueeze", "attention_mask", self._constant([2]))
        seen = self._add("Cast", seen, to=self._onnx.TensorProto.FLOAT)  # (B, T, 1)
        tokens = self._constant([1])
        sums = self._add("ReduceSum", self._add("Mul", states, seen), tokens, keepdims=0)
        return self._add("Div", sums, self._add("ReduceSum", seen, tokens, keepdims=0))

    def _masked_token_logits(self, states: str) -> str:
        """Add the masked-LM head at the positions that are asked for."""
        self._add_input(MASKED_POSITIONS, "masked")
        rows = self._add("Reshape", states, self._constant([-1, self._weights.hidden_size]))
        masked = self._add("Gather", rows, MASKED_POSITIONS, axis=0)  # (N, D)
        name = "cls.predictions."
        hidden = self._normalize(
            self._gelu(self._linear(masked, f"{name}transform.dense")), f"{name}transform.LayerNorm"
        )
        # The output embeddings are the input's, unless they are stored apart.
        stored, require = self._weights.tensors, self._weights.require
        words = stored.get(f"{name}decoder.weight", require("embeddings.word_embeddings.weight"))
        bias = self._constant(stored.get(f"{name}decoder.bias", require(f"{name}bias")))
        return self._add("Gemm", hidden, self._constant(words), bias, transB=1)


@dataclass(frozen=True)
class _Session:
    session: Any
    inputs: Sequence[str]
    graph: Graph
    """Its arrays are read where they lie, and the session does not keep them alive itself."""

    def __call__(self, batch: Batch) -> FloatArray:
        output: FloatArray = self.session.run(None, {name: batch[name] for name in self.inputs})[0]
        return output


def open_session(graph: Graph, *, threads: int) -> Forward:
    """Open a graph in onnxruntime on the CPU; what is returned may be called by several threads at a time."""
    # onnxruntime reports its use over the network from its import on, unless this variable is set.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Plans of memory are kept per shape of the input, and shapes never end here.
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    if threads > 1:
        # Threads that wait in a loop take the cores of other workers.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in graph.arrays.values()]
    options.add_external_initializers(list(graph.arrays), values)
    session = onnxruntime.InferenceSession(
        graph.content, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(SLOW_FUSIONS)
    )
    return _Session(session, [entry.name for entry in session.get_inputs()], graph)
