"""Versions of a kernel -> what its calls enter: Python at first, native code once that is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tcsym.dispatch.version import Version
from tcsym.runtime.background import beside
from tcsym.runtime.direct import call_directly
from tcsym.runtime.plan import CallPlan
from tcsym.variants import Variant

Function = Callable[..., Any]


class Entrance:
    """Entries of one kernel. `slow` serves every call; `install` makes calls enter a function.

    Entries are made beside the caller, who gains by them only in later calls.
    """

    def __init__(self, plan: CallPlan, slow: Function, install: Callable[[Function], None]) -> None:
        self.plan = plan
        self.slow = slow
        self._install = install
        self._entries: dict[Version, Function | None] = {}  # None: it is being made, or cannot be

    def enter(self, version: Version, variant: Variant) -> None:
        """Soon, plain calls of all sizes enter the code of `variant`."""
        if version not in self._entries:
            self._entries[version] = None
            beside(lambda: self.make_entry(version, variant))

    def make_entry(self, version: Version, variant: Variant) -> None:
        """As `enter`, at once. Where there is no native way, calls stay on the slow one."""
        entry = self._entries[version] = self._entry(version, variant)
        self._install(entry or self.slow)
        call_directly()

    def _entry(self, version: Version, variant: Variant) -> Function | None:
        """It checks the sizes that are numbers in the code of `version`."""
        from tcsym.runtime.fastcall import fast_entry

        known = [version.fixed.get(n, v) for n, v in zip(self.plan.sizes, self.plan.initial)]
        literals = self.plan.initial[len(known) :]
        plan = replace(self.plan, initial=(*known, *literals))
        return fast_entry(plan, variant.kernel, variant.pointers, variant.slots, self.slow)
