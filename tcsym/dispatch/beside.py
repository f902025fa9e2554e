# SPDX-License-Identifier: Apache-2.0
"""A policy that has code compiled and versions measured beside the calls (`compile_queue`)."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Edit, Policy
from tcsym.dispatch.requests import AnyWork, Asked, Work
from tcsym.dispatch.table import Table
from tcsym.dispatch.version import Version
from tcsym.ir.compiled import Compiled
from tcsym.runtime.variants import MAX_VARIANTS, Layouts, Variants


class Beside(Policy):
    """share: of a core, over the time of all such work. is_active: something may come of it yet."""

    def __init__(self, making: Making, share: float) -> None:
        super().__init__(making)
        self.share, self.is_active = share, share > 0
        self._asked = Asked()
        self._layouts: set[tuple[Variants, Layouts]] = set()  # asked for
        self._lock = RLock()

    def propose(self, edit: Edit, *compiled: Version) -> Table:
        """As the holder's."""
        return self.holder.propose(lambda now: self.counted(edit(now)), *compiled)

    def counted(self, table: Table) -> Table:
        """The table with what its calls are to be counted for."""
        return table

    def submit(self, work: AnyWork) -> None:
        from tcsym.dispatch.compile_queue import compilations  # with it, what starts processes

        compilations.submit(self._asked, work)

    def compile(
        self, version: Version, made: Callable[[], object], failed: Callable[[], object] = int
    ) -> None:
        """Code for dense arrays; then `made` is called, on another thread, or `failed`."""
        variants = version.variants

        def done(result: Compiled | str) -> None:
            if isinstance(result, str):
                self.making.stats.failures.append(f"{version}: {result}")
                failed()
            else:
                variants.adopt(variants.dense, result)
                made()

        self.submit(Work(variants, variants.dense, self.share, done))

    def compile_layouts(self, variants: Variants, layouts: Layouts) -> None:
        """A variant for other memory layouts, once; calls run on dense copies meanwhile."""
        with self._lock:
            begun = [of for v, of in self._layouts if v is variants]
            if layouts not in begun and len(begun) >= MAX_VARIANTS - 2:  # the dense one is there
                layouts = variants.general
            if layouts in begun:
                return
            self._layouts.add((variants, layouts))

        def done(result: Compiled | str) -> None:
            if isinstance(result, str):
                told = f"variant for layouts {', '.join(layouts)}: {result}"
                self.making.stats.failures.append(told)
            else:
                variants.adopt(layouts, result)

        self.submit(Work(variants, layouts, self.share, done))
