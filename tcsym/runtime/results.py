# SPDX-License-Identifier: Apache-2.0
"""`out=`, `inout` and results: memory that a call writes, and what the caller gets back (LANGUAGE
E13, F5).

Outputs are new arrays of the inputs' library, or the caller's, as are arrays that are updated. The
caller's must not overlap: neither themselves nor any other argument. Memory that a kernel cannot
write in place is replaced by a temporary and written back afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from tcsym.errors import TCError
from tcsym.runtime.arguments import (
    Bound,
    rank_message,
    require_place,
    type_message,
    unusable,
)
from tcsym.runtime.arrays import (
    note_written,
    numpy_array,
    result_object,
    written_view,
)
from tcsym.runtime.overlap import obstacle, overlap
from tcsym.runtime.plan import CallPlan, Output, Parameter, type_text
from tcsym.runtime.size_functions import Shape
from tcsym.runtime.view import Library, Place, Unusable, View


class Outputs(Struct, frozen=True):
    """`views`: the outputs. `objects`: what the caller gave, or None for new memory. `updated`: the
    caller's arrays that change."""

    views: tuple[View, ...]
    objects: tuple[Any, ...]
    pending: tuple[tuple[View, View], ...] = ()  # (to, from)
    updated: tuple[Any, ...] = ()

    def finished(self) -> tuple[Any, ...]:
        """The results, once the kernel has run."""
        for to, source in self.pending:
            np.copyto(numpy_array(to), numpy_array(source))
        for given in (*self.objects, *self.updated):
            if given is not None:
                note_written(given)
        return tuple(
            [
                result_object(view) if given is None else given
                for view, given in zip(self.views, self.objects)
            ]
        )


def prepare_outputs(plan: CallPlan, bound: Bound, given: Sequence[object] | None) -> Outputs:
    """Memory for all outputs; `given` as ordered by `match_outputs`."""
    library, place = result_library(bound.views), bound.place
    pending = require_updatable(plan, bound) if plan.inouts else []
    updated = tuple([original_of(bound.views[k]).owner for k in plan.inouts])
    if given is None:
        made = [_allocate(plan, k, library, shape, place) for k, shape in enumerate(bound.shapes)]
        return Outputs(tuple(made), (None,) * len(made), tuple(pending), updated)
    views: list[View] = []
    taken: list[tuple[Parameter | Output, View]]
    taken = [(p, original_of(v)) for p, v in zip(plan.inputs, bound.views)]
    for k, (output, x, shape) in enumerate(zip(plan.outputs, given, bound.shapes)):
        if x is None:
            views.append(_allocate(plan, k, library, shape, place))
            continue
        view = _given_output(plan, output, x, shape, place)
        _require_writable(plan, output, view, taken)
        taken.append((output, view))
        if not view.aligned:
            pending.append((view, plan.device.temporary(shape, output.dtype, place)))
            view = pending[-1][1]
        views.append(view)
    return Outputs(tuple(views), tuple(given), tuple(pending), updated)


def result_library(views: Sequence[View]) -> Library:
    """The first library among the inputs that is not numpy."""
    for view in views:
        if view.library != "numpy":
            return view.library
    return "numpy"


def _allocate(plan: CallPlan, k: int, library: Library, shape: Shape, place: Place) -> View:
    return plan.device.result(library, shape, plan.outputs[k].dtype, place)


# ---- out=


def match_outputs(plan: CallPlan, out: object) -> list[object] | None:
    """One object or None for each output; None if all are to be allocated."""
    if out is None:
        return None
    names = [o.name for o in plan.outputs]
    if isinstance(out, Mapping):
        unknown = [name for name in out if name not in names]
        if unknown:
            hint = f"outputs are {', '.join(names)}"
            message = f"`out` has `{unknown[0]}`, which is no output"
            raise plan.error("call", message, plan.program.span, hint)
        return [out.get(name) for name in names]
    if isinstance(out, tuple):
        if len(out) != len(names):
            message = f"`out` has {len(out)} arrays for {len(names)} outputs"
            raise plan.error("call", message, plan.program.span)
        return list(out)
    if len(names) != 1:
        message = f"`out` is one {type(out).__name__} for {len(names)} outputs"
        hint = f"give a tuple in the order {', '.join(names)}, or a mapping by name"
        hint = hint if names else "what it updates is given in place of it"
        raise plan.error("call", message, plan.program.span, hint)
    return [out]


def _given_output(plan: CallPlan, output: Output, x: object, shape: Shape, place: Place) -> View:
    """View of a caller's array of the right rank, type and shape."""
    try:
        view = written_view(x, plan.device.view_of)
        require_place(plan, f"`out` for `{output.name}`", output.span, view)
        view = plan.device.admitted(view, place)
    except Unusable as why:
        raise unusable(plan, f"`out` for `{output.name}`", output.span, why) from None
    if view.shape != shape or view.dtype is not output.dtype:
        raise _unfitting(plan, output, view, shape)
    return view


def _unfitting(plan: CallPlan, output: Output, view: View, shape: Shape) -> TCError:
    what, expected = f"`out` for `{output.name}`", type_text(output.dtype, output.shape)
    if len(view.shape) != len(shape):
        return plan.error("rank", rank_message(what, view, len(shape), expected), output.span)
    if view.dtype is not output.dtype:
        return plan.error("type", type_message(what, view, expected), output.span)
    message = f"{what} has shape {view.shape}, but the result has {shape}"
    return plan.error("size", message, output.span)


def _require_writable(
    plan: CallPlan, output: Output, view: View, taken: Sequence[tuple[Parameter | Output, View]]
) -> None:
    what = f"`out` for `{output.name}`"
    why = obstacle(view)
    if why:
        raise plan.error("immutable", f"{what} {why}", output.span)
    for x, other in taken:
        if overlap(view, other):
            message, span = f"{what} overlaps `{x.name}`", output.span
            if isinstance(x, Parameter) and x.inout:
                message, span = f"`{x.name}` overlaps {what}", x.span
            raise plan.error("immutable", message, span)


# ---- inout


def original_of(view: View) -> View:
    """The caller's memory, of which a private copy was made."""
    return view.original or view


def require_updatable(plan: CallPlan, bound: Bound) -> list[tuple[View, View]]:
    """Arrays that are updated may be, and share no element with another argument.

    The copies that have to be written back.
    """
    views = [original_of(v) for v in bound.views]
    for k in plan.inouts:
        p = plan.inputs[k]
        why = obstacle(views[k], {q.name: v for q, v in zip(plan.inputs, views) if q is not p})
        if why:
            hint = "jax arrays never change: call `kernel.functional()`"
            hint = hint if views[k].library == "jax" else "give a copy"
            message = f"`{p.name}` is updated in place, but {why}"
            raise plan.error("immutable", message, p.span, hint)
    return [(views[k], bound.views[k]) for k in plan.inouts if views[k] is not bound.views[k]]
