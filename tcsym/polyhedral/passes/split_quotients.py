"""Rows under quotients by sizes -> a loop over the quotient's values, and pieces of rows.

`Y(i) = X((i + s) % N)` would divide for each element, and gather. Where the quotient stays the same
the remainder runs along: `i + s - N*q`, a row as any other. Rolled, repeated and flattened tensors,
and stencils around a torus, are such rows.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.index import ZERO, Atom, FloorDiv, Index, Mod, floordiv, maximum, minimum, var
from tcsym.index_values import map_atoms, substitute
from tcsym.loop_ir import Kernel, Loop, LoopOrder, Node, map_node, walk
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.loops import replace_loop
from tcsym.polyhedral.passes.common.names import Names
from tcsym.records import dataclass

LEAST = 32  # elements of a piece: shorter ones, if that is known, take longer than divisions
MOST = 3  # quotients of a row


@dataclass(frozen=True, slots=True)
class _Quotient:
    """(variable + offset) / divisor, in a row along the variable."""

    offset: Index
    divisor: Index


def split_quotients(kernel: Kernel, names: Names) -> Kernel:
    """The innermost parallel loops over pieces in which such quotients do not change."""
    for loop, around in walk(kernel.body):
        if isinstance(loop, Loop) and _is_row(loop):
            found = _quotients(kernel, loop)
            if found:
                outside = any(x.order == "parallel" for x in around)
                kernel = _in_pieces(
                    kernel, loop, found, "parallel" if outside else "sequential", names
                )
    return kernel


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
    return tuple(found) if len(found) <= MOST else ()


def _is_long(kernel: Kernel, loop: Loop, divisor: Index) -> bool:
    """A size, or a product of sizes, that is 0 for no row of any element; or a large number."""
    known = divisor.as_int()
    if known is not None:
        return known >= LEAST
    sizes = divisor.variables()
    if not sizes <= set(kernel.sizes) or len(divisor.terms) != 1 or divisor.constant:
        return False
    empty = (substitute(extent(loop), {n: ZERO}).as_int() for n in sizes)
    return all(n is not None and n <= 0 for n in empty)


def _in_pieces(
    kernel: Kernel, row: Loop, found: tuple[_Quotient, ...], order: LoopOrder, names: Names
) -> Kernel:
    """Contract: where a divisor is 0 the row has no elements."""
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
    piece: Node = replace(row, lower=lower, upper=upper, body=body)
    for loop in reversed(around):
        piece = replace(loop, body=piece)
    whole = piece
    private = frozenset(x.variable for x in around)
    buffers = tuple(
        replace(b, private=b.private | private) if row.variable in b.private else b
        for b in kernel.buffers
    )
    body = replace_loop(kernel.body, row.variable, lambda _: whole)
    return replace(kernel, body=body, buffers=buffers)
