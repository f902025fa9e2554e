# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which a range that is read is checked once, not at each of its points.

`X(j)` for j in off(b):off(b+1) is inside of X wherever it is inside at both ends. So these are read
(and checked) in front, where the statement has points; the range then stops at the ends of X, and
its points ask no more. A range far outside is an error at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    Given,
    If,
    IndexValue,
    Item,
    Program,
    Range,
    Read,
    Select,
    Statement,
    children,
)
from tcsym.index.expr import TRUE, Index, maximum, minimum, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Value
from tcsym.ir.traverse import map_value
from tcsym.polyhedral.scop import guarded_reads
from tcsym.types import DType


def check_ranges(program: Program) -> Program:
    """All statements with ranges that are read."""
    return replace(program, body=_items(program.body, program))


def _items(items: tuple[Item, ...], program: Program) -> tuple[Item, ...]:
    out: list[Item] = []
    for item in items:
        match item:
            case Statement():
                out.append(_statement(item, program) if item.given else item)
            case For(_, _, _, body):
                out.append(replace(item, body=_items(body, program)))
            case If(_, then, orelse):
                arms = _items(then, program), _items(orelse, program)
                out.append(replace(item, then=arms[0], orelse=arms[1]))
    return tuple(out)


class _Place(Struct, frozen=True):
    """Dimension `d` of a read at `variable + rest`, of the given extent."""

    read: Read
    d: int
    rest: Index
    extent: Index


def _statement(s: Statement, program: Program) -> Statement:
    names = {g.name for g in s.given}
    for r in s.domain:
        if names & (r.lower.variables() | r.upper.variables()):
            s = _checked_once(s, r, program)
    return s


def _checked_once(s: Statement, r: Range, program: Program) -> Statement:
    places = list(_places(s, r, program))
    some = _has_points(s, r)
    if not places or some is None:
        return s
    lower = maximum(r.lower, *(-p.rest for p in places))
    upper = minimum(r.upper, *(p.extent - p.rest for p in places))
    ends = [_at(p.read, r, end) for p in places for end in (r.lower, r.upper - 1)]
    asked: Expr = Const(0, DType.INT64)
    for x, y in zip(ends[::2], ends[1::2]):
        asked = Binary("add", asked, Cast(Compare("eq", x, y), DType.INT64), DType.INT64)
    check = Given(f"{r.variable}.check", Select(some, asked, Const(0, DType.INT64), DType.INT64))
    surely = {(p.read, p.d) for p in places}

    def plain(v: Value) -> Value:
        if not isinstance(v, Read):
            return v
        checked = tuple(c and (v, d) not in surely for d, c in enumerate(v.checked))
        return v if checked == v.checked else replace(v, checked=checked)

    return replace(
        s,
        domain=tuple(replace(x, lower=lower, upper=upper) if x is r else x for x in s.domain),
        value=cast(Expr, map_value(s.value, plain, lambda i: i)),
        given=(*s.given, check),
    )


def _places(s: Statement, r: Range, program: Program) -> Iterator[_Place]:
    """Checked subscripts that move with the range and else with what is known in front of it."""
    known = _known(s, r)
    for read, guard in guarded_reads(s.value):
        if guard != TRUE or read.unwritten is not None or _is_chosen(s.value, read):
            continue
        others = [x for x in read.subscripts if isinstance(x, Index)]
        if len(others) < len(read.subscripts) or not all(
            x.variables() <= known | {r.variable} for x in others
        ):
            continue
        for d, x in enumerate(others):
            if read.checked and read.checked[d] and x.coefficient(r.variable) == 1:
                rest = x - var(r.variable)
                if r.variable not in rest.variables():
                    yield _Place(read, d, rest, program.tensor(read.tensor).shape[d])


def _is_chosen(value: Expr, read: Read) -> bool:
    """It stands in an arm, which is not taken everywhere."""
    todo: list[Expr] = [value]
    while todo:
        v = todo.pop()
        if isinstance(v, Select) or (isinstance(v, Binary) and v.op in ("and", "or")):
            if any(x == read for x, _ in guarded_reads(v)):
                return True
            continue
        if isinstance(v, Read):
            todo += [x for x in v.subscripts if not isinstance(x, Index)]
        else:
            todo += children(v)
    return False


def _known(s: Statement, r: Range) -> frozenset[str]:
    """What the ends of the range vary with, and all that is no index variable."""
    used = r.lower.variables() | r.upper.variables()
    used = used.union(*(g.variables() for g in s.given if g.name in used))
    own = {x.variable for x in s.domain}
    others = frozenset[str]().union(
        *(x.lower.variables() | x.upper.variables() for x in s.domain),
        *(
            i.variables()
            for x, _ in guarded_reads(s.value)
            for i in x.subscripts
            if isinstance(i, Index)
        ),
    )
    return used | (others - own - {g.name for g in s.given})


def _has_points(s: Statement, r: Range) -> Expr | None:
    """The statement has points for what is known in front of the range; None if that is not."""
    known = _known(s, r)
    test: Expr = _is_positive(r.upper - r.lower)
    for x in s.domain:
        ends = x.lower.variables() | x.upper.variables()
        if x is r or x.variable in known:
            continue
        if not ends <= known:
            return None
        test = Binary("and", test, _is_positive(x.upper - x.lower), DType.BOOL)
    return test


def _is_positive(e: Index) -> Expr:
    return Compare("gt", IndexValue(e, DType.INT64), Const(0, DType.INT64))


def _at(read: Read, r: Range, end: Index) -> Read:
    at = {r.variable: end}
    return replace(
        read,
        subscripts=tuple(substitute(x, at) if isinstance(x, Index) else x for x in read.subscripts),
    )
