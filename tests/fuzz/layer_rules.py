# SPDX-License-Identifier: Apache-2.0
"""What the language says of odd values and odd places: NaN, ties, signs, quotients, gathers."""

from __future__ import annotations

from tcsym.types import DType
from tests.fuzz.draft import Draft
from tests.fuzz.layer_forms import call, ranges

SHORT = (DType.INT8, DType.UINT8, DType.INT16, DType.BFLOAT16, DType.FLOAT16)
INTEGERS = tuple(t for t in DType if t.is_integer)
ORDER = ("<", "<=", ">", ">=", "==", "!=")

FEW = 4  # statements on the same operands: each costs little beside the rest of a program


def odd_floats(d: Draft) -> None:
    """Minima, comparisons, remainders and casts of values with NaN, infinities and ties."""
    rng, dtype = d.rng, d.rng.choice([DType.FLOAT32, DType.FLOAT32, DType.FLOAT64, DType.FLOAT16])
    n, m = d.size("rows"), d.size("columns")
    kind = rng.choice(["special", "special", "special", "ties", "wide", ""])
    x, y = (call(d.tensor([n, m], dtype, kind), ["i", "j"]) for _ in "xy")
    for _ in range(rng.randint(2, FEW)):
        made, text, is_exact = _odd_float(d, x, y, dtype)
        o = d.make(made, [n, m])
        if is_exact:
            d.exact.add(o.name)
        d.statement(f"{call(o, ['i', 'j'])} = {text}{ranges({'i': n, 'j': m})}", [n, m])
    if made.is_float and d.chance(0.5):
        kept = rng.choice([["i"], ["j"], []])
        r = d.make(made, [{"i": n, "j": m}[v] for v in kept])
        d.statement(f"{call(r, kept)} {rng.choice(['max', 'min'])}=! {call(o, ['i', 'j'])}", [n, m])


def _odd_float(d: Draft, x: str, y: str, dtype: DType) -> tuple[DType, str, bool]:
    """Type, value, and whether the language says every bit of it."""
    rng, short, op = d.rng, d.rng.choice(SHORT), d.rng.choice(ORDER)
    made, text, is_exact = rng.choice(
        [
            (dtype, f"{rng.choice(['fmax', 'fmin', 'max', 'min'])}({x}, {y})", False),
            (dtype, f"max(min({x}, {y}), {rng.choice(['0.5', x])})", False),
            (dtype, f"({x} {op} {y} ? {x} : {y} * 0.5)", False),
            (DType.INT32, _compared(d, x, rng.choice([x, y, y])), True),
            (dtype, f"{x} % {rng.choice([y, '1.5', '-0.75'])}", False),
            (short, f"{short}({x})", True),
            (short, f"{short}({x})", True),
            (short, f"{short}({x} + {y})", False),
        ]
    )
    return made, f"{made}({text})" if made.is_integer and made.bits < 32 else text, is_exact


def _compared(d: Draft, x: str, y: str) -> str:
    """The bits of a number say what three comparisons gave."""
    bits = zip((1, 2, 4), d.rng.sample(ORDER, 3))
    return " + ".join(f"{n} * int32({x} {op} {y})" for n, op in bits)


def odd_integers(d: Draft) -> None:
    """Quotients, remainders, comparisons and casts between any two integer types."""
    rng = d.rng
    a, b = (rng.choice(INTEGERS) for _ in "ab")
    n, m = d.size("rows"), d.size("columns")
    kinds = ["tame", "wide", "wide", "negative"]
    x, y = (call(d.tensor([n, m], t, rng.choice(kinds)), ["i", "j"]) for t in (a, b))
    for _ in range(rng.randint(2, FEW)):
        by, scale = rng.choice([y, y, "3", "7", "8", "16"]), rng.choice([x, y, "3", "7"])
        text = rng.choice(
            [
                f"{x} / {by}",
                f"{x} % {by}",
                f"({x} {rng.choice('/%+-*')} {y}) {rng.choice('/%+-*')} {scale}",
                _compared(d, x, y),
                _compared(d, x, y),
                f"{rng.choice(['min', 'max'])}({x}, {y})",
                x,
            ]
        )
        o = d.make(rng.choice([t for t in DType if t is not DType.BOOL]), [n, m])
        d.statement(f"{call(o, ['i', 'j'])} = {o.dtype}({text})", [n, m])


