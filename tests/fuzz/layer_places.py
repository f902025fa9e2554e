# SPDX-License-Identifier: Apache-2.0
"""Places that are written out, beside tables of the same places: what quotients and bounds mean.

The reference shares index expressions with the compiler, so both may be wrong about one. Here numpy
fills a table with the places, and what is read through it must be what the written ones give.
"""

from __future__ import annotations

from tcsym.index.expr import Index, index
from tests.fuzz.draft import Draft
from tests.fuzz.layer_forms import call, ranges


def places(d: Draft) -> None:
    """Elements at places under quotients, remainders, minima and maxima, in two writings."""
    rng, dtype = d.rng, d.dtype()
    n, m = d.size("rows"), d.size("rows")
    x = d.tensor([n], dtype)
    extents: dict[str, Index] = {"i": rng.choice([n, m]), "j": index(rng.choice([1, 2, 3]))}
    shape, at = [*extents.values()], [*extents]
    for _ in range(rng.choice([1, 2, 2])):
        e = _place(d, n, rng.choice([1, 2, 2, 3]))
        e = rng.choice([f"min(max({e}, 0), {n} - 1)", f"({e}) % ({n})"])
        table = d.table(shape, n, e, at)
        pair = []
        for place in (e, call(table, at)):
            pair.append(d.make(dtype, shape, declared=True))
            d.statement(f"{call(pair[-1], at)} = {call(x, [place])}{ranges(dict(extents))}", shape)
        d.alike.append((pair[0].name, pair[1].name))


def _place(d: Draft, n: Index, depth: int) -> str:
    """Quotients of multiples, wherever factors may cancel; all the rest around them."""
    rng = d.rng
    if depth == 0:
        return rng.choice(["i", "i", "j", f"i + {rng.randint(1, 3)}", "2 * i + j", f"{n} - 1 - i"])
    e, f = _place(d, n, depth - 1), _place(d, n, rng.randrange(depth))
    g, k = rng.choice([1, 1, 2, 3]), rng.choice([2, 2, 3, 4])
    r = rng.randint(-2, 2 * g * k)
    whole = f"({g} * ({e}) + {r})"
    forms = [f"{whole} / {g * k}", f"{whole} % {g * k}", f"({g} * ({e}) + {k} * ({f})) / {g * k}"]
    forms += [f"min({e}, {f})", f"min(min({e}, {f}) + {k}, {n})", f"max({e} - {k}, {f})"]
    return rng.choice([*forms, f"({e}) / {k} * {k} + ({f}) % {k}", f"({e}) - ({f})"])
