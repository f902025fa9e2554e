# SPDX-License-Identifier: Apache-2.0
"""Whether, and how well, a loop can run in the lanes of a vector."""

from __future__ import annotations

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Compare, Read
from tcsym.index.expr import ONE, ZERO, Index
from tcsym.index.linear import linear_coefficient
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Update, Value, Verify, value_dtype
from tcsym.ir.traverse import subvalues, value_children, walk
from tcsym.schedule.analysis.access import (
    Access,
    Subscripts,
    accesses,
    is_shared,
    offset_stride,
    stride,
    subscript_variables,
)
from tcsym.schedule.analysis.loops import statements_in
from tcsym.target.machine import Machine
from tcsym.trees import preorder
from tcsym.types import DType


def vector_refusal(kernel: Kernel, node: Node, variable: str) -> str | None:
    """Why the statements of `node` cannot run for many values of `variable` at once, or None.

    Contract: the loop over `variable` is parallel or a reduction.
    """
    for x, _ in statements_in(node):
        reason = _statement_refusal(kernel, x, variable)
        if reason:
            return reason
    return None


def _statement_refusal(kernel: Kernel, x: Node, variable: str) -> str | None:
    if not isinstance(x, Store | Update):
        return None
    moves = _moves(kernel.buffer(x.buffer), x.subscripts, variable)
    if moves is None:
        return "a store that does not move evenly"
    if not moves and isinstance(x, Store):
        return "a store to one element"
    if not moves and not _is_reducible(kernel.buffer(x.buffer).dtype):
        return "a reduction of an unusual type"
    return None


def _is_reducible(dtype: DType) -> bool:
    return dtype.accumulator is dtype or dtype.is_float


def _moves(b: Buffer, subscripts: Subscripts, variable: str) -> bool | None:
    """True if a subscript has a fixed step other than 0, or all together have one of 1, as of two
    loops that are one; False if none uses `variable`."""
    moves = False
    for s in subscripts:
        c = linear_coefficient(s, variable) if isinstance(s, Index) else None
        if c is None:
            return True if offset_stride(b, subscripts, variable) == ONE else None
        moves = moves or bool(c.as_int())
        if c != ZERO and c.as_int() is None:
            return None
    return moves


def widest_bits(kernel: Kernel, node: Node) -> int:
    """Bits of the widest element that the statements of `node` compute with."""
    bits = 8
    for x, _ in statements_in(node):
        if not isinstance(x, Verify):
            bits = max(bits, _computed_bits(kernel.buffer(x.buffer).dtype))
        bits = max(bits, *(_value_bits(v) for v in _computed(x.value)))
    return bits


def _computed(v: Value) -> tuple[Value, ...]:
    """The values of `v` outside subscripts and what is a mask of lanes at once."""
    return tuple(preorder(v, _computed_parts))


def _computed_parts(v: Value) -> tuple[Value, ...]:
    is_mask = isinstance(v, Compare) and as_condition(v) is not None
    return () if is_mask or isinstance(v, Read) else value_children(v)


def _value_bits(v: Value) -> int:
    return _computed_bits(value_dtype(v))


def _computed_bits(dtype: DType) -> int:
    return dtype.accumulator.bits


def can_mask(kernel: Kernel, node: Node, machine: Machine, lanes: str | None = None) -> bool:
    """Masked loads and stores are single instructions for every element of `node`.

    lanes: the loop in the lanes, if known: what does not move with it is loaded without a mask.
    """
    moving = (a for a in accesses(node) if lanes is None or lanes in _used(a))
    return machine.has_masks or all(kernel.buffer(a.buffer).dtype.bits >= 32 for a in moving)


def _used(a: Access) -> frozenset[str]:
    return subscript_variables(a.subscripts)


def access_cost(kernel: Kernel, node: Node, variable: str | None, lanes: int) -> float:
    """Relative time of one point of `node`'s statements with `variable` in the lanes."""
    total = 0.0
    for x, _ in walk(node):
        if not isinstance(x, Store | Update | Verify):
            continue
        total += sum(0.5 for _ in subvalues(x.value)) / lanes
        for a in accesses(x):
            step = ONE if variable is None else _step(kernel, a, variable, lanes)
            total += _one_access(step, a.written, lanes)
    return total


def _step(kernel: Kernel, a: Access, variable: str, lanes: int) -> Index | None:
    b = kernel.buffer(a.buffer)
    if b.space != "argument" and variable in b.private:
        return ONE  # will be a register or a row of its own
    step = stride(b, a.subscripts, variable)
    if step is None:
        return (
            ONE
            if is_shared(b, a.subscripts, variable, lanes)
            else offset_stride(b, a.subscripts, variable)
        )
    return step


def _one_access(step: Index | None, written: bool, lanes: int) -> float:
    """A vector, a broadcast, or an element a lane, which costs less within a cache line."""
    if step == ONE:
        return 1 / lanes
    if step == ZERO:
        return 0.25 / lanes
    if step is not None and step.as_int() == 2 and not written:
        return 3 / lanes  # two loads and a shuffle
    near = step is not None and abs(step.as_int() or 64) <= 8
    return (1.5 if written else 1.0) * (0.6 if near else 1.0)


def is_short(loop: Loop, lanes: int) -> bool:
    """A constant extent that fills less than half the lanes."""
    n = (loop.upper - loop.lower).as_int()
    return n is not None and 2 * n <= lanes
