# SPDX-License-Identifier: Apache-2.0
"""Operands of a contraction that lie along neither their side nor a sum -> copies that do.

In Z(a,b,c,d,e,f) += X(d,e,g,a) * Y(g,f,b,c), neither rows d, e nor steps g of X are neighbours:
each element that a tile takes, or a panel, costs a cache line. The copy X'(a,d,e,g) is a
transposition in blocks, made once for all that uses it.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.frontend.program import Read
from tcsym.index.expr import Index
from tcsym.ir.loops import Kernel, Loop
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import Band, Roles, band_of, factors, reductions
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.fuse_parallel import stores_follow
from tcsym.schedule.stage.copy_operand import copy_operand, depend_on_sizes


class Permuted(Struct, frozen=True):
    """`copies`: outermost loops of the nests that make them, not scheduled yet."""

    kernel: Kernel
    copies: tuple[str, ...]


def permute_operands(kernel: Kernel, nest: str, roles: Roles, names: Names) -> Permuted:
    """Copies of such operands before the nest, which keeps its loops and its roles' names."""
    band = band_of(find_loop(kernel.body, nest))
    written = {a.buffer for a in accesses(band.body) if a.written}
    copies: list[str] = []
    reads = {r: around for x, around in reductions(band.body) for r in factors(x)}
    for r, around in reads.items():
        loops = _by_memory(r, band, around)
        order = _order(kernel, band, loops, roles) if is_permutation(r) else ()
        if order and r.tensor not in written and depend_on_sizes(kernel, order):
            name = names.fresh(f"{r.tensor}_copy")
            kernel, copy = copy_operand(kernel, nest, r, order, loops, name, names)
            copies.append(copy)
    return Permuted(kernel, tuple(copies))


def _by_memory(r: Read, band: Band, around: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops that move the operand, as its memory lies."""
    loops = {x.variable: x for x in (*band.loops, *around)}
    names = [v for s in r.subscripts if isinstance(s, Index) for v in sorted(s.variables())]
    return tuple(loops[v] for v in names if v in loops)


def _order(kernel: Kernel, band: Band, loops: tuple[Loop, ...], roles: Roles) -> tuple[Loop, ...]:
    """Other loops, steps and columns, or other loops, rows and steps; () if it lies well.

    The loop that lay along memory comes before the columns where these run on from its rows.
    """
    sides = [x for x in loops if x.variable in (roles.columns, roles.rows)]
    steps = tuple(x for x in loops if x.order == "reduction")
    fast = loops[-1].variable if loops else None
    if len(sides) != 1 or not steps or fast not in band.variables or fast == sides[0].variable:
        return ()
    moving = {x.variable for x in loops}
    others = [v for v in band.variables if v in moving and v != sides[0].variable]
    if sides[0].variable == roles.rows:
        return (*map(band.loop, others), *sides, *steps)
    runs_on = stores_follow(kernel, band, fast, roles.columns)
    last = [v for v in others if runs_on and v == fast]
    first = [v for v in others if v not in last]
    return (*map(band.loop, first), *steps, *map(band.loop, last), *sides)


def is_permutation(r: Read, along: str = "", steps: int = 1) -> bool:
    """Each subscript is one variable and perhaps a constant, each variable in one of them.

    `along` goes by so many steps.
    """
    found: list[str] = []
    for s in r.subscripts:
        if not isinstance(s, Index) or len(s.variables()) > 1:
            return False
        found += [v for v in s.variables() if s.coefficient(v) == (steps if v == along else 1)]
        if len(s.terms) > len(s.variables()):
            return False
    plain = not any(r.checked) and r.unwritten is None
    return plain and len(found) == len(set(found)) == len(r.subscripts)
