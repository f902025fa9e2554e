"""The dispatcher for sizes that are numbers in all code: `Options(bind={"K": "before"})`.

A version for each of their values that turns up, and for each region of options; the other sizes
stay arguments of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.points import OnDemand, declared_sizes
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.runtime.variants import Variant
from tcsym.runtime.view import View
from tcsym.strategy import Bucket, Pad, Specialize

Function = Callable[..., Any]


class Substituted(OnDemand):
    """The least used version makes room, as with `Specialize`."""

    def __init__(self, making: Making, entrance: Entrance) -> None:
        super().__init__(making, entrance, Specialize())
        self.slots = making.substituted
        entrance.route = self._route

    def serving(self, sizes: Values) -> Version:
        key = self._key(sizes)
        return self.points.made.get(key) or self._added(key, sizes)

    def meant(self, sizes: Values) -> Version:
        key = self._key(sizes)
        return self.points.made.get(key) or self.make(key)

    def served(
        self, sizes: Values, views: Sequence[View], version: Version, variant: Variant
    ) -> None:
        if self.points.made.get(self._key(sizes)) is version:  # else it was evicted meanwhile
            self.entrance.enter(version, views, variant, sizes)

    def precompile(self) -> None:
        """Versions for all declared values of the substituted sizes, if these are few enough."""
        for values in declared_sizes(self.making.plan, self.points.most, self.slots):
            for number, _ in enumerate(self.making.regions):
                key = (*values, number)
                version = self.points.made.get(key) or self._added(key, values)
                version.variants.made_for(version.variants.dense)

    def possible(self, given: Mapping[str, int]) -> tuple[Version, ...]:
        names = [self.making.plan.sizes[slot] for slot in self.slots]
        if len(given) < len(self.making.plan.sizes) and all(name in given for name in names):
            values = tuple([given[name] for name in names])
            keys = [(*values, number) for number, _ in enumerate(self.making.regions)]
            return tuple(self.points.made.get(key) or self.make(key) for key in keys)
        return super().possible(given)

    def make(self, key: Values) -> Version:
        """key: values of the substituted sizes, and the number of a region."""
        names = [self.making.plan.sizes[slot] for slot in self.slots]
        return self.making.substituting(dict(zip(names, key)), self.making.regions[key[-1]])

    def _key(self, sizes: Values) -> Values:
        regions = self.making.regions
        number = 0 if len(regions) == 1 else regions.index(self.making.region_of(sizes))
        return (*[sizes[slot] for slot in self.slots], number)

    def _route(self, version: Version, entry: Function, sizes: Values | None) -> None:
        """One version is entered directly: its entry refuses other numbers. Several, by sizes."""
        is_for_all = len(self.points.made) == 1 and len(self.making.regions) == 1
        is_only = is_for_all and self.entrance.counting is None
        self.entrance.put(version, entry, None if is_only else sizes)


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
