# SPDX-License-Identifier: Apache-2.0
"""Kernel and sizes -> the lines of its text that do not run at these sizes.

By interval arithmetic over sizes and loop variables (`sizes.context`): a line that is said to be
idle is so, and one that is not said to be may be, where two variables would have to be related.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tcsym.index.expr import FALSE, TRUE
from tcsym.ir.launched import chosen
from tcsym.ir.loops import THREADS, Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.sizes.context import ANY, Interval, Ranges, decided, interval, narrowed, ranges_of

NONE: frozenset[int] = frozenset()


def idle_lines(kernel: Kernel, sizes: Mapping[str, int], n_lines: int) -> frozenset[int]:
    """Their numbers, from 0, in `kernel_text`, which has `n_lines`; none without sizes.

    sizes: some or all of a call, whose arguments are dense.
    """
    if not sizes:
        return NONE
    ranges = body_ranges(kernel, sizes)
    flags = list(_flags(kernel.body, ranges, decided(kernel.left_out, ranges) != TRUE))
    first = n_lines - len(flags)
    return frozenset(first + k for k, runs in enumerate(flags) if not runs)


def body_ranges(kernel: Kernel, sizes: Mapping[str, int]) -> Ranges:
    """Where the sizes lie that the body runs with in calls with these."""
    given = dict.fromkeys(kernel.sizes, Interval(0, None)) | {THREADS: Interval(1, None)}
    given |= ranges_of(kernel.context)
    given |= {name: Interval(value, value) for name, value in sizes.items()}
    known = {name: x.low for name, x in given.items() if x.low == x.high and x.low is not None}
    taken = chosen(kernel, known)
    return given | {name: Interval(value, value) for name, value in taken.items()}


def _flags(n: Node, ranges: Ranges, runs: bool) -> Iterator[bool]:
    """Of each line that `ir.text.LoopText` makes of the node: whether it may run."""
    match n:
        case Loop():
            yield from _loop(n, ranges, runs)
        case Branch(condition, then, orelse):
            held = decided(condition, ranges)
            yield runs and (held != FALSE or orelse is not None)
            yield from _flags(then, narrowed(condition, ranges), runs and held != FALSE)
            if orelse is not None:
                taken = runs and held != TRUE
                yield taken
                yield from _flags(orelse, ranges, taken)
        case Block(body):
            for x in body:
                yield from _flags(x, ranges, runs)
        case Allocate(buffers, body):
            yield from (runs for _ in buffers)
            yield from _flags(body, ranges, runs)
        case _:
            yield runs


def _loop(loop: Loop, ranges: Ranges, runs: bool) -> Iterator[bool]:
    if loop.value is not None:
        inside = ANY
    else:
        low, high = interval(loop.lower, ranges), interval(loop.upper, ranges)
        inside = Interval(low.low, None if high.high is None else high.high - 1)
        is_empty = None not in (inside.low, inside.high) and inside.high < inside.low  # type: ignore[operator]
        runs = runs and not is_empty
    yield runs
    yield from _flags(loop.body, {**ranges, loop.variable: inside}, runs)
