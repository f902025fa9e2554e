# SPDX-License-Identifier: Apache-2.0
"""Leaf schedule `scan`: several rows at once around a loop in order, their state in registers.

One row waits for its own last step; the chains of several overlap.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, ZERO, Index, index, minimum, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Branch, Buffer, Kernel, Loop, LoopKind, Node, Store, Update, Value, block
from tcsym.ir.traverse import loads, map_node, walk
from tcsym.schedule.analysis.access import accesses, stride
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.loops import children, find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.vector_legality import can_mask, vector_refusal
from tcsym.schedule.order.interchange import can_sink, sink_points
from tcsym.schedule.tile.row_schedule import split_rest
from tcsym.schedule.tile.tile_loop import tile_loop
from tcsym.schedule.version.versioning import duplicate

ROWS = 8
MOST_STATEMENTS = 8
MOST_PATHS = 8
Elements = tuple[tuple[Index, ...] | None, tuple[Index, ...]]


def is_scan(kernel: Kernel, nest: str) -> bool:
    """A band of rows around one loop in order, and no loop inside that."""
    band = band_of(find_loop(kernel.body, nest))
    scan = band.body
    return (
        bool(band.loops)
        and isinstance(scan, Loop)
        and scan.is_steps
        and not loops_in(scan.body)
        and can_sink(scan, frozenset(band.variables))
    )


def schedule_scan(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Vectors of rows, or whole groups of them, then single rows. Contract: `is_scan`."""
    rows = band_of(find_loop(kernel.body, nest)).variables[-1]
    scan = next(x for x in loops_in(find_loop(kernel.body, rows).body))
    lanes = setting.lanes(kernel, scan.body)
    if lanes > 1 and _runs_in_lanes(kernel, scan, rows, setting):
        return _in_groups(kernel, rows, lanes, setting.names, "vector")
    heavy = sum(isinstance(x, Store | Update) for x, _ in walk(scan.body)) > MOST_STATEMENTS
    group = 1 if heavy else ROWS
    kernel, rest = split_rest(kernel, nest, rows, group, setting.names)
    kernel = _in_groups(kernel, rows, group, setting.names)
    return _in_groups(kernel, rest[1], 1, setting.names) if rest else kernel


def _runs_in_lanes(kernel: Kernel, scan: Loop, rows: str, setting: Setting) -> bool:
    """Neighbouring rows lie side by side, or share what they read."""
    return (
        vector_refusal(kernel, scan.body, rows) is None
        and can_mask(kernel, scan.body, setting.machine)
        and all(
            stride(kernel.buffer(a.buffer), a.subscripts, rows) in (ONE, ZERO)
            for a in accesses(scan.body)
            if rows not in kernel.buffer(a.buffer).private
        )
    )


def _in_groups(
    kernel: Kernel, rows: str, size: int, names: Names, kind: LoopKind = "unrolled"
) -> Kernel:
    tile, point = names.fresh(rows), names.fresh(rows)
    tiled = tile_loop(find_loop(kernel.body, rows), size, tile, point)
    points = find_loop(tiled, point)
    kernel = replace(kernel, body=replace_loop(kernel.body, rows, lambda _: tiled))
    kernel = replace_private(kernel, {rows: (tile,)})
    assert isinstance(points.body, Loop)
    kernel, body = _carried(kernel, points.body, point, (size, tile), names)
    sunk = sink_points(replace(points, body=body, kind=kind), (point,), names)
    return replace(kernel, body=replace_loop(kernel.body, point, lambda _: sunk))


