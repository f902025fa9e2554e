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
    dtype_of,
)


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
    yield from _Chain(wanted).of(value, gradient, result, TRUTH)


class _Chain(Struct, frozen=True):
    wanted: Callable[[Read], bool]

    def of(self, e: Expr, g: Expr, result: Expr, guard: Expr) -> Iterator[Contribution]:
        if not dtype_of(e).is_float or not self.is_active(e):
            return
        match e:
            case Const() | IndexValue() | Compare():
                return
            case Read():
                yield Contribution(e, g, guard)
            case Cast(x, _):
                yield from self.of(x, converted(g, dtype_of(x).accumulator), x, guard)
            case Unary(_, x, _):
                yield from self.of(x, negative(g), x, guard)
            case Binary():
                yield from self._binary(e, g, result, guard)
            case Select(c, a, b, _):
                yield from self.of(a, g, result, both(guard, c))  # where c holds, a is the result
                yield from self.of(b, g, result, both(guard, negation(c)))
            case Call("log", (x,), dtype) if (exponent := logistic(x)) is not None:
                one = constant(1.0, dtype)
                rest = subtract(one, divide(one, x))
                yield from self.of(exponent, multiply(g, rest), exponent, guard)
            case Call(_, args, _):
                for x, partial in zip(args, partials(e, result), strict=True):
                    if partial is not None and self.is_active(x):
                        yield from self.of(x, multiply(g, partial), x, guard)
            case _:
                assert_never(e)

    def is_active(self, e: Expr) -> bool:
        if not dtype_of(e).is_float:
            return False
        match e:
            case Read():
                return self.wanted(e)
            case Const() | IndexValue() | Compare():
                return False
            case Cast(x, _) | Unary(_, x, _):
                return self.is_active(x)
            case Binary(_, a, b, _) | Select(_, a, b, _):
                return self.is_active(a) or self.is_active(b)
            case Call(_, args, _):
                return any(map(self.is_active, args))
            case _:
                assert_never(e)

    def _binary(self, e: Binary, g: Expr, result: Expr, guard: Expr) -> Iterator[Contribution]:
        a, b = e.left, e.right
        exponent = logistic(b) if e.op == "div" else None
        if exponent is not None and self.is_active(exponent):
            # exp(u) / (1 + exp(u)) without infinity over infinity
            rest = subtract(constant(1.0, e.dtype), reciprocal(e, result))
            yield from self.of(a, divide(g, b), a, guard)
            inner = negative(multiply(multiply(g, result), rest))
            yield from self.of(exponent, inner, exponent, guard)
            return
        for x, partial in ((a, _by_left(e, g, result)), (b, _by_right(e, g, result))):
            if self.is_active(x):
                yield from self.of(x, partial(), x, guard)


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
