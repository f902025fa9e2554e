# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which costly parts that fewer indices tell apart are computed once for all.

`Y(m,n) = X(m,n) * rsqrt(V(n))` would take a root for every row: the loop over `n` runs in vectors
inside that over `m`, so nothing can be moved out of a loop. Here the roots become a temporary of
their own. So do positions that are computed, `X(n,c,int32(y(p)))`, for all channels. Parts that do
not vary along the last dimension are left: they are moved out of loops.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    children,
    dtype_of,
    rewritten,
    subexpressions,
)
from tcsym.index.expr import ZERO, Index, var
from tcsym.rewrite.fresh import fresh_name
from tcsym.trees import fold
from tcsym.types import DType

CHEAP = frozenset(("ceil", "copysign", "fabs", "floor", "fma", "fmax", "fmin", "round", "trunc"))
FLOATS = (DType.FLOAT32, DType.FLOAT64)


def share_parts(program: Program) -> Program:
    """Contract: the program is normalised. Statements in loops stay as they are."""
    sharing = _Sharing(program)
    body: list[Item] = []
    for item in program.body:
        plain = isinstance(item, Statement) and item.op == "=" and not item.scattered
        if isinstance(item, Statement) and plain and len(item.domain) > 1:
            body.extend(sharing.statement(item))
        else:
            body.append(item)
    if not sharing.temporaries:
        return program
    return replace(
        program, body=tuple(body), tensors=(*program.tensors, *sharing.temporaries.values())
    )


class _Sharing(Struct):
    """`parts`: temporaries of the statement at hand by the values that they hold."""

    program: Program
    temporaries: dict[str, Tensor] = field(default_factory=dict)
    parts: dict[Expr, Statement] = field(default_factory=dict)

    def statement(self, s: Statement) -> tuple[Statement, ...]:
        """The statements of its parts, then what is left of it."""
        self.parts = {}
        rest = replace(s, value=self.cut(s.value, s))
        return (*self.parts.values(), rest)

    def cut(self, e: Expr, s: Statement) -> Expr:
        """`e` with the largest parts worth it read from temporaries."""
        dear = dear_parts(e)
        used: dict[Expr, frozenset[str]] = {}

        def below(x: Expr) -> tuple[Expr, ...]:
            found = self.variables_of(x, s) if x in dear else None
            if found is not None:
                used[x] = found
            return () if found is not None else children(x)

        def change(x: Expr, before: Expr) -> Expr:
            return self.part(before, used[before], s) if before in used else x

        return rewritten(e, change, below=below)

    def variables_of(self, e: Expr, s: Statement) -> frozenset[str] | None:
        """The index variables that `e` depends on, if it is worth a temporary, else None."""
        last = s.subscripts[-1].variables()
        used = frozenset[str]()
        for x in subexpressions(e):
            if isinstance(x, Read):
                if x.tensor == s.target or not is_inside(x, s, self.program):
                    return None
                used = used.union(*(i.variables() for i in x.subscripts if isinstance(i, Index)))
            elif isinstance(x, IndexValue):
                used |= x.index.variables()
        ranges = {r.variable: r for r in s.domain}
        mine = used & ranges.keys()
        fits = all(ranges[v].lower == ZERO for v in mine)
        return mine if fits and last and last <= mine < ranges.keys() else None

    def part(self, e: Expr, used: frozenset[str], s: Statement) -> Read:
        known = self.parts.get(e)
        if known is None:
            domain = tuple(r for r in s.domain if r.variable in used)
            subscripts = tuple(var(r.variable) for r in domain)
            tensor = self.temporary(s, dtype_of(e), domain)
            known = replace(
                s,
                name=f"{s.name}.part{len(self.parts)}",
                target=tensor.name,
                subscripts=subscripts,
                domain=domain,
                value=e,
                exists=(),
            )
            self.parts[e] = known
        checked = (False,) * len(known.subscripts)
        return Read(known.target, known.subscripts, dtype_of(e), checked, span=s.span)

    def temporary(self, s: Statement, dtype: DType, domain: tuple[Range, ...]) -> Tensor:
        taken = {t.name for t in self.program.tensors} | self.temporaries.keys()
        name = fresh_name(f"{s.target}.part", taken)
        tensor = Tensor(name, dtype, tuple(r.upper for r in domain), "temporary")
        self.temporaries[name] = tensor
        return tensor


def is_inside(r: Read, s: Statement, program: Program) -> bool:
    """In range whenever the sizes are legal, even if other ranges are empty."""
    uppers = {x.variable: x.upper for x in s.domain}
    shape = program.tensor(r.tensor).shape
    whole = all(
        isinstance(i, Index) and any(i == var(v) and uppers[v] == n for v in uppers)
        for i, n in zip(r.subscripts, shape)
    )
    return whole and r.unwritten is None and not any(r.checked)


def dear_parts(e: Expr) -> frozenset[Expr]:
    """The floating ones in which something is dear, and what is an integer by something dear."""
    found: set[Expr] = set()

    def value(x: Expr, parts: list[bool]) -> bool:
        dear = any(parts) or is_dear(x)
        if (dear and dtype_of(x) in FLOATS) or (is_dear(x) and dtype_of(x).is_integer):
            found.add(x)
        return dear

    fold(e, children, value)
    return frozenset(found)


def is_dear(e: Expr) -> bool:
    """Takes longer than to load its result."""
    match e:
        case Call(function, _):
            return function not in CHEAP
        case Binary("div", _, b, dtype):
            return dtype.is_float and not isinstance(b, Const)
        case Cast(x, dtype):  # saturates
            return dtype.is_integer and dtype_of(x).is_float
        case _:
            return False
