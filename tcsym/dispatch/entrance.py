"""Versions of a kernel -> what its calls enter: Python at first, native code once that is made."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tcsym.dispatch.entries import Kind, Ways, kind_of
from tcsym.dispatch.version import Values, Version
from tcsym.runtime.background import beside
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.variants import Variant, Variants
from tcsym.runtime.view import View
from tcsym.sizes.dims import Dim

if TYPE_CHECKING:
    from tcsym.dispatch.switch import Switch
    from tcsym.index.expr import Condition
    from tcsym.runtime._native import Entry
    from tcsym.runtime.entering import EntryImage

Function = Callable[..., Any]
Keep = Callable[[Version, Variant, "EntryImage", "Switch | None", int | None], None]


class Entrance:
    """Entries of one kernel. `slow` serves every call; `install` makes calls enter a function.

    The first call makes its entry, so that no later one competes with that for cores and Python's
    lock, unless code is still made beside the calls; entries for other kinds of arguments are made
    beside the caller, who gains by them only in later calls. A single version is entered directly;
    several are entered through a switch, by sizes. `route(version, entry, sizes)` decides which: a
    dispatcher may set its own. `keep` is told what entries for dense arrays are made of, and
    the place of their version among several.
    """

    def __init__(self, plan: CallPlan, slow: Function, install: Callable[[Function], None]) -> None:
        self.plan = plan
        self.slow = slow
        self._install = install
        self.route: Callable[[Version, Function, Values | None], None] = self.put
        self.keep: Keep | None = None
        self._ways: dict[Variants, Ways] = {}  # versions of equal code share them
        self._switch: Switch | None = None
        self._without_switch = False
        self._places: dict[Version, int] = {}
        self._contexts: tuple[Condition, ...] = ()
        self._lock = threading.Lock()

    def enter(
        self, version: Version, views: Sequence[View], variant: Variant, sizes: Values | None
    ) -> None:
        """Soon, calls with arguments like these, of these sizes (None: of all), enter `variant`."""
        kind = kind_of(views, variant)
        if kind is None:
            return
        ways = self._ways_of(version)
        if version.is_gone:  # meanwhile; a newer one of the same code may be entered
            if not ways.tried:
                self.drop(version)
        elif kind not in ways.tried or ways.outgrown(kind, variant):
            ways.tried.add(kind)
            self._begin(lambda: self._make(version, ways, kind, variant, sizes), variant)
        elif ways.head is not None and sizes is not None:
            self.route(version, ways.head, sizes)

    def adopt(
        self, version: Version, variant: Variant, entry: Entry, switch: Switch | None
    ) -> None:
        """Dense arrays enter `entry`, which serves `version`, through `switch` if it is."""
        self._switch = switch
        kind, leaves_out = Kind(True, variant.layouts), variant.compiled.leaves_out
        self._ways_of(version).adopt(kind, entry, leaves_out)
        self.route(version, entry, None)

    def prepare(self, version: Version, variant: Variant) -> Function | None:
        """The entry of a version for arrays of the variant's layouts, made at once."""
        ways, kind = self._ways_of(version), Kind(True, variant.layouts)
        ways.tried.add(kind)
        return ways.make(kind, variant)

    def entry_of(self, version: Version) -> Function | None:
        """What serves calls of a version natively, if there is something by now."""
        ways = self._ways.get(version.variants)
        return ways.head if ways is not None else None

    def before(self, version: Version, entry: Function) -> Function | None:
        """The entry of a version, which now passes to `entry` what it does not serve."""
        ways = self._ways.get(version.variants)
        if ways is None or ways.head is None:
            return None
        if ways.slow is not entry:
            ways.pass_to(entry)
        return ways.head

    def put(self, version: Version, entry: Function, sizes: Values | None) -> None:
        """Calls of these sizes (None: of all that it is meant for) enter `entry`."""
        if self._places and self.lead(version, entry):
            return
        if sizes is None:
            self._install(entry)
            return
        switch = self.switch()
        if switch is not None:
            switch.put(sizes, entry)

    def divide(self, versions: Sequence[Version]) -> None:
        """Sizes without a row of their own are served by the first of these that is meant for them.

        To be told before there is a switch, which knows their contexts.
        """
        if self._switch is None:
            self._places = {version: k for k, version in enumerate(versions)}
            self._contexts = tuple(version.context for version in versions[:-1])

    def lead(self, version: Version, entry: Function) -> bool:
        """Calls of all sizes that it is meant for enter `entry`; False if it has no place."""
        switch, place = self.switch(), self._places.get(version)
        if switch is None or place is None or not self._contexts:
            return False
        switch.set_region(place, entry)
        return True

    def served(self, version: Version) -> int:
        """Calls that native entries of a version's code served."""
        ways = self._ways.get(version.variants)
        return 0 if ways is None else ways.served

    def drop(self, version: Version) -> Ways | None:
        """From now on, calls enter a version no more; what is left of its entries."""
        return self._ways.pop(version.variants, None)

    def forget(self, sizes: Values) -> None:
        """Calls of these sizes are dispatched anew."""
        if self._switch is not None:
            self._switch.remove(sizes)

    @property
    def counting(self) -> Switch | None:
        """The switch, if there is one by now."""
        return self._switch

    def switch(self) -> Switch | None:
        """The native dispatcher of this kernel, installed when first asked for."""
        from tcsym.dispatch.switch import Switch
        from tcsym.dispatch.switch_image import switch_image

        with self._lock:
            if self._switch is None and not self._without_switch:
                image = switch_image(self.plan, self._contexts)
                self._switch = None if image is None else Switch(image, self.slow)
                self._without_switch = self._switch is None
                if self._switch is not None:
                    self._install(self._switch.function)
        return self._switch

    def _ways_of(self, version: Version) -> Ways:
        """It checks the sizes that are numbers in the code of `version`, and its context."""
        ways = self._ways.get(version.variants)
        if ways is None:
            given = frozenset(self.plan.free_slots)  # their values come with each call
            known = [
                v if k in given else version.fixed.get(n, v)
                for k, (n, v) in enumerate(zip(self.plan.sizes, self.plan.initial))
            ]
            literals = self.plan.initial[len(known) :]
            promises = _promises(self.plan, version)
            plan = replace(self.plan, initial=(*known, *literals), promises=promises)
            ways = self._ways.setdefault(version.variants, Ways(plan, self.slow))
        return ways

    def _has_no_entries(self) -> bool:
        return all(ways.head is None for ways in tuple(self._ways.values()))

    def _begin(self, make: Callable[[], None], variant: Variant) -> None:
        if not (self._has_no_entries() and variant.kernel.is_whole):
            beside(make)
            return
        with contextlib.suppress(Exception):  # calls are served without an entry, too
            make()

    def _make(
        self, version: Version, ways: Ways, kind: Kind, variant: Variant, sizes: Values | None
    ) -> None:
        kept: list[EntryImage] = []
        head = ways.make(kind, variant, kept)
        if head is None or self._ways.get(version.variants) is not ways:
            return  # evicted meanwhile
        self.route(version, head, sizes)
        if version.is_gone and sizes is not None:
            self.forget(sizes)
        if self.keep is not None and kind == Kind(True, version.variants.dense):
            for image in kept:
                self.keep(version, variant, image, self._switch, self._places.get(version))


def _promises(plan: CallPlan, version: Version) -> dict[int, Dim]:
    """What an entry checks of sizes: what is declared, within what the code is for."""
    promises = dict(plan.promises)
    for slot in plan.free_slots:
        value = version.fixed.get(plan.sizes[slot])
        if value is not None and plan.initial[slot] is None:
            promises[slot] = Dim(value, value)
    for name, low, high, step in version.variants.context:
        promises[plan.sizes.index(name)] = Dim(low, high, step)
    return promises
