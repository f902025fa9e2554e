"""Versions of a kernel -> what its calls enter: Python at first, native code once that is made.

Each kind of arguments, that is layouts and library, has an entry of its own (`runtime.fastcall`).
An entry passes what it does not serve to the next one, the last to Python.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from tcsym.compiled import Layout
from tcsym.dispatch.version import Version
from tcsym.runtime.arrays import View
from tcsym.runtime.background import beside
from tcsym.runtime.direct import call_directly
from tcsym.runtime.plan import CallPlan
from tcsym.variants import Variant, layout_of

Function = Callable[..., Any]


class Kind(NamedTuple):
    """Arguments that one entry serves: of these layouts and, if `exact`, of no stricter ones."""

    exact: bool
    layouts: tuple[Layout, ...]
    library: Literal["numpy", "torch"]


class Entrance:
    """Entries of one kernel. `slow` serves every call; `install` makes calls enter a function.

    Entries are made beside the caller, who gains by them only in later calls.
    """

    def __init__(self, plan: CallPlan, slow: Function, install: Callable[[Function], None]) -> None:
        self.plan = plan
        self.slow = slow
        self._install = install
        self._tried: set[tuple[Version, Kind]] = set()
        self._entries: dict[Kind, Function] = {}
        self._lock = threading.Lock()

    def enter(self, version: Version, views: Sequence[View], variant: Variant) -> None:
        """Soon, calls with arguments like these, of all sizes, enter the code of `variant`."""
        kind = _kind(views, variant)
        if kind is not None and (version, kind) not in self._tried:
            self._tried.add((version, kind))
            beside(lambda: self.make_entry(version, kind, variant))

    def make_entry(self, version: Version, kind: Kind, variant: Variant) -> None:
        """As `enter`, at once. Where there is no native way, calls stay on the slow one."""
        from tcsym.runtime.fastcall import continue_with

        entry = self._entry(version, kind, variant)
        if entry is None:
            return
        with self._lock:
            self._entries[kind] = entry
            # Those that also serve stricter layouts come last; else first come, first served.
            order = [e for k, e in self._entries.items() if k.exact]
            order += [e for k, e in self._entries.items() if not k.exact]
            for one, following in pairwise((*order, self.slow)):
                continue_with(one, following)
            self._install(order[0])
        call_directly()

    def _entry(self, version: Version, kind: Kind, variant: Variant) -> Function | None:
        """It checks the sizes that are numbers in the code of `version`."""
        from tcsym.runtime.fastcall import fast_entry

        known = [version.fixed.get(n, v) for n, v in zip(self.plan.sizes, self.plan.initial)]
        literals = self.plan.initial[len(known) :]
        plan = replace(self.plan, initial=(*known, *literals))
        code = variant.kernel, variant.pointers, variant.slots
        return fast_entry(plan, *code, self.slow, kind.layouts, kind.exact, kind.library)


def _kind(views: Sequence[View], variant: Variant) -> Kind | None:
    """What an entry can know the arguments by; None if none could serve them."""
    library: Literal["numpy", "torch"] = "numpy"
    for view in views:
        if view.original is not None or view.library == "jax":
            return None
        if view.library == "torch":
            library = "torch"
    layouts = tuple([layout_of(view) for view in views])
    return Kind(layouts == variant.layouts, variant.layouts, library)
