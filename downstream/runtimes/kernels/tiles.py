"""Products of a few rows and a panel of weights, written for AVX-512 VNNI where a compiler finds nothing as fast.

    multiply_bytes(rows, Operands(...))                         # inside a function that Numba compiles

A text of twenty tokens is a few rows times matrices of megabytes, which must come from memory and must be multiplied.
Libraries do one after the other. Here weights lie in panels in the order in which they are read, and while one panel is
multiplied the next is prefetched into the cache, so that both take hardly longer than the slower of them alone.

A *word* is four bytes: four 8-bit numbers, which VPDPBUSD multiplies and adds in one go, or one float.

Sources: Intel, Architecture Instruction Set Extensions, VPDPBUSD; Goto and van de Geijn 2008, "Anatomy of
high-performance matrix multiplication", for tiles and panels.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba.extending import intrinsic

LANES, PANEL = 16, 32
"""Words in a register; columns of a panel, which are two registers."""
TILE = 12
"""Rows of the largest tile: its sums take twice as many of the 32 registers."""
WORD, VECTOR, LINE = 4, 64, 128
"""Bytes of a word, of a register, of a panel's row."""

_BYTE, _INT, _LONG, _FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_FOR_READING, _SECOND_LEVEL, _DATA = _INT(0), _INT(2), _INT(1)


class Operands(NamedTuple):
    """Addresses of a tile's numbers; fields that end in `row` or `step` are strides in bytes."""

    inputs: Any
    """The first word of the first row."""
    input_row: Any
    """From a row to the next."""
    input_step: Any
    """From a word of a row to its next."""
    panel: Any
    """`PANEL` words of weights."""
    panel_step: Any
    """From these to the next ones."""
    ahead: Any
    """A panel of the same shape that is prefetched meanwhile; any address will do."""
    steps: Any
    """Words of a row, at least 1."""
    start: Any
    """`PANEL` words that the sums of every row begin with."""
    output: Any
    """The first sum."""
    output_row: Any
    """From the sums of a row to those of the next."""


def inlined(function: Callable[..., Any]) -> Any:
    """Have Numba inline the instructions that FUNCTION emits; its arguments are types, the first one Numba's own."""
    return intrinsic(function)


@inlined
def multiply_bytes(_typing: Any, rows: Any, operands: Any) -> Any:
    """Multiply 1 to `TILE` rows of unsigned 8-bit numbers by a panel of signed ones, to int32. Nothing is checked."""

    def order(total: Any, spread: Any, weights: Any) -> list[Any]:
        return [total, spread, weights]

    tiles = _Tiles(_INT, "llvm.x86.avx512.vpdpbusd.512", order)
    return numba.types.void(rows, operands), tiles.generate


@inlined
def multiply_floats(_typing: Any, rows: Any, operands: Any) -> Any:
    """Multiply 1 to `TILE` rows of floats by a panel of floats. Nothing is checked."""

    def order(total: Any, spread: Any, weights: Any) -> list[Any]:
        return [spread, weights, total]

    return numba.types.void(rows, operands), _Tiles(_FLOAT, f"llvm.fmuladd.v{LANES}f32", order).generate


@inlined
def larger(_typing: Any, _a: Any, _b: Any) -> Any:
    """Return the larger of two floats, neither of which is NaN; Python's `max` keeps loops from being vectorised."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        is_larger = builder.fcmp_ordered(">", *arguments, flags=("fast",))
        return builder.select(is_larger, *arguments, flags=("fast",))

    return numba.types.float32(numba.types.float32, numba.types.float32), generate


@inlined
def power_of_two(_typing: Any, _exponent: Any) -> Any:
    """Return 2 to the power of a whole number from -126 to 127, by writing it where a float has its exponent."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        exponent = builder.add(builder.fptosi(arguments[0], _INT), _INT(127))
        return builder.bitcast(builder.shl(exponent, _INT(23)), _FLOAT)

    return numba.types.float32(numba.types.float32), generate


