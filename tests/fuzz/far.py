# SPDX-License-Identifier: Apache-2.0
"""Forms with sizes that are far from those of arrays: guards hold subscripts off, ranges end early,
loops do not run. Calls whose formulas do not fit are refused (LANGUAGE E4)."""

from __future__ import annotations

from tcsym.index.expr import Index, index, minimum, var
from tcsym.types import DType
from tests.fuzz.expressions import Value
from tests.fuzz.model import TensorModel
from tests.fuzz.statements import pointwise
from tests.fuzz.writer import Writer, left_side, operator, variables

NEAR = (0, 1, 2, 3, 7)
VALUES = tuple(
    v + d
    for v in (2**15, 2**16, 2**31, 2**32, 2**40, 2**48, 2**61, 2**62, 2**63 - 1)
    for d in (-1, 0, 1, 3)
    if v + d < 2**63
)


def value(w: Writer) -> int:
    """Mostly far; such programs run with near ones, too."""
    return w.rng.choice(VALUES if w.chance(0.75) else NEAR)


def _parameter(w: Writer) -> str:
    """A size parameter of its own kind, of which there are at most two."""
    if len(w.far) < 2 and not (w.far and w.chance(0.5)):
        w.far.append(f"G{7 + len(w.far)}")
        w.given.append(w.far[-1])
    return w.rng.choice(w.far)


def _place(w: Writer, n: Index, v: str) -> str:
    """A subscript that may lie anywhere, of the variable `v`."""
    f, g, c = _parameter(w), _parameter(w), w.rng.randint(0, 9)
    return w.rng.choice(
        [
            *[f"{f}*{v}", f"{f}*{v} + {c}", f"{f}*{v} - {c}", f"{v} + {f}", f"{f} - {v}"] * 2,
            *[f"{n} - 1 - {f}*{v}", f"({f}*{v} + {c})/{c + 1}", f"{f}*{v} - {g}", f"{c}*{v} - {f}"],
            *[f"{f}*{g}*{v}", f"min({f}, {g})*{v} + {c}", f"{f}/{c + 2}*{v}", f"{f}*({v}/2) + {v}"],
        ]
    )


def _guard(w: Writer, e: str, n: Index) -> str:
    return w.rng.choice(
        [
            f"{e} >= 0 && {e} < {n}",
            f"{e} < {n} && {e} >= 0",
            f"!({e} < 0 || {e} > {n} - 1)",
            f"-1 < {e} && {n} - ({e}) >= 1",
        ]
    )


def _tensor(w: Writer) -> TensorModel | None:
    known = [t for t in [*w.inputs, *w.made] if t.shape and t.dtype is not DType.BOOL]
    return w.rng.choice(known) if known else None


def _extent(w: Writer) -> Index:
    return w.rng.choice([index(w.rng.randint(1, 40)), var(w.rng.choice(w.sizes))])


def guarded(w: Writer) -> None:
    """A read that a guard keeps inside, or a clamp or a remainder."""
    x = _tensor(w)
    if x is None:
        return pointwise(w)
    w.may_fail = True
    rest, n, extent, name = variables(x.shape[1:], "lmn"), x.shape[0], _extent(w), w.fresh()
    e = _place(w, n, "i")
    inside = {
        "min": f"max(min({e}, {n} - 1), 0)",
        "mod": f"({e}) % {n}",
    }
    how = w.rng.choice(["guard", "guard", "guard", *inside])
    read = left_side(x.name, [inside.get(how, e), *rest])
    if how == "guard":
        read = f"({_guard(w, e, n)} ? {read} : {x.dtype}(1))"
    ranges = ", ".join(f"{v} in 0:{m}" for v, m in {"i": extent, **rest}.items())
    w.items.append(f"{left_side(name, ['i', *rest])} = {read} where {ranges}")
    w.points.append((extent, *rest.values()))
    return w.add(name, Value("", x.dtype, 1.0), (extent, *rest.values()), x.magnitude)


def window(w: Writer) -> None:
    """A sum of what lies near a far place, of which little is there."""
    x = _tensor(w)
    if x is None:
        return pointwise(w)
    w.may_fail = True
    rest, n, extent, name = variables(x.shape[1:], "lmn"), x.shape[0], _extent(w), w.fresh()
    e, width = f"{_place(w, n, 'i')} + k", w.rng.randint(1, 4)
    read = f"({_guard(w, e, n)} ? {left_side(x.name, [e, *rest])} : {x.dtype}(0))"
    op, v, magnitude = operator(w, Value(read, x.dtype, x.magnitude))
    known = {"i": extent, **rest, "k": index(width)}
    ranges = ", ".join(f"{v} in 0:{m}" for v, m in known.items())
    w.items.append(f"{left_side(name, ['i', *rest])} {op}! {v.text} where {ranges}")
    w.points.append(tuple(known.values()))
    return w.add(name, v, (extent, *rest.values()), magnitude)


def ranged(w: Writer) -> None:
    """Ranges that end where the tensor does."""
    x = _tensor(w)
    if x is None:
        return pointwise(w)
    w.may_fail = True
    rest, n, extent, name = variables(x.shape[1:], "lmn"), x.shape[0], _extent(w), w.fresh()
    f, g = _parameter(w), _parameter(w)
    ends = w.rng.choice(
        [
            f"min({f}*i, {n}):min({f}*i + {f}, {n})",
            f"max({n} - {f}*i, 0):{n}",
            f"min(i*{f}, {n}):{n}",
            f"min(max({f} - {g}*i, 0), {n}):{n}",
            f"0:min({f}/{g + '*' if w.chance(0.3) else ''}(3), {n})",
        ]
    )
    read = Value(left_side(x.name, ["k", *rest]), x.dtype, x.magnitude)
    op, v, magnitude = operator(w, read)
    ranges = ", ".join(f"{v} in 0:{m}" for v, m in {"i": extent, **rest}.items())
    w.items.append(f"{left_side(name, ['i', *rest])} {op}! {v.text} where {ranges}, k in {ends}")
    w.points.append((extent, n, *rest.values()))
    return w.add(name, v, (extent, *rest.values()), magnitude)


def short(w: Writer) -> None:
    """An extent that is the least of something far."""
    w.may_fail = True
    f, n, name = _parameter(w), var(w.rng.choice(w.sizes)), w.fresh()
    text, extent = w.rng.choice(
        [(f"min({f}, {n})", minimum(var(f), n)), (f"min({f}*3, {n})", minimum(var(f) * 3, n))]
    )
    compared = f"{_place(w, n, 'i')} < {_place(w, n, 'i')}"
    w.items.append(f"{name}(i) = ({compared} ? 1.5 : float32(i)) where i in 0:{text}")
    w.points.append((n,))
    return w.add(name, Value("", DType.FLOAT32, 1.0), (extent,), 40.0)


def steps(w: Writer) -> None:
    """A loop that ends early, with a condition on far positions."""
    w.may_fail = True
    f, n, name = _parameter(w), var(w.rng.choice(w.sizes)), w.fresh()
    e, most = _place(w, n, "t"), w.rng.randint(1, 5)
    w.items.append(f"{name}(i) = float32(i) where i in 0:{n}")
    w.items.append(
        f"for t in min({f}, {most}) {{\n  if {_guard(w, e, n)} {{\n"
        f"    {name}(i) = 0.5 * {name}(i) + {name}({e}) where i in 0:{n}\n  }}\n}}"
    )
    w.declared.add(name)
    return w.add(name, Value("", DType.FLOAT32, 1.0), (n,), 80.0)
