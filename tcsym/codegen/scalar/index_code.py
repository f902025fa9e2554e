# SPDX-License-Identifier: Apache-2.0
"""Index expressions and conditions -> i64 arithmetic, scalar or one value a lane.

A `Number` is a Python int where the value is known (unrolled variables), else a register. Sums are
formed outer loops first, so that LLVM keeps their invariant part outside. 64-bit arithmetic wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import assert_never

from tcsym.codegen.scalar.arithmetic import floor_divide, floor_modulo
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.least import least
from tcsym.codegen.scalar.values import Code, Val, bits_of, constant
from tcsym.index.expr import (
    All,
    Any_,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
    condition_variables,
    of_atom,
)

Number = int | Val
_INNERMOST = 1 << 30


def as_val(n: Number, kind: str = "i64") -> Val:
    return constant(n, kind) if isinstance(n, int) else n


def alike(code: Code, a: Number, b: Number, kind: str = "i64") -> tuple[Val, Val]:
    """Both of one kind, the wider one. kind: if neither has one."""
    x, y = (n.kind if isinstance(n, Val) else "" for n in (a, b))
    kind = max(x, y) or kind  # "i32" < "i64"
    return widened(code, as_val(a, kind), kind), widened(code, as_val(b, kind), kind)


def widened(code: Code, a: Val, kind: str = "i64") -> Val:
    """An index of a kind that is not narrower."""
    return a if a.kind == kind else code.convert("sext", a, kind)


@lru_cache(maxsize=4096)
def atom_variables(atom: Atom) -> frozenset[str]:
    return of_atom(atom).variables()


def depth_of(context: Context, atom: Atom) -> int:
    """Number of loops an atom varies with; the lane variable counts as innermost."""
    if isinstance(atom, str):
        return _INNERMOST if atom == context.lane_variable else context.variables[atom].depth
    depth = 0
    for name in atom_variables(atom):
        if name == context.lane_variable:
            return _INNERMOST
        depth = max(depth, context.variables[name].depth)
    return depth


# ---- arithmetic on numbers


def add(code: Code, a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    return a if b == 0 else code.binary("add", *alike(code, a, b))


def multiply(code: Code, a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 0 or b == 0:
        return 0
    if a == 1:
        return b
    if b == 1:
        return a
    if isinstance(a, int):
        a, b = b, a
    return code.binary("mul", *alike(code, a, b))


def smallest(code: Code, a: Number, b: Number, op: str = "smin") -> Number:
    """Minimum (or with op="smax" the maximum) of two numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b) if op == "smin" else max(a, b)
    return code.intrinsic(op, *alike(code, a, b))


# ---- expressions


@lru_cache(maxsize=16384)
def names_of(e: Index) -> tuple[str, ...]:
    """Its variables, in a fixed order."""
    return tuple(sorted(e.variables()))


def number(context: Context, e: Index) -> Number:
    """The value of `e` here."""
    if not e.terms:
        return e.constant
    bounds = context.bounds(names_of(e))
    key = ("number", e, bounds, context.width)
    f = context.function
    with f.at(max([b.depth for b in bounds if b is not None], default=0)):
        known: Number | None = f.recall(key)
        if known is None:
            known = linear(context, e.terms, e.constant)
            f.remember(key, known)
    return known


def names_depth(context: Context, names: Iterable[str]) -> int:
    """Number of loops that values of these variables depend on (lanes are constants)."""
    bounds = [context.variables.get(n) for n in names]
    return max([b.depth for b in bounds if b is not None], default=0)


def linear(context: Context, terms: tuple[tuple[Atom, int], ...], start: int) -> Number:
    """start + sum(coefficient * atom), outer loops first."""
    if len(terms) > 1:
        terms = tuple(sorted(terms, key=lambda t: depth_of(context, t[0])))
    code, total = context.code, start
    sum_: Number = 0
    for atom, coefficient in terms:
        with context.function.at(depth_of(context, atom)):
            value, offset = atom_value(context, atom)
            total += coefficient * offset
            if isinstance(value, int):
                total += coefficient * value
            else:
                sum_ = add(code, sum_, multiply(code, value, coefficient))
    return add(code, sum_, total)


