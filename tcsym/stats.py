"""What a kernel did so far: how often code was generated, for what, and how long it took."""

from __future__ import annotations

from dataclasses import field

from tcsym.compiled import Compiled, Layout
from tcsym.records import dataclass


@dataclass(frozen=True, slots=True)
class VariantStats:
    """One compiled variant. `cached`: its code came from the code cache."""

    layouts: tuple[Layout, ...]
    cached: bool
    milliseconds: tuple[tuple[str, float], ...]
    fallbacks: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        total = sum(ms for _, ms in self.milliseconds)
        made = "from the code cache" if self.cached else f"compiled in {total:.0f} ms"
        return f"({', '.join(self.layouts)}): {made}"


@dataclass(slots=True)
class Stats:
    """Counters of one kernel; only grow.

    `compilations`: how many times code was generated. `cache_hits`: variants whose code came from
    the code cache. `fallbacks`: scheduling strategies given up for a simpler one, and why.
    """

    compilations: int = 0
    cache_hits: int = 0
    variants: list[VariantStats] = field(default_factory=list)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        return tuple(text for v in self.variants for text in v.fallbacks)

    @property
    def milliseconds(self) -> dict[str, float]:
        """Time per stage over all compilations."""
        total: dict[str, float] = {}
        for variant in self.variants:
            for stage, ms in variant.milliseconds:
                total[stage] = total.get(stage, 0.0) + ms
        return total

    def note(self, layouts: tuple[Layout, ...], compiled: Compiled) -> None:
        """Count one new variant. Code from the cache carries no stage times."""
        cached = not compiled.milliseconds
        self.compilations += not cached
        self.cache_hits += cached
        told = compiled.fallbacks, compiled.notes
        self.variants.append(VariantStats(layouts, cached, compiled.milliseconds, *told))

    def __str__(self) -> str:
        lines = [f"compilations: {self.compilations}, cache hits: {self.cache_hits}"]
        lines += [f"variant {v}" for v in self.variants]
        lines += [f"fall-back: {text}" for text in self.fallbacks]
        lines += [f"  {stage}: {ms:.1f} ms" for stage, ms in self.milliseconds.items()]
        return "\n".join(lines)
