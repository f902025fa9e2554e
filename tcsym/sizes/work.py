# SPDX-License-Identifier: Apache-2.0
"""Program, sizes -> roughly how many scalar operations a call takes, and how many elements."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import assert_never

from tcsym.frontend.program import For, If, Item, Program, Statement, subexpressions
from tcsym.index.expr import ZERO, Index
from tcsym.index.values import evaluate


def estimated_work(program: Program, sizes: Mapping[str, int]) -> float:
    """Points of all statements times operations of each; loop variables at their upper ends.

    Ranges that use other indices count as at the middle of these, ranges that are read as one."""
    return float(sum(work_of(item, sizes) for item in program.body))


def n_elements(program: Program, sizes: Mapping[str, int]) -> int:
    """Of all inputs and outputs."""
    tensors = (*program.inputs, *program.outputs)
    return sum(prod(max(0, evaluate(e, sizes)) for e in t.shape) for t in tensors)


def loop_count(loop: For, values: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """How often it runs, and the values inside."""
    n = _extent(loop.lower, loop.upper, values)
    return n, {**values, loop.variable: _extent(ZERO, loop.upper, values)}


def work_of(item: Item, values: Mapping[str, int]) -> int:
    """Of one item of a program, in scalar operations."""
    match item:
        case Statement():
            points, inside = 1, dict.fromkeys((g.name for g in item.given), 0) | dict(values)
            for r in item.walked:
                points *= max(_extent(r.lower, r.upper, inside), int(bool(item.given)))
                inside[r.variable] = (evaluate(r.lower, inside) + evaluate(r.upper, inside)) // 2
            return points * sum(1 for _ in subexpressions(item.value))
        case For(body=body):
            n, inside = loop_count(item, values)
            return n * sum(work_of(x, inside) for x in body)
        case If(_, then, orelse):
            return max(sum(work_of(x, values) for x in arm) for arm in (then, orelse))
        case _:
            assert_never(item)


def _extent(lower: Index, upper: Index, values: Mapping[str, int]) -> int:
    return max(0, evaluate(upper, values) - evaluate(lower, values))
