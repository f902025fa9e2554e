# SPDX-License-Identifier: Apache-2.0
"""TransposeBlock -> loops over its elements, for where it cannot be moved as a block."""

from __future__ import annotations

from tcsym.frontend.program import Const, Read
from tcsym.index.expr import ZERO, all_of, index, lt, minimum, var
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Store, TransposeBlock


def by_element(n: TransposeBlock, source: Buffer, target: Buffer) -> Node:
    """The same as loops: zeros beyond rows and columns if the target is padded."""
    row, column = var(f"{n.target} row"), var(f"{n.target} column")
    at, place = n.element(row, column)
    move: Node = Store(n.target, at, Read(n.source, place, source.dtype))
    rows = columns = index(n.block)
    if target.padded:
        inside = all_of([lt(row, n.rows), lt(column, n.columns)])
        zero = Const(0.0 if source.dtype.is_float else 0, source.dtype)
        move = Branch(inside, move, Store(n.target, at, zero))
    else:
        rows, columns = minimum(rows, n.rows), minimum(columns, n.columns)
    return Loop(str(column), ZERO, columns, Loop(str(row), ZERO, rows, move))
