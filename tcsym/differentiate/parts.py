# SPDX-License-Identifier: Apache-2.0
"""Single assignment -> names for parts of values: few variables move them, or they repeat.

`Y(n,d) = X(n,d) * rsqrt(v(n) / D)` becomes `r(n) = rsqrt(v(n) / D)` and a product with it: then the
gradient sums over d what goes to `r`, once, and what goes on to `v` is no sum. So do parts that
stand in a value several times: gradients of gradients would repeat them ever more often. A part is
no larger than a tensor that it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.algebra import constant, select, truth
from tcsym.differentiate.names import Names
from tcsym.differentiate.places import is_at_least
from tcsym.differentiate.single import Single
from tcsym.differentiate.terms import extents_of
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Expr,
    Item,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    Unary,
    children,
    dtype_of,
    reads,
    rewritten,
    variables_of,
)
from tcsym.index.expr import ZERO, Index, ge, var
from tcsym.trees import fold, preorder


def with_parts(single: Single, names: Names) -> Single:
    """Of statements outside of loops."""
    tensors = dict(single.tensors)
    found: list[Item] = []
    for item in single.items:
        if isinstance(item, Statement):
            found += _Parts(item, names, tensors).statements()
        else:
            found.append(item)
    return replace(single, items=tuple(found), tensors=tensors)


class _Parts(Struct):
    statement: Statement
    names: Names
    tensors: dict[str, Tensor]
    made: dict[Expr, Statement] = field(default_factory=dict)
    times: Counter[Expr] = field(default_factory=Counter)

    def statements(self) -> Iterator[Statement]:
        s = self.statement
        self.times.update(preorder(s.value, _evaluated_parts))
        value = s.value if s.given or s.scattered else self.of(s.value)
        yield from self.made.values()
        yield replace(s, value=value)

    def of(self, e: Expr) -> Expr:
        parts: set[Expr] = set()
        works = _works(e)

        def below(x: Expr) -> tuple[Expr, ...]:
            if works[x] and self._is_part(x):
                parts.add(x)
                return ()
            return _evaluated_parts(x)

        def read(x: Expr, before: Expr) -> Expr:
            if before not in parts:
                return x
            if before not in self.made:
                self.made[before] = self._named(before)
            s = self.made[before]
            return Read(s.target, s.subscripts, dtype_of(before))

        return rewritten(e, read, below=below)

    def _is_part(self, e: Expr) -> bool:
        if not dtype_of(e).is_float:
            return False
        found = list(reads(e))
        plain = {str(i) for r in found for i in r.subscripts if isinstance(i, Index)}
        domain = {r.variable: r for r in self.statement.walked}
        used = variables_of(e) & domain.keys()
        return (
            (used < domain.keys() or (self.times[e] > 1 and e != self.statement.value))
            and all(isinstance(i, Index) for r in found for i in r.subscripts)
            and plain <= domain.keys()
            and any(used == {str(i) for i in r.subscripts} for r in found)
            and all(_is_box(domain[v]) for v in used)
        )

    @property
    def _moving(self) -> set[str]:
        return {r.variable for r in self.statement.walked}

    def _named(self, e: Expr) -> Statement:
        used = variables_of(e)
        domain = [replace(r, reduced=False) for r in self.statement.walked if r.variable in used]
        target = self.statement.target
        whole = next(
            r for r in reads(e) if {str(i) for i in r.subscripts} == {*used} & self._moving
        )
        extents = extents_of(whole.subscripts, self.tensors[whole.tensor].shape)
        for k, r in enumerate(domain):
            if r.upper.variables() & self._moving:  # a triangle: the rest of the box is 0
                e = select(truth(ge(r.upper - 1, var(r.variable))), e, constant(0.0, dtype_of(e)))
                domain[k] = replace(r, upper=extents[r.variable])
        shape = tuple([r.upper for r in domain])
        t = Tensor(self.names.fresh(f"{target}_part"), dtype_of(e), shape, "temporary")
        self.tensors[t.name] = t
        left = tuple([var(r.variable) for r in domain])
        return Statement("", t.name, left, "=", False, tuple(domain), e)


def _evaluated_parts(e: Expr) -> tuple[Expr, ...]:
    """What is evaluated at every point, without conditions."""
    match e:
        case Call() | Cast() | Unary():
            return children(e)
        case Binary(op) if op not in ("and", "or"):
            return children(e)
    return ()


def _is_box(r: Range) -> bool:
    """That may stand on the left, where ranges may not end below 0."""
    fits = not r.reduced or is_at_least(r.upper, 0, {})
    return r.lower == ZERO and r.at is None and fits


def _works(e: Expr) -> dict[Expr, bool]:
    """Whether an expression in `e` is more than a product or a sum: done again for every point."""
    found: dict[Expr, bool] = {}

    def value(x: Expr, parts: list[tuple[bool, bool]]) -> tuple[bool, bool]:
        has_reads = isinstance(x, Read) or any(reading for reading, _ in parts)
        match x:
            case Call() | Binary("div" | "mod"):
                works = has_reads
            case Select() | Read():
                works = False
            case _:
                works = any(below for _, below in parts)
        found[x] = works
        return has_reads, works

    fold(e, children, value)
    return found
