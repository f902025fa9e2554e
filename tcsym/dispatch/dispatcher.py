"""Sizes -> version, for strategies whose versions are meant for ranges of sizes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.index import FALSE, TRUE, index
from tcsym.index_values import condition_substitute
from tcsym.region import Region
from tcsym.runtime.arrays import View
from tcsym.runtime.size_functions import first_holding
from tcsym.variants import Variant


class Dispatcher:
    """Picks versions by ordered tests of their contexts; the last one serves whatever is left.

    One version needs no test: calls enter its code directly.
    """

    def __init__(self, making: Making, entrance: Entrance) -> None:
        self.making = making
        self.entrance = entrance
        self.lock = threading.RLock()
        making.stats.counter = self.counts
        self._ordered: tuple[Version, ...] = ()

    # ---- calls

    def serving(self, sizes: Values) -> Version:
        """The version for a call of these sizes; its code may have to be compiled yet."""
        ordered = self._ordered or self._arranged()
        return ordered[0] if len(ordered) == 1 else ordered[self._find(*sizes)]

    def meant(self, sizes: Values) -> Version:
        """As `serving`, to be looked at: what is not kept yet is not kept for this, either."""
        return self.serving(sizes)

    def region_of(self, sizes: Values) -> Region:
        """The options for these sizes, and where they are from."""
        return self.making.region_of(sizes)

    def answering(self, sizes: Values) -> Version:
        """The version that runs a call now: `serving`, or another one until that is compiled."""
        return self.serving(sizes)

    def served(
        self, sizes: Values, views: Sequence[View], version: Version, variant: Variant
    ) -> None:
        """To be told of each call that came through Python, once it has run."""
        self.entrance.enter(version, views, variant, None if len(self._ordered) == 1 else sizes)

    def precompile(self) -> None:
        """Compile all that calls with dense arrays will need."""
        for version in self._ordered or self._arranged():
            version.variants.made_for(version.variants.dense)

    def compile_regions(self) -> None:
        """Compile the version of each tuned region: calls of other processes find its code."""
        for version in self.versions():
            if version.kind == "symbolic":
                version.variants.made_for(version.variants.dense)

    # ---- what there is

    def versions(self) -> tuple[Version, ...]:
        """All versions there are, in the order in which they are asked."""
        return self._ordered or self._arranged()

    def version_of(self, sizes: Values) -> Version | None:
        """The version that calls of these sizes have now; None if it would be a new one."""
        return self.serving(sizes)

    def counts(self) -> dict[str, int]:
        """Calls served so far, by version."""
        found = {v: v.calls + self.entrance.led(v) for v in self.versions()}
        for sizes, n in self.entrance.rows().items():
            version = self.version_of(sizes)
            if version in found:
                found[version] += n
        return {str(v): n for v, n in found.items()}

    def others(self, sizes: Values) -> tuple[str, ...]:
        """What else could serve these sizes, and what it would take, as lines of text."""
        return ()

    def arrange(self) -> tuple[Version, ...]:
        """The versions, first come first served. Asked once, when a call needs them."""
        regions = self.making.regions
        if len(regions) == 1:
            return (self.making.symbolic(regions[0]),)
        return tuple(self.making.symbolic(r, r.context) for r in regions)

    def _arranged(self) -> tuple[Version, ...]:
        with self.lock:
            if not self._ordered:
                self.rearrange(self.arrange())
            return self._ordered

    def rearrange(self, versions: Sequence[Version]) -> None:
        """From now on, these versions serve."""
        conditions = [v.context for v in versions[:-1]]
        self._find = first_holding(conditions, self.making.plan.sizes)
        self._ordered = tuple(versions)
        if len(versions) > 1:
            self.entrance.divide(versions)

    def possible(self, given: Mapping[str, int]) -> tuple[Version, ...]:
        """Versions that may serve calls of which these sizes are known."""
        if len(given) == len(self.making.plan.sizes):
            return (self.meant(tuple([given[name] for name in self.making.plan.sizes])),)
        values = {name: index(value) for name, value in given.items()}
        return tuple(
            v
            for v in self.versions()
            if v.context == TRUE or condition_substitute(v.context, values) != FALSE
        )


class Refused(Dispatcher):
    """A strategy that cannot serve this def, in a text with others that it can serve."""

    def __init__(self, making: Making, entrance: Entrance, why: OptionError) -> None:
        super().__init__(making, entrance)
        self.why = why

    def arrange(self) -> tuple[Version, ...]:
        raise self.why

    def compile_regions(self) -> None:
        """None is ever called."""


class Single(Dispatcher):
    """One version that was chosen before: what an `Executable` runs."""

    def __init__(self, making: Making, entrance: Entrance, version: Version) -> None:
        counter = making.stats.counter
        super().__init__(making, entrance)
        making.stats.counter = counter  # the kernel's, which this one's calls are no part of
        self.rearrange((version,))
