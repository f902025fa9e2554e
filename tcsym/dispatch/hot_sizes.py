# SPDX-License-Identifier: Apache-2.0
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

from collections.abc import Mapping
from threading import RLock
from typing import Literal

from tcsym.dispatch.beside import Beside
from tcsym.dispatch.points import Room, compile_seconds
from tcsym.dispatch.table import Point, Table
from tcsym.dispatch.trial import is_faster, median
from tcsym.dispatch.version import Values, Version
from tcsym.process.forks import inside
from tcsym.process.threads import get_num_threads
from tcsym.runtime.stats import Decision
from tcsym.strategy import Auto, Specialize

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


class HotSizes:
    """Of one kernel. With `Auto`, versions are tried beside calls, else adopted as they come."""

    def __init__(self, policy: Beside, strategy: Auto | Specialize) -> None:
        self.policy = policy
        self.is_measured = isinstance(strategy, Auto)
        self._hot = strategy.hot if isinstance(strategy, Auto) else 0.0
        self._bind = strategy.bind if isinstance(strategy, Specialize) else "after"
        self._room = Room(strategy.max_variants)
        self._lock = RLock()
        self.states: dict[Values, State] = {}
        self._gained = self._lost = 0

    @property
    def most(self) -> int:
        return self._room.most

    def is_open(self, gained: bool = False) -> bool:
        """False once enough sizes were tried in vain. gained: something else was worth it."""
        return self.policy.is_active and (gained or self._gained > 0 or self._lost < GIVE_UP_AFTER)

    def worth(self) -> float:
        """Seconds that calls of the same sizes take before a version for these is tried."""
        doubt = 1 << max(0, self._lost - DOUBT_AFTER) if not self._gained else 1
        return doubt * self._hot * compile_seconds(self.policy.making.stats)

    # ---- what becomes what

    def specialise(self, sizes: Values) -> None:
        """(none) -> compiling, in another process."""
        if sizes in self.states or not self.policy.is_active or not self._move(sizes, "compiling"):
            return
        version = self._version(sizes)
        made = lambda: self._compiled(sizes, version)  # noqa: E731
        self.policy.compile(version, made, failed=lambda: self._move(sizes, "failed"))

    def _compiled(self, sizes: Values, version: Version) -> None:
        """compiling -> tried or adopted; on the thread of `compile_queue`."""
        if self.is_measured:
            self._try(sizes, Point(version, is_adopted=False))
        else:
            self._adopt(sizes, version, "compiled beside the calls")

    def again(self, sizes: Values) -> None:
        """adopted -> tried."""
        point = self.policy.holder.table.points.get(sizes)
        if point is not None and point.is_adopted:
            self._try(sizes, point)

    def _try(self, sizes: Values, point: Point) -> None:
        version = point.version

        @inside
        def decide(adopt: bool, symbolic: float, specialised: float) -> None:
            if adopt:
                self._gained += 1
                self._adopt(sizes, version, "faster", symbolic, specialised)
            else:
                self._reject(sizes, symbolic, specialised)

        if self._move(sizes, "tried"):
            tried = point._replace(again=0, decide=decide)
            self.policy.propose(lambda now: now.with_point(sizes, tried), version)

    def _adopt(
        self,
        sizes: Values,
        version: Version,
        why: str,
        symbolic: float = 0.0,
        specialised: float = 0.0,
    ) -> None:
        if not version.is_gone and self._move(sizes, "adopted"):
            again = AGAIN_AFTER if self.is_measured else 0
            adopted = Point(version, again)
            edit = lambda now: self._with_room(now, sizes).with_point(sizes, adopted)  # noqa: E731
            self.policy.propose(edit, version)
            self._told(sizes, "specialised", why, symbolic, specialised)

    def _with_room(self, table: Table, sizes: Values) -> Table:
        """The least used of the adopted versions makes room for one of these sizes."""
        adopted = {k: p for k, p in table.points.items() if p.is_adopted}
        gone = None if sizes in adopted else self._room.given_up(adopted, self.policy.holder.calls)
        if gone is None:
            return table
        with self._lock:
            self.states.pop(gone, None)
        self.policy.making.stats.evictions += 1
        return table.without_point(gone)

    def _reject(self, sizes: Values, symbolic: float, specialised: float) -> None:
        if not self._move(sizes, "rejected"):
            return
        self._lost += 1
        table = self.policy.propose(lambda now: now.without_point(sizes))
        self._told(sizes, "symbolic", "no slower", symbolic, specialised)
        if not table.noticed_after and len(table.ranges.versions) == 1:
            why = "specialising gained nothing"
            self.policy.making.stats.decide(Decision((), "symbolic", why))

    def _move(self, sizes: Values, state: State) -> bool:
        """False if the table above has no such way from where these sizes are."""
        with self._lock:
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

        base, version = self.policy.holder.serving(sizes), self._version(sizes)
        spent = run_both(self.policy.making.plan, base, version, sizes, get_num_threads())
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
        return self.policy.making.point(sizes, self._bind, self.policy.region_of(sizes))

    def _told(
        self, sizes: Values, chosen: str, why: str, symbolic: float, specialised: float
    ) -> None:
        named = tuple(zip(self.policy.making.plan.sizes, sizes))
        costs = (("symbolic", symbolic), ("specialised", specialised)) if symbolic else ()
        self.policy.making.stats.decide(Decision(named, chosen, why, costs))

    def text(self, sizes: Values, calls: int, is_open: bool) -> tuple[str, ...]:
        """What numbers for these sizes would take, where decisions and failures do not tell."""
        state = self.states.get(sizes)
        if state == "compiling":
            return ("specialised: being compiled",)
        if state == "tried":
            return ("specialised: calls alternate between both",)
        if state is not None or not is_open or not self.is_measured:
            return ()
        cost = compile_seconds(self.policy.making.stats)
        return (
            f"specialised: not yet, {calls} calls so far; when they took {self.worth():.2g} s, code"
            f" with these sizes as numbers is compiled beside them, in about {cost:.2g} s",
        )
