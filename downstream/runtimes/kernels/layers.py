"""The arithmetic of BERT's layers with 8-bit weights, compiled by Numba; `kernels.bert` puts it together.

Letters: N rows (tokens), K inputs and M outputs of a product, D the hidden size, B texts.

Sources: Wu et al. 2020, "Integer quantization for deep learning inference", section 3, for 8-bit numbers that are
symmetric about zero; Vaswani et al. 2017, section 3, for attention; Hendrycks and Gimpel 2016 for GELU, the exact one.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from downstream.runtimes.kernels.tiles import (
    LINE,
    PANEL,
    TILE,
    WORD,
    Operands,
    larger,
    multiply_bytes,
    multiply_floats,
    power_of_two,
)

FloatArray: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Function = TypeVar("Function", bound=Callable[..., Any])

TOP = 127
"""Largest of the 8-bit numbers; the smallest is its negative."""
SHIFT = 128
"""What is added to those of inputs, which must not be negative."""
CHUNK = 10 * TILE
"""Rows that go through a product together: what they hold and a panel fit in a core's second-level cache."""


def compiled(function: Function) -> Function:
    """Have Numba compile FUNCTION at its first call, with sums in any order, as C divides, without Python's lock."""
    return cast("Function", numba.njit(fastmath=True, error_model="numpy", nogil=True)(function))


# --- functions of one number, of float32 throughout: a Python float would make all of it double -----------------------

_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
_BITS_PER_NAT = np.float32(1 / np.log(2))
_LOWEST_EXPONENT = np.float32(-126)
# 2^r for |r| ≤ ½ with the smallest relative error that five coefficients allow: 9e-8, 2e-7 with that of float32.
_C1, _C2, _C3, _C4, _C5 = (np.float32(c) for c in (0.69314698, 0.24022242, 0.05550734, 0.0096715, 0.00132647))
# Φ is the rational approximation 7.1.26 of Abramowitz and Stegun 1964, whose error is below 7.5e-8.
_SLOPE = np.float32(0.3275911 * 0.5**0.5)
_E1, _E2, _E3, _E4, _E5 = (np.float32(e) for e in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592))
_TOP, _TINY = np.float32(TOP), np.float32(1e-20)
_SHIFT = np.float32(SHIFT + 0.5)  # cutting off the rest rounds then
_NO_SUMS = np.zeros(PANEL, np.float32)


@compiled
def _exp(x: np.float32) -> np.float32:
    """Return e to the power of a number that is not above 0, or of -87 where it is below."""
    bits = larger(x * _BITS_PER_NAT, _LOWEST_EXPONENT)
    whole = np.floor(bits + _HALF)
    r = bits - whole
    power: np.float32 = (_ONE + r * (_C1 + r * (_C2 + r * (_C3 + r * (_C4 + r * _C5))))) * power_of_two(whole)
    return power


@compiled
def apply_gelu(x: FloatArray) -> None:
    """Replace X (N, M) by x · Φ(x)."""
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            v = x[row, column]
            magnitude = abs(v)
            t = _ONE / (_ONE + _SLOPE * magnitude)
            tail = t * (_E5 + t * (_E4 + t * (_E3 + t * (_E2 + t * _E1)))) * _exp(-_HALF * v * v)
            x[row, column] = larger(v, _ZERO) - _HALF * magnitude * tail


@compiled
def add_normalized(x: FloatArray, y: FloatArray, weight: FloatArray, bias: FloatArray, epsilon: np.float32) -> None:
    """Replace X (N, D) by LayerNorm(x + y)."""
    share = _ONE / np.float32(x.shape[1])
    for row in range(x.shape[0]):
        total = _ZERO
        for column in range(x.shape[1]):
            v = x[row, column] + y[row, column]
            x[row, column] = v
            total += v
        mean = total * share
        squares = _ZERO
        for column in range(x.shape[1]):
            deviation = x[row, column] - mean
            squares += deviation * deviation
        factor = _ONE / np.sqrt(squares * share + epsilon)
        for column in range(x.shape[1]):
            x[row, column] = (x[row, column] - mean) * factor * weight[column] + bias[column]


@compiled
def _address(array: NDArray[Any]) -> np.intp:
    """Return an array's address. Numba frees an array after its last use by name, even if its address is still used."""
    return np.intp(array.ctypes.data)  # NumPy's has no sign, and a sum with one that has is a float


