"""Steps of a plan -> kernels that serve all sizes, compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tcsym.dispatch.making import Making
from tcsym.dispatch.policy import Policy
from tcsym.dispatch.table import Table
from tcsym.errors import TCError
from tcsym.network.plan import Plan
from tcsym.network.steps import Step
from tcsym.process.recursion import deep_recursion
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.runtime.stats import Stats
from tcsym.runtime.variants import Variant
from tcsym.runtime.view import View


class MadeStep(Struct, frozen=True):
    """A step and its versions; `places`: of its sizes among those of the plan."""

    step: Step
    call: CallPlan
    table: Table
    places: tuple[int, ...]

    @deep_recursion
    def variant(self, views: Sequence[View], sizes: tuple[int, ...]) -> Variant:
        """That for arguments of these layouts and sizes, with all of its code."""
        version = self.table.serving(sizes)
        assert version is not None
        return version.prepared(views)

    def sizes(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Its own of the plan's."""
        return tuple([sizes[k] for k in self.places])

    def error(self, variant: Variant, fault: int) -> TCError:
        """Of a check that failed in the running step."""
        return self.call.fault_error(variant.compiled.faults[fault - 1])


def made_steps(plan: Plan) -> tuple[MadeStep, ...]:
    return tuple(_made(plan, step) for step in plan.steps)


def _made(plan: Plan, step: Step) -> MadeStep:
    fixed = dict(zip(plan.call.sizes, plan.call.initial))
    declared: Mapping[str, int] = {n: v for n in step.program.sizes if (v := fixed[n]) is not None}
    call = plan_call(step.program, declared, frozenset(), plan.target)
    making = Making(call, plan.target, plan.options, Stats())
    places = tuple(plan.call.sizes.index(n) for n in step.program.sizes)
    return MadeStep(step, call, Policy(making).first(), places)
