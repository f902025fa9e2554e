# SPDX-License-Identifier: Apache-2.0
"""The order of a contraction's reduction loops: as the memory of the rows' operand lies.

The element that a row adds next is then its neighbour, and the loops fuse
(`contraction.fuse_reductions`).
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index
from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.access import subscript_variables
from tcsym.schedule.analysis.band import Roles, band_of, reductions
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.order.interchange import reorder_chain


def order_reductions(kernel: Kernel, nest: str, roles: Roles) -> Kernel:
    """The perfect chains of reduction loops of the nest in a better order, where bounds allow."""
    band = band_of(find_loop(kernel.body, nest))
    reads = [r for x, around in reductions(band.body) if around for r in loads(x.value)]
    rank = _by_memory(reads, roles)

    def order(x: Node) -> Node:
        chain = _reduction_chain(x)
        names = tuple(y.variable for y in chain)
        wanted = tuple(sorted(names, key=lambda v: rank.get(v, 0)))
        if wanted == names or not isinstance(x, Loop) or _bounds_move(chain):
            return x
        return reorder_chain(x, wanted)

    def inside(loop: Loop) -> Node:
        return map_node(loop, order)

    return replace(kernel, body=replace_loop(kernel.body, nest, inside))


def _by_memory(reads: list[Read], roles: Roles) -> dict[str, int]:
    """Dimension of the rows' operand that a loop moves along; loops of no dimension outside."""
    for r in reads:
        used = subscript_variables(r.subscripts)
        if roles.rows in used and roles.columns not in used:
            return _dimensions(r)
    return {}


def _dimensions(r: Read) -> dict[str, int]:
    return {
        v: d + 1 for d, s in enumerate(r.subscripts) if isinstance(s, Index) for v in s.variables()
    }


def _reduction_chain(node: Node) -> tuple[Loop, ...]:
    out: list[Loop] = []
    while isinstance(node, Loop) and node.order == "reduction" and node.kind == "serial":
        out.append(node)
        node = node.body
    return tuple(out)


def _bounds_move(chain: tuple[Loop, ...]) -> bool:
    names = {x.variable for x in chain}
    return any((x.lower.variables() | x.upper.variables()) & names for x in chain)
