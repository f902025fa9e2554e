"""The dispatcher of `Auto`, and of `Specialize` in the background.

The symbolic versions answer every call; where tuned options have several regions, one that is
compiled answers until that of the region is. The switch counts calls by sizes; sizes that took much
time are compiled with numbers in another process (`beside`). With `Auto`, the user's own calls then
alternate between both (`trial`), and the faster one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from tcsym.compiled import Compiled
from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.entrance import Entrance
from tcsym.dispatch.making import Making
from tcsym.dispatch.points import Points, compile_seconds, corners, declared_sizes
from tcsym.dispatch.preferred import Preferred
from tcsym.dispatch.refined import REFINE_SECONDS, RefinedSizes
from tcsym.dispatch.stand_ins import StandIns
from tcsym.dispatch.switch import NOTICED_FROM
from tcsym.dispatch.trial import Trial, is_faster, median
from tcsym.dispatch.version import Values, Version
from tcsym.options import Bind
from tcsym.region import Region
from tcsym.runtime.arrays import View
from tcsym.stats import Decision
from tcsym.strategy import Auto, Specialize
from tcsym.threads import get_num_threads
from tcsym.variants import MAX_VARIANTS, Layouts, Variant, Variants

if TYPE_CHECKING:
    from tcsym.dispatch.switch import Switch

Function = Callable[..., Any]
State = Literal["compiling", "tried", "adopted", "rejected", "failed"]

TRIED_AHEAD = 16  # declared sizes that `precompile` compiles versions for, to see what they gain
FIRST_LOOK = 256  # calls after which one is timed; then each time they have doubled
WEIGHING = 3  # versions that are compiled to see how best to serve all calls
AGAIN_AFTER = 100_000  # calls after which what was decided is tried again
REGION_HOT = 0.25  # a region's version costs so much of what one for single sizes may
REFINE_HOT = 0.25  # and measuring options for single sizes
GIVE_UP_AFTER = 12  # sizes tried without any gain
DOUBT_AFTER = 3  # from then on, each such try doubles what makes sizes hot
_MOST_STATES = 4096


class Adaptive(Dispatcher):
    """Symbolic versions, and beside them versions for sizes that are worth it."""

    def __init__(self, making: Making, entrance: Entrance, strategy: Auto | Specialize) -> None:
        super().__init__(making, entrance)
        self.measured = isinstance(strategy, Auto)
        self.hot = strategy.hot if isinstance(strategy, Auto) else 0.0
        self.bind: Bind = "after" if isinstance(strategy, Auto) else strategy.bind
        self.share = strategy.share
        self.points = Points(strategy.max_variants)
        entrance.route = self._route
        self._states: dict[Values, State] = {}
        self._trials: dict[Values, Version] = {}  # tried and not decided
        self._begun: set[tuple[Variants, Layouts]] = set()  # compiled for other layouts
        self._stand_ins = StandIns(making.stats, self.share, self.lock, entrance)
        self._gained = self._lost = 0
        self._preferred = Preferred(making, entrance, self.share, self.lock, self._changed)
        self._refined = RefinedSizes(
            making, entrance, self.share if self.measured else 0.0, self.lock, self._lead_again
        )
        self._looked: list[float] = []  # seconds of calls that were looked at
        self._look_next = FIRST_LOOK

    # ---- calls

    def serving(self, sizes: Values) -> Version:
        found = self.points.made.get(sizes) or self._preferred.serving(sizes)
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
        if not self.measured and sizes not in self._states:
            self._specialise(sizes)

    def versions(self) -> tuple[Version, ...]:
        own = (*super().versions(), *self._refined.versions, *self._preferred.versions)
        return (*own, *self.points.made.values())

    def tried(self) -> tuple[Version, ...]:
        return tuple(self._trials.values())

    def others(self, sizes: Values) -> tuple[str, ...]:
        refined = self._refined.known(sizes) if self.measured else None
        told = (f"options {refined}",) if refined is not None and refined.seconds else ()
        return (*told, *self._other_versions(sizes))

    def _other_versions(self, sizes: Values) -> tuple[str, ...]:
        state = self._states.get(sizes)
        if state in ("adopted", "rejected", "failed"):
            return ()  # decisions and failures tell
        if state is not None:
            doing = "being compiled" if state == "compiling" else "calls alternate between both"
            return (f"specialised: {doing}",)
        if not self._is_open() or not self.measured:
            return ()
        switch = self.entrance.counting
        n = 0 if switch is None else switch.calls(sizes)
        told = f"specialised: not tried, {n} calls so far; is once they took {self._worth():.2g} s"
        return (f"{told}; compiling takes about {self._cost():.2g} s, beside the calls",)

    def _route(self, version: Version, entry: Function, sizes: Values | None) -> None:
        """Calls go to the native entry of a symbolic version, and are counted from now on."""
        if version in self.points.made.values() or version.padding is not None:
            return  # `_adopt` has seen to it
        is_one = len(self._ordered) == 1
        if version in self._preferred.versions and (is_one or sizes is None):
            self._changed()
        elif sizes is None:
            self._put_for_all(version, entry)
        elif self._states.get(sizes) not in ("tried", "adopted"):
            with self.lock:  # not while the code of a region is adopted
                self._put(version, entry, sizes)

    def _put_for_all(self, version: Version, entry: Function) -> None:
        is_counted = self._is_open() or self._refines
        switch = self.entrance.switch() if is_counted else None
        if switch is None:
            self.entrance.put(version, entry, None)
            return
        switch.set_default(self._preferred.before(entry))
        switch.track(self._notice, self._first_notice())
        if self.measured and not self._looked:
            switch.look_at(FIRST_LOOK)

    def _first_notice(self) -> int:
        """Where versions are for ranges, new sizes get rows that lead to theirs."""
        return 2 if self.hot == 0 or self._preferred.leads else NOTICED_FROM

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
            is_open = self._states.get(sizes) not in ("tried", "adopted")
            if switch is not None and is_open:
                switch.put(sizes, self._base_of(sizes), NOTICED_FROM)

    @property
    def _refines(self) -> bool:
        """True where options for single sizes are asked for: calls are counted all the time."""
        return self.measured and self.share > 0 and len(self.making.candidates) > 1

    def _is_open(self) -> bool:
        """False once enough sizes were tried in vain: then nothing is counted any more."""
        gained = self._gained > 0 or self._preferred.way != "symbolic"
        return self.share > 0 and (gained or self._lost < GIVE_UP_AFTER)

    def arrange(self) -> tuple[Version, ...]:
        """Symbolic versions; after the first, no call waits for a variant of other layouts."""
        versions = super().arrange()
        for version in versions if self.share else ():
            version.compile_beside = self._compile_layouts
        return versions

    def _compile_layouts(self, variants: Variants, layouts: Layouts) -> None:
        from tcsym.dispatch.beside import Work, compilations

        with self.lock:
            begun = [of for v, of in self._begun if v is variants]
            if layouts not in begun and len(begun) >= MAX_VARIANTS - 2:  # the dense one is there
                layouts = variants.general
            if layouts in begun:
                return
            self._begun.add((variants, layouts))

        def done(result: Compiled | str) -> None:
            if isinstance(result, str):
                told = ", ".join(layouts)
                self.making.stats.failures.append(f"variant for layouts {told}: {result}")
            else:
                variants.adopt(layouts, result)

        compilations.submit(Work(variants, layouts, self.share, done))

    # ---- what is worth it

    def _notice(self, *args: Any, **kwargs: Any) -> Any:
        """A call that the switch thinks is one of many with its sizes."""
        switch = self.entrance.switch()
        assert switch is not None
        if switch.total == self._look_next:
            return self._look(switch, args, kwargs)
        sizes = switch.sizes_of(args, kwargs)
        own = self._own(sizes)
        base = self._base_of(sizes)
        start = perf_counter()
        result = base(*args, **kwargs)
        seconds = perf_counter() - start
        with self.lock:
            worth = REGION_HOT * self.hot * self._cost()
            waits = self._stand_ins.took(own, seconds * NOTICED_FROM, worth)
        state = self._states.get(sizes)
        if waits:
            switch.again(sizes, NOTICED_FROM)
            return result
        self._lead(switch, sizes)
        if state is None:
            self._consider(sizes, seconds)
        elif state in ("adopted", "rejected") and sizes in self.points.made:
            self._try(sizes, self.points.made[sizes])
        return result

    def _base_of(self, sizes: Values) -> Function:
        """What serves sizes that have no version of their own."""
        return self.entrance.entry_of(self._base_version(sizes)) or self.entrance.slow

    def _base_version(self, sizes: Values) -> Version:
        return self._preferred.serving(sizes) or self._stand_ins.now(self._own(sizes))

    def _lead(self, switch: Switch, sizes: Values) -> None:
        """Calls of these sizes enter the version of the preferred way, if they have one each."""
        if self._preferred.leads and sizes not in self._states:
            self._preferred.want(sizes)
            switch.put(sizes, self._base_of(sizes), NOTICED_FROM)

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
            is_due = spent >= WEIGHING * self.hot * self._cost()
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
        return self._base_of(sizes)

    def _consider(self, sizes: Values, seconds: float) -> None:
        switch = self.entrance.switch()
        assert switch is not None
        if self._refined.is_busy(sizes):
            switch.again(sizes, NOTICED_FROM)
        elif self._refined.may_ask(sizes) and self._preferred.serving(sizes) is None:
            if switch.have_taken(sizes, seconds, REFINE_HOT * self.hot * REFINE_SECONDS):
                switch.again(sizes, NOTICED_FROM)
                self._refined.ask(sizes, get_num_threads())
        elif self._is_open() and switch.have_taken(sizes, seconds, self._worth()):
            self._specialise(sizes)

    def _worth(self) -> float:
        """Seconds that calls of the same sizes take before a version for these is tried."""
        doubt = 1 << max(0, self._lost - DOUBT_AFTER) if not self._gained else 1
        return doubt * self.hot * self._cost()

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
        most = min(self.points.most, TRIED_AHEAD) if self.measured else self.points.most
        every = declared_sizes(plan, most)
        if not self.measured:
            for sizes in every:
                self._specialise(sizes)
            return
        tried = every or corners(plan)
        gained = sum([self._measure(sizes, adopt=bool(every)) for sizes in tried])
        if tried and not gained:
            self.share = 0.0
            self.making.stats.decide(
                Decision((), "symbolic", "no declared sizes gain by being numbers in the code")
            )

    def _measure(self, sizes: Values, adopt: bool) -> bool:
        """True if a version for `sizes` is faster than the symbolic one."""
        from tcsym.dispatch.weigh import run_both

        base = self.serving(sizes)
        version = self.making.point(sizes, self.bind, self.region_of(sizes))
        spent = run_both(self.making.plan, base, version, sizes, get_num_threads())
        if spent is None:
            return False
        symbolic, specialised = median(spent[0]), median(spent[1])
        if not is_faster(spent[1], spent[0]):
            self._told(sizes, "symbolic", "measured ahead", symbolic, specialised)
            return False
        if adopt:
            self._adopt(sizes, version, "measured ahead", symbolic, specialised)
        else:
            self._told(sizes, "specialised", "measured ahead", symbolic, specialised)
        return True

    # ---- compiling beside

    def _specialise(self, sizes: Values) -> None:
        from tcsym.dispatch.beside import Work, compilations

        with self.lock:
            if sizes in self._states or self.share == 0:
                return
            if len(self._states) >= _MOST_STATES:
                self._forget()
            self._states[sizes] = "compiling"
        version = self.making.point(sizes, self.bind, self.region_of(sizes))
        layouts = version.variants.dense
        done = lambda result: self._compiled(sizes, version, result)  # noqa: E731
        compilations.submit(Work(version.variants, layouts, self.share, done))

    def _forget(self) -> None:
        """Make room: what is not served by a version of its own may be considered again."""
        self._states = {k: s for k, s in self._states.items() if k in self.points.made}

    def _compiled(self, sizes: Values, version: Version, result: Compiled | str) -> None:
        """On the thread of `beside`."""
        if isinstance(result, str):
            self._states[sizes] = "failed"
            self.making.stats.failures.append(f"{version}: {result}")
            return
        variant = version.variants.adopt(version.variants.dense, result)
        entry = self.entrance.prepare(version, variant)
        if not self.measured:
            self._adopt(sizes, version, "compiled beside the calls", 0.0, 0.0)
        elif entry is not None:
            self._try(sizes, version)

    # ---- deciding

    def _try(self, sizes: Values, version: Version) -> None:
        switch, entry = self.entrance.switch(), self.entrance.entry_of(version)
        base = self._base_of(sizes)
        if switch is None or entry is None:
            return
        self._states[sizes] = "tried"
        self._trials[sizes] = version

        def decide(adopt: bool, symbolic: float, specialised: float) -> None:
            if adopt:
                self._gained += 1
                self._adopt(sizes, version, "faster", symbolic, specialised)
            else:
                self._reject(sizes, version, symbolic, specialised)

        switch.put(sizes, Trial(base, entry, decide))

    def _adopt(
        self, sizes: Values, version: Version, why: str, symbolic: float, specialised: float
    ) -> None:
        with self.lock:
            self._states[sizes] = "adopted"
            self._trials.pop(sizes, None)
            if sizes not in self.points.made:
                gone = self.points.add(sizes, version, self.calls)
                if gone is not None:
                    self.drop(*gone)
                    self._states.pop(gone[0], None)
                    self.making.stats.evictions += 1
        entry, switch = self.entrance.entry_of(version), self.entrance.switch()
        if entry is not None and switch is not None:
            switch.put(sizes, entry, AGAIN_AFTER if self.measured else 0)
        self._told(sizes, "specialised", why, symbolic, specialised)

    def _reject(self, sizes: Values, version: Version, symbolic: float, specialised: float) -> None:
        with self.lock:
            self._states[sizes] = "rejected"
            self.points.made.pop(sizes, None)
            self._trials.pop(sizes, None)
            self._lost += 1
            self.drop(sizes, version)
        self._told(sizes, "symbolic", "no slower", symbolic, specialised)
        if not self._is_open():
            self._close()

    def _close(self) -> None:
        """Nothing was gained: calls enter the symbolic version directly again."""
        if len(self._ordered) != 1 or self._refines:
            return
        entry = self.entrance.entry_of(self._ordered[0])
        if entry is not None:
            self.entrance.put(self._ordered[0], entry, None)
            self.making.stats.decide(Decision((), "symbolic", "specialising gained nothing"))

    def _told(
        self, sizes: Values, chosen: str, why: str, symbolic: float, specialised: float
    ) -> None:
        named = tuple(zip(self.making.plan.sizes, sizes))
        costs = (("symbolic", symbolic), ("specialised", specialised)) if symbolic else ()
        self.making.stats.decide(Decision(named, chosen, why, costs))
