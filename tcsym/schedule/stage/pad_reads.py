# SPDX-License-Identifier: Apache-2.0
"""Windows that hang over the edge of an operand -> a padded copy, read without a guard.

`c ? I(.., h + k - 1, ..) : x`, where `c` bounds the subscripts only, is an element of the operand
or of its border. Asking at every point of every window costs more than the products; the copy asks
once a row, and converts elements that no dot product takes as they are. It holds the hull of all
subscripts, the border filled with `x`, rows of whole vectors. It stands before the nest, or, if
each plane serves only its own iterations of the outer loops (depthwise convolution, pooling),
inside those, where it stays in the first cache.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Cast, Expr, IndexValue, Read, Select, dtype_of
from tcsym.index.expr import (
    ZERO,
    Index,
    NonNegative,
    all_of,
    ceildiv,
    ge,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import conjuncts
from tcsym.ir.bounds import eliminate, extent_from, is_nonnegative
from tcsym.ir.loops import Buffer, Kernel, Loop, Value, block
from tcsym.ir.packed import BFLOAT, available
from tcsym.ir.traverse import loads, map_node, subvalues
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import band_of, reductions
from tcsym.schedule.analysis.casts import rebuilt
from tcsym.schedule.analysis.loops import find_loop, loops_around, replace_loop
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.stage.copy_padded import Axis, copy_padded, fixed_axis
from tcsym.types import DType


class Padded(Struct, frozen=True):
    """`nest`: the outermost loop of what now reads the copy."""

    kernel: Kernel
    nest: str


def pad_reads(kernel: Kernel, nest: str, setting: Setting) -> Padded | None:
    """The first guarded read of the nest's reductions through a padded copy, if there is one."""
    band = band_of(find_loop(kernel.body, nest))
    if not band.loops:
        return None
    written = {a.buffer for a in accesses(band.body) if a.written}
    for x, around in reductions(band.body):
        for value in subvalues(x.value):
            v = _converted(value, setting)
            if not isinstance(v, Select) or not _is_guarded_read(v) or v.then.tensor in written:  # type: ignore[union-attr]
                continue
            shared = _shared(kernel, nest, v.then.tensor)  # type: ignore[union-attr]
            loops = (*shared, *band.loops, *around)
            axes = _axes(kernel, v, loops, frozenset(y.variable for y in around))
            if axes is not None:
                return _padded(kernel, nest, value, axes, shared, setting)
    return None


def _converted(v: Value, setting: Setting) -> Value:
    """What `v` converts if its copy should hold it converted: once, not for each use."""
    if not isinstance(v, Cast) or v.exact or v.dtype is not DType.FLOAT32:
        return v
    is_dot = dtype_of(v.operand) is DType.BFLOAT16 and BFLOAT in available(setting.machine)
    return v if is_dot else v.operand


def _shared(kernel: Kernel, nest: str, tensor: str) -> tuple[Loop, ...]:
    """The loops around the nest whose iterations read the same elements: one copy serves all."""
    found: list[Loop] = []
    for loop in reversed(loops_around(kernel.body, nest)):
        if any(a.written and a.buffer == tensor for a in accesses(loop)):
            break
        found.insert(0, loop)
    return tuple(found)


def _is_guarded_read(v: Select) -> bool:
    read = v.then
    return (
        isinstance(read, Read)
        and read.unwritten is None
        and not any(read.checked)
        and all(isinstance(s, Index) for s in read.subscripts)
        and not loads(v.orelse)
        and not any(isinstance(x, IndexValue) for x in subvalues(v.orelse))
    )


def _axes(
    kernel: Kernel, v: Select, loops: tuple[Loop, ...], window: frozenset[str]
) -> tuple[Axis, ...] | None:
    """One for each subscript; None if the guard is about anything else, or no window slides."""
    assert isinstance(v.then, Read)
    names, sizes = frozenset(x.variable for x in loops), frozenset(kernel.sizes)
    guards = _guards(v, names, sizes)
    if guards is None:
        return None
    axes: list[Axis] = []
    shape = kernel.buffer(v.then.tensor).shape
    for d, s in enumerate(v.then.subscripts):
        assert isinstance(s, Index)
        limits = [g for k, g in guards if k == d]
        axis = _axis(s, shape[d], limits, loops, sizes)
        if axis is None:
            return None
        axes.append(axis)
    slides = any(
        x.is_guarded
        and x.subscript.variables() & window
        and x.subscript.variables() & names - window
        for x in axes
    )
    return tuple(axes) if slides else None


