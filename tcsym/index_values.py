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
    maximum,
    minimum,
    mod,
    negate,
    of_atom,
    weighted_sum,
)

Values = Mapping[str, Index]


def substitute(e: Index, values: Values) -> Index:
    """`e` with variables replaced, normalised again."""
    if not e.terms or not any(v in values for v in e.variables()):
        return e
    return map_atoms(e, lambda atom: values.get(atom) if isinstance(atom, str) else None)


def map_atoms(e: Index, f: Callable[[Atom], Index | None]) -> Index:
    """`e` with what `f` has for an atom in its place, normalised again; None: look inside."""
    return weighted_sum([(_mapped_atom(atom, f), c) for atom, c in e.terms], e.constant)


def _mapped_atom(atom: Atom, f: Callable[[Atom], Index | None]) -> Index:
    found = f(atom)
    if found is not None:
        return found
    match atom:
        case str():
            return of_atom(atom)
        case Product(factors):
            return reduce(lambda a, b: a * b, (_mapped_atom(x, f) for x in factors))
        case FloorDiv(a, b):
            return floordiv(map_atoms(a, f), map_atoms(b, f))
        case Mod(a, b):
            return mod(map_atoms(a, f), map_atoms(b, f))
        case Min(args):
            return minimum(*(map_atoms(a, f) for a in args))
        case Max(args):
            return maximum(*(map_atoms(a, f) for a in args))
        case Choose(c, a, b):
            condition = map_condition(c, lambda i: map_atoms(i, f))
            return choose(condition, map_atoms(a, f), map_atoms(b, f))
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


def evaluate(e: Index, values: Mapping[str, int], found: dict[Index, int] | None = None) -> int:
    """Exact value of `e`; KeyError for an unbound variable.

    found: parts that were evaluated before with the same values; expressions repeat theirs.
    """
    found = {} if found is None else found
    value = found.get(e)
    if value is None:
        value = e.constant + sum([c * _atom_evaluate(a, values, found) for a, c in e.terms])
        found[e] = value
    return value


def _atom_evaluate(atom: Atom, values: Mapping[str, int], found: dict[Index, int]) -> int:
    match atom:
        case str():
            return values[atom]
        case Product(factors):
            return math.prod([_atom_evaluate(f, values, found) for f in factors])
        case FloorDiv(a, b):
            divisor = evaluate(b, values, found)
            return evaluate(a, values, found) // divisor if divisor else 0
        case Mod(a, b):
            divisor = evaluate(b, values, found)
            return evaluate(a, values, found) % divisor if divisor else 0
        case Min(args):
            return min([evaluate(a, values, found) for a in args])
        case Max(args):
            return max([evaluate(a, values, found) for a in args])
        case Choose(c, a, b):
            return evaluate(a if holds(c, values, found) else b, values, found)
        case _:
            assert_never(atom)


def holds(c: Condition, values: Mapping[str, int], found: dict[Index, int] | None = None) -> bool:
    """Truth of `c`; conjunctions and disjunctions stop early. `found`: as in `evaluate`."""
    match c:
        case NonNegative(i):
            return evaluate(i, values, found) >= 0
        case IsZero(i):
            return evaluate(i, values, found) == 0
        case Not(inner):
            return not holds(inner, values, found)
        case All(cs):
            return all(holds(x, values, found) for x in cs)
        case Any_(cs):
            return any(holds(x, values, found) for x in cs)
        case _:
            assert_never(c)
