# SPDX-License-Identifier: Apache-2.0
"""What a kernel did so far: how often code was generated, for what, and how long it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from tcsym.ir.compiled import Compiled, Layout

_KEPT_DECISIONS = 256


class VariantStats(Struct, frozen=True):
    """One compiled variant.

    layouts: how arguments and results lie in memory, for which it was made.
    cached: its code came from the code cache.
    milliseconds: time by stage of compilation; none where it was cached.
    fallbacks: scheduling strategies given up for a simpler one, and why.
    notes: how its loops were scheduled.
    """

    layouts: tuple[Layout, ...]
    cached: bool
    milliseconds: tuple[tuple[str, float], ...]
    fallbacks: tuple[str, ...]
    notes: tuple[str, ...]

    @staticmethod
    def of(layouts: tuple[Layout, ...], compiled: Compiled) -> VariantStats:
        """Code from the cache carries no stage times."""
        cached = not compiled.milliseconds
        told = compiled.fallbacks, compiled.notes
        return VariantStats(layouts, cached, compiled.milliseconds, *told)

    def __str__(self) -> str:
        total = sum(ms for _, ms in self.milliseconds)
        made = "from the code cache" if self.cached else f"compiled in {total:.0f} ms"
        return f"({', '.join(self.layouts)}): {made}"


class Decision(Struct, frozen=True):
    """A choice between versions, and what it rests on.

    sizes: of the calls that it is for; empty: all.
    chosen: the version.
    why: in words.
    seconds: measured time of a call by version, as far as it is known.
    """

    sizes: tuple[tuple[str, int], ...]
    chosen: str
    why: str
    seconds: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        where = ", ".join(f"{name} = {value}" for name, value in self.sizes) or "all sizes"
        costs = "".join(f"; {name} {1e6 * s:.2f} us" for name, s in self.seconds)
        return f"{where}: {self.chosen}, {self.why}{costs}"


class Counters(Struct):
    """What serves one def counts here; `Stats` shows it."""

    compilations: int = 0
    cache_hits: int = 0
    evictions: int = 0
    variants: list[VariantStats] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    counter: Callable[[], Mapping[str, int]] = dict

    def decide(self, decision: Decision) -> None:
        """Note a choice; the oldest are forgotten."""
        self.decisions.append(decision)
        del self.decisions[:-_KEPT_DECISIONS]

    @property
    def milliseconds(self) -> dict[str, float]:
        return _milliseconds(self.variants)

    def note(self, layouts: tuple[Layout, ...], compiled: Compiled) -> VariantStats:
        """Count one new variant."""
        made = VariantStats.of(layouts, compiled)
        self.compilations += not made.cached
        self.cache_hits += made.cached
        self.variants.append(made)
        return made

    def renew(self, noted: VariantStats, compiled: Compiled) -> VariantStats:
        """More of a variant's code was made."""
        renewed = VariantStats.of(noted.layouts, compiled)
        self.variants[self.variants.index(noted)] = renewed
        return renewed


def _milliseconds(variants: Sequence[VariantStats]) -> dict[str, float]:
    """By stage."""
    total: dict[str, float] = {}
    for variant in variants:
        for stage, ms in variant.milliseconds:
            total[stage] = total.get(stage, 0.0) + ms
    return total


class Stats:
    """Counters of a kernel, or of all kernels of a module; they only grow. Prints as a list.

    A call that torch or JAX records is served by `kernel.saving()`, which counts here, too.

    compilations: how many times code was generated.
    cache_hits: variants whose code came from the code cache.
    evictions: versions dropped because there were too many.
    variants: what was compiled, with `VariantStats` for each.
    decisions: the last choices between versions that a strategy made.
    failures: compilations beside calls that failed, and why; calls were served by other versions.
    fallbacks: scheduling strategies given up for a simpler one, and why.
    """

    def __init__(self, parts: Callable[[], Sequence[Counters]]) -> None:
        self._parts = parts

    @property
    def compilations(self) -> int:
        return sum(part.compilations for part in self._parts())

    @property
    def cache_hits(self) -> int:
        return sum(part.cache_hits for part in self._parts())

    @property
    def evictions(self) -> int:
        return sum(part.evictions for part in self._parts())

    @property
    def variants(self) -> list[VariantStats]:
        return [variant for part in self._parts() for variant in part.variants]

    @property
    def decisions(self) -> list[Decision]:
        return [decision for part in self._parts() for decision in part.decisions]

    @property
    def failures(self) -> list[str]:
        return [failure for part in self._parts() for failure in part.failures]

    @property
    def dispatch(self) -> Mapping[str, int]:
        """Calls that ran so far, by version, each exactly once.

        Versions of equal code count together. Calls that are refused run nothing.
        """
        total: dict[str, int] = {}
        for part in self._parts():
            for version, n in part.counter().items():
                total[version] = total.get(version, 0) + n
        return total

    @property
    def fallbacks(self) -> tuple[str, ...]:
        return tuple(text for v in self.variants for text in v.fallbacks)

    @property
    def milliseconds(self) -> dict[str, float]:
        """Time per stage over all compilations."""
        return _milliseconds(self.variants)

    def __repr__(self) -> str:
        names = ("compilations", "cache_hits", "evictions", "variants", "decisions", "failures")
        return f"Stats({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    def _repr_html_(self) -> str:
        from tcsym.runtime.stats_html import stats_html

        return stats_html(self)

    def __str__(self) -> str:
        lines = [f"compilations: {self.compilations}, cache hits: {self.cache_hits}"]
        if self.evictions:
            lines.append(f"evictions: {self.evictions}")
        lines += [f"variant {v}" for v in self.variants]
        lines += [f"{n} calls of {version}" for version, n in self.dispatch.items() if n]
        lines += [f"decided: {decision}" for decision in self.decisions]
        lines += [f"failed: {failure}" for failure in self.failures]
        lines += [f"fall-back: {text}" for text in self.fallbacks]
        lines += [f"  {stage}: {ms:.1f} ms" for stage, ms in self.milliseconds.items()]
        return "\n".join(lines)
