# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which sums read what a map before them stored, and do not compute it again.

The gradient of a bias sums what goes to the layer's input, `dX(m,n) = X(m,n) + B(n) >= 0 ? dY(m,n)
: 0`, over rows. From dX it is a pass over one tensor, where its own term reads two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from tcsym.frontend.program import (
    Expr,
    Program,
    Range,
    Read,
    Statement,
    children,
    dtype_of,
    reads,
    rewritten,
    statements,
    subexpressions,
)
from tcsym.index.expr import Index, var
from tcsym.types import DType

Maps = Mapping[Expr, Sequence[tuple[int, Statement]]]
LEAST_READS = 2  # of elements at each point: of one, the map's result is no less to read


def share_maps(program: Program) -> Program:
    """Statements outside of loops."""
    body = list(program.body)
    written = Counter(x.target for x in statements(program.body))
    maps: dict[Expr, list[tuple[int, Statement]]] = {}  # behind the last loop, by their values
    for at, s in enumerate(body):
        if not isinstance(s, Statement):
            maps.clear()
            continue
        if s.op != "=" and not s.scattered:
            for before in _made_in(s.value, maps):
                if _points(before) == _points(s):
                    s = body[at] = replace(s, value=_reading(s.value, before))
        elif _is_map(s, program, written):
            maps.setdefault(s.value, []).append((at, s))
    if body == list(program.body):
        return program
    return replace(program, body=tuple(body))


def _made_in(e: Expr, maps: Maps) -> list[Statement]:
    """The maps whose values `e` has, the last of them first."""
    parts = reversed(list(subexpressions(e) if maps else ()))  # hashes of parts are known then
    found = {at: s for x in parts for at, s in maps.get(x, ())}
    return [found[at] for at in sorted(found, reverse=True)]


def _is_map(s: Statement, program: Program, written: Mapping[str, int]) -> bool:
    """Each point stores the exact value of what several elements make, and neither these nor the
    result are written again."""
    dtype = program.tensor(s.target).dtype
    exact = dtype in (DType.FLOAT32, DType.FLOAT64) and dtype_of(s.value) is dtype
    if s.op != "=" or s.scattered or s.exists or not s.is_box or not exact:
        return False
    variables = {r.variable for r in s.domain}
    plain = {x for x in s.subscripts if x in map(var, variables)}
    used = set(reads(s.value))
    whole = [r for r in used if _variables(r) >= variables]
    final = all(_is_final(r.tensor, program, written) for r in used)
    once = written[s.target] == 1
    return len(plain) == len(variables) and len(whole) >= LEAST_READS and final and once


def _is_final(tensor: str, program: Program, written: Mapping[str, int]) -> bool:
    """It is what it was whenever it has been read: only arguments are there before a statement."""
    times = written.get(tensor, 0)
    return times <= (0 if program.tensor(tensor).role in ("input", "inout") else 1)


def _variables(r: Read) -> frozenset[str]:
    return frozenset[str]().union(*(i.variables() for i in r.subscripts if isinstance(i, Index)))


def _points(s: Statement) -> frozenset[Range]:
    return frozenset(replace(r, reduced=False) for r in s.domain)


def _reading(e: Expr, s: Statement) -> Expr:
    """`e`, with what `s` stored in the place of its value."""
    unchecked = (False,) * len(s.subscripts)
    read = Read(s.target, s.subscripts, dtype_of(s.value), unchecked, span=s.span)
    return rewritten(
        e,
        lambda x, before: read if before == s.value else x,
        below=lambda x: () if x == s.value or isinstance(x, Read) else children(x),
    )
