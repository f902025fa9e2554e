# SPDX-License-Identifier: Apache-2.0
"""What statements add to a gradient: at points of a program, and at elements of a tensor."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tcsym.differentiate.algebra import Subscript
from tcsym.frontend.program import Expr, Given, Range
from tcsym.index.expr import TRUE as CERTAIN
from tcsym.index.expr import Condition, Index, var


class Term(Struct, frozen=True):
    """What `tensor(subscripts)` gets at every point of `domain` where `guard` holds.

    extents: of index variables that subscript a tensor at all these points.
    won: the same, added to the one element that won, if a tensor says which that is. alone: it is
    such a one, or came from one.
    """

    tensor: str
    subscripts: tuple[Subscript, ...]
    value: Expr
    guard: Expr
    domain: tuple[Range, ...]
    given: tuple[Given, ...] = ()
    extents: Mapping[str, Index] = {}
    won: Term | None = None
    alone: bool = False


class Sum(Struct, frozen=True):
    """`left += value` over `domain`, in which the variables not on the left are reduced.

    fixed: dimensions at a position that the index variables do not say.
    whole: in the other dimensions, every element has a term.
    when: where it does not hold there are no terms, and `left` may be no element.
    loops: variables over which it is added up in order, as ranges read tensors at them.
    """

    left: tuple[Index, ...]
    domain: tuple[Range, ...]
    value: Expr
    fixed: frozenset[int]
    whole: bool
    given: tuple[Given, ...] = ()
    when: Condition = CERTAIN
    loops: tuple[Range, ...] = ()

    @property
    def reduces(self) -> bool:
        return any(r.reduced or r.at is not None for r in self.domain)


def extents_of(subscripts: tuple[Subscript, ...], shape: tuple[Index, ...]) -> dict[str, Index]:
    """Of the variables that are subscripts, in what is read and in its positions."""
    found: dict[str, Index] = {}
    for e, n in zip(subscripts, shape, strict=True):
        if isinstance(e, Index) and len(e.terms) == 1 and e == var(str(e)):
            found[str(e)] = n
    return found
