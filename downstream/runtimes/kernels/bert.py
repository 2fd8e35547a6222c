"""BERT with 8-bit weights: the layers in `layers`, the heads in NumPy.

    bert = Int8Bert.from_weights(EncoderWeights.from_folder(folder), "labels")
    logits = bert.run({"input_ids": ids, "attention_mask": mask})                       # (B, C)

Weights are symmetric about zero with a scale for every output, inputs with one for every token, measured at every call.
Padding is left out of all sums, not masked: tokens of all texts stand in one column, each text with its span. Where a
head reads [CLS] alone, the last layer computes nothing else.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import CheckpointError
from downstream.runtimes.graph import Batch, Head
from downstream.runtimes.kernels.layers import (
    CHUNK,
    SHIFT,
    TOP,
    Layer,
    Product,
    Scratch,
    add_normalized,
    run_layer,
)
from downstream.runtimes.kernels.tiles import PANEL, WORD
from downstream.runtimes.weights import EncoderWeights, FloatArray

Integers: TypeAlias = NDArray[np.int64]

PAGE = 4096
"""Bytes at whose multiples the weights begin."""
HEADS: tuple[Head, ...] = ("labels", "mean")


@dataclass(frozen=True)
class Int8Bert:
    """A BERT with 8-bit weights in its layers. Any number of threads may use it, one after the other."""

    head: Head
    """One of `HEADS`."""
    _weights: EncoderWeights = field(repr=False)
    """Of embeddings and heads: what became 8 bits is not kept in 32."""
    _layers: tuple[Layer, ...] = field(repr=False)
    _lock: threading.Lock = field(repr=False, default_factory=threading.Lock)
    _scratch: list[Scratch] = field(repr=False, default_factory=list)
    """The last one that was needed."""

    @classmethod
    def from_weights(cls, weights: EncoderWeights, head: Head) -> "Int8Bert":
        """Give the layers of a BERT 8-bit weights. Compiles what is not compiled yet, which takes seconds.

        Raises:
            CheckpointError: it is no BERT, has another head, or its sizes do not fill registers.
        """
        fix = 'use runtime="torch"'
        if weights.model_type != "bert" or head not in HEADS:
            what = f"the kernels run BERTs that label or embed texts, not {weights.model_type} with head '{head}'"
            raise CheckpointError(weights.where, what, fix)
        inner = weights.tensors["encoder.layer.0.intermediate.dense.bias"].size
        for what, size in (("heads", weights.hidden_size // weights.num_heads), ("inner layers", inner)):
            if size % PANEL:
                reason = f"its {what} have {size} numbers, which is no multiple of {PANEL}"
                raise CheckpointError(weights.where, reason, fix)
        layers = tuple(_pack_layers(weights))
        others = {name: value for name, value in weights.tensors.items() if not name.startswith("encoder.")}
        bert = cls(head, replace(weights, tensors=others), layers)
        bert.states(np.zeros((1, 1), np.int64))
        return bert

    def run(self, batch: Batch) -> FloatArray:
        """Return logits (B, C), or with head `mean` the means (B, D) of all tokens but padding."""
        ids, mask, types = batch["input_ids"], batch["attention_mask"], batch.get("token_type_ids")
        if self.head == "mean":
            # States of padding are zero.
            mean: FloatArray = self.states(ids, mask, types).sum(axis=1) / mask.sum(axis=1, dtype=np.float32)[:, None]
            return mean
        pooled = np.tanh(self._project(self.first_states(ids, mask, types), "pooler.dense"))
        return self._project(pooled, "classifier")

    def _project(self, x: FloatArray, name: str) -> FloatArray:
        weight, bias = (self._weights.require(f"{name}.{part}") for part in ("weight", "bias"))
        projected: FloatArray = x @ weight.T + bias
        return projected

    def states(
        self, input_ids: Integers, attention_mask: Integers | None = None, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the vectors (B, T, D) of the last layer, those of padding zero.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T), 0 for padding; default: there is none.
            token_type_ids: (B, T); default: 0.
        """
        seen = np.ones(input_ids.shape, bool) if attention_mask is None else attention_mask != 0
        states = np.zeros((*input_ids.shape, self._weights.hidden_size), np.float32)
        states[seen] = self._run(input_ids, seen, token_type_ids, cls_only=False)
        return states

    def first_states(
        self, input_ids: Integers, attention_mask: Integers | None = None, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the vectors (B, D) of [CLS] in the last layer."""
        seen = np.ones(input_ids.shape, bool) if attention_mask is None else attention_mask != 0
        return self._run(input_ids, seen, token_type_ids, cls_only=True)

    def _run(
        self, input_ids: Integers, seen: NDArray[np.bool_], token_type_ids: Integers | None, *, cls_only: bool
    ) -> FloatArray:
        """Return the last layer's vectors of all tokens that are SEEN (N, D), or of each text's first (B, D).

        Raises:
            ValueError: a text has no tokens.
        """
        lengths = seen.sum(axis=1)
        if not lengths.all():
            raise ValueError(f"text {np.argmin(lengths)} of the batch has no tokens")
        tensors, num_heads = self._weights.tensors, self._weights.num_heads
        words, positions, types = (
            tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        x = words[input_ids[seen]]
        others = positions[np.nonzero(seen)[1]]
        others += types[0] if token_type_ids is None else types[token_type_ids[seen]]
        weight, bias = (tensors[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias"))
        epsilon = np.float32(self._weights.epsilon)
        add_normalized(x, others, weight, bias, epsilon)
        spans = np.concatenate([[0], np.cumsum(lengths)])
        with self._lock:
            scratch = self._scratch_of(len(x))
            for layer in self._layers[:-1]:
                run_layer(x, x, spans, spans, num_heads, epsilon, layer, scratch)
            targets, target_spans = (x[spans[:-1]], np.arange(len(spans))) if cls_only else (x, spans)
            run_layer(x, targets, spans, target_spans, num_heads, epsilon, self._layers[-1], scratch)
        return targets

    def _scratch_of(self, rows: int) -> Scratch:
        """Return memory for so many tokens at least."""
        if not self._scratch or len(self._scratch[0].query) < rows:
            size, inner = self._weights.hidden_size, self._layers[0].up.bias.size
            largest = max(size, inner)
            self._scratch[:] = [
                Scratch(
                    key_value=np.empty((rows, 2 * size), np.float32),
                    query=np.empty((rows, size), np.float32),
                    context=np.empty((rows, size), np.float32),
                    projected=np.empty((CHUNK, size), np.float32),
                    inner=np.empty((CHUNK, inner), np.float32),
                    line=np.empty(largest, np.uint8),
                    tiles=np.empty(CHUNK * largest, np.uint8),
                    scales=np.empty(CHUNK, np.float32),
                )
            ]
        return self._scratch[0]


def _pack_layers(weights: EncoderWeights) -> Iterator[Layer]:
    """Yield layers in 8 bits; all their panels lie in one block of memory, in the order in which they are read."""
    room = np.empty(weights.products_per_token + PAGE, np.int8)
    start = -room.ctypes.data % PAGE

    def pack(*names: str) -> Product:
        nonlocal start
        weight, bias = weights.joint(*names)
        inputs, outputs = weight.shape
        panels = room[start : start + weight.size].reshape(outputs // PANEL, inputs // WORD, PANEL, WORD)
        start += weight.size
        scales = np.maximum(np.abs(weight).max(axis=0) / TOP, np.finfo(np.float32).tiny)
        numbers = np.rint(weight / scales).astype(np.int8)
        panels[:] = numbers.reshape(inputs // WORD, WORD, outputs // PANEL, PANEL).transpose(2, 0, 3, 1)
        starts = (-SHIFT * numbers.sum(axis=0, dtype=np.int32)).astype(np.int32)
        return Product(panels, starts, scales.astype(np.float32), np.ascontiguousarray(bias))

    def norm(name: str) -> tuple[FloatArray, FloatArray]:
        return weights.require(f"{name}.weight"), weights.require(f"{name}.bias")

    for k in range(weights.num_layers):
        name = f"encoder.layer.{k}."
        yield Layer(
            key_value=pack(f"{name}attention.self.key", f"{name}attention.self.value"),
            query=pack(f"{name}attention.self.query"),
            output=pack(f"{name}attention.output.dense"),
            output_norm=norm(f"{name}attention.output.LayerNorm"),
            up=pack(f"{name}intermediate.dense"),
            down=pack(f"{name}output.dense"),
            down_norm=norm(f"{name}output.LayerNorm"),
        )
