# SPDX-License-Identifier: Apache-2.0
"""Forms that few passes wait for, and that the other layers hardly ever write."""

from __future__ import annotations

from tcsym.index.expr import Index, index
from tests.fuzz.draft import Draft
from tests.fuzz.layer_forms import accumulated, call, product, ranges, rng_float
from tests.fuzz.layer_moves import another_row


def bordered_window(d: Draft) -> None:
    """A window over an image that goes on beyond its edges: clamped, mirrored or around."""
    rng, dtype = d.rng, d.dtype()
    wide, rank = accumulated(dtype, d), rng.choice([1, 2, 2])
    space, image = list("yx")[2 - rank :], [d.size("image") for _ in range(rank)]
    kernel = [d.size("kernel") for _ in space]
    channels = [("c", d.size("channels"))] if d.chance(0.7) else []
    at = [_bordered(d, v, n) for v, n in zip(space, image)]
    cs, ce = [v for v, _ in channels], [e for _, e in channels]
    x = call(d.tensor([*ce, *image], dtype), [*cs, *at])
    ks = [f"k{v}" for v in space]
    new = [("o", d.size("channels"))] if d.chance(0.6) else []
    f = d.tensor([*(e for _, e in new), *ce, *kernel], dtype)
    w = call(f, [*(v for v, _ in new), *cs, *ks])
    left = [*(v for v, _ in new), *([] if new else cs), *space]
    extents: dict[str, Index] = {**dict(new), **dict(channels), **dict(zip(space, image))}
    t = d.make(wide, [extents[v] for v in left])
    bounds = {**dict(zip(space, image)), **dict(zip(ks, kernel))}
    points = [*extents.values(), *kernel]
    d.statement(
        f"{call(t, left)} +=! {product(d, [x, w], dtype, wide)}{ranges(dict(bounds))}", points
    )


def _bordered(d: Draft, v: str, n: Index) -> str:
    s = f"{v} + k{v} - {d.rng.choice([1, 1, 2])}"
    clamped, around = f"min(max({s}, 0), {n} - 1)", f"({s} + {n} + {n}) % ({n})"
    return d.rng.choice([clamped, clamped, around, f"max(min({s}, {n} - 1), 0)"])


def products_between(d: Draft) -> None:
    """Batches of small products, one after the other, and forms that are linear in two vectors."""
    rng, dtype = d.rng, rng_float(d)
    b, i, j, k = (d.size(p) for p in ("columns", "rows", "reduced", "reduced"))
    x, w, z = d.tensor([b, i], dtype), d.tensor([k, i, j], dtype), d.tensor([b, j], dtype)
    if d.chance(0.5):
        p, y = d.make(dtype, [b, k, j]), d.make(dtype, [b, k])
        at = call(w, ["o", "i", "j"])
        d.statement(f"{call(p, ['b', 'o', 'j'])} +=! {call(x, ['b', 'i'])} * {at}", [b, i, j, k])
        text = f"{call(p, ['b', 'o', 'j'])} * {call(z, ['b', 'j'])}"
        d.statement(f"{call(y, ['b', 'o'])} +=! {text}", [b, j, k])
        return
    first, second = d.tensor([b, i, j], dtype), d.tensor([b, j, k], dtype)
    p = d.make(dtype, [b, i, k])
    factors = f"{call(first, ['b', 'i', 'j'])} * {call(second, ['b', 'j', 'k'])}"
    d.statement(f"{call(p, ['b', 'i', 'k'])} +=! {factors}", [b, i, j, k])
    if d.chance(0.6):
        order = rng.sample(["b", "i", "l"], 3)
        third = d.tensor([b, k, j], dtype)
        shape = {"b": b, "i": i, "l": j}
        q = d.make(dtype, [shape[v] for v in order])
        text = f"{call(p, ['b', 'i', 'k'])} * {call(third, ['b', 'k', 'l'])}"
        d.statement(f"{call(q, order)} +=! {text}", [b, i, j, k])


