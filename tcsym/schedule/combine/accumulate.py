# SPDX-License-Identifier: Apache-2.0
"""Reductions into memory -> reductions into a private scalar, loaded before and stored after."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Cast, Const, Expr, Read
from tcsym.index.expr import condition_variables
from tcsym.ir.loops import (
    Allocate,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    Verify,
    block,
    value_dtype,
)
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.access import (
    Subscripts,
    are_apart,
    subscript_variables,
)
from tcsym.schedule.analysis.blocks import buffers_in
from tcsym.schedule.analysis.loops import children, loops_in, statements_in
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.touched import nodes_with, rewrite_uses, uses_in
from tcsym.types import DType


def accumulate_privately(kernel: Kernel, names: Names) -> Kernel:
    """Every reduction goes to a scalar around the loops that do not move its target.

    The scalar is a private temporary of the accumulation type, so that later passes make it a
    register, a register tile, or one for each lane. It covers the whole sequence around the loops
    if that starts with a store of the element; else just the loops, with the old value loaded
    before them. Other accesses of the buffer there are of the same element or plainly of another.
    """
    return _Accumulation(kernel, names).run()


class _Accumulation(Struct):
    kernel: Kernel
    names: Names

    def run(self) -> Kernel:
        body = self.visit(self.kernel.body, ())
        return replace(self.kernel, body=body)

    def visit(self, node: Node, around: tuple[Loop, ...]) -> Node:
        match node:
            case Branch(c, a, b):
                return Branch(c, self.visit(a, around), b and self.visit(b, around))
            case Allocate(name, body):
                return Allocate(name, self.visit(body, around))
        out = list(children(node))
        users: dict[str, list[int]] = defaultdict(list)  # of a buffer, all that may touch it
        for k, x in enumerate(out):
            for used in buffers_in(x):
                users[used].append(k)
        for k in range(len(out)):
            for target in _targets(out[k], self.kernel):
                self.promote(out, k, target, users[target.buffer], around)
        return block(*(self.inside(x, around) for x in out))

    def inside(self, x: Node, around: tuple[Loop, ...]) -> Node:
        if isinstance(x, Loop):
            return replace(x, body=self.visit(x.body, (*around, x)))
        return (
            self.visit(x, around) if isinstance(x, Branch | Allocate) else _nested(self, x, around)
        )

    def promote(
        self,
        out: list[Node],
        k: int,
        target: Update,
        users: list[int],
        around: tuple[Loop, ...],
    ) -> None:
        """Let out[k], a loop, or the whole sequence, accumulate in a scalar.

        users: places in the sequence of all that may touch the target's buffer; learns new ones.
        """
        using = [out[j] for j in users]
        life = _start_of_life(using, target)
        if life is None and not isinstance(out[k], Loop):
            return  # a branch: the element may not exist
        if not _is_plain(out[k], target) or _is_verified(using, target):
            return
        source = self.kernel.buffer(target.buffer)
        name = self.names.fresh(f"{target.buffer}_acc")
        private = frozenset(x.variable for x in around)
        scalar = Buffer(name, source.dtype.accumulator, (), "arena", private=private)
        self.kernel = self.kernel.with_buffer(scalar)
        if life is None:
            inner = _redirect(out[k], target, scalar)
            out[k] = block(_load(scalar, source, target), inner, _store(scalar, source, target))
        else:
            for j in users[life:]:
                out[j] = _redirect(out[j], target, scalar)
            users.append(len(out))
            out.append(_store(scalar, source, target))


def _nested(work: _Accumulation, x: Node, around: tuple[Loop, ...]) -> Node:
    """A block made by an earlier promotion: only its loops are left to visit."""
    return block(*(work.inside(y, around) if isinstance(y, Loop) else y for y in children(x)))


def _targets(node: Node, kernel: Kernel) -> tuple[Update, ...]:
    """Updates below loops of `node` of elements that no loop in it moves, one a buffer."""
    if isinstance(node, Branch):
        both = (node.then, *(() if node.orelse is None else (node.orelse,)))
        arms = (t for arm in both for x in children(arm) for t in _targets(x, kernel))
        return tuple({t.buffer: t for t in arms}.values())
    if not isinstance(node, Loop):
        return ()
    found: dict[str, Update] = {}
    for x, around in statements_in(node):
        if not isinstance(x, Update) or subscript_variables(x.subscripts) & {
            y.variable for y in around
        }:
            continue
        if not _is_scalar(kernel.buffer(x.buffer), x) and _is_certain(node, x):
            found.setdefault(x.buffer, x)
    return tuple(found.values())


def _is_scalar(b: Buffer, x: Update) -> bool:
    """A temporary that will shrink to one element where `x` runs, already in its wide type."""
    private = b.space != "argument" and subscript_variables(x.subscripts) <= b.private
    return private and b.dtype == b.dtype.accumulator


def _is_verified(sequence: list[Node], target: Update) -> bool:
    """A read of the element asks for a run-time check, which the scalar could not make."""
    return any(
        r.tensor == target.buffer and (any(r.checked) or r.unwritten is not None)
        for x in sequence
        for s, _ in nodes_with(x, target.buffer)
        if isinstance(s, Store | Update | Verify)
        for r in loads(s.value)
    )


def _is_certain(loop: Loop, x: Update) -> bool:
    """Conditions around `x` inside `loop` depend only on the loops inside."""
    inside = {y.variable for y in loops_in(loop)}
    return all(
        condition_variables(b.condition) <= inside
        for b, _ in nodes_with(loop, x.buffer)
        if isinstance(b, Branch) and any(s == x for s, _ in statements_in(b))
    )


def _is_plain(node: Node, target: Update) -> bool:
    """`node` uses the target's element and plainly different ones of its buffer only."""
    used = (a.subscripts for a, _ in uses_in(node, target.buffer))
    return all(s == target.subscripts or are_apart(s, target.subscripts) for s in used)


