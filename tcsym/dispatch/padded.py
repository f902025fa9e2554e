# SPDX-License-Identifier: Apache-2.0
"""The policy of `Pad`: sizes -> padded sizes -> version. Calls stay in Python, as padding does."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tcsym.dispatch.making import Making
from tcsym.dispatch.points import OnDemand, declared_sizes
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.index.expr import Condition, all_of, eq, ge, lt, var
from tcsym.runtime.plan import CallPlan
from tcsym.strategy import Pad

if TYPE_CHECKING:
    from tcsym.rewrite.pad import PaddedProgram


class PadOnDemand(OnDemand):
    """A version for each padded sizes that turn up; for "max", there is one."""

    strategy: Pad

    def __init__(self, making: Making, strategy: Pad) -> None:
        super().__init__(making, strategy)
        self.slots = padded_slots(making.plan, strategy)
        self.key = self._key

    def precompile(self) -> None:
        if self.strategy.to == "max":
            every = [(0,) * len(self.making.plan.sizes)]
        else:
            every = declared_sizes(self.making.plan, 1 << 20)
        for sizes in list({self._key(sizes): sizes for sizes in every}.values())[: self.room.most]:
            version = self.holder.serving(sizes)
            version.variants.made_for(version.variants.dense)

    def make(self, key: Values) -> Version:
        names = [self.making.plan.sizes[slot] for slot in self.slots]
        extents = dict(zip(names, key))
        fixed = self.making.known | extents
        return self.making.padded(
            self.padded, extents, fixed, self._context(key), self.strategy.bind
        )

    @cached_property
    def padded(self) -> PaddedProgram:
        from tcsym.rewrite.pad import pad_program

        plan = self.making.plan
        return pad_program(plan.program, tuple(plan.sizes[slot] for slot in self.slots))

    def _key(self, sizes: Values) -> Values:
        return tuple([self._extent(slot, sizes[slot]) for slot in self.slots])

    def _extent(self, slot: int, size: int) -> int:
        if self.strategy.to == "max":
            most = self.making.plan.promises[slot].hi
            assert most is not None
            return most
        step = self.strategy.to
        return max(1, -(-size // step)) * step

    def _context(self, key: Values) -> Condition:
        plan, to = self.making.plan, self.strategy.to
        conditions = []
        for slot, extent in zip(self.slots, key):
            size = var(plan.sizes[slot])
            conditions.append(lt(size, extent + 1))
            if to != "max" and extent > to:
                conditions.append(ge(size, extent - to + 1))
        conditions += [eq(var(name), value) for name, value in self.making.known.items()]
        return all_of(conditions)


def padded_slots(plan: CallPlan, strategy: Pad) -> tuple[int, ...]:
    """Slots of the sizes to pad. Errors: OptionError, with what to declare."""
    program = plan.program.name
    given = {p.slot for p in plan.given_sizes}  # no input has more memory for a larger one
    free = [k for k, _ in enumerate(plan.sizes) if plan.initial[k] is None and k not in given]
    bounded = [k for k in free if k in plan.promises and plan.promises[k].hi is not None]
    if strategy.sizes is None:
        if strategy.to == "max" and free and not bounded:
            raise OptionError(
                f"Pad: no size of `{program}` has an upper bound to pad to",
                hint=f'declare one: `sizes={{"{plan.sizes[free[0]]}": Dim(hi=...)}}`, '
                "or pad to a multiple: `Pad(to=16)`",
            )
        return tuple(bounded if strategy.to == "max" else free)
    chosen = []
    for name in strategy.sizes:
        if name not in plan.sizes:
            if name in plan.foreign_sizes:
                continue
            raise OptionError(
                f"Pad: `{name}` is no size of `{program}`",
                hint=f"its sizes are {', '.join(plan.sizes) or 'none'}",
            )
        slot = plan.sizes.index(name)
        if slot not in free:
            why = "a size parameter" if slot in given else "fixed at `define`"
            raise OptionError(f"Pad: `{name}` is {why}, it cannot be padded")
        if strategy.to == "max" and slot not in bounded:
            raise OptionError(
                f"Pad: `{name}` of `{program}` has no upper bound to pad to",
                hint=f'declare it: `sizes={{"{name}": Dim(hi=...)}}`',
            )
        chosen.append(slot)
    return tuple(chosen)
