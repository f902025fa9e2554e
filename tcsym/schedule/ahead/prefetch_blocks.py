"""Blocks of rows of windows -> the same, fetching the next block's image while memory is idle.

The side across the rows reads the image; the side along them reads what that left in the first
cache. So the second loop over a block fetches, row by row, what the first will read in the next
block and has not read yet. It does so where the image is several times the second cache: out of
that, the fetches cost more than they save. Nor do they pay where a vector reads less than a line of
a row, as windows do that move by one element.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import FALSE, TRUE, ZERO, Index, ge
from tcsym.index.values import product_of, substitute
from tcsym.ir.bounds import eliminate
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Prefetch, block
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.names import Names, renamed_loops
from tcsym.schedule.analysis.separable import Separable
from tcsym.target.machine import Machine

MOST_LINES = 4  # of an iteration
FAR_CACHES = 4  # second caches that an image fills


def next_block(
    kernel: Kernel, one: Separable, rows: Loop, after: Index, lanes: int, line_bytes: int
) -> tuple[Prefetch, ...]:
    """What a vector of row `after` of the windows reads first, in terms of the inner loops."""
    found: list[Prefetch] = []
    for r in dict.fromkeys(loads(one.update.value)):
        found += _lines(kernel, one, r, rows, after, lanes, line_bytes)
    return tuple(found) if len(found) <= MOST_LINES else ()


def _lines(
    kernel: Kernel,
    one: Separable,
    r: Read,
    rows: Loop,
    after: Index,
    lanes: int,
    line_bytes: int,
) -> list[Prefetch]:
    b = kernel.buffer(r.tensor)
    subscripts = [s for s in r.subscripts if isinstance(s, Index)]
    moving = [d for d, s in enumerate(subscripts) if rows.variable in s.variables()]
    if b.space != "argument" or len(subscripts) < len(r.subscripts) or len(moving) != 1:
        return []
    last = [eliminate(s, one.first, True) for s in subscripts]
    at = [s and eliminate(s, one.second, False) for s in last]
    (d,) = moving
    step = subscripts[d].coefficient(rows.variable)
    span = subscripts[-1].coefficient(one.inner[-1].variable) * lanes * b.dtype.bytes
    if any(s is None for s in at) or step <= 0 or span < line_bytes or d == len(at) - 1:
        return []
    place = [substitute(s, {rows.variable: after}) for s in at if s is not None]
    line = line_bytes // b.dtype.bytes
    offsets = [k * line for k in range(span // line_bytes)]
    lines = [
        (*place[:d], place[d] - k, *place[d + 1 : -1], place[-1] + x)
        for k in range(step)
        for x in offsets
    ]
    return [Prefetch(Read(r.tensor, at, r.dtype)) for at in lines]


def fetch_ahead(
    kernel: Kernel, ahead: Mapping[str, tuple[Prefetch, ...]], machine: Machine, names: Names
) -> Kernel:
    """Each loop of `ahead` fetches that, where the arrays do not lie in the second cache."""

    def fetch(x: Node) -> Node:
        lines = ahead.get(x.variable, ()) if isinstance(x, Loop) else ()
        if not isinstance(x, Loop) or not lines:
            return x
        tensors = [kernel.buffer(n) for n in dict.fromkeys(y.read.tensor for y in lines)]
        elements = (product_of(b.shape) * b.dtype.bytes for b in tensors)
        far = ge(sum(elements, start=ZERO), FAR_CACHES * machine.level("l2").bytes)
        if far == FALSE:
            return x
        fetching, other = block(*lines, x.body), renamed_loops(x.body, names)
        return replace(x, body=fetching if far == TRUE else Branch(far, fetching, other))

    return replace(kernel, body=map_node(kernel.body, fetch)) if ahead else kernel
