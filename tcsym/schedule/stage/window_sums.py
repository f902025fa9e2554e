# SPDX-License-Identifier: Apache-2.0
"""Sums over windows of short numbers -> what of them can be dot products over packed channels.

Of the two factors one is the image, which windows slide over, the other the weights. Both move with
the loop of channels, in a subscript of its own, along which the image's elements lie far apart.
Each is one element of a tensor; a byte may have its sign bit turned over, and a zero point taken
off, as long as what that owes is a sum of weights.
"""

from __future__ import annotations

from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Const, Expr, Read, dtype_of
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, var
from tcsym.ir.bounds import (
    at_least,
    at_most,
    eliminate,
    extent,
    extent_from,
    least,
)
from tcsym.ir.loops import Kernel, Loop, Update
from tcsym.ir.packed import BYTES
from tcsym.ir.traverse import loads, map_value
from tcsym.mapping.dot_terms import DotTerm, dot_term
from tcsym.schedule.analysis.access import accesses, stride, value_variables
from tcsym.schedule.analysis.band import Band
from tcsym.schedule.analysis.loops import chain_of, find_loop
from tcsym.schedule.analysis.sliding import slides
from tcsym.schedule.stage.copy_operand import depend_on_sizes
from tcsym.types import DType

FEW_ELEMENTS = 8  # at the end of a dimension, which no window reads


class Axis(Struct, frozen=True):
    """A dimension that is read at `subscript`, in `n` elements from `low` on.

    n = 0: the subscript is the same for all of the nest.
    """

    subscript: Index
    low: Index
    n: Index


class Side(Struct, frozen=True):
    """A factor of a dot product: `read`, perhaps with its sign bit turned over."""

    value: Expr
    read: Read
    axes: tuple[Axis, ...]

    @property
    def kept(self) -> tuple[Axis, ...]:
        """The dimensions that the nest moves along."""
        return tuple(a for a in self.axes if a.n != ZERO)

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)

    def element(self, at: tuple[Index, ...]) -> Expr:
        """The factor, of another element."""
        new = replace(self.read, subscripts=at)
        changed = map_value(self.value, lambda v: new if v == self.read else v, lambda i: i)
        return cast(Expr, changed)


class WindowSum(Struct, frozen=True):
    """`update` in the loops `around`, the loop of channels among them."""

    update: Update
    around: tuple[Loop, ...]
    channels: Loop
    term: DotTerm
    sides: tuple[Side, Side]  # as the term has them

    @property
    def steps(self) -> Index:
        return ceildiv(extent(self.channels), self.term.steps)

    def moves(self, a: Axis) -> bool:
        """The loop of channels does."""
        return self.channels.variable in a.subscript.variables()


def window_sum(
    kernel: Kernel, nest: str, band: Band, x: Update, around: tuple[Loop, ...], have: frozenset[str]
) -> WindowSum | None:
    """have: the dot products of the target. None: the sum stays as it is."""
    windows = [
        r for r in loads(x.value) if any(slides_along(s, band, around) for s in r.subscripts)
    ]
    if len(windows) != 1 or not depend_on_sizes(kernel, around):
        return None
    image, own = windows[0], value_variables(windows[0]) & set(band.variables)
    own -= frozenset[str]().union(*(value_variables(r) for r in loads(x.value) if r != image))
    written = {a.buffer for a in accesses(find_loop(kernel.body, nest)) if a.written}
    if not own or written & {r.tensor for r in loads(x.value)}:
        return None
    if any(y.order != "reduction" for y in around) or _is_weight(kernel, image, band, around):
        return None
    term = _term(x, own, around, have)
    channels = None if term is None else _channels(kernel, image, term, around)
    if term is None or channels is None:
        return None
    loops = (*band.loops, *around)
    sides = side_of(kernel, term.left, loops), side_of(kernel, term.right, loops)
    if sides[0] is None or sides[1] is None:
        return None
    return WindowSum(x, around, channels, term, (sides[0], sides[1]))


