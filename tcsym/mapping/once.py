# SPDX-License-Identifier: Apache-2.0
"""Copies for all of a nest (`stage X once`), and where they are made: those of constants when these
are bound, those of operands that the loops around leave as they are in front of these loops."""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec import Struct

from tcsym.index.expr import Condition, Index, all_of, condition_variables
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Allocate, Block, Kernel, Loop, Node, block
from tcsym.ir.traverse import walk
from tcsym.mapping.nest import Nest
from tcsym.mapping.tree import accessed, variables_of
from tcsym.schedule.analysis.loops import conditions_around, loops_around, outermost_loop


class Copies(Struct, frozen=True):
    """Nodes that fill copies in front of a nest: when operands are bound, or when a call comes to
    the loops around it."""

    bound: tuple[Node, ...] = ()
    before: tuple[Node, ...] = ()

    @property
    def filled(self) -> tuple[str, ...]:
        """The copies of a call."""
        return tuple(dict.fromkeys(_written(block(*self.before))))

    @property
    def free(self) -> frozenset[str]:
        """The copies that have no place inside of the nest."""
        return frozenset(_written(block(*self.bound, *self.before)))


def still(kernel: Kernel, nest: Nest) -> frozenset[str]:
    """Operands of a nest in other loops that these neither move nor write; none if it is not known
    in front of them whether the nest runs, and where."""
    top = nest.top.variable
    around, outer = loops_around(kernel.body, top), outermost_loop(kernel.body, top)
    names = {x.variable for x in around}
    moving = {v for x, _ in walk(nest.top) if isinstance(x, Loop) for v in x.end_variables}
    if not around or (condition_variables(where(kernel, nest)) | moving) & names:
        return frozenset()
    written = set(_written(outer))
    return frozenset(b for b, *_ in accessed(nest.top)) - written - moved(nest)


def moved(nest: Nest) -> frozenset[str]:
    """Of which loops around a nest decide what it needs."""
    return frozenset(
        b
        for b, at, _, loops in accessed(nest.top)
        if nest.around & variables_of(at).union(*(x.end_variables for x in loops))
    )


def where(kernel: Kernel, nest: Nest) -> Condition:
    """Conditions between the outermost loop around a nest and the nest."""
    outer = outermost_loop(kernel.body, nest.top.variable)
    return all_of(conditions_around(outer, nest.top.variable))


def times(kernel: Kernel, nest: Nest) -> Index:
    """How often the loops around a nest run it, as far as sizes tell."""
    sizes, around = frozenset(kernel.sizes), loops_around(kernel.body, nest.top.variable)
    return product_of(n for n in map(extent, around) if n.variables() <= sizes)


def apart(
    node: Node, once: tuple[str, ...], bound: Container[str], kept: Container[str]
) -> tuple[Node, Copies]:
    """The node without those copies that are not made with it. once: the operands of all, the first
    of the outermost one; bound: those that are constants; kept: those that loops around leave."""
    if not once:
        return node, Copies()
    assert isinstance(node, Allocate)
    (name,), parts = node.buffers, node.body.body if isinstance(node.body, Block) else ()
    filling = [k for k, x in enumerate(parts) if name in _written(x)]
    copies = tuple(parts[k] for k in filling)
    rest = block(*(x for k, x in enumerate(parts) if k not in filling))
    inner, others = apart(rest, once[1:], bound, kept)
    if once[0] in bound:
        return inner, Copies((*copies, *others.bound), others.before)
    if once[0] in kept:
        return inner, Copies(others.bound, (*copies, *others.before))
    return Allocate(node.buffers, block(*copies, inner)), others


def _written(node: Node) -> Iterator[str]:
    return (b for b, _, is_written, _ in accessed(node) if is_written)
