# SPDX-License-Identifier: Apache-2.0
"""Names and expressions in messages of range and shape inference, as the user wrote them."""

from __future__ import annotations

from collections.abc import Iterable

from tcsym.frontend.program import Range
from tcsym.frontend.resolved import ResolvedStatement
from tcsym.index.expr import FALSE, ZERO, Condition, Index, var
from tcsym.index.values import substitute


def plain(name: str) -> str:
    """A name without the prefix that inlining gave it: `fc1.Y` was written `Y`."""
    return name.rpartition(".")[2]


def plain_index(e: Index) -> str:
    """`e` with plain names."""
    return str(substitute(e, {n: var(plain(n)) for n in e.variables() if "." in n}))


def out_of_range(tensor: str, d: int, e: Index, extent: Index, condition: Condition) -> str:
    """An access to `tensor` with subscript `e` in dimension `d` goes outside its extent."""
    where = "" if condition == FALSE else " for these sizes"
    return (
        f"subscript {d} of `{plain(tensor)}` is out of range{where}: {plain_index(e)} must lie in "
        f"0:{plain_index(extent)}"
    )


NARROW = "restrict the range with `where`, or guard the access with `condition ? … : …`"
CONVERTED = (
    "convert sizes before they are multiplied, as `float(H)*float(W)` or `int64(H)*int64(W)`"
)


def narrowed_by_reads(
    tensor: str,
    shape: tuple[Index, ...],
    statements: Iterable[tuple[ResolvedStatement, tuple[Range, ...]]],
) -> str:
    """Why a statement leaves out elements of `tensor`: reads bound its range, guarded ones too."""
    for x, domain in statements:
        given = {v.name for v in x.variables if v.where is not None or v.at is not None}
        for r in domain if x.target == tensor else ():
            d = _dimension(x.subscripts, r.variable)
            if d is not None and r.variable not in given and (r.lower, r.upper) != (ZERO, shape[d]):
                i = plain(r.variable)
                return (
                    f"reads bound `{i}` to {plain_index(r.lower)}:{plain_index(r.upper)} in line "
                    f"{x.span.line}; if guards keep them inside, give its range: "
                    f"`where {i} in 0:{plain_index(shape[d])}`"
                )
    return ""


def _dimension(subscripts: tuple[Index, ...], variable: str) -> int | None:
    return next((d for d, s in enumerate(subscripts) if s == var(variable)), None)
