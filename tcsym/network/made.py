# SPDX-License-Identifier: Apache-2.0
"""Steps of a plan -> kernels that serve all sizes, compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy
from tcsym.dispatch.table import Table
from tcsym.dispatch.version import Version
from tcsym.index.values import holds
from tcsym.network.plan import Plan
from tcsym.network.steps import Step
from tcsym.process.recursion import depth_checked
from tcsym.runtime.device import LoadedCode
from tcsym.runtime.jit import require_run
from tcsym.runtime.native import DRIVER_ERROR
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.runtime.stats import Counters
from tcsym.runtime.variants import Layouts, Variant
from tcsym.runtime.view import View


class MadeStep(Struct, frozen=True):
    """A step and its versions; `wide`: for sizes that these are not for (`runtime.limits`).
    `places`: of its sizes among those of the plan."""

    step: Step
    call: CallPlan
    table: Table
    wide: Version
    places: tuple[int, ...]
    parts: dict[object, Variant] = field(default_factory=dict)

    def variant(self, views: Sequence[View], sizes: tuple[int, ...]) -> Variant:
        """That for arguments of these layouts and sizes."""
        is_wide = self.call.limits.is_wide(sizes)
        version = self.wide if is_wide else self.table.serving(sizes)
        assert version is not None
        layouts = version.variants.wanted(views)
        part = self.part(version, layouts, whole=False)
        values = dict(zip(part.compiled.sizes, part.values(views, (*sizes, 0))))
        is_left_out = holds(part.compiled.left_out, values)
        return self.part(version, layouts, whole=True) if is_left_out else part

    def part(self, version: Version, layouts: Layouts, whole: bool) -> Variant:
        """The code of a version for these layouts, begun: for all sizes, or but for seldom ones."""
        key = id(version), layouts, whole
        if key not in self.parts:
            self.parts[key] = depth_checked(version.variants.part_of)(layouts, whole)
        return self.parts[key]

    def sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Its own of the plan's."""
        return tuple([sizes[k] for k in self.places])

    def error(
        self, kernel: LoadedCode, result: int, scratch: tuple[int, int], threads: int
    ) -> Exception:
        """Why the step did not run to its end."""
        if result > 0:
            return self.call.fault_error(kernel.compiled.faults[result - 1])
        if result <= DRIVER_ERROR:
            from tcsym.runtime.cuda.driver import driver_error

            return driver_error(DRIVER_ERROR - result, "a kernel cannot be launched")
        require_run(result, scratch[0] + scratch[1] * threads)
        return self.call.error("size", "sizes are too large together", self.call.program.span)


def made_steps(plan: Plan) -> tuple[MadeStep, ...]:
    return tuple(_made(plan, step) for step in plan.steps)


def _made(plan: Plan, step: Step) -> MadeStep:
    fixed = dict(zip(plan.call.sizes, plan.call.initial))
    declared: Mapping[str, int] = {n: v for n in step.program.sizes if (v := fixed[n]) is not None}
    call = plan_call(step.program, declared, frozenset(), plan.target)
    making = Making(call, plan.target, plan.options, Counters(), is_step=True)
    places = tuple(plan.call.sizes.index(n) for n in step.program.sizes)
    return MadeStep(step, call, Policy(making).first(), making.wide(), places)
