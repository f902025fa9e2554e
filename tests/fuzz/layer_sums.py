# SPDX-License-Identifier: Apache-2.0
"""Sums whose terms passes take apart: guarded products, equal operands, states, rolled rows."""

from __future__ import annotations

from collections.abc import Callable

from tcsym.index.expr import Index
from tcsym.types import DType
from tests.fuzz.draft import Draft
from tests.fuzz.layer_forms import accumulated, call, product, ranges, rng_float

Extents = dict[str, Index]


def guarded_sum(d: Draft) -> None:
    """A sum of up to three products, each perhaps only where a condition holds."""
    rng, dtype = d.rng, d.dtype()
    wide = accumulated(dtype, d)
    extents = {"i": d.size("rows"), "j": d.size("columns"), "k": d.size("reduced")}
    if d.chance(0.25):
        extents["i"] = extents["k"]

    def operand(vs: str) -> str:
        order = rng.sample(vs, len(vs))
        return call(d.tensor([extents[v] for v in order], dtype), order)

    terms = [_term(d, extents, operand, dtype, wide) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    text = terms[0]
    for term in terms[1:]:
        text += f" {rng.choice('++-')} {term}"
    if d.chance(0.1):
        text = f"0 - ({text})"
    if wide.is_integer and wide.bits < 32:
        text = f"{wide}({text})"
    left = rng.choice([["i", "j"], ["i", "j"], ["j", "i"], ["i"], ["j"]])
    shape = [extents[v] for v in left]
    t, points = d.make(wide, shape), list(extents.values())
    if d.chance(0.25):
        start = d.tensor(shape, wide)
        d.statement(f"{call(t, left)} = {call(start, left)}", shape)
        d.statement(f"{call(t, left)} += {text}{ranges(dict(extents))}", points)
    else:
        d.statement(f"{call(t, left)} +=! {text}{ranges(dict(extents))}", points)


def _term(
    d: Draft, extents: Extents, operand: Callable[[str], str], dtype: DType, wide: DType
) -> str:
    """A product of rows and columns, with a guard around it, around a factor, or none."""
    rng = d.rng
    rows, columns = operand("ik"), operand("kj")
    if d.chance(0.25):  # a row that moves with the sum
        shift = rng.choice([1, 2])
        v, n = ("k", extents["k"]) if d.chance(0.6) else ("i", extents["i"])
        x = d.tensor([extents["i"], extents["k"]], dtype)
        at = ["i", f"k - {shift}"] if v == "k" else [f"i - {shift}", "k"]
        rows = f"({v} >= {shift} ? {call(x, at)} : {rng.choice('0001')})"
    factors = [rows, columns]
    if d.chance(0.2):
        factors.append(operand(rng.choice(["i", "j", "k", "ij"])))
    form = rng.randrange(5)
    zero = rng.choice(["0", "0", "0", "0", "1", f"{wide}({operand('j')})"])
    if form == 0:
        return product(d, factors, dtype, wide)
    if form == 1:
        n = rng.randrange(2)
        factors[n] = f"({_condition(d, extents, operand)} ? {factors[n]} : 0)"
        return product(d, factors, dtype, wide)
    inner = product(d, factors, dtype, wide)
    if form == 2:
        inner = f"({_condition(d, extents, operand)} ? {inner} : {zero})"
    return f"({_condition(d, extents, operand)} ? {inner} : {zero})"


def _condition(d: Draft, extents: Extents, operand: Callable[[str], str]) -> str:
    """On one loop, on several, on sizes, on values."""
    rng = d.rng
    v, w = rng.sample("ijk", 2)
    c = rng.choice([0, 1, 2, 5, 9])
    forms = [f"{v} >= {c}", f"{v} < {c}", f"{v} <= {w}", f"{v} < {w} + {c}", f"{v} != {w}"]
    forms += [f"{v} < {extents[v]} - {c}", f"{v} > {extents[w]} - {c}", f"{extents[v]} > {c}"]
    forms += [f"{v} >= 1 && {v} < {c}", f"{v} < 2 || {v} > {c}", f"!({v} == {w})", f"{v} == {c}"]
    forms += [f"{v} % 2 == 0", f"{v} + {w} < {extents[v]}", "true", f"{operand('ik')} > 0"]
    text = rng.choice(forms)
    return f"({text}) && {v} <= {w}" if d.chance(0.1) else text


def alike(d: Draft) -> None:
    """Products of elements of one tensor, or of two, at the same and at other places."""
    rng, dtype = d.rng, d.dtype()
    n, wide = d.size(rng.choice(["rows", "columns"])), accumulated(dtype, d)
    ranks = [rng.choice([1, 2, 2, 2, 3]) for _ in range(rng.choice([1, 1, 2]))]
    tensors = [d.tensor([n] * rank, dtype) for rank in ranks]
    letters = ["i", "j", "k"][: rng.choice([2, 3, 3])]

    def element() -> str:
        t = rng.choice(tensors)
        at = [rng.choice(letters) for _ in t.shape]
        if d.chance(0.15):
            k = rng.randrange(len(at))
            at[k] = rng.choice(
                [f"{n} - 1 - {at[k]}", f"({at[k]} + 1) % ({n})", f"min({at[k]} + 1, {n} - 1)"]
            )
        return call(t, at)

    factors = [element() for _ in range(rng.choice([2, 2, 2, 3, 4]))]
    text = product(d, factors, dtype, wide)
    op = "+=!"
    if d.chance(0.25):
        a, b = f"{wide}({factors[0]})", f"{wide}({factors[1]})"
        op, text = rng.choice(
            [
                ("+=!", f"({a} - {b}) * ({a} - {b})"),
                ("max=!", f"{a} * {b}"),
                ("min=!", f"{a} - {b}"),
                ("+=!", f"max({a}, {b}) * {a}"),
                ("+=!", f"{a} * {b} + {a}"),
                ("+=!", f"{a} * {b} - {b} * {a}"),
            ]
        )
        if wide.is_integer and wide.bits < 32:
            text = f"{wide}({text})"
    if wide.is_float and d.chance(0.15):
        text = f"{text} / ({wide}({element()}) * 0 + 3)"
    kept = [v for v in letters if d.chance(0.6)]
    rng.shuffle(kept)
    t = d.make(wide, [n] * len(kept))
    bounds: dict[str, Index | str] = dict.fromkeys(letters, n)
    d.statement(f"{call(t, kept)} {op} {text}{ranges(bounds)}", [n] * len(letters))


def state(d: Draft) -> None:
    """A temporary of which each step reads the last one, or nearly so, and what is made of it."""
    rng, dtype = d.rng, rng_float(d)
    t, b = d.size("batch"), d.size("columns")
    rest = [("h", d.size("rows"))] if d.chance(0.3) else []
    vs, shape = ["b", *(v for v, _ in rest)], [b, *(e for _, e in rest)]
    x, f = (call(d.tensor([t, *shape], dtype), ["t", *vs]) for _ in "xf")
    order = [["t", *vs], [*vs, "t"]][d.chance(0.3)]
    of = {"t": t, **dict(zip(vs, shape))}
    c = d.make(dtype, [of[v] for v in order])
    at = lambda step, row="b": call(c, [{"t": step, "b": row}.get(v, v) for v in order])  # noqa: E731
    old = rng.choice([at("t - 1")] * 6 + [at("t - 1", f"{b} - 1 - b")])
    steps = [f"{f} * {old} * 0.5 + {x}", f"{old} * 0.5 + {old} * {f}", f"max({old}, {x})"]
    steps += [f"{x} > 0 ? {old} : {x}", f"{old} * 0.5 - {x} / 2"]
    first, step = rng.choice([x, "0.5", f"{x} * {x}"]), rng.choice(steps)
    first = x if first == "0.5" else first
    here = at("t") if d.chance(0.8) else f"(t > 0 ? {at('t - 1')} : {at('t')})"
    after = rng.choice([f"{here} * {here}", f"{here} + {f}", f"tanh({here}) * {x}"])
    s = d.make(dtype, [t, *shape], declared=True)
    lines = ["  if t == 0 {", f"    {at('t')} = {first}", "  } else {", f"    {at('t')} = {step}"]
    lines += ["  }", f"  {call(s, ['t', *vs])} = {after}"]
    if d.chance(0.2):
        lines.append(f"  {at('t')} = {at('t')} * 0.5")
    d.statement(f"for t in {t} {{\n" + "\n".join(lines) + "\n}", [t, *shape])
    if d.chance(0.15):
        e = d.make(dtype, shape)
        last = call(c, [{"t": f"{t} - 1"}.get(v, v) for v in order])
        d.statement(f"{call(e, vs)} = {t} > 0 ? {last} : 0{ranges(dict(zip(vs, shape)))}", shape)


def rolled(d: Draft) -> None:
    """Elements at places under quotients and remainders by sizes and by numbers."""
    rng, dtype = d.rng, d.dtype()
    n, m = d.size("rows"), d.size("columns")
    x = d.tensor([n, m], dtype)
    out = {"i": n, "j": m}
    if d.chance(0.2):
        out["j"] = m * rng.choice([2, 3])

    def place(v: str, e: Index) -> str:
        c = rng.choice([1, 2, 3, 7])
        forms = [f"({v} + {c}) % ({e})", f"({v} + ({e}) - 1) % ({e})", f"({v} + {n}) % ({e})"]
        forms += [f"{v} % ({e})", f"({c} * {v}) % ({e})", f"(({e}) * 2 - 1 - {v} + {c}) % ({e})"]
        forms += [f"({v} / {c}) % ({e})", f"min({v} / {c}, {e} - 1)", f"(i + j) % ({e})"]
        return rng.choice([v, *forms] if out[v] == e else forms)

    def element() -> str:
        if d.chance(0.15):
            return call(x, [f"(i * ({m}) + j) / ({m}) % ({n})", f"(i * ({m}) + j) % ({m})"])
        return call(x, [place("i", n), place("j", m)])

    factors = [element() for _ in range(rng.choice([1, 1, 2, 3]))]
    text = factors[0]
    for factor in factors[1:]:
        text += f" {rng.choice('+-*')} {factor}"
    kept = rng.choice([["i", "j"]] * 3 + [["j", "i"], ["i"], ["j"]])
    op = "=" if len(kept) == 2 else rng.choice(["+=!", "max=!"])
    t = d.make(dtype, [out[v] for v in kept])
    d.statement(f"{call(t, kept)} {op} {text}{ranges(dict(out))}", [out["i"], out["j"]])
