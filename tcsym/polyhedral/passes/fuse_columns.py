"""Two loops of a band -> one loop of columns, so that tiles run on from one row into the next.

Rows of images are rarely a multiple of a vector. Where all accesses but those of packed operands
move by n*s with the rows and by s with the n columns of a row, a tile may hold the end of one row
and the start of the next; only the copies into panels see the seam (`passes.pack_operand`).
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import IndexValue, Read
from tcsym.index import ONE, ZERO, Index, floordiv, var
from tcsym.loop_ir import Buffer, Holds, Kernel, Loop, Node, Value, substitute_node, subvalues
from tcsym.polyhedral.passes.access import accesses, offset_stride, subscript_variables
from tcsym.polyhedral.passes.band import Band
from tcsym.polyhedral.passes.bounds import extent
from tcsym.polyhedral.passes.interchange import can_sink
from tcsym.polyhedral.passes.loops import find_loop, replace_loop, statements_in


def is_fusible(kernel: Kernel, band: Band, rows: str, columns: str) -> bool:
    """`rows` and `columns` of the band can be one loop that all accesses follow evenly.

    Accesses of panels are taken to follow: they are made so by `redirect_operand`.
    """
    names = frozenset((rows, columns))
    outer, inner = band.loop(rows), band.loop(columns)
    if band.variables.index(rows) > band.variables.index(columns) or _bounds_move(band, names):
        return False
    if any(uses_position(x.value, names) for x, _ in statements_in(band.body)):
        return False
    for a in accesses(band.body):
        b = kernel.buffer(a.buffer)
        panel = b.space != "argument" and b.padded
        if panel or not names & subscript_variables(a.subscripts) or _is_private(b, names):
            continue
        if b.space != "argument" and names & b.private:
            return False
        far = offset_stride(b, a.subscripts, rows)
        near = offset_stride(b, a.subscripts, columns)
        if far is None or near is None or far != near * extent(inner):
            return False
    return extent(outer) != ONE


def _bounds_move(band: Band, names: frozenset[str]) -> bool:
    """Some bound or condition in the band uses one of the loops, or their bounds another one."""
    used = frozenset[str]().union(
        *(x.lower.variables() | x.upper.variables() for x in band.loops if x.variable not in names)
    )
    own = frozenset[str]().union(
        *(x.lower.variables() | x.upper.variables() for x in band.loops if x.variable in names)
    )
    moved = used & names or own & frozenset(band.variables)
    return bool(moved) or not can_sink(band.body, names)


def uses_position(v: Value, names: frozenset[str]) -> bool:
    """A value, not just an address, depends on where in a row the point is."""
    for x in subvalues(v):
        if isinstance(x, IndexValue) and x.index.variables() & names:
            return True
        if isinstance(x, Holds) or (isinstance(x, Read) and (x.unwritten or any(x.checked))):
            return True
    return False


def _is_private(b: Buffer, names: frozenset[str]) -> bool:
    return b.space != "argument" and names <= b.private


def fused_position(rows: Loop, columns: Loop, at: Index) -> dict[str, Index]:
    """What both loops' variables are at a position of the fused loop."""
    n = extent(columns)
    row = floordiv(at, n)
    return {rows.variable: rows.lower + row, columns.variable: columns.lower + at - n * row}


def fuse_columns(kernel: Kernel, rows: str, columns: str, new: str) -> Kernel:
    """Loop `new` in the place of `columns`, over all points of both. Needs `is_fusible`."""
    outer, inner = find_loop(kernel.body, rows), find_loop(kernel.body, columns)
    count = extent(outer) * extent(inner)

    def columns_loop(x: Loop) -> Node:
        body = substitute_node(x.body, fused_position(outer, inner, var(new)))
        return replace(x, variable=new, lower=ZERO, upper=count, body=body)

    body = replace_loop(kernel.body, columns, columns_loop)
    body = replace_loop(body, rows, lambda x: x.body)
    both = {rows, columns}
    buffers = tuple(
        replace(b, private=(b.private - both) | {new}) if both <= b.private else b
        for b in kernel.buffers
    )
    return replace(kernel, body=body, buffers=buffers)
