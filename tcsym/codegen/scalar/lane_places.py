# SPDX-License-Identifier: Apache-2.0
"""Lanes at places that are known while code is made, and quotients that are one for all of them."""

from __future__ import annotations

from math import gcd

from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import atom_variables
from tcsym.index.expr import Atom, FloorDiv, Index, floordiv, of_atom
from tcsym.index.values import evaluate


def steady(context: Context, e: Index) -> Index:
    """`e` without lanes in quotients that they leave the same: (64*i + lane)/128 is i/2."""
    for atom, c in e.terms:
        if isinstance(atom, FloorDiv) and context.lane_variable in atom_variables(atom):
            e = e + (_same_quotient(context, atom) - of_atom(atom)) * c
    return e


def _same_quotient(context: Context, atom: FloorDiv) -> Index:
    """floor((g*q + r)/(g*m)) is floor((q + floor(r/g))/m), if floor(r/g) is one for all lanes."""
    divisor, dividend = atom.divisor.as_int(), atom.dividend
    if divisor is None or divisor <= 0:
        return of_atom(atom)
    inside = {t: known_places(context, (t,)) for t in dividend.terms}
    known = Index(tuple(t for t in dividend.terms if inside[t] is not None), dividend.constant)
    rest = dividend - known
    step = gcd(divisor, *(c for _, c in rest.terms))
    places = known_places(context, known.terms)
    assert places is not None
    steps = {(p + known.constant) // step for p in places}
    return floordiv(rest + steps.pop() * step, divisor) if len(steps) == 1 else of_atom(atom)


def known_places(context: Context, terms: tuple[tuple[Atom, int], ...]) -> tuple[int, ...] | None:
    """Where each lane lies by these terms, if only unrolled loops and the lane move them."""
    lane, values = context.lane_variable, dict[str, int]()
    for name in frozenset[str]().union(*(atom_variables(atom) for atom, _ in terms)):
        if name != lane:
            bound = context.variables.get(name)
            if bound is None or bound.text is not None:
                return None
            values[name] = bound.offset
    if lane is None:
        return None
    e = Index(terms, 0)
    return tuple(evaluate(e, {**values, lane: k}) for k in range(context.width))
