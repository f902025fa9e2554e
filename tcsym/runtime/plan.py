# SPDX-License-Identifier: Apache-2.0
"""Program -> `CallPlan`: all a call needs to know, computed once. The seam for the fast entry.

Every size has a slot: slot k of a call's values is `sizes[k]`. Literal dimensions have slots
behind those, filled from `initial`, so each dimension of each argument is one comparison with a
slot; so do formulas, which the first argument fills.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from tcsym.errors import ERROR_KINDS, Span, TCError
from tcsym.frontend.program import Program, Tensor, in_order
from tcsym.index.expr import Index, condition_variables
from tcsym.ir.compiled import Fault
from tcsym.keyed import Keyed
from tcsym.runtime.device import Device, device_of
from tcsym.runtime.limits import Limits
from tcsym.runtime.size_functions import Shape, first_failing, shapes_of
from tcsym.sizes.dims import Dim
from tcsym.target.target import Target
from tcsym.types import DType

if TYPE_CHECKING:
    from tcsym.frontend.formulas import Formula

FIXED_AT_DEFINE = "fixed at `define`"


class Parameter(Struct, frozen=True):
    """An input: `dimensions` are size names or integers, `slots` where their values are. `inout`:
    the call updates it."""

    name: str
    dtype: DType
    rank: int
    dimensions: tuple[str | int, ...]
    slots: tuple[int, ...]
    span: Span
    dimension_spans: tuple[Span, ...]
    inout: bool = False

    @property
    def type_text(self) -> str:
        return type_text(self.dtype, self.dimensions)


class GivenSize(Struct, frozen=True):
    """A size parameter: the slot of its value, and its place among the parameters."""

    name: str
    slot: int
    place: int
    span: Span

    @property
    def type_text(self) -> str:
        return "size"


class Output(Struct, frozen=True):
    name: str
    dtype: DType
    shape: tuple[Index, ...]
    span: Span
    dimension_spans: tuple[Span, ...]


class CallPlan(Keyed, frozen=True):
    """How to check a call of one program and what to allocate for it.

    `initial`: values of the slots before a call, None where unknown; `fixed_where` says who fixed
    the known sizes. `free_slots`: of sizes that no input tells: `sizes=` does, or a parameter.
    `parameters`: inputs and sizes, as a call gives them. `promises`: slots with a declared `Dim`.
    `foreign_sizes`: sizes of other defs of the text, which a call may mention.
    `first_failing(*sizes)`: index of the first of `program.checks` that does not hold, or -1.
    `shapes(*sizes)`: shapes of the outputs. `limits`: sizes that its integers admit. `device`:
    where it runs, and arguments must be.
    """

    aside: ClassVar[tuple[str, ...]] = ("device", "first_failing", "shapes", "limits")

    program: Program
    inputs: tuple[Parameter, ...]
    parameters: tuple[Parameter | GivenSize, ...]
    outputs: tuple[Output, ...]
    output_names: tuple[str, ...]
    sizes: tuple[str, ...]
    free_slots: tuple[int, ...]
    initial: tuple[int | None, ...]
    promises: Mapping[int, Dim]
    foreign_sizes: frozenset[str]
    device: Device
    first_failing: Callable[..., int]
    shapes: Callable[..., tuple[Shape, ...]]
    limits: Limits
    fixed_where: str = FIXED_AT_DEFINE

    @property
    def inouts(self) -> tuple[int, ...]:
        """Places of the inputs that a call updates."""
        return tuple([k for k, p in enumerate(self.inputs) if p.inout])

    @property
    def written(self) -> tuple[int, ...]:
        """Places of what a call writes, among inputs and outputs."""
        n = len(self.inputs)
        return *self.inouts, *range(n, n + len(self.outputs))

    def error(self, kind: str | type[TCError], message: str, span: Span, hint: str = "") -> TCError:
        """An error of this def, placed in its text."""
        made = ERROR_KINDS[kind] if isinstance(kind, str) else kind
        return made(
            f"{self.program.name}: {message}",
            span=span,
            source=self.program.source,
            filename=self.program.filename,
            hint=hint,
        )

    def fault_error(self, fault: Fault) -> TCError:
        """The error of a check that failed in the running kernel."""
        return self.error(fault.kind, fault.message, fault.span)

    @property
    def given_sizes(self) -> tuple[GivenSize, ...]:
        """The size parameters."""
        return tuple([p for p in self.parameters if isinstance(p, GivenSize)])

    def limit_error(self, formula: Formula, sizes: tuple[int, ...]) -> TCError:
        """The error of a formula that does not fit, with the sizes that make it large."""
        from tcsym.frontend.infer_messages import plain_index

        named = dict(zip(self.sizes, sizes))
        used = [f"{n} = {named[n]}" for n in self.sizes if n in formula.most.variables()]
        message = f"`{plain_index(formula.index)}` does not fit in 64 bits ({', '.join(used)})"
        hint = f"its largest magnitude, {plain_index(formula.most)}, has to be below 2**63"
        return self.error("size", message, formula.span, hint)

    def check_error(self, k: int, sizes: tuple[int, ...]) -> TCError:
        """The error of `program.checks[k]`, with the sizes that break it."""
        check = self.program.checks[k]
        used = condition_variables(check.condition)
        values = [f"{n} = {v}" for n, v in zip(self.sizes, sizes) if n in used]
        message = f"{check.message} ({', '.join(values)})" if values else check.message
        return self.error(check.kind, message, check.span, check.hint)


def type_text(dtype: DType, dimensions: tuple[object, ...]) -> str:
    """`float32(M, N)`, or `float32` for a scalar."""
    return f"{dtype}({', '.join(map(str, dimensions))})" if dimensions else str(dtype)


def plan_call(
    program: Program,
    declared: Mapping[str, Dim | int],
    foreign_sizes: frozenset[str],
    target: Target | str | None = None,
) -> CallPlan:
    """The plan of `program` under the sizes declared for it at `define`, on a target's device."""
    slot_of: dict[str | int, int] = {name: k for k, name in enumerate(program.sizes)}
    inputs = tuple(_parameter(t, slot_of) for t in program.inputs)
    given = [GivenSize(p.name, slot_of[p.name], p.place, p.span) for p in program.size_parameters]
    outputs = tuple(
        Output(t.name, t.dtype, t.shape, t.span, t.dimension_spans) for t in program.outputs
    )
    initial: list[int | None] = [None] * len(program.sizes)
    promises: dict[int, Dim] = {}
    for name, value in declared.items():
        if name in slot_of and isinstance(value, int):
            initial[slot_of[name]] = value
        elif name in slot_of and isinstance(value, Dim):
            promises[slot_of[name]] = value
    behind = [*slot_of][len(program.sizes) :]  # literals; formulas of what follows from constants
    return CallPlan(
        program=program,
        inputs=inputs,
        parameters=in_order(inputs, given),
        outputs=outputs,
        output_names=tuple(t.name for t in program.outputs),
        sizes=program.sizes,
        free_slots=tuple(slot_of[name] for name in program.free_sizes),
        initial=(*initial, *[d if isinstance(d, int) else None for d in behind]),
        promises=promises,
        foreign_sizes=foreign_sizes,
        device=device_of(target),
        first_failing=first_failing([c.condition for c in program.checks], program.sizes),
        shapes=shapes_of([t.shape for t in program.outputs], program.sizes),
        limits=Limits(program),
    )


def _parameter(t: Tensor, slot_of: dict[str | int, int]) -> Parameter:
    dimensions = tuple(_dimension(extent) for extent in t.shape)
    slots = tuple(slot_of.setdefault(d, len(slot_of)) for d in dimensions)
    spans = t.dimension_spans or (t.span,) * len(dimensions)
    is_inout = t.role == "inout"
    return Parameter(t.name, t.dtype, len(dimensions), dimensions, slots, t.span, spans, is_inout)


def _dimension(extent: Index) -> str | int:
    return str(extent) if extent.terms else extent.constant
