"""The dispatcher of `Auto`, and of `Specialize` in the background.

What serves a call of some sizes is the first of these that there is:

    hot sizes    a version with numbers, for sizes that took much time           `hot_sizes`
    preferred    the way that serves all calls fastest, if one was measured      `preferred`
    refined      the tuned options that were measured at these sizes             `refined`
    region       the symbolic version of their region                            `dispatcher`
    stand-in     any other that is compiled, until that one is                   `stand_ins`

The switch counts calls by sizes and hands a few of them to `_notice`, which times them and so finds
out what is worth to be compiled or measured next: always beside the calls, in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.hot_sizes import HotSizes
from tcsym.dispatch.layouts_beside import LayoutsBeside
from tcsym.dispatch.making import Making
from tcsym.dispatch.points import compile_seconds, corners, declared_sizes
from tcsym.dispatch.preferred import Preferred
from tcsym.dispatch.refined import REFINE_SECONDS, RefinedSizes
from tcsym.dispatch.stand_ins import StandIns
from tcsym.dispatch.switch import NOTICED_FROM
from tcsym.dispatch.trial import median
from tcsym.dispatch.version import Values, Version
from tcsym.process.threads import get_num_threads
from tcsym.runtime.stats import Decision
from tcsym.runtime.variants import Variant
from tcsym.runtime.view import View
from tcsym.sizes.region import Region
from tcsym.strategy import Auto, Specialize

if TYPE_CHECKING:
    from tcsym.dispatch.switch import Switch

Function = Callable[..., Any]
TRIED_AHEAD = 16  # declared sizes that `precompile` compiles versions for, to see what they gain
FIRST_LOOK = 256  # calls after which one is timed; then each time they have doubled
WEIGHING = 3  # versions that are compiled to see how best to serve all calls
REGION_HOT = 0.25  # a region's version costs so much of what one for single sizes may
REFINE_HOT = 0.25  # and measuring options for single sizes


class Adaptive(Dispatcher):
    """Symbolic versions, and beside them versions for sizes that are worth it."""

    def __init__(self, making: Making, entrance: Entrance, strategy: Auto | Specialize) -> None:
        super().__init__(making, entrance)
        self.measured = isinstance(strategy, Auto)
        self.patience = strategy.hot if isinstance(strategy, Auto) else 0.0
        self.share = strategy.share
        entrance.route = self._route
        self.hot = HotSizes(self, strategy)
        self._layouts = LayoutsBeside(making.stats, self.share, self.lock)
        self._stand_ins = StandIns(making.stats, self.share, self.lock, entrance)
        self._preferred = Preferred(making, entrance, self.share, self.lock, self._changed)
        asked = self.share if self.measured else 0.0
        self._refined = RefinedSizes(making, entrance, asked, self.lock, self._lead_again)
        self._looked: list[float] = []  # seconds of calls that were looked at
        self._look_next = FIRST_LOOK

    # ---- calls

    def serving(self, sizes: Values) -> Version:
        found = self.hot.made.get(sizes) or self._preferred.serving(sizes)
        return found or self._own(sizes)

    def _own(self, sizes: Values) -> Version:
        """The symbolic version for these sizes: with options measured for them, or the region's."""
        regions = super().serving(sizes)
        return (self._refined.serving(sizes) if self.measured else None) or regions

    def region_of(self, sizes: Values) -> Region:
        return self._refined.region_of(sizes) if self.measured else super().region_of(sizes)

    def answering(self, sizes: Values) -> Version:
        """After the first call none waits: another version answers until its own is made."""
        version = self.serving(sizes)
        if version.variants.made or not self.share:
            return version
        with self.lock:
            return self._stand_ins.found(version, (*self._ordered, *self._refined.versions))

    def served(
        self, sizes: Values, views: Sequence[View], version: Version, variant: Variant
    ) -> None:
        if version.kind == "refined":
            self.entrance.enter(version, views, variant, sizes)
        elif version.padding is None:
            super().served(sizes, views, version, variant)
        if not self.measured:
            self.hot.specialise(sizes)

    def versions(self) -> tuple[Version, ...]:
        own = (*super().versions(), *self._refined.versions, *self._preferred.versions)
        return (*own, *self.hot.made.values())

    def tried(self) -> tuple[Version, ...]:
        return self.hot.tried()

    def others(self, sizes: Values) -> tuple[str, ...]:
        refined = self._refined.known(sizes) if self.measured else None
        told = (f"options {refined}",) if refined is not None and refined.seconds else ()
        switch = self.entrance.counting
        n = 0 if switch is None else switch.calls(sizes)
        return (*told, *self.hot.text(sizes, n, self._is_open()))

    # ---- what calls enter

    def _route(self, version: Version, entry: Function, sizes: Values | None) -> None:
        """Calls go to the native entry of a symbolic version, and are counted from now on."""
        if version in self.hot.made.values() or version.padding is not None:
            return  # who adopted it has seen to it
        is_one = len(self._ordered) == 1
        if version in self._preferred.versions and (is_one or sizes is None):
            self._changed()
        elif sizes is None:
            self._put_for_all(version, entry)
        elif not self.hot.leads(sizes):
            with self.lock:  # not while the code of a region is adopted
                self._put(version, entry, sizes)

    def _put_for_all(self, version: Version, entry: Function) -> None:
        is_divided = len(self._ordered) > 1
        is_counted = self._is_open() or self._refines or is_divided
        switch = self.entrance.switch() if is_counted else None
        if switch is None:
            self.entrance.put(version, entry, None)
            return
        if not (is_divided and self.entrance.lead(version, entry)):
            switch.set_default(self._preferred.before(entry))
        switch.track(self._notice, self._first_notice())
        if self.measured and not self._looked:
            switch.look_at(FIRST_LOOK)

    def _first_notice(self) -> int:
        """Where versions are for ranges, new sizes get rows that lead to theirs."""
        return 2 if self.patience == 0 or self._preferred.leads else NOTICED_FROM

    def _changed(self) -> None:
        """Versions of the preferred way are ready, or there are none any more."""
        switch = self.entrance.counting
        if switch is not None and len(self._ordered) > 1:
            for sizes in switch.counts():
                self._lead_again(sizes)
            return
        entry = self.entrance.entry_of(self._ordered[0]) if len(self._ordered) == 1 else None
        if switch is not None and entry is not None:
            switch.set_default(self._preferred.before(entry))
            switch.track(self._notice, self._first_notice())

    def _put(self, version: Version, entry: Function, sizes: Values) -> None:
        own = self._preferred.serving(sizes) or self._own(sizes)
        stands_in = own is not version
        if stands_in and not self._stand_ins.may_enter(own, sizes):
            return
        if self._preferred.leads:
            self._preferred.want(sizes)
        switch = self.entrance.switch()
        if switch is None:
            return
        is_noticed = stands_in or self._is_open() or self._refines
        switch.track(self._notice, self._first_notice())
        if len(self._ordered) > 1 and self.measured and not self._looked:
            switch.look_at(FIRST_LOOK)
        if stands_in or not self.entrance.lead(version, entry):
            switch.put(sizes, entry, NOTICED_FROM if is_noticed else 0)

    def _lead_again(self, sizes: Values) -> None:
        """Calls of these sizes enter what serves them now."""
        switch = self.entrance.switch()
        with self.lock:
            if switch is not None and not self.hot.leads(sizes):
                switch.put(sizes, self.base_of(sizes), NOTICED_FROM)

    @property
    def _refines(self) -> bool:
        """True where options for single sizes are asked for: calls are counted all the time."""
        return self.measured and self.share > 0 and len(self.making.candidates) > 1

    def _is_open(self) -> bool:
        """False once enough sizes were tried in vain: then nothing is counted any more."""
        return self.hot.is_open(self._preferred.way != "symbolic")

    def arrange(self) -> tuple[Version, ...]:
        """Symbolic versions; after the first, no call waits for a variant of other layouts."""
        versions = super().arrange()
        for version in versions if self.share else ():
            version.compile_beside = self._layouts.compile
        return versions

    # ---- what is worth it

    def _notice(self, *args: Any, **kwargs: Any) -> Any:
        """A call that the switch thinks is one of many with its sizes."""
        switch = self.entrance.switch()
        assert switch is not None
        if switch.total == self._look_next:
            return self._look(switch, args, kwargs)
        sizes = switch.sizes_of(args, kwargs)
        own = self._own(sizes)
        base = self.base_of(sizes)
        start = perf_counter()
        result = base(*args, **kwargs)
        seconds = perf_counter() - start
        with self.lock:
            worth = REGION_HOT * self.patience * self._cost()
            waits = self._stand_ins.took(own, seconds * NOTICED_FROM, worth)
        if waits:
            switch.again(sizes, NOTICED_FROM)
            return result
        self._lead(switch, sizes)
        if sizes not in self.hot.states:
            self._consider(sizes, seconds)
        else:
            self.hot.again(sizes)
        return result

    def base_of(self, sizes: Values) -> Function:
        """What serves sizes that have no version of their own."""
        return self.entrance.entry_of(self._base_version(sizes)) or self.entrance.slow

    def _base_version(self, sizes: Values) -> Version:
        return self._preferred.serving(sizes) or self._stand_ins.now(self._own(sizes))

    def _lead(self, switch: Switch, sizes: Values) -> None:
        """Calls of these sizes enter the version of the preferred way, if they have one each."""
        if self._preferred.leads and sizes not in self.hot.states:
            self._preferred.want(sizes)
            switch.put(sizes, self.base_of(sizes), NOTICED_FROM)

    def _look(self, switch: Switch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Now and then a call is timed: if all took long enough, see how best to serve them."""
        entered = self._entered(switch, args, kwargs)
        start = perf_counter()
        result = entered(*args, **kwargs)
        self._looked.append(perf_counter() - start)
        self._look_next = 2 * switch.total
        switch.look_at(self._look_next)
        with self.lock:
            spent = median(self._looked) * switch.total
            is_due = spent >= WEIGHING * self.patience * self._cost()
            if not is_due and self._preferred.way != "bound":
                return result
            counts = switch.counts()
            if not self._preferred.covers(counts):
                for version in self._preferred.leave():
                    self.drop(None, version)
                self._changed()
            if counts and is_due:
                self._preferred.begin(counts, get_num_threads())
        return result

    def _entered(self, switch: Switch, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
        """What serves such a call natively; the default where the switch cannot read its sizes."""
        if len(self._ordered) == 1:
            return switch.default
        try:
            sizes = switch.sizes_of(args, kwargs)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return switch.default  # arguments of other kinds, which it accepts or refuses
        return self.base_of(sizes)

    def _consider(self, sizes: Values, seconds: float) -> None:
        switch = self.entrance.switch()
        assert switch is not None
        if self._refined.is_busy(sizes):
            switch.again(sizes, NOTICED_FROM)
        elif self._refined.may_ask(sizes) and self._preferred.serving(sizes) is None:
            if switch.have_taken(sizes, seconds, REFINE_HOT * self.patience * REFINE_SECONDS):
                switch.again(sizes, NOTICED_FROM)
                self._refined.ask(sizes, get_num_threads())
        elif self._is_open() and switch.have_taken(sizes, seconds, self.hot.worth()):
            self.hot.specialise(sizes)

    def _cost(self) -> float:
        """Seconds that compiling another version is likely to take."""
        return compile_seconds(self.making.stats)

    # ---- ahead of calls

    def precompile(self) -> None:
        """Compile the symbolic versions; with `Auto`, see where numbers for sizes pay.

        All declared sizes are tried if they are few, else the corners of what is declared.
        """
        super().precompile()
        plan = self.making.plan
        if self.measured and self.share:
            self._preferred.weigh_now(corners(plan), get_num_threads())
        most = min(self.hot.most, TRIED_AHEAD) if self.measured else self.hot.most
        every = declared_sizes(plan, most)
        if not self.measured:
            for sizes in every:
                self.hot.specialise(sizes)
            return
        tried = every or corners(plan)
        gained = sum([self.hot.measure(sizes, adopt=bool(every)) for sizes in tried])
        if tried and not gained:
            self.share = self.hot.share = 0.0
            self.making.stats.decide(
                Decision((), "symbolic", "no declared sizes gain by being numbers in the code")
            )

    def rejected(self) -> None:
        """Once nothing was gained often enough, calls enter the symbolic version directly again."""
        if self._is_open() or len(self._ordered) != 1 or self._refines:
            return
        entry = self.entrance.entry_of(self._ordered[0])
        if entry is not None:
            self.entrance.put(self._ordered[0], entry, None)
            self.making.stats.decide(Decision((), "symbolic", "specialising gained nothing"))
