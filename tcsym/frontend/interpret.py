# SPDX-License-Identifier: Apache-2.0
"""Program, inputs and sizes -> outputs, with numpy: the oracle for all compiled code.

Slow and obviously right. Statements run in text order, `for` loops in Python, each statement
simultaneously: all its values are computed from the old tensors, then stored (LANGUAGE B10).
Nothing the front end proved is relied on: bounds, initialisation and coverage are checked again at
every element. Reductions of floats accumulate one type wider than the target and round once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, assert_never

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tcsym.frontend.interpret_expressions import Memory, Watch, evaluate
from tcsym.frontend.interpret_points import (
    INT64_LIMIT,
    Array,
    Points,
    box_points,
    index_at,
    ranged_points,
)
from tcsym.frontend.interpret_values import (
    accumulate,
    accumulated_in,
    cast,
    held_in,
    identity,
    stored,
)
from tcsym.frontend.positions import adding, position_parts
from tcsym.frontend.program import (
    MOST_GIVEN,
    Expr,
    For,
    If,
    Item,
    Program,
    Range,
    Statement,
    Tensor,
    far_end,
    is_fixed,
    reads,
    statements,
)
from tcsym.index.expr import Index, var
from tcsym.index.values import evaluate as index_value
from tcsym.index.values import holds
from tcsym.types import DType

Bindings = Mapping[str, int]


def interpret(
    program: Program,
    inputs: Mapping[str, NDArray[Any]],
    sizes: Bindings,
    watch: Watch | None = None,
) -> dict[str, NDArray[Any]]:
    """New arrays for all outputs, in declaration order, and what becomes of those updated in place.

    `inputs` have the declared types and ranks and the shapes that `sizes` (complete) give, with
    any strides. watch: is told of what it does.
    Raises the TCError of the first check of the call that fails, or of the first element read or
    written wrongly.
    """
    with np.errstate(all="ignore"):
        updated = {t.name: inputs[t.name].copy() for t in program.inouts}
        written = {name: np.ones(x.shape, dtype=np.bool_) for name, x in updated.items()}
        memory = Memory(program, {**inputs, **updated}, written, watch=watch)
        _check_sizes(program, sizes, memory)
        for tensor in program.tensors:
            if tensor.role in ("output", "temporary"):
                _allocate(tensor, sizes, memory)
        _run(program.body, sizes, memory)
        for tensor in program.outputs:
            if not memory.written[tensor.name].all():
                message = f"output `{tensor.name}` is not fully written"
                raise memory.error("init", message, tensor.span)
    results = (*program.outputs, *program.inouts)
    return {tensor.name: memory.values[tensor.name] for tensor in results}


def _check_sizes(program: Program, sizes: Bindings, memory: Memory) -> None:
    for check in program.checks:
        if not holds(check.condition, sizes):
            raise memory.error(check.kind, check.message, check.span, check.hint)


def _allocate(tensor: Tensor, sizes: Bindings, memory: Memory) -> None:
    shape = tuple(index_value(extent, sizes) for extent in tensor.shape)
    if any(extent < 0 for extent in shape):
        message = f"`{tensor.name}` has a negative size: {shape}"
        raise memory.error("size", message, tensor.span)
    if not tensor.dtype.holds_all(shape):
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
                states = memory.states.union(s.target for s in statements(body))
                inside = replace(memory, states=states)
                for t in range(index_value(lower, values), index_value(upper, values)):
                    _run(body, {**values, variable: t}, inside)
            case If(condition, then, orelse):
                _run(then if holds(condition, values) else orelse, values, memory)
            case _:
                assert_never(item)


# ---- one statement


class _Image(Struct, frozen=True):
    """The box of elements that a statement writes.

    `place` selects it from the target; `axes` are its index variables as (name, lower, extent),
    one for each dimension that `place` keeps.
    """

    place: tuple[slice | int, ...]
    axes: tuple[tuple[str, int, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent for _, _, extent in self.axes)

    def elements(self, points: Points) -> tuple[Array, ...]:
        """Subscripts of the target at each point."""
        variables = iter([points.variables[name] for name, _, _ in self.axes])
        return tuple(
            next(variables) if isinstance(p, slice) else np.full(points.count, p, dtype=np.int64)
            for p in self.place
        )

    def positions(self, points: Points) -> Array:
        """Row-major position in the box at each point."""
        position: Array = np.zeros(points.count, dtype=np.int64)
        for name, lower, extent in self.axes:
            position = position * extent + (points.variables[name] - lower)
        return position


def _execute(s: Statement, values: Bindings, memory: Memory) -> None:
    dtype = memory.program.tensor(s.target).dtype
    ranges = _ranges(s, values, memory)
    empty = {name for name, (lower, upper) in ranges.items() if upper <= lower}
    if empty and not (s.initialise and all(r.reduced for r in s.domain if r.variable in empty)):
        return
    image = _image(s, ranges, values, memory)
    new = _before(s, image, dtype, memory)
    flat = new.reshape(-1)
    unchecked = replace(
        memory, written={}
    )  # `exists` needs its elements to exist, not to be written
    adds = adding(s.op, s.value, dtype) if s.scattered else None
    if memory.watch is not None:
        memory.watch.statement(s, image.place, memory)
    for points in _domain_points(s, ranges, values, memory):
        for e in s.exists:
            evaluate(e, points, unchecked)
        if adds is not None:
            points = points.where(evaluate(adds, points, memory))
        points = _with_positions(s, points, memory)
        if memory.watch is not None:
            memory.watch.points(s, image.elements(points), points, memory)
        value = evaluate(s.value, points, memory)
        if s.op == "=":
            flat[image.positions(points)] = value
        else:
            term = cast(value, dtype.accumulator)
            accumulate(s.op, flat, image.positions(points), term.astype(flat.dtype))
    memory.values[s.target][image.place] = stored(new, dtype)
    memory.written[s.target][image.place] = True


def _domain_points(
    s: Statement, ranges: Mapping[str, tuple[int, int]], values: Bindings, memory: Memory
) -> Iterator[Points]:
    """The box of `ranges`, then at each of its points the ranges that depend on it."""
    inner = [r for r in s.walked if r.variable not in ranges]
    for points in box_points([(name, *bounds) for name, bounds in ranges.items()], values):
        yield from _inner_points(s, inner, points, memory)


def _inner_points(
    s: Statement, inner: list[Range], points: Points, memory: Memory
) -> Iterator[Points]:
    if not inner:
        yield points
        return
    r, *rest = inner
    for g in s.given:
        if g.name in r.lower.variables() | r.upper.variables():
            value = evaluate(g.value, points, memory)
            if (np.abs(value.astype(object)) > MOST_GIVEN).any():
                read = reads(g.value)[0]
                raise memory.error("bounds", far_end(read.tensor), read.span)
            points = replace(points, variables={**points.variables, g.name: value})
    try:
        for found in ranged_points(points, r.variable, r.lower, r.upper, INT64_LIMIT):
            yield from _inner_points(s, rest, found, memory)
    except OverflowError:
        message = f"the range of `{r.variable}` does not fit in 64 bits"
        raise memory.error("size", message, s.span) from None


def _ranges(s: Statement, values: Bindings, memory: Memory) -> dict[str, tuple[int, int]]:
    """Lower and upper bound of each index variable whose range is the same at all points, in the
    order of the domain."""
    fixed = [r for r in s.walked if r.lower.variables() | r.upper.variables() <= values.keys()]
    ranges = {
        r.variable: (index_value(r.lower, values), index_value(r.upper, values)) for r in fixed
    }
    for r in fixed:
        lower, upper = ranges[r.variable]
        if upper < lower and not r.reduced:
            message = f"`{r.variable}` has a negative size: {lower}:{upper}"
            raise memory.error("size", message, s.span)
        if max(abs(lower), abs(upper)) > INT64_LIMIT:
            message = f"the range {lower}:{upper} of `{r.variable}` does not fit in 64 bits"
            raise memory.error("size", message, s.span)
    return ranges


def _image(
    s: Statement, ranges: Mapping[str, tuple[int, int]], values: Bindings, memory: Memory
) -> _Image:
    place: list[slice | int] = []
    axes: list[tuple[str, int, int]] = []
    moving = frozenset(ranges)
    positions = {r.variable: r.at for r in s.scattered if r.at is not None}
    for subscript, extent in zip(s.subscripts, memory.values[s.target].shape):
        variable = _variable(subscript)
        if variable in positions and is_fixed(positions[variable], moving):
            place.append(int(_at(positions[variable], Points(1, {}, values), memory)[0]))
        elif variable in positions:
            place.append(slice(0, extent))
            axes.append((variable, 0, extent))
        elif variable in ranges:
            lower, upper = ranges[variable]
            place.append(slice(lower, upper))
            axes.append((variable, lower, upper - lower))
        else:
            place.append(index_value(subscript, values))
    image = _Image(tuple(place), tuple(axes))
    if 0 not in image.shape:
        _require_inside(s, image, memory)
    return image


def _with_positions(s: Statement, points: Points, memory: Memory) -> Points:
    """The points with the positions of scattered subscripts, which must lie inside."""
    found = dict(points.variables)
    for r in s.scattered:
        assert r.at is not None
        values = _at(r.at, points, memory)
        extent = memory.values[s.target].shape[s.subscripts.index(var(r.variable))]
        outside = (values < 0) | (values >= extent)
        if outside.any():
            message = (
                f"`{s.target}` is written at {values[outside][0]} on axis "
                f"{s.subscripts.index(var(r.variable))}, where its size is {extent}"
            )
            raise memory.error("bounds", message, s.span)
        found[r.variable] = values.astype(np.int64)
    return replace(points, variables=found)


def _at(at: Index | Expr, points: Points, memory: Memory) -> Array:
    """Of points that have a position."""
    _, place = position_parts(at)
    return index_at(place, points) if isinstance(place, Index) else evaluate(place, points, memory)


def _variable(subscript: Index) -> str:
    """The name that the whole subscript is, or ''."""
    match subscript:
        case Index(((str(name), 1),), 0):
            return name
        case _:
            return ""


def _require_inside(s: Statement, image: _Image, memory: Memory) -> None:
    for axis, (place, extent) in enumerate(zip(image.place, memory.values[s.target].shape)):
        first, last = (place.start, place.stop - 1) if isinstance(place, slice) else (place, place)
        if first < 0 or last >= extent:
            message = (
                f"`{s.target}` is written at {first if first < 0 else last} on axis {axis}, "
                f"where its size is {extent}"
            )
            raise memory.error("bounds", message, s.span)


def _before(s: Statement, image: _Image, dtype: DType, memory: Memory) -> Array:
    """What a statement starts from: nothing, the identity, or the old values of its image."""
    if s.op == "=":
        return np.empty(image.shape, dtype=held_in(dtype))
    if s.initialise:
        return np.full(image.shape, identity(s.op, dtype), dtype=accumulated_in(dtype))
    if not np.all(memory.written[s.target][image.place]):
        message = f"`{s.target}` is accumulated into before it is written"
        raise memory.error("init", message, s.span, f"to start afresh, write `{s.op}!`")
    old = memory.values[s.target][image.place]
    return np.array(old, dtype=held_in(dtype)).astype(accumulated_in(dtype))
