# SPDX-License-Identifier: Apache-2.0
"""Short constant reduction loops around a register tile -> straight code, operand row by row.

With rows r and a window k that read row s*r + k of the operand, the tile is traversed by operand
rows: for i { for r { k = i - s*r, if that is in the window } }. A row is then loaded once for all
the rows of the tile that use it, and few loads are alive at a time. The conditions are constants in
unrolled code.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Call
from tcsym.index.expr import ZERO, Index, all_of, ge, index, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Update
from tcsym.ir.packed import is_dot
from tcsym.ir.traverse import loads, map_node, substitute_node, subvalues
from tcsym.schedule.analysis.loops import chain_of
from tcsym.schedule.analysis.names import Names

MOST_STATEMENTS = 160
MOST_OPERATIONS = 640
CALL_OPERATIONS = 30


def unroll_window(kernel: Kernel, window: tuple[str, ...], names: Names) -> Kernel:
    """The perfect chains of loops `window` that are short enough, without loops at run time.

    Contract: they are reduction loops (any order), with the point loops of a tile inside.
    """

    def unroll(x: Node) -> Node:
        return _unrolled(x, window, names) if isinstance(x, Loop) else x

    return replace(kernel, body=map_node(kernel.body, unroll))


def _unrolled(top: Loop, window: tuple[str, ...], names: Names) -> Loop:
    """`top` unrolled with what is inside it, if that is straight code then."""
    if top.variable not in window or top.order != "reduction" or _trips(top) is None:
        return top
    chain = chain_of(top)
    statement = chain[-1].body
    points = tuple(x for x in chain if x.variable not in window)
    straight = all(x.kind in ("unrolled", "vector") for x in chain[1:])
    if not straight or not isinstance(statement, Update):
        return top
    if is_long(statement, statement_count(chain)):
        return top
    slide = _slide(statement, chain, points)
    if slide is None:
        return replace(top, kind="unrolled")
    return _by_operand_rows(chain, *slide, names)


def _trips(loop: Loop) -> int | None:
    return extent(loop).as_int() if loop.lower == ZERO else None


def statement_count(chain: tuple[Loop, ...]) -> int:
    """Statements of straight code, a vector each."""
    total = 1
    for x in chain:
        if x.kind != "vector":
            total *= _trips(x) or 1
    return total


def is_long(statement: Update, n: int) -> bool:
    """Too much straight code for what the loops cost."""
    values = list(subvalues(statement.value))
    size = len(values) + CALL_OPERATIONS * sum(
        isinstance(v, Call) and not is_dot(v) for v in values
    )
    return n > MOST_STATEMENTS or n * size > MOST_OPERATIONS


def _slide(
    statement: Update, chain: tuple[Loop, ...], points: tuple[Loop, ...]
) -> tuple[Loop, Loop, int] | None:
    """Window loop k, row loop r and step s > 0 with a subscript that moves as s*r + k."""
    window = [x for x in chain if x not in points]
    for r in loads(statement.value):
        for s in r.subscripts:
            found = _steps(s, window, points) if isinstance(s, Index) else None
            if found is not None:
                return found
    return None


def _steps(s: Index, window: list[Loop], points: tuple[Loop, ...]) -> tuple[Loop, Loop, int] | None:
    """As `_slide`, for one subscript that moves with a single point loop."""
    k, moving = window[0], [x for x in points if s.coefficient(x.variable)]
    if len(moving) != 1 or s.coefficient(k.variable) != 1:
        return None
    (row,) = moving
    step = s.coefficient(row.variable)
    return (k, row, step) if row.kind == "unrolled" and row.mask is None and step > 0 else None


def _by_operand_rows(chain: tuple[Loop, ...], k: Loop, row: Loop, step: int, names: Names) -> Loop:
    """Loops i, the others, row; inside, the statement with k = i - step*row where it exists."""
    n_rows, n_window = _trips(row), _trips(k)
    assert n_rows is not None and n_window is not None
    i = names.fresh(k.variable)
    at = var(i) - step * var(row.variable)
    *outer, lanes = chain
    node: Node = substitute_node(lanes, {k.variable: at})
    node = Branch(all_of((ge(at, 0), ge(index(n_window - 1), at))), node)
    node = replace(row, body=node)
    for x in reversed([x for x in outer if x not in (k, row)]):
        node = replace(x, body=node, kind="unrolled")
    return Loop(i, ZERO, index(step * (n_rows - 1) + n_window), node, "unrolled", k.order)
