# SPDX-License-Identifier: Apache-2.0
"""What one kernel was given -> its versions: which options and numbers their code is made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec.structs import replace

from tcsym.dispatch.version import Kind, Values, Version
from tcsym.index.expr import FALSE, TRUE, Condition, all_of, eq, var
from tcsym.index.values import holds
from tcsym.options import Bind, Options
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.stats import Counters
from tcsym.runtime.variants import Demand, Variants
from tcsym.sizes.dims import Dim
from tcsym.sizes.region import Region
from tcsym.sizes.shaping import shaping_sizes
from tcsym.target.target import Target
from tcsym.tuning import candidates_for, lookup

if TYPE_CHECKING:
    from tcsym.rewrite.pad import PaddedProgram
    from tcsym.sizes.context import Context


class Making:
    """Makes versions of one kernel. Versions of equal options and numbers share their code.

    given: the user's options, in place of all others; with nothing but `bind`, beside tuned ones.
    is_step: of several kernels that share them, of which not each is offered a plan.
    """

    def __init__(
        self,
        plan: CallPlan,
        target_name: str | Target | None,
        given: Options | None,
        stats: Counters,
        is_step: bool = False,
    ) -> None:
        self.plan = plan
        self.target_name = target_name
        self.given = given
        self.options = given or Options()
        self.stats = stats
        self.is_step = is_step
        self.known = {n: v for n, v in zip(plan.sizes, plan.initial) if v is not None}
        self.shaping = shaping_sizes(plan.program)
        self._regions: tuple[Region, ...] | None = None
        self._candidates: tuple[Options, ...] | None = None
        self._made: WeakValueDictionary[object, Variants] = WeakValueDictionary()

    @property
    def shaping_left(self) -> tuple[str, ...]:
        """Size parameters that multiply or divide an index, and are not fixed at `define`."""
        return tuple([name for name in self.shaping if name not in self.known])

    @property
    def regions(self) -> tuple[Region, ...]:
        """By the user's options if there are any; else what the stores say."""
        if self._regions is None:  # no cached_property: a forked child may find its lock taken
            self._regions = self._find_regions()
        return self._regions

    def _find_regions(self) -> tuple[Region, ...]:
        program = self.plan.program
        others = replace(self.options, bind="never")
        if self.given is not None and (self.given == Options() or others != Options()):
            regions: tuple[Region, ...] = (Region(self.options, origin="given"),)
        else:
            regions = lookup(program.canonical, self.target, program.sizes)
        if program.by_role("temporary") and any(r.options.chains != 1 for r in regions):
            from tcsym.dispatch.orders import by_orders

            regions = by_orders(regions, program)
        return self._possible(regions)

    def _possible(
        self, regions: tuple[Region, ...], numbers: Mapping[str, int] | None = None
    ) -> tuple[Region, ...]:
        """Those that have some of the declared sizes, and what of their conditions is left.

        numbers: sizes that have these values.
        """
        if len(regions) == 1:
            return regions
        from tcsym.sizes.context import Interval, decided, ranges_of

        ranges = dict.fromkeys(self.plan.sizes, Interval(0, None))
        ranges |= ranges_of(self.declared())
        known = {**self.known, **(numbers or {})}
        ranges |= {name: Interval(value, value) for name, value in known.items()}
        left = [replace(r, context=decided(r.context, ranges)) for r in regions]
        return tuple(r for r in left if r.context != FALSE) or regions

    @property
    def candidates(self) -> tuple[Options, ...]:
        """Tuned options that may be the best at single sizes; none where nothing was tuned."""
        if self._candidates is None:
            is_tuned = any(r.origin in ("user", "shipped") for r in self.regions)
            is_tuned = is_tuned and not self.shaping_left  # measured is what all values share
            self._candidates = self._tuned_candidates() if is_tuned else ()
        return self._candidates

    def _tuned_candidates(self) -> tuple[Options, ...]:
        program = self.plan.program
        return candidates_for(program.canonical, self.target, len(program.sizes))

    @property
    def target(self) -> Target:
        return Variants(self.plan, self.target_name, self.options, {}, self.stats).target

    def region_of(self, sizes: Values) -> Region:
        """The region that serves these sizes."""
        regions = self.regions
        if len(regions) == 1:
            return regions[0]
        values = dict(zip(self.plan.sizes, sizes))
        return next((r for r in regions if holds(r.context, values)), regions[-1])

    @property
    def substituted(self) -> tuple[int, ...]:
        """Slots of the sizes that every version has as numbers, whatever values calls bring."""
        return tuple(
            slot
            for slot, name in enumerate(self.plan.sizes)
            if self.plan.initial[slot] is None
            and self.options.bind_of.get(name, "never") != "never"
        )

    def symbolic(self, region: Region, context: Condition = TRUE) -> Version:
        """For sizes in `context`. Only sizes fixed at `define` are numbers, if so asked."""
        return self._version("symbolic", context, region, self._bind, self.known)

    @property
    def _bind(self) -> Bind:
        """When sizes fixed at `define` become numbers, but for those that options name."""
        return self.options.bind if isinstance(self.options.bind, str) else "never"

    def bucket(self, box: Context, corner: Values) -> Version:
        """For sizes in `box`, with the options of the region that has `corner`."""
        from tcsym.sizes.context import context_condition

        fixed = {known.name: known.low for known in box if known.low == known.high}
        bind: Bind = "after" if fixed and self._bind == "never" else self._bind
        if bind != "never" or self.options.bind_of:
            fixed |= self.known
        region, context = self.region_of(corner), context_condition(box)
        return self._version("bucket", context, region, bind, fixed, box)

    def declared(self, box: Context = ()) -> Context:
        """What is known of sizes: `box`, and what is declared of the others."""
        from tcsym.sizes.context import Known

        known = {size.name for size in box}
        ranges = list(box)
        for slot, promise in self.plan.promises.items():
            name = self.plan.sizes[slot]
            if name not in known and promise != Dim():
                ranges.append(Known(name, promise.lo, promise.hi, promise.multiple_of))
        return tuple(sorted(ranges))

    def wide(self) -> Version:
        """For all sizes, those too that leave no room for what schedules compute (`Limits`)."""
        options = replace(self.options, bind="never")
        variants = self.variants(options, {}, wide=True)
        return Version("wide", TRUE, Region(options, origin="given"), {}, variants)

    def refined(self, options: Options) -> Version:
        """For sizes at which these options were measured to be the fastest."""
        region = Region(options, TRUE, "measured")
        return self._version("refined", TRUE, region, self._bind, self.known)

    def point(self, sizes: Values, bind: Bind, region: Region | None = None) -> Version:
        """For these sizes only. region: with its options, if not with those of the tuned one."""
        fixed = dict(zip(self.plan.sizes, sizes))
        context = self.point_context(sizes)
        return self._version("specialised", context, region or self.region_of(sizes), bind, fixed)

    def point_context(self, sizes: Values) -> Condition:
        """These sizes only."""
        return all_of(eq(var(name), value) for name, value in zip(self.plan.sizes, sizes))

    def substituting(
        self, numbers: Mapping[str, int], region: Region, bind: Bind = "never"
    ) -> Version:
        """For all sizes of a region of which these have these values: they are numbers."""
        equal = all_of(eq(var(name), value) for name, value in numbers.items())
        context, fixed = all_of((equal, region.context)), {**self.known, **numbers}
        return self._version("specialised", context, region, bind, fixed)

    def partly_bound(self, numbers: Mapping[str, int]) -> tuple[Version, ...]:
        """As `substituting`, after scheduling, for each region that has such sizes."""
        regions = self._possible(self.regions, numbers)
        return tuple(self.substituting(numbers, region, "after") for region in regions)

    def padded(
        self,
        program: PaddedProgram,
        extents: Mapping[str, int],
        fixed: Mapping[str, int],
        context: Condition,
        bind: Bind,
    ) -> Version:
        """For sizes in `context`, on memory of these `extents`."""
        plan = self.plan
        from tcsym.dispatch.padding import Padding

        padding = Padding.of(program, plan.sizes, extents)
        corner = tuple([fixed.get(name, 1) for name in plan.sizes])
        region = self.region_of(corner)
        options, fixed = self._binding(region.options, bind, fixed)
        wider = replace(plan, program=program.program, sizes=program.program.sizes)
        variants = self.variants(options, fixed, plan=wider)
        return Version("padded", context, region, fixed, variants, padding)

    def _version(
        self,
        kind: Kind,
        context: Condition,
        region: Region,
        bind: Bind,
        fixed: Mapping[str, int],
        box: Context = (),
    ) -> Version:
        options, fixed = self._binding(region.options, bind, fixed)
        variants = self.variants(options, fixed, self._known_beside(fixed, box))
        return Version(kind, context, region, fixed, variants)

    def _is_asked(self, options: Options) -> bool:
        """The user has asked for these plans, not a search."""
        return self.given is not None and self.given.plan == options.plan

    def _known_beside(self, fixed: Mapping[str, int], box: Context = ()) -> Context:
        return tuple([known for known in self.declared(box) if known.name not in fixed])

    def _binding(
        self, options: Options, bind: Bind, sizes: Mapping[str, int]
    ) -> tuple[Options, Mapping[str, int]]:
        """Those of the sizes that become numbers, and the options that say when.

        bind: for the sizes that the user's options do not name, but for those that multiply or
        divide an index: these are numbers for the scheduler.
        """
        standard: dict[str, Bind] = {n: "before" if n in self.shaping else bind for n in sizes}
        when = {name: self.options.bind_of.get(name, standard[name]) for name in sizes}
        fixed = {name: value for name, value in sizes.items() if when[name] != "never"}
        words = {when[name] for name in fixed}
        if len(words) > 1:
            return replace(options, bind={name: when[name] for name in fixed}), fixed
        return replace(options, bind=next(iter(words), "never")), fixed

    def variants(
        self,
        options: Options,
        fixed: Mapping[str, int],
        known: Context = (),
        plan: CallPlan | None = None,
        wide: bool = False,
    ) -> Variants:
        """Code for these options, numbers and ranges of sizes, made once. Where more than the user
        said is known of sizes, nests may be offered fewer plans."""
        plan = plan or self.plan
        key = (options, tuple(sorted(fixed.items())), known, plan.sizes, wide)
        found = self._made.get(key)
        if found is None:
            given = plan, self.target_name, options, fixed, self.stats, known, wide
            is_whole = fixed.keys() <= self.known.keys() and known == self._known_beside(fixed)
            is_whole = is_whole and plan is self.plan and not self.is_step
            plans: Demand = "required" if is_whole else "told"
            found = Variants(*given, plans=plans if self._is_asked(options) else "free")
            self._made[key] = found
        return found
