# SPDX-License-Identifier: Apache-2.0
"""Maps of what a `for` loop stored, step by step -> part of that loop.

A scan is bound by memory: what a map after it reads again has left the caches by then. Only loops
of plain assignments take maps in, and only cheap maps whose vectors run along the scan's rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.frontend.program import Call, Expr, subexpressions
from tcsym.polyhedral.classify import innermost
from tcsym.polyhedral.dependence import Dependences
from tcsym.polyhedral.scop import Scop, ScopItem, ScopLoop, ScopStatement


def following_maps(
    loop: ScopLoop, later: tuple[ScopItem, ...], scop: Scop, dependences: Dependences
) -> dict[str, str]:
    """Statements of `later` that may run at the end of each iteration, with their iterators for it.

    Each reads what the loop wrote in the same iteration, and depends on nothing else in between.
    """
    inside = {scop.statement(n): loop.range.variable for n in statement_names(loop.items)}
    if not all(s.role == "assign" and s.ranges and _is_cheap(s.value) for s in inside):
        return {}
    found: dict[str, str] = {}
    passed: set[str] = set()
    for name in later:
        if isinstance(name, ScopLoop):
            break
        s = scop.statement(name)
        free = (
            s.role == "assign" and not s.positions and passed.isdisjoint(dependences.sources(name))
        )
        v = _iterator(loop, inside, s, dependences) if free and _is_cheap(s.value) else None
        if v is None:
            passed.add(name)
        else:
            found[name] = v
            inside[s] = v
    return found


def statement_names(items: tuple[ScopItem, ...]) -> Iterator[str]:
    for item in items:
        if isinstance(item, ScopLoop):
            yield from statement_names(item.items)
        else:
            yield item


def _is_cheap(value: Expr) -> bool:
    return not any(isinstance(x, Call) for x in subexpressions(value))


def _iterator(
    loop: ScopLoop, inside: dict[ScopStatement, str], s: ScopStatement, dependences: Dependences
) -> str | None:
    """The iterator of `s` that equals the loop's in all dependences on statements inside."""
    same, rows = dependences.relations.equal_for_all_sizes, innermost(s)
    edges = [
        (d, x.iterators.index(v))
        for x, v in inside.items()
        for d in dependences.between(x.name, s.name)
    ]
    for r in s.ranges:
        equal = same(r.lower, loop.range.lower) and same(r.upper, loop.range.upper)
        if not equal or not edges or rows in ("", r.variable):
            continue
        at = s.iterators.index(r.variable)
        if all(dependences.equal(d, i, at) for d, i in edges):
            return r.variable
    return None
