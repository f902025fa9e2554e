# SPDX-License-Identifier: Apache-2.0
"""Layers that mostly move: epilogues, permutations, concatenations, padding; and recurrences."""

from __future__ import annotations

from tcsym.index.expr import Index, floordiv, index
from tcsym.types import DType
from tests.fuzz.draft import Draft, Tensor
from tests.fuzz.layer_forms import call, ranges, rng_float

AXES = "abcdef"
FLOATS = (DType.FLOAT32, DType.FLOAT64)


def epilogue(d: Draft) -> None:
    """The last tensor, changed in place or into another; also from other elements of it."""
    if not d.made or not d.made[-1].shape or d.made[-1].dtype is DType.BOOL:
        return
    t, v = d.made[-1], d.rng.randrange(len(d.made[-1].shape))
    if d.chance(0.35):
        d.rng.choice([_transposed, _reduced, _cast, _product, _row])(d, t, v)
        return
    vs, shape = list(AXES[: len(t.shape)]), list(t.shape)
    text = _pointwise(d, t, vs, v)
    if t.dtype.is_integer and t.dtype.bits < 32:
        text = f"{t.dtype}({text})"
    o = t if d.chance(0.6) else d.make(t.dtype, shape)
    d.exact.discard(o.name)
    d.alike = [pair for pair in d.alike if o.name not in pair]
    d.statement(f"{call(o, vs)} = {text}", shape)


def _pointwise(d: Draft, t: Tensor, vs: list[str], v: int) -> str:
    shape, here = list(t.shape), call(t, vs)
    plain = all(map(_is_plain, shape))
    b = call(d.tensor([shape[v]], t.dtype), [vs[v]]) if _is_plain(shape[v]) else "1"
    mirrored = [*vs[:v], f"{shape[v]} - 1 - {vs[v]}", *vs[v + 1 :]]
    shifted = [*vs[:v], f"{vs[v]} - 1", *vs[v + 1 :]]
    forms = [
        f"max({here} + {b}, 0)",
        f"{here} * {b}",
        f"max({here}, 0)",
        f"{here} - {call(t, mirrored)}",
        f"{vs[v]} > 0 ? {here} + {call(t, shifted)} : {here}",
        f"{vs[v]} % 2 == 0 ? {here} : 0",
        f"{vs[v]} < 3 ? {here} : 0",
    ]
    forms += [f"{here} + {call(d.tensor(shape, t.dtype), vs)}"] if plain else []
    forms += [f"{here} * normcdf({here})"] if t.dtype.is_float else []
    return d.rng.choice(forms)


def _transposed(d: Draft, t: Tensor, v: int) -> None:
    vs = list(AXES[: len(t.shape)])
    new = d.rng.sample(vs, len(vs))
    o = d.make(t.dtype, [t.shape[vs.index(x)] for x in new])
    d.statement(f"{call(o, new)} = {call(t, vs)}", list(t.shape))


def _reduced(d: Draft, t: Tensor, v: int) -> None:
    vs = list(AXES[: len(t.shape)])
    o = d.make(t.dtype, [*t.shape[:v], *t.shape[v + 1 :]])
    op = d.rng.choice(["+=!", "max=!", "min=!"])
    d.statement(f"{call(o, [*vs[:v], *vs[v + 1 :]])} {op} {call(t, vs)}", list(t.shape))


def _cast(d: Draft, t: Tensor, v: int) -> None:
    vs = list(AXES[: len(t.shape)])
    o = d.make(d.rng.choice(list(DType)), list(t.shape))
    d.statement(f"{call(o, vs)} = {o.dtype}({call(t, vs)})", list(t.shape))


def _product(d: Draft, t: Tensor, v: int) -> None:
    """A contraction with a matrix over dimension `v`."""
    if not t.dtype.is_float or not _is_plain(t.shape[v]):
        return
    vs, n = list(AXES[: len(t.shape)]), d.size("columns")
    m = d.tensor([t.shape[v], n], t.dtype)
    o = d.make(t.dtype, [*t.shape[:v], n, *t.shape[v + 1 :]])
    left = [*vs[:v], "q", *vs[v + 1 :]]
    text = f"{call(o, left)} +=! {call(t, vs)} * {call(m, [vs[v], 'q'])}"
    d.statement(text, [*t.shape, n])


def _row(d: Draft, t: Tensor, v: int) -> None:
    vs = list(AXES[: len(t.shape)])
    o = d.make(t.dtype, [*t.shape[:v], *t.shape[v + 1 :]])
    at = [*vs[:v], "0", *vs[v + 1 :]]
    d.statement(f"{call(o, [*vs[:v], *vs[v + 1 :]])} = {call(t, at)}", list(t.shape))


def _is_plain(e: Index) -> bool:
    """May be written as a dimension of an input."""
    return e.as_int() is not None or str(e).isidentifier()


