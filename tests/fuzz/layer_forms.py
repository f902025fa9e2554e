# SPDX-License-Identifier: Apache-2.0
"""Layers that compute: convolutions, pooling, contractions, norms, attention."""

from __future__ import annotations

from tcsym.index.expr import Index, floordiv, index
from tcsym.types import DType
from tests.fuzz.draft import Draft, Tensor

SPACE = ("z", "y", "x")


def call(t: Tensor | str, subscripts: list[str]) -> str:
    name = t if isinstance(t, str) else t.name
    return f"{name}({', '.join(subscripts)})" if subscripts else name


def ranges(bounds: dict[str, Index | str]) -> str:
    clauses = [f"{v} in 0:{e}" for v, e in bounds.items()]
    return f" where {', '.join(clauses)}" if clauses else ""


def accumulated(dtype: DType, d: Draft) -> DType:
    """The type products of `dtype` are summed in."""
    if dtype.is_integer:
        return DType.INT32 if d.chance(0.8) else dtype
    if dtype in (DType.FLOAT16, DType.BFLOAT16):
        return DType.FLOAT32 if d.chance(0.6) else dtype
    return dtype


def product(d: Draft, factors: list[str], dtype: DType, wide: DType) -> str:
    if wide is not dtype:
        factors = [f"{wide}({f})" for f in factors]
    if d.chance(0.3):
        factors = factors[::-1]
    if d.chance(0.15):  # a square, maybe with others between
        factors = [*factors, d.rng.choice(factors)]
    scale = d.rng.choice([" * 0.5", " / 3"]) if wide.is_float and d.chance(0.2) else ""
    return " * ".join(factors) + scale


# ---- windows


class Window:
    """Subscripts, guards and extents of a window over `rank` dimensions of an image."""

    def __init__(self, d: Draft, rank: int, image: list[Index], padded: bool, named: bool) -> None:
        self.at: list[str] = []
        self.guards: list[str] = []
        self.kernel: list[Index] = []
        self.out: list[Index] = []
        self.bounds: dict[str, Index | str] = {}
        width = d.size("kernel") if d.chance(0.5) else index(d.rng.choice([1, 2, 3, 3, 5]))
        for v, extent in zip(SPACE[3 - rank :], image):
            kernel = width if d.chance(0.8) else index(d.rng.choice([1, 2, 3]))
            stride, dilation = d.rng.choice([1, 1, 1, 2, 3]), d.rng.choice([1, 1, 1, 1, 2])
            before = d.rng.choice([0, 1, 1, 2]) if padded else 0
            after = d.rng.choice([0, before, before, 1]) if padded else 0
            s, k = (f"{stride} * {v}" if stride > 1 else v), f"k{v}"
            s += f" + {dilation} * {k}" if dilation > 1 else f" + {k}"
            s += f" - {before}" if before else ""
            self.at.append(s)
            self.kernel.append(kernel)
            e = floordiv(extent + before + after - dilation * (kernel - 1) - 1, stride) + 1
            if d.chance(0.25) and before and after:
                e = floordiv(extent + stride - 1, stride)
            self.out.append(e)
            one_sided = before and not after and d.chance(0.7)
            if before or (after and d.chance(0.2)):
                self.guards.append(f"{s} >= 0")
            if (after or before) and not one_sided:
                self.guards.append(f"{s} < {extent}")
            if before or after:
                self.bounds[v] = e
            if not named or kernel.as_int() is not None:
                self.bounds[k] = kernel

    def read(self, text: str, otherwise: str) -> str:
        if not self.guards:
            return text
        return f"({' && '.join(self.guards)} ? {text} : {otherwise})"