Limit = tuple[int, Index]


def _guards(
    v: Select, names: frozenset[str], sizes: frozenset[str]
) -> list[tuple[int, Limit]] | None:
    """Dimension, sign, rest: sign * subscript + rest >= 0, rest in sizes."""
    condition = as_condition(v.condition)
    if condition is None:
        return None
    found: list[tuple[int, Limit]] = []
    for c in conjuncts(condition):
        place = _limit(v, c.index, names, sizes) if isinstance(c, NonNegative) else None
        if place is None:
            return None
        found.append(place)
    return found


def _limit(
    v: Select, e: Index, names: frozenset[str], sizes: frozenset[str]
) -> tuple[int, Limit] | None:
    assert isinstance(v.then, Read)
    for d, s in enumerate(v.then.subscripts):
        assert isinstance(s, Index)
        for sign in (1, -1):
            rest = e - s * sign
            if s.variables() & names and rest.variables() <= sizes:
                return d, (sign, rest)
    return None


def _axis(
    s: Index, shape: Index, limits: list[Limit], loops: tuple[Loop, ...], sizes: frozenset[str]
) -> Axis | None:
    moving = [x for x in loops if x.variable in s.variables()]
    if not moving:
        return fixed_axis(s, all_of((ge(s, 0), ge(shape - 1, s))))
    low, high = eliminate(s, loops, False), eliminate(s, loops, True)
    if low is None or high is None or not (low.variables() | high.variables()) <= sizes:
        return None
    if not limits and s != var(moving[0].variable):
        return None
    n = extent_from(high - low + 1, sizes)
    if n == ZERO:  # nothing is read; an axis without extent means a fixed one
        return None
    first, end = maximum(0, -low), minimum(n, shape - low)
    for sign, rest in limits:
        if sign > 0:
            first = maximum(first, -rest - low)
        else:
            end = minimum(end, rest - low + 1)
    first = minimum(first, n)
    # what the hull proves need not be asked of a plane
    inside = [
        c
        for c, k in ((ge(s, 0), low), (ge(shape - 1, s), shape - 1 - high))
        if not is_nonnegative(k, sizes)
    ]
    inside += [ge(s * sign + rest, 0) for sign, rest in limits]
    return Axis(s, low, n, first, maximum(end, first), bool(limits), all_of(inside))


def _padded(
    kernel: Kernel,
    nest: str,
    whole: Value,
    axes: tuple[Axis, ...],
    shared: tuple[Loop, ...],
    setting: Setting,
) -> Padded:
    v = _converted(whole, setting)
    assert isinstance(v, Select) and isinstance(v.then, Read)
    element, border = (rebuilt(whole, x) if v != whole else x for x in (v.then, v.orelse))  # type: ignore[arg-type]
    band, names = band_of(find_loop(kernel.body, nest)), setting.names
    outer = _planes(band.variables, axes)
    axes = tuple(
        fixed_axis(x.subscript, x.inside) if x.subscript.variables() <= outer else x for x in axes
    )
    kept = tuple(x for x in axes if x.n != ZERO)
    top = band.variables[len(outer)]
    before = top if outer or not shared else shared[0].variable
    around = frozenset(x.variable for x in loops_around(kernel.body, before))
    lanes = setting.lanes(kernel, band.body)
    *others, last = kept
    shape = (*(x.n for x in others), ceildiv(last.n, lanes) * lanes)
    dtype, name = dtype_of(element), names.fresh(f"{v.then.tensor}_padded")
    kernel = kernel.with_buffer(Buffer(name, dtype, shape, "arena", private=around))
    copy = copy_padded(element, border, axes, kept, name, lanes, names)
    new: Expr = Read(name, tuple(x.subscript - x.low for x in kept), dtype)

    def value(y: Value) -> Value:
        return new if y == whole else y

    body = replace_loop(kernel.body, before, lambda x: block(copy, map_node(x, None, value)))
    return Padded(replace(kernel, body=body), top)


def _planes(variables: tuple[str, ...], axes: tuple[Axis, ...]) -> frozenset[str]:
    """The outermost loops of the band, if each of their iterations has a plane of its own."""
    plain = {name for x in axes if not x.is_guarded for name in x.subscript.variables()}
    n = next((k for k, v in enumerate(variables) if v not in plain), 0)
    outer, moving = frozenset(variables[:n]), plain - set(variables[:n])
    shared = any(x.n != ZERO and x.subscript.variables() & moving for x in axes)
    return frozenset() if shared else outer