def crops(d: Draft) -> None:
    """Maps on a few columns of longer rows, beside what moves with rows or columns alone."""
    rng, dtype, n = d.rng, d.dtype(), d.size("rows")
    outer = [("b", d.size("batch"))] if d.chance(0.4) else []
    first, gap = rng.choice([0, 0, 1, 2]), rng.choice([0, 1, 1])
    if d.chance(0.7):
        width: Index = index(rng.choice([2, 3, 4, 5, 6, 7]))
        columns = width - first - gap if d.chance(0.3) else width
        width = columns + first + gap
    else:
        width = d.size("kernel")
        columns, gap = width - first, 0
        d.may_fail = True
    vs, es = [*(v for v, _ in outer), "i"], [*(e for _, e in outer), n]
    text = call(d.tensor([*es, width], dtype), [*vs, f"j + {first}" if first else "j"])
    others = [call(d.tensor(es, dtype), vs), call(d.tensor([n], dtype), ["i"])]
    if isinstance(columns.as_int(), int):
        others.append(call(d.tensor([columns], dtype), ["j"]))
    for other in rng.sample(others, rng.choice([0, 1, 1, 2])):
        text = f"({text}) {rng.choice('+-*')} {other}"
    o = d.make(dtype, [*es, columns])
    bounds = ranges({**dict(zip(vs, es)), "j": columns})
    d.statement(f"{call(o, [*vs, 'j'])} = {text}{bounds}", [*es, columns])


def first_and_last(d: Draft) -> None:
    """Single rows of a tensor, read and replaced in turn: the first may be the last as well."""
    rng, dtype, n, m = d.rng, rng_float(d), d.size("batch"), d.size("columns")
    d.may_fail = True  # there may be none
    t, row = d.make(dtype, [n, m]), d.tensor([m], dtype)
    d.statement(f"{call(t, ['i', 'j'])} = {call(d.tensor([n, m], dtype), ['i', 'j'])}", [n, m])
    for k in range(rng.choice([3, 4, 5])):
        j = rng.choice(["j", "j", f"{m} - 1 - j"])
        here = call(t, [rng.choice(["0", f"{n} - 1"]), "j"])
        other = f" + {call(row, [j])}" if d.chance(0.7) else " * 0.5"
        if k % 2 == 0:
            row = d.make(dtype, [m], declared=d.chance(0.5))
            d.statement(f"{call(row, ['j'])} = {here}{other}{ranges({'j': m})}", [m])
        else:
            d.statement(f"{here} = {call(row, [j])} * 0.5{other}{ranges({'j': m})}", [m])


def from_there_on(d: Draft) -> None:
    """Elements that all indices behind them read: where none is, they need not be there."""
    rng, dtype, n, m = d.rng, rng_float(d), d.size("rows"), d.size("columns")
    x, k = d.tensor([n, m], dtype), rng.randrange(2)
    c = rng.choice([1, 2, 3, 5, 9, 20])
    at = ["i", "j"]
    there = call(x, [*at[:k], str(c), *at[k + 1 :]])
    here, more = call(x, at), rng.choice(["", f" && {call(x, at)} > 0"])
    t = d.make(dtype, [n, m])
    text = f"({at[k]} >= {c}{more} ? {there} - {here} : {here})"
    if d.chance(0.3):
        text = f"{text} * {call(d.tensor([n, m], dtype), at)}"
    d.statement(f"{call(t, at)} = {text}{ranges({'i': n, 'j': m})}", [n, m])


def first_step(d: Draft) -> None:
    """A scan whose first step has its place written as a number, and other steps before others."""
    rng, dtype, n, m = d.rng, rng_float(d), d.size("rows"), d.size("columns")
    x = d.tensor([n, m], dtype)
    s = d.make(dtype, [n, m], declared=True)
    along, rest, extent = rng.choice([(0, "j", n), (1, "i", m)])
    at = lambda v: [v, rest] if along == 0 else [rest, v]  # noqa: E731
    back = rng.choice([1, 1, 1, 2])
    body = f"  if t < {back} {{\n" if back > 1 else "  if t == 0 {\n"
    first = "t" if back > 1 else "0"
    old = another_row(d, call(s, at(f"t - {back}")), rest, m if along == 0 else n)
    body += f"    {call(s, at(first))} = {call(x, at(first))}\n  }} else {{\n"
    body += f"    {call(s, at('t'))} = {old} * 0.5 + {call(x, at('t'))}\n  }}"
    d.statement(f"for t in {extent} {{\n{body}\n}}", [n, m])


