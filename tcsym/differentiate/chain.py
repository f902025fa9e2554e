# SPDX-License-Identifier: Apache-2.0
"""Expression, gradient of its value -> what each read in it contributes: the chain rule.

Ties and kinks are as in torch: of `max(a, b)` and `min(a, b)` each side has half where they are
equal; of `fmax` and `fmin` the first has all; `fabs` has 0 at 0; `c ? a : b` has the side it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.differentiate.algebra import (
    TRUTH,
    both,
    constant,
    converted,
    divide,
    multiply,
    negation,
    negative,
    select,
    subtract,
)
from tcsym.differentiate.functions import partials
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
    children,
    dtype_of,
)
from tcsym.trees import fold, preorder


class Contribution(Struct, frozen=True):
    """`read` gets `gradient` where `guard` holds. `gradient` has the type of the read, widened."""

    read: Read
    gradient: Expr
    guard: Expr = TRUTH

    def times(self, count: int) -> Contribution:
        """So often the same."""
        many = constant(count, dtype_of(self.gradient))
        return replace(self, gradient=multiply(many, self.gradient))


def contributions(
    value: Expr, gradient: Expr, result: Expr, wanted: Callable[[Read], bool]
) -> Iterator[Contribution]:
    """What reads that are `wanted` get of `gradient`, that of `value` (computed in wide types).

    result: an expression with the same value, such as the tensor it was stored to.
    """
    chain = _Chain(value, wanted)
    if not chain.active[id(value)]:
        return
    for flow in preorder(_Flow(value, gradient, result, TRUTH), chain.below):
        if isinstance(flow.e, Read):
            yield Contribution(flow.e, flow.g, flow.guard)


class _Flow(Struct, frozen=True):
    """The gradient `g` of `e`, which is `result`, where `guard` holds."""

    e: Expr
    g: Expr
    result: Expr
    guard: Expr


class _Chain:
    """active: the expressions, by their identity, on which wanted reads have an influence."""

    def __init__(self, value: Expr, wanted: Callable[[Read], bool]) -> None:
        self.active: dict[int, bool] = {}

        def is_active(e: Expr, parts: list[bool]) -> bool:
            found = dtype_of(e).is_float and (wanted(e) if isinstance(e, Read) else any(parts))
            self.active[id(e)] = found
            return found

        fold(value, _smooth_parts, is_active)

    def below(self, flow: _Flow) -> list[_Flow]:
        """What goes on to the parts that are active."""
        return [x for x in self._parts(flow) if self.active[id(x.e)]]

    def _parts(self, flow: _Flow) -> Iterator[_Flow]:
        e, g, result, guard = flow.e, flow.g, flow.result, flow.guard
        match e:
            case Const() | IndexValue() | Compare() | Read():
                return
            case Cast(x, _):
                yield _Flow(x, converted(g, dtype_of(x).accumulator), x, guard)
            case Unary(_, x, _):
                yield _Flow(x, negative(g), x, guard)
            case Binary():
                yield from self._binary(e, flow)
            case Select(c, a, b, _):
                yield _Flow(a, g, result, both(guard, c))  # where c holds, a is the result
                yield _Flow(b, g, result, both(guard, negation(c)))
            case Call("log", (x,), dtype) if (exponent := logistic(x)) is not None:
                one = constant(1.0, dtype)
                rest = subtract(one, divide(one, x))
                yield _Flow(exponent, multiply(g, rest), exponent, guard)
            case Call(_, args, _):
                for x, partial in zip(args, partials(e, result), strict=True):
                    if partial is not None and self.active[id(x)]:
                        yield _Flow(x, multiply(g, partial), x, guard)
            case _:
                assert_never(e)

    def _binary(self, e: Binary, flow: _Flow) -> Iterator[_Flow]:
        a, b, g, result, guard = e.left, e.right, flow.g, flow.result, flow.guard
        exponent = logistic(b) if e.op == "div" else None
        if exponent is not None and self.active[id(exponent)]:
            # exp(u) / (1 + exp(u)) without infinity over infinity
            rest = subtract(constant(1.0, e.dtype), reciprocal(e, result))
            yield _Flow(a, divide(g, b), a, guard)
            inner = negative(multiply(multiply(g, result), rest))
            yield _Flow(exponent, inner, exponent, guard)
            return
        for x, partial in ((a, _by_left(e, g, result)), (b, _by_right(e, g, result))):
            if self.active[id(x)]:
                yield _Flow(x, partial(), x, guard)


def _smooth_parts(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Read() | Compare():
            return ()
        case Select(_, a, b, _):
            return a, b
    return children(e)


def logistic(e: Expr) -> Expr | None:
    """u of `1 + exp(u)`."""
    match e:
        case Binary("add", Const() as one, Call("exp", (u,), _), _) if one.value == 1:
            return u
        case Binary("add", Call("exp", (u,), _), Const() as one, _) if one.value == 1:
            return u
    return None


def reciprocal(e: Binary, result: Expr) -> Expr:
    """1 / b of `a / b`: the result itself if a is 1."""
    one = constant(1.0, e.dtype)
    return result if e.left == one else divide(one, e.right)


def _by_left(e: Binary, g: Expr, result: Expr) -> Callable[[], Expr]:
    match e.op:
        case "add" | "sub" | "mod":
            return lambda: g
        case "mul":
            return lambda: multiply(g, e.right)
        case "div":
            return lambda: divide(g, e.right)
        case _:
            return lambda: multiply(g, _share(e, e.left, e.right))


def _by_right(e: Binary, g: Expr, result: Expr) -> Callable[[], Expr]:
    match e.op:
        case "add":
            return lambda: g
        case "sub":
            return lambda: negative(g)
        case "mul":
            return lambda: multiply(g, e.left)
        case "div":
            return lambda: negative(divide(multiply(g, result), e.right))
        case "mod":
            quotient: Expr = Call("floor", (divide(e.left, e.right),), e.dtype)
            return lambda: negative(multiply(g, quotient))
        case _:
            return lambda: multiply(g, _share(e, e.right, e.left))


def _share(e: Binary, x: Expr, other: Expr) -> Expr:
    """Of a minimum or maximum: 1 where `x` is it, half where both are."""
    one, half, none = (constant(k, e.dtype) for k in (1.0, 0.5, 0.0))
    wins = Compare("lt" if e.op == "min" else "gt", x, other)
    return select(wins, one, select(Compare("eq", x, other), half, none))
