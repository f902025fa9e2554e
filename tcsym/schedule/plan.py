# SPDX-License-Identifier: Apache-2.0
"""What may be done with a nest of loops, as data: plans, and versions of a nest.

A plan names a mechanism, the loops that it gives roles to, and sizes of tiles. It rewrites nothing:
proposals make plans (`version/*_proposals.py`), `version.choose` picks among them, `version.apply`
carries them out. Each prints in one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import TRUE, Condition, Index
from tcsym.schedule.order_plans import RangePlan, RowOrderPlan, ScatterPlan, SumsBesideRows, Waves

# ---- leaves: whatever needs no register tile of rows and columns


class Rows(Struct, frozen=True):
    """Every innermost loop in vectors along the loop that memory favours."""

    def __str__(self) -> str:
        return "vectors"


class Terms(Struct, frozen=True):
    """A sum term by term, in no vector."""

    def __str__(self) -> str:
        return "term by term"


class Strips(Struct, frozen=True):
    """Strips of `columns` in lanes, sums along rows inside."""

    columns: str

    def __str__(self) -> str:
        return f"strips of columns {self.columns}"


class InnerLeaves(Struct, frozen=True):
    """Every nest inside the band by a leaf's plan of its own."""

    def __str__(self) -> str:
        return "each nest inside by a plan of its own"


LeafPlan = Rows | Terms | Strips | InnerLeaves


# ---- whole nests


class Scan(Struct, frozen=True):
    """Groups of rows around a loop in order, their state in registers."""

    def __str__(self) -> str:
        return "scan: rows at once, state in registers"


class Staged(Struct, frozen=True):
    """The nest reads copies that are made before it, and gets a plan of its own with them."""

    what: str

    def __str__(self) -> str:
        return f"stages {self.what}"


NestPlan = Scan | Staged

Plan = LeafPlan | NestPlan

AnyPlan = Plan | RangePlan | RowOrderPlan | ScatterPlan | SumsBesideRows | Waves
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


# ---- versions

Side = Literal["instead", "before", "after"]


class Version(Struct, Generic[P_co], frozen=True):
    """A plan for a nest at the sizes for which `when` holds.

    side: how the nest and its copy share the sizes.
      `instead`  the nest gets the plan, the copy is for other sizes: `if when { nest } { copy }`
      `before`   the copy gets the plan: `if when { copy } { nest }`
      `after`    the copy gets the plan: `if !when { nest } { copy }`
    is_seldom: few calls have such sizes, for which another kernel may serve (`Kernel.left_out`).
    note: what to tell of it, in terms of the nest. needs: what the plan cannot do without; the rest
    of `when` says where it pays. None: all of `when`.
    """

    when: Condition
    plan: P_co
    side: Side = "instead"
    is_seldom: bool = False
    note: str = ""
    needs: Condition | None = None


def always(plan: P, note: str = "") -> Version[P]:
    """The plan, whatever the sizes are."""
    return Version(TRUE, plan, note=note)


class Refusal(Struct, frozen=True):
    """Why a better plan is not possible."""

    reason: str
