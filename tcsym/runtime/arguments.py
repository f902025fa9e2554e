# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call -> `Bound`: views of all inputs, all sizes, output shapes.

The order of checks is LANGUAGE E11's: surplus arguments, `sizes=`, then each parameter (missing,
rank, type, sizes), then preconditions in text order. The first that fails is the error raised, at
the declaration it violates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tcsym.errors import MissingError, Span, TCError, n_dimensions
from tcsym.runtime.arrays import CPU_READS, numpy_view
from tcsym.runtime.arrays import numpy_array as array_of_view
from tcsym.runtime.plan import CallPlan, GivenSize, Parameter
from tcsym.runtime.scalars import is_scalar, scalar_array
from tcsym.runtime.size_functions import Shape
from tcsym.runtime.view import HERE, Elsewhere, Misplaced, Place, Unusable, View
from tcsym.sizes.values import size_value
from tcsym.types import DType, holds

MISSING = object()
INT64_LIMIT = (1 << 63) - 1
Values = list[int | None]


class Bound(Struct, frozen=True):
    """A call whose arguments are in order: ready for a kernel or for the interpreter.

    place: where it runs.
    """

    views: tuple[View, ...]
    sizes: tuple[int, ...]
    shapes: tuple[Shape, ...]
    place: Place = HERE


def bind(
    plan: CallPlan,
    given: Sequence[object],
    sizes: object,
    adapt: Callable[[object], View] | None = None,
) -> Bound:
    """Check a call whose arguments `match_arguments` has ordered."""
    values = initial_values(plan, sizes)
    adapt = adapt or plan.device.view_of
    views = []
    for p, x in zip(plan.parameters, given):
        if isinstance(p, GivenSize):
            _bind_size(plan, p, x, values)
        else:
            views.append(_bind_parameter(plan, p, x, values, adapt))
    known = values[: len(plan.sizes)]
    beyond = plan.limits.beyond(tuple(known))  # type: ignore[arg-type]
    if beyond is not None:
        raise plan.limit_error(beyond, tuple([v or 0 for v in known]))
    failing = plan.first_failing(*known)
    if failing >= 0:
        raise plan.check_error(failing, tuple(v or 0 for v in known))
    shapes = plan.shapes(*known)
    for k, shape in enumerate(shapes):
        if shape and min(shape) < 0:
            raise _negative(plan, k, shape)
        output = plan.outputs[k]
        if not output.dtype.holds_all(shape):
            raise plan.error("size", f"`{output.name}` is too large: {shape}", output.span)
    try:
        gathered, place = plan.device.gathered([p.name for p in plan.inputs], tuple(views))
    except Misplaced as why:
        p = plan.inputs[why.k]
        raise plan.error("device", f"`{p.name}` {why}", p.span, why.hint) from None
    return Bound(gathered, tuple(known), shapes, place)  # type: ignore[arg-type]


def _negative(plan: CallPlan, k: int, shape: Shape) -> TCError:
    output = plan.outputs[k]
    axis = next(d for d, extent in enumerate(shape) if extent < 0)
    spans = output.dimension_spans
    message = f"`{output.name}` has negative size {shape[axis]} on axis {axis}"
    return plan.error("size", message, spans[axis] if spans else output.span)


# ---- which argument is which


