# SPDX-License-Identifier: Apache-2.0
"""What may be done with a nest of loops, as data: plans, and versions of a nest.

A plan names a mechanism and loops. It rewrites nothing, and prints in one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import TRUE, Condition, Index
from tcsym.schedule.order_plans import RowOrderPlan, ScatterPlan, Waves


class AsItIs(Struct, frozen=True):
    """No directive maps the nest."""

    def __str__(self) -> str:
        return "one element at a time"


class Staged(Struct, frozen=True):
    """The nest reads copies that are made before it, and gets a plan of its own with them."""

    what: str

    def __str__(self) -> str:
        return f"stages {self.what}"


AnyPlan = AsItIs | Staged | RowOrderPlan | ScatterPlan | Waves
P = TypeVar("P", bound=AnyPlan)
S = TypeVar("S", bound=Struct)
P_co = TypeVar("P_co", bound=AnyPlan, covariant=True)


def renamed(plan: S, new: Mapping[str, str]) -> S:
    """The plan for a copy of the nest, whose loops have new names."""

    def change(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(change, x))
        if isinstance(x, Struct) and not isinstance(x, Index):
            return renamed(x, new)
        return new.get(x, x) if isinstance(x, str) else x

    return replace(plan, **{name: change(getattr(plan, name)) for name in plan.__struct_fields__})


class Version(Struct, Generic[P_co], frozen=True):
    """A plan for a nest at the sizes for which `when` holds.

    A copy of the nest gets the plan, if that is not for all sizes: `if when { copy } { nest }`.
    is_seldom: few calls have such sizes, for which another kernel may serve (`Kernel.left_out`).
    needs: what the plan cannot do without; the rest
    of `when` says where it pays. None: all of `when`.
    """

    when: Condition
    plan: P_co
    is_seldom: bool = False
    needs: Condition | None = None


def always(plan: P) -> Version[P]:
    """The plan, whatever the sizes are."""
    return Version(TRUE, plan)
