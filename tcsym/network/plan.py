# SPDX-License-Identifier: Apache-2.0
"""The kernels of a program, their order, and where tensors lie between them: as a value."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec.structs import replace

from tcsym.errors import OptionError
from tcsym.frontend.program import Program
from tcsym.keyed import Keyed
from tcsym.network.in_place import pairs, updating
from tcsym.network.steps import Step, steps_of
from tcsym.network.storage import Bounds, Planned, Storage, arena_bytes, place, weight
from tcsym.network.turns import Turns, at_once, one_by_one
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.sizes.dims import Dim
from tcsym.sizes.values import size_value
from tcsym.target.target import Target

if TYPE_CHECKING:
    from tcsym.network.memory import Memory
    from tcsym.network.session import Session


class Plan(Keyed, frozen=True):
    """A program as steps, each one kernel, with storage for what they hand on.

    bounds: largest values of sizes.
    steps: in the order in which they run.
    turns: numbers of steps; those of one turn do not need each other, and may run at once.
    tensors: inputs, outputs, and what crosses steps.
    storages: memory that tensors share in turn.
    parallel: whether steps may run at once was asked for, or refused.
    binding: of what is made of constants alone, when these are bound; calls read `held` of it.
    """

    aside: ClassVar[tuple[str, ...]] = ("call",)

    program: Program
    bounds: Bounds
    steps: tuple[Step, ...]
    turns: Turns
    tensors: tuple[Planned, ...]
    storages: tuple[Storage, ...]
    call: CallPlan
    target: Target | str | None = None
    options: Options | None = None
    parallel: bool | None = None
    binding: Plan | None = None
    held: tuple[str, ...] = ()

    @property
    def constants(self) -> tuple[str, ...]:
        """Inputs that a session is given once, for many calls."""
        return tuple(n for n in self.program.constants if n not in self.held)

    def with_constants(self, names: Collection[str]) -> Plan:
        """The plan of calls for which these inputs are the same. Errors: OptionError."""
        from tcsym.network.binding import residual

        call, left = self.call, residual(self.program, tuple(names))
        declared = declared_of(call)

        def plan(program: Program) -> Plan:
            own = {n: v for n, v in declared.items() if n in program.sizes}
            made = plan_call(program, own, call.foreign_sizes, self.target)
            within = {n: v for n, v in self.bounds.items() if n in program.sizes}
            return plan_program(made, self.target, self.options, own, within, self.parallel)

        binding = None if left.binding is None else plan(left.binding)
        return replace(plan(left.calls), binding=binding, held=left.held)

    def is_given(self, t: Planned) -> bool:
        """The caller's."""
        return t.storage is None and t.name not in self.held

    @property
    def arena_bytes(self) -> int | None:
        """Bytes of all storages side by side, at the bounds; None without bounds that tell."""
        return arena_bytes(self.storages)

    def tensor(self, name: str) -> Planned:
        """KeyError for a name that is none of `tensors`."""
        found = next((t for t in self.tensors if t.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def session(
        self,
        *,
        memory: Literal["planned", "exact"] | None = None,
        state: Mapping[str, str] | None = None,
        constants: Mapping[str, object] | None = None,
    ) -> Session:
        """Calls that reuse memory: see `Session`.

        memory: "planned" at the bounds, or "exact" for the sizes of each call; default: planned
            where bounds tell.
        state: input name -> output name: the input of a call is that output of the call before.
        constants: input name -> its array, which calls do not give: `Session.bind`.
        Errors: OptionError for what is no such setting, or memory that bounds do not tell.
        """
        from tcsym.network.session import Session

        if not isinstance(constants, Mapping | None):
            what = f"`constants` is a {type(constants).__name__}, expected arrays by name"
            raise OptionError(
                what, hint="what calls do not give is given once, and by `bind` later"
            )
        plan = self.with_constants(constants) if constants else self
        return Session(plan, memory=memory, state=state, constants=constants)

    def memory(self) -> Memory:
        """Bytes that a call needs, as formulas in the sizes. Compiles all steps."""
        from tcsym.network.memory import memory_of

        return memory_of(self)

    # ---- for people and files

    def to_json(self, indent: int | None = 2) -> str:
        """Readable JSON; expressions are infix text."""
        return json.dumps(self.as_data(), indent=indent)

    def as_data(self) -> dict[str, Any]:
        """What `to_json` writes."""
        return {
            "program": self.program.name,
            "sizes": list(self.program.sizes),
            "var_upper_bound": dict(self.bounds),
            "constants": list(self.constants),
            "held": list(self.held),
            "arena_bytes": self.arena_bytes,
            "tensors": [_tensor_data(t) for t in self.tensors],
            "storages": [
                {
                    "id": k,
                    "tensors": list(s.tensors),
                    "bytes": str(s.bytes),
                    "max_bytes": s.max_bytes,
                    "offset": s.offset,
                }
                for k, s in enumerate(self.storages)
            ],
            "steps": [
                {"name": s.name, "turn": k, "reads": list(s.reads), "writes": list(s.writes)}
                for k, turn in enumerate(self.turns)
                for s in [self.steps[n] for n in turn]
            ],
        }

    def __repr__(self) -> str:
        placed = f"tensors={self.tensors!r}, storages={self.storages!r}"
        return f"Plan(bounds={self.bounds!r}, {placed})"

    def __str__(self) -> str:
        lines = [f"plan of {self.program.name}({', '.join(self.program.sizes)})"]
        if self.bounds:
            lines.append("  bounds " + ", ".join(f"{n} <= {v}" for n, v in self.bounds.items()))
        lines += [f"  {_tensor_text(t, self._owner(t))}" for t in self.tensors]
        for k, s in enumerate(self.storages):
            at = "" if s.offset is None else f", at {s.offset}"
            lines.append(f"  storage {k}: {s.bytes} bytes{_most(s.max_bytes)}{at}")
        if self.binding:
            lines.append(self.binding.steps_text("  at binding, "))
        return "\n".join([*lines, self.steps_text("  ")])

    def _owner(self, t: Planned) -> str:
        if t.name in self.held:
            return "held since binding"
        return "bound, of the caller" if t.name in self.program.constants else "of the caller"

    def steps_text(self, indent: str = "") -> str:
        """A line for each step: what it reads and writes."""
        lines = []
        for turn in self.turns:
            for k in turn:
                step = self.steps[k]
                beside = "" if k == turn[0] else ", beside the one before"
                names = f"{', '.join(step.reads)} -> {', '.join(step.writes)}"
                lines.append(f"{indent}{step.name}: {names}{beside}")
        return "\n".join(lines)

    def plot(self) -> str:
        """A picture of the steps and what they hand on, as SVG."""
        from tcsym.network.picture import svg

        return svg(self)

    def _repr_svg_(self) -> str:
        return self.plot()


def _tensor_data(t: Planned) -> dict[str, Any]:
    return {
        "name": t.name,
        "role": t.role,
        "type": str(t.dtype),
        "shape": [str(e) for e in t.shape],
        "bytes": str(t.bytes),
        "max_bytes": t.max_bytes,
        "storage": t.storage,
        "turns": [t.first, t.last],
        "over": t.over or None,
    }


def _tensor_text(t: Planned, owner: str) -> str:
    where = owner if t.storage is None else f"in storage {t.storage}"
    where += f", over {t.over}" if t.over else ""
    shape = ", ".join(map(str, t.shape))
    return f"{t.role} {t.dtype}({shape}) {t.name}: {t.bytes} bytes{_most(t.max_bytes)}, {where}"


def _most(value: int | None) -> str:
    return "" if value is None else f" (at most {value})"


# ---- making one


@depth_checked
def plan_program(
    call: CallPlan,
    target: Target | str | None,
    options: Options | None,
    declared: Mapping[str, Dim | int],
    bounds: Mapping[str, int] | None,
    parallel: bool | None = None,
) -> Plan:
    """The plan of a program. bounds: beside what is declared of sizes. Errors: SizeError.

    parallel: steps may run at once. None: where that takes no more memory. A device's stream runs
    one after the other.
    """
    from tcsym.compiler import schedule_tree

    program = call.program
    found = known_bounds(call, declared, bounds)
    steps = steps_of(program, schedule_tree(program, options or Options()))
    ways = []
    parallel = parallel if call.device.waits else False
    if not parallel:
        ways.append((steps, one_by_one(steps)))
    if parallel is not False:
        ways.insert(0, at_once(steps))
    placed = [(*way, *place(program, *way, found, pairs(program, *way))) for way in ways]
    steps, turns, tensors, storages = min(
        placed, key=lambda way: weight(way[-1])
    )  # first of equals
    written_over = {t.name: t.over for t in tensors if t.over}
    steps = tuple([_in_place(step, written_over) for step in steps])
    return Plan(program, found, steps, turns, tensors, storages, call, target, options, parallel)


def declared_of(call: CallPlan) -> dict[str, Dim | int]:
    """What is known of the sizes of a call before it."""
    known: dict[str, Dim | int] = {call.sizes[k]: dim for k, dim in call.promises.items()}
    return known | {n: v for n, v in zip(call.sizes, call.initial) if v is not None}


def _in_place(step: Step, over: Mapping[str, str]) -> Step:
    for name in step.writes:
        if name in over:
            step = updating(step, name, over[name])
    return step


def known_bounds(
    call: CallPlan, declared: Mapping[str, Dim | int], bounds: Mapping[str, int] | None
) -> dict[str, int]:
    """What is declared of sizes, and what is given. Errors: SizeError."""
    known = {n: v if isinstance(v, int) else v.hi for n, v in declared.items()}
    found = {n: v for n, v in known.items() if v is not None} | _checked(call, bounds or {})
    return {n: found[n] for n in call.program.sizes if n in found}


def _checked(call: CallPlan, bounds: Mapping[str, int]) -> dict[str, int]:
    out: dict[str, int] = {}
    for name, given in bounds.items():
        value = size_value(given)
        if name not in call.sizes:
            hint = f"sizes are {', '.join(call.sizes) or 'none'}"
            message = f"`bounds` has `{name}`, which is no size of it"
            raise call.error("size", message, call.program.span, hint)
        if value is None or value < 0:
            message = f"the bound of `{name}` is {given!r}, expected an integer >= 0"
            raise call.error("size", message, call.program.span)
        out[name] = value
    return out
