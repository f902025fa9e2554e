# SPDX-License-Identifier: Apache-2.0
"""Expression at a list of points -> array of values, reading tensors with every check.

The checks here are the interpreter's own: each read verifies each subscript and that the element
was written, whatever the front end proved. An arm of `?:`, `&&`, `||` is evaluated only where it is
needed.
"""

from __future__ import annotations

from typing import Protocol, assert_never

import numpy as np
from msgspec import Struct

from tcsym.errors import ERROR_KINDS, Span, TCError
from tcsym.frontend.interpret_functions import call
from tcsym.frontend.interpret_points import INT64_LIMIT, Array, Points, index_at
from tcsym.frontend.interpret_values import (
    arithmetic,
    cast,
    compare,
    constant,
    exact_arithmetic,
    held_in,
)
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Program,
    Read,
    Select,
    Statement,
    Unary,
    reads,
)
from tcsym.index.expr import Index
from tcsym.types import DType

_TOO_LARGE = "an integer of a subscript does not fit in 64 bits"


class Watch(Protocol):
    """Is told of what a run does (`accesses`)."""

    def statement(self, s: Statement, place: tuple[slice | int, ...], memory: Memory) -> None:
        """It begins to run, and will write the box `place` of its target."""

    def points(
        self, s: Statement, target: tuple[Array, ...], points: Points, memory: Memory
    ) -> None:
        """Points of it, which write these elements of its target; memory: before it."""

    def read(self, e: Read, points: Points, position: tuple[Array, ...]) -> None:
        """A read that is evaluated."""

    def left_out(self, e: Expr, points: Points, memory: Memory) -> None:
        """An arm, or the second operand of `&&` and `||`, that these points do not evaluate."""


class Memory(Struct, frozen=True):
    """Tensors of one run. `written` marks the elements that have a value (inputs are not in it).

    states: what the loops that run now write. watch: is told of statements. log: of reads.
    """

    program: Program
    values: dict[str, Array]
    written: dict[str, Array]
    states: frozenset[str] = frozenset()
    watch: Watch | None = None
    log: Watch | None = None

    def error(self, kind: str, message: str, span: Span, hint: str = "") -> TCError:
        source, filename = self.program.source, self.program.filename
        return ERROR_KINDS[kind](message, span=span, source=source, filename=filename, hint=hint)


def evaluate(e: Expr, points: Points, memory: Memory) -> Array:
    """Held values (see `interpret_values`) of `e`, one a point."""
    match e:
        case Const(value, dtype):
            return constant(value, dtype, points.count)
        case IndexValue(index, dtype):
            return _index_value(index, dtype, points, memory)
        case Read():
            return _read(e, points, memory)
        case Cast(x, dtype):
            operand = evaluate(x, points, memory)
            if e.exact and (operand > INT64_LIMIT).any():
                raise memory.error("size", _TOO_LARGE, e.span)
            return cast(operand, dtype)
        case Unary(op, x, _):
            operand = evaluate(x, points, memory)
            return np.asarray(np.negative(operand) if op == "neg" else np.logical_not(operand))
        case Binary():
            return _binary(e, points, memory)
        case Compare(op, a, b):
            return compare(op, evaluate(a, points, memory), evaluate(b, points, memory))
        case Select():
            return _select(e, points, memory)
        case Call(function, args, dtype):
            return call(function, [evaluate(a, points, memory) for a in args], dtype)
        case _:
            assert_never(e)


def _index_value(index: Index, dtype: DType, points: Points, memory: Memory) -> Array:
    values = index_at(index, points)
    if values.dtype != object:
        return values.astype(dtype.numpy)
    if dtype is DType.INT64 and any(abs(v) > INT64_LIMIT for v in values):
        raise memory.error("size", f"`{index}` does not fit in 64 bits", memory.program.span)
    low, modulus = dtype.lowest, 1 << dtype.bits
    return np.array([(v - low) % modulus + low for v in values], dtype=dtype.numpy)


def _binary(e: Binary, points: Points, memory: Memory) -> Array:
    """Left-nested operators in a loop: a sum may have more terms than Python has stack frames."""
    spine = [e]
    while isinstance(spine[-1].left, Binary):
        spine.append(spine[-1].left)
    value = evaluate(spine[-1].left, points, memory)
    for node in reversed(spine):
        if node.op in ("and", "or"):
            value = _connective(node, value, points, memory)
            continue
        right = evaluate(node.right, points, memory)
        value = (
            _exact(node, value, right, memory) if node.exact else arithmetic(node.op, value, right)
        )
    return value


def _connective(node: Binary, left: Array, points: Points, memory: Memory) -> Array:
    undecided = left if node.op == "and" else ~left
    value = left.copy()
    if memory.log is not None and not undecided.all():
        memory.log.left_out(node.right, points.where(~undecided), memory)
    if undecided.any():
        value[undecided] = evaluate(node.right, points.where(undecided), memory)
    return value


def _exact(node: Binary, a: Array, b: Array, memory: Memory) -> Array:
    result = exact_arithmetic(node.op, a, b)
    if result is None:
        raise memory.error("size", _TOO_LARGE, node.span)
    return result


def _select(e: Select, points: Points, memory: Memory) -> Array:
    chosen = evaluate(e.condition, points, memory)
    if memory.log is not None:
        memory.log.left_out(e.then, points.where(~chosen), memory)
        memory.log.left_out(e.orelse, points.where(chosen), memory)
    if chosen.all():
        return evaluate(e.then, points, memory)
    if not chosen.any():
        return evaluate(e.orelse, points, memory)
    value = np.empty(points.count, dtype=held_in(e.dtype))
    value[chosen] = evaluate(e.then, points.where(chosen), memory)
    value[~chosen] = evaluate(e.orelse, points.where(~chosen), memory)
    return value


# ---- reads


def _read(e: Read, points: Points, memory: Memory) -> Array:
    tensor = memory.values[e.tensor]
    position = tuple(
        _subscript(e, axis, extent, points, memory) for axis, extent in enumerate(tensor.shape)
    )
    if e.tensor in memory.written and points.count:
        _require_written(e, position, memory)
    if memory.log is not None:
        memory.log.read(e, points, position)
    if not position:
        return np.full(points.count, tensor[()]).astype(held_in(e.dtype))
    return tensor[position].astype(held_in(e.dtype))


def _subscript(e: Read, axis: int, extent: int, points: Points, memory: Memory) -> Array:
    subscript = e.subscripts[axis]
    values = (
        index_at(subscript, points)
        if isinstance(subscript, Index)
        else evaluate(subscript, points, memory)
    )
    outside = (values < 0) | (values >= extent)
    if outside.any():
        first = values[outside][0]
        message = f"`{e.tensor}` is read at {first} on axis {axis}, where its size is {extent}"
        raise memory.error("bounds", message, e.span)
    return values.astype(np.int64)


def _require_written(e: Read, position: tuple[Array, ...], memory: Memory) -> None:
    """A subscript that reads a tensor stands for its whole dimension, but for states in their own
    loops (LANGUAGE E6)."""
    data = [axis for axis, s in enumerate(e.subscripts) if not isinstance(s, Index) and reads(s)]
    gathered = () if e.tensor in memory.states else tuple(data)
    written = memory.written[e.tensor]
    written = np.asarray(written.all(axis=gathered)) if gathered else written
    fixed = tuple(p for axis, p in enumerate(position) if axis not in gathered)
    if not np.all(written[fixed]):
        raise memory.error("init", f"`{e.tensor}` is read before it is written here", e.span)
