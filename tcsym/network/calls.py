# SPDX-License-Identifier: Apache-2.0
"""What calls of a session are given, and what they may not be."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import SizeParameter
from tcsym.network.plan import Plan, declared_of
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.sizes.dims import Dim

TOLD = "told by constants"


def constants_call(plan: Plan) -> CallPlan:
    """A call that is given the constants alone."""
    program = plan.program
    tensors = tuple(t for t in program.tensors if t.name in plan.constants)
    header = replace(
        program, tensors=tensors, body=(), checks=(), free_sizes=(), size_parameters=()
    )
    return plan_call(header, declared_of(plan.call), plan.call.foreign_sizes, plan.target)


def free_call(plan: Plan, known: dict[str, Dim | int]) -> CallPlan:
    """A call that is given all but the constants, which tell these sizes."""
    program, call = plan.program, plan.call
    fixed = frozenset(program.constants)
    left = [p for p in program.parameters if p.name not in fixed]
    header = replace(
        program,
        tensors=tuple(t for t in program.tensors if t.name not in fixed),
        size_parameters=tuple(
            replace(p, place=k) for k, p in enumerate(left) if isinstance(p, SizeParameter)
        ),
    )
    made = plan_call(header, declared_of(call) | known, call.foreign_sizes, plan.target)
    return replace(made, fixed_where=TOLD, limits=call.limits)  # they are of what reads constants


def known_call(plan: Plan, known: dict[str, Dim | int]) -> CallPlan:
    """A call that is given all, of which constants tell these sizes."""
    call = plan_call(
        plan.program, declared_of(plan.call) | known, plan.call.foreign_sizes, plan.target
    )
    return replace(call, fixed_where=TOLD)


def require_within(plan: Plan, call: CallPlan, sizes: tuple[int | None, ...]) -> None:
    """SizeError for a size beyond its bound."""
    for name, value in zip(call.sizes, sizes):
        most = plan.bounds.get(name)
        if most is not None and value is not None and value > most:
            message = f"size `{name}` is {value}, but memory is planned for at most {most}"
            hint = f'plan for more: `plan(bounds={{"{name}": {value}}})`, or use memory="exact"'
            raise call.error("size", message, plan.program.span, hint)
