# SPDX-License-Identifier: Apache-2.0
"""A factor of a nest's sums -> a dense copy of it, made before the nest, that the nest reads."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Expr, Read, dtype_of
from tcsym.index.expr import Index, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import loads, map_node, map_value, substitute_value
from tcsym.schedule.analysis.loops import loops_around, replace_loop
from tcsym.schedule.analysis.names import Names


def copy_operand(
    kernel: Kernel,
    nest: str,
    value: Expr,
    loops: tuple[Loop, ...],
    order: tuple[Loop, ...],
    name: str,
    names: Names,
) -> tuple[Kernel, str]:
    """The nest reads `name[loops]` in the place of `value`; and the outermost loop of the copy.

    loops: all that move the value, in the order of the copy's dimensions; order: as its loops run.
    Contract: the bounds of the loops depend on sizes only, and the nest does not write the value.
    """
    private = frozenset(x.variable for x in loops_around(kernel.body, nest))
    copy = Buffer(name, dtype_of(value), tuple(map(extent, loops)), "arena", private=private)
    new = {x.variable: names.fresh(x.variable) for x in loops}
    moved = substitute_value(value, {old: var(v) for old, v in new.items()})
    at = tuple(var(new[x.variable]) - x.lower for x in loops)
    node: Node = Store(name, at, moved, name)
    for x in reversed(order):
        node = Loop(new[x.variable], x.lower, x.upper, node, "serial", "parallel")
    body = replace_loop(
        kernel.body, nest, lambda x: block(node, _redirected(x, value, loops, name))
    )
    return replace(kernel, body=body).with_buffer(copy), new[order[0].variable]


def _redirected(nest: Loop, value: Expr, loops: tuple[Loop, ...], name: str) -> Node:
    at: tuple[Index, ...] = tuple(var(x.variable) - x.lower for x in loops)
    new = Read(name, at, dtype_of(value))
    tensors = {r.tensor for r in loads(value)}

    def on_value(v: Value) -> Value:
        return new if v == value else v

    def statement(s: Node) -> Node:
        if not isinstance(s, Store | Update) or not any(
            r.tensor in tensors for r in loads(s.value)
        ):
            return s
        return replace(s, value=map_value(s.value, on_value, lambda i: i))

    return map_node(nest, statement)


def depend_on_sizes(kernel: Kernel, loops: tuple[Loop, ...]) -> bool:
    """No bound of the loops moves with another loop."""
    used = frozenset[str]().union(*(x.lower.variables() | x.upper.variables() for x in loops))
    return used <= frozenset(kernel.sizes)
