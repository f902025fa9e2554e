# SPDX-License-Identifier: Apache-2.0
"""Plans as data: a few directives that print, parse, and are carried out by `apply`.

    split m block tile:8 reg:6; split n panel tile:64 reg:2 lane:8; split k unroll:4
    order m.block n.panel m.tile n.tile
    stage B at n.panel order n.tile k n.reg n.lane

is a product of matrices in register tiles over packed panels. Loops have names that follow from
the plan: what `split n .. lane:8` makes is `n.lane`. Sizes are numbers, or formulas in the sizes of
the program: `tile:max(8,4096/K)`.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeVar, get_args

from msgspec import Struct

from tcsym.index.expr import (
    TRUE,
    Condition,
    Index,
    all_of,
    eq,
    floordiv,
    index,
    maximum,
    minimum,
    mod,
    var,
)

End = Literal["mask", "half", "overlap", "peel"]
As = Literal["plain", "turned"]
W = TypeVar("W")
POINTS = ("reg", "lane")  # parts that are registers and lanes, which sink into every statement


class Refused(Exception):
    """A directive that cannot be carried out, and why."""


class Split(Struct, frozen=True):
    """A loop becomes one for each part, from outside in; the first has no size of its own.

    `reg` is unrolled, `lane` a vector, any other a loop that counts what is inside of it. The only
    part `unroll` repeats the body of the loop as it is. end: what becomes of the ragged last tile.
    """

    axis: str
    parts: tuple[tuple[str, Index | None], ...]
    end: End = "mask"


class Order(Struct, frozen=True):
    """The loops of the band, from outside in; its points sink into every statement."""

    axes: tuple[str, ...]


class Merge(Struct, frozen=True):
    """Neighbouring loops of the band become one, with the name of the first."""

    axes: tuple[str, ...]


class Combine(Struct, frozen=True):
    """Sums along a loop are taken for each of its points, and these are added behind it.

    at: or for each of its iterations, in front of that loop, which adds them.
    """

    axis: str
    at: str | None = None


class Stage(Struct, frozen=True):
    """What reads of the operand need inside the loop `at` is copied at its start.

    order: the copy's dimensions, a loop each. turned: by blocks transposed in registers.
    """

    operand: str
    at: str
    order: tuple[str, ...]
    as_: As = "plain"


Directive = Split | Order | Merge | Combine | Stage
Plan = tuple[Directive, ...]


class Directives(Struct, frozen=True):
    """What a version of a nest was given."""

    name: str
    plan: Plan

    def __str__(self) -> str:
        return plan_text(self.plan)


class Version(Struct, frozen=True):
    """A plan and the sizes for which it is meant, if no version before it is.

    facts: sizes that are numbers then: the plan is of the nest with these in it. is_seldom: few
    calls have such sizes, for which another kernel may serve (`Kernel.left_out`). bounds: sizes
    beyond which its copies would be too large.
    """

    name: str
    when: Condition
    plan: Plan
    facts: Mapping[str, int] = {}
    is_seldom: bool = False
    bounds: Condition = TRUE

    @property
    def needs(self) -> Condition:
        """Where it may run: any plan is right at all sizes but for its facts and copies."""
        return all_of((*(eq(var(v), n) for v, n in self.facts.items()), self.bounds))


# ---- text


def plan_text(plan: Plan) -> str:
    return "; ".join(map(directive_text, plan))


def directive_text(d: Directive) -> str:
    match d:
        case Split(axis, parts, end):
            sizes = [p if n is None else f"{p}:{_formula_text(n)}" for p, n in parts]
            return " ".join(("split", axis, *sizes, *([] if end == "mask" else [f"end={end}"])))
        case Order(axes):
            return " ".join(("order", *axes))
        case Merge(axes):
            return " ".join(("merge", *axes))
        case Combine(axis, None):
            return f"combine {axis}"
        case Combine(axis, at):
            return f"combine {axis} at {at}"
        case Stage(operand, at, order, as_):
            turned = ["as", as_] if as_ != "plain" else []
            return " ".join(("stage", operand, "at", at, "order", *order, *turned))


def parse(text: str) -> Plan:
    """The plan of a text, one directive a line or between semicolons."""
    return tuple(_directive(x.split()) for x in re.split(r"[;\n]", text) if x.strip())


def _directive(words: list[str]) -> Directive:
    match words:
        case ["split", axis, *parts] if parts:
            ends = [p[4:] for p in parts if p.startswith("end=")]
            end: End = "mask" if not ends else _one_of(ends[0], get_args(End))
            return Split(axis, tuple(_parts(p for p in parts if not p.startswith("end="))), end)
        case ["order", *axes] if axes:
            return Order(tuple(axes))
        case ["merge", *axes] if len(axes) > 1:
            return Merge(tuple(axes))
        case ["combine", axis]:
            return Combine(axis)
        case ["combine", axis, "at", at]:
            return Combine(axis, at)
        case ["stage", operand, "at", at, "order", *order]:
            as_: As = _one_of(order[-1], get_args(As)) if order[-2:-1] == ["as"] else "plain"
            return Stage(operand, at, tuple(order[: -2 if as_ != "plain" else None]), as_)
        case _:
            raise Refused(f"no directive: `{' '.join(words)}`")


def _one_of(word: str, known: tuple[W, ...]) -> W:
    found = next((x for x in known if x == word), None)
    if found is None:
        raise Refused(f"`{word}` is none of {', '.join(map(str, known))}")
    return found


def _parts(words: Iterator[str]) -> Iterator[tuple[str, Index | None]]:
    for word in words:
        name, colon, size = word.partition(":")
        yield name, formula(size) if colon else None


# ---- formulas


def formula(text: str) -> Index:
    """An index expression over sizes, as `Index` prints it."""
    try:
        return _index(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise Refused(f"no formula: `{text}`") from None


def _index(e: ast.expr) -> Index:
    match e:
        case ast.Constant(int(value)):
            return index(value)
        case ast.Name(name):
            return var(name)
        case ast.UnaryOp(ast.USub(), x):
            return -_index(x)
        case ast.Call(ast.Name("min" | "max" as f), args):
            return (minimum if f == "min" else maximum)(*map(_index, args))
        case ast.BinOp(a, op, b) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_index(a), _index(b))
    raise Refused(f"no formula: `{ast.unparse(e)}`")


_OPERATORS: Mapping[type[ast.operator], Callable[[Index, Index], Index]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: floordiv,
    ast.FloorDiv: floordiv,
    ast.Mod: mod,
}


def _formula_text(e: Index) -> str:
    return str(e).replace(" ", "")