def match_arguments(
    plan: CallPlan, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[object]:
    """One object for each parameter, MISSING where none was given."""
    n = len(plan.parameters)
    if len(args) > n:
        message = f"takes {n} argument{'' if n == 1 else 's'} but {len(args)} were given"
        raise plan.error("call", message, plan.program.span, f"it is {signature_text(plan)}")
    if not kwargs:
        return [*args, *[MISSING] * (n - len(args))] if len(args) < n else list(args)
    given: list[object] = [*args, *[MISSING] * (n - len(args))]
    position = {p.name: k for k, p in enumerate(plan.parameters)}
    for name, x in kwargs.items():
        if name not in position:
            message = f"has no parameter `{name}`"
            hint = _suggestion(name, position) or f"it is {signature_text(plan)}"
            raise plan.error("call", message, plan.program.span, hint)
        if given[position[name]] is not MISSING:
            raise plan.error("call", f"`{name}` is given twice", plan.program.span)
        given[position[name]] = x
    return given


def signature_text(plan: CallPlan) -> str:
    """`mm(float32(M, K) A, float32(K, N) B)`"""
    listed = []
    for p in plan.parameters:
        inout = not isinstance(p, GivenSize) and p.inout
        listed.append(f"{'inout ' * inout}{p.type_text} {p.name}")
    return f"{plan.program.name}({', '.join(listed)})"


def separated(
    plan: CallPlan, given: Sequence[object], sizes: Any
) -> tuple[list[object], dict[str, Any] | None]:
    """Arguments that `match_arguments` has ordered as those for inputs, and what `sizes=` would
    say: for those who hand both on. A size may be a symbol of a library. Errors: those of a size
    that is none, or that both say something else of."""
    inputs, named = [], dict(sizes or {})
    for p, x in zip(plan.parameters, given):
        if not isinstance(p, GivenSize):
            inputs.append(x)
        elif x is not MISSING:
            if p.name in named and named[p.name] != x:
                raise _other_size(plan, p, x, named[p.name], "in `sizes=`")
            if is_scalar(x) or hasattr(x, "shape"):
                _bind_size(plan, p, x, list(plan.initial))
            named[p.name] = x
    return inputs, named or None


def together(plan: CallPlan, inputs: Sequence[Any]) -> Sequence[Any]:
    """Arguments for `bind` where `sizes=` says what its size parameters are."""
    if len(inputs) == len(plan.parameters):
        return inputs
    left = iter(inputs)
    return [MISSING if isinstance(p, GivenSize) else next(left) for p in plan.parameters]


def _suggestion(name: object, known: Any) -> str:
    from difflib import get_close_matches

    close = get_close_matches(str(name), list(known), 1)
    return f"did you mean `{close[0]}`?" if close else ""


# ---- sizes


def initial_values(plan: CallPlan, sizes: object) -> Values:
    """Values of all slots after `sizes=`: fixed, given, or None where arguments will tell."""
    values = list(plan.initial)
    if sizes is not None:
        for name, value in checked_sizes(plan, sizes).items():
            _give_size(plan, values, name, value)
    given = {p.slot for p in plan.given_sizes}
    for slot in plan.free_slots:
        if values[slot] is None and slot not in given:
            name = plan.sizes[slot]
            hint = f'give it: `sizes={{"{name}": ...}}`'
            raise plan.error("size", f"free size `{name}` is missing", plan.program.span, hint)
    return values


def checked_sizes(plan: CallPlan, sizes: object) -> dict[str, int]:
    """A mapping of size names of the text to integers >= 0."""
    span = plan.program.span
    if not isinstance(sizes, Mapping):
        message = f"`sizes` is {type(sizes).__name__}, expected a mapping of names to integers"
        raise plan.error("size", message, span)
    checked: dict[str, int] = {}
    for name, value in sizes.items():
        if name not in plan.sizes and name not in plan.foreign_sizes:
            hint = _suggestion(name, plan.sizes) or f"sizes are {', '.join(plan.sizes) or 'none'}"
            raise plan.error("size", f"`sizes` has `{name}`, which is no size here", span, hint)
        number = size_value(value)
        if number is None or not 0 <= number <= INT64_LIMIT:
            message = f"size `{name}` is {value!r}, expected an integer from 0 to 2**63 - 1"
            raise plan.error("size", message, span)
        checked[name] = number
    return checked


def _give_size(plan: CallPlan, values: Values, name: str, value: int) -> None:
    if name not in plan.sizes:
        return
    slot = plan.sizes.index(name)
    known = values[slot]
    if known is not None and known != value:
        message = f"`{name}` is {value} in `sizes=` but {known} was {plan.fixed_where}"
        raise plan.error("size", message, plan.program.span)
    broken = plan.promises[slot].broken_by(value) if slot in plan.promises else ""
    if broken:
        message = f"`{name}` is {value} in `sizes=`, but it was declared to be {broken}"
        raise plan.error("size", message, plan.program.span)
    values[slot] = value


# ---- one parameter


def _bind_size(plan: CallPlan, p: GivenSize, x: object, values: Values) -> None:
    known = values[p.slot]
    if x is MISSING:
        _require_size(plan, p, known)
        return
    number = size_value(x)
    if number is None:
        what = repr(x) if is_scalar(x) else f"a {type(x).__name__}"
        hint = "" if is_scalar(x) else f"give a number: `int({p.name})`"
        raise plan.error("type", f"`{p.name}` is {what}, expected an integer", p.span, hint)
    if not 0 <= number <= INT64_LIMIT:
        message = f"`{p.name}` is {number}, expected an integer from 0 to 2**63 - 1"
        raise plan.error("size", message, p.span)
    if known is not None and known != number:
        is_fixed = plan.initial[p.slot] is not None
        raise _other_size(plan, p, x, known, plan.fixed_where if is_fixed else "in `sizes=`")
    broken = plan.promises[p.slot].broken_by(number) if p.slot in plan.promises else ""
    if broken:
        message = f"`{p.name}` is {number}, but it was declared to be {broken}"
        raise plan.error("size", message, p.span)
    values[p.slot] = number


def require_given(plan: CallPlan, values: Values) -> None:
    """SizeError if `sizes=` does not say a size parameter."""
    for p in plan.given_sizes:
        _require_size(plan, p, values[p.slot])


def _require_size(plan: CallPlan, p: GivenSize, known: int | None) -> None:
    if known is None:
        raise missing(plan, p)


def missing(plan: CallPlan, p: Parameter | GivenSize) -> TCError:
    hint = f"it is {signature_text(plan)}"
    return plan.error(MissingError, f"argument `{p.name}` is missing", p.span, hint)


def _other_size(plan: CallPlan, p: GivenSize, x: object, known: object, where: str) -> TCError:
    return plan.error("size", f"`{p.name}` is {x!r}, but {known} {where}", p.span)


def _bind_parameter(
    plan: CallPlan, p: Parameter, x: object, values: Values, adapt: Callable[[object], View]
) -> View:
    if type(x) is np.ndarray:
        view = numpy_view(x)
        is_here = view.place.type in plan.device.reads
        if view.dtype is not p.dtype or len(view.shape) != p.rank or not is_here:
            view = _fitting(plan, p, view)
    else:
        view = _usable_view(plan, p, x, adapt)
    for axis, slot in enumerate(p.slots):
        extent = view.shape[axis]
        if values[slot] is None:
            values[slot] = extent
            if slot in plan.promises:
                _require_promise(plan, p, axis, extent)
        elif values[slot] != extent:
            raise _contradiction(plan, p, axis, extent, values)
    if not view.aligned:
        try:
            return plan.device.private_copy(view)
        except Unusable as why:
            raise unusable(plan, f"`{p.name}`", p.span, why) from None
    return view


def _usable_view(plan: CallPlan, p: Parameter, x: object, adapt: Callable[[object], View]) -> View:
    """View of an argument of the right rank and type."""
    if x is MISSING:
        raise missing(plan, p)
    if is_scalar(x):
        return _scalar_view(plan, p, x)
    try:
        view = adapt(x)
    except Unusable as why:
        if p.rank == 0 and not p.inout and not isinstance(why, Elsewhere):
            why = Unusable(f"is {x!r:.80}, expected a number that fits {p.dtype}")
        elif isinstance(x, list | tuple):
            why.hint = f"convert it first: `numpy.array({p.name}, {_numpy_name(p.dtype)})`"
        raise unusable(plan, f"`{p.name}`", p.span, why) from None
    return _fitting(plan, p, view)


def unusable(plan: CallPlan, what: str, span: Span, why: Unusable) -> TCError:
    if isinstance(why, Elsewhere):
        message = f"{what} {why}, this kernel runs on the {plan.device.name}"
        return plan.error("device", message, span, why.hint)
    return plan.error("type", f"{what} {why}", span, why.hint)


def require_place(plan: CallPlan, what: str, span: Span, view: View) -> None:
    """The kernel's device reads the view's memory."""
    if view.place.type not in plan.device.reads:
        plan.device.present()  # else no array can be where it would have to be
        raise unusable(plan, what, span, Elsewhere(view.place))


def _fitting(plan: CallPlan, p: Parameter, view: View) -> View:
    """The view if it has the parameter's rank and type, or a 0-d one converted to the type."""
    require_place(plan, f"`{p.name}`", p.span, view)
    if len(view.shape) != p.rank:
        raise plan.error("rank", rank_message(f"`{p.name}`", view, p.rank, p.type_text), p.span)
    if view.dtype is not p.dtype:
        is_small = p.rank == 0 and view.dtype is not None and holds(p.dtype, view.dtype)
        is_small = is_small and not p.inout
        if is_small and view.place.type in CPU_READS:
            return _converted(view, p)
        raise plan.error(
            "type", type_message(f"`{p.name}`", view, p.type_text), p.span, type_hint(p, view)
        )
    return view


def _converted(view: View, p: Parameter) -> View:
    converted = numpy_view(array_of_view(view).astype(p.dtype.numpy), view.library)
    return converted._replace(original=view)


def _scalar_view(plan: CallPlan, p: Parameter, x: object) -> View:
    if p.rank or p.inout:
        message = f"`{p.name}` is the scalar {x!r}, expected an array {p.type_text}"
        hint = "what is updated in place has memory: `numpy.array(x)`" if p.inout else ""
        raise plan.error("type", message, p.span, hint)
    array = scalar_array(x, p.dtype)
    if array is None:
        message = f"`{p.name}` is {x!r:.80}, which does not fit {p.dtype}"
        raise plan.error("type", message, p.span)
    return numpy_view(array)


def rank_message(what: str, view: View, rank: int, expected: str) -> str:
    have = len(view.shape)
    return f"{what} has {n_dimensions(have)}, expected {n_dimensions(rank)}: {expected}"


def type_message(what: str, view: View, expected: str) -> str:
    return f"{what} has type {view.type_name}, expected {expected}"


def _numpy_name(dtype: DType) -> str:
    """As programs that have imported numpy write the type."""
    others = {DType.BOOL: "bool", DType.BFLOAT16: "ml_dtypes.bfloat16"}
    return others.get(dtype, f"numpy.{dtype}")


def type_hint(p: Parameter, view: View) -> str:
    conversion = f"to(torch.{p.dtype})" if view.library == "torch" else f"astype({str(p.dtype)!r})"
    name, _, bits = view.type_name.removeprefix("torch.").partition("complex")
    if not name and bits:
        end = "" if str(p.dtype) == f"float{int(bits) // 2}" else f".{conversion}"
        parts = f"`{p.name}.real{end}` and `{p.name}.imag{end}`"
        return f"there are no complex types: {parts} are inputs of their own"
    return f"convert it: `{p.name}.{conversion}`"


def _require_promise(plan: CallPlan, p: Parameter, axis: int, extent: int) -> None:
    slot = p.slots[axis]
    broken = plan.promises[slot].broken_by(extent)
    if broken:
        message = f"`{p.name}` has size {extent} on axis {axis}, but `{plan.sizes[slot]}` was"
        raise plan.error("size", f"{message} declared to be {broken}", p.dimension_spans[axis])


def _contradiction(plan: CallPlan, p: Parameter, axis: int, extent: int, values: Values) -> TCError:
    expected = values[p.slots[axis]]
    dimension = p.dimensions[axis]
    message = f"`{p.name}` has size {extent} on axis {axis} but "
    if isinstance(dimension, int):
        message += f"{dimension} is declared: {p.type_text}"
    else:
        message += f"`{dimension}` is {expected} {_origin(plan, p, axis)}"
    return plan.error("size", message, p.dimension_spans[axis])


def _origin(plan: CallPlan, p: Parameter, axis: int) -> str:
    """Where the size that axis `axis` of `p` contradicts was first seen."""
    slot = p.slots[axis]
    if plan.initial[slot] is not None:
        return f"as {plan.fixed_where}"
    for q in plan.inputs:
        for d, other in enumerate(q.slots):
            if q is p and d == axis:
                return "from `sizes=`"
            if other == slot:
                return f"from axis {d} of `{q.name}`"
    raise AssertionError("unreachable: the dimension is among the inputs")
