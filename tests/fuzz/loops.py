# SPDX-License-Identifier: Apache-2.0
"""Forms of loops and calls: each function appends items and the tensors they make."""

from __future__ import annotations

from tcsym.index.expr import Index, var
from tcsym.types import DType
from tests.fuzz.expressions import Value, number, shifted_read, tame
from tests.fuzz.model import TensorModel
from tests.fuzz.statements import pointwise
from tests.fuzz.writer import Writer, converted, left_side, operator, variables, where

# ---- loops and calls


def recurrence(w: Writer) -> None:
    """T(t) from T(t-1), with the start in an `if`, or before the loop at a shifted position."""
    n, rest = var(w.rng.choice(w.sizes)), variables(w.shape(1), "j")
    name = w.fresh()
    start, step = w.scope(rest), w.scope({**rest, "t": n})
    first = Value(f"float32({tame(number(start, 1)).text})", DType.FLOAT32, 1e3)
    e = tame(number(step, 2))

    def at(t: str) -> str:
        return left_side(name, [t, *rest])

    if w.chance(0.5):
        text = f"0.5 * {at('t - 1')} + sin(float32({e.text}))"
        w.items.append(
            f"for t in {w.rng.choice(['', '0:'])}{n} {{\n  if t == 0 {{\n"
            f"    {at('t')} = {first.text}{where(w, start)}\n  }} else {{\n"
            f"    {at('t')} = {text}{where(w, step, loop='t')}\n  }}\n}}"
        )
        extent = n
    else:
        text = f"0.5 * {at('t')} + cos(float32({e.text}))"
        w.items.append(f"{at('0')} = {first.text}{where(w, start)}")
        w.items.append(f"for t in {n} {{\n  {at('t + 1')} = {text}{where(w, step, loop='t')}\n}}")
        extent = n + 1
    w.declared.add(name)
    w.add(name, first, (extent, *rest.values()), 1e3)


def coupled(w: Writer) -> None:
    """Two or three tensors, each step of which is made from others, none from its own alone; or
    loops behind each other."""
    if w.chance(0.5):
        stacked(w)
        return
    n, rest, count = var(w.rng.choice(w.sizes)), variables(w.shape(1), "j"), w.rng.choice([2, 2, 3])
    names = [f"T{len(w.made) + k}" for k in range(count)]
    first, lines = Value("", DType.FLOAT32, 1.0), []
    for k, name in enumerate(names):
        start, step = w.scope(rest), w.scope({**rest, "t": n})
        value = f"sin(float32({tame(number(start, 0)).text}))"
        w.items.append(f"{left_side(name, ['0', *rest])} = {value}{where(w, start)}")
        other = w.rng.choice([x for x in names if x != name])
        made = "t + 1" if names.index(other) < k and w.chance(0.5) else "t"
        old = left_side(other, [made, *rest])
        value = f"0.5 * {old} + cos(float32({tame(number(step, 1)).text}))"
        lines.append(f"  {left_side(name, ['t + 1', *rest])} = {value}{where(w, step, loop='t')}")
    w.items.append(f"for t in {n} {{\n" + "\n".join(lines) + "\n}")
    for name in names:
        w.declared.add(name)
        w.add(name, first, (n + 1, *rest.values()), 1e3)


def stacked(w: Writer) -> None:
    """Loops over the same steps, each of which needs some of those of the one before."""
    n, m, below = var(w.rng.choice(w.sizes)), var(w.rng.choice(w.sizes)), ""
    first = Value("", DType.FLOAT32, 1.0)
    for _ in range(w.rng.choice([2, 2, 3])):
        if below and w.chance(0.4):
            name = w.fresh()
            ranges = f"t in 0:{n}, j in 0:{m}, q in 0:{m}"
            w.items.append(f"{name}(t, j) +=! {below}(t, q) * sin(float32(q + j)) where {ranges}")
            w.add(name, first, (n, m), 1e3)
            below = name
        name = w.fresh()
        start, step = w.scope({"j": m}), w.scope({"j": m, "t": n})
        value = f"sin(float32({tame(number(start, 0)).text}))"
        needs = f"sin(float32({tame(number(step, 1)).text}))"
        if below:
            at = w.rng.choice(["t", "t", "t", "t - 1", f"{n} - 1 - t", f"{n} - 1"])
            needs = f"{needs} + sin({below}({at}, {w.rng.choice(['j', f'{m} - 1 - j'])}))"
        ranges = where(w, step, loop="t")
        old = f"{name}(t, j) = 0.5 * {name}(t - 1, {m} - 1 - j) + {needs}{ranges}"
        if w.chance(0.5):
            sum_ = f"{name}(t, j) +=! 0.1 * {name}(t - 1, q) where j in 0:{m}, q in 0:{m}"
            old = f"{sum_}\n    {name}(t, j) = sin({name}(t, j)) + {needs}{ranges}"
        begin = f"{name}(t, j) = {value}{where(w, start)}"
        w.items.append(f"for t in {n} {{\n  if t == 0 {{ {begin} }} else {{\n    {old}\n  }}\n}}")
        w.declared.add(name)
        w.add(name, first, (n, m), 1e3)
        below = name