def convolution(d: Draft) -> None:
    rng, dtype = d.rng, d.dtype()
    rank, wide = rng.choice([1, 1, 2, 2, 2, 2, 3]), accumulated(dtype, d)
    kind = rng.choice(["full", "full", "full", "depthwise", "grouped"])
    image = [d.size("image") for _ in range(rank)]
    w = Window(d, rank, image, padded=d.chance(0.55), named=True)
    batch = [("n", d.size("batch"))] if d.chance(0.5) else []
    outer = [("g", d.size("batch"))] if kind == "grouped" else []
    outer = [("c", d.size("channels"))] if kind == "depthwise" else outer
    inner = [] if kind == "depthwise" else [("c", d.size("channels"))]
    new = [] if kind == "depthwise" else [("m", d.size("rows" if d.chance(0.7) else "columns"))]
    last = d.chance(0.35)  # channels last
    space, axes = list(SPACE[3 - rank :]), [f"k{v}" for v in SPACE[3 - rank :]]
    names = lambda *groups: [v for g in groups for v, _ in g]  # noqa: E731
    sizes = lambda *groups: [e for g in groups for _, e in g]  # noqa: E731
    x_subscripts = (
        [*names(batch), *w.at, *names(outer, inner)]
        if last
        else [*names(batch, outer, inner), *w.at]
    )
    x_shape = (
        [*sizes(batch), *image, *sizes(outer, inner)]
        if last
        else [*sizes(batch, outer, inner), *image]
    )
    x = d.tensor(x_shape, dtype)
    weights = [*zip(names(outer, new, inner), sizes(outer, new, inner)), *zip(axes, w.kernel)]
    if d.chance(0.4):
        rng.shuffle(weights)
    f = d.tensor([e for _, e in weights], dtype)
    left = [*names(batch), *space, *names(outer, new)] if last else None
    left = left or [*names(batch, outer, new), *space]
    shape = [*sizes(batch), *w.out, *sizes(outer, new)] if last else None
    shape = shape or [*sizes(batch, outer, new), *w.out]
    pairs = list(zip(left, shape))
    if d.chance(0.15):
        rng.shuffle(pairs)
    zero = rng.choice(["0", "0", "0", "1"])
    guarded = w.read(call(x, x_subscripts), zero)
    read_f = call(f, [v for v, _ in weights])
    term = product(d, [guarded, read_f], dtype, wide)
    if w.guards and d.chance(0.3):
        term = w.read(product(d, [call(x, x_subscripts), read_f], dtype, wide), "0")
    if d.chance(0.08):  # two images under one window
        other = call(d.tensor(x_shape, dtype), x_subscripts)
        term += " + " + product(d, [w.read(other, zero), read_f], dtype, wide)
    t = d.make(wide, [e for _, e in pairs])
    start = ""
    points = [*shape, *sizes(inner), *w.kernel]
    bounds = {v: e for v, e in w.bounds.items() if v in SPACE}
    if d.chance(0.12) and new:
        bias = d.tensor(sizes(new), wide)
        start = f"{call(t, [v for v, _ in pairs])} = {call(bias, names(new))}"
        d.statement(start + ranges(dict(pairs)), shape)
        bounds = {}
    op = "+=" if start else "+=!"
    d.statement(f"{call(t, [v for v, _ in pairs])} {op} {term}{ranges(bounds)}", points)


def pooling(d: Draft) -> None:
    rng, dtype = d.rng, d.dtype()
    rank = rng.choice([1, 2, 2, 2, 3])
    image = [d.size("image") for _ in range(rank)]
    w = Window(d, rank, image, padded=d.chance(0.4), named=False)
    batch = [d.size("batch") for _ in range(rng.choice([0, 1, 1, 2]))]
    channel = [d.size("channels")] if d.chance(0.25) else []
    first, last = ["n", "c"][: len(batch)], ["m"][: len(channel)]
    x = d.source(len(batch) + rank + len(channel), [*batch, *image, *channel], dtype)
    if x.shape != (*batch, *image, *channel):
        x = d.tensor([*batch, *image, *channel], dtype)
    op = rng.choice(["+=", "max=", "max=", "min=", "*="])
    unit = {"+=": "0", "*=": "1", "max=": "-INFINITY", "min=": "INFINITY"}[op]
    if dtype.is_integer and op in ("max=", "min="):
        unit = "0"
    term = w.read(call(x, [*first, *w.at, *last]), unit)
    if op == "*=" and dtype.is_float:
        term = f"cos({term})" if d.chance(0.5) else f"({term} > 0 ? 1 : -1)"
    left, shape = [*first, *SPACE[3 - rank :], *last], [*batch, *w.out, *channel]
    signs = "? 1 : -1" in term and op == "*=" and dtype.is_float
    literal = w.guards and dtype.is_integer and dtype.bits < 32  # beside it, a short one widens
    made = DType.INT32 if signs or literal else dtype
    t = d.make(made, shape)
    d.statement(f"{call(t, left)} {op}! {term}{ranges(w.bounds)}", [*shape, *w.kernel])
    if d.chance(0.3) and dtype.is_float and made is dtype:
        other = d.make(dtype, shape)
        text = f"{call(other, left)} +=! {w.read(call(x, [*first, *w.at, *last]), '0')}"
        d.statement(text + ranges(w.bounds), [*shape, *w.kernel])
        if d.chance(0.7):
            both = d.make(dtype, shape)
            d.statement(f"{call(both, left)} = {call(t, left)} - {call(other, left)} / 9", shape)


