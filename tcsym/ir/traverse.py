# SPDX-License-Identifier: Apache-2.0
"""Nodes and values of the loop IR -> their parts, or the same with other parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_
from typing import Any, assert_never, cast

from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
    is_position_name,
    same_index,
    with_children,
)
from tcsym.index.expr import Index, condition_variables
from tcsym.index.values import Substitution, Values, map_condition
from tcsym.ir.device import BeginCopy, DeviceNode, LoadMatrices, MatrixMultiply, OnDevice
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Holds,
    HorizontalReduce,
    Loop,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    block,
)
from tcsym.trees import fold, preorder

# What does not change is returned as it is: most of a kernel stays the same in most passes.


def map_value(v: Value, f: Callable[[Value], Value], on_index: Callable[[Index], Index]) -> Value:
    """Rebuild bottom-up: `on_index` on every index expression, then `f` on every value."""
    return fold(v, value_children, lambda x, parts: f(_with_children(x, parts, on_index)))


def _with_children(v: Value, parts: list[Any], on_index: Callable[[Index], Index]) -> Value:
    match v:
        case Holds(c):
            return Holds(map_condition(c, on_index))
        case HorizontalReduce() | Shuffle():
            return v if parts[0] is v.value else replace(v, value=parts[0])
        case Read(unwritten=condition) if condition is not None:
            made, unwritten = with_children(v, parts, on_index), map_condition(condition, on_index)
            return made if unwritten == condition else replace(made, unwritten=unwritten)
        case _:
            return with_children(v, parts, on_index)


def same(x: Value) -> Value:
    return x


def substitute_value(v: Value, values: Values) -> Value:
    return map_value(v, same, Substitution(values).index)


def map_node(
    n: Node,
    on_node: Callable[[Node], Node | None] | None = None,
    on_value: Callable[[Value], Value] = same,
    on_index: Callable[[Index], Index] | None = None,
) -> Node:
    """Rebuild bottom-up; a node for which `on_node` gives None becomes an empty block."""
    ix = on_index or same_index
    leaves_values = on_value is same and on_index is None

    def value(v: Value) -> Value:
        return v if leaves_values else map_value(v, on_value, ix)

    def go(x: Node) -> Node:
        y = _with_parts(x, go, value, ix)
        if on_node is None:
            return y
        z = on_node(y)
        return Block(()) if z is None else z

    return go(n)


def map_inner(n: Node, f: Callable[[Node], Node]) -> Node:
    """`n` with `f` of each node right inside of it."""
    match n:
        case Block(body):
            return block(*map(f, body))
        case Branch(c, a, b):
            return Branch(c, f(a), None if b is None else f(b))
        case Loop() | Allocate():
            return replace(n, body=f(n.body))
        case _:
            return n


def _with_parts(
    n: Node,
    go: Callable[[Node], Node],
    value: Callable[[Value], Value],
    ix: Callable[[Index], Index],
) -> Node:
    """`n` with its child nodes, values and indices replaced."""

    def subs(s: tuple[Index, ...]) -> tuple[Index, ...]:
        new = s if ix is same_index else tuple(map(ix, s))
        return s if all(map(is_, new, s)) else new

    match n:
        case Block(body):
            parts = tuple(map(go, body))
            flat = len(parts) != 1 and not any(isinstance(x, Block) for x in parts)
            return n if flat and all(map(is_, parts, body)) else block(*parts)
        case Store() | Update():
            places, v = subs(n.subscripts), value(n.value)
            if places is n.subscripts and v is n.value:
                return n
            return replace(n, subscripts=places, value=v)
        case Verify():
            v = value(n.value)
            return n if v is n.value else replace(n, value=v)
        case Loop():
            return _with_loop_parts(n, go(n.body), value, ix)
        case Branch():
            return _with_branch_parts(n, go, ix)
        case Allocate(b, body):
            inner = go(body)
            return n if inner is body else Allocate(b, inner)
        case TransposeBlock():
            target, source = subs(n.target_subscripts), subs(n.source_subscripts)
            moved = replace(n, target_subscripts=target, source_subscripts=source)
            return replace(moved, rows=ix(n.rows), columns=ix(n.columns))
        case DeviceNode():
            return n if ix is same_index else _with_device_parts(n, subs, ix)
        case _:
            assert_never(n)


def _with_device_parts(
    n: OnDevice,
    subs: Callable[[tuple[Index, ...]], tuple[Index, ...]],
    ix: Callable[[Index], Index],
) -> OnDevice:
    match n:
        case BeginCopy():
            target, source = subs(n.target_subscripts), subs(n.source_subscripts)
            moved = replace(n, target_subscripts=target, source_subscripts=source)
            return replace(moved, condition=map_condition(n.condition, ix))
        case LoadMatrices():
            target, source = subs(n.target_subscripts), subs(n.source_subscripts)
            return replace(n, target_subscripts=target, source_subscripts=source, lane=ix(n.lane))
        case MatrixMultiply():
            return replace(
                n,
                target_subscripts=subs(n.target_subscripts),
                left_subscripts=subs(n.left_subscripts),
                right_subscripts=subs(n.right_subscripts),
            )
        case _:
            return n


def _with_branch_parts(n: Branch, go: Callable[[Node], Node], ix: Callable[[Index], Index]) -> Node:
    condition = n.condition if ix is same_index else map_condition(n.condition, ix)
    then, orelse = go(n.then), None if n.orelse is None else go(n.orelse)
    unchanged = condition == n.condition and then is n.then and orelse is n.orelse
    return n if unchanged else Branch(condition, then, orelse)


def _with_loop_parts(
    n: Loop, body: Node, value: Callable[[Value], Value], ix: Callable[[Index], Index]
) -> Loop:
    if n.at is not None:
        at = ix(n.at) if isinstance(n.at, Index) else cast(Expr, value(n.at))
        n = n if at is n.at else replace(n, at=at)
    if n.value is not None:
        v = value(n.value)
        n = n if v is n.value else replace(n, value=v)
    if ix is same_index:
        return n if body is n.body else replace(n, body=body)
    lower, upper, work = ix(n.lower), ix(n.upper), ix(n.work)
    mask = None if n.mask is None else ix(n.mask)
    below = None if n.below is None else ix(n.below)
    before = (n.body, n.lower, n.upper, n.work, n.mask, n.below)
    if all(map(is_, (body, lower, upper, work, mask, below), before)):
        return n
    given = {"lower": lower, "upper": upper, "mask": mask, "work": work, "below": below}
    return replace(n, **given, body=body)


def substitute_node(n: Node, values: Values) -> Node:
    return map_node(n, on_index=Substitution(values).index) if values else n


def walk(n: Node, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Node, tuple[Loop, ...]]]:
    """Every node with its enclosing loops, outermost first; parents before children."""
    todo = [(n, loops)]
    while todo:
        item = todo.pop()
        yield item
        n, loops = item
        match n:
            case Block(body):
                todo += [(x, loops) for x in reversed(body)]
            case Store() | Update():
                pass
            case Loop():
                todo.append((n.body, (*loops, n)))
            case Branch(_, a, b):
                todo += [(a, loops)] if b is None else [(b, loops), (a, loops)]
            case Allocate(_, body):
                todo.append((body, loops))
            case Verify() | TransposeBlock() | DeviceNode():
                pass
            case _:
                assert_never(n)


def allocated_in(n: Node) -> frozenset[str]:
    """Buffers that have a place."""
    return frozenset(b for x, _ in walk(n) if isinstance(x, Allocate) for b in x.buffers)


def grids(n: Node) -> Iterator[tuple[Loop, tuple[Loop, ...]]]:
    """The outermost block loops, which a device launches, with the loops of the host around."""
    for x, loops in walk(n):
        if isinstance(x, Loop) and x.kind == "block" and all(y.kind != "block" for y in loops):
            yield x, loops


def thread_extents(n: Node) -> tuple[int, ...]:
    """Of a nest of thread loops, outermost first; () of anything else."""
    extents: list[int] = []
    while isinstance(n, Loop) and n.kind == "thread":
        extents.append(n.upper.as_int() or 0)
        n = n.body
    return tuple(extents)


def block_shape(region: Loop) -> tuple[int, ...]:
    """Extents of the first nest of thread loops, of which shape all are; () if there is none."""
    return next((thread_extents(n) for n, _ in walk(region) if thread_extents(n)), ())


def value_children(v: Value) -> tuple[Value, ...]:
    match v:
        case Const() | IndexValue() | Holds():
            return ()
        case Read(_, subscripts):
            return tuple(s for s in subscripts if not isinstance(s, Index))
        case Cast(x, _) | Unary(_, x, _):
            return (x,)
        case Binary(_, a, b) | Compare(_, a, b):
            return (a, b)
        case Select(c, a, b):
            return (c, a, b)
        case Call(_, args):
            return args
        case HorizontalReduce() | Shuffle():
            return (v.value,)
        case _:
            assert_never(v)


def subvalues(v: Value) -> Iterator[Value]:
    """`v` and every value inside it, parents before children."""
    return preorder(v, value_children)


def value_variables(v: Value) -> frozenset[str]:
    """Loop variables and sizes a value depends on."""
    out: set[str] = set()
    for x in subvalues(v):
        if isinstance(x, IndexValue):
            out |= x.index.variables()
        elif isinstance(x, Holds):
            out |= condition_variables(x.condition)
        elif isinstance(x, Read):
            for s in x.subscripts:
                if isinstance(s, Index):
                    out |= s.variables()
            if x.unwritten is not None:
                out |= condition_variables(x.unwritten)
    return frozenset(v for v in out if not is_position_name(v))


def loads(v: Value) -> tuple[Read, ...]:
    """All loads in `v`, also those inside subscripts."""
    return tuple([x for x in subvalues(v) if isinstance(x, Read)])


def certain_loads(v: Value) -> tuple[Read, ...]:
    """Those that are made whenever `v` is computed; others may lie outside of their buffers."""
    return tuple([x for x in certain_values(v) if isinstance(x, Read)])


def certain_values(v: Value) -> Iterator[Value]:
    """What of `v` is computed whenever it is."""
    return preorder(v, _certain)


def _certain(v: Value) -> tuple[Value, ...]:
    match v:
        case Select(condition) if not v.eager:
            return (condition,)
        case Binary("and" | "or", left):  # which may be all that is looked at
            return (left,)
        case _:
            return value_children(v)


def position_loads(loop: Loop) -> tuple[Read, ...]:
    """The loads that find the one iteration of a loop (`Loop.at`)."""
    return () if loop.at is None or isinstance(loop.at, Index) else loads(loop.at)