def _carried(
    kernel: Kernel, scan: Loop, point: str, group: tuple[int, str], names: Names
) -> tuple[Kernel, Node]:
    """The scan with what a step reads of the one before in registers.

    Only its first step, which has a loop of its own, reads that from memory.
    """
    found = [x for b in kernel.buffers if (x := _carrier(b, scan)) is not None]
    if not found:
        return kernel, scan
    kernel, copy, new = duplicate(kernel, scan, names)
    first = find_loop(copy, new[scan.variable])
    first = replace(first, upper=minimum(scan.upper, scan.lower + 1))
    rest = replace(scan, lower=scan.lower + 1)
    size, tile = group
    for x in found:
        b = kernel.buffer(x.buffer)
        state = Buffer(
            names.fresh(f"{b.name}_last"), b.dtype, (index(size),), "register", padded=True
        )
        kernel = kernel.with_buffer(replace(state, private=frozenset((tile,))))
        at = Read(state.name, (var(point),), b.dtype)
        last = _before(x.subscripts, scan.variable)
        early = tuple(substitute(i, {scan.variable: var(first.variable)}) for i in x.subscripts)
        first = replace(first, body=_kept(first.body, b.name, at, (None, early)))
        rest = replace(rest, body=_kept(rest.body, b.name, at, (last, x.subscripts)))
    return kernel, block(first, rest)


def _carrier(b: Buffer, scan: Loop) -> Store | None:
    """The one store of `b` in every step, if the next one reads it before it stores its own."""
    paths = _paths(scan.body)
    stores = [[x for x in p if isinstance(x, Store) and x.buffer == b.name] for p in paths]
    if not paths or any(len(s) != 1 for s in stores) or b.dtype.accumulator is not b.dtype:
        return None
    found = stores[0][0]
    last, read = _before(found.subscripts, scan.variable), False
    for path, (store,) in zip(paths, stores):
        for x in path[: path.index(store) + 1]:
            read = read or any(_reads(r, b.name, last) for r in loads(x.value))
        if store.subscripts != found.subscripts or any(
            isinstance(x, Update) and x.buffer == b.name for x in path
        ):
            return None
    return found if read else None


def _paths(node: Node) -> tuple[tuple[Store | Update, ...], ...]:
    """The statements of a step, for each way through its conditions; none if it is more."""
    paths: tuple[tuple[Store | Update, ...], ...] = ((),)
    for x in children(node):
        if isinstance(x, Store | Update):
            ways: tuple[tuple[Store | Update, ...], ...] = ((x,),)
        elif isinstance(x, Branch) and x.orelse is not None:
            arms = _paths(x.then), _paths(x.orelse)
            ways = (*arms[0], *arms[1]) if all(arms) else ()
        else:
            return ()
        paths = tuple((*before, *way) for before in paths for way in ways)
        if len(paths) > MOST_PATHS:
            return ()
    return paths


def _before(subscripts: tuple[Index, ...], variable: str) -> tuple[Index, ...]:
    return tuple(substitute(s, {variable: var(variable) - 1}) for s in subscripts)


def _reads(v: Value, buffer: str, subscripts: tuple[Index, ...]) -> bool:
    plain = isinstance(v, Read) and v.unwritten is None and not any(v.checked)
    return plain and isinstance(v, Read) and (v.tensor, v.subscripts) == (buffer, subscripts)


def _kept(node: Node, buffer: str, state: Read, elements: Elements) -> Node:
    """`node` storing into `buffer` by way of `state`.

    Reads of `elements`, the last step's before the store and this one's after it, come from there.
    """
    out: list[Node] = []
    element, new = elements

    def value(v: Value) -> Value:
        return state if element is not None and _reads(v, buffer, element) else v

    for x in children(node):
        if isinstance(x, Branch):
            now, stores = (element, new), any(a.buffer == buffer and a.written for a in accesses(x))
            orelse = x.orelse and _kept(x.orelse, buffer, state, now)
            out.append(Branch(x.condition, _kept(x.then, buffer, state, now), orelse))
            element = new if stores else element
            continue
        y = map_node(x, on_value=value)
        if isinstance(y, Store) and y.buffer == buffer:
            element = new
            subscripts = tuple(s for s in state.subscripts if isinstance(s, Index))
            out.append(replace(y, buffer=state.tensor, subscripts=subscripts))
            y = replace(y, value=state)
        out.append(y)
    return block(*out)