def atom_value(context: Context, atom: Atom) -> tuple[Number, int]:
    """A number and a constant to be added to it."""
    if isinstance(atom, str):
        if atom == context.lane_variable:
            return context.code.lane_numbers(context.width, "i64"), 0
        bound = context.variables[atom]
        if bound.text is None:
            return bound.offset, 0
        return Val(bound.text, bound.kind), bound.offset
    given = context.formulas.get(atom)
    if given is not None:
        return given, 0
    f = context.function
    key = ("atom", atom, context.bounds(tuple(atom_variables(atom))), context.width)
    known: Number | None = f.recall(key)
    if known is None:
        known = _compound(context, atom)
        f.remember(key, known)
    return known, 0


def _compound(context: Context, atom: Product | FloorDiv | Mod | Min | Max | Choose) -> Number:
    match atom:
        case Product(factors):
            ordered = sorted(factors, key=lambda f: depth_of(context, f))
            value: Number = 1
            for f in ordered:
                value = multiply(context.code, value, number(context, of_atom(f)))
            return value
        case FloorDiv(a, b):
            return _divided(context, a, b, floor_divide)
        case Mod(a, b):
            return _divided(context, a, b, floor_modulo)
        case Min(args) | Max(args):
            op = "smin" if isinstance(atom, Min) else "smax"
            value = number(context, args[0])
            for x in args[1:]:
                value = smallest(context.code, value, number(context, x), op)
            return value
        case Choose(c, a, b):
            held = condition(context, c)
            if isinstance(held, bool):
                return number(context, a if held else b)
            arms = number(context, a), number(context, b)
            return context.code.select(held, *alike(context.code, *arms, context.index_kind))
        case _:
            assert_never(atom)


