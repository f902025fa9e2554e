# SPDX-License-Identifier: Apache-2.0
"""Plans as data: a few directives that print, are read (`text`), and carried out by `apply`.

    split m block tile:8 reg:6; split n panel tile:64 reg:2 lane:8; split k unroll:4
    order m.block n.panel m.tile n.tile
    stage B at n.panel order n.tile k n.reg n.lane

is a product of matrices in register tiles over packed panels. Loops have names that follow from
the plan: what `split n .. lane:8` makes is `n.lane`. Sizes are numbers, or formulas in the sizes of
the program: `tile:max(8,4096/K)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import TRUE, Condition, Index, all_of, eq, var

End = Literal["mask", "half", "peel", "overlap", "zero"]
As = Literal["plain", "turned"]
POINTS = ("reg", "lane")  # parts that are registers and lanes, which sink into every statement


class Refused(Exception):
    """A directive that cannot be carried out, and why: the step of a version (`Version.number`)."""

    def __init__(
        self,
        reason: str = "",
        hint: str = "",
        version: int | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.hint, self.version, self.step = hint, version, step


class Split(Struct, frozen=True):
    """A loop becomes one for each part, from outside in; the first has no size of its own.

    `reg` is unrolled, `lane` a vector, any other a loop that counts what is inside of it. The last
    part `pack` are terms of a sum that one instruction adds (`pack`). The only part `unroll`
    repeats the body of the loop as it is. end: what becomes of the ragged last tile; zero: packs
    are made in front of the nest, the last one filled with zeros (`ahead`).
    """

    axis: str
    parts: tuple[tuple[str, Index | None], ...]
    end: End = "mask"


class Order(Struct, frozen=True):
    """The loops of the band, from outside in; its points sink into every statement. Or those of one
    sum."""

    axes: tuple[str, ...]


class Merge(Struct, frozen=True):
    """Neighbouring loops of the band become one, with the name of the first."""

    axes: tuple[str, ...]


class Combine(Struct, frozen=True):
    """Sums along a loop are taken for each of its points, and these are added behind it.

    at: or for each of its iterations, in front of that loop, which adds them; where windows slide
    along it, for each place that they share.
    """

    axis: str
    at: str | None = None


class Stage(Struct, frozen=True):
    """What reads of the operand need inside the loop `at` is copied at its start; without one, all
    that the nest needs is copied once, in front of it and of loops around that leave it as it is.

    order: the copy's dimensions, a loop each. turned: by blocks transposed in registers.
    """

    operand: str
    at: str | None
    order: tuple[str, ...]
    as_: As = "plain"


Directive = Split | Order | Merge | Combine | Stage
Plan = tuple[Directive, ...]


def is_ahead(d: Directive) -> bool:
    """It was carried out before the plan is applied."""
    return isinstance(d, Split) and d.end == "zero"


class Directives(Struct, frozen=True):
    """What a version of a nest was given. name: what to call it."""

    name: str
    plan: Plan

    def __str__(self) -> str:
        return plan_text(self.plan)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(map(directive_text, self.plan))


class Version(Struct, frozen=True):
    """A plan and the sizes for which it is meant, if no version before it is.

    facts: sizes that are numbers then: the plan is of the nest with these in it. number: which of
    those that a user gave. only: where it may run beside that.
    """

    name: str
    when: Condition
    plan: Plan
    facts: Mapping[str, int] = {}
    number: int = 0
    only: Condition = TRUE

    @property
    def needs(self) -> Condition:
        """Where it may run: any plan is right at all sizes but for its facts."""
        return all_of((self.only, *(eq(var(v), n) for v, n in self.facts.items())))


# ---- text


def plan_text(plan: Plan) -> str:
    return "; ".join(map(directive_text, plan))


def directive_text(d: Directive) -> str:
    match d:
        case Split(axis, parts, end):
            sizes = [p if n is None else f"{p}:{n}".replace(" ", "") for p, n in parts]
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
            where = ("once",) if at is None else ("at", at)
            return " ".join(("stage", operand, *where, "order", *order, *turned))


def with_sizes(plan: Plan, change: Callable[[Index], Index]) -> Plan:
    """The plan with other formulas of sizes."""

    def one(d: Directive) -> Directive:
        if not isinstance(d, Split):
            return d
        return replace(d, parts=tuple((p, n if n is None else change(n)) for p, n in d.parts))

    return tuple(map(one, plan))
