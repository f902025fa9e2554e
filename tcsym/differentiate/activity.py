# SPDX-License-Identifier: Apache-2.0
"""Which tensors the derivative goes through: they depend on `wrt`, and outputs depend on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from tcsym.differentiate.accumulate import Tensors
from tcsym.differentiate.places import Write, writes
from tcsym.frontend.program import (
    Binary,
    Expr,
    For,
    Read,
    Select,
    children,
    dtype_of,
    statements,
)
from tcsym.trees import preorder

if TYPE_CHECKING:
    from tcsym.differentiate.single import Single


class Activity(Struct, frozen=True):
    """`active`: names. `definitions`: of each tensor, the statements that write it."""

    active: frozenset[str]
    definitions: dict[str, tuple[Write, ...]]

    def home(self, tensor: str, loops: tuple[For, ...]) -> int:
        """How many of the enclosing `loops` also are around a definition of the tensor."""
        depths = [0]
        for w in self.definitions.get(tensor, ()):
            common = 0
            for a, b in zip(w.loops, loops):
                if a is not b:
                    break
                common += 1
            depths.append(common)
        return max(depths)


def activity(single: Single, wrt: frozenset[str], outputs: frozenset[str]) -> Activity:
    definitions: dict[str, tuple[Write, ...]] = {}
    for w in writes(single.items):
        target = w.statement.target
        definitions[target] = (*definitions.get(target, ()), w)
    edges = _edges(single)
    depends = _reached(wrt, edges)
    back: dict[str, set[str]] = {}
    for source, targets in edges.items():
        for target in targets:
            back.setdefault(target, set()).add(source)
    matters = _reached(outputs, back)
    return Activity(frozenset(depends & matters), definitions)


def _edges(single: Single) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for s in statements(single.items):
        if single.tensors[s.target].dtype.is_float:
            for r in smooth_reads(s.value):
                found.setdefault(r.tensor, set()).add(s.target)
    return found


def smooth_reads(e: Expr) -> list[Read]:
    """Reads that the value depends on as a function of real numbers."""
    found = (x for x in preorder(e, _smooth_parts) if isinstance(x, Read))
    return [r for r in found if r.dtype.is_float]


def _smooth_parts(e: Expr) -> tuple[Expr, ...]:
    if not dtype_of(e).is_float:
        return ()
    match e:
        case Read():
            return ()
        case Select(_, a, b, _):
            return a, b
    return children(e)


def certain_reads(e: Expr) -> list[Read]:
    """Reads that are evaluated wherever `e` is."""
    return [x for x in preorder(e, _certain_parts) if isinstance(x, Read)]


def _certain_parts(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Select(c):
            return (c,)
        case Binary("and" | "or", a):
            return (a,)
    return children(e)


def _reached(start: frozenset[str], edges: dict[str, set[str]]) -> set[str]:
    found, todo = set(start), list(start)
    while todo:
        for x in edges.get(todo.pop(), ()):
            if x not in found:
                found.add(x)
                todo.append(x)
    return found


def is_open(name: str, single: Single, active: Activity, tensors: Tensors) -> bool:
    """True if the gradient of a tensor is added up over iterations, or in several pieces."""
    found = active.definitions[name]
    (first, *others) = found
    if others:
        return True
    if not first.loops:
        return not all(not first.is_fixed(d) for d in range(len(tensors[name].shape)))
    if tensors[name].role == "output":
        return True
    fixed = {d: e for d, e in enumerate(first.statement.subscripts) if first.is_fixed(d)}
    for w in writes(single.items):
        for r in smooth_reads(w.statement.value):
            if r.tensor != name:
                continue
            same_loops = len(w.loops) >= len(first.loops) and all(
                a is b for a, b in zip(first.loops, w.loops)
            )
            is_sure = w.arms[: len(first.arms)] == first.arms  # where it is written it is read
            if not (same_loops and is_sure) or any(r.subscripts[d] != e for d, e in fixed.items()):
                return True
    return False
