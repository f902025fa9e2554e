# SPDX-License-Identifier: Apache-2.0
"""Windows over short numbers -> over copies with several channels side by side, made ahead.

    Y(n,o,y,x) += float(X(n,c,y+i,x+j)) * float(F(o,c,i,j))                          c < C
->  Y(n,o,y,x) += dot(X'(n,q,y+i,x+j), F'(o,q,i,j))                                  q < (C+1)/2
    X'(n,q,u,v) = pack(X(n,q,u,v), X(n,q+C/2,u,v))      F'(o,q,i,j) likewise

`split c tile pack:2 end=zero`: both operands are packed by their own dimensions, once for all that
read an element. Channels far apart share a pack, as copies then run along memory on both sides.
What is left of them is the last pack, filled up with zeros on both sides, which add nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Const, Expr, Read, Select, dtype_of
from tcsym.index.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Condition,
    Index,
    ceildiv,
    floordiv,
    ge,
    index,
    minimum,
    var,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import at_least, at_most, eliminate, extent, extent_from, least
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Holds,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    allocated,
    block,
)
from tcsym.ir.packed import dot, pack
from tcsym.ir.traverse import loads, map_node, map_value, value_variables, walk
from tcsym.mapping.contraction import Contraction, Sum, contraction
from tcsym.mapping.dot_terms import DotTerm
from tcsym.mapping.nest import Nest, is_found, joined
from tcsym.mapping.pack import term_of
from tcsym.mapping.plan import Refused, Split, is_ahead
from tcsym.mapping.text import GivenNest
from tcsym.mapping.tree import variables_of
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.target.machine import Machine
from tcsym.types import DType

Places = tuple[Index, ...]
FEW_ELEMENTS = 8  # at the end of a dimension that are packed for nothing, so that rows run on


class Ahead(Struct, frozen=True):
    """tops: the outermost loops of nests in front of this one. splits: what plans of it begin
    with."""

    kernel: Kernel
    tops: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ()


def packed_ahead(kernel: Kernel, nest: Nest, machine: Machine, names: Names) -> Ahead:
    """The kernel with those windows of a nest packed that can be."""
    c = None if nest.around or nest.is_found else contraction(nest)
    found = Ahead(kernel)
    if c is None or c.rows is None or not c.is_window:
        return found
    if any(isinstance(x, Branch) for x, _ in walk(nest.body)):
        return found
    for s in c.sums:
        x = _window_sum(nest, c, s, machine)
        if x is not None:
            found = _packed(found, nest, x, names)
    return found


def check_packed(found: Ahead, given: GivenNest) -> None:
    """Raises `Refused` for what a plan has packed otherwise than it can be."""
    for k, version in enumerate(given.versions):
        for step, d in enumerate(version.plan):
            if isinstance(d, Split) and is_ahead(d) and d not in found.splits:
                raise Refused(f"{d.axis} is not packed so in front of the nest", "", k, step)


class _Axis(Struct, frozen=True):
    """A dimension that is read at `subscript`, in `n` elements from `low` on; n = 0: the subscript
    is the same for all of the nest."""

    subscript: Index
    low: Index
    n: Index


class _Side(Struct, frozen=True):
    """A factor, which is `read`, perhaps with its sign bit turned over."""

    value: Expr
    read: Read
    axes: tuple[_Axis, ...]

    @property
    def kept(self) -> tuple[_Axis, ...]:
        return tuple(a for a in self.axes if a.n != ZERO)

    def element(self, at: tuple[Index, ...]) -> Any:
        new = replace(self.read, subscripts=at)
        return map_value(self.value, lambda v: new if v == self.read else v, lambda i: i)


class _WindowSum(Struct, frozen=True):
    update: Update
    channels: Loop
    term: DotTerm
    sides: tuple[_Side, ...]

    @property
    def steps(self) -> Index:
        return ceildiv(extent(self.channels), self.term.steps)

    def moves(self, a: _Axis) -> bool:
        return self.channels.variable in a.subscript.variables()


# ---- what can be packed


def _window_sum(nest: Nest, c: Contraction, s: Sum, machine: Machine) -> _WindowSum | None:
    term = term_of(s.update, frozenset(x.variable for x in s.loops), machine)
    ranges = variables_of(e for x in (*nest.band, *s.loops) for e in (x.lower, x.upper))
    if term is None or ranges - nest.sizes or _is_long(nest, c, s):
        return None
    sides = tuple(_side(nest, s, v) for v in (term.left, term.right))
    if None in sides:
        return None
    channels = [x for x in s.loops if _are_apart(nest, c, x, s, term)]
    if not channels:
        return None
    longest = max(channels, key=lambda x: extent(x).as_int() or FEW_ELEMENTS)
    return _WindowSum(s.update, longest, term, sides)  # type: ignore[arg-type]


def _is_long(nest: Nest, c: Contraction, s: Sum) -> bool:
    """Windows are longer than what moves them, as where gradients of weights are summed."""

    def longest(loops: tuple[Loop, ...], place: Index) -> tuple[int, int]:
        found = (extent(x) for x in loops if x.variable in place.variables())
        return max(((len(n.variables()), n.as_int() or 0) for n in found), default=(0, 0))

    places = (i for a in s.wide for i in a.subscripts)
    sliding = [i for i in places if c.columns in i.variables() and longest(s.loops, i) > (0, 0)]
    return any(longest(s.loops, i) > longest(nest.band, i) for i in sliding)


def _are_apart(nest: Nest, c: Contraction, x: Loop, s: Sum, term: DotTerm) -> bool:
    """The loop moves both factors by a subscript of its own, what columns read by more than one
    element, and adds terms of one sum."""
    node = x.body
    while isinstance(node, Loop):
        node = node.body
    if node != s.update or extent(x) == ONE:
        return False
    if any(nest.stride(a, x.variable) == ONE for a in s.wide):
        return False
    for r in (*loads(term.left), *loads(term.right)):
        moved = [i for i in r.subscripts if isinstance(i, Index) and x.variable in i.variables()]
        if len(moved) != 1 or (moved[0] - var(x.variable)).terms:
            return False
    return True


def _side(nest: Nest, s: Sum, value: Expr) -> _Side | None:
    """None unless it is one element, of a box of its tensor, and nothing else moves it."""
    found = tuple(dict.fromkeys(loads(value)))
    written = {x.accesses[0].buffer for x in nest.statements}
    if len(found) != 1 or is_found(found[0]) or found[0].tensor in written:
        return None
    zero = Const(0, found[0].dtype)
    rest = map_value(value, lambda v: zero if v == found[0] else v, lambda i: i)
    loops = (*nest.band, *s.loops)
    if value_variables(rest) & {x.variable for x in loops}:
        return None
    shape = nest.buffers[found[0].tensor].shape
    axes = [_axis(nest, i, n, loops) for i, n in zip(found[0].subscripts, shape, strict=True)]
    known = tuple(a for a in axes if a is not None)
    return _Side(value, found[0], known) if len(known) == len(axes) else None


def _axis(nest: Nest, i: Any, shape: Index, loops: tuple[Loop, ...]) -> _Axis | None:
    """From the first to the last element that is read; all of the dimension if that is about as
    much, as rows of whole planes run on."""
    if not i.variables() & {x.variable for x in loops}:
        return _Axis(i, i, ZERO)
    low, high = eliminate(i, loops, False), eliminate(i, loops, True)
    if low is None or high is None or not (low.variables() | high.variables()) <= nest.sizes:
        return None
    low = at_least(low, ZERO, nest.sizes)
    left = least(high + 1 - shape, ())
    if left is not None and left >= -FEW_ELEMENTS:
        return _Axis(i, low, shape if low == ZERO else extent_from(shape - low, nest.sizes))
    n = at_most(high - low + 1, shape - low, nest.sizes)
    return _Axis(i, low, extent_from(n, nest.sizes))


# ---- packing


def _packed(found: Ahead, nest: Nest, x: _WindowSum, names: Names) -> Ahead:
    kernel, tops, new = found.kernel, list(found.tops), list[Expr]()
    loop, top = x.channels.variable, nest.top.variable
    step = f"{loop}.tile"
    for side in x.sides:
        name = names.fresh(f"{side.read.tensor}_packed")
        shape = tuple(x.steps if x.moves(a) else a.n for a in side.kept)
        rows = _rows(nest, side)
        copies = tuple(
            c for rest in (False, True) for c in _copies(nest, x, side, name, rest, names)
        )
        tops += [c.variable for c in copies]
        body = replace_loop(kernel.body, top, partial(_in_front, name, copies))
        kernel = replace(kernel, body=body)
        buffer = Buffer(name, DType.INT32, tuple(product_of(shape[r]) for r in rows), "arena")
        kernel = kernel.with_buffer(buffer)
        at = tuple(var(step) if x.moves(a) else a.subscript - a.low for a in side.kept)
        new.append(Read(name, _flat(at, shape, rows), DType.INT32))
    update = replace(x.update, value=dot(x.term.function, new[0], new[1]))

    def steps(y: Loop) -> Node:
        body = map_node(y.body, lambda z: update if z == x.update else z)
        return replace(y, variable=step, lower=ZERO, upper=x.steps, body=body)

    kernel = replace(kernel, body=replace_loop(kernel.body, loop, steps))
    split = Split(loop, (("tile", None), ("pack", index(x.term.steps))), "zero")
    return Ahead(kernel, tuple(tops), (*found.splits, split))


def _in_front(name: str, copies: tuple[Loop, ...], nest: Node) -> Node:
    return allocated(name, block(*copies, nest))


def _rows(nest: Nest, side: _Side) -> list[slice]:
    """Dimensions that are one in a copy: those of terms, so that a sum of all runs on in it."""
    found, band = list[slice](), {*nest.names}
    for k, a in enumerate(side.kept):
        is_term = not a.subscript.variables() & band
        if is_term and k and not side.kept[k - 1].subscript.variables() & band:
            found[-1] = slice(found[-1].start, k + 1)
        else:
            found.append(slice(k, k + 1))
    return found


def _flat(at: Places, shape: Places, rows: list[slice]) -> Places:
    def one(r: slice) -> Index:
        total = ZERO
        for i, n in zip(at[r], shape[r], strict=True):
            total = total * n + i
        return total

    return tuple(map(one, rows))


def _copies(
    nest: Nest, x: _WindowSum, side: _Side, name: str, rest: bool, names: Names
) -> Iterator[Loop]:
    """All full packs of the copy, or the last one, if channels are left."""
    channels, size = extent(x.channels), x.term.steps
    n = floordiv(channels, size)
    first, end = (n, x.steps) if rest else (ZERO, n)
    if first == end:
        return
    shape = tuple(x.steps if x.moves(a) else a.n for a in side.kept)
    fresh = [names.fresh("u") for _ in side.kept]
    ranges = [(first, end) if x.moves(a) else (ZERO, a.n) for a in side.kept]
    loops = [Loop(v, *r, block(), "serial", "parallel") for v, r in zip(fresh, ranges, strict=True)]
    places = tuple(
        a.low + var(loops[side.kept.index(a)].variable) if a in side.kept else a.low
        for a in side.axes
    )
    loops = joined(nest.buffers[side.read.tensor], places, loops)
    left_over = {y.variable for y in loops}
    variables = [var(v) if v in left_over else ZERO for v in fresh]
    at = {id(a): v for a, v in zip(side.kept, variables, strict=True)}

    def element(k: int) -> Any:
        last = n * size + minimum(index(k), channels - n * size - 1)
        channel = {id(a): last if rest else at[id(a)] + n * k for a in side.kept if x.moves(a)}
        return side.element(tuple({**at, **channel}.get(id(a), ZERO) + a.low for a in side.axes))

    dtype = dtype_of(side.value)
    zero = Const(0.0 if dtype.is_float else 0, dtype)
    left = channels - n * size if rest else index(size)
    most = size - rest  # with as many channels left there were another full pack
    values = (_where(_exists(left, k, most), element(k), zero) for k in range(size))
    node: Node = Store(
        name, _flat(tuple(variables), shape, _rows(nest, side)), pack(tuple(values)), name
    )
    for y in reversed(loops):
        node = replace(y, body=node)
    assert isinstance(node, Loop)
    yield node


def _exists(left: Index, k: int, most: int) -> Condition:
    return FALSE if k >= most else ge(left, k + 1) if k else TRUE


def _where(condition: Condition, value: Any, zero: Const) -> Any:
    if condition in (TRUE, FALSE):
        return value if condition == TRUE else zero
    held: Any = Holds(condition)
    return Select(held, value, zero, zero.dtype, eager=True)
