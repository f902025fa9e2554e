"""Index expressions and conditions with values for variables: other expressions, or numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import assert_never

from tcsym.index import (
    All,
    Any_,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
    all_of,
    any_of,
    choose,
    eq,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    mod,
    negate,
    of_atom,
)

Values = Mapping[str, Index]


def substitute(e: Index, values: Values) -> Index:
    """`e` with variables replaced, normalised again."""
    if not e.terms or not any(v in values for v in e.variables()):
        return e
    total = index(e.constant)
    for atom, c in e.terms:
        total = total + _atom_substitute(atom, values) * c
    return total


def _atom_substitute(atom: Atom, values: Values) -> Index:
    match atom:
        case str():
            return values.get(atom, of_atom(atom))
        case Product(factors):
            return reduce(lambda a, b: a * b, (_atom_substitute(f, values) for f in factors))
        case FloorDiv(a, b):
            return floordiv(substitute(a, values), substitute(b, values))
        case Mod(a, b):
            return mod(substitute(a, values), substitute(b, values))
        case Min(args):
            return minimum(*(substitute(a, values) for a in args))
        case Max(args):
            return maximum(*(substitute(a, values) for a in args))
        case Choose(c, a, b):
            return choose(
                condition_substitute(c, values), substitute(a, values), substitute(b, values)
            )
        case _:
            assert_never(atom)


def condition_substitute(c: Condition, values: Values) -> Condition:
    return map_condition(c, lambda i: substitute(i, values))


def map_condition(c: Condition, f: Callable[[Index], Index]) -> Condition:
    """`c` with `f` applied to every compared expression, normalised again."""
    match c:
        case NonNegative(i):
            return ge(f(i), 0)
        case IsZero(i):
            return eq(f(i), 0)
        case Not(inner):
            return negate(map_condition(inner, f))
        case All(cs):
            return all_of(map_condition(x, f) for x in cs)
        case Any_(cs):
            return any_of(map_condition(x, f) for x in cs)
        case _:
            assert_never(c)


def evaluate(e: Index, values: Mapping[str, int]) -> int:
    """Exact value of `e`; KeyError for an unbound variable."""
    return e.constant + sum(c * _atom_evaluate(a, values) for a, c in e.terms)


def _atom_evaluate(atom: Atom, values: Mapping[str, int]) -> int:
    match atom:
        case str():
            return values[atom]
        case Product(factors):
            return math.prod(_atom_evaluate(f, values) for f in factors)
        case FloorDiv(a, b):
            divisor = evaluate(b, values)
            return evaluate(a, values) // divisor if divisor else 0
        case Mod(a, b):
            divisor = evaluate(b, values)
            return evaluate(a, values) % divisor if divisor else 0
        case Min(args):
            return min(evaluate(a, values) for a in args)
        case Max(args):
            return max(evaluate(a, values) for a in args)
        case Choose(c, a, b):
            return evaluate(a if holds(c, values) else b, values)
        case _:
            assert_never(atom)


def holds(c: Condition, values: Mapping[str, int]) -> bool:
    """Truth of `c`; conjunctions and disjunctions stop early."""
    match c:
        case NonNegative(i):
            return evaluate(i, values) >= 0
        case IsZero(i):
            return evaluate(i, values) == 0
        case Not(inner):
            return not holds(inner, values)
        case All(cs):
            return all(holds(x, values) for x in cs)
        case Any_(cs):
            return any(holds(x, values) for x in cs)
        case _:
            assert_never(c)
