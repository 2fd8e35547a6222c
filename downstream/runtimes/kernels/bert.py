"""BERT with 8-bit weights: heads and tokenizer of `downstream.runtimes.numpy_bert`, layers of `layers`.

    bert = Int8Bert.of(NumpyBert.load(folder))
    logits = bert.label_logits(ids, mask)                       # (B, C)

Weights are symmetric about zero with a scale for every output, inputs with one for every token, measured at every call.
Padding is left out of all sums, not masked: tokens of all texts stand in one column, each text with its span. Where a
head reads [CLS] alone, the last layer computes nothing else.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from corpora.foundation.errors import CheckpointError
from downstream.runtimes.kernels.layers import CHUNK, SHIFT, TOP, Layer, Product, Scratch, add_normalized, run_layer
from downstream.runtimes.kernels.tiles import PANEL, WORD
from downstream.runtimes.numpy_bert import FloatArray, Integers, NumpyBert

PAGE = 4096
"""Bytes at whose multiples the weights begin."""


@dataclass(frozen=True)
class Int8Bert(NumpyBert):
    """A BERT with 8-bit weights in its layers. Any number of threads may use it, one after the other."""

    _int8_layers: Sequence[Layer] = field(repr=False)
    _lock: threading.Lock = field(repr=False)
    _scratch: list[Scratch] = field(repr=False)
    """The last one that was needed."""

    @classmethod
    def of(cls, bert: NumpyBert) -> "Int8Bert":
        """Give the weights of a BERT 8 bits. Compiles what is not compiled yet, which takes seconds.

        Raises:
            CheckpointError: its sizes do not fill registers.
        """
        inner = bert._layers[0]["intermediate.dense.bias"].size
        for what, size in (("heads", bert.hidden_size // bert.num_heads), ("inner layers", inner)):
            if size % PANEL:
                reason = f"its {what} have {size} numbers, which is no multiple of {PANEL}"
                raise CheckpointError(bert.folder, reason, 'use runtime="torch"')
        own = {entry.name: getattr(bert, entry.name) for entry in fields(bert)}
        # What became 8 bits is not kept in 32.
        own["_weights"] = {name: value for name, value in own["_weights"].items() if not name.startswith("encoder.")}
        own["_layers"] = ()
        packed = cls(**own, _int8_layers=[*_pack_layers(bert._layers)], _lock=threading.Lock(), _scratch=[])
        packed.states(np.zeros((1, 1), np.int64))
        return packed

    def states(
        self, input_ids: Integers, attention_mask: Integers | None = None, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the vectors (B, T, D) of the last layer, those of padding zero."""
        seen = np.ones(input_ids.shape, bool) if attention_mask is None else attention_mask != 0
        states = np.zeros((*input_ids.shape, self.hidden_size), np.float32)
        states[seen] = self._run(input_ids, seen, token_type_ids, is_first_enough=False)
        return states

    def first_states(
        self, input_ids: Integers, attention_mask: Integers | None = None, token_type_ids: Integers | None = None
    ) -> FloatArray:
        """Return the vectors (B, D) of [CLS] in the last layer."""
        seen = np.ones(input_ids.shape, bool) if attention_mask is None else attention_mask != 0
        return self._run(input_ids, seen, token_type_ids, is_first_enough=True)

    def _run(
        self, input_ids: Integers, seen: NDArray[np.bool_], token_type_ids: Integers | None, *, is_first_enough: bool
    ) -> FloatArray:
        """Return the last layer's vectors of all tokens that are SEEN (N, D), or of each text's first (B, D).

        Raises:
            ValueError: a text has no tokens.
        """
        lengths = seen.sum(axis=1)
        if not lengths.all():
            raise ValueError(f"text {np.argmin(lengths)} of the batch has no tokens")
        words, positions, types = (
            self._weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        )
        x = words[input_ids[seen]]
        others = positions[np.nonzero(seen)[1]]
        others += types[0] if token_type_ids is None else types[token_type_ids[seen]]
        weight, bias = (self._weights[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias"))
        epsilon = np.float32(self._epsilon)
        add_normalized(x, others, weight, bias, epsilon)
        spans = np.concatenate([[0], np.cumsum(lengths)])
        with self._lock:
            scratch = self._scratch_of(len(x))
            for layer in self._int8_layers[:-1]:
                run_layer(x, x, spans, spans, self.num_heads, epsilon, layer, scratch)
            targets, target_spans = (x[spans[:-1]], np.arange(len(spans))) if is_first_enough else (x, spans)
            run_layer(x, targets, spans, target_spans, self.num_heads, epsilon, self._int8_layers[-1], scratch)
        return targets

    def _scratch_of(self, rows: int) -> Scratch:
        """Return memory for so many tokens at least."""
        if not self._scratch or len(self._scratch[0].query) < rows:
            size, inner = self.hidden_size, self._int8_layers[0].up.bias.size
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


def _pack_layers(layers: Sequence[Mapping[str, FloatArray]]) -> Iterator[Layer]:
    """Yield layers in 8 bits; all their panels lie in one piece of memory, in the order in which they are read."""
    size = sum(value.size for layer in layers for name, value in layer.items() if name.endswith("dense.weight"))
    size += sum(layer["qkv.weight"].size for layer in layers)
    room = np.empty(size + PAGE, np.int8)
    start = -room.ctypes.data % PAGE

    def pack(weight: FloatArray, bias: FloatArray) -> Product:
        nonlocal start
        inputs, outputs = weight.shape
        panels = room[start : start + weight.size].reshape(outputs // PANEL, inputs // WORD, PANEL, WORD)
        start += weight.size
        scales = np.maximum(np.abs(weight).max(axis=0) / TOP, np.finfo(np.float32).tiny)
        numbers = np.rint(weight / scales).astype(np.int8)
        panels[:] = numbers.reshape(inputs // WORD, WORD, outputs // PANEL, PANEL).transpose(2, 0, 3, 1)
        starts = (-SHIFT * numbers.sum(axis=0, dtype=np.int32)).astype(np.int32)
        return Product(panels, starts, scales.astype(np.float32), np.ascontiguousarray(bias))

    for layer in layers:
        weight, bias = layer["qkv.weight"], layer["qkv.bias"]
        third = bias.size // 3
        yield Layer(
            key_value=pack(weight[:, third:], bias[third:]),
            query=pack(weight[:, :third], bias[:third]),
            output=pack(layer["attention.output.dense.weight"], layer["attention.output.dense.bias"]),
            output_norm=(layer["attention.output.LayerNorm.weight"], layer["attention.output.LayerNorm.bias"]),
            up=pack(layer["intermediate.dense.weight"], layer["intermediate.dense.bias"]),
            down=pack(layer["output.dense.weight"], layer["output.dense.bias"]),
            down_norm=(layer["output.LayerNorm.weight"], layer["output.LayerNorm.bias"]),
        )