# --- products ---------------------------------------------------------------------------------------------------------


class Product(NamedTuple):
    """A matrix of weights in 8 bits with a bias; `kernels.bert` packs it."""

    panels: NDArray[np.int8]
    """(M / 32, K / 4, 32, 4)."""
    starts: NDArray[np.int32]
    """(M,): what sums begin with, so that what is added to inputs falls out again."""
    scales: FloatArray
    """(M,): of the columns."""
    bias: FloatArray
    """(M,)."""


class Scratch(NamedTuple):
    """Memory that every layer overwrites; allocated at every call, each of its pages would cost time."""

    key_value: FloatArray
    """(N, 2 · D)."""
    query: FloatArray
    """(N, D)."""
    context: FloatArray
    """(N, D)."""
    projected: FloatArray
    """(`CHUNK`, D)."""
    inner: FloatArray
    """(`CHUNK`, M) of the largest product."""
    line: Bytes
    """(K,) of the largest product: one row of inputs in 8 bits."""
    tiles: Bytes
    """(`CHUNK` · K,): inputs in 8 bits in the order in which tiles read them."""
    scales: FloatArray
    """(`CHUNK`,): of the rows."""


class Layer(NamedTuple):
    """The weights of one layer, products in the order in which they are read."""

    key_value: Product
    query: Product
    output: Product
    output_norm: tuple[FloatArray, FloatArray]
    up: Product
    down: Product
    down_norm: tuple[FloatArray, FloatArray]


@compiled
def _tile_rows(left: int) -> int:
    """Return how many of the rows that are left the next tile takes: tiles of like size, as few as there can be."""
    tiles = (left + TILE - 1) // TILE
    return (left + tiles - 1) // tiles


@compiled
def _quantise(x: FloatArray, scratch: Scratch) -> None:
    """Write rows (N, K) as 8-bit numbers from 1 to 255, 128 for zero, a word of each row of a tile after another."""
    rows, inputs = x.shape
    line, words, tiles = scratch.line[:inputs], scratch.line[:inputs].view(np.int32), scratch.tiles.view(np.int32)
    steps, first = inputs // WORD, 0
    while first < rows:
        count = _tile_rows(rows - first)
        for row in range(count):
            largest = _TINY
            for column in range(inputs):
                largest = larger(abs(x[first + row, column]), largest)
            scratch.scales[first + row] = largest / _TOP
            factor = _TOP / largest
            for column in range(inputs):
                line[column] = np.uint8(np.int32(x[first + row, column] * factor + _SHIFT))
            for step in range(steps):
                tiles[first * steps + step * count + row] = words[step]
        first += count


@compiled
def _multiply_chunk(
    x: FloatArray, product: Product, scratch: Scratch, sums: NDArray[np.int32], out: FloatArray
) -> None:
    """Write x (N, K) times the weights, plus the bias, to OUT (N, M); N is at most `CHUNK`."""
    _quantise(x, scratch)
    rows, steps = x.shape[0], product.panels.shape[1]
    tiles, size = _address(scratch.tiles), steps * LINE
    for number in range(product.panels.shape[0]):
        panel = _address(product.panels) + number * size
        start, column = _address(product.starts) + number * LINE, number * PANEL
        # Behind the last panel lies the next matrix. Further tiles find their panel in the cache.
        ahead, first = panel + size, 0
        while first < rows:
            count = _tile_rows(rows - first)
            rows_address = tiles + first * steps * WORD
            operands = Operands(
                inputs=rows_address,
                input_row=WORD,
                input_step=count * WORD,
                panel=panel,
                panel_step=LINE,
                ahead=ahead,
                steps=steps,
                start=start,
                output=_address(sums),
                output_row=LINE,
            )
            multiply_bytes(count, operands)
            for row in range(count):
                scale = scratch.scales[first + row]
                for k in range(PANEL):
                    total = np.float32(sums[row, k]) * (scale * product.scales[column + k])
                    out[first + row, column + k] = total + product.bias[column + k]
            ahead = panel
            first += count