def _axes(d: Draft, least: int = 1, most: int = 4) -> tuple[list[str], list[Index]]:
    rank = d.rng.randint(least, most)
    pools = ["batch", "rows", "columns", "channels", "image"]
    return list(AXES[:rank]), [d.size(d.rng.choice(pools)) for _ in range(rank)]


def permutation(d: Draft) -> None:
    """One to three tensors, each in its own order of the dimensions."""
    vs, shape = _axes(d, 2)
    dtype = d.dtype()
    reads = []
    for _ in range(d.rng.choice([1, 1, 2, 3])):
        order = d.rng.sample(vs, len(vs))
        reads.append(call(d.tensor([shape[vs.index(v)] for v in order], dtype), order))
    text = " + ".join(reads)
    if d.chance(0.2):
        text = f"{dtype}(({text}) * {vs[0]})"
    t = d.make(dtype, shape)
    d.statement(f"{call(t, vs)} = {text}", shape)
    if d.chance(0.3):
        new = d.rng.sample(vs, len(vs))
        o = d.make(dtype, [shape[vs.index(v)] for v in new])
        d.statement(f"{call(o, new)} = {call(t, vs)}", shape)


def concatenation(d: Draft) -> None:
    """Two or three tensors one behind the other along some dimension, or interleaved."""
    vs, shape = _axes(d)
    dtype, k = d.dtype(), d.rng.randrange(len(vs))
    if d.chance(0.15):
        a, b = (call(d.tensor(shape, dtype), [*vs[:k], f"{vs[k]} / 2", *vs[k + 1 :]]) for _ in "ab")
        shape[k] = shape[k] * 2
        t = d.make(dtype, shape)
        text = f"{vs[k]} % 2 == 0 ? {a} : {b}"
        d.statement(f"{call(t, vs)} = {text}{ranges(dict(zip(vs, shape)))}", shape)
        return
    pool = d.rng.choice(["rows", "columns", "batch"])
    parts = [shape[k], *(d.size(pool) for _ in range(d.rng.choice([1, 1, 2])))]
    text, start = "", index(0)
    for n, part in enumerate(parts):
        at = [*vs[:k], f"{vs[k]} - ({start})" if n else vs[k], *vs[k + 1 :]]
        read = call(d.tensor([*shape[:k], part, *shape[k + 1 :]], dtype), at)
        if d.chance(0.2):
            read = f"{dtype}(max({read}, 0))"
        start = start + part
        text += read if n == len(parts) - 1 else f"{vs[k]} < {start} ? {read} : "
    shape[k] = start
    t = d.make(dtype, shape)
    bounds = ranges(dict(zip(vs, shape))) if d.chance(0.5) else ranges({vs[k]: start})
    d.statement(f"{call(t, vs)} = {text}{bounds}", shape)


def padding(d: Draft) -> None:
    """A border of a constant, or of the nearest or mirrored elements."""
    vs, shape = _axes(d)
    dtype = d.dtype()
    x, at, guards, out = d.tensor(shape, dtype), [], [], []
    form = d.rng.choice(["constant", "constant", "nearest"])
    for v, e in zip(vs, shape):
        low, high = (d.rng.choice([0, 0, 1, 2]) for _ in "lh")
        s = f"{v} - {low}" if low else v
        if form == "nearest" and (low or high):
            s = f"min(max({s}, 0), {e} - 1)"
        elif low or high:
            guards += [f"{v} >= {low}"] * bool(low) + [f"{v} < {e + low}"] * bool(high or low)
        at.append(s)
        out.append(e + low + high)
    read = call(x, at)
    text = f"{' && '.join(guards)} ? {read} : {d.rng.choice('01')}" if guards else read
    t = d.make(dtype, out)
    d.statement(f"{call(t, vs)} = {text}{ranges(dict(zip(vs, out)))}", out)


def rows_reduced(d: Draft) -> None:
    """Several reductions over the same rows or columns, also of types that are not floats."""
    vs, shape = _axes(d, 1, 4)
    dtype = d.dtype()
    x = d.tensor(shape, dtype)
    for _ in range(d.rng.choice([1, 2, 3, 4])):
        kept = sorted(d.rng.sample(vs, d.rng.randrange(len(vs))))
        op = d.rng.choice(["+=", "max=", "min=", "*="])
        term = call(x, vs)
        if op == "*=" and dtype.is_float:
            term = f"cos({term})"
        elif op == "+=" and d.chance(0.4):
            term = f"{term} * {call(d.tensor(shape, dtype), vs)}"
        elif d.chance(0.2):
            term = f"{dtype}({vs[0]} % 2 == 0 ? {term} : 1)"
        t = d.make(dtype, [shape[vs.index(v)] for v in kept])
        gone = next(v for v in vs if v not in kept)
        late = f" where {gone} in 3:{shape[vs.index(gone)]}" if d.chance(0.15) else ""
        d.statement(f"{call(t, kept)} {op}! {term}{late}", shape)
        if d.chance(0.3):
            o = d.make(dtype, shape)
            d.statement(f"{call(o, vs)} = {call(x, vs)} - {call(t, kept)}", shape)


