# SPDX-License-Identifier: Apache-2.0
"""Rows under quotients by sizes -> a loop over the quotient's values, and pieces of rows.

`Y(i) = X((i + s) % N)` would divide for each element, and gather. Where the quotient stays the same
the remainder runs along: `i + s - N*q`, a row as any other. Rolled, repeated and flattened tensors,
and stencils around a torus, are such rows.
"""

from __future__ import annotations

from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import (
    ZERO,
    Atom,
    FloorDiv,
    Index,
    Mod,
    all_of,
    floordiv,
    ge,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import map_atoms, substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, LoopOrder, Node
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.split.row_parts import is_parallel, with_parts

LEAST_PIECE = 32  # elements of a piece: shorter ones, if that is known, take longer than divisions
LEAST_DIVISOR = 3  # elements of a piece that beats gathers, where rows stay as they were, too
MOST_QUOTIENTS = 3  # of a row: each cuts all pieces of those before it


class _Quotient(Struct, frozen=True):
    """(variable + offset) / divisor, in a row along the variable."""

    offset: Index
    divisor: Index


def split_quotients(kernel: Kernel, names: Names) -> Kernel:
    """The innermost parallel loops over pieces in which such quotients do not change."""
    for loop, around in walk(kernel.body):
        if isinstance(loop, Loop) and _is_row(loop):
            found = _quotients(kernel, loop)
            if found:
                kernel = _with_pieces(kernel, loop, around, found, names)
    return kernel


def _with_pieces(
    kernel: Kernel,
    row: Loop,
    around: tuple[Node, ...],
    found: tuple[_Quotient, ...],
    names: Names,
) -> Kernel:
    """Rows in pieces; by a small divisor that may be 0, as they were."""
    unsure = [x.divisor for x in found if not _is_never_zero(row, x.divisor)]
    needed = all_of([ge(n, LEAST_DIVISOR) for n in unsure])
    order: LoopOrder = "parallel" if any(is_parallel(x) for x in around) else "sequential"
    pieces, private = _pieces(row, found, order, names)
    kernel = with_parts(kernel, row, around, pieces, needed, names)
    return replace_private(kernel, {row.variable: private | {row.variable}})


def _is_row(loop: Loop) -> bool:
    inside = walk(loop.body)
    return loop.order == "parallel" and not any(isinstance(x, Loop) for x, _ in inside)


def _quotients(kernel: Kernel, loop: Loop) -> tuple[_Quotient, ...]:
    found: dict[_Quotient, None] = {}

    def see(atom: Atom) -> None:
        if isinstance(atom, FloorDiv | Mod):
            offset = atom.dividend - var(loop.variable)
            if loop.variable not in offset.variables() and _is_long(kernel, loop, atom.divisor):
                found[_Quotient(offset, atom.divisor)] = None

    def look(e: Index) -> Index:
        return map_atoms(e, see)

    map_node(loop.body, on_index=look)
    return tuple(found) if len(found) <= MOST_QUOTIENTS else ()


def _is_long(kernel: Kernel, loop: Loop, divisor: Index) -> bool:
    """A size, or a product of sizes; or a large number."""
    known = divisor.as_int()
    if known is not None:
        return known >= LEAST_PIECE
    sizes = divisor.variables()
    return sizes <= set(kernel.sizes) and len(divisor.terms) == 1 and not divisor.constant


def _is_never_zero(row: Loop, divisor: Index) -> bool:
    """For no row of any element."""
    if divisor.as_int() is not None:
        return True
    empty = (substitute(extent(row), {n: ZERO}).as_int() for n in divisor.variables())
    return all(n is not None and n <= 0 for n in empty)


def _pieces(
    row: Loop, found: tuple[_Quotient, ...], order: LoopOrder, names: Names
) -> tuple[Loop, frozenset[str]]:
    """The row in pieces, and the loops around them. Contract: no divisor of an element is 0."""
    lower, upper, values = row.lower, row.upper, dict[Atom, Index]()
    around: list[Loop] = []
    for x in found:
        name = names.fresh(row.variable)
        first = floordiv(lower + x.offset, x.divisor)
        end = floordiv(upper + x.offset + x.divisor - 1, x.divisor)  # 0, as `first`, by 0
        around.append(Loop(name, first, end, row.body, "serial", order))
        start = x.divisor * var(name) - x.offset
        dividend = x.offset + var(row.variable)
        values[FloorDiv(dividend, x.divisor)] = var(name)
        values[Mod(dividend, x.divisor)] = var(row.variable) - start
        lower, upper = maximum(lower, start), minimum(upper, start + x.divisor)
    body = map_node(row.body, on_index=lambda e: map_atoms(e, values.get))
    piece = replace(row, lower=lower, upper=upper, body=body)
    pieces = reduce(lambda inner, x: replace(x, body=inner), reversed(around), piece)
    return pieces, frozenset(x.variable for x in around)
