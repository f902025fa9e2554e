# SPDX-License-Identifier: Apache-2.0
"""Products whose operands are made first: functions and bits of elements, positions of weights."""

from __future__ import annotations

from tcsym.index.expr import index
from tcsym.types import DType
from tests.fuzz.draft import Draft
from tests.fuzz.layer_forms import call, ranges

FUNCTIONS = ("{}", "exp({})", "tanh({})", "1 / (1 + exp({}))", "sqrt(fabs({}))", "({} - 3)")
EXACT = ("{}", "({} - 3)", "max({}, 0)")


def computed_factors(d: Draft) -> None:
    """Factors that are no elements; results perhaps in every other element."""
    rng, wide = d.rng, d.rng.choice([DType.FLOAT32] * 3 + [DType.FLOAT64, DType.INT32])
    extents = {"i": d.size("rows"), "j": d.size("columns"), "k": d.size("reduced")}
    ends = [str(extents["k"])]

    def factor(vs: str) -> str:
        of, at = dict(extents), rng.sample(vs, len(vs))
        if d.chance(0.4):
            q, of["k"] = rng.choice([2, 4, 8]), d.size("reduced")
            ends.append(f"{q}*({of['k']})")
            packed = d.tensor([of[v] for v in at], DType.UINT8)
            x, bits = call(packed, [v.replace("k", f"k/{q}") for v in at]), 8 // q
            return f"{wide}({x} >> uint8({bits}*(k%{q})) & {2**bits - 1})"
        x = call(d.tensor([of[v] for v in at], wide if wide.is_float else DType.INT8), at)
        return rng.choice(FUNCTIONS if wide.is_float else EXACT).format(f"{wide}({x})")

    apart = rng.choice([1, 1, 2, 3])
    left = rng.sample("ij", 2)
    more = [index(apart)] * (apart > 1)
    t = d.make(wide, [*(extents[v] for v in left), *more], declared=apart > 1)
    for n in range(apart):
        term, at = f"{factor(rng.choice(['ik', 'ik', 'k']))} * {factor('kj')}", [*left, str(n)]
        low = rng.choice([*["0"] * 6, "min(i, 3)"])
        high = "".join(f"min({x}, " for x in ends[:-1]) + ends[-1] + ")" * (len(ends) - 1)
        bounds = {v: extents[v] for v in left} | {"k": high}
        of = ranges(bounds).replace("k in 0:", f"k in {low}:")
        d.statement(f"{call(t, at[: 2 + len(more)])} +=! {term}{of}", [*extents.values()])


def routed(d: Draft) -> None:
    """Rows times the matrix of which a statement before finds the number."""
    rng, wide = d.rng, DType.FLOAT32
    n, e, k, m = (d.size(x) for x in ("rows", "channels", "reduced", "columns"))
    g, c = d.tensor([n, e], wide), d.make(DType.INT32, [n])
    at = call(c, ["i"])
    if d.chance(0.5):
        best = call(d.make(wide, [n]), ["i"])
        d.statement(f"{best} max=! {call(g, ['i', 'e'])}", [n, e])
        d.statement(f"{at} min=! {call(g, ['i', 'e'])} == {best} ? e : {e} - 1", [n, e])
    else:
        d.statement(f"{at} = int32({call(d.tensor([n], wide), ['i'])} * 3) % ({e})", [n])
    order = rng.choice([["m", "k"], ["k", "m"]])
    w = call(d.tensor([e, *({"m": m, "k": k}[v] for v in order)], wide), [at, *order])
    y = call(d.make(wide, [n, m]), ["i", "m"])
    d.statement(f"{y} +=! {call(d.tensor([n, k], wide), ['i', 'k'])} * {w}", [n, m, k])
