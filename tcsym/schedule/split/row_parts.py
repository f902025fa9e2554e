# SPDX-License-Identifier: Apache-2.0
"""A row -> parts of it; where a loop around it in the lanes is as fast, the row as it was, too."""

from __future__ import annotations

from itertools import takewhile

from msgspec.structs import replace

from tcsym.index.expr import TRUE, Condition, all_of, ge
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Kernel, Loop, Node
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import chain_of, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import duplicate

SHORTEST_ROW = 16  # elements; a loop around a shorter row serves lanes as well as the row's parts


def with_parts(
    kernel: Kernel,
    row: Loop,
    around: tuple[Node, ...],
    parts: Node,
    needed: Condition,
    names: Names,
) -> Kernel:
    """`parts` for `row` where `needed`, on sizes, holds, and the row isn't short, if not alone.

    `around`: what stands around the row, outermost first.
    """
    band = takewhile(is_parallel, reversed([x for x in around if isinstance(x, Loop)]))
    sole = [x for x in band if chain_of(x)[-1].variable == row.variable]
    if sole and not extent(row).variables() & {x.variable for x in sole}:
        needed = all_of([needed, ge(extent(row), SHORTEST_ROW)])
    top = sole[-1] if sole else row
    needed = in_context(kernel, needed)
    copy: Node | None = None
    if needed != TRUE:
        kernel, copy, _ = duplicate(kernel, top, names)

    def split(nest: Loop) -> Node:
        inside = replace_loop(nest, row.variable, lambda _: parts)
        return inside if needed == TRUE else Branch(needed, inside, copy)

    return replace(kernel, body=replace_loop(kernel.body, top.variable, split))


def is_parallel(x: Node) -> bool:
    return isinstance(x, Loop) and x.order == "parallel"