def powers(d: Draft) -> None:
    """Products with a matrix that every step changes, without a dimension for the steps."""
    rng, dtype, n = d.rng, rng_float(d), d.size("rows")
    rows, columns, t = d.size("rows"), d.size("columns"), rng.choice([2, 3])
    x, first = d.tensor([rows, n], dtype), d.tensor([n, columns], dtype)
    w, y = d.make(dtype, [n, columns]), d.make(dtype, [rows, columns], declared=True)
    at, out = call(w, ["k", "j"]), call(y, ["i", "j"])
    product = f"{call(x, ['i', 'k'])} * {at}"
    lines = [f"{out} +=! {product}" if d.chance(0.3) else f"{out} += {product}"]
    changed = rng.choice([f"{at} * 0.5 + {call(first, ['k', 'j'])}", f"0.25 - {at}"])
    lines.insert(rng.randrange(2), f"{at} = {changed}")
    d.statement(f"{at} = {call(first, ['k', 'j'])}", [n, columns])
    d.statement(f"{out} = 0 where i in 0:{rows}, j in 0:{columns}", [rows, columns])
    body = "\n".join(f"  {line}" for line in lines)
    d.statement(f"for t in {t} {{\n{body}\n}}", [rows, columns, n])


def there_and_back(d: Draft) -> None:
    """Temporaries that are permuted, with few elements along some dimension, and used as well."""
    rng, dtype = d.rng, rng_float(d)
    rank = rng.choice([2, 3, 3, 4])
    pools = ["columns", "batch", "kernel", "rows"]
    vs, shape = list("abcd")[:rank], [d.size(rng.choice(pools)) for _ in range(rank)]
    of = dict(zip(vs, shape))
    text, order = call(d.tensor(shape, dtype), vs), vs
    for _ in range(rng.choice([2, 2, 3])):
        order = rng.sample(vs, rank)
        t = d.make(dtype, [of[v] for v in order])
        d.statement(f"{call(t, order)} = {text}", shape)
        text = call(t, order)
    if d.chance(0.5):
        kept = sorted(rng.sample(vs, rank - 1))
        o = d.make(dtype, [of[v] for v in kept])
        d.statement(f"{call(o, kept)} +=! {text}", shape)


def ranges_of_terms(d: Draft) -> None:
    """A sum of products, some of them only in a range of rows, columns or terms."""
    rng, dtype = d.rng, d.dtype()
    wide, of = accumulated(dtype, d), {p: d.size(p) for p in ("rows", "columns", "reduced")}
    extents = dict(zip("ijk", of.values()))
    total = ""
    for _ in range(rng.choice([1, 2, 2])):
        a = call(d.tensor([extents["i"], extents["k"]], dtype), ["i", "k"])
        b = call(d.tensor([extents["k"], extents["j"]], dtype), ["k", "j"])
        v, term = rng.choice("ijk"), product(d, [a, b], dtype, wide)
        n, c = extents[v], rng.choice([1, 2, 7, 20])
        guard = rng.choice([f"{v} >= {c}", f"{v} < {n} - {c}", f"{v} >= {c} && {v} < {n} - 1", ""])
        term = f"({guard} ? {term} : 0)" if guard else term
        total += f" + {term}" if total else term
    if wide.is_integer and wide.bits < 32:
        total = f"{wide}({total})"
    t = d.make(wide, [extents["i"], extents["j"]])
    d.statement(f"{call(t, ['i', 'j'])} +=! {total}{ranges(dict(extents))}", [*extents.values()])