@compiled
def multiply(x: FloatArray, product: Product, scratch: Scratch, out: FloatArray) -> None:
    """Write x (N, K) times the weights, plus the bias, to OUT (N, M)."""
    sums = np.empty((TILE, PANEL), np.int32)
    for first in range(0, x.shape[0], CHUNK):
        _multiply_chunk(x[first : first + CHUNK], product, scratch, sums, out[first : first + CHUNK])


@compiled
def attend(
    query: FloatArray, key_value: FloatArray, spans: Integers, query_spans: Integers, num_heads: int, out: FloatArray
) -> None:
    """Write the context (N, D) of queries (N, D); SPANS (B + 1,) tell where the tokens of each text begin, and end."""
    hidden_size = query.shape[1]
    width = hidden_size // num_heads
    scale = _ONE / np.sqrt(np.float32(width))
    longest = 0
    for text in range(len(spans) - 1):
        longest = max(longest, spans[text + 1] - spans[text])
    keys = np.zeros(((longest + PANEL - 1) // PANEL, width, PANEL), np.float32)
    scores = np.empty((TILE, keys.shape[0] * PANEL), np.float32)
    panels, weights, nothing = _address(keys), _address(scores), _address(_NO_SUMS)
    row, pair, line = hidden_size * WORD, 2 * hidden_size * WORD, scores.shape[1] * WORD
    for text in range(len(spans) - 1):
        start, length = spans[text], spans[text + 1] - spans[text]
        for column in range(0, hidden_size, width):
            for token in range(length):
                for k in range(width):
                    keys[token // PANEL, k, token % PANEL] = key_value[start + token, column + k] * scale
            values = _address(key_value) + start * pair + (hidden_size + column) * WORD
            first = query_spans[text]
            while first < query_spans[text + 1]:
                count = _tile_rows(query_spans[text + 1] - first)
                here = first * row + column * WORD
                for number in range((length + PANEL - 1) // PANEL):
                    panel, to = panels + number * width * LINE, weights + number * LINE
                    row_address = _address(query) + here
                    operands = Operands(row_address, row, WORD, panel, LINE, panel, width, nothing, to, line)
                    multiply_floats(count, operands)
                for k in range(count):
                    _softmax(scores[k, :length])
                for part in range(0, width * WORD, LINE):
                    panel, to = values + part, _address(out) + here + part
                    operands = Operands(weights, line, WORD, panel, pair, panel, length, nothing, to, row)
                    multiply_floats(count, operands)
                first += count


@compiled
def _softmax(scores: FloatArray) -> None:
    largest = scores[0]
    for k in range(len(scores)):
        largest = larger(scores[k], largest)
    total = _ZERO
    for k in range(len(scores)):
        scores[k] = _exp(scores[k] - largest)
        total += scores[k]
    share = _ONE / total
    for k in range(len(scores)):
        scores[k] *= share


@compiled
def run_layer(
    states: FloatArray,
    targets: FloatArray,
    spans: Integers,
    target_spans: Integers,
    num_heads: int,
    epsilon: np.float32,
    layer: Layer,
    scratch: Scratch,
) -> None:
    """Replace TARGETS by what the layer makes of them.

    Args:
        states: (N, D), all tokens of all texts.
        targets: (R, D), the tokens whose next states are asked for: the same array, or a copy of some of its rows.
        spans: (B + 1,), where the tokens of each text begin, and the end.
        target_spans: (B + 1,), the same for the targets.
        num_heads: of attention, each of a multiple of 32 numbers.
        epsilon: of LayerNorm.
        layer: the weights.
        scratch: of N rows at least.
    """
    key_value, query = scratch.key_value[: len(states)], scratch.query[: len(targets)]
    context = scratch.context[: len(targets)]
    multiply(states, layer.key_value, scratch, key_value)
    multiply(targets, layer.query, scratch, query)
    attend(query, key_value, spans, target_spans, num_heads, context)
    for first in range(0, len(targets), CHUNK):
        x = targets[first : first + CHUNK]
        projected, inner = scratch.projected[: len(x)], scratch.inner[: len(x)]
        multiply(context[first : first + CHUNK], layer.output, scratch, projected)
        add_normalized(x, projected, *layer.output_norm, epsilon)
        multiply(x, layer.up, scratch, inner)
        apply_gelu(inner)
        multiply(inner, layer.down, scratch, projected)
        add_normalized(x, projected, *layer.down_norm, epsilon)
