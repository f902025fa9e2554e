# SPDX-License-Identifier: Apache-2.0
"""Operands streamed as they lie, with steps far apart -> fetched some steps ahead.

A register tile reads a line or two of each step. Steps a page apart are nothing that the
processor's own prefetcher follows. Where the innermost steps slide along memory, those of a loop
around them are far apart: a convolution reads some lines of each channel in turn.
"""

from __future__ import annotations

from math import ceil, prod

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, ZERO, Index, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import eliminate, extent
from tcsym.ir.loops import Kernel, Loop, Node, Prefetch, Update, block
from tcsym.ir.traverse import loads, map_node, substitute_value, walk
from tcsym.schedule.analysis.access import run_length, stride, subscript_variables
from tcsym.schedule.version.literal_windows import LITERAL

STEPS_AHEAD = 12
Chain = tuple[Loop, ...]


def prefetch_steps(kernel: Kernel, loops: frozenset[str], line_bytes: int) -> Kernel:
    """The innermost of the reduction loops fetch what their vectors read some steps later.

    The address may lie beyond the end: a prefetch of no memory does nothing. Loops known to be
    short stay as they are.
    """
    steps: dict[str, dict[Prefetch, None]] = {}
    windows: dict[str, dict[Prefetch, None]] = {}
    for x, around in walk(kernel.body):
        chain = tuple(y for y in around if isinstance(y, Loop))
        sums = [k for k, y in enumerate(chain) if y.variable in loops and y.kind == "serial"]
        if not isinstance(x, Update) or not sums or chain[-1].kind != "vector":
            continue
        loop, points = chain[sums[-1]], chain[sums[-1] + 1 :]
        for r in loads(x.value):
            step = _step(kernel, r, loop, points)
            if step in (ONE, -ONE):
                outside, outer = chain[: sums[0]], tuple(chain[k] for k in sums[:-1])
                lines = _window(kernel, r, loop, outer, (*outside, *points), points, line_bytes)
                windows.setdefault(loop.variable, {}).update(dict.fromkeys(lines))
            elif step not in (None, ZERO) and not _is_short(loop):
                later = _ahead(r, loop.variable, points)
                steps.setdefault(loop.variable, {})[later] = None

    def change(x: Node) -> Node:
        if not isinstance(x, Loop):
            return x
        later, lines = steps.get(x.variable, ()), windows.get(x.variable, ())
        x = replace(x, body=block(x.body, *later)) if later else x
        return block(*lines, x) if lines else x

    return replace(kernel, body=map_node(kernel.body, change))


def _step(kernel: Kernel, r: Read, loop: Loop, points: Chain) -> Index | None:
    """How far the loop moves the read if that is whole vectors of one place; else None."""
    b = kernel.buffer(r.tensor)
    gathered = tuple(s for s in r.subscripts if not isinstance(s, Index))
    moving = (loop.variable, *(y.variable for y in points))
    is_row = stride(b, r.subscripts, points[-1].variable) == ONE
    if not is_row or not subscript_variables(gathered).isdisjoint(moving):
        return None
    return stride(b, r.subscripts, loop.variable)


def _is_short(loop: Loop) -> bool:
    n = extent(loop).as_int()
    return n is not None and n < STEPS_AHEAD


def _window(
    kernel: Kernel, r: Read, loop: Loop, outer: Chain, others: Chain, points: Chain, line_bytes: int
) -> list[Prefetch]:
    """What all of the loop will read some steps of `outer` later: of the innermost of those that
    slide along none of the `others`, as windows are short, or else of the first."""
    b, beside = kernel.buffer(r.tensor), {y.variable for y in others}
    subscripts = [s for s in r.subscripts if isinstance(s, Index)]
    used = [s.variables() for s in subscripts]
    moving = [k for k, y in enumerate(outer) if any(y.variable in u for u in used)]
    if len(subscripts) < len(r.subscripts) or not moving:
        return []
    far = [k for k in moving if not any(outer[k].variable in u and beside & u for u in used)]
    k = far[-1] if far else moving[0]
    inside = prod(extent(y).as_int() or LITERAL for y in (*outer[k + 1 :], loop))
    later = var(outer[k].variable) + ceil(STEPS_AHEAD / inside)
    values = {outer[k].variable: later, **{y.variable: ZERO for y in points}}
    first = [eliminate(substitute(s, values), (loop,), False) for s in subscripts]
    *rows, last = (s for s in first if s is not None)
    if len(rows) + 1 < len(first):
        return []
    line = line_bytes // b.dtype.bytes
    length = run_length(b, r.subscripts, tuple(y for y in points if y.variable in used[-1]))
    places = ((*rows, last + x) for x in range(0, length + line, line))
    return [Prefetch(Read(r.tensor, at, r.dtype)) for at in places]


def _ahead(r: Read, variable: str, points: Chain) -> Prefetch:
    values = {variable: var(variable) + STEPS_AHEAD, **{y.variable: ZERO for y in points}}
    later = substitute_value(replace(r, checked=(), unwritten=None), values)
    assert isinstance(later, Read)
    return Prefetch(later)
