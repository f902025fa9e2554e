# SPDX-License-Identifier: Apache-2.0
"""Forms with size parameters: steps, quotients, ranges and loops by them (LANGUAGE F1)."""

from __future__ import annotations

from tcsym.index.expr import Index, floordiv, index, var
from tcsym.types import DType
from tests.fuzz.expressions import Value, number, tame
from tests.fuzz.model import TensorModel
from tests.fuzz.statements import pointwise
from tests.fuzz.writer import Writer, left_side, operator, variables

VALUES = (1, 1, 2, 2, 3, 3, 4, 5, 7, 0)
CALLED = "def {name}({t}(P) X, size S) -> ({t}((P - 1)/S + 1) Y) {{ Y(p) = X(S*p) }}"


def parameter(w: Writer) -> Index:
    """A size parameter, of which there are at most two."""
    known = [n for n in w.given if n not in w.far]
    if len(known) == 2 or (known and w.chance(0.5)):
        return var(w.rng.choice(known))
    w.given.append(f"G{len(known)}")
    return var(w.given[-1])


def _long(w: Writer, rank: int = 0) -> TensorModel | None:
    known = [t for t in [*w.inputs, *w.made] if t.shape and t.dtype is not DType.BOOL]
    fit = [t for t in known if len(t.shape) == rank or not rank]
    return w.rng.choice(fit) if fit else None


def stepped(w: Writer) -> None:
    """Windows with steps and dilations that the call gives, inferred or with ranges."""
    x = _long(w)
    if x is None:
        return pointwise(w)
    n, width = x.shape[0], w.rng.randint(1, 3)
    step, dilation = w.rng.choice(
        [
            (parameter(w), index(w.rng.randint(1, 2))),
            (index(w.rng.randint(1, 3)), parameter(w)),
            (parameter(w), parameter(w)),
        ]
    )
    rest = variables(x.shape[1:], "lmn")
    read = left_side(x.name, [f"{step} * i + {dilation} * k", *rest])
    extent = floordiv(n - dilation * (width - 1) - 1, step) + 1
    name = w.fresh()
    op, v, magnitude = operator(w, Value(read, x.dtype, x.magnitude))
    ranges = [f"k in 0:{width}"] + ([f"i in 0:{extent}"] if w.chance(0.3) else [])
    w.items.append(f"{left_side(name, ['i', *rest])} {op}! {v.text} where {', '.join(ranges)}")
    return w.add(name, v, (extent, *x.shape[1:]), magnitude)


def resampled(w: Writer) -> None:
    """Quotients and remainders by a size in subscripts."""
    x = _long(w, 1)
    if x is None:
        return stepped(w)
    g, n, name = parameter(w), x.shape[0], w.fresh()
    forms: list[tuple[str, Index]] = [
        (f"i / {g}", n * g),
        (f"(i + {g}) % ({n})", n),
        (f"min({g} * i, {n} - 1)", n),
        (f"max(i - {g}, 0)", n),
        (f"(i % {g} < 2 ? i : 0)", n),
        (f"{g} * i", floordiv(n, g)),
    ]
    subscript, extent = w.rng.choice(forms)
    v = Value(f"{x.name}({subscript})", x.dtype, x.magnitude)
    w.items.append(f"{name}(i) = {v.text} where i in 0:{extent}")
    return w.add(name, v, (extent,), v.magnitude)


def blocks(w: Writer) -> None:
    """Ranges of reductions that are multiples, quotients and remainders by a size."""
    x = _long(w)
    if x is None:
        return pointwise(w)
    g, n, name = parameter(w), x.shape[0], w.fresh()
    rest = variables(x.shape[1:], "lmn")
    whole = floordiv(n + g - 1, g)
    ranges, extent = w.rng.choice(
        [
            (f"i in 0:{whole}, k in {g}*i:min({g}*i + {g}, {n})", whole),
            (f"i in 0:{n}, k in 0:i/{g} + 1", n),
            (f"i in 0:{n}, k in i % {g}:i + 1", n),
            (f"i in 0:{n}, k in max(i - {g}, 0):i + 1", n),
            (f"i in 0:{g}, k in i:{n}", g),
        ]
    )
    read = Value(left_side(x.name, ["k", *rest]), x.dtype, x.magnitude)
    op, v, magnitude = operator(w, read)
    w.items.append(f"{left_side(name, ['i', *rest])} {op}! {v.text} where {ranges}")
    w.points.append((extent, n, *rest.values()))
    return w.add(name, v, (extent, *rest.values()), magnitude)


def spread(w: Writer) -> None:
    """Positions on the left that a size moves."""
    i, k, g = var(w.rng.choice(w.sizes)), var(w.rng.choice(w.sizes)), parameter(w)
    s = w.scope({"i": i, "k": k})
    op, v, magnitude = operator(w, tame(number(s, 1)))
    name = w.fresh()
    text = f"{name}({g}*i + k) {op}! {v.text} where i in 0:{i}, k in 0:{k}"
    w.items.append(text)
    w.declared.add(name)
    return w.add(name, v, (g * i + k,), magnitude)


def loop(w: Writer) -> None:
    """A loop whose bound, positions or conditions a size divides or multiplies."""
    n, g, name = var(w.rng.choice(w.sizes)), parameter(w), w.fresh()
    s = w.scope({"i": n})
    first = f"sin(float32({tame(number(s, 1)).text}))"
    w.items.append(f"{name}(i) = {first} where i in 0:{n}")
    body = w.rng.choice(
        [
            f"for t in 0:{n}/{g} {{\n"
            f"  {name}({g}*t) = 0.5 * {name}({n} - 1 - {g}*t) + float32(t)\n}}",
            f"for t in {n} {{\n  if t % {g} == 0 {{\n    {name}(t) = 0.5 - {name}(t)\n  }} "
            f"else {{\n    {name}(t) = 0.5 * {name}(t - 1) + {name}(t)\n  }}\n}}",
            f"for t in {g} {{\n  {name}(i) = 0.5 * {name}(i) + float32(t)\n}}",
            f"for t in 0:{n}/{g} {{\n  {name}(i) = i / {g} == t ? 2 * {name}(i) : {name}(i)\n}}",
        ]
    )
    w.items.append(body)
    w.declared.add(name)
    return w.add(name, Value("", DType.FLOAT32, 1.0), (n,), 40.0)


def call(w: Writer) -> None:
    """A def that takes a size, of which the argument is an expression of sizes."""
    x = _long(w, 1)
    if x is None:
        return pointwise(w)
    g, helper, name = parameter(w), f"every_{len(w.helpers)}", w.fresh()
    step = w.rng.choice([g, 2 * g, g + 1, index(2), g * var(w.rng.choice(w.sizes))])
    w.helpers.append(CALLED.format(name=helper, t=x.dtype))
    w.items.append(f"{name} = {helper}({x.name}, {step})")
    extent = floordiv(x.shape[0] - 1, step) + 1
    return w.add(name, Value("", x.dtype, 1.0), (extent,), x.magnitude)
