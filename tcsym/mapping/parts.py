# SPDX-License-Identifier: Apache-2.0
"""Plans of contractions with their sums in parts: each part of a long sum is a contraction by
itself, of operands that stay near, and work for a thread; what they come to is added in the end."""

from __future__ import annotations

import re
from functools import partial

from tcsym.index.expr import maximum
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.mapping.contraction import Contraction
from tcsym.mapping.nest import Nest
from tcsym.mapping.proposal import formula_text

TERMS = 512  # of a part at least: beside these, loading and storing what it comes to is nothing


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
    terms = maximum(TERMS, product_of(map(extent, still)))
    if terms.variables() - nest.sizes:
        return None
    inside = {**{v: f"{v}.parts" for v in names}, k: f"{k}.row"}
    of_part = re.sub(r"[^\s;]+", partial(_renamed, inside), text)
    outer = " ".join(v for v in names if v != columns)
    return f"""
        split {k} part row:{formula_text(terms)}
        combine {k}.part at {names[0]}
        {of_part.replace("order ", f"order {k}.part ", 1)}
        split {columns} tile lane:{lanes}
        order {outer} {columns}.tile"""


def _renamed(names: dict[str, str], word: re.Match[str]) -> str:
    """The loop of that name, or a part of it, where it is called otherwise."""
    w = word[0]
    found = [v for v in names if w == v or w.startswith(f"{v}.")]
    v = max(found, key=len, default="")
    return names[v] + w[len(v) :] if v else w
