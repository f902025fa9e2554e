# SPDX-License-Identifier: Apache-2.0
"""Schedule tree: the order of a program's instances as loops, sequences and leaves.

A loop is one member of a band: for each statement below it an affine function of that statement's
iterators (for own trees simply one of them). Each statement stands at exactly one leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import TRUE, Condition, Index
from tcsym.index.text import condition_text
from tcsym.ir.loops import LoopOrder


class Member(Struct, frozen=True):
    """At this loop, `statement` runs its instance x in the iteration `value`(x)."""

    statement: str
    value: Index


class TreeLoop(Struct, frozen=True, dict=True):
    """Iterations in ascending order; `variable` is unique in the tree.

    lower, upper: bounds over sizes and variables of outer loops, None where only isl can tell them.
    pipeline: that it is one of (`pipelines`), 0 for none.
    """

    variable: str
    lower: Index | None
    upper: Index | None
    members: tuple[Member, ...]
    body: Tree
    order: LoopOrder = "sequential"
    pipeline: int = 0

    def value(self, statement: str) -> Index:
        values: dict[str, Index] | None = self.__dict__.get("values")
        if values is None:
            values = self.__dict__["values"] = {m.statement: m.value for m in self.members}
        return values[statement]

    def __str__(self) -> str:
        return tree_text(self)


class Sequence(Struct, frozen=True):
    children: tuple[Tree, ...]

    def __str__(self) -> str:
        return tree_text(self)


class Leaf(Struct, frozen=True):
    """`condition`: the guard of the statement, over its own iterators (for readers of the tree)."""

    statement: str
    condition: Condition = TRUE

    def __str__(self) -> str:
        return tree_text(self)


Tree = TreeLoop | Sequence | Leaf


def sequence(children: list[Tree] | tuple[Tree, ...]) -> Tree:
    """Children in order, without nested sequences; a single child stands for itself."""
    flat: list[Tree] = []
    for c in children:
        flat.extend(c.children if isinstance(c, Sequence) else (c,))
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def leaves(t: Tree, loops: tuple[TreeLoop, ...] = ()) -> Iterator[tuple[str, tuple[TreeLoop, ...]]]:
    """Statements in the order of the text of the tree, with their loops, outermost first."""
    match t:
        case Leaf(name, _):
            yield name, loops
        case Sequence(children):
            for c in children:
                yield from leaves(c, loops)
        case TreeLoop():
            yield from leaves(t.body, (*loops, t))
        case _:
            assert_never(t)


def tree_loops(t: Tree) -> Iterator[TreeLoop]:
    match t:
        case Leaf():
            return
        case Sequence(children):
            for c in children:
                yield from tree_loops(c)
        case TreeLoop():
            yield t
            yield from tree_loops(t.body)
        case _:
            assert_never(t)


def with_pipelines(t: Tree, pipelines: Mapping[str, int]) -> Tree:
    """The tree with the pipelines of its outermost loops, by variable."""
    match t:
        case TreeLoop():
            return replace(t, pipeline=pipelines.get(t.variable, 0))
        case Sequence(children):
            return Sequence(tuple(with_pipelines(c, pipelines) for c in children))
        case _:
            return t


def with_orders(t: Tree, orders: Mapping[str, LoopOrder]) -> Tree:
    """The tree with the order of each loop variable set."""
    match t:
        case Leaf():
            return t
        case Sequence(children):
            return Sequence(tuple(with_orders(c, orders) for c in children))
        case TreeLoop():
            order = orders.get(t.variable, "sequential")
            return replace(t, order=order, body=with_orders(t.body, orders))
        case _:
            assert_never(t)


def tree_text(t: Tree) -> str:
    """A line for each loop (order first, iterators of other names behind) and statement."""
    return "\n".join(_lines(t, ""))


def _lines(t: Tree, indent: str) -> Iterator[str]:
    match t:
        case Leaf(name, condition):
            guard = "" if condition == TRUE else f" if {condition_text(condition)}"
            yield f"{indent}{name}{guard}"
        case Sequence(children):
            for c in children:
                yield from _lines(c, indent)
        case TreeLoop():
            bounds = "" if t.lower is None or t.upper is None else f" = {t.lower}:{t.upper}"
            steps = f"  (steps of pipeline {t.pipeline})" if t.pipeline else ""
            yield f"{indent}{t.order} {t.variable}{bounds}{_members_text(t)}{steps}"
            yield from _lines(t.body, indent + "  ")
        case _:
            assert_never(t)


def _members_text(t: TreeLoop) -> str:
    """Only what differs from the loop variable: `  [S1: j, S2: j]`."""
    other = [f"{m.statement}: {m.value}" for m in t.members if str(m.value) != t.variable]
    return f"  [{', '.join(other)}]" if other else ""


def unique_name(name: str, taken: set[str]) -> str:
    """`name`, or with the first number that makes it another than those `taken`, to which it is
    added."""
    unique, n = name, 1
    while unique in taken:
        unique, n = f"{name}_{n}", n + 1
    taken.add(unique)
    return unique
