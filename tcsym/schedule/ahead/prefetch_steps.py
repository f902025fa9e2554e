"""Operands streamed as they lie, with steps far apart -> fetched some steps ahead.

A register tile reads a line or two of each step. Steps a page apart are nothing that the
processor's own prefetcher follows.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, ZERO, Index, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, Prefetch, Update, block
from tcsym.ir.traverse import loads, map_node, substitute_value, walk
from tcsym.schedule.analysis.access import stride, subscript_variables
from tcsym.schedule.analysis.loops import loops_in

STEPS_AHEAD = 12


def prefetch_steps(kernel: Kernel, loops: frozenset[str]) -> Kernel:
    """The innermost of the reduction loops fetch what their vectors read some steps later.

    The address may lie beyond the end: a prefetch of no memory does nothing. Loops known to be
    short stay as they are.
    """

    def change(x: Node) -> Node:
        if not (isinstance(x, Loop) and x.variable in loops and x.kind == "serial"):
            return x
        n = extent(x).as_int()
        if (
            any(y.kind == "serial" for y in loops_in(x.body))
            or (n or 2 * STEPS_AHEAD) < STEPS_AHEAD
        ):
            return x
        found = dict.fromkeys(_reads(kernel, x))
        return replace(x, body=block(x.body, *found)) if found else x

    return replace(kernel, body=map_node(kernel.body, change))


def _reads(kernel: Kernel, loop: Loop) -> list[Prefetch]:
    out: list[Prefetch] = []
    for x, around in walk(loop.body):
        points = [y for y in around if isinstance(y, Loop)]
        if not isinstance(x, Update) or not points or points[-1].kind != "vector":
            continue
        for r in loads(x.value):
            b, lane = kernel.buffer(r.tensor), points[-1].variable
            step = stride(b, r.subscripts, loop.variable)
            if stride(b, r.subscripts, lane) != ONE or step in (None, ZERO, ONE):
                continue
            moving = (loop.variable, *(y.variable for y in points))
            gathered = tuple(s for s in r.subscripts if not isinstance(s, Index))
            if subscript_variables(gathered).isdisjoint(moving):
                out.append(_ahead(r, loop.variable, points))
    return out


def _ahead(r: Read, variable: str, points: list[Loop]) -> Prefetch:
    values = {variable: var(variable) + STEPS_AHEAD, **{y.variable: ZERO for y in points}}
    later = substitute_value(replace(r, checked=(), unwritten=None), values)
    assert isinstance(later, Read)
    return Prefetch(later)
