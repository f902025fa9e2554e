# SPDX-License-Identifier: Apache-2.0
"""Items -> the same, where what was divided by its own sum is computed from the quotient.

Of `E(n,d) = exp(..)`, `s(n) +=! E(n,d)`, `Y(n,d) = E(n,d) / s(n)`, a gradient that is given Y and s
needs neither the exponentials again nor what they are of: E is Y times s. Exponentials are not
negative, so that no quotient is larger than 1 and none is 0 for more than rounding.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from tcsym.differentiate.algebra import multiply, with_indices
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Item,
    Read,
    Select,
    Statement,
    statements,
)
from tcsym.index.expr import Index, var


def from_quotients(items: tuple[Item, ...], taken: Collection[str]) -> tuple[Item, ...]:
    """taken: tensors that are given."""
    once: dict[str, list[Statement]] = {}
    for s in statements(items):
        once.setdefault(s.target, []).append(s)
    plain = {s.target: s for s in items if isinstance(s, Statement) and len(once[s.target]) == 1}
    values: dict[str, tuple[Statement, Binary]] = {}
    for s in plain.values():
        match s.value:
            case Binary("div", Read() as e, Read() as total) if s.target in taken and s.op == "=":
                found = plain.get(e.tensor), plain.get(total.tensor)
                if total.tensor in taken and _is_share(e, s, *found):
                    values[e.tensor] = s, s.value
    return tuple(
        _quotient_times_sum(x, *values[x.target])
        if isinstance(x, Statement) and x.target in values
        else x
        for x in items
    )


def _is_share(e: Read, s: Statement, made: Statement | None, total: Statement | None) -> bool:
    if made is None or total is None or e.subscripts != s.subscripts or made.op != "=":
        return False
    own = total.value
    summed = isinstance(own, Read) and own.tensor == made.target and total.op == "+="
    plain = all(i == var(str(i)) for i in made.subscripts)
    return summed and plain and _is_exponential(made.value)


def _is_exponential(e: Expr) -> bool:
    match e:
        case Call("exp" | "exp2"):
            return True
        case Cast(x):
            return _is_exponential(x)
        case Select(_, a, b):
            return all(x == Const(0.0, e.dtype) or _is_exponential(x) for x in (a, b))
    return False


def _quotient_times_sum(made: Statement, s: Statement, quotient: Binary) -> Statement:
    own = {str(i): e for i, e in zip(s.subscripts, made.subscripts) if isinstance(i, Index)}
    result = Read(s.target, s.subscripts, quotient.dtype)
    value = with_indices(multiply(result, quotient.right), own)
    return replace(made, value=value)
