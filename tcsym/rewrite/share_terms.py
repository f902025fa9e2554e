# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which costly parts of two sums' terms are computed once, for both.

A softmax under a product sums `exp(A(l,s) - m(l))` and multiplies it by `V(s,e)`: what both have is
stored between them, at the same points, and not computed again for every `e`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    Expr,
    IndexValue,
    Program,
    Range,
    Read,
    Select,
    Statement,
    Tensor,
    children,
    dtype_of,
    reads,
    rewritten,
    subexpressions,
)
from tcsym.index.expr import Index, var
from tcsym.rewrite.fresh import fresh_name
from tcsym.rewrite.share_parts import dear_parts
from tcsym.trees import leaves, preorder


def share_terms(program: Program) -> Program:
    """Contract: the program is normalised. Statements in loops stay as they are."""
    for at, s in enumerate(program.body):
        if isinstance(s, Statement) and _is_sum(s):
            walked = frozenset(r.variable for r in s.walked)
            for part in _parts(s.value, walked):
                first = _first_user(program, at, part)
                if first is not None:
                    return share_terms(_shared(program, part, first, at))
    return program


def _is_sum(s: Statement) -> bool:
    return s.op != "=" and not s.scattered


def _parts(e: Expr, walked: frozenset[str]) -> Iterator[Expr]:
    """The largest dear parts that fewer than all variables tell apart, wherever a sum is made."""
    dear = dear_parts(e)

    def is_part(x: Expr) -> bool:
        if x not in dear:
            return False
        used = _variables(x) & walked
        return used < walked and used <= _places(x).keys()

    def below(x: Expr) -> tuple[Expr, ...]:
        return () if isinstance(x, Read | Select) or is_part(x) else children(x)

    return (x for x in leaves(e, below) if is_part(x))


def _variables(e: Expr) -> frozenset[str]:
    used = frozenset[str]()
    for x in subexpressions(e):
        if isinstance(x, Read):
            used = used.union(*(i.variables() for i in x.subscripts if isinstance(i, Index)))
        elif isinstance(x, IndexValue):
            used |= x.index.variables()
    return used


def _places(e: Expr) -> dict[str, tuple[str, int]]:
    """A tensor and its dimension along which a variable runs, and does not leave it."""
    return {
        v: (r.tensor, d)
        for r in reads(e)
        if r.unwritten is None and not any(r.checked)
        for d, i in enumerate(r.subscripts)
        if isinstance(i, Index)
        for v in i.variables()
        if i == var(v)
    }


def _first_user(program: Program, at: int, part: Expr) -> int | None:
    """The nearest sum before that has the part at the same points, and nothing that this reads is
    written from there on."""
    s, tensors = program.body[at], {r.tensor for r in reads(part)}
    for k in reversed(range(at)):
        other = program.body[k]
        if not isinstance(other, Statement) or other.target in tensors:
            return None
        if _is_sum(other) and part in _unguarded(other.value):
            assert isinstance(s, Statement)
            ranges = _domain(other, part)
            known = {r.variable for r in ranges} | set(program.sizes)
            ends = {v for r in ranges for e in (r.lower, r.upper) for v in e.variables()}
            return k if ranges == _domain(s, part) and ends <= known else None
    return None


def _unguarded(e: Expr) -> Iterator[Expr]:
    """What is computed at every point; of `and` and `or`, the left operand may be all."""
    return preorder(e, _unguarded_parts)


def _unguarded_parts(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Read() | Select():
            return ()
        case Binary("and" | "or", left):
            return (left,)
    return children(e)


def _domain(s: Statement, part: Expr) -> tuple[Range, ...]:
    used = _variables(part)
    return tuple(replace(r, reduced=False) for r in s.walked if r.variable in used)


def _shared(program: Program, part: Expr, first: int, at: int) -> Program:
    """The part as a temporary before `first`, which it and the statement `at` read."""
    user, other = program.body[first], program.body[at]
    assert isinstance(user, Statement) and isinstance(other, Statement)
    domain, places, dtype = _domain(user, part), _places(part), dtype_of(part)
    taken = {t.name for t in program.tensors}
    name = fresh_name(f"{user.target}.term", taken)
    shape = (program.tensor(t).shape[d] for t, d in (places[r.variable] for r in domain))
    subscripts = tuple(var(r.variable) for r in domain)
    read = Read(name, subscripts, dtype, (False,) * len(domain), span=user.span)

    def cut(e: Expr) -> Expr:
        return rewritten(
            e,
            lambda x, before: read if before == part else x,
            below=lambda x: () if x == part or isinstance(x, Read | Select) else children(x),
        )

    terms = replace(
        user,
        name=f"{user.name}.{name.removeprefix(f'{user.target}.')}",
        target=name,
        subscripts=subscripts,
        op="=",
        initialise=False,
        domain=domain,
        value=part,
        exists=(),
        given=(),
    )
    body = list(program.body)
    body[at] = replace(other, value=cut(other.value))
    body[first : first + 1] = [terms, replace(user, value=cut(user.value))]
    tensors = (*program.tensors, Tensor(name, dtype, tuple(shape), "temporary"))
    return replace(program, body=tuple(body), tensors=tensors)
