# SPDX-License-Identifier: Apache-2.0
"""The policy for sizes that are numbers in all code: `Options(bind={"K": "before"})`.

A version for each of their values that turns up, and for each region of options; the other sizes
stay arguments of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tcsym.dispatch.making import Making
from tcsym.dispatch.points import OnDemand, declared_sizes
from tcsym.dispatch.table import Table
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.strategy import Bucket, Pad, Specialize


class Substituted(OnDemand):
    """The least used version makes room, as with `Specialize`."""

    def __init__(self, making: Making) -> None:
        super().__init__(making, Specialize())
        self.slots = making.substituted
        self.key = self._key

    def first(self) -> Table:
        """One version is entered directly: its entry refuses other numbers."""
        return Table(key=self.key, is_checked=len(self.making.regions) == 1)

    def precompile(self) -> None:
        """Versions for all declared values of the substituted sizes, if these are few enough."""
        for values in declared_sizes(self.making.plan, self.room.most, self.slots):
            for key in self._keys(values):
                table = self.holder.propose(partial(self.kept, key=key))
                variants = table.points[key].version.variants
                variants.made_for(variants.dense)

    def possible(self, table: Table, given: Mapping[str, int]) -> tuple[Version, ...]:
        names = [self.making.plan.sizes[slot] for slot in self.slots]
        if len(given) < len(self.making.plan.sizes) and all(name in given for name in names):
            keys = self._keys([given[name] for name in names])
            return tuple(p.version if (p := table.points.get(k)) else self.make(k) for k in keys)
        return super().possible(table, given)

    def make(self, key: Values) -> Version:
        """key: values of the substituted sizes, and the number of a region."""
        names = [self.making.plan.sizes[slot] for slot in self.slots]
        return self.making.substituting(dict(zip(names, key)), self.making.regions[key[-1]])

    def _keys(self, values: Sequence[int]) -> list[Values]:
        """Of all regions, where the substituted sizes have these values."""
        return [(*values, number) for number, _ in enumerate(self.making.regions)]

    def _key(self, sizes: Values) -> Values:
        regions = self.making.regions
        number = 0 if len(regions) == 1 else regions.index(self.making.region_of(sizes))
        return (*[sizes[slot] for slot in self.slots], number)


def require_substituted(making: Making, strategy: Bucket | Pad) -> None:
    """OptionError if `bind` names sizes that are no numbers in the strategy's versions."""
    padded: tuple[int, ...] = ()
    if isinstance(strategy, Pad):
        from tcsym.dispatch.padded import padded_slots

        padded = padded_slots(making.plan, strategy)
    for slot in making.substituted:
        if slot not in padded:
            name, what = making.plan.sizes[slot], type(strategy).__name__
            raise OptionError(
                f"option `bind` makes `{name}` a number, for which {what} has no version",
                hint=f'fix it: `sizes={{"{name}": 64}}`, or use `strategy="specialize"`',
            )
