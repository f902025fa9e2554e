# SPDX-License-Identifier: Apache-2.0
"""Items that a gradient reads -> the part of the program that must be computed again for it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import assert_never

from msgspec.structs import replace

from tcsym.differentiate.names import Names
from tcsym.differentiate.single import Single
from tcsym.frontend.program import (
    Binary,
    Call,
    Const,
    Expr,
    For,
    If,
    Item,
    Range,
    Statement,
    children,
    dtype_of,
    reads,
    statements,
)
from tcsym.index.expr import ZERO, negate, var
from tcsym.trees import fold

_EXACT = ("fabs", "fmax", "fmin", "floor", "ceil", "trunc", "round", "copysign")


def needed_items(
    items: tuple[Item, ...], back: tuple[Item, ...], taken: Collection[str]
) -> tuple[tuple[Item, ...], frozenset[str]]:
    """What of `items` must be computed for `back`, and the names of all their tensors that are
    read. taken: tensors that are given."""
    todo = [name for s in statements(back) for name in _read(s)]
    used = _depended_on(items, todo, taken)
    kept = used - set(taken)
    return _kept(items, kept), frozenset(used)


def dear(items: tuple[Item, ...]) -> set[str]:
    """Tensors that take a sum for an element, or the steps of a loop before it."""
    found: set[str] = set()
    for item in items:
        match item:
            case Statement():
                if any(r.reduced or r.at is not None for r in item.domain):
                    found.add(item.target)
            case For():
                found |= dear(item.body) | _carried(item)
            case If():
                found |= dear((*item.then, *item.orelse))
            case _:
                assert_never(item)
    return found


def of_other_roundings(items: tuple[Item, ...], taken: Collection[str]) -> set[str]:
    """What is taken of `min= max=` whose terms, computed again, may be rounded in another way.

    Who won is found by comparing terms with the result. Another kernel, machine or library may add
    up in another order, fuse a product with a sum, or have other last bits of a function: then no
    term is the result that is given, and it is computed again, beside the terms, to be compared.
    """
    rounded: set[str] = set()  # what is computed again, and has more than one value it may get
    found: set[str] = set()
    before = -1
    while len(rounded) > before:  # steps of loops read what stands below them
        before = len(rounded)
        for s in statements(items):
            compares = s.op in ("min=", "max=")
            sums = not compares and any(r.reduced or r.at is not None for r in s.domain)
            n = 2 if sums or not rounded.isdisjoint(_read(s)) else _roundings(s.value)
            if compares and n > 1 and s.target in taken:
                found.add(s.target)
            if n and s.target not in taken:
                rounded.add(s.target)
    return found


def _roundings(e: Expr) -> int:
    """0: exact. 1: rounded once, as all do. 2: results may differ."""
    return fold(e, lambda x: children(x) if dtype_of(x).is_float else (), _own_roundings)


def _own_roundings(e: Expr, parts: list[int]) -> int:
    if not dtype_of(e).is_float:
        return 0
    inside = max(parts, default=0)
    match e:
        case Binary("add" | "sub" | "mul" | "div"):
            return min(2, inside + 1)
        case Call(function):
            return inside if function in _EXACT else min(2, inside + 1) if function == "sqrt" else 2
        case _:
            return inside


def _carried(loop: For) -> set[str]:
    """Tensors of which iterations read what earlier ones wrote."""
    inside = list(statements(loop.body))
    written: set[str] = set()
    found: set[str] = set()
    targets = {s.target for s in inside}
    for s in inside:
        found |= (_read(s) & targets) - written
        written.add(s.target)
    return found


def needed_for(
    items: tuple[Item, ...], results: Collection[str], taken: Collection[str] = ()
) -> tuple[Item, ...]:
    """What of `items` the tensors `results` depend on, beside those that are given."""
    return _kept(items, _depended_on(items, list(results), taken).difference(taken))


def _depended_on(items: tuple[Item, ...], todo: list[str], taken: Collection[str]) -> set[str]:
    """These tensors and those that they are made of, down to what is taken."""
    sources: dict[str, set[str]] = {}
    for s in statements(items):
        sources.setdefault(s.target, set()).update(_read(s))
    used = set[str]()
    while todo:
        name = todo.pop()
        if name not in used:
            used.add(name)
            todo += () if name in taken else sources.get(name, ())
    return used


def defined_first(
    items: tuple[Item, ...], single: Single, results: Collection[str], names: Names
) -> tuple[Item, ...]:
    """With zeros in front for temporaries that need them.

    Loops read some above what writes them: in the program these were outputs, which may be read so.
    """
    targets = {s.target for s in statements(items)}
    written: set[str] = set()
    early: dict[str, None] = {}
    for s in statements(items):
        early |= dict.fromkeys(
            n for n in sorted(_read(s) & targets) if n not in {*written, *results}
        )
        if s.scattered and s.target not in {*written, *results}:
            early[s.target] = None  # a position does not say the extent
        written.add(s.target)
    return (*zeros(early, single, names), *items)


def zeros(tensors: Collection[str], single: Single, names: Names) -> Iterator[Statement]:
    for name in tensors:
        t = single.tensors[name]
        variables = names.variables(len(t.shape))
        domain = tuple(Range(v, ZERO, e, False) for v, e in zip(variables, t.shape))
        zero = Const(0.0 if t.dtype.is_float else 0, t.dtype)
        yield Statement("", name, tuple(map(var, variables)), "=", False, domain, zero)


def _read(s: Statement) -> set[str]:
    return {r.tensor for e in s.expressions for r in reads(e)}


def with_all(
    items: tuple[Item, ...], beside: Mapping[int, tuple[Statement, ...]]
) -> tuple[Item, ...]:
    """`items` with what stands behind some of their statements, by their ids."""
    found: list[Item] = []
    for item in items:
        match item:
            case Statement():
                found += [item, *beside.get(id(item), ())]
            case For():
                found.append(replace(item, body=with_all(item.body, beside)))
            case If():
                then, orelse = with_all(item.then, beside), with_all(item.orelse, beside)
                found.append(replace(item, then=then, orelse=orelse))
    return tuple(found)


def _kept(items: tuple[Item, ...], targets: set[str]) -> tuple[Item, ...]:
    found: list[Item] = []
    for item in items:
        match item:
            case Statement():
                found += [item] if item.target in targets else []
            case For():
                body = _kept(item.body, targets)
                found += [replace(item, body=body)] if body else []
            case If():
                then, orelse = _kept(item.then, targets), _kept(item.orelse, targets)
                if then:
                    found.append(replace(item, then=then, orelse=orelse))
                elif orelse:
                    found.append(If(negate(item.condition), orelse))
    return tuple(found)
