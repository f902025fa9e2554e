# SPDX-License-Identifier: Apache-2.0
"""Forms of statements: each function appends one or two items and the tensors they make."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import Index, floordiv, var
from tcsym.types import DType, holds
from tests.fuzz.expressions import Value, number, shifted_read, tame
from tests.fuzz.writer import (
    Writer,
    converted,
    left_side,
    operator,
    right_side,
    variables,
    where,
)

# ---- statement forms


def pointwise(w: Writer) -> None:
    shape = w.shape()
    s, name = w.scope(variables(shape)), w.fresh()
    v = right_side(w, s)
    w.items.append(f"{left_side(name, s.extents)} = {v.text}{where(w, s)}")
    w.add(name, v, shape, v.magnitude)


def reduction(w: Writer) -> None:
    shape, name = w.shape(2), w.fresh()
    reduced = variables(w.shape(2) or (var(w.sizes[0]),), "kp")
    left = variables(shape)
    s = w.scope({**left, **reduced})
    op, v, magnitude = operator(w, right_side(w, s))
    w.items.append(f"{left_side(name, left)} {op}! {v.text}{where(w, s)}")
    w.add(name, v, shape, magnitude)


def contraction(w: Writer) -> None:
    """A product of two tensors over what they share."""
    a, b = (w.rng.choice([*w.inputs, *w.made]) for _ in range(2))
    letters: dict[str, Index] = {}
    reads = []
    for t in (a, b):
        names = []
        for e in t.shape:
            free = [v for v, x in letters.items() if x == e and v not in names]
            v = w.rng.choice(free) if free and w.chance(0.7) else "ijlmnopq"[len(letters)]
            letters[v] = e
            names.append(v)
        reads.append(left_side(t.name, names))
    left = [v for v in letters if w.chance(0.6)]
    w.rng.shuffle(left)
    w.points.append(tuple(letters.values()))
    name = w.fresh()
    product = f"float32({reads[0]}) * float32({reads[1]})"
    term = Value(product, DType.FLOAT32, a.magnitude * b.magnitude)
    if a.dtype is b.dtype and a.dtype is not DType.BOOL:
        term = tame(Value(f"({reads[0]} * {reads[1]})", a.dtype, term.magnitude))
    w.items.append(f"{left_side(name, left)} +=! {term.text}")
    w.add(name, term, tuple(letters[x] for x in left), term.magnitude * 100)


def window(w: Writer) -> None:
    """Convolution or pooling with strides and dilation, inferred or with ranges."""
    long = [t for t in [*w.inputs, *w.made] if t.shape and t.dtype is not DType.BOOL]
    if not long:
        return pointwise(w)
    x = w.rng.choice(long)
    n, stride, dilation, width = x.shape[0], *(w.rng.randint(1, 3) for _ in range(3))
    rest = variables(x.shape[1:], "lmn")
    steps = [f"{stride} * i" if stride > 1 else "i", f"{dilation} * k" if dilation > 1 else "k"]
    read = left_side(x.name, [" + ".join(steps), *rest])
    extent = floordiv(n - dilation * (width - 1) - 1, stride) + 1
    name, v = w.fresh(), Value(read, x.dtype, x.magnitude)
    op, v, magnitude = operator(w, v)
    ranges = [f"k in 0:{width}"] + ([f"i in 0:{extent}"] if w.chance(0.2) else [])
    w.items.append(f"{left_side(name, ['i', *rest])} {op}! {v.text} where {', '.join(ranges)}")
    return w.add(name, v, (extent, *x.shape[1:]), magnitude)


def resampled(w: Writer) -> None:
    """`/` and `%` in subscripts: repetition, rotation, splitting an index."""
    flat = [t for t in [*w.inputs, *w.made] if len(t.shape) == 1]
    if not flat:
        return pointwise(w)
    x, c, name = w.rng.choice(flat), w.rng.randint(2, 3), w.fresh()
    n = x.shape[0]
    forms: list[tuple[str, Index]] = [
        (f"i / {c}", c * n),
        (f"i % ({n})", c * n),
        (f"(i + {c}) % ({n})", n),
        (f"min(i, {n} - 1)", n),
        (f"max(i - {c}, 0)", n),
        (f"(i < {n} ? i : i - ({n}))", c * n - n + (2 - c) * n),
    ]
    subscript, extent = w.rng.choice(forms)
    v = Value(f"{x.name}({subscript})", x.dtype, x.magnitude)
    w.items.append(f"{name}(i) = {v.text} where i in 0:{extent}")
    return w.add(name, v, (extent,), v.magnitude)


def stencil(w: Writer) -> None:
    shape = w.shape()
    s, name = w.scope(variables(shape)), w.fresh()
    v = shifted_read(s)
    for _ in range(w.rng.randint(0, 2)):
        other = shifted_read(s)
        dtype = other.dtype if holds(other.dtype, v.dtype) else v.dtype
        text = f"({converted(v, dtype).text} + {converted(other, dtype).text})"
        v = tame(Value(text, dtype, v.magnitude + other.magnitude))
    w.items.append(f"{left_side(name, s.extents)} = {v.text}{where(w, s)}")
    w.add(name, v, shape, v.magnitude)


def update(w: Writer) -> None:
    """In place: an existing tensor from itself, wholly or in part, or accumulated into."""
    if not w.made:
        return pointwise(w)
    t = w.rng.choice(w.made)
    s = w.scope(variables(t.shape))
    v = converted(tame(right_side(w, s)), t.dtype)
    left = list(s.extents)
    form = w.rng.randrange(4)
    if form == 0 and t.dtype.is_float:
        op, v, _ = operator(w, v)
        w.items.append(f"{left_side(t.name, left)} {op} {v.text}{where(w, s)}")
    elif form == 1 and left and t.dtype is not DType.BOOL:
        mirrored = [f"{t.shape[0]} - 1 - i", *left[1:]]
        s.anchored = set(left[1:])
        text = f"{left_side(t.name, mirrored)}{where(w, s)}"
        w.items.append(f"{left_side(t.name, left)} = {text}")
    elif form == 2 and left:
        low, high = w.rng.choice([("0", "1"), ("1", f"{t.shape[0]}"), ("0", f"({t.shape[0]}) / 2")])
        s.anchored.add("i")
        text = where(w, s, f"i in {low}:{high}").replace(f"i in 0:{t.shape[0]}, ", "")
        w.items.append(f"{left_side(t.name, left)} = {v.text}{text}")
    else:
        w.items.append(f"{left_side(t.name, left)} = {v.text}{where(w, s)}")
    grown = replace(t, magnitude=t.magnitude + 100 * v.magnitude)
    return w.made.__setitem__(w.made.index(t), grown)


def fixed(w: Writer) -> None:
    """A fixed position of an existing tensor (an error where its extent is zero)."""
    ready = [t for t in w.made if t.shape]
    if not ready:
        return pointwise(w)
    t = w.rng.choice(ready)
    rest = variables(t.shape[1:], "jlm")
    s = w.scope(rest)
    v = converted(tame(right_side(w, s, 1)), t.dtype)
    place = w.rng.choice(["0", f"{t.shape[0]} - 1"])
    return w.items.append(f"{left_side(t.name, [place, *rest])} = {v.text}{where(w, s)}")


def let(w: Writer) -> None:
    shape = w.shape()
    s, name = w.scope(variables(shape)), w.fresh()
    bound, v = number(s, 1), number(s, 1)
    dtype = bound.dtype if holds(bound.dtype, v.dtype) else v.dtype
    used = converted(replace(bound, text="v"), dtype)
    text = f"({converted(v, dtype).text} {w.rng.choice('+-*')} {used.text}) - {used.text}"
    magnitude = (v.magnitude + 1) * (bound.magnitude + 1)
    clauses = where(w, s, f"v = {bound.text}")
    w.items.append(f"{left_side(name, s.extents)} = {text}{clauses}")
    w.add(name, Value(text, dtype, magnitude), shape, magnitude)


def exists(w: Writer) -> None:
    ranked = [t for t in w.inputs if t.shape]
    t = w.rng.choice(ranked)
    extents = variables(t.shape)
    s, name = w.scope(extents), w.fresh()
    s.anchored.update(extents)
    v = right_side(w, s, 1)
    extra = f"exists {left_side(t.name, extents)}"
    w.items.append(f"{left_side(name, extents)} = {v.text}{where(w, s, extra)}")
    w.add(name, v, t.shape, v.magnitude)


def free_size(w: Writer) -> None:
    """A declared output with a size that only the caller knows."""
    if w.free:
        return pointwise(w)
    w.free.append("F")
    shape, name = (var("F"), *w.shape(1)), w.fresh()
    s = w.scope(variables(shape))
    v = right_side(w, s)
    s.anchored.add("i")
    w.items.append(f"{left_side(name, s.extents)} = {v.text}{where(w, s)}")
    w.declared.add(name)
    return w.add(name, v, shape, v.magnitude)


def widened(w: Writer) -> None:
    """A declared output of a type wider than its right-hand side."""
    shape = w.shape(2)
    s, name = w.scope(variables(shape)), w.fresh()
    v = right_side(w, s)
    wide = w.rng.choice([t for t in DType if holds(t, v.dtype)])
    w.items.append(f"{left_side(name, s.extents)} = {v.text}{where(w, s)}")
    w.declared.add(name)
    w.add(name, replace(v, dtype=wide), shape, v.magnitude)


def halved(w: Writer) -> None:
    """Half types by what they cannot hold: in between, all is float32 (LANGUAGE F7)."""
    kind, shape = w.rng.choice((DType.FLOAT16, DType.BFLOAT16)), w.shape(2)
    s, between = w.scope(variables(shape)), w.fresh()
    v, (large, small) = tame(right_side(w, s)), w.rng.choice([("9e5", "1e-6"), ("1e-9", "1e9")])
    w.items.append(f"{left_side(between, s.extents)} = {kind}({v.text}) * {large}{where(w, s)}")
    w.add(between, Value("", kind, 1.0), shape, float(large))
    s, name = w.scope(variables(shape)), w.fresh()
    read = left_side(between, s.extents)
    term = f"{small} * {read}"
    if w.chance(0.3):
        term = f"sqrt({term} * {term} + 1e-8)"
    w.items.append(f"{left_side(name, s.extents)} = {term}")
    w.add(name, Value("", kind, 1.0), shape, 2.0)


def flattened(w: Writer) -> None:
    """`X(M*i + j)` over a declared tensor of M*N elements."""
    n, m = (var(w.rng.choice(w.sizes)) for _ in range(2))
    s, flat = w.scope({"i": n * m}), w.fresh()
    v = right_side(w, s, 1)
    s.anchored.discard("i")
    w.items.append(f"{flat}(i) = {v.text} where i in 0:{n * m}")
    w.declared.add(flat)
    w.add(flat, v, (n * m,), v.magnitude)
    name = w.fresh()
    w.items.append(f"{name}(i, j) = {flat}({m} * i + j) where i in 0:{n}, j in 0:{m}")
    w.add(name, v, (n, m), v.magnitude)
