"""What one kernel was given -> its versions: which options and numbers their code is made with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tcsym.dispatch.version import Kind, Values, Version
from tcsym.index import TRUE, Condition, all_of, eq, holds, var
from tcsym.options import Bind, Options
from tcsym.region import Region
from tcsym.runtime.plan import CallPlan
from tcsym.stats import Stats
from tcsym.target import Target
from tcsym.tuning import lookup
from tcsym.variants import Variants

if TYPE_CHECKING:
    from tcsym.polyhedral.pad import PaddedProgram


class Making:
    """Makes versions of one kernel. Versions of equal options and numbers share their code."""

    def __init__(
        self, plan: CallPlan, target_name: str | Target | None, options: Options, stats: Stats
    ) -> None:
        self.plan = plan
        self.target_name = target_name
        self.options = options
        self.stats = stats
        self.known = {n: v for n, v in zip(plan.sizes, plan.initial) if v is not None}
        self._regions: tuple[Region, ...] | None = None
        self._made: WeakValueDictionary[object, Variants] = WeakValueDictionary()

    @property
    def regions(self) -> tuple[Region, ...]:
        """By the user's options if there are any; else what the stores say."""
        if self._regions is None:  # no cached_property: a forked child may find its lock taken
            self._regions = self._find_regions()
        return self._regions

    def _find_regions(self) -> tuple[Region, ...]:
        if replace(self.options, bind="never") != Options():
            return (Region(self.options, origin="given"),)
        program = self.plan.program
        return lookup(program.canonical, self.target, program.sizes)

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

    def symbolic(
        self, region: Region, context: Condition = TRUE, kind: Kind = "symbolic"
    ) -> Version:
        """For sizes in `context`. Only sizes fixed at `define` are numbers, if so asked."""
        bind = self.options.bind
        fixed = {} if bind == "never" else self.known
        return self._version(kind, context, region, bind, fixed)

    def bucket(self, context: Condition, corner: Values, numbers: Mapping[str, int]) -> Version:
        """For sizes in `context`, with the options of the region that has `corner`."""
        region = self.region_of(corner)
        if not numbers:
            return self.symbolic(region, context, "bucket")
        bind = "after" if self.options.bind == "never" else self.options.bind
        return self._version("bucket", context, region, bind, {**self.known, **numbers})

    def point(self, sizes: Values, bind: Bind) -> Version:
        """For these sizes only."""
        fixed = dict(zip(self.plan.sizes, sizes))
        context = all_of(eq(var(name), value) for name, value in fixed.items())
        return self._version("specialised", context, self.region_of(sizes), bind, fixed)

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
        options = replace(region.options, bind=bind if fixed else "never")
        wider = replace(plan, program=program.program, sizes=program.program.sizes)
        variants = self.variants(options, fixed, wider)
        return Version("padded", context, region, fixed, variants, padding)

    def _version(
        self,
        kind: Kind,
        context: Condition,
        region: Region,
        bind: Bind,
        fixed: Mapping[str, int],
    ) -> Version:
        options = replace(region.options, bind=bind if fixed else "never")
        return Version(kind, context, region, fixed, self.variants(options, fixed))

    def variants(
        self, options: Options, fixed: Mapping[str, int], plan: CallPlan | None = None
    ) -> Variants:
        """Code for these options and numbers, made once."""
        plan = plan or self.plan
        key = (options, tuple(sorted(fixed.items())), plan.sizes)
        found = self._made.get(key)
        if found is None:
            found = Variants(plan, self.target_name, options, fixed, self.stats)
            self._made[key] = found
        return found
