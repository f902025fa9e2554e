# SPDX-License-Identifier: Apache-2.0
"""Vectors of one gathered row, each behind a check of its position -> all of them behind one."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, Index, var
from tcsym.ir.loops import (
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    Verify,
    block,
)
from tcsym.ir.traverse import certain_loads, loads, map_node, map_value, substitute_value, walk
from tcsym.schedule.analysis.access import subscript_variables
from tcsym.schedule.analysis.names import Names


def check_rows_once(kernel: Kernel, names: Names) -> Kernel:
    """In innermost serial loops, where the position is the same for all points of a step.

    Contract: masks and threads are final; a loop that runs has an active lane (true of tiles).
    """

    def change(x: Node) -> Node:
        if not isinstance(x, Loop) or x.kind != "serial" or not _is_straight(x.body):
            return x
        rows = {(r.tensor, r.checked, r.subscripts[r.checked.index(True)]): r for r in _rows(x)}
        for r in rows.values():
            x = replace(x, body=_behind_check(kernel, x.body, r, names))
        return x

    return replace(kernel, body=map_node(kernel.body, change))


def _is_straight(body: Node) -> bool:
    """Every statement runs in a step, whatever is read."""
    for n, _ in walk(body):
        match n:
            case Loop():
                if n.kind not in ("unrolled", "vector"):
                    return False
            case Store() | Update():
                if len(certain_loads(n.value)) < len(loads(n.value)):
                    return False
            case Branch(_, then, orelse):
                if orelse is not None or any(isinstance(y, Store | Update) for y, _ in walk(then)):
                    return False
            case Block():
                pass
            case _:
                return False
    return True


def _rows(x: Loop) -> Iterator[Read]:
    """Reads that are checked at one position only, which is read; without what moves inside."""
    for n, around in walk(x.body):
        inner = {y.variable for y in around}
        for r in loads(n.value) if inner and isinstance(n, Store | Update) else ():
            positions = [s for s, checked in zip(r.subscripts, r.checked) if checked]
            if len(positions) != 1 or isinstance(positions[0], Index) or r.unwritten is not None:
                continue
            if not subscript_variables((positions[0],)) & inner:
                at_first = substitute_value(r, dict.fromkeys(inner, ZERO))
                assert isinstance(at_first, Read)
                yield at_first


def _behind_check(kernel: Kernel, body: Node, r: Read, names: Names) -> Node:
    """Statements that read the row find its number in a variable."""
    d = r.checked.index(True)
    at, row = r.subscripts[d], names.fresh("row")

    def read(v: Value) -> Value:
        if not isinstance(v, Read) or (v.tensor, v.checked) != (r.tensor, r.checked):
            return v
        if v.subscripts[d] != at:
            return v
        places = (*v.subscripts[:d], var(row), *v.subscripts[d + 1 :])
        return replace(v, subscripts=places, checked=())

    def statement(n: Node) -> Node:
        if isinstance(n, Store | Update):
            return replace(n, value=map_value(n.value, read, lambda i: i))
        return n

    inside = map_node(body, statement)
    extent = kernel.buffer(r.tensor).shape[d]
    return block(Verify(r), Loop(row, ZERO, extent, inside, at=at))
