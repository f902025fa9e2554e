# SPDX-License-Identifier: Apache-2.0
"""Rows that are summed -> the same, fetching what the next sums will read.

A sum ends with work that waits for its lanes, and a row that is read several times misses the
caches the first time only: meanwhile memory is idle. So the last loop over a row fetches the next
row, or what lies some kilobytes ahead if rows are longer; the only loop over a row fetches what it
will read a little later. The address may lie beyond the end: a prefetch of no memory does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Expr, Read
from tcsym.index.expr import ZERO, Atom, Index, Min, index, minimum
from tcsym.index.values import map_atoms, substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Prefetch,
    Store,
    Update,
    block,
)
from tcsym.ir.traverse import loads, map_node, walk
from tcsym.schedule.analysis.access import accesses, run_length, stride, subscript_variables
from tcsym.schedule.analysis.loops import loops_in
from tcsym.target.machine import Machine

BYTES_AHEAD = 2048
PART_BYTES = 8192
MOST_LINES = 4  # of an iteration


class _Stream(Struct, frozen=True):
    """What whole vectors read one after another: in an iteration of `loop`, `step` elements.

    points: loops along them. rows: loops over several rows at a time.
    """

    loop: Loop
    read: Read
    points: tuple[str, ...]
    rows: tuple[Loop, ...]
    around: tuple[Loop, ...]
    step: int


def prefetch_rows(kernel: Kernel, machine: Machine) -> Kernel:
    """Parallel nests with sums along rows prefetch the argument that each row is.

    Contract: bounds, masks and subscripts are final; nothing after asks for loops of stores alone.
    """
    found: dict[str, list[Prefetch]] = {}
    for nest in _tops(kernel.body):
        streams: dict[str, list[_Stream]] = {}
        for s in _streams(kernel, nest, machine.line_bytes):
            streams.setdefault(s.read.tensor, []).append(s)
        for several in streams.values():
            if not any(s.loop.order == "reduction" for s in several):
                continue
            last = several[-1]
            if _is_read_again(last):
                continue
            shared = [x for x in last.around if all(x in s.around for s in several)]
            ahead: Index | None = index(BYTES_AHEAD // kernel.buffer(last.read.tensor).dtype.bytes)
            if any(s.loop is not last.loop for s in several):
                ahead = _next_row(kernel, last, shared)
            elif last.rows:  # read in as many runs as there are rows
                continue
            if ahead is not None:
                found.setdefault(last.loop.variable, []).extend(
                    _lines(kernel, last, ahead, machine)
                )
    if not found:
        return kernel

    def change(x: Node) -> Node:
        ahead = found.get(x.variable) if isinstance(x, Loop) else None
        return replace(x, body=block(*ahead, x.body)) if ahead and isinstance(x, Loop) else x

    return replace(kernel, body=map_node(kernel.body, change))


def _tops(node: Node) -> Iterator[Loop]:
    match node:
        case Loop() if node.order == "parallel":
            yield node
        case Block(body):
            for x in body:
                yield from _tops(x)
        case Branch(_, a, b):
            yield from _tops(a)
            if b is not None:
                yield from _tops(b)
        case Allocate(_, body):
            yield from _tops(body)
        case _:
            pass


def _streams(kernel: Kernel, nest: Loop, line_bytes: int) -> Iterator[_Stream]:
    """In program order; of arguments that the nest only reads."""
    written = {a.buffer for a in accesses(nest) if a.written}
    for x, nodes in walk(nest):
        if not isinstance(x, Store | Update) or not nodes:
            continue
        around = tuple(y for y in nodes if isinstance(y, Loop))
        serial = [y for y in around if y.kind == "serial"]
        lane = around[-1]
        if not serial or lane.kind != "vector" or lane.mask is not None:
            continue
        loop = serial[-1]
        if loop.lower != ZERO:  # the rest of a row
            continue
        if loop is nest or any(y.kind == "serial" for y in loops_in(loop.body)):
            continue
        inside = around[around.index(loop) + 1 :]
        for r in loads(x.value):
            along = subscript_variables(r.subscripts[-1:])
            points = tuple(y for y in inside if y.variable in along)
            rows = tuple(y for y in inside if y.variable not in along)
            if r.tensor in written or points[-1:] != (lane,):
                continue
            step = _step(kernel, r, loop, points, line_bytes)
            if step:
                names = tuple(y.variable for y in points)
                yield _Stream(loop, r, names, rows, around[: around.index(loop)], step)


def _step(kernel: Kernel, r: Read, loop: Loop, inside: tuple[Loop, ...], line_bytes: int) -> int:
    """Elements that an iteration reads, one after another and followed by the next one's; or 0."""
    b = kernel.buffer(r.tensor)
    if b.space != "argument" or not all(isinstance(s, Index) for s in r.subscripts):
        return 0
    last = r.subscripts[-1] if r.subscripts else None
    if not isinstance(last, Index) or last.coefficient(inside[-1].variable) != 1:
        return 0
    total = run_length(b, r.subscripts, inside)
    moved = stride(b, r.subscripts, loop.variable)
    fits = total * b.dtype.bytes <= MOST_LINES * line_bytes
    return total if fits and moved is not None and moved.as_int() == total else 0


def _is_read_again(s: _Stream) -> bool:
    """A loop around walks the same row again, which then lies in a cache."""
    moving = subscript_variables(s.read.subscripts)
    for y in reversed(s.around):
        if y.variable not in moving:
            return True
        moving |= y.lower.variables() | y.upper.variables()
    return False


def _next_row(kernel: Kernel, s: _Stream, shared: list[Loop]) -> Index | None:
    """How far the innermost of the loops that share the row moves, but no more than a row's part.

    All of a long row does not fit the first cache beside what else the loop reads.
    """
    b = kernel.buffer(s.read.tensor)
    for y in reversed(shared):
        places = tuple(_unclamped(x, y.variable) for x in s.read.subscripts)
        moved = stride(b, places, y.variable)
        if moved != ZERO:
            return moved and minimum(moved, PART_BYTES // b.dtype.bytes)
    return None


def _unclamped(subscript: Index | Expr, variable: str) -> Index | Expr:
    """Where the last of several rows at a time overlap others: as the loop moves before that."""

    def moving(atom: Atom) -> Index | None:
        args = atom.args if isinstance(atom, Min) else ()
        found = [x for x in args if variable in x.variables()]
        return found[0] if len(found) == 1 else None

    return map_atoms(subscript, moving) if isinstance(subscript, Index) else subscript


def _lines(kernel: Kernel, s: _Stream, ahead: Index, machine: Machine) -> list[Prefetch]:
    """One prefetch for each line that an iteration reads, `ahead` elements further."""
    line = machine.line_bytes // kernel.buffer(s.read.tensor).dtype.bytes
    places = []
    for row in product(*(range(extent(y).as_int() or 1) for y in s.rows)):
        values = {y.variable: y.lower + k for y, k in zip(s.rows, row)}
        start = dict.fromkeys(s.points, ZERO) | values
        *outer, last = (substitute(x, start) for x in s.read.subscripts if isinstance(x, Index))
        places += [(*outer, last + ahead + k) for k in range(0, s.step, line)]
    return [Prefetch(Read(s.read.tensor, at, s.read.dtype)) for at in places]
