"""Program, inputs and sizes -> outputs, with numpy: the oracle that all compiled code is compared with.

Slow and obviously right. Statements run in text order, `for` loops in Python, each statement
simultaneously: all its values are computed from the old tensors, then stored (LANGUAGE B10). Nothing the
front end proved is relied on: bounds, initialisation and coverage are checked again at every element.
Reductions of floats accumulate one type wider than the target and round once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tcsym.frontend.interpret_expressions import Memory, evaluate
from tcsym.frontend.interpret_points import INT64_LIMIT, Array, Points, box_points
from tcsym.frontend.interpret_values import accumulate, accumulated_in, cast, identity, stored
from tcsym.frontend.program import For, If, Item, Program, Statement, Tensor
from tcsym.index import Index, holds
from tcsym.index import evaluate as index_value

Bindings = Mapping[str, int]


def interpret(
    program: Program, inputs: Mapping[str, NDArray[Any]], sizes: Bindings
) -> dict[str, NDArray[Any]]:
    """New arrays for all outputs, in declaration order.

    `inputs` have the declared types and ranks and the shapes that `sizes` (complete) give; any strides.
    Raises the TCError of the first check of the call that fails, or of the first element read or
    written wrongly.
    """
    with np.errstate(all="ignore"):
        memory = Memory(program, dict(inputs), {})
        _check_sizes(program, sizes, memory)
        for tensor in program.tensors:
            if tensor.role != "input":
                _allocate(tensor, sizes, memory)
        _run(program.body, sizes, memory)
        for tensor in program.outputs:
            if not memory.written[tensor.name].all():
                message = f"output `{tensor.name}` is not fully written"
                raise memory.error("init", message, tensor.span)
    return {tensor.name: memory.values[tensor.name] for tensor in program.outputs}


def _check_sizes(program: Program, sizes: Bindings, memory: Memory) -> None:
    for check in program.checks:
        if not holds(check.condition, sizes):
            raise memory.error(check.kind, check.message, check.span, check.hint)


def _allocate(tensor: Tensor, sizes: Bindings, memory: Memory) -> None:
    shape = tuple(index_value(extent, sizes) for extent in tensor.shape)
    if any(extent < 0 for extent in shape):
        message = f"`{tensor.name}` has a negative size: {shape}"
        raise memory.error("size", message, tensor.span)
    if max((*shape, math.prod(shape) * tensor.dtype.bytes)) > INT64_LIMIT:
        raise memory.error("size", f"`{tensor.name}` is too large: {shape}", tensor.span)
    memory.values[tensor.name] = np.zeros(shape, dtype=tensor.dtype.numpy)
    memory.written[tensor.name] = np.zeros(shape, dtype=np.bool_)


def _run(items: tuple[Item, ...], values: Bindings, memory: Memory) -> None:
    """Items in order; `values` are the sizes and the enclosing loop variables."""
    for item in items:
        match item:
            case Statement():
                _execute(item, values, memory)
            case For(variable, lower, upper, body):
                for t in range(index_value(lower, values), index_value(upper, values)):
                    _run(body, {**values, variable: t}, memory)
            case If(condition, then, orelse):
                _run(then if holds(condition, values) else orelse, values, memory)
            case _:
                assert_never(item)


# ---- one statement


@dataclass(frozen=True, slots=True)
class _Image:
    """The box of elements that a statement writes.

    `place` selects it from the target; `axes` are its index variables as (name, lower, extent), one for
    each dimension that `place` keeps.
    """

    place: tuple[slice | int, ...]
    axes: tuple[tuple[str, int, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, _, extent in self.axes)

    def positions(self, points: Points) -> Array:
        """Row-major position in the box at each point."""
        position: Array = np.zeros(points.count, dtype=np.int64)
        for name, lower, extent in self.axes:
            position = position * extent + (points.variables[name] - lower)
        return position


def _execute(s: Statement, values: Bindings, memory: Memory) -> None:
    ranges = _ranges(s, values, memory)
    image = _image(s, ranges, values, memory)
    if 0 in image.shape:
        return
    new = _before(s, image, ranges, memory)
    flat = new.reshape(-1)
    dtype = memory.program.tensor(s.target).dtype
    unchecked = replace(memory, written={})  # `exists` needs its elements to exist, not to be written
    for points in box_points([(n, *bounds) for n, bounds in ranges.items()], values):
        for e in s.exists:
            evaluate(e, points, unchecked)
        value = cast_unless_same(s, points, memory)
        if s.op == "=":
            flat[image.positions(points)] = stored(value, dtype)
        else:
            accumulate(s.op, flat, image.positions(points), value.astype(flat.dtype))
    memory.values[s.target][image.place] = stored(new, dtype)
    memory.written[s.target][image.place] = True