def extremes(d: Draft) -> None:
    """Minima, maxima and products along rows, columns or all, of values of one sign."""
    rng = d.rng
    dtype = rng.choice([DType.FLOAT32, DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT16])
    vs = ["i", "j", "k"][: rng.choice([1, 2, 2, 3])]
    shape = [d.size(p) for p in rng.sample(["rows", "columns", "reduced"], len(vs))]
    kind = rng.choice(["negative", "negative", "positive", "equal", "special"])
    x = call(d.tensor(shape, dtype, kind), vs)
    extents = dict(zip(vs, shape))
    kept = [v for v in rng.sample(vs, len(vs)) if d.chance(0.5 if v == vs[-1] else 0.3)]
    op = rng.choice(["max", "max", "min", "*"])
    text = f"{x} * {dtype}({rng.choice([1, 2])})" if d.chance(0.3) else x
    if op == "*" and dtype.is_float:
        text = f"({x} > 0 ? 1 : -1)"
    made = DType.INT32 if text.endswith("-1)") else dtype
    if op != "*" and d.chance(0.4) and len(kept) < len(vs):
        other = call(d.tensor(shape, dtype, kind), vs)
        text = f"max({x}, {other})"
    o = d.make(made, [extents[v] for v in kept])
    if len(kept) == len(vs):
        d.statement(f"{call(o, kept)} = {text}", shape)
        return
    d.statement(f"{call(o, kept)} {op}=! {text}", shape)


def halves(d: Draft) -> None:
    """Sums of many short numbers of one sign: they have more digits until they are stored."""
    rng, dtype = d.rng, d.rng.choice([DType.BFLOAT16, DType.FLOAT16])
    shape = {"i": d.size("rows"), "k": d.size("reduced")}
    kind = rng.choice(["equal", "positive", "negative"])
    x, y = (call(d.tensor([*shape.values()], dtype, kind), ["i", "k"]) for _ in "xy")
    kept = rng.choice([["i"], ["k"], []])
    t = d.make(dtype, [shape[v] for v in kept])
    term = rng.choice([x, x, f"{x} * {y}", f"{x} + {y}"])
    d.statement(f"{call(t, kept)} +=! {term}", [*shape.values()])


def gather(d: Draft) -> None:
    """Elements at places that a tensor tells, some outside; with and without a guard."""
    rng, dtype = d.rng, d.dtype()
    n, m, k = d.size("columns"), d.size("rows"), d.size("columns")
    p = d.pointer([n], m, rng.choice(["index", "stray", "stray"]))
    at = call(p, ["i"])
    two = d.chance(0.5)
    x = d.tensor([m, k] if two else [m], dtype)
    read = call(x, [at, "j"] if two else [at])
    guarded = f"({at} >= 0 && {at} < {m} ? {read} : 0)"
    text = rng.choice([read, guarded, guarded, f"(i > 0 ? {read} : {dtype}(1))"])
    vs, shape = (["i", "j"], [n, k]) if two else (["i"], [n])
    kept = rng.choice([vs, vs, vs[1:]])
    o = d.make(dtype, shape[len(vs) - len(kept) :])
    if len(kept) == len(vs):
        text = f"{dtype}({text})" if dtype.is_integer and dtype.bits < 32 else text
        d.statement(f"{call(o, kept)} = {text}{ranges(dict(zip(vs, shape)))}", shape)
    else:
        bounds = ranges(dict(zip(vs, shape)))
        d.statement(f"{call(o, kept)} max=! {dtype}({text}){bounds}", shape)


def other_ranges(d: Draft) -> None:
    """Ranges of other sizes than the tensor's, and quotients of several times an index."""
    rng, dtype = d.rng, d.dtype()
    n, m = d.size("rows"), d.size("rows")
    d.may_fail = True
    x = d.tensor([n], dtype)
    c, k = rng.choice([2, 3]), rng.choice([1, 2, 3])
    place, extent = rng.choice(
        [
            ("i", m),
            ("i", m),
            ("i", m),
            (f"i + {m}", n - m),
            (f"{n} - 1 - i", m),
            (f"({k} * i + 1) / {c * k}", c * n - 1),
            (f"({2 * k} * i + {2 * k - 1}) / {2 * k * c}", c * n),
            (f"({k} * i + 2) % {n}", m),
        ]
    )
    o = d.make(dtype, [extent])
    d.statement(f"{call(o, ['i'])} = {call(x, [place])} where i in 0:{extent}", [n, m])
