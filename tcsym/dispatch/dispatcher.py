"""Sizes -> version, for strategies whose versions are meant for ranges of sizes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.retired_counts import GONE, Gone
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.index.expr import FALSE, TRUE, index
from tcsym.index.values import condition_substitute
from tcsym.ir.compiled import Compiled
from tcsym.options import Options
from tcsym.runtime.size_functions import first_holding
from tcsym.runtime.variants import Variant, Variants
from tcsym.runtime.view import View
from tcsym.sizes.region import Region


class Dispatcher:
    """Picks versions by ordered tests of their contexts; the last one serves whatever is left.

    One version needs no test: calls enter its code directly.
    """

    def __init__(self, making: Making, entrance: Entrance) -> None:
        self.making = making
        self.entrance = entrance
        self.lock = threading.RLock()
        self._ordered: tuple[Version, ...] = ()
        self.gone = Gone()

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

    def ran(self, version: Version) -> None:
        """A call that came through Python ran this version's code."""
        with self.gone.lock:
            if version.is_gone:
                self.gone.count(1)
            else:
                version.calls += 1

    def drop(self, sizes: Values | None, version: Version) -> None:
        """A version serves no more calls, of these sizes. What it served still counts."""
        with self.gone.lock:
            version.is_gone = True
            self.gone.count(version.calls, self.entrance.drop(version))
        if sizes is not None:
            self.entrance.forget(sizes)

    def succeed(self, earlier: Dispatcher) -> None:
        """What another dispatcher served counts here, too."""
        for version in (*earlier.versions(), *earlier.tried()):
            earlier.drop(None, version)
        self.gone = earlier.gone

    def precompile(self) -> None:
        """Compile all that calls with dense arrays will need."""
        for version in self._ordered or self._arranged():
            version.variants.made_for(version.variants.dense)

    def adopt_regions(self, code: Mapping[Options, Compiled]) -> None:
        """Tuned regions are served by code that was made elsewhere, for what sizes are declared
        here; calls of other processes find it in the code cache.
        """
        for version in self.versions():
            variants, compiled = version.variants, code.get(version.region.options)
            if version.kind == "symbolic" and compiled is not None and not version.fixed:
                variants.adopt(variants.dense, compiled)
                variants.keep(variants.dense, compiled)

    # ---- what there is

    def versions(self) -> tuple[Version, ...]:
        """All versions there are, in the order in which they are asked."""
        return self._ordered or self._arranged()

    def counts(self) -> dict[str, int]:
        """Calls served so far, by version; those of equal code count for the first of them."""
        found: dict[str, int] = {}
        codes: set[Variants] = set()
        for v in dict.fromkeys((*self.versions(), *self.tried())):
            n = v.calls if v.variants in codes else self.calls(v)
            codes.add(v.variants)
            found[str(v)] = found.get(str(v), 0) + n
        return found | ({GONE: n} if (n := self.gone.calls) else {})

    def calls(self, version: Version) -> int:
        """Calls that a version served."""
        return version.calls + self.entrance.served(version)

    def tried(self) -> tuple[Version, ...]:
        """Versions that serve some calls and may yet be given up."""
        return ()

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
        for version in set(self._ordered).difference(versions):
            self.drop(None, version)
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

    def adopt_regions(self, code: Mapping[Options, Compiled]) -> None:
        """None is ever called."""

    def succeed(self, earlier: Dispatcher) -> None:
        """Nor was any before."""


class Single(Dispatcher):
    """One version that was chosen before: what an `Executable` runs."""

    def __init__(self, making: Making, entrance: Entrance, version: Version) -> None:
        super().__init__(making, entrance)
        self.rearrange((version,))

    def ran(self, version: Version) -> None:
        """The kernel's calls count, of which these are none."""
