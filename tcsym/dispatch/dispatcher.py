# SPDX-License-Identifier: Apache-2.0
"""The table of one kernel -> what its calls enter: Python at first, native code once that is made.

The one place that answers who serves some sizes. A policy proposes tables; here the one in force is
held and replaced as a whole, under a lock, and entries and the native switch are made from it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tcsym.dispatch.entries import Kind, Ways, kind_of
from tcsym.dispatch.policy import Edit, Policy
from tcsym.dispatch.retired_counts import GONE, Gone
from tcsym.dispatch.table import Point, Table
from tcsym.dispatch.trial import Trial
from tcsym.dispatch.version import Values, Version
from tcsym.ir.compiled import Compiled
from tcsym.options import Options
from tcsym.process.forks import inside
from tcsym.runtime.background import beside
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.variants import Variant, Variants
from tcsym.runtime.view import View
from tcsym.sizes.dims import Dim

if TYPE_CHECKING:
    from tcsym.runtime._native import Entry
    from tcsym.runtime.entering import EntryImage
    from tcsym.runtime.switch import Switch

_log = logging.getLogger("tcsym.dispatch")

Function = Callable[..., Any]
Keep = Callable[[Version, Variant, "EntryImage", "Switch | None", int | None], None]


class Dispatcher:
    """Of one kernel. `slow` serves every call; `install` makes calls enter a function.

    The first call makes its entry, so that no later one competes with that for cores and Python's
    lock, unless code is still made beside the calls; entries for other kinds of arguments are made
    beside the caller, who gains by them only in later calls. Calls that need not be told apart
    enter their version directly, others a switch. `keep` is told what entries for dense arrays are
    made of, and the place of their version among several ranges.
    """

    def __init__(
        self,
        policy: Policy,
        slow: Function,
        install: Callable[[Function], None],
        plan: CallPlan | None = None,
    ) -> None:
        self.policy, self.making = policy, policy.making
        self.plan, self.slow, self._install = plan or policy.making.plan, slow, install
        self.keep: Keep | None = None
        self.gone = Gone()
        self._lock = threading.RLock()
        self._table: Table | None = None
        self._wide: Version | None = None  # once a call needed it
        self._ways: dict[Variants, Ways] = {}  # versions of equal code share them
        self.switch: Switch | None = None  # once there is one
        self._entered = slow
        self._looks_at = 0  # the number of calls at which one is timed
        policy.holder = self

    # ---- the table

    @property
    def table(self) -> Table:
        """Which version serves which sizes, now."""
        if self._table is None:
            with self._lock:
                if self._table is None:
                    self._table = self.policy.first()
        return self._table

    def propose(self, edit: Edit, *compiled: Version) -> Table:
        """Another table serves from now on, and calls enter what it says.

        edit: called with the lock. compiled: versions whose entries are made first.
        """
        for version in compiled:
            self._prepare(version)
        with self._lock:
            old = self.table
            new = self._table = edit(old)
            if new is not old:
                self._drop(old, new)
            if new.ranges is not old.ranges:
                self.switch, self._looks_at = None, 0  # it tells the ranges apart
            if new is not old or compiled:
                self._write()
            for sizes in self._rows(old, new) if new is not old else ():
                self._write_row(sizes)
            for sizes in new.points if new.ranges is not old.ranges else ():
                self._write_row(sizes)
        return new

    def serving(self, sizes: Values) -> Version:
        """The version for a call of these sizes; its code may have to be compiled yet."""
        if self.plan.limits.is_wide(sizes):
            return self._wide_version()
        table = self.table
        if self.policy.wanted(table, sizes) is not table:
            table = self.propose(lambda now: self.policy.admitted(now, sizes))
        found = table.serving(sizes)
        assert found is not None
        return found

    def possible(self, given: Mapping[str, int]) -> tuple[Version, ...]:
        """Versions that may serve calls of which these sizes are known."""
        names = self.making.plan.sizes
        if given.keys() >= set(names):
            sizes = tuple([given[name] for name in names])
            if self.plan.limits.is_wide(sizes):
                return (self._wide_version(),)
        return self.policy.possible(self.table, given)

    def _wide_version(self) -> Version:
        if self._wide is None:
            with self._lock:
                self._wide = self._wide or self.making.wide()
        return self._wide

    def answering(self, sizes: Values) -> Version:
        """The version that runs a call now: `serving`, or another one until that is compiled."""
        version = self.serving(sizes)
        if version.kind == "wide":
            return version
        if version.variants.made and version not in self.table.stand_ins:
            return version
        table = self.propose(lambda now: self.policy.answered(now, version))
        return table.stand_ins.get(version, version)

    # ---- calls through Python

    def served(
        self, sizes: Values, views: Sequence[View], version: Version, variant: Variant
    ) -> None:
        """To be told of each call that came through Python, once it has run.

        Soon, calls with arguments like these enter `variant`.
        """
        if version.kind == "wide":
            return  # no entry admits such sizes
        kind = kind_of(views, variant)
        if kind is not None and version.padding is None and not self.table.stays_in_python:
            self._enter(version, kind, variant, sizes)
        self.policy.called(sizes)

    def ran(self, version: Version) -> None:
        """A call that came through Python ran this version's code."""
        with self.gone.lock:
            if version.is_gone:
                self.gone.count(1)
            else:
                version.calls += 1

    def adopt_regions(self, code: Mapping[Options, Compiled]) -> None:
        """Tuned regions are served by code that was made elsewhere, for what sizes are declared
        here; calls of other processes find it in the code cache.
        """
        for version in self.table.versions:
            variants, compiled = version.variants, code.get(version.region.options)
            if version.kind == "symbolic" and compiled is not None and not version.fixed:
                variants.adopt(variants.dense, compiled)
                variants.keep(variants.dense, compiled, whole=False)  # for the sizes tuned

    def succeed(self, earlier: Dispatcher) -> None:
        """What another dispatcher served counts here, too; it changes no more what calls enter."""
        with earlier._lock:
            earlier._install = lambda _: None
            earlier._drop(earlier.table, Table())
        self.gone = earlier.gone

    # ---- what there is

    @property
    def versions(self) -> tuple[Version, ...]:
        """All versions there are."""
        return self.table.versions

    def counts(self) -> dict[str, int]:
        """Calls served so far, by version; those of equal code count for the first of them."""
        found: dict[str, int] = {}
        codes: set[Variants] = set()
        table = self.table
        for v in dict.fromkeys((*table.versions, *table.tried)):
            n = v.calls if v.variants in codes else self.calls(v)
            codes.add(v.variants)
            found[str(v)] = found.get(str(v), 0) + n
        return found | ({GONE: n} if (n := self.gone.calls) else {})

    def calls(self, version: Version) -> int:
        """Calls that a version served."""
        ways = self._ways.get(version.variants)
        return version.calls + (0 if ways is None else ways.served)

    def calls_of(self, sizes: Values) -> int:
        """Native calls of these sizes, as far as they are counted."""
        return 0 if self.switch is None else self.switch.calls(sizes)

    # ---- entries

    def entry_of(self, version: Version) -> Function | None:
        """What serves calls of a version natively, if there is something by now."""
        ways = self._ways.get(version.variants)
        return ways.head if ways is not None else None

    def _enter(self, version: Version, kind: Kind, variant: Variant, sizes: Values) -> None:
        ways = self._ways_of(version)
        if ways is not None and ways.lacks(kind, variant):
            self._begin(lambda: self._make(version, ways, kind, variant, sizes), variant)
        elif ways is not None and ways.head is not None:
            self._write_row(sizes, is_new=False)

    def _begin(self, make: Callable[[], None], variant: Variant) -> None:
        if self._has_entries() or not variant.kernel.is_whole:
            beside(make)
            return
        try:
            make()
        except Exception:  # calls are served without an entry, too, by Python
            _log.warning("a call entry was not made", exc_info=True)

    def _make(
        self, version: Version, ways: Ways, kind: Kind, variant: Variant, sizes: Values
    ) -> None:
        kept: list[EntryImage] = []
        if ways.make(kind, variant, kept) is None:
            return
        if self._ways.get(version.variants) is not ways:  # evicted meanwhile
            ways.close()
            return
        self._write()
        self._write_row(sizes, is_new=False)
        if self.keep is not None and kind == Kind(True, version.variants.dense):
            for image in kept:
                self.keep(version, variant, image, self.switch, self.table.place(version))

    def _prepare(self, version: Version) -> None:
        """Makes the entry of a version for dense arrays, at once."""
        variant, ways = version.variants.ready_dense, self._ways_of(version)
        if variant is not None and ways is not None and version.padding is None:
            kind = Kind(True, variant.layouts)
            if ways.lacks(kind, variant):
                ways.make(kind, variant)

    def adopt(
        self, version: Version, variant: Variant, entry: Entry, switch: Switch | None
    ) -> None:
        """Dense arrays enter `entry`, which serves `version`, through `switch` if it is."""
        kind, leaves_out = Kind(True, variant.layouts), variant.compiled.leaves_out
        with self._lock:
            ways = self._ways_of(version)
            assert ways is not None
            ways.adopt(kind, entry, leaves_out)
            self.switch = switch
            self._entered = entry if switch is None else switch.function
            self._write()

    def _has_entries(self) -> bool:
        return any(ways.head is not None for ways in tuple(self._ways.values()))

    def _ways_of(self, version: Version) -> Ways | None:
        """Its entries check the sizes that are numbers in its code, and its context."""
        with self._lock:
            ways = self._ways.get(version.variants)
            if ways is None and not version.is_gone:
                ways = self._ways[version.variants] = Ways(_plan_of(self.plan, version), self.slow)
            return ways

    def _drop(self, old: Table, new: Table) -> None:
        """Versions that serve no more are entered no more. What they served still counts."""
        left = {*new.versions, *new.tried}
        codes = {version.variants for version in left}
        for version in {*old.versions, *old.tried} - left:
            if version.is_gone:
                continue
            with self.gone.lock:
                version.is_gone = True
                ways = None if version.variants in codes else self._ways.pop(version.variants, None)
                self.gone.count(version.calls, ways)

    # ---- table -> what calls enter

    def _write(self) -> None:
        """Calls of sizes without a row of their own enter what the table says."""
        with self._lock:
            table = self.table
            versions, only = table.ranges.versions, table.only
            if only is not None:
                self._put(self.entry_of(only) or self.slow)
                return
            switch = self._made_switch(table)
            if switch is None:
                self._put(self._default(table))
                return
            if len(versions) == 1:
                switch.set_default(self._default(table))
            for k, version in enumerate(versions if len(versions) > 1 else ()):
                entry = self.entry_of(version)
                if entry is not None:
                    switch.set_region(k, entry)
            switch.track(self._notice, table.noticed_after)
            if table.noticed_after and not self._looks_at and self.policy.first_look:
                self._looks_at = self.policy.first_look
                switch.look_at(self._looks_at)
            self._put(switch.function)

    def _put(self, function: Function) -> None:
        if function is not self._entered:
            self._entered = function
            self._install(function)

    def _made_switch(self, table: Table) -> Switch | None:
        """None before there is an entry, and where sizes cannot be read off arguments natively."""
        if self.switch is None and self._has_entries():
            from tcsym.runtime.switch import Switch
            from tcsym.runtime.switch_image import switch_image

            image = switch_image(self.plan, [v.context for v in table.ranges.versions[:-1]])
            self.switch = None if image is None else Switch(image, self.slow)
        return self.switch

    def _default(self, table: Table) -> Function:
        """What serves all sizes that no other entry is for: with what is asked before it."""
        versions = table.ranges.versions
        entry = self.entry_of(versions[0]) if len(versions) == 1 else None
        ways = None if table.before is None else self._ways.get(table.before.variants)
        if entry is None or ways is None or ways.head is None:
            return entry or self.slow
        if ways.slow is not entry:
            ways.pass_to(entry)
        return ways.head

    def _rows(self, old: Table, new: Table) -> Collection[Values]:
        """Sizes that may have a row of which the tables say different things."""
        if self.switch is None:
            return ()
        rows = set(self.switch.counts())
        if new.noticed_after:  # its points are entered as soon as they are there
            rows |= new.points.keys() - old.points.keys()
        return [sizes for sizes in rows if old.row(sizes) != new.row(sizes)]

    def _write_row(self, sizes: Values, is_new: bool = True, again: bool = True) -> None:
        """Calls of these sizes enter what the table says. is_new: which was not so before."""
        with self._lock:
            switch, row = self.switch, self.table.row(sizes)
            if switch is None or self.table.only is not None:
                return
            if row is not None and (is_new or row.decide is None):
                switch.put(sizes, self._function(row, sizes), row.again if again else 0)
            elif is_new:
                switch.remove(sizes)

    def _function(self, row: Point, sizes: Values) -> Function:
        entry = self.entry_of(row.version) or self.slow
        return entry if row.decide is None else Trial(self._base(sizes), entry, row.decide)

    def _base(self, sizes: Values) -> Function:
        """What serves sizes that have no version of their own."""
        base = self.table.base(sizes)
        return (base and self.entry_of(base)) or self.slow

    # ---- calls that the switch hands over

    @inside
    def _notice(self, *args: Any, **kwargs: Any) -> Any:
        """A call that the switch thinks is one of many with its sizes."""
        switch = self.switch
        assert switch is not None
        if switch.total == self._looks_at:
            return self._look(switch, args, kwargs)
        sizes = switch.sizes_of(args, kwargs)
        self.serving(sizes)  # so that the table has what is known of them
        result, seconds = _timed(self._base(sizes), args, kwargs)
        if self.table.point(sizes) is None:
            self._write_row(sizes, is_new=False, again=False)
        again = self.policy.noticed(sizes, seconds, switch.calls(sizes))
        if again:
            switch.again(sizes, again)
        return result

    def _look(self, switch: Switch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Now and then a call of any sizes is timed."""
        result, seconds = _timed(self._any(switch, args, kwargs), args, kwargs)
        self._looks_at = self.policy.looked(seconds, switch.total, switch.counts())
        switch.look_at(self._looks_at)
        return result

    def _any(self, switch: Switch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
        """What serves such a call natively; the default where the switch cannot read its sizes."""
        if len(self.table.ranges.versions) == 1:
            return switch.default
        try:
            sizes = switch.sizes_of(args, kwargs)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return switch.default  # arguments of other kinds, which it accepts or refuses
        return self._base(sizes)


def _timed(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, float]:
    start = perf_counter()
    result = function(*args, **kwargs)
    return result, perf_counter() - start


def _plan_of(plan: CallPlan, version: Version) -> CallPlan:
    """What an entry checks of sizes: what is declared, within what the version's code is for."""
    given = frozenset(plan.free_slots)  # their values come with each call
    known = [
        v if k in given else version.fixed.get(n, v)
        for k, (n, v) in enumerate(zip(plan.sizes, plan.initial))
    ]
    promises = dict(plan.promises)
    for slot in plan.free_slots:
        value = version.fixed.get(plan.sizes[slot])
        if value is not None and plan.initial[slot] is None:
            promises[slot] = Dim(value, value)
    for name, low, high, step in version.variants.context:
        promises[plan.sizes.index(name)] = Dim(low, high, step)
    return replace(plan, initial=(*known, *plan.initial[len(known) :]), promises=promises)