class _Tiles:
    """Writes the products of every number of rows; a sum stays in its register from the first step to the last."""

    def __init__(self, word: Any, product: str, order: Callable[[Any, Any, Any], Sequence[Any]]) -> None:
        """Multiply WORDs with the instruction PRODUCT, whose arguments ORDER makes of sum, input and weights."""
        self._word, self._vector = word, ir.VectorType(word, LANES)
        self._product, self._order = product, order

    def generate(self, context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        """Write a branch for every number of rows."""
        rows, packed = arguments
        operands = Operands(*(builder.extract_value(packed, k) for k in range(len(Operands._fields))))
        after = builder.append_basic_block()
        branches = builder.switch(rows, after)
        for count in range(1, TILE + 1):
            block = builder.append_basic_block()
            branches.add_case(_LONG(count), block)
            builder.position_at_end(block)
            self._write(builder, count, operands)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    def _write(self, builder: Any, rows: int, operands: Operands) -> None:
        halves = [_LONG(VECTOR * half) for half in range(PANEL // LANES)]
        multiply_add = _declare(builder, self._product, *[self._vector] * 4)
        begun = [_load(builder, operands.start, half, self._vector) for half in halves]
        before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.branch(loop)

        builder.position_at_end(loop)
        step = builder.phi(_LONG)
        sums = [[builder.phi(self._vector) for _ in halves] for _ in range(rows)]
        at = builder.mul(step, operands.panel_step)
        weights = [_load(builder, builder.add(operands.panel, at), half, self._vector) for half in halves]
        for half in halves:
            _fetch(builder, builder.add(operands.ahead, at), half)
        here, added = builder.add(operands.inputs, builder.mul(step, operands.input_step)), []
        for row in range(rows):
            word = _load(builder, here, builder.mul(operands.input_row, _LONG(row)), self._word)
            spread = self._spread(builder, word)
            pairs = zip(sums[row], weights, strict=True)
            added.append([builder.call(multiply_add, self._order(total, spread, part)) for total, part in pairs])
        following = builder.add(step, _LONG(1))
        builder.cbranch(builder.icmp_signed("<", following, operands.steps), loop, after)
        step.add_incoming(_LONG(0), before)
        step.add_incoming(following, loop)
        for row in range(rows):
            for total, first, new in zip(sums[row], begun, added[row], strict=True):
                total.add_incoming(first, before)
                total.add_incoming(new, loop)

        builder.position_at_end(after)
        for row in range(rows):
            for half, new in zip(halves, added[row], strict=True):
                address = builder.add(operands.output, builder.mul(operands.output_row, _LONG(row)))
                builder.store(new, _pointer(builder, address, half, self._vector)).align = WORD

    def _spread(self, builder: Any, word: Any) -> Any:
        """Return a register with a word in all its lanes."""
        undefined = ir.Constant(self._vector, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)
        return builder.shuffle_vector(builder.insert_element(undefined, word, _INT(0)), undefined, everywhere)


def _declare(builder: Any, name: str, result: Any, *types: Any) -> Any:
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(result, types), name)


def _pointer(builder: Any, base: Any, offset: Any, kind: Any) -> Any:
    return builder.inttoptr(builder.add(base, offset), kind.as_pointer())


def _load(builder: Any, base: Any, offset: Any, kind: Any) -> Any:
    loaded = builder.load(_pointer(builder, base, offset, kind))
    loaded.align = WORD
    return loaded


def _fetch(builder: Any, base: Any, offset: Any) -> None:
    prefetch = _declare(builder, "llvm.prefetch.p0", ir.VoidType(), _BYTE.as_pointer(), _INT, _INT, _INT)
    builder.call(prefetch, [_pointer(builder, base, offset, _BYTE), _FOR_READING, _SECOND_LEVEL, _DATA])