# ---- contractions


def contraction(d: Draft) -> None:
    rng, dtype = d.rng, d.dtype()
    wide = accumulated(dtype, d)
    groups = {"batch": rng.choice([0, 0, 0, 1, 1, 2]), "rows": rng.choice([0, 1, 1, 1, 2])}
    groups |= {"columns": rng.choice([0, 1, 1, 1, 2]), "reduced": rng.choice([1, 1, 1, 2])}
    letters = {"batch": "bh", "rows": "mp", "columns": "nq", "reduced": "kl"}
    extent = {letters[g][i]: d.size(g) for g, count in groups.items() for i in range(count)}
    of = lambda *gs: [v for g in gs for v in letters[g] if v in extent]  # noqa: E731

    def operand(*gs: str) -> str:
        vs = of(*gs)
        if d.chance(0.6):
            rng.shuffle(vs)
        return call(d.tensor([extent[v] for v in vs], dtype), vs)

    left = of("batch", "rows", "columns")
    if d.chance(0.4):
        rng.shuffle(left)
    factors = [operand("batch", "rows", "reduced"), operand("batch", "columns", "reduced")]
    if d.chance(0.12) and of("columns"):
        factors[1] = operand("columns", "reduced")
    if d.chance(0.12):
        factors.append(operand(rng.choice(["reduced", "rows", "columns"])))
    op, term = "+=!", product(d, factors, dtype, wide)
    if d.chance(0.2):
        op, term = combined(d, *(f"{wide}({x})" for x in factors[:2]))
    elif d.chance(0.15):
        more = [operand("batch", "rows", "reduced"), operand("batch", "columns", "reduced")]
        term += rng.choice([" + ", " - "]) + product(d, more, dtype, wide)
    elif d.chance(0.08):
        term += f" + {wide}({operand('batch', 'rows', 'reduced')})"
    if d.chance(0.08) and of("rows"):
        term = f"({of('reduced')[0]} <= {of('rows')[0]} ? {term} : 0)"
    goes_on = d.chance(0.15)  # from values that are there
    made = DType.INT32 if term.startswith("int32(") and not goes_on else wide
    t = d.make(made, [extent[v] for v in left])
    target, points = call(t, left), list(extent.values())
    if d.chance(0.1):  # a range that may end before it starts
        k = of("reduced")[0]
        term += f" where {k} in {rng.choice([1, 2, 9])}:{extent[k]}"
    if goes_on:
        c = call(d.tensor([extent[v] for v in left], wide), left)
        d.statement(f"{target} = {c}", [extent[v] for v in left])
        d.statement(f"{target} += {term}", points)
    else:
        d.statement(f"{target} {op} {term}", points)


def combined(d: Draft, a: str, b: str) -> tuple[str, str]:
    """Another operator, and two elements combined by other operations than a product."""
    reduced = d.rng.choice(["min=!", "max=!"])
    return d.rng.choice(
        [
            ("+=!", f"({a} - {b}) * ({a} - {b})"),
            ("+=!", f"max({a} - {b}, {b})"),
            ("+=!", f"({a} < {b} ? {a} * {b} : {b})"),
            ("+=!", f"int32({a} == {b})"),
            (reduced, f"{a} + {b}"),
            (reduced, f"{a} * {b} - {a}"),
        ]
    )


# ---- several reductions over the same rows