def carried(w: Writer) -> None:
    """A tensor without a step dimension, of which each step reads what the one before has left."""
    n, m, name, out = var(w.rng.choice(w.sizes)), var(w.rng.choice(w.sizes)), w.fresh(), ""
    step = w.scope({"j": m, "t": n})
    e = Value(f"sin(float32({tame(number(step, 1)).text}))", DType.FLOAT32, 1.0)
    ranges = where(w, step, loop="t")
    if w.chance(0.6):
        w.made.append(TensorModel(name, DType.FLOAT32, (m,), 2.0))
        out = w.fresh()
        start = f"  if t == 0 {{\n    {name}(j) = cos(float32(j)) where j in 0:{m}\n  }}\n"
        use = f"  {out}(t, j) = {name}(j) * 0.5 + {e.text}{ranges}\n"
        w.items.append(f"for t in {n} {{\n{start}{use}  {name}(j) = {e.text}{ranges}\n}}")
        w.declared.add(out)
        w.add(out, e, (n, m), 2.0)
        return
    first, last = w.rng.choice([("0", f"{m} - 1"), (f"{m} - 1", "0")])
    w.items.append(f"{name}(j) = cos(float32(j)) where j in 0:{m}")
    w.items.append(f"for t in {n} {{\n  {name}({first}) = 0.5 * {name}({last}) + float32(t)\n}}")
    w.add(name, e, (m,), 9.0)


def evolving(w: Writer) -> None:
    """A table of which each step reads whole rows before it makes the next one of it."""
    n, m, k = (var(w.rng.choice(w.sizes)) for _ in "nmk")
    out, table = w.fresh(), f"S{len(w.items)}"
    step = w.scope({"t": n, "i": m, "j": k})
    e = f"sin(float32({tame(number(step, 1)).text}))"
    ranges = where(w, step, loop="t")
    start = f"{table}(i, j) = cos(float32(i + j)) where i in 0:{m}, j in 0:{k}"
    read = w.rng.choice([f"{table}(i, j)", f"{table}(i, {k} - 1 - j)"])
    lines = [f"  {out}(t, i) +=! {read} * 0.5 where i in 0:{m}, j in 0:{k}"]
    lines.append(f"  {table}(i, j) = {e}{ranges}")
    if w.chance(0.6):
        lines.insert(0, f"  if t == 0 {{\n    {start}\n  }}")
    else:
        w.items.append(start)
    w.items.append(f"for t in {n} {{\n" + "\n".join(lines) + "\n}")
    w.declared.add(out)
    w.add(out, Value("", DType.FLOAT32, 1.0), (n, m), 40.0)


def triangular(w: Writer) -> None:
    """Prefix reductions over `k in 0:t+1`."""
    n = var(w.rng.choice(w.sizes))
    s, name = w.scope({"k": n, "t": n}), w.fresh()
    op, v, magnitude = operator(w, tame(number(s, 1)))
    low, high = w.rng.choice([("0", "t + 1"), ("0", "t"), ("t", f"{n}")])
    w.items.append(f"for t in {n} {{\n  {name}(t) {op}! {v.text} where k in {low}:{high}\n}}")
    w.declared.add(name)
    w.add(name, v, (n,), magnitude)


def sweeps(w: Writer) -> None:
    """A few steps over an existing tensor, different ones in even and odd iterations."""
    ready = [t for t in w.made if t.shape and t.dtype.is_float]
    if not ready:
        return recurrence(w)
    t = w.rng.choice(ready)
    s, other = w.scope(variables(t.shape)), w.scope(variables(t.shape))
    left = left_side(t.name, s.extents)
    e = shifted_read(s)
    one = f"{left} = {t.dtype}(0.5 * {left} + 0.25 * tanh({e.text})){where(w, s)}"
    two = f"{left} = {t.dtype}(sin({tame(number(other, 1)).text})){where(w, other)}"
    test = w.rng.choice(["s % 2 == 0", "s > 1 && s < 3", f"s < {w.sizes[0]}", "!(s == 1)"])
    inner = f"if {test} {{\n    {one}\n  }} else {{\n    {two}\n  }}"
    body = inner if w.chance(0.7) else one
    return w.items.append(f"for s in 0:{w.rng.randint(1, 4)} {{\n  {body}\n}}")


