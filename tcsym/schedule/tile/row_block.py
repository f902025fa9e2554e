# SPDX-License-Identifier: Apache-2.0
"""A row loop over several nests -> blocks of rows, with the rows of a block inside each nest.

Contractions that share a row loop with other work (attention: scores, softmax, values) get rows for
their register tiles; the temporaries between the nests hold one block of rows.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import ZERO, ceildiv, index, minimum, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, block
from tcsym.ir.traverse import substitute_node
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import Band, band_of, contraction_roles
from tcsym.schedule.analysis.loops import children, find_loop, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.interchange import reorder_chain


class Blocked(Struct, frozen=True):
    """`nests`: the loops over the rows of a block; `contractions`: those of them that are one."""

    kernel: Kernel
    nests: tuple[str, ...]
    contractions: frozenset[str]


def is_contraction_over(kernel: Kernel, rows: Loop, child: Node) -> bool:
    """`child`, with the loop `rows` around it, is a contraction that uses operands again by row."""
    if not isinstance(child, Loop) or child.order != "parallel":
        return False
    inner = band_of(child)
    roles = contraction_roles(kernel, Band((rows, *inner.loops), inner.body))
    return roles is not None and roles.rows == rows.variable


def rows_last(kernel: Kernel, nest: str) -> tuple[Kernel, str]:
    """The band at `nest` with a loop last that a nest inside contracts over, and its first loop.

    `X(b,i)*W(o,i,j)` under loops b, o has rows b: each of them uses W(o) again.
    """
    band = band_of(find_loop(kernel.body, nest))
    inside = children(band.body)
    for rows in reversed(band.loops):
        if any(is_contraction_over(kernel, rows, child) for child in inside):
            break
    else:
        return kernel, nest
    order = (*(v for v in band.variables if v != rows.variable), rows.variable)
    bounds = frozenset[str]().union(
        *(x.lower.variables() | x.upper.variables() for x in band.loops)
    )
    if order == band.variables or bounds & set(order):
        return kernel, nest
    body = replace_loop(kernel.body, nest, lambda top: reorder_chain(top, order))
    return replace(kernel, body=body), order[0]


def block_rows(kernel: Kernel, nest: str, size: int, names: Names) -> Blocked | None:
    """Tile the last loop of the band at `nest`, distribute its points; None if nothing contracts.

    Neighbours that are no contractions stay together. What is private to the row loop is private to
    the block, and to its rows where only one nest uses it.
    """
    rows = band_of(find_loop(kernel.body, nest)).loops[-1]
    groups = row_groups(kernel, rows)
    if not any(contracts for contracts, _ in groups) or len(groups) < 2:
        return None
    tile, n = names.fresh(rows.variable), extent(rows)
    first, end = rows.lower + var(tile) * size, minimum(index(size), n - var(tile) * size)
    nests: list[Loop] = []
    for _, node in groups:
        name = names.fresh(rows.variable)
        body = substitute_node(node, {rows.variable: first + var(name)})
        nests.append(Loop(name, ZERO, end, body, "serial", rows.order))
    blocks = Loop(tile, ZERO, ceildiv(n, size), block(*nests), "serial", rows.order)
    kernel = replace(kernel, body=replace_loop(kernel.body, rows.variable, lambda _: blocks))
    kernel = _share(kernel, rows.variable, tile, tuple(nests))
    found = frozenset(x.variable for x, (contracts, _) in zip(nests, groups) if contracts)
    return Blocked(kernel, tuple(x.variable for x in nests), found)


def row_groups(kernel: Kernel, rows: Loop) -> list[tuple[bool, Node]]:
    """The children of the row loop: contractions alone, runs of others together."""
    out: list[tuple[bool, Node]] = []
    for child in children(rows.body):
        contracts = is_contraction_over(kernel, rows, child)
        if out and not contracts and not out[-1][0]:
            out[-1] = (False, block(out[-1][1], child))
        else:
            out.append((contracts, child))
    return out


def _share(kernel: Kernel, rows: str, tile: str, nests: tuple[Loop, ...]) -> Kernel:
    for b in kernel.buffers:
        if rows in b.private:
            users = [x for x in nests if any(a.buffer == b.name for a in accesses(x))]
            own = {users[0].variable} if len(users) == 1 else set[str]()
            private = (b.private - {rows}) | {tile} | own
            kernel = kernel.with_buffer(replace(b, private=frozenset(private)))
    return kernel
