# SPDX-License-Identifier: Apache-2.0
"""Lanes a row apart, points along the row -> square blocks of rows, transposed in registers.

Where rows are short, neighbouring rows run in the lanes: vectors are gathered and scattered element
by element. As many columns as a vector has lanes are loaded as rows instead, and exchanged by
shuffles: half as many instructions, and a quarter of the loads.
"""

from __future__ import annotations

from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Call, Expr, Read
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, floordiv, ge, index, minimum, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Block,
    Branch,
    Buffer,
    Indices,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    block,
    value_dtype,
)
from tcsym.ir.traverse import (
    certain_loads,
    map_value,
    substitute_node,
    substitute_value,
    subvalues,
)
from tcsym.schedule.analysis.access import accesses, subscript_variables, value_variables
from tcsym.schedule.analysis.loops import (
    chain_of,
    find_loop,
    loops_around,
    loops_in,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.tile.vector_rows import tree
from tcsym.schedule.version.versioning import duplicate

MOST_VALUES = 20  # of a point


class Strided(Struct, frozen=True):
    """An element of `buffer`, for lane 0, that moves along `row` (from the end) with the lanes."""

    buffer: str
    subscripts: Indices
    row: int

    @property
    def lanes(self) -> tuple[Indices, Indices]:
        """The subscripts for lanes 0 and 1."""
        second = list(self.subscripts)
        second[self.row] = second[self.row] + 1
        return self.subscripts, tuple(second)


def transpose_lanes(kernel: Kernel, nest: str, lanes: int, setting: Setting) -> Kernel:
    """Innermost loops of the nest, over whole vectors of `lanes`, in blocks where that saves loads.

    Contract: what is left of the nest has its points in unrolled and vector loops.
    """
    if setting.machine.vector_bits == 0:
        return kernel
    for loop in loops_in(find_loop(kernel.body, nest)):
        if loop.kind == "serial" and loop.order != "sequential" and _holds_points(loop.body):
            kernel = _in_blocks(kernel, loop, lanes, setting)
    return kernel


def _holds_points(node: Node) -> bool:
    """Statements that always run, each in one whole vector."""
    match node:
        case Block(body):
            return all(map(_holds_points, body))
        case Loop():
            plain = node.mask is None and node.lower == ZERO
            single = node.kind == "unrolled" and node.upper == ONE
            return plain and (single or node.kind == "vector") and _holds_points(node.body)
        case _:
            return isinstance(node, Store | Update)


def _in_blocks(kernel: Kernel, loop: Loop, lanes: int, setting: Setting) -> Kernel:
    loaded, stored = _loaded(kernel, loop, lanes, setting), _stored(kernel, loop, lanes, setting)
    own = {b.name for b in kernel.buffers if loop.variable in b.private}
    if not (loaded or stored) or any(a.buffer in own for a in accesses(loop)):
        return kernel
    names = setting.names
    blocks, point = names.fresh(loop.variable), names.fresh(loop.variable)
    around = (x.variable for x in loops_around(kernel.body, loop.variable))
    private = frozenset((*around, blocks))
    panels: dict[Strided, str] = {}
    for x in dict.fromkeys((*loaded, *stored)):
        panels[x] = names.fresh(f"{x.buffer}_block")
        dtype, shape = kernel.buffer(x.buffer).dtype, (index(lanes), index(lanes))
        kernel = kernel.with_buffer(Buffer(panels[x], dtype, shape, "stack", private=private))
    n, again = extent(loop), is_repeatable(kernel, loop.body, frozenset((loop.variable,)))
    whole, at = floordiv(n, lanes), var(blocks) * lanes
    start = loop.lower + (minimum(at, n - lanes) if again else at)
    points = _on_panels(loop, panels, var(point))
    points = substitute_node(points, {loop.variable: start + var(point)})
    node = block(
        *(_load(x, panels[x], loop.variable, start, lanes) for x in loaded),
        _all_points(kernel, Loop(point, ZERO, index(lanes), points, "serial", loop.order), lanes),
        *(_store(x, panels[x], loop.variable, start, lanes) for x in stored),
    )
    many = Loop(blocks, ZERO, ceildiv(n, lanes) if again else whole, node, "serial", loop.order)
    kernel, rest, _ = duplicate(kernel, loop, names)
    if again:
        new: Node = Branch(ge(n, lanes), many, rest)
    else:
        new = block(many, replace(rest, lower=loop.lower + whole * lanes))
    return replace(kernel, body=replace_loop(kernel.body, loop.variable, lambda _: new))


def _loaded(kernel: Kernel, loop: Loop, lanes: int, setting: Setting) -> tuple[Strided, ...]:
    """What every iteration reads, of buffers that none writes."""
    written = {a.buffer for a in accesses(loop) if a.written}
    found: dict[Strided, None] = {}
    for x, around in statements_in(loop):
        for r in certain_loads(x.value):
            points = tuple(y.variable for y in around if y is not loop)
            strided = strided_access(kernel, r, loop.variable, points, lanes, setting)
            if strided is not None and r.tensor not in written:
                found[strided] = None
    return tuple(found)


def _stored(kernel: Kernel, loop: Loop, lanes: int, setting: Setting) -> tuple[Strided, ...]:
    """What every iteration stores, to buffers that nothing else in it uses."""
    used = [a.buffer for a in accesses(loop)]
    found = []
    for x, around in statements_in(loop):
        if isinstance(x, Store) and used.count(x.buffer) == 1:
            points = tuple(y.variable for y in around if y is not loop)
            place = stored_element(kernel, x)
            strided = strided_access(kernel, place, loop.variable, points, lanes, setting)
            found += [] if strided is None else [strided]
    return tuple(found)


def stored_element(kernel: Kernel, x: Store) -> Read:
    return Read(x.buffer, x.subscripts, kernel.buffer(x.buffer).dtype)


def strided_access(
    kernel: Kernel, r: Read, row: str, points: tuple[str, ...], lanes: int, setting: Setting
) -> Strided | None:
    """The element, if it moves along its row with the loop `row`, and across with the lanes.

    points: the lanes' loop, which is the last, and others around it, which run once.
    """
    b = kernel.buffer(r.tensor)
    subscripts = tuple(s for s in r.subscripts if isinstance(s, Index))
    plain = len(subscripts) == len(r.subscripts) > 1 and not any(r.checked) and not r.unwritten
    whole = b.dtype.bits in (32, 64) and setting.machine.lanes(b.dtype.bits) == lanes
    if not plain or not whole or b.space != "argument" or b.element_strides()[-1] != ONE:
        return None
    lane, last = points[-1], subscripts[-1]
    moved = [k for k, s in enumerate(subscripts[:-1]) if s.coefficient(lane) == 1]
    if len(moved) != 1 or last.coefficient(row) != 1:
        return None
    first = tuple(substitute(s, dict.fromkeys(points, ZERO)) for s in subscripts)
    at = (*first[: moved[0]], first[moved[0]] + var(lane), *first[moved[0] + 1 :])
    alone = tuple(substitute(s, dict.fromkeys(points[:-1], ZERO)) for s in subscripts)
    still = (first[-1] - var(row), *first[:-1])
    if alone != at or any(row in s.variables() for s in still):
        return None
    return Strided(r.tensor, first, moved[0] - len(subscripts))


def _on_panels(loop: Loop, panels: dict[Strided, str], point: Index) -> Node:
    """The loop's body with these elements in panels[point, lane]."""

    def node(x: Node, points: tuple[Loop, ...]) -> Node:
        if isinstance(x, Block):
            return block(*(node(y, points) for y in x.body))
        if isinstance(x, Loop):
            return replace(x, body=node(x.body, (*points, x)))
        assert isinstance(x, Store | Update)
        lane, zeros = points[-1].variable, {y.variable: ZERO for y in points}
        second = {**zeros, lane: ONE}

        def panel(buffer: str, subscripts: tuple[object, ...]) -> str | None:
            if not all(isinstance(s, Index) for s in subscripts):
                return None
            places = [s for s in subscripts if isinstance(s, Index)]
            lanes = [tuple(substitute(s, at) for s in places) for at in (zeros, second)]
            found = (name for x, name in panels.items() if [buffer, *lanes] == [x.buffer, *x.lanes])
            return next(found, None)

        def value(v: Value) -> Value:
            name = panel(v.tensor, v.subscripts) if isinstance(v, Read) else None
            if name is None or not isinstance(v, Read):
                return v
            return Read(name, (point, var(lane)), v.dtype)

        x = replace(x, value=map_value(x.value, value, lambda i: i))
        name = panel(x.buffer, x.subscripts)
        return x if name is None else replace(x, buffer=name, subscripts=(point, var(lane)))

    return node(loop.body, ())


def _all_points(kernel: Kernel, loop: Loop, lanes: int) -> Node:
    """The points of a block; short ones side by side, and added in pairs: no sum waits then."""
    statements = [x for x, _ in statements_in(loop)]
    values = [v for x in statements for v in subvalues(x.value)]
    called = any(isinstance(v, Call) and loop.variable in value_variables(v) for v in values)
    if called or len(values) > MOST_VALUES:
        return loop
    *around, x = _single(loop.body)
    dtype = value_dtype(values[0])
    if not isinstance(x, Update) or loop.variable in subscript_variables(x.subscripts):
        return replace(loop, kind="unrolled")
    if kernel.buffer(x.buffer).dtype is not dtype:
        return replace(loop, kind="unrolled")
    terms = [substitute_value(x.value, {loop.variable: index(k)}) for k in range(lanes)]
    total = tree(lambda a, b: Binary(x.op, a, b, dtype), cast(list[Expr], terms))
    node: Node = replace(x, value=total)
    for y in reversed(around):
        assert isinstance(y, Loop)
        node = replace(y, body=node)
    return node


def _single(node: Node) -> tuple[Node, ...]:
    """The loops of a perfect nest, and what is in the last one."""
    loops = chain_of(node)
    return (*loops, loops[-1].body if loops else node)


def _load(x: Strided, panel: str, row: str, start: Index, lanes: int) -> Node:
    at = tuple(substitute(s, {row: start}) for s in x.subscripts)
    size = index(lanes)
    return TransposeBlock(panel, (ZERO, ZERO), x.buffer, at, size, size, lanes, source_row=x.row)


def _store(x: Strided, panel: str, row: str, start: Index, lanes: int) -> Node:
    at = tuple(substitute(s, {row: start}) for s in x.subscripts)
    size = index(lanes)
    return TransposeBlock(x.buffer, at, panel, (ZERO, ZERO), size, size, lanes, target_column=x.row)