def recurrence(d: Draft) -> None:
    """A state in an output, with a contraction each step."""
    dtype = d.rng.choice(FLOATS)
    t, b, h, i = (d.size(p) for p in ("batch", "rows", "columns", "reduced"))
    x = d.tensor([t, b, i], dtype)
    u, v, first = d.tensor([h, i], dtype), d.tensor([h, h], dtype), d.tensor([b, h], dtype)
    s = d.make(dtype, [t + 1, b, h], declared=True)
    weights = [call(v, ["o", "k"]), call(v, ["k", "o"])][d.rng.randrange(2)]
    wide, points = "tanh({}) * 0.5", [t, b, h, i]
    form = d.rng.randrange(3)
    old = f"{s.name}(t, r, k)"
    if form == 0:
        d.statement(f"{s.name}(0, r, o) = {call(first, ['r', 'o'])}", [b, h])
        body = f"  P(r, o) +=! {call(x, ['t', 'r', 'k'])} * {call(u, ['o', 'k'])}\n"
        body += f"  Q(r, o) +=! {old} * {weights}\n"
        body += f"  {s.name}(t + 1, r, o) = {wide.format('P(r, o) + Q(r, o)')}"
        d.statement(f"for t in {t} {{\n{body}\n}}", points)
    elif form == 1:
        body = f"  if t == 0 {{\n    {s.name}(t, r, o) = {call(first, ['r', 'o'])}\n  }} else {{\n"
        body += f"    Q(r, o) +=! {s.name}(t - 1, r, k) * {weights}\n"
        body += f"    {s.name}(t, r, o) = {wide.format('Q(r, o)')}\n  }}"
        d.statement(f"for t in {t + 1} {{\n{body}\n}}", points)
    else:
        gates = f"{call(first, ['r', 'o'])} * t"
        d.statement(f"{s.name}(0, r, o) = {call(first, ['r', 'o'])}", [b, h])
        body = f"  {s.name}(t + 1, r, o) = {gates}\n"
        body += f"  {s.name}(t + 1, r, o) += {old} * {weights}\n"
        body += f"  {s.name}(t + 1, r, o) = {wide.format(f'{s.name}(t + 1, r, o)')}"
        d.statement(f"for t in {t} {{\n{body}\n}}", points)


def scan(d: Draft) -> None:
    """Running sums along the first or last dimension, forwards or backwards."""
    dtype, n, m = rng_float(d), d.size("rows"), d.size("columns")
    x = d.tensor([n, m], dtype)
    s = d.make(dtype, [n, m], declared=True)
    along, rest, extent = d.rng.choice([(0, "j", n), (1, "j", m)])
    at = lambda v: [v, rest] if along == 0 else [rest, v]  # noqa: E731
    step, last = "t", "t - 1"
    if d.chance(0.3):
        step, last = f"{extent} - 1 - t", f"{extent} - t"
    old = another_row(d, call(s, at(last)), rest, m if along == 0 else n)
    body = f"  if t == 0 {{\n    {call(s, at(step))} = {call(x, at(step))}\n  }} else {{\n"
    body += f"    {call(s, at(step))} = {old} * 0.5 + {call(x, at(step))}\n  }}"
    d.statement(f"for t in {extent} {{\n{body}\n}}", [n, m])


def another_row(d: Draft, element: str, row: str, n: Index) -> str:
    """Sometimes the element of another row, so that rows are no loops apart from each other."""
    if d.chance(0.5):
        return element
    others = [*[f"{n} - 1 - {row}"] * 3, f"({row} + 1) % ({n})", f"max({row} - 1, 0)"]
    return element.replace(f"{row})", f"{d.rng.choice(others)})").replace(
        f"({row},", f"({d.rng.choice(others)},"
    )


def stencil(d: Draft) -> None:
    """Neighbours in a grid, the border left out or clamped, once or several times."""
    dtype = d.dtype()
    n, m = d.size("image"), d.size("columns")
    x: Tensor = d.tensor([n, m], dtype)
    if d.chance(0.5):
        t = d.make(dtype, [n, m])
        inside = f"i >= 1 && i < {n} - 1 && j >= 1 && j < {m} - 1"
        text = f"{x.name}(i-1,j) + {x.name}(i+1,j) + {x.name}(i,j-1) + {x.name}(i,j+1)"
        guard = f"{inside} ? {text} : {x.name}(i,j)"
        d.statement(f"{t.name}(i,j) = {guard}{ranges({'i': n, 'j': m})}", [n, m])
        return
    step = d.rng.choice([1, 2])
    t = d.make(dtype, [floordiv(n - 3, step) + 1, m - 2])
    s = f"{step} * i" if step > 1 else "i"
    text = " + ".join(f"{x.name}({s} + {a}, j + {b})" for a, b in ((0, 1), (1, 0), (2, 1), (1, 2)))
    d.statement(f"{t.name}(i,j) = {text}", [n, m])
