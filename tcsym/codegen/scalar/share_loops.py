# SPDX-License-Identifier: Apache-2.0
"""Kernel -> its large loops that are alike as functions, each instead of several loops.

So the tiles of several products, and the packing of their operands, are written, optimised and
assembled once. A function is a module for LLVM, compiled beside the emission of the rest.

A task's loops are cut where several of them stand side by side, as far down as each still contains
loops: a call then costs nothing beside what it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from msgspec import Struct, field

from tcsym.codegen.scalar.alike import LOCAL, Alike, Call, Function
from tcsym.frontend.program import Binary, Cast, Read
from tcsym.ir.device import DeviceNode
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
)
from tcsym.ir.traverse import subvalues, walk

LEAST_STATEMENTS = 8  # vector statements in the code; fewer are not worth a function


class SharedLoops(Struct, frozen=True):
    """Functions, the largest first, and the calls of them by the identity of the loop."""

    functions: tuple[Function, ...] = ()
    calls: dict[int, Call] = field(default_factory=dict)


def share_loops(kernel: Kernel) -> SharedLoops:
    """A function for large loops that are alike; a loop that is like no other stays in place."""
    found: dict[tuple[object, ...], list[tuple[Loop, Alike, Node]]] = {}
    buffers = {b.name: b for b in kernel.buffers}
    for loop in _of_equal_shape(_candidates(kernel.body, buffers)):
        alike = Alike(kernel, buffers, loop)
        body = alike.node(loop)
        key = (body, tuple(alike.buffers.values()), tuple(alike.outer.values()))
        found.setdefault(key, []).append((loop, alike, body))
    functions: list[Function] = []
    calls: dict[int, Call] = {}
    for group in found.values():
        if len(group) > 1:
            _, first, body = group[0]
            functions.append(first.function(f"part{len(functions)}", body))
            calls |= {id(loop): alike.call(functions[-1].name) for loop, alike, _ in group}
    functions.sort(key=lambda f: -_statements(f.kernel.body))
    return SharedLoops(tuple(functions), calls)


# ---- which loops


def _is_task(node: Node) -> bool:
    return isinstance(node, Loop) and node.kind == "parallel"


def _candidates(node: Node, buffers: dict[str, Buffer]) -> Iterator[Loop]:
    """Of each task, loops that stand side by side, or else the outermost one."""
    for task, around in walk(node):
        if _is_task(task) and not any(map(_is_task, around)):
            yield from _side_by_side(task, buffers) or _outermost(task, buffers)


def _outermost(task: Node, buffers: dict[str, Buffer]) -> list[Loop]:
    match task:
        case Loop() if task.kind == "parallel":
            return _outermost(task.body, buffers)
        case Allocate(_, body):
            return _outermost(body, buffers)
        case Loop(kind="serial") if _statements(task) >= LEAST_STATEMENTS and _can_move(
            task, buffers
        ):
            return [task]
        case _:
            return []


def _of_equal_shape(loops: Iterable[Loop]) -> list[Loop]:
    """Those that may be alike: as many of the same nodes in the same order as another has."""
    shapes: dict[tuple[object, ...], list[Loop]] = {}
    for loop in loops:
        shape = tuple([x.kind if isinstance(x, Loop) else type(x) for x, _ in walk(loop)])
        shapes.setdefault(shape, []).append(loop)
    return [x for group in shapes.values() if len(group) > 1 for x in group]


def _side_by_side(node: Node, buffers: dict[str, Buffer]) -> list[Loop]:
    """Loops of a task that are to be functions: the smallest of those beside others."""
    match node:
        case Loop():
            return _side_by_side(node.body, buffers)
        case Allocate(_, body):
            return _side_by_side(body, buffers)
        case Block(body) if sum(isinstance(x, Loop | Branch) for x in body) > 1:
            return [y for x in body for y in _in_sequence(x, buffers)]
        case Branch(_, a, b):
            return [y for x in (a, b) if x is not None for y in _side_by_side(x, buffers)]
        case _:
            return []


def _in_sequence(node: Node, buffers: dict[str, Buffer]) -> list[Loop]:
    inner = _side_by_side(node, buffers)
    if inner or not isinstance(node, Loop) or node.kind != "serial":
        return inner
    deep = any(isinstance(x, Loop) and x.kind == "serial" for x, _ in walk(node.body))
    large = deep and _statements(node) >= LEAST_STATEMENTS
    return [node] if large and _can_move(node, buffers) else []


def _statements(n: Node) -> int:
    """How many statements the code of `n` has."""
    match n:
        case Loop():
            copies = (n.upper.as_int() or 1) if n.kind == "unrolled" else n.unroll
            return copies * _statements(n.body)
        case Block(body):
            return sum(map(_statements, body))
        case Branch(_, a, b):
            return _statements(a) + (0 if b is None else _statements(b))
        case Allocate(_, body):
            return _statements(body)
        case Store() | Update() | Verify() | DeviceNode():
            return 1
        case TransposeBlock():
            return 2 * n.block
        case _:
            assert_never(n)


def _can_move(loop: Loop, buffers: dict[str, Buffer]) -> bool:
    """No faults, no scratch memory of its own, and registers that nothing else uses."""
    own = {b for n, _ in walk(loop) if isinstance(n, Allocate) for b in n.buffers}
    if any(buffers[b].space not in LOCAL for b in own):
        return False
    for n, _ in walk(loop):
        match n:
            case Verify() | DeviceNode():
                return False
            case Loop() if n.at is not None or n.value is not None:
                return False
            case Store() | Update():
                values = list(subvalues(n.value))
                names = [n.buffer, *(x.tensor for x in values if isinstance(x, Read))]
                if any(map(_may_fail, values)):
                    return False
            case TransposeBlock():
                names = [n.target, n.source]
            case _:
                names = []
        for b in (buffers[name] for name in names):
            if b.space in LOCAL and b.name not in own and loop.variable not in b.private:
                return False
    return True


def _may_fail(v: Value) -> bool:
    if isinstance(v, Read):
        return any(v.checked) or v.unwritten is not None
    return isinstance(v, Binary | Cast) and v.exact
