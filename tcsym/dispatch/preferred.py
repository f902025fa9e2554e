"""Strategy `Auto`: the way that a kernel's calls are served if it was measured to be the fastest.

Once all calls together took long enough, another process runs the ways in turns at the sizes called
most (`weigh`). The symbolic versions answer meanwhile, and keep what the way does not cover. What
was chosen is kept in the options store; a later process takes it without measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.requests import Asked, Weighing, Work
from tcsym.dispatch.version import Values, Version
from tcsym.ir.compiled import Compiled
from tcsym.runtime.size_functions import first_holding
from tcsym.runtime.stats import Decision
from tcsym.runtime.variants import Variant

if TYPE_CHECKING:
    from tcsym.dispatch.compare_entries import Weighed

Function = Callable[..., Any]
Chosen = tuple[tuple[Version, ...], Callable[..., int]]  # versions; which of them is for sizes
_NONE: Chosen = (), lambda *_: 0
MOST_SAMPLES = 4
LEAST_SIZES = 2  # with one, versions for single sizes do better
FITS = 0.9  # share of the calls that a way must cover to stay


class Preferred:
    """The way of one kernel; to be used under `lock`. `changed` is told when versions are ready."""

    def __init__(
        self,
        making: Making,
        entrance: Entrance,
        share: float,
        lock: RLock,
        changed: Callable[[], None],
    ) -> None:
        self.making, self.entrance, self.share = making, entrance, share
        self._lock, self._changed = lock, changed
        self.way = "symbolic"
        self._chosen = _NONE
        self.bound: dict[str, int] = {}
        self._is_begun = False
        self._wanted: set[Version] = set()  # asked for
        self._beside = Asked()

    @property
    def versions(self) -> tuple[Version, ...]:
        return self._chosen[0]

    # ---- calls

    def serving(self, sizes: Values) -> Version | None:
        """The version for these sizes, if the way has one that is compiled."""
        found = self._meant(sizes)
        return found if found is not None and found.variants.made else None

    def want(self, sizes: Values) -> None:
        """Have the version for these sizes compiled beside the calls, if the way has one."""
        found = self._meant(sizes)
        with self._lock:
            if found is None or found.variants.made or found in self._wanted:
                return
            self._wanted.add(found)
        from tcsym.dispatch.compile_queue import compilations

        done = self._compiled(found)
        compilations.submit(
            self._beside, Work(found.variants, found.variants.dense, self.share, done)
        )

    def _meant(self, sizes: Values) -> Version | None:
        versions, find = self._chosen  # at once: another thread may choose
        found = find(*sizes)
        return versions[found] if found < len(versions) else None

    def before(self, entry: Function) -> Function:
        """What calls of any sizes enter: what is bound, which passes to `entry` the others."""
        return entry if self.default is None else self.entrance.before(self.default, entry) or entry

    @property
    def default(self) -> Version | None:
        """What is bound, if it is the way and all other sizes have one version, too."""
        is_one = self.way == "bound" and len(self.making.regions) == 1
        return self.versions[0] if is_one else None

    @property
    def leads(self) -> bool:
        """True if calls enter its versions by their sizes: rows of the switch lead there."""
        return self.way != "symbolic" and self.default is None

    def covers(self, counts: Mapping[Values, int]) -> bool:
        """True if the way serves nearly all of these calls."""
        if self.way != "bound":
            return True
        slots = [(self.making.plan.sizes.index(n), v) for n, v in self.bound.items()]
        inside = sum(n for s, n in counts.items() if all(s[k] == v for k, v in slots))
        return inside >= FITS * sum(counts.values())

    # ---- choosing

    def begin(self, counts: Mapping[Values, int], threads: int) -> None:
        """Choose for calls of these sizes, beside them."""
        if self._is_begun or not self.share:
            return
        plan = self.making.plan
        self.bound = self._constant(list(counts))
        is_bounded = any(p.hi is not None for p in plan.promises.values())
        if not is_bounded and (not self.bound or len(counts) < LEAST_SIZES):
            return
        self._is_begun = True
        from tcsym.dispatch.compile_queue import compilations

        samples = sorted(counts, key=lambda s: -counts[s])[:MOST_SAMPLES]
        work = Weighing(self.making, samples, self.bound, threads, self.share, self._weighed)
        compilations.submit(self._beside, work)

    def weigh_now(self, sizes: Sequence[Values], threads: int) -> None:
        """Choose for these sizes before any call."""
        from tcsym.dispatch.compare_entries import weigh
        from tcsym.dispatch.recorded_choice import keep, recall

        self._is_begun = True
        weighed = recall(self.making, {})
        why = "measured before"
        if weighed is None:
            weighed, why = weigh(self.making, sizes, {}, threads), "measured ahead"
            if weighed is not None:
                keep(self.making, {}, weighed)
        if weighed is not None:
            self.choose(weighed, why)
            for version in dict.fromkeys(map(self._meant, weighed.sizes)):
                if version is not None:
                    self._enter(version, version.variants.made_for(version.variants.dense))
            self._changed()

    def _constant(self, sizes: Sequence[Values]) -> dict[str, int]:
        """Sizes that are the same in all calls, but not declared to be."""
        plan = self.making.plan
        return {
            name: sizes[0][k]
            for k, name in enumerate(plan.sizes)
            if plan.initial[k] is None and sizes and len({s[k] for s in sizes}) == 1
        }

    def _weighed(self, result: tuple[Weighed, str] | str | None) -> None:
        """On the thread of `beside`."""
        if isinstance(result, str):
            self.making.stats.failures.append(f"weighing: {result}")
        if not isinstance(result, tuple):
            return
        with self._lock:
            self.choose(*result)
        for sizes in result[0].sizes:
            self.want(sizes)
        self._changed()

    def choose(self, weighed: Weighed, why: str) -> None:
        """Take the fastest way; its versions may have to be compiled yet."""
        from tcsym.dispatch.compare_entries import buckets_of, padding_of

        self.way = weighed.best()
        costs = tuple((way, weighed.mean_seconds(way)) for way in weighed.seconds)
        if self.way == "bound":
            self._serve_with(self.making.partly_bound(self.bound))
        elif self.way == "bucket":
            self._serve_with(buckets_of(self.making).versions())
        elif self.way == "padded":
            self._serve_with((padding_of(self.making).serving(weighed.sizes[0]),))
        if self.way != "bound":
            self.bound = {}
        named = tuple(self.bound.items())
        self.making.stats.decide(Decision(named, self.way, f"{why}, all sizes", costs))

    def _serve_with(self, versions: tuple[Version, ...]) -> None:
        contexts = [v.context for v in versions]
        self._chosen = versions, first_holding(contexts, self.making.plan.sizes)

    def leave(self) -> tuple[Version, ...]:
        """Back to the symbolic versions: calls have other sizes now. The versions given up."""
        left = self.versions
        self.making.stats.decide(Decision((), "symbolic", "calls have other sizes now"))
        self.way, self._chosen, self.bound = "symbolic", _NONE, {}
        self._is_begun = False
        return left

    def _enter(self, version: Version, variant: Variant) -> None:
        if version.padding is None:  # what copies is called through Python
            self.entrance.prepare(version, variant)

    def _compiled(self, version: Version) -> Callable[[Compiled | str], None]:
        def done(result: Compiled | str) -> None:
            if isinstance(result, str):
                self.making.stats.failures.append(f"{version}: {result}")
                return
            self._enter(version, version.variants.adopt(version.variants.dense, result))
            self._changed()

        return done
