"""Program -> program in which what several sums add up in common is summed once, for all of them.

The gradient of a norm sums `dY*gamma(d)*(X - mean(n))` over a row, and over rows
`dY*(X - mean(n))*scale(n)`. What moves with none of the indices that both sum (`gamma`, `scale`) is
a factor of their sums: both are short sums of one `P(n,d)`, which is one pass over `X` and `dY`.
docs/decisions/0034.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.affine import exact_value
from tcsym.frontend.program import (
    Binary,
    Compare,
    Const,
    Expr,
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
    for a, b in combinations(_sums(program), 2):
        over = frozenset(a.reduced.keys() & b.reduced.keys())
        same = over and a.points == b.points and a.core(over) == b.core(over)
        if same and _covers(a, over) and _is_unchanged(program, a, b, over):
            return share_sums(_shared(program, a, b, over))
    return program


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


def _is_unchanged(program: Program, a: _Sum, b: _Sum, over: frozenset[str]) -> bool:
    """Nothing that is summed is written between the statements."""
    used = {r.tensor for _, e in a.core(over) for r in reads(e)}
    return not used & {s.target for s in statements(program.body[a.at : b.at])}


def _shared(program: Program, a: _Sum, b: _Sum, over: frozenset[str]) -> Program:
    """The common sum as a temporary before both."""
    s, dtype = a.statement, dtype_of(a.statement.value)
    domain = tuple(replace(r, reduced=r.variable in over) for r in s.domain)
    kept = tuple(r for r in domain if not r.reduced)
    at = tuple(var(r.variable) for r in kept)
    taken = {t.name for t in program.tensors}
    name = fresh_name(f"{s.target}.sum", taken)
    value = product(a.core(over))  # type: ignore[arg-type]
    common = replace(
        s, name=f"{s.name}.sum", target=name, subscripts=at, domain=domain, value=value
    )
    common = replace(common, initialise=True)
    total = Read(name, at, dtype, (False,) * len(at), span=s.span)
    body = list(program.body)
    for user in (a, b):
        body[user.at] = _of_total(user, total, over)
    body[a.at : a.at] = [common]
    tensor = Tensor(name, dtype, tuple(r.upper for r in kept), "temporary")
    return replace(program, body=tuple(body), tensors=(*program.tensors, tensor))


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