def slides_along(s: Index | Expr, band: Band, around: tuple[Loop, ...]) -> bool:
    return any(slides(s, v, around) for v in band.variables)


def _is_weight(kernel: Kernel, image: Read, band: Band, around: tuple[Loop, ...]) -> bool:
    """Its windows are longer than what moves them, as where weights' gradients are summed."""

    def longest(s: Index, loops: tuple[Loop, ...]) -> tuple[int, int]:
        lengths = (extent(y) for y in loops if y.variable in s.variables())
        return max((len(n.variables() & set(kernel.sizes)), n.as_int() or 0) for n in lengths)

    sliding = [
        s for s in image.subscripts if isinstance(s, Index) and slides_along(s, band, around)
    ]
    return any(longest(s, around) > longest(s, band.loops) for s in sliding)


def _term(
    x: Update, own: frozenset[str], around: tuple[Loop, ...], have: frozenset[str]
) -> DotTerm | None:
    """As bytes where they owe sums of weights only, else as pairs, which owe less.

    own: loops that move the image only.
    """
    sums = frozenset(y.variable for y in around)
    for functions in (have, have - {BYTES}):
        term = dot_term(x, min(own), sums, functions)
        if term is not None and not any(
            y.value is None or own & value_variables(y.value) for y in term.owed
        ):
            return term
    return None


def _channels(kernel: Kernel, image: Read, term: DotTerm, around: tuple[Loop, ...]) -> Loop | None:
    """The longest loop that can be packed."""
    found = [x for x in around if _are_apart(kernel, x, image, term)]
    return max(found, key=lambda x: extent(x).as_int() or FEW_ELEMENTS, default=None)


def _are_apart(kernel: Kernel, x: Loop, image: Read, term: DotTerm) -> bool:
    """It moves both factors by a subscript of its own, and the image by more than one element."""
    along = stride(kernel.buffer(image.tensor), image.subscripts, x.variable) == ONE
    if along or extent(x).as_int() == 1 or not isinstance(chain_of(x)[-1].body, Update):
        return False
    for r in (*loads(term.left), *loads(term.right)):
        moved = [s for s in r.subscripts if isinstance(s, Index) and x.variable in s.variables()]
        if len(moved) != 1 or (moved[0] - var(x.variable)).terms:
            return False
    return True


def side_of(kernel: Kernel, value: Expr, loops: tuple[Loop, ...]) -> Side | None:
    """None unless it is one element, of a box of its tensor, and nothing else moves it."""
    found = tuple(dict.fromkeys(loads(value)))
    if len(found) != 1 or any(found[0].checked) or found[0].unwritten is not None:
        return None
    zero = Const(0, found[0].dtype)
    rest = map_value(value, lambda v: zero if v == found[0] else v, lambda i: i)
    if value_variables(rest) & {x.variable for x in loops}:
        return None
    shape, axes = kernel.buffer(found[0].tensor).shape, list[Axis]()
    for s, n in zip(found[0].subscripts, shape):
        axis = _axis(kernel, s, n, loops)
        if axis is None:
            return None
        axes.append(axis)
    return Side(value, found[0], tuple(axes))


def _axis(kernel: Kernel, s: Index | Expr, shape: Index, loops: tuple[Loop, ...]) -> Axis | None:
    """From the first to the last element that is read; all of the dimension if that is about as
    much, as rows of whole planes run on."""
    if not isinstance(s, Index):
        return None
    names, sizes = {x.variable for x in loops}, frozenset(kernel.sizes)
    if not s.variables() & names:
        return Axis(s, s, ZERO)
    low, high = eliminate(s, loops, False), eliminate(s, loops, True)
    if low is None or high is None or not (low.variables() | high.variables()) <= sizes:
        return None
    low = at_least(low, ZERO, sizes)
    left = least(high + 1 - shape, ())
    if left is not None and left >= -FEW_ELEMENTS:
        return Axis(s, low, shape if low == ZERO else extent_from(shape - low, sizes))
    return Axis(s, low, extent_from(at_most(high - low + 1, shape - low, sizes), sizes))
