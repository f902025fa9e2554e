"""Variants for other memory layouts, compiled beside the calls: those run on dense copies."""

from __future__ import annotations

from threading import RLock

from tcsym.dispatch.requests import Asked, Work
from tcsym.ir.compiled import Compiled
from tcsym.runtime.stats import Stats
from tcsym.runtime.variants import MAX_VARIANTS, Layouts, Variants


class LayoutsBeside:
    """Of one kernel; each is asked for once."""

    def __init__(self, stats: Stats, share: float) -> None:
        self._stats, self._share, self._lock = stats, share, RLock()
        self._beside = Asked()
        self._begun: set[tuple[Variants, Layouts]] = set()

    def compile(self, variants: Variants, layouts: Layouts) -> None:
        from tcsym.dispatch.compile_queue import compilations

        with self._lock:
            begun = [of for v, of in self._begun if v is variants]
            if layouts not in begun and len(begun) >= MAX_VARIANTS - 2:  # the dense one is there
                layouts = variants.general
            if layouts in begun:
                return
            self._begun.add((variants, layouts))

        def done(result: Compiled | str) -> None:
            if isinstance(result, str):
                self._stats.failures.append(f"variant for layouts {', '.join(layouts)}: {result}")
            else:
                variants.adopt(layouts, result)

        compilations.submit(self._beside, Work(variants, layouts, self._share, done))
