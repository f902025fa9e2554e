# SPDX-License-Identifier: Apache-2.0
"""Rows of positions of which some are none, behind guards."""

from __future__ import annotations

from tcsym.index.expr import Index, index, var
from tcsym.types import DType
from tests.fuzz.expressions import Scope, Value, tame
from tests.fuzz.model import TensorModel
from tests.fuzz.statements import pointwise
from tests.fuzz.writer import Writer, converted, left_side, operator, right_side, variables, where

IDENTITIES = {"+=": "0", "*=": "1"}


def gathered(w: Writer) -> None:
    """Elements at the positions that there are, pointwise or summed."""
    found = _table(w)
    if found is None:
        return pointwise(w)
    q, table = found
    at, rest = _moving(w, q), variables(table.shape[1:], "jlm")
    s = w.scope({**at, **rest})
    v = _of_table(w, s, q, table, [*at], [*rest])
    name = w.fresh()
    if w.chance(0.4):
        left = {**at, **rest}
        w.items.append(f"{left_side(name, left)} = {_chosen(w, q, table, at, v)}{_where(w, s)}")
        return w.add(name, v, tuple(left.values()), v.magnitude + 1)
    kept = {x: n for x, n in {**at, **rest}.items() if x in rest or w.chance(0.4)}
    op, v, magnitude = operator(w, v)
    w.items.append(f"{left_side(name, kept)} {op}! {_chosen(w, q, table, at, v)}{_where(w, s)}")
    return w.add(name, v, tuple(kept.values()), magnitude)


def scattered(w: Writer) -> None:
    """Terms at the positions that there are; elsewhere they are what changes nothing."""
    found = _table(w)
    if found is None:
        return pointwise(w)
    q, table = found
    at, rest = _moving(w, q), variables(w.shape(1), "jlm")
    s = w.scope({**at, **rest})
    op = w.rng.choice(["+=", "+=", "+=", "*="])
    v = tame(right_side(w, s, w.rng.choice([0, 1, 2])))
    v = Value(f"cos(float32({v.text}))", DType.FLOAT32, 1.0) if op == "*=" else v
    if v.dtype is DType.BOOL:
        v = Value(f"int32({v.text})", DType.INT32, 1.0)
    name, extent = w.fresh(), table.shape[0]
    term = _chosen(w, q, table, at, v, IDENTITIES[op])
    left = [left_side(q.name, [*at]), *rest]
    w.items.append(f"{left_side(name, left)} {op}! {term}{_where(w, s)}")
    w.declared.add(name)
    return w.add(name, v, (extent, *rest.values()), v.magnitude * 40)


def steps(w: Writer) -> None:
    """A state that goes on where there is a position, and stays as it was elsewhere."""
    found = _table(w)
    if found is None:
        return pointwise(w)
    q, table = found
    n, name, rest = q.shape[0], w.fresh(), variables(table.shape[1:], "jlm")
    at = ["t", *(["0"] if len(q.shape) > 1 else [])]
    place = left_side(q.name, at)
    read = left_side(table.name, [place, *rest])
    old, new = (left_side(name, [t, *rest]) for t in ("t", "t + 1"))
    s = w.scope({**rest, "t": n})
    ranges = where(w, s, loop="t")
    guard = f"{place} >= 0 && {place} < {table.shape[0]}"
    if len(q.shape) > 1:
        guard = f"{q.shape[1]} > 0 && {guard}"
    w.items.append(f"{left_side(name, ['0', *rest])} = 0.5{where(w, w.scope(rest))}")
    step = f"{guard} ? 0.5 * {old} + cos(float32({read})) : {old}"
    w.items.append(f"for t in {n} {{\n  {new} = {step}{ranges}\n}}")
    w.declared.add(name)
    return w.add(name, Value("", DType.FLOAT32, 3.0), (n + 1, *rest.values()), 3.0)


# ---- parts


def _table(w: Writer) -> tuple[TensorModel, TensorModel] | None:
    """Positions, and a tensor that has rows."""
    padded = [t for t in w.inputs if t.padded is not None]
    tables = [t for t in [*w.inputs, *w.made] if t.shape and t not in padded]
    if not padded or not tables:
        return None
    q = w.rng.choice(padded)
    fit = [t for t in tables if t.shape[0] == q.padded]
    return q, w.rng.choice(fit or tables)


def _moving(w: Writer, q: TensorModel) -> dict[str, Index]:
    return variables(q.shape, "xyzu")


def _of_table(
    w: Writer, s: Scope, q: TensorModel, table: TensorModel, at: list[str], rest: list[str]
) -> Value:
    read = left_side(table.name, [left_side(q.name, at), *rest])
    x = tame(Value(read, table.dtype, table.magnitude))
    if x.dtype is DType.BOOL:
        return Value(f"int32({x.text})", DType.INT32, 1.0)
    more = converted(tame(right_side(w, s, 1)), x.dtype)
    if more.dtype is not x.dtype or w.chance(0.3):
        return x
    sign = w.rng.choice(["+", "*"]) if x.magnitude * more.magnitude < 1e4 else "+"
    size = x.magnitude * more.magnitude if sign == "*" else x.magnitude + more.magnitude
    return Value(f"({x.text} {sign} {more.text})", x.dtype, size)


def _chosen(
    w: Writer, q: TensorModel, table: TensorModel, at: dict[str, Index], v: Value, other: str = "0"
) -> str:
    """The value where there is a position, in one of the ways that say it."""
    if v.dtype.is_integer and v.dtype.bits < 32:  # beside which a literal stays int32
        other = f"{v.dtype}({other})"
    place, extent = left_side(q.name, [*at]), table.shape[0]
    inside = f"{place} >= 0 && {place} < {extent}"
    if q.padded == extent and w.chance(0.6):
        inside = f"{place} >= 0"
    match w.rng.randrange(5):
        case 0:
            outside = " || ".join(_negated(x) for x in inside.split(" && "))
            return f"({outside} ? {other} : {v.text})"
        case 1:
            first, *more = inside.split(" && ")
            nested = f"({' && '.join(more)} ? {v.text} : {other})" if more else v.text
            return f"({first} ? {nested} : {other})"
    return f"({inside} ? {v.text} : {other})"


def _negated(comparison: str) -> str:
    return comparison.replace(">=", "<") if ">=" in comparison else comparison.replace("<", ">=")


def _where(w: Writer, s: Scope) -> str:
    """All ranges are said: what is read under a guard may not say them."""
    s.anchored.clear()
    return where(w, s)


def padded_input(w: Writer) -> TensorModel:
    """int32(N) or int32(N, M) of positions in 0:K, and -1 where there is none."""
    shape = tuple(var(w.rng.choice(w.sizes)) for _ in range(w.rng.choice([1, 1, 2])))
    bound = w.rng.choice([var(w.rng.choice(w.sizes)), index(3)])
    dtype = w.rng.choice([DType.INT32, DType.INT32, DType.INT64, DType.INT16])
    return TensorModel("Q", dtype, shape, 100.0, padded=bound)
