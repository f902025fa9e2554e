# SPDX-License-Identifier: Apache-2.0
"""Blocks of rows of windows -> the same, fetching the next block's image while memory is idle.

Of separable windows, the side across the rows reads the image; the side along them reads what that
left in the first cache. So the second loop over a block fetches, row by row, what the first will
read in the next block and has not read yet. A register tile of windows fetches what the tile below
it reads first. They do so where the image is several times the second cache: out of that, the
fetches cost more than they save. Nor do they pay where a vector of one row alone reads less than a
line, as windows do that move by one element.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import FALSE, TRUE, ZERO, Index, ge
from tcsym.index.values import product_of, substitute
from tcsym.ir.bounds import eliminate
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Prefetch, Update, block
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import Copies
from tcsym.target.machine import Machine

MOST_LINES = 8  # of a vector
FAR_CACHES = 4  # second caches that an image fills


def next_block(
    kernel: Kernel,
    x: Update,
    window: tuple[Loop, ...],
    place: Mapping[str, Index],
    loops: tuple[Loop, Loop],
    machine: Machine,
    lanes: int,
    vectors: int = 1,
) -> tuple[Prefetch, ...]:
    """What `vectors` of `lanes` points read from `place` on and no rows before that have read.

    window: the loops around `x` that are inside of the point. loops: over rows and columns of
    points; `place` has values of both.
    """
    found: list[Prefetch] = []
    for r in dict.fromkeys(loads(x.value)):
        found += _lines(kernel, r, window, place, loops, machine.line_bytes, lanes * vectors)
    return tuple(found) if len(found) <= MOST_LINES * vectors else ()


def _lines(
    kernel: Kernel,
    r: Read,
    window: tuple[Loop, ...],
    place: Mapping[str, Index],
    loops: tuple[Loop, Loop],
    line_bytes: int,
    points: int,
) -> list[Prefetch]:
    rows, columns = (x.variable for x in loops)
    b = kernel.buffer(r.tensor)
    subscripts = [s for s in r.subscripts if isinstance(s, Index)]
    moving = [d for d, s in enumerate(subscripts) if rows in s.variables()]
    if b.space != "argument" or len(subscripts) < len(r.subscripts) or len(moving) != 1:
        return []
    (d,) = moving
    down = tuple(y for y in window if y.variable in subscripts[d].variables())
    along = tuple(y for y in window if y not in down)
    if any(y.variable in s.variables() for y in along for s in subscripts[:-1]):
        return []  # each iteration reads other rows
    last = [eliminate(s, down, True) for s in subscripts]
    at = [s and eliminate(s, along, False) for s in last]
    step = subscripts[d].coefficient(rows)
    span = subscripts[-1].coefficient(columns) * points * b.dtype.bytes
    if any(s is None for s in at) or step <= 0 or span < line_bytes or d == len(at) - 1:
        return []
    first = [substitute(s, place) for s in at if s is not None]
    line = line_bytes // b.dtype.bytes
    offsets = [k * line for k in range(span // line_bytes)]
    lines = [
        (*first[:d], first[d] - k, *first[d + 1 : -1], first[-1] + x)
        for k in range(step)
        for x in offsets
    ]
    return [Prefetch(Read(r.tensor, at, r.dtype)) for at in lines]


def fetch_ahead(
    kernel: Kernel, ahead: Mapping[str, tuple[Prefetch, ...]], machine: Machine, names: Names
) -> Kernel:
    """Each loop of `ahead` fetches that, where the arrays do not lie in the second cache."""

    copies = Copies(kernel, names)

    def fetch(x: Node) -> Node:
        lines = ahead.get(x.variable, ()) if isinstance(x, Loop) else ()
        if not isinstance(x, Loop) or not lines:
            return x
        tensors = [kernel.buffer(n) for n in dict.fromkeys(y.read.tensor for y in lines)]
        elements = (product_of(b.shape) * b.dtype.bytes for b in tensors)
        far = ge(sum(elements, start=ZERO), FAR_CACHES * machine.level("l2").bytes)
        if far == FALSE:
            return x
        body = block(*lines, x.body)
        return replace(x, body=body if far == TRUE else Branch(far, body, copies.of(x.body)))

    body = map_node(kernel.body, fetch) if ahead else kernel.body
    return replace(copies.kernel, body=body)