def _divided(
    context: Context, dividend: Index, divisor: Index, divide: Callable[..., Val]
) -> Number:
    """`floor_divide` or `floor_modulo`, without what signs make needless."""
    a, b = number(context, dividend), number(context, divisor)
    if isinstance(a, int) and isinstance(b, int):
        return (a // b if divide is floor_divide else a % b) if b else 0
    if b == 0:
        return 0
    top, by = least(context, dividend), least(context, divisor)
    signed = top is None or top < 0 or by is None or by < 0
    return divide(context.code, *alike(context.code, a, b), signed, by)


# ---- conditions


def condition(context: Context, c: Condition) -> bool | Val:
    """Truth of `c` here: known, an i1, or a mask."""
    with context.function.at(names_depth(context, condition_variables(c))):
        return _condition(context, c)


def _condition(context: Context, c: Condition) -> bool | Val:
    match c:
        case NonNegative(i):
            if context.lane_variable in i.variables():
                return _lanes_at_least_zero(context, i)
            return _related(context, i, "sge")
        case IsZero(i):
            if context.lane_variable in i.variables():
                return _lanes_related(context, i, "eq")
            return _related(context, i, "eq")
        case Not(inner):
            held = condition(context, inner)
            return not held if isinstance(held, bool) else context.code.not_(held)
        case All(cs) | Any_(cs):
            return _connected(context, cs, isinstance(c, All))
        case _:
            assert_never(c)


def _connected(context: Context, conditions: tuple[Condition, ...], every: bool) -> bool | Val:
    held: bool | Val = every
    for c in sorted(conditions, key=lambda x: context.lane_variable in condition_variables(x)):
        part = condition(context, c)
        if isinstance(part, bool):
            if part != every:
                return part
        elif isinstance(held, bool):
            held = part
        else:
            held = context.code.binary("and" if every else "or", held, part)
    return held


def _related(context: Context, i: Index, relation: str) -> bool | Val:
    """Compare the positive part with the negative one, which cannot overflow by subtraction; that
    a >= b + 1 is a > b."""
    strict = relation == "sge" and i.constant == -1
    apart, relation = (0, "sgt") if strict else (i.constant, relation)
    left = linear(context, tuple(t for t in i.terms if t[1] > 0), max(apart, 0))
    negative = tuple((a, -c) for a, c in i.terms if c < 0)
    right = linear(context, negative, max(-apart, 0))
    if isinstance(left, int) and isinstance(right, int):
        return left == right if relation == "eq" else left - strict >= right
    return context.code.compare(f"icmp {relation}", *alike(context.code, left, right))


# ---- masks


def mask_kind(context: Context) -> str:
    """Integer type in which lane numbers are compared: one vector register if possible."""
    bits = context.machine.vector_bits // context.width if context.machine.vector_bits else 32
    least = 8 if context.width <= 64 else 16
    return f"i{max(least, min(64, bits))}"


def lanes_under(context: Context, limit: Index) -> Val | bool:
    """Lanes with a number < limit."""
    with context.function.at(names_depth(context, names_of(limit))):
        return lanes_below(context, number(context, limit))


def active_under(context: Context, limit: Index) -> Val:
    """How many lanes have a number < limit."""
    with context.function.at(names_depth(context, names_of(limit))):
        return as_val(_active(context, number(context, limit)))


def _active(context: Context, limit: Number) -> Number:
    return smallest(context.code, smallest(context.code, limit, 0, "smax"), context.width)


def lanes_below(context: Context, limit: Number) -> Val | bool:
    """Lanes with a number < limit."""
    width = context.width
    if isinstance(limit, int):
        if limit >= width or limit <= 0:
            return limit > 0
        return _lane_mask(context, constant(limit, mask_kind(context)))
    inside = as_val(_active(context, limit))
    return _lane_mask(context, context.code.convert("trunc", inside, mask_kind(context)))


def _lane_mask(context: Context, limit: Val) -> Val:
    numbers = context.code.lane_numbers(context.width, limit.kind)
    return context.code.compare("icmp slt", numbers, limit)


def lanes_beyond(context: Context, limit: Val, at: int) -> Val:
    """All lanes if at < limit, else none (at < lanes); compared in lanes, like other masks."""
    inside = context.code.convert("trunc", as_val(_active(context, limit)), mask_kind(context))
    spread = context.code.spread(inside, context.width)
    return context.code.compare("icmp sgt", spread, constant(at, inside.kind))


def _lanes_at_least_zero(context: Context, i: Index) -> bool | Val:
    """base + lane >= 0 or base - lane >= 0 by comparing lane numbers with a scalar limit."""
    lane = context.lane_variable
    rest = tuple(t for t in i.terms if t[0] != lane)
    step = next((c for a, c in i.terms if a == lane), 0)
    if abs(step) != 1 or any(lane in atom_variables(a) for a, _ in rest):
        return _lanes_related(context, i, "sge")
    if step < 0:  # lane < base + 1
        return lanes_below(context, linear(context, rest, i.constant + 1))
    negated = tuple((a, -c) for a, c in rest)  # not lane < -base
    below = lanes_below(context, linear(context, negated, -i.constant))
    return not below if isinstance(below, bool) else context.code.not_(below)


_FAR = 1 << 30


def _lanes_related(context: Context, i: Index, relation: str) -> bool | Val:
    """base + step * lane >= 0, or == 0, in lanes of 32 bits: where the base is far from 0, no lane
    makes a difference, so that it may as well be nearer."""
    lane, code = context.lane_variable, context.code
    rest = tuple(t for t in i.terms if t[0] != lane)
    step = next((c for a, c in i.terms if a == lane), 0)
    moves = any(lane in atom_variables(a) for a, _ in rest)
    if moves or abs(step) * context.width >= _FAR:
        return _related(context, i, relation)
    base = linear(context, rest, i.constant)
    near = as_val(smallest(code, smallest(code, base, -_FAR, "smax"), _FAR))
    if bits_of(near.kind) > 32:
        near = (
            constant(int(near.text), "i32")
            if near.is_constant
            else code.convert("trunc", near, "i32")
        )
    numbers = code.lane_numbers(context.width, "i32")
    along = code.binary("mul", numbers, constant(step, "i32")) if step != 1 else numbers
    total = code.binary("add", near, along)
    return code.compare(f"icmp {relation}", total, constant(0, "i32"))
