# SPDX-License-Identifier: Apache-2.0
"""Windows over short numbers whose channels lie apart -> over copies with channels side by side.

    Y(n,o,y,x) += float(X(n,c,y+i,x+j)) * float(F(o,c,i,j))                          c < C
->  Y(n,o,y,x) += dot(X'(n,q,y+i,x+j), F'(o,q,i,j))                                  q < (C+1)/2
    X'(n,q,u,v) = pack(X(n,q,u,v), X(n,q+C/2,u,v))      F'(o,q,i,j) likewise

An element of an image is read by as many terms as there are output channels and points of a window,
so that copies are cheap; the nest is then one over 32-bit elements, of a half or a quarter of the
channels, and gets the schedules of any other. Channels far apart share a step, as copies then run
along memory on both sides. What is left of them is the last step, filled up with zeros on both
sides, which add nothing. What a term owes is the weights' sum, added once to each element.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Cast, Const, Expr, Read, Select
from tcsym.index.expr import (
    FALSE,
    TRUE,
    ZERO,
    Condition,
    Index,
    floordiv,
    ge,
    index,
    minimum,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Buffer, Holds, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.packed import available, dot, pack
from tcsym.ir.traverse import map_node, walk
from tcsym.mapping.dot_terms import Owed
from tcsym.schedule.analysis.access import (
    accesses,
    subscript_variables,
    value_variables,
)
from tcsym.schedule.analysis.band import band_of, reductions
from tcsym.schedule.analysis.loops import (
    find_loop,
    loops_around,
    loops_in,
    outermost_loops,
    replace_loop,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.operands import widened_terms
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.fuse_reductions import fuse_reductions
from tcsym.schedule.stage.window_sums import Side, WindowSum, window_sum
from tcsym.schedule.version.versioning import duplicate
from tcsym.types import DType


class PackedWindows(Struct, frozen=True):
    """`before`: the outermost loops of copies and of sums that are owed, not scheduled yet."""

    kernel: Kernel
    before: tuple[str, ...]


def pack_windows(kernel: Kernel, nest: str, setting: Setting) -> PackedWindows | None:
    """The nest with dot products for terms, if its windows can have them; its loops keep names."""
    have = available(setting.machine)
    if not setting.options.vectorize or not have:
        return None
    kernel, before = widened_terms(kernel, nest), list[str]()
    band = band_of(find_loop(kernel.body, nest))
    if not band.loops or any(isinstance(x, Branch) for x, _ in walk(band.body)):
        return None
    for x, around in reductions(band.body):
        found = window_sum(kernel, nest, band, x, around, have)
        if found is not None:
            kernel = _packed(kernel, nest, found, setting.names, before)
    return PackedWindows(kernel, tuple(before)) if before else None


def _packed(kernel: Kernel, nest: str, x: WindowSum, names: Names, before: list[str]) -> Kernel:
    """before: gets the outermost loops of what is put in front of the nest."""
    step, new = names.fresh(x.channels.variable), list[Expr]()
    for side in x.sides:
        name = names.fresh(f"{side.read.tensor}_packed")
        shape = tuple(x.steps if x.moves(a) else a.n for a in side.kept)
        copy = block(*(_copy(x, side, name, rest, names) for rest in (False, True)))
        buffer = Buffer(name, DType.INT32, shape, "arena")
        kernel = with_filled(kernel, nest, buffer, copy, names, before)
        at = (var(step) if x.moves(a) else a.subscript - a.low for a in side.kept)
        new.append(Read(name, tuple(at), DType.INT32))
    for y in x.term.owed:
        kernel = _with_owed(kernel, nest, x, y, names, before)
    update = replace(x.update, value=dot(x.term.function, new[0], new[1]))

    def steps(loop: Loop) -> Node:
        body = map_node(loop.body, lambda y: update if y == x.update else y)
        return replace(loop, variable=step, lower=ZERO, upper=x.steps, body=body)

    return replace(kernel, body=replace_loop(kernel.body, x.channels.variable, steps))


def _copy(x: WindowSum, side: Side, name: str, rest: bool, names: Names) -> Node | None:
    """All full steps of the copy, or the last one."""
    channels = extent(x.channels)
    n = floordiv(channels, x.term.steps)
    first, end = (n, x.steps) if rest else (ZERO, n)
    if first == end:
        return None
    variables = [names.fresh("u") for _ in side.kept]
    at = {id(a): var(v) for a, v in zip(side.kept, variables)}

    def element(k: int) -> Expr:
        last = n * x.term.steps + minimum(index(k), channels - n * x.term.steps - 1)
        channel = {id(a): last if rest else at[id(a)] + n * k for a in side.kept if x.moves(a)}
        return side.element(tuple({**at, **channel}.get(id(a), ZERO) + a.low for a in side.axes))

    zero = Const(0.0 if side.dtype.is_float else 0, side.dtype)
    left = channels - n * x.term.steps if rest else index(x.term.steps)
    most = x.term.steps - rest  # with as many channels left there were another full step
    values = (_where(_exists(left, k, most), element(k), zero) for k in range(x.term.steps))
    node: Node = Store(name, tuple(map(var, variables)), pack(tuple(values)), name)
    for a, v in reversed(list(zip(side.kept, variables))):
        lower, upper = (first, end) if x.moves(a) else (ZERO, a.n)
        node = Loop(v, lower, upper, node, "serial", "parallel")
    return node


def _exists(left: Index, k: int, most: int) -> Condition:
    return FALSE if k >= most else ge(left, k + 1) if k else TRUE


def _where(condition: Condition, value: Expr, zero: Const) -> Expr:
    if condition in (TRUE, FALSE):
        return value if condition == TRUE else zero
    held: Any = Holds(condition)
    return Select(held, value, zero, zero.dtype, eager=True)


def _with_owed(
    kernel: Kernel, nest: str, x: WindowSum, owed: Owed, names: Names, before: list[str]
) -> Kernel:
    """What is owed to each element, added behind the loops of its sum."""
    assert owed.value is not None
    name, used = names.fresh("owed"), value_variables(owed.value)
    dimensions = [y for y in band_of(find_loop(kernel.body, nest)).loops if y.variable in used]
    at = tuple(var(y.variable) - y.lower for y in dimensions)
    node: Node = Update(name, at, "add", Cast(owed.value, DType.INT32), name)
    for y in reversed(x.around):
        node = Loop(y.variable, y.lower, y.upper, node, "serial", "reduction")
    node = block(Store(name, at, Const(0, DType.INT32), name), node)
    for y in reversed(dimensions):
        node = Loop(y.variable, y.lower, y.upper, node, "serial", "parallel")
    value = Binary("mul", owed.factor, Read(name, at, DType.INT32), DType.INT32)
    added = replace(x.update, value=value)
    body = replace_loop(kernel.body, x.around[0].variable, lambda y: block(y, added))
    buffer = Buffer(name, DType.INT32, tuple(map(extent, dimensions)), "arena")
    kernel, node, _ = duplicate(kernel, node, names)
    return with_filled(replace(kernel, body=body), nest, buffer, node, names, before)


def with_filled(
    kernel: Kernel, nest: str, buffer: Buffer, node: Node, names: Names, before: list[str]
) -> Kernel:
    """`node`, which fills the buffer, before the nest and the loops around that leave it as it is.

    Nested loops that run along memory are one; the outermost loops left are added to `before`.
    """
    own, tensors = loops_in(node), {a.buffer for a in accesses(node)}
    moving = frozenset[str]().union(*(subscript_variables(a.subscripts) for a in accesses(node)))
    for y in own:
        moving |= y.lower.variables() | y.upper.variables()
    place = nest
    for loop in reversed(loops_around(kernel.body, nest)):
        written = any(a.written and a.buffer in tensors for a in accesses(loop))
        if loop.variable in moving or written:
            break
        place = loop.variable
    private = frozenset(y.variable for y in loops_around(kernel.body, place))
    kernel = kernel.with_buffer(replace(buffer, private=private))
    part, _ = fuse_reductions(replace(kernel, body=node), frozenset(y.variable for y in own), names)
    before += [y.variable for y in outermost_loops(part.body)]
    body = replace_loop(kernel.body, place, lambda y: block(part.body, y))
    return replace(kernel, body=body)
