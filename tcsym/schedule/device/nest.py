"""A parallel loop -> the nest that becomes a grid."""

from __future__ import annotations

from msgspec import Struct

from tcsym.index.expr import var
from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.loops import loops_in


class Nest(Struct, frozen=True):
    """A parallel loop of the host, and the perfect chain of rectangular loops from it."""

    kernel: Kernel
    chain: tuple[Loop, ...]

    @property
    def top(self) -> Loop:
        return self.chain[0]

    @property
    def body(self) -> Node:
        return self.chain[-1].body

    @property
    def steps(self) -> Loop | None:
        """The loop in order, if one is the last of the chain (`through_steps`)."""
        return None if self.chain[-1].order == "parallel" else self.chain[-1]

    @property
    def rows(self) -> tuple[Loop, ...]:
        """The loops of the chain that are parallel."""
        return self.chain if self.steps is None else self.chain[:-1]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(x.variable for x in self.chain)


def nest_of(kernel: Kernel, top: Loop) -> Nest:
    """The loops from `top` whose bounds do not move with each other."""
    chain, node = [top], top.body
    while isinstance(node, Loop) and node.order == "parallel":
        around = {x.variable for x in chain}
        if (node.lower.variables() | node.upper.variables()) & around:
            break
        chain.append(node)
        node = node.body
    return Nest(kernel, tuple(chain))


def through_steps(nest: Nest) -> Nest:
    """A loop in order that is all that rows do as the last of the chain: the body is of a step."""
    x = nest.body
    if nest.steps is not None or not isinstance(x, Loop) or not x.is_steps or x.at is not None:
        return nest
    is_plain = (x.lower.variables() | x.upper.variables()) <= {*nest.kernel.sizes}
    return Nest(nest.kernel, (*nest.chain, x)) if is_plain else nest


def is_own(nest: Nest, buffer: str) -> bool:
    """A scalar of the row, with dimensions of nothing but the loops that it is private to."""
    b = nest.kernel.buffer(buffer)
    if b.space == "argument" or not b.private >= {*nest.variables}:
        return False
    return len(b.shape) <= len(b.private - {x.variable for x in loops_in(nest.body)})


def is_of_points(nest: Nest, buffer: str, *sides: str) -> bool:
    """A temporary of which each iteration has one element, by `sides` among the nest's loops.

    Other subscripts are those loops, or what no loop of the nest moves: a step around it.
    """
    b, plain = nest.kernel.buffer(buffer), {var(v) for v in nest.variables}
    uses = [a.subscripts for a in accesses(nest.body) if a.buffer == buffer]
    if b.space != "arena" or not b.private >= {*nest.variables} or not uses:
        return False
    moving = {*nest.variables, *(x.variable for x in loops_in(nest.body))}
    by_points = all({var(v) for v in sides} <= {*subscripts} for subscripts in uses)
    return by_points and all(
        {*column} <= plain or (len({*column}) == 1 and not subscript_variables(column) & moving)
        for column in zip(*uses)
    )
