# SPDX-License-Identifier: Apache-2.0
"""Plans of contractions with their sums in parts: each part of a long sum is a contraction by
itself, of operands that stay near, and work for a thread; what they come to is added in the end."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from tcsym.index.expr import maximum
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.mapping.contraction import Contraction
from tcsym.mapping.nest import Nest
from tcsym.mapping.plan import Combine, Directive, Merge, Order, Split, Stage, plan_text
from tcsym.mapping.proposal import formula_text
from tcsym.mapping.text import parse

LEAST_TERMS = 512  # of a part: beside these, loading and storing what it comes to is nothing


def in_parts(nest: Nest, c: Contraction, text: str, lanes: int) -> str | None:
    """The plan `text` of the contraction for each part of its sum; None if nothing says how long
    that is. All parts take no more memory than the operand that columns move."""
    loops = [x for s in c.sums for x in s.loops]
    lengths = [(x.variable, extent(x).variables()) for x in loops]
    long = [v for v, moving in lengths if moving and moving <= nest.sizes]
    if len(c.sums) != 1 or not long:
        return None
    k, columns, names = long[0], c.columns, nest.names
    still = [x for x in nest.band if not any(nest.moves(a, x.variable) for a in c.sums[0].wide)]
    terms = maximum(LEAST_TERMS, product_of(map(extent, still)))
    if terms.variables() - nest.sizes:
        return None
    inside = {**{v: f"{v}.parts" for v in names}, k: f"{k}.row"}
    of_part = [_renamed(d, inside) for d in parse(text)]
    at = next(n for n, d in enumerate(of_part) if isinstance(d, Order))
    of_part[at] = Order((f"{k}.part", *of_part[at].axes))  # type: ignore[union-attr]
    outer = " ".join(v for v in names if v != columns)
    return f"""
        split {k} part row:{formula_text(terms)}
        combine {k}.part at {names[0]}
        {plan_text(tuple(of_part))}
        split {columns} tile lane:{lanes}
        order {outer} {columns}.tile"""


def _renamed(d: Directive, names: Mapping[str, str]) -> Directive:
    """The directive of the loops of a part, whose parts are called as theirs."""

    def one(w: str) -> str:
        found = [v for v in names if w == v or w.startswith(f"{v}.")]
        v = max(found, key=len, default="")
        return names[v] + w[len(v) :] if v else w

    match d:
        case Split():
            return replace(d, axis=one(d.axis))
        case Order() | Merge():
            return replace(d, axes=tuple(map(one, d.axes)))
        case Combine():
            return Combine(one(d.axis), d.at and one(d.at))
        case Stage():
            return replace(d, at=d.at and one(d.at), order=tuple(map(one, d.order)))