def _start_of_life(sequence: list[Node], target: Update) -> int | None:
    """Position of the store that starts the element's life in the sequence, if there is one."""
    for k, x in enumerate(sequence):
        used = [a for a, _ in uses_in(x, target.buffer)]
        if not any(a.subscripts == target.subscripts for a in used) and _is_plain(x, target):
            continue
        if not isinstance(x, Store) or len(used) > 1:
            return None
        return k if all(_is_plain(y, target) for y in sequence[k:]) else None
    return None


def _redirect(node: Node, target: Update, scalar: Buffer) -> Node:
    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update) and _is_element(x.buffer, x.subscripts, target):
            wide = converted(x.value, scalar.dtype)
            return replace(x, buffer=scalar.name, subscripts=(), value=wide)
        return x

    def value(v: Value) -> Value:
        if isinstance(v, Read) and _is_element(v.tensor, v.subscripts, target):
            return converted(Read(scalar.name, (), scalar.dtype), v.dtype)
        return v

    return rewrite_uses(node, target.buffer, lambda n: map_node(n, statement, value))


def _is_element(buffer: str, subscripts: Subscripts, target: Update) -> bool:
    return buffer == target.buffer and subscripts == target.subscripts


def _load(scalar: Buffer, source: Buffer, target: Update) -> Node:
    old = Read(source.name, target.subscripts, source.dtype)
    return Store(scalar.name, (), converted(old, scalar.dtype), target.name)


def _store(scalar: Buffer, source: Buffer, target: Update) -> Node:
    value = converted(Read(scalar.name, (), scalar.dtype), source.dtype)
    return Store(source.name, target.subscripts, value, target.name)


def converted(value: Value, dtype: DType) -> Expr:
    """`value` in another type; a constant stays one."""
    if isinstance(value, Const):
        return Const(value.value, dtype)
    plain: Expr = value  # type: ignore[assignment]
    return plain if value_dtype(value) is dtype else Cast(plain, dtype)
