"""Least values of index expressions, from signs alone: which divisions need no rounding down.

Program sizes are not negative, a loop's variable is not below its lower bound, a maximum is not
below any of its parts. Strides may be anything.
"""

from __future__ import annotations

import math
from typing import assert_never

from tcsym.codegen.context import Context
from tcsym.index import (
    Atom,
    Choose,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
)
from tcsym.loop_ir import Kernel


def least_sizes(kernel: Kernel) -> dict[str, int]:
    """0 for every size of the kernel that is no stride."""
    steps = [s.variables() for b in kernel.buffers for s in b.strides or ()]
    strides = frozenset[str]().union(*steps)
    return {name: 0 for name in (*kernel.sizes, *kernel.phases) if name not in strides}


def least(context: Context, e: Index) -> int | None:
    """A number that `e` is never below here, or None."""
    if not e.terms:
        return e.constant
    if e not in context.least:
        context.least[e] = _least_sum(context, e)
    return context.least[e]


def _least_sum(context: Context, e: Index) -> int | None:
    total = e.constant
    for atom, coefficient in e.terms:
        part = _least_atom(context, atom) if coefficient > 0 else None
        if part is None:
            return None
        total += coefficient * part
    return total


def _least_atom(context: Context, atom: Atom) -> int | None:
    match atom:
        case str():
            return context.least_variables.get(atom)
        case Product(factors):
            return _product([_least_atom(context, f) for f in factors])
        case FloorDiv(a, b):
            top, by = least(context, a), b.as_int()
            if top is None or top < 0 or (least(context, b) or 0) < 0:
                return None
            return top // by if by else 0
        case Mod(_, b):
            by = least(context, b)
            return 0 if by is not None and by >= 0 else None
        case Min(args):
            parts = [least(context, a) for a in args]
            known = [p for p in parts if p is not None]
            return min(known) if len(known) == len(parts) else None
        case Max(args):
            return max([p for a in args if (p := least(context, a)) is not None], default=None)
        case Choose(_, a, b):
            then, orelse = least(context, a), least(context, b)
            return None if then is None or orelse is None else min(then, orelse)
        case _:
            assert_never(atom)


def _product(parts: list[int | None]) -> int | None:
    known = [p for p in parts if p is not None and p >= 0]
    return math.prod(known) if len(known) == len(parts) else None
