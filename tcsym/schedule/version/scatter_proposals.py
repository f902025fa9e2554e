# SPDX-License-Identifier: Apache-2.0
"""Scatter -> how threads share it: copies of the result, columns of it, or not at all.

A copy costs as much as its elements are set and added up; columns cost a walk through all positions
for every thread. Both need work that a thread is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec.structs import replace

from tcsym.index.expr import ZERO, Index, floordiv, ge, maximum, minimum, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import THREADS, Kernel
from tcsym.schedule.analysis.cost import PER_CYCLE, Costs
from tcsym.schedule.analysis.loops import find_loop, loops_around, loops_in, replace_loop, scatters
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.scatter_parts import (
    COPY_TERMS,
    Scatter,
    scatter_columns,
    scatter_copies,
    scatter_of,
)
from tcsym.schedule.order_plans import ScatterColumns, ScatterCopies, ScatterOrder, ScatterPlan
from tcsym.schedule.plan import Version, always
from tcsym.schedule.version.choose import choose

MOST_COPIES = 16  # of the result: with more, to set them and add them up takes what threads save
LEAST_COLUMNS = 64  # of a thread: lines of memory that no other thread writes, but for two
THREAD_WORK = 65536 * PER_CYCLE  # tens of microseconds: many times what waking a thread takes
TOGETHER = 4  # terms of one element each: a step of the loop takes longer than one


def with_scatter_plans(kernel: Kernel, setting: Setting) -> Kernel:
    """Every outermost scatter by a plan."""
    for loop in loops_in(kernel.body):
        outermost = loop.order == "sequential" and not loops_around(kernel.body, loop.variable)
        if outermost and loop.at is None and scatters(loop):
            found = scatter_of(kernel, loop)
            if found is not None:
                kernel = choose(kernel, loop.variable, setting, (_copies, _columns, _order), _apply)
    return kernel


def _copies(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[ScatterPlan]]:
    if setting.options.parallelize:
        found = _found(kernel, nest)
        parts = minimum(_most(kernel, found, MOST_COPIES, setting), var(THREADS))
        yield Version(ge(parts, 2), ScatterCopies(MOST_COPIES))


def _columns(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[ScatterPlan]]:
    found = _found(kernel, nest)
    if not setting.options.parallelize or not found.rows:
        return
    row = found.rows[0]
    if row.end_variables <= frozenset(kernel.sizes):
        least = 1 if len(found.rows) > 1 else LEAST_COLUMNS
        parts = _parts(kernel, found, least, setting)
        yield Version(ge(parts, 2), ScatterColumns(row.variable, least))


def _order(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[ScatterPlan]]:
    yield always(ScatterOrder())


def _found(kernel: Kernel, nest: str) -> Scatter:
    found = scatter_of(kernel, find_loop(kernel.body, nest))
    assert found is not None
    return found


def _work(kernel: Kernel, found: Scatter, setting: Setting) -> Index:
    """So many threads are worth it."""
    costs = Costs.of(kernel, setting.machine)
    each = costs.of_iteration((found.loop,), frozenset(kernel.sizes))
    return floordiv(maximum(ZERO, extent(found.loop)) * each, THREAD_WORK)


def _most(kernel: Kernel, found: Scatter, copies: int, setting: Setting) -> Index:
    few = floordiv(found.terms, found.elements * COPY_TERMS)
    return minimum(copies, few, _work(kernel, found, setting))


def _parts(kernel: Kernel, found: Scatter, least: int, setting: Setting) -> Index:
    wide = floordiv(extent(found.rows[0]), least)
    return minimum(var(THREADS), _work(kernel, found, setting), wide)


def _apply(plan: ScatterPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    found = _found(kernel, nest)
    match plan:
        case ScatterCopies(most):
            copies = _most(kernel, found, most, setting)
            parts = minimum(copies, var(THREADS))
            kernel = scatter_copies(kernel, found, parts, copies, setting.names)
        case ScatterColumns(_, least):
            parts = _parts(kernel, found, least, setting)
            kernel = scatter_columns(kernel, found, parts, setting.names)
        case ScatterOrder():
            pass
        case _:
            assert_never(plan)
    return kernel if found.rows else _several_terms(kernel, found)


def _several_terms(kernel: Kernel, found: Scatter) -> Kernel:
    """Steps of the innermost loop over terms, several at a time."""
    terms = [x for x in (found.loop, *loops_in(found.loop.body)) if x.at is None]
    body = replace_loop(kernel.body, terms[-1].variable, lambda x: replace(x, unroll=TOGETHER))
    return replace(kernel, body=body)