def elimination(w: Writer) -> None:
    """A square changed in place, step by step: parts of its columns and rows, as matrices are
    factorised."""
    n, name = var(w.rng.choice(w.sizes)), w.fresh()
    start = w.scope({"i": n, "j": n})
    dtype = w.rng.choice([DType.FLOAT32, DType.FLOAT32, DType.FLOAT64])
    first = converted(Value(f"sin(float32({number(start, 1).text}))", DType.FLOAT32, 1.0), dtype)
    w.items.append(f"{name}(i, j) = {dtype}({first.text}){where(w, start)}")
    steps = [_step(w, name, n, dtype) for _ in range(w.rng.randint(1, 3))]
    w.items.append(f"for k in {n} {{\n  " + "\n  ".join(steps) + "\n}")
    w.declared.add(name)
    w.add(name, Value("", dtype, 1.0), (n, n), 1.0)


def _step(w: Writer, name: str, n: Index, dtype: DType) -> str:
    """A statement of an iteration k: all, a column, a row, the diagonal, a sum to a column."""
    x, y, d = f"{name}(i, k)", f"{name}(k, j)", f"{name}(k, k)"
    tests = ["> k", ">= k", "< k", "== k", "!= k", f"+ k < {n}"]
    i, j = (f"{v} {w.rng.choice(tests)}" for v in "ij")
    test = w.rng.choice([f"{i} && {j}", f"{i} || {j}"])
    kind = w.rng.choice(["all", "all", "column", "column", "row", "diagonal", "sum"])
    match kind:
        case "all":
            a = f"{name}(i, j)"
            return f"{a} = {test} ? 0.5 * {a} - 0.25 * {x} * {y} : {a} where i in 0:{n}, j in 0:{n}"
        case "column":
            return f"{x} = {i} ? tanh({x} + {d}) : {x} where i in 0:{n}"
        case "row":
            return f"{y} = {j} ? 0.5 * {y} + cos({d}) : {y} where j in 0:{n}"
        case "diagonal":
            return f"{d} = sin({d} + {dtype}(k))"
        case _:
            sums = f"S{w.rng.randrange(1 << 20)}"
            read = f"{name}(i, l) * {name}(k, l)"
            return (
                f"{sums}(i) +=! tanh({read}) where i in 0:{n}, l in 0:k\n"
                f"  {x} = {i} ? cos({sums}(i)) : {x} where i in 0:{n}"
            )


HELPERS: tuple[tuple[str, str, int, tuple[tuple[int, ...], ...]], ...] = (
    # name, text, rank of the argument, dimensions of each result as positions in its shape
    ("rows", "def rows({t}(P, Q) X) -> (Y) {{ Y(p) +=! X(p, q) }}", 2, ((0,),)),
    ("turn", "def turn({t}(N, M) A) -> (B) {{ B(i, j) = A(j, i) }}", 2, ((1, 0),)),
    (
        "spread",
        "def spread({t}(N) A) -> (lo, hi) {{\n  lo min=! A(i)\n  hi max=! A(i)\n}}",
        1,
        ((), ()),
    ),
    (
        "centre",
        "def centre({t}(N) A) -> (T) {{\n  s, v = bounds(A)\n  T(i) = A(i) - s + v - v\n}}\n"
        "def bounds({t}(K) A) -> (s, v) {{\n  s max=! A(k)\n  v +=! A(k)\n}}",
        1,
        ((0,),),
    ),
)


def call(w: Writer) -> None:
    name, text, rank, results = w.rng.choice(HELPERS)
    ready = [
        t
        for t in [*w.inputs, *w.made]
        if len(t.shape) == rank and t.dtype is not DType.BOOL and t.magnitude < 100
    ]
    if not ready:
        return pointwise(w)
    t = w.rng.choice(ready)
    alias = f"{name}_{len(w.helpers)}"
    text = text.format(t=t.dtype).replace(f"def {name}(", f"def {alias}(")
    text = text.replace("bounds(", f"bounds_{len(w.helpers)}(")
    targets = []
    for dims in results:
        targets.append(w.fresh())
        shape = tuple(t.shape[d] for d in dims)
        w.made.append(TensorModel(targets[-1], t.dtype, shape, 40 * t.magnitude))
    w.helpers.append(text)
    return w.items.append(f"{', '.join(targets)} = {alias}({t.name})")
