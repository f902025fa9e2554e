# SPDX-License-Identifier: Apache-2.0
"""Walks over trees from stacks of their own: depth costs no frames of Python.

Chains of operators are as long as a text lets them be, and Python's limit of nested calls belongs
to all threads of the process. `below` gives the parts of a node; none, and a walk goes no deeper.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar, cast

Node = TypeVar("Node")
Value = TypeVar("Value")


def preorder(top: Node, below: Callable[[Node], Sequence[Node]]) -> Iterator[Node]:
    """`top` and all below, parents first, parts from left to right."""
    waiting = [top]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(below(node)))


def leaves(top: Node, below: Callable[[Node], Sequence[Node]]) -> Iterator[Node]:
    """Those below which nothing is, from left to right."""
    waiting = [top]
    while waiting:
        node = waiting.pop()
        parts = below(node)
        if parts:
            waiting.extend(reversed(parts))
        else:
            yield node


def fold(
    top: Node,
    below: Callable[[Node], Sequence[Node]],
    value: Callable[[Node, list[Value]], Value],
) -> Value:
    """What `value` makes of a node and of the values of its parts, from left to right."""
    waiting: list[tuple[Node, int]] = [(top, -1)]  # and how many parts, if those went before
    done: list[Value] = []
    while waiting:
        node, n = waiting.pop()
        if n < 0:
            parts = below(node)
            n = len(parts)
            if n:
                waiting.append((node, n))
                waiting.extend([(x, -1) for x in reversed(parts)])
                continue
        at = len(done) - n
        inside = done[at:]
        del done[at:]
        done.append(value(node, inside))
    return done.pop()


Steps = Generator[Any, Value, Value]


def walked(top: Steps[Value]) -> Value:
    """What a walk returns that yields the walks of which it wants to know what they return."""
    waiting, known = [top], cast(Value, None)  # to start a generator, it is sent None
    while waiting:
        try:
            waiting.append(waiting[-1].send(known))
            known = cast(Value, None)
        except StopIteration as end:
            waiting.pop()
            known = end.value
    return known
