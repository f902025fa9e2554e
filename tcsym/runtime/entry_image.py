# SPDX-License-Identifier: Apache-2.0
"""Call plan and variant -> `EntryImage`: what calls of numpy arrays or torch tensors enter.

There is none where some size does not follow from the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.index.expr import Condition, Index, all_of, eq, ge, lt, mod, var
from tcsym.ir.compiled import Layout
from tcsym.runtime.entering import EntryImage
from tcsym.runtime.formulas import SIZE_BOUND, Formulas, packed_words
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.runtime.plan import CallPlan, GivenSize, Parameter
from tcsym.runtime.view import dlpack_type
from tcsym.sizes.dims import Dim
from tcsym.types import DType

_LAYOUTS: tuple[Layout, ...] = ("dense", "rows", "columns", "any")
_MOST_VALUES = 4096  # they are on the stack of a call


def entry_image(
    plan: CallPlan,
    scratch: tuple[Index, Index],
    pointers: tuple[int, ...],
    slots: Sequence[int | tuple[int, int]],
    layouts: tuple[Layout, ...],
    exact: bool = True,
) -> EntryImage | None:
    """What `entering.load_entry` loads, for arrays of these layouts; None where there is no way.

    `scratch`: bytes that tasks share, and of each. `pointers`: places of the kernel's arguments
    among inputs and outputs. `slots`: each of its sizes is a slot of the plan, or the stride in
    elements of (argument, dimension); these and `layouts` are those of a variant
    (`variants.Variant`). Unless `exact`, arrays of stricter layouts are served as well.
    """
    if not HAS_ENTRIES or not _can_be_entered(plan):
        return None
    free = tuple([s for s in plan.free_slots if plan.initial[s] is None])
    formulas = Formulas(plan.sizes, [value or 0 for value in plan.initial])
    for slot, promise in plan.promises.items():
        formulas.require(_kept(plan.sizes[slot], promise))
    for check in plan.program.checks:
        formulas.require(check.condition)
    for condition in plan.limits.usual_below(SIZE_BOUND):
        formulas.require(condition)
    given = {p.slot: p.place for p in plan.given_sizes}
    arrays = [k for k, p in enumerate(plan.parameters) if isinstance(p, Parameter)]
    arrays += [len(plan.parameters) + k for k, _ in enumerate(plan.outputs)]
    shapes = [[formulas.index(extent) for extent in o.shape] for o in plan.outputs]
    shared, private = map(formulas.index, scratch)
    if len(formulas.values) > _MOST_VALUES:
        return None
    places = [(-1, s) if isinstance(s, int) else (arrays[s[0]], s[1]) for s in slots]
    words = [
        *(len(plan.parameters), len(plan.inouts), len(plan.outputs), len(plan.sizes)),
        *(len(formulas.values), int(exact), len(free), len(pointers), len(slots)),
        *(len(formulas.steps) // 5, shared, private),
        *formulas.values,
        *_arrays(plan, layouts, free, shapes),
        *[arrays[k] for k in plan.inouts],
        *[word for s in free for word in (s, given.get(s, -1))],
        *[arrays[k] for k in pointers],
        *[word for place in places for word in place],
        *formulas.steps,
    ]
    return EntryImage(
        name=plan.program.name,
        words=packed_words(words),
        inputs=tuple([(p.name, _dtype(p).value) for p in plan.parameters]),
        outputs=tuple([(o.name, o.dtype.value) for o in plan.outputs]),
        free=tuple([plan.sizes[slot] for slot in free]),
    )


def all_dense(plan: CallPlan) -> tuple[Layout, ...]:
    dense: Layout = "dense"
    return (dense,) * (len(plan.inputs) + len(plan.outputs))


def _can_be_entered(plan: CallPlan) -> bool:
    """True if it has arrays, a call tells all sizes, and there are not too many arrays."""
    known = {s for p in plan.inputs for s in p.slots} | set(plan.free_slots)
    known |= {k for k, v in enumerate(plan.initial) if v is not None}
    fits = max(len(plan.parameters), len(plan.outputs)) <= native.MOST_ARRAYS
    fits = fits and all(v is None or v < 2**63 for v in plan.initial)
    return fits and bool(plan.inputs or plan.outputs) and known.issuperset(range(len(plan.sizes)))


def _arrays(
    plan: CallPlan, layouts: Sequence[Layout], free: Sequence[int], shapes: Sequence[Sequence[int]]
) -> list[int]:
    """What each parameter and output must be."""
    told = {k for k, value in enumerate(plan.initial) if value is not None} | set(free)
    words: list[int] = []
    of_inputs = iter(layouts)
    for p in plan.parameters:
        if isinstance(p, GivenSize):
            binds = plan.initial[p.slot] is None
            words += [-1, *type_words(_dtype(p), "dense"), p.slot, int(binds)]
            continue
        layout, told_here = next(of_inputs), []
        for slot in p.slots:
            told_here.append(int(slot not in told))
            told.add(slot)
        words += [p.rank, *type_words(p.dtype, layout), *p.slots, *told_here]
    for o, layout, shape in zip(plan.outputs, layouts[len(plan.inputs) :], shapes):
        words += [len(shape), *type_words(o.dtype, layout), *shape, *[0] * len(shape)]
    return words


def _dtype(p: Parameter | GivenSize) -> DType:
    return p.dtype if isinstance(p, Parameter) else DType.INT64


def type_words(dtype: DType, layout: Layout) -> tuple[int, ...]:
    """As native code has a type and a layout, behind a rank."""
    return _LAYOUTS.index(layout), dtype.bytes, dlpack_type(dtype), *number_kind(dtype)


def number_kind(dtype: DType) -> tuple[int, int, int]:
    """Which numbers may stand for an element: kind, and the integers that the type surely holds."""
    if dtype is DType.FLOAT32:
        return 32, -(2**24), 2**24
    if dtype is DType.FLOAT64:
        return 64, -(2**53), 2**53
    if dtype.is_float:
        return 0, 0, 0
    return dtype.bytes, dtype.lowest, min(dtype.highest, 2**63 - 1)


def _kept(name: str, promise: Dim) -> Condition:
    """The condition that a declared `Dim` promises."""
    size = var(name)
    conditions = [ge(size, promise.lo), eq(mod(size, promise.multiple_of), 0)]
    if promise.hi is not None:
        conditions.append(lt(size, promise.hi + 1))
    return all_of(conditions)
