# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which what several sums add up in common is summed once, for all of them.

The gradient of a norm sums `dY*gamma(d)*(X - mean(n))` over a row, and over rows
`dY*(X - mean(n))*scale(n)`. What moves with none of the indices that both sum (`gamma`, `scale`) is
a factor of their sums: both are short sums of one `P(n,d)`, which is one pass over `X` and `dY`.
docs/decisions/0034.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from functools import reduce
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.affine import exact_value
from tcsym.frontend.program import (
    Binary,
    Compare,
    Const,
    Expr,
    Item,
    Program,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    Unary,
    dtype_of,
    reads,
    statements,
    variables_of,
)
from tcsym.index.expr import ONE, ZERO, Index, var
from tcsym.rewrite.factors import Factors, flattened, product
from tcsym.rewrite.fresh import fresh_name
from tcsym.types import DType


class _Sum(Struct, frozen=True):
    """The terms of a statement as products, and what it sums over."""

    at: int
    statement: Statement
    factors: tuple[tuple[str, Expr], ...]
    is_negative: bool

    @property
    def reduced(self) -> dict[str, Range]:
        return {r.variable: r for r in self.statement.domain if r.reduced}

    @property
    def points(self) -> frozenset[tuple[str, Index, Index]]:
        return frozenset((r.variable, r.lower, r.upper) for r in self.statement.domain)

    def core(self, over: frozenset[str]) -> tuple[tuple[str, Expr], ...]:
        """The factors that move with what is summed."""
        return tuple(f for f in self.factors if variables_of(f[1]) & over)


def share_sums(program: Program) -> Program:
    """Sums outside of loops, of floating products."""
    while found := list(_alike(program)):
        program = _shared(program, found)
    return program


class _Alike(Struct, frozen=True):
    """Sums over the same points with equal factors that move with what all of them sum `over`."""

    over: frozenset[str]
    sums: list[_Sum]


Key = tuple[frozenset[str], Hashable]


def _alike(program: Program) -> Iterator[_Alike]:
    """Each sum at most once, with the first that it is like."""
    sums = list(_sums(program))
    keys = _keys(sums)
    groups: dict[Key, list[_Sum]] = defaultdict(list)
    for x, own in zip(sums, keys):
        for key in own:
            groups[key].append(x)
    writes: dict[str, list[int]] = defaultdict(list)
    for k, item in enumerate(program.body):
        for s in statements((item,)):
            writes[s.target].append(k)
    taken: set[int] = set()
    for a, own in zip(sums, keys):
        for key in own if a.at not in taken else ():
            over, end = key[0], _changed_behind(a, key[0], writes)
            same = [
                b
                for b in groups[key]
                if a.at < b.at <= end
                and b.at not in taken
                and a.reduced.keys() & b.reduced.keys() == over
            ]
            if same and _covers(a, over):
                taken.update(x.at for x in (a, *same))
                yield _Alike(over, [a, *same])
                break


def _keys(sums: list[_Sum]) -> list[list[Key]]:
    """Of each sum: what it may sum in common with others over the same points; equal for those."""
    reduced: dict[Hashable, set[frozenset[str]]] = defaultdict(set)
    for x in sums:
        reduced[x.points].add(frozenset(x.reduced))
    found: list[list[Key]] = []
    for x in sums:
        common = {frozenset(x.reduced) & other for other in reduced[x.points]} - {frozenset()}
        found.append([(v, (x.points, x.core(v))) for v in sorted(common, key=sorted)])
    return found


def _sums(program: Program) -> Iterator[_Sum]:
    for k, s in enumerate(program.body):
        if not isinstance(s, Statement) or s.op != "+=" or s.scattered or s.exists or not s.is_box:
            continue
        dtype = program.tensor(s.target).dtype
        kept = {r.variable for r in s.domain if not r.reduced}
        plain = all(x.variables() <= kept and x in map(var, kept) for x in s.subscripts)
        whole = all(r.lower == ZERO for r in s.domain)
        if (
            dtype in (DType.FLOAT32, DType.FLOAT64)
            and dtype_of(s.value) is dtype
            and plain
            and whole
        ):
            sign, factors = False, []
            for op, e in flattened(s.value):
                while isinstance(e, Unary) and e.op == "neg":
                    sign, e = not sign, e.operand
                factors.append((op, e))
            yield _Sum(k, s, tuple(factors), sign)


def _covers(a: _Sum, over: frozenset[str]) -> bool:
    """The common sum has as many terms as either: none of it was small before."""
    used = frozenset[str]().union(*(variables_of(e) for _, e in a.core(over)))
    return used >= {r.variable for r in a.statement.domain}


def _changed_behind(a: _Sum, over: frozenset[str], writes: Mapping[str, list[int]]) -> float:
    """The first place from the sum on that writes something of what is summed."""
    used = {r.tensor for _, e in a.core(over) for r in reads(e)}
    places = (writes[t][bisect_left(writes[t], a.at) :][:1] for t in used if t in writes)
    return min((k for found in places for k in found), default=inf)


def _shared(program: Program, found: list[_Alike]) -> Program:
    """Each common sum as a temporary before the first of its users."""
    body: list[list[Item]] = [[x] for x in program.body]
    tensors = list(program.tensors)
    taken = {t.name for t in tensors}
    for x in found:
        common, tensor = _common(x, taken)
        taken.add(tensor.name)
        tensors.append(tensor)
        total = Read(
            tensor.name,
            common.subscripts,
            tensor.dtype,
            (False,) * len(common.subscripts),
            span=common.span,
        )
        for user in x.sums:
            body[user.at] = [_of_total(user, total, x.over)]
        body[x.sums[0].at].insert(0, common)
    items = tuple(item for part in body for item in part)
    return replace(program, body=items, tensors=tuple(tensors))


def _common(x: _Alike, taken: set[str]) -> tuple[Statement, Tensor]:
    """The statement that computes the common sum, and the tensor that it is kept in."""
    a = x.sums[0]
    s, dtype = a.statement, dtype_of(a.statement.value)
    domain = tuple(replace(r, reduced=r.variable in x.over) for r in s.domain)
    kept = tuple(r for r in domain if not r.reduced)
    at = tuple(var(r.variable) for r in kept)
    name = fresh_name(f"{s.target}.sum", taken)
    value = product(a.core(x.over))  # type: ignore[arg-type]
    common = replace(
        s, name=f"{s.name}.sum", target=name, subscripts=at, domain=domain, value=value
    )
    tensor = Tensor(name, dtype, tuple(r.upper for r in kept), "temporary")
    return replace(common, initialise=True), tensor


def _of_total(x: _Sum, total: Read, over: frozenset[str]) -> Statement:
    """Nothing is read of other factors where the common sum has no terms."""
    s, core = x.statement, x.core(over)
    others: Factors = [f for f in x.factors if f not in core]  # type: ignore[misc]
    value: Expr = product([("mul", total), *others])
    if x.is_negative:
        value = Unary("neg", value, total.dtype)
    if others:
        inside = [_has_points(r) for v, r in x.reduced.items() if v in over]
        some = reduce(lambda p, q: Binary("and", p, q, DType.BOOL), inside)
        value = Select(some, value, Const(0, total.dtype), total.dtype)
    domain = tuple(r for r in s.domain if r.variable not in over)
    if s.initialise and not any(r.reduced for r in domain):
        return replace(s, op="=", initialise=False, domain=domain, value=value)
    return replace(s, domain=domain, value=value)


def _has_points(r: Range) -> Expr:
    return Compare("ge", exact_value(r.upper - r.lower), exact_value(ONE))
