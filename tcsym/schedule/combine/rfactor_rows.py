# SPDX-License-Identifier: Apache-2.0
"""Sums over many rows for each column -> parallel parts of the rows, combined in order.

Whole rows stay together, so that every part reads memory in long runs. A part has a fixed number of
rows, whatever the threads: so the result does not depend on those.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, Index, ceildiv, minimum, var
from tcsym.ir.bounds import eliminate, extent, extent_from
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.traverse import loads, substitute_node
from tcsym.schedule.analysis.band import Band, band_of
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    children,
    find_loop,
    loops_around,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import duplicate

PART_ROWS = 256  # the sums of a part cost two accesses for as many terms


class SplitRows(Struct, frozen=True):
    """`columns`: the loop over the columns of one part; the combination keeps the old one.

    `rows`: iterations of the loop that was split.
    """

    kernel: Kernel
    columns: str
    rows: Index


def rfactor_rows(
    kernel: Kernel, nest: str, columns: str, names: Names, most: int = PART_ROWS
) -> SplitRows | None:
    """The nest { start; sums over rows; rest } as two, or None if it is another.

    The first has a loop over parts of `most` rows around it and leaves the sums of each in an
    array. The second starts again, combines those, and does the rest. `columns` is the innermost
    loop of its band.
    """
    top = find_loop(kernel.body, nest)
    band = band_of(top)
    nodes = children(band.body)
    rows = [k for k, x in enumerate(nodes) if isinstance(x, Loop)]
    if len(rows) != 1 or not _can_split(kernel, band, rows[0]):
        return None
    sums = nodes[rows[0]]
    assert isinstance(sums, Loop)
    count, around = ceildiv(extent(sums), most), loops_around(kernel.body, nest)
    shape = _outside(kernel, (count, *(extent(x) for x in band.loops)), around)
    if shape is None:
        return None
    kernel, copy, new = duplicate(kernel, top, names)
    part, last = names.fresh(sums.variable), names.fresh(sums.variable)
    start = children(find_loop(copy, new[columns]).body)
    own = start[rows[0]]
    assert isinstance(own, Loop)
    own = part_of(own, var(part), most)
    there = (var(part), *(var(new[b.variable]) - b.lower for b in band.loops))
    here = (var(last), *(var(b.variable) - b.lower for b in band.loops))
    before, after, combined = list[Node](), list[Node](), list[Node]()
    targets = _targets(sums, own)
    for x, y in targets:
        kernel, kept = _with_parts(kernel, x, y, part, shape, around, names)
        before.append(Store(y.buffer, y.subscripts, identity(x.op, kept.dtype), x.name))
        after.append(Store(kept.name, there, Read(y.buffer, y.subscripts, kept.dtype), x.name))
        combined.append(replace(x, value=Read(kept.name, here, kept.dtype)))
    summed = {y.buffer for _, y in targets}
    others = (x for x in start[: rows[0]] if not (isinstance(x, Store) and x.buffer in summed))
    body = block(*others, *before, own, *after)
    inside = replace_loop(copy, new[columns], lambda x: replace(x, body=body))
    parts = Loop(part, ZERO, count, inside, "serial", "parallel")
    total = Loop(last, ZERO, count, block(*combined), "serial", "reduction")
    rest = replace_loop(top, sums.variable, lambda _: total)
    both = replace_loop(kernel.body, nest, lambda _: block(parts, rest))
    return SplitRows(replace(kernel, body=both), new[columns], extent(sums))


def _with_parts(
    kernel: Kernel,
    total: Update,
    own: Update,
    part: str,
    shape: tuple[Index, ...],
    around: tuple[Loop, ...],
    names: Names,
) -> tuple[Kernel, Buffer]:
    """With an array of the sums of all parts, and the sums of one that are private to it."""
    source, mine = kernel.buffer(total.buffer), kernel.buffer(own.buffer)
    private = frozenset(x.variable for x in around)
    name = names.fresh(f"{total.buffer}_parts")
    kept = replace(source, name=name, shape=shape, private=private)
    mine = replace(mine, private=mine.private | {part})
    return kernel.with_buffer(kept).with_buffer(mine), kept


def _outside(
    kernel: Kernel, extents: tuple[Index, ...], around: tuple[Loop, ...]
) -> tuple[Index, ...] | None:
    """Extents that are enough in all iterations of the loops around; None if none are known."""
    most = [eliminate(n, around, True) for n in extents]
    known = tuple(extent_from(n, frozenset(kernel.sizes)) for n in most if n is not None)
    return known if len(known) == len(extents) else None


def part_of(rows: Loop, part: Index, most: int) -> Loop:
    """The rows of that part, counted from its first, so that sizes alone bound their number."""
    done = part * most
    at = {rows.variable: rows.lower + done + var(rows.variable)}
    n = minimum(most, extent(rows), extent(rows) - done)
    return replace(rows, lower=ZERO, upper=n, body=substitute_node(rows.body, at))


def _can_split(kernel: Kernel, band: Band, rows: int) -> bool:
    """What is done before the sums can be done twice, and the sums do nothing else that lasts."""
    nodes = children(band.body)
    sums = nodes[rows]
    assert isinstance(sums, Loop)
    done = [x for node in nodes[: rows + 1] for x, _ in statements_in(node)]
    own = frozenset(band.variables)
    temporary = all(
        not isinstance(x, Store | Update) or own <= kernel.buffer(x.buffer).private for x in done
    )
    updated = {x.buffer for x, _ in statements_in(sums) if isinstance(x, Update)}
    read = {r.tensor for x in done for r in loads(x.value)}
    bounds = frozenset[str]().union(
        *(x.lower.variables() | x.upper.variables() for x in band.loops)
    )
    return temporary and not updated & read and not bounds & own


def _targets(sums: Loop, copy: Loop) -> tuple[tuple[Update, Update], ...]:
    """One update for each accumulator, with its copy."""
    found: dict[str, tuple[Update, Update]] = {}
    for (x, _), (y, _) in zip(statements_in(sums), statements_in(copy), strict=True):
        if isinstance(x, Update) and isinstance(y, Update):
            found.setdefault(x.buffer, (x, y))
    return tuple(found.values())
