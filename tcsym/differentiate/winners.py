# SPDX-License-Identifier: Apache-2.0
"""Terms of a gradient at the one element that won a minimum or maximum, which a tensor holds.

`a(n) min=! d(n,m)` gives to `d(n, a_at(n))`, and to no other of the row. If nothing else gives to
d, its gradient is no tensor: the term goes on through `d(n,m) +=! X(n,k) * Z(m,k)`, to `X(n,k)` and
`Z(a_at(n),k)`, so that a pass over all pairs becomes one over their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce
from typing import assert_never, cast

from msgspec.structs import replace

from tcsym.differentiate.algebra import (
    Subscript,
    both,
    compared,
    converted,
    exactly,
    index_value,
    wide,
    with_indices,
    with_reads,
)
from tcsym.differentiate.chain import Contribution, contributions
from tcsym.differentiate.conditions import index_of
from tcsym.differentiate.names import Names
from tcsym.differentiate.terms import Term
from tcsym.differentiate.witness import Witness
from tcsym.frontend.program import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    IndexValue,
    Read,
    Statement,
    dtype_of,
    rebuilt,
    variables_of,
)
from tcsym.index.expr import (
    ZERO,
    Atom,
    Choose,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
    of_atom,
    var,
)
from tcsym.index.values import substitute
from tcsym.types import DType

Places = Mapping[str, Expr]  # of variables: what they are


class _Unknown(Exception):
    """A choice of indices."""


def won(
    term: Term, whole: Contribution, found: Witness, maps: Mapping[str, Statement], names: Names
) -> Term | None:
    """`term` at the point that won. whole: what that point gets, which has all. maps: definitions
    of tensors that are not given, by their names: their elements there are computed."""
    kept = tuple([r for r in term.domain if not r.reduced])
    if any((r.lower.variables() | r.upper.variables()) & found.winner.keys() for r in kept):
        return None
    known = {v: i for v, e in found.winner.items() if (i := index_of(e)) is not None}
    places = {v: e for v, e in found.winner.items() if v not in known}

    def at(e: Expr) -> Expr:
        return _at(with_indices(e, known), places)

    def subscript(e: Subscript) -> Subscript:
        return _subscript_at(substitute(e, known), places) if isinstance(e, Index) else at(e)

    try:
        return replace(
            term,
            subscripts=tuple(map(subscript, term.subscripts)),
            value=_computed(at(whole.gradient), maps, names),
            guard=both(found.exists, at(whole.guard)),
            domain=kept,
            given=(),
            alone=True,
        )
    except _Unknown:
        return None


def are_alone(terms: Collection[Term], shape: tuple[Index, ...]) -> bool:
    """Whether each of them has one element of a row, in all that a tensor of this shape gets.

    A row is a dimension whose extent is a symbol: of windows, which have few elements, the whole
    gradient is computed, in vectors.
    """
    return all(t.alone or (t.won is not None and _has_row(t, shape)) for t in terms)


def _has_row(term: Term, shape: tuple[Index, ...]) -> bool:
    whole = [
        var(r.variable)
        for r in term.domain
        if r.reduced and r.lower == ZERO and r.upper in shape and r.upper.as_int() is None
    ]
    return any(e in whole for e in term.subscripts)


def can_go_on(s: Statement) -> bool:
    """Whether terms at elements of its target go on through a statement one by one."""
    names = {r.variable for r in s.domain}
    plain = all(e.terms and str(e) in names for e in s.subscripts) and not s.scattered
    return plain and s.is_box and (s.op == "=" or (s.op == "+=" and s.initialise))


def through(
    s: Statement,
    term: Term,
    wanted: Callable[[Read], bool],
    names: Names,
    maps: Mapping[str, Statement],
) -> list[Term] | None:
    """What reads in `s` get of a term at an element of its target; None if that cannot be said.

    maps: as for `won`.
    """
    term = term if term.alone else cast(Term, term.won)
    taken = {r.variable for r in term.domain}
    old = [r for r in s.domain if r.reduced]
    called = [names.fresh(r.variable) if r.variable in taken else r.variable for r in old]
    reduced = tuple([replace(r, variable=v) for r, v in zip(old, called)])
    moved = {r.variable: var(v) for r, v in zip(old, called)}
    try:
        value = _element(with_indices(wide(s.value), moved), s, term.subscripts, names)
        gradient = converted(term.value, dtype_of(value))
        return [
            replace(
                term,
                tensor=c.read.tensor,
                subscripts=c.read.subscripts,
                value=_computed(c.times(times).gradient, maps, names),
                guard=_computed(both(term.guard, c.guard), maps, names),
                domain=(*term.domain, *reduced),
            )
            for c, times in Counter(contributions(value, gradient, value, wanted)).items()
        ]
    except _Unknown:
        return None


def _element(value: Expr, s: Statement, subscripts: Sequence[Subscript], names: Names) -> Expr:
    """A value that `s` has at an element of its target."""
    # first names of their own: a variable there may be called as one of the statement
    fresh = {str(e): var(names.fresh(str(e))) for e in s.subscripts}
    at = dict(zip([str(v) for v in fresh.values()], subscripts))
    plain = {v: e for v, e in at.items() if isinstance(e, Index)}
    found = {v: e for v, e in at.items() if not isinstance(e, Index)}
    return _at(with_indices(with_indices(value, fresh), plain), found)


def _computed(e: Expr, maps: Mapping[str, Statement], names: Names) -> Expr:
    """`e`, in which no tensor is read at one place for which all of it would be computed."""

    def read(r: Read) -> Expr:
        s = maps.get(r.tensor)
        if s is None or all(isinstance(x, Index) for x in r.subscripts):
            return r
        return with_reads(converted(_element(s.value, s, r.subscripts, names), r.dtype), read)

    return with_reads(e, read)


# ---- variables replaced by values that are read


def _at(e: Expr, places: Places) -> Expr:
    if not variables_of(e) & places.keys():
        return e
    match e:
        case IndexValue(i, dtype):
            return converted(compared(_value(i, places)), dtype)
        case Read(_, subscripts):
            return replace(e, subscripts=tuple([_subscript_at(x, places) for x in subscripts]))
    return rebuilt(e, lambda x: _at(x, places))


def _subscript_at(e: Subscript, places: Places) -> Subscript:
    if not isinstance(e, Index):
        return _at(e, places)
    return e if not e.variables() & places.keys() else exactly(_value(e, places))


def _value(e: Index, places: Places) -> Expr:
    """An index expression as a value; what no place is in stays one."""
    moved = [(a, k) for a, k in e.terms if of_atom(a).variables() & places.keys()]
    rest = e - sum([of_atom(a) * k for a, k in moved], ZERO)
    found: Expr | None = None
    for atom, factor in moved:
        one = _atom(atom, places)
        if factor != 1:
            one = _operation("mul", Const(factor, dtype_of(one)), one)
        found = one if found is None else _operation("add", found, one)
    if found is None:
        return index_value(rest)
    return found if rest == ZERO else _operation("add", index_value(rest), found)


def _atom(atom: Atom, places: Places) -> Expr:
    match atom:
        case str():
            return places.get(atom) or index_value(var(atom))
        case FloorDiv(a, b):
            return _operation("div", _value(a, places), _value(b, places))
        case Mod(a, b):
            return _operation("mod", _value(a, places), _value(b, places))
        case Min(args) | Max(args):
            op: BinaryOp = "min" if isinstance(atom, Min) else "max"
            return reduce(partial(_operation, op), [_value(x, places) for x in args])
        case Product(factors):
            return reduce(partial(_operation, "mul"), [_atom(x, places) for x in factors])
        case Choose():
            raise _Unknown
        case _:
            assert_never(atom)


def _operation(op: BinaryOp, a: Expr, b: Expr) -> Expr:
    dtype = DType.INT64 if DType.INT64 in (dtype_of(a), dtype_of(b)) else DType.INT32
    return Binary(op, converted(a, dtype), converted(b, dtype), dtype)
