"""Single sizes whose calls took much time -> what became of a version with numbers for them.

    state        calls enter                     what comes next, and when
    (none)       what serves all sizes           compiling: their calls took long enough
                                                 adopted: measured ahead of calls
    compiling    that                            tried; adopted (`Specialize`); failed
    tried        both in turns (`trial`)         adopted: it was faster; else rejected
    adopted      the version with numbers        tried: after many calls; (none): it made room
    rejected     what serves all sizes           (none): there are too many to remember
    failed       that                            (none): likewise

What comes too late, as a trial that is decided after its version made room, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, Literal, Protocol

from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.points import Points, compile_seconds
from tcsym.dispatch.requests import Asked, Work
from tcsym.dispatch.trial import Trial, is_faster, median
from tcsym.dispatch.version import Values, Version
from tcsym.ir.compiled import Compiled
from tcsym.process.threads import get_num_threads
from tcsym.runtime.stats import Decision
from tcsym.sizes.region import Region
from tcsym.strategy import Auto, Specialize

Function = Callable[..., Any]
State = Literal["compiling", "tried", "adopted", "rejected", "failed"]

AGAIN_AFTER = 100_000  # calls after which what was decided is tried again
GIVE_UP_AFTER = 12  # sizes tried without any gain
DOUBT_AFTER = 3  # from then on, each such try doubles what makes sizes hot
MOST_STATES = 4096
_NEXT: Mapping[State | None, tuple[State, ...]] = {
    None: ("compiling", "adopted"),
    "compiling": ("tried", "adopted", "failed"),
    "tried": ("adopted", "rejected"),
    "adopted": ("tried",),
    "rejected": (),
    "failed": (),
}


class Owner(Protocol):
    """The dispatcher: what serves sizes that have no version of their own."""

    making: Making
    entrance: Entrance
    lock: RLock

    def serving(self, sizes: Values) -> Version: ...
    def base_of(self, sizes: Values) -> Function: ...
    def region_of(self, sizes: Values) -> Region: ...
    def calls(self, version: Version) -> int: ...
    def drop(self, sizes: Values | None, version: Version) -> None: ...
    def rejected(self) -> None: ...


class HotSizes:
    """Of one kernel. With `Auto`, versions are tried beside calls, else adopted as they come."""

    def __init__(self, owner: Owner, strategy: Auto | Specialize) -> None:
        self.owner = owner
        self.is_measured = isinstance(strategy, Auto)
        self.share = strategy.share  # of a core; 0: nothing is compiled
        self._hot = strategy.hot if isinstance(strategy, Auto) else 0.0
        self._bind = strategy.bind if isinstance(strategy, Specialize) else "after"
        self._points = Points(strategy.max_variants)
        self._beside = Asked()
        self.states: dict[Values, State] = {}
        self._trials: dict[Values, Version] = {}  # tried and not decided
        self._gained = self._lost = 0

    # ---- what there is

    @property
    def made(self) -> Mapping[Values, Version]:
        """The adopted versions."""
        return self._points.made

    @property
    def most(self) -> int:
        return self._points.most

    def tried(self) -> tuple[Version, ...]:
        return tuple(self._trials.values())

    def leads(self, sizes: Values) -> bool:
        """True if calls of these sizes enter a version of their own, if only in turns."""
        return self.states.get(sizes) in ("tried", "adopted")

    def is_open(self, gained: bool = False) -> bool:
        """False once enough sizes were tried in vain. gained: something else was worth it."""
        return self.share > 0 and (gained or self._gained > 0 or self._lost < GIVE_UP_AFTER)

    def worth(self) -> float:
        """Seconds that calls of the same sizes take before a version for these is tried."""
        doubt = 1 << max(0, self._lost - DOUBT_AFTER) if not self._gained else 1
        return doubt * self._hot * compile_seconds(self.owner.making.stats)

    # ---- what becomes what

    def specialise(self, sizes: Values) -> None:
        """(none) -> compiling, in another process."""
        from tcsym.dispatch.compile_queue import compilations

        if sizes in self.states or self.share == 0 or not self._move(sizes, "compiling"):
            return
        version = self._version(sizes)
        done = lambda result: self._compiled(sizes, version, result)  # noqa: E731
        compilations.submit(
            self._beside, Work(version.variants, version.variants.dense, self.share, done)
        )

    def _compiled(self, sizes: Values, version: Version, result: Compiled | str) -> None:
        """compiling -> tried, adopted or failed; on the thread of `beside`."""
        if isinstance(result, str):
            self._move(sizes, "failed")
            self.owner.making.stats.failures.append(f"{version}: {result}")
            return
        variant = version.variants.adopt(version.variants.dense, result)
        entry = self.owner.entrance.prepare(version, variant)
        if not self.is_measured:
            self._adopt(sizes, version, "compiled beside the calls")
        elif entry is not None:
            self._try(sizes, version)

    def again(self, sizes: Values) -> None:
        """adopted -> tried."""
        version = self._points.made.get(sizes)
        if version is not None:
            self._try(sizes, version)

    def _try(self, sizes: Values, version: Version) -> None:
        entrance = self.owner.entrance
        switch, entry, base = (
            entrance.switch(),
            entrance.entry_of(version),
            self.owner.base_of(sizes),
        )
        if switch is None or entry is None or not self._move(sizes, "tried"):
            return
        self._trials[sizes] = version

        def decide(adopt: bool, symbolic: float, specialised: float) -> None:
            if adopt:
                self._gained += 1
                self._adopt(sizes, version, "faster", symbolic, specialised)
            else:
                self._reject(sizes, version, symbolic, specialised)

        switch.put(sizes, Trial(base, entry, decide))

    def _adopt(
        self,
        sizes: Values,
        version: Version,
        why: str,
        symbolic: float = 0.0,
        specialised: float = 0.0,
    ) -> None:
        owner = self.owner
        with owner.lock:
            if not self._move(sizes, "adopted"):
                return
            self._trials.pop(sizes, None)
            gone = None
            if sizes not in self._points.made:
                gone = self._points.add(sizes, version, owner.calls)
            if gone is not None:
                self.states.pop(gone[0], None)
                self._trials.pop(gone[0], None)
                owner.drop(*gone)
                owner.making.stats.evictions += 1
        entry, switch = owner.entrance.entry_of(version), owner.entrance.switch()
        if entry is not None and switch is not None:
            switch.put(sizes, entry, AGAIN_AFTER if self.is_measured else 0)
        self._told(sizes, "specialised", why, symbolic, specialised)

    def _reject(self, sizes: Values, version: Version, symbolic: float, specialised: float) -> None:
        with self.owner.lock:
            if not self._move(sizes, "rejected"):
                return
            self._points.made.pop(sizes, None)
            self._trials.pop(sizes, None)
            self._lost += 1
            self.owner.drop(sizes, version)
        self._told(sizes, "symbolic", "no slower", symbolic, specialised)
        self.owner.rejected()

    def _move(self, sizes: Values, state: State) -> bool:
        """False if the table above has no such way from where these sizes are."""
        with self.owner.lock:
            if state not in _NEXT[self.states.get(sizes)]:
                return False
            if sizes not in self.states and len(self.states) >= MOST_STATES:
                self._forget()
            self.states[sizes] = state
            return True

    def _forget(self) -> None:
        """What was given up may be considered again."""
        given_up = ("rejected", "failed")
        self.states = {k: s for k, s in self.states.items() if s not in given_up}

    # ---- ahead of calls

    def measure(self, sizes: Values, adopt: bool) -> bool:
        """True if a version for `sizes` is faster than what serves them now; it may be adopted."""
        from tcsym.dispatch.compare_entries import run_both

        base, version = self.owner.serving(sizes), self._version(sizes)
        spent = run_both(self.owner.making.plan, base, version, sizes, get_num_threads())
        if spent is None:
            return False
        seconds = median(spent[0]), median(spent[1])
        is_better = is_faster(spent[1], spent[0])
        if is_better and adopt:
            self._adopt(sizes, version, "measured ahead", *seconds)
        else:
            chosen = "specialised" if is_better else "symbolic"
            self._told(sizes, chosen, "measured ahead", *seconds)
        return is_better

    def _version(self, sizes: Values) -> Version:
        return self.owner.making.point(sizes, self._bind, self.owner.region_of(sizes))

    def _told(
        self, sizes: Values, chosen: str, why: str, symbolic: float, specialised: float
    ) -> None:
        named = tuple(zip(self.owner.making.plan.sizes, sizes))
        costs = (("symbolic", symbolic), ("specialised", specialised)) if symbolic else ()
        self.owner.making.stats.decide(Decision(named, chosen, why, costs))

    def text(self, sizes: Values, calls: int, is_open: bool) -> tuple[str, ...]:
        """What numbers for these sizes would take, where decisions and failures do not tell."""
        state = self.states.get(sizes)
        if state == "compiling":
            return ("specialised: being compiled",)
        if state == "tried":
            return ("specialised: calls alternate between both",)
        if state is not None or not is_open or not self.is_measured:
            return ()
        told = (
            f"specialised: not tried, {calls} calls so far; is once they took {self.worth():.2g} s"
        )
        cost = compile_seconds(self.owner.making.stats)
        return (f"{told}; compiling takes about {cost:.2g} s, beside the calls",)