def normalisation(d: Draft) -> None:
    rng, dtype = d.rng, rng_float(d)
    kept = [("n", d.size("batch")), ("g", d.size("rows"))][: rng.choice([1, 1, 2])]
    gone = [("c", d.size("channels")), ("y", d.size("image")), ("x", d.size("columns"))]
    gone = gone[-rng.choice([1, 1, 2, 3]) :]
    axes = [*kept, *gone]
    if d.chance(0.3):
        rng.shuffle(axes)
    every, rows = [v for v, _ in axes], [v for v, _ in kept]
    shape, few = [e for _, e in axes], [e for _, e in kept]
    x = call(d.tensor(shape, dtype), every)
    total = " * ".join(f"({e})" for _, e in gone)
    form = rng.choice(["layer", "softmax", "rms", "log", "two-pass"])
    y = d.make(dtype, shape)
    out = call(y, every)
    if form == "softmax" or form == "log":
        m, s = d.make(dtype, few), d.make(dtype, few)
        mr, sr = call(m, rows), call(s, rows)
        d.statement(f"{mr} max=! {x}", shape)
        if form == "log":
            d.statement(f"{sr} +=! exp({x} - {mr})", shape)
            d.statement(f"{out} = {x} - {mr} - log({sr})", shape)
        elif d.chance(0.5):
            e = d.make(dtype, shape)
            d.statement(f"{call(e, every)} = exp({x} - {mr})", shape)
            d.statement(f"{sr} +=! {call(e, every)}", shape)
            d.statement(f"{out} = {call(e, every)} / {sr}", shape)
        else:
            d.statement(f"{out} = exp({x} - {mr})", shape)
            d.statement(f"{sr} +=! {out}", shape)
            d.statement(f"{out} = {out} / {sr}", shape)
    elif form == "rms":
        s = d.make(dtype, few)
        d.statement(f"{call(s, rows)} +=! {x} * {x}", shape)
        scale = f"rsqrt({call(s, rows)} / ({total}) + 1.0)"
        d.statement(f"{out} = {x} * {scale}", shape)
    else:
        m, s = d.make(dtype, few), d.make(dtype, few)
        mr, sr = call(m, rows), call(s, rows)
        d.statement(f"{mr} +=! {x}", shape)
        if form == "layer":
            d.statement(f"{sr} +=! {x} * {x}", shape)
            d.statement(
                f"{out} = ({x} - {mr} / ({total})) * rsqrt(fabs({sr}) / ({total}) + 1.0)", shape
            )
        else:
            d.statement(f"{mr} = {mr} / ({total})", few)
            d.statement(f"{sr} +=! ({x} - {mr}) * ({x} - {mr})", shape)
            d.statement(f"{out} = ({x} - {mr}) / sqrt({sr} / ({total}) + 1.0)", shape)
    d.made.remove(y)
    d.made.append(y)


def rng_float(d: Draft) -> DType:
    return d.rng.choice([DType.FLOAT32, DType.FLOAT32, DType.FLOAT32, DType.FLOAT64, DType.FLOAT16])


def attention(d: Draft) -> None:
    dtype = d.rng.choice([DType.FLOAT32, DType.FLOAT32, DType.FLOAT64])
    heads = [("b", d.size("batch")), ("h", d.size("batch"))][: d.rng.choice([0, 1, 2])]
    hs, he = [v for v, _ in heads], [e for _, e in heads]
    n, m, k, v = d.size("rows"), d.size("columns"), d.size("reduced"), d.size("columns")
    q, kk, vv = (d.tensor([*he, a, b], dtype) for a, b in ((n, k), (m, k), (m, v)))
    s, top, sums, p, o = (
        d.make(dtype, x) for x in ([*he, n, m], [*he, n], [*he, n], [*he, n, m], [*he, n, v])
    )
    at = lambda t, *xs: call(t, [*hs, *xs])  # noqa: E731
    d.statement(f"{at(s, 'i', 'j')} +=! {at(q, 'i', 'k')} * {at(kk, 'j', 'k')}", [*he, n, m, k])
    if d.chance(0.4):
        mask = f"j <= i ? {at(s, 'i', 'j')} * 0.5 : -1e9"
        d.statement(f"{at(s, 'i', 'j')} = {mask}", [*he, n, m])
    d.statement(f"{at(top, 'i')} max=! {at(s, 'i', 'j')}", [*he, n, m])
    d.statement(f"{at(p, 'i', 'j')} = exp({at(s, 'i', 'j')} - {at(top, 'i')})", [*he, n, m])
    d.statement(f"{at(sums, 'i')} +=! {at(p, 'i', 'j')}", [*he, n, m])
    d.statement(f"{at(o, 'i', 'v')} +=! {at(p, 'i', 'j')} * {at(vv, 'j', 'v')}", [*he, n, m, v])
    d.statement(f"{at(o, 'i', 'v')} = {at(o, 'i', 'v')} / {at(sums, 'i')}", [*he, n, v])
