# SPDX-License-Identifier: Apache-2.0
"""Values as sums of products, to see which terms of a gradient are 0 whatever the inputs.

What shifts a softmax by its largest element, or sums differences from a mean, gets a gradient that
is exactly 0: only rounding makes another number of it. To find out, values are expanded to sums of
products of powers, through temporaries down to inputs and calls of functions. Sums are products of
what their variables do not move and a sum of the rest, so that `s(n) +=! E(n,d)` and the sum over
d of `E(n,d) / s(n)` meet. Nothing is computed in this form: the statements stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct, field

from tcsym.differentiate.algebra import compared, with_indices
from tcsym.differentiate.terms import Sum
from tcsym.frontend.program import (
    Binary,
    Cast,
    Const,
    Expr,
    Given,
    IndexValue,
    Item,
    Range,
    Read,
    Select,
    Statement,
    Unary,
    dtype_of,
    statements,
    variables_of,
)
from tcsym.index.expr import TRUE, ZERO, Index, Product, var
from tcsym.index.values import substitute
from tcsym.trees import Steps, leaves, walked

_MOST_TERMS = 64  # a value of more is left alone


class _Total(Struct, frozen=True):
    """The sum of a product over ranges, whose variables have names of their own."""

    ranges: tuple[_Ends, ...]
    factors: Factors
    depth: int


class _Inverse(Struct, frozen=True):
    """One over a sum."""

    of: frozenset[tuple[Factors, Fraction]]


class _Holds(Struct, frozen=True):
    """1 where a condition holds, else 0."""

    condition: Expr


_End = Expr | Index  # what reads tensors, or is of indices
_Ends = tuple[str, _End, _End]  # a summed variable, and its range
Atom = Expr | Index | _Total | _Inverse | _Holds
Factors = frozenset[tuple[Atom, int]]  # with their powers
Terms = dict[Factors, Fraction]
_ONE: Factors = frozenset()
_OPERATIONS = ("add", "sub", "mul", "div")


class _Unknown(Exception):
    """A value that is no short sum of products."""


class Forms(Struct):
    """What is known of tensors: the variables that subscript one, and its elements' terms."""

    statements: dict[str, Statement]
    known: dict[str, tuple[tuple[str, ...], Terms] | None] = field(default_factory=dict)

    def vanish(self, sums: Sequence[Sum]) -> bool:
        """True if together they are 0."""
        try:
            return not self._sum_of(sums, None)[1]
        except _Unknown:
            return False

    def define(self, name: str, sums: Sequence[Sum], base: Read | None) -> bool:
        """True if the tensor that is the sum of all is 0; else it is known from now on."""
        try:
            variables, terms = self._sum_of(sums, base)
        except _Unknown:
            return False
        self.known[name] = variables, terms
        return not terms

    def _sum_of(self, sums: Sequence[Sum], base: Read | None) -> tuple[tuple[str, ...], Terms]:
        if not sums:
            raise _Unknown
        variables = tuple([f"${k}" for k in range(len(sums[0].left))])
        total: Terms = {}
        if base is not None:
            left = tuple(map(var, variables))
            total = self.of(Read(base.tensor, left, base.dtype))
        for s in sums:
            if s.fixed or not s.whole or s.loops or s.when != TRUE:
                raise _Unknown
            given = s.left, s.domain, s.value, variables, s.given
            total = _added(total, self._of_statement(*given))
        return variables, total

    def _of_statement(
        self,
        left: Sequence[Index],
        domain: Sequence[Range],
        value: Expr,
        variables: Sequence[str],
        given: Sequence[Given],
    ) -> Terms:
        names = [str(e) for e in left]
        plain = {r.variable for r in domain if not r.reduced}
        if any(r.at is not None for r in domain) or set(names) != plain or len(plain) < len(names):
            raise _Unknown
        called = {n: var(v) for n, v in zip(names, variables)}
        ends = {g.name: compared(g.value) for g in given}
        terms = _summed(self.of(value), [_ends_of(r, ends) for r in domain if r.reduced])
        return _substituted(terms, called)

    def _of_tensor(self, name: str) -> tuple[tuple[str, ...], Terms] | None:
        if name not in self.known:
            self.known[name] = None
            s = self.statements.get(name)
            if s is not None:
                variables = tuple([f"${k}" for k in range(len(s.subscripts))])
                try:
                    whole = s.subscripts, s.domain, s.value, variables, s.given
                    terms = self._of_statement(*whole)
                    self.known[name] = variables, terms
                except _Unknown:
                    pass
        return self.known[name]

    def of(self, e: Expr) -> Terms:
        """Of a value of a floating type."""
        return walked(self._of(e))

    def _of(self, e: Expr) -> Steps[Terms]:
        match e:
            case Const(value, _) if abs(value) < float("inf"):
                return _number(Fraction(value))
            case IndexValue(i, _):
                return _of_index(i)
            case Cast(x, _) if dtype_of(x).is_float or _is_of_indices(x):
                return (yield self._of(x))
            case Unary("neg", x, _):
                return _times((yield self._of(x)), _number(Fraction(-1)))
            case Binary(op, a, b, dtype) if op in _OPERATIONS and (
                dtype.is_float or (op != "div" and _is_of_indices(e))
            ):
                left = yield self._of(a)
                right = yield self._of(b)
                match op:
                    case "add":
                        return _added(left, right)
                    case "sub":
                        return _added(left, _times(right, _number(Fraction(-1))))
                    case "mul":
                        return _times(left, right)
                    case _:
                        return _times(left, _inverse(right))
            case Select(c, a, b, _):
                here: Terms = {frozenset([(_Holds(c), 1)]): Fraction(1)}
                other = yield self._of(b)
                less = _times(other, _number(Fraction(-1)))
                return _added(_times(here, _added((yield self._of(a)), less)), other)
            case Read(tensor, subscripts):
                known = self._of_tensor(tensor)
                plain = [i for i in subscripts if isinstance(i, Index)]
                if known is not None and len(plain) == len(subscripts):
                    return _substituted(known[1], dict(zip(known[0], plain)))
        return {frozenset([(e, 1)]): Fraction(1)}


def forms_of(items: Iterable[Item]) -> Forms:
    """items: single assignment. Known is what one statement outside of loops defines."""
    items = tuple(items)
    found: dict[str, Statement] = {}
    count: dict[str, int] = {}
    for s in statements(items):
        count[s.target] = count.get(s.target, 0) + 1
    for item in items:
        if isinstance(item, Statement) and count[item.target] == 1:
            found |= {item.target: item} if item.op in ("=", "+=") else {}
    return Forms(found)


def _is_of_indices(e: Expr) -> bool:
    return all(isinstance(x, IndexValue | Const) for x in leaves(e, _terms))


def _terms(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Binary("add" | "sub" | "mul", a, b):
            return a, b
    return ()


# ---- sums of products


def _number(value: Fraction) -> Terms:
    return {_ONE: value} if value else {}


def _of_index(i: Index) -> Terms:
    total = _number(Fraction(i.constant))
    for atom, factor in i.terms:
        parts = atom.factors if isinstance(atom, Product) else (atom,)
        product = _number(Fraction(factor))
        for p in parts:
            own = var(p) if isinstance(p, str) else Index(((p, 1),), 0)
            product = _times(product, {frozenset([(own, 1)]): Fraction(1)})
        total = _added(total, product)
    return total


def _added(a: Terms, b: Terms) -> Terms:
    total = dict(a)
    for factors, c in b.items():
        c += total.pop(factors, 0)
        if c:
            total[factors] = c
    if len(total) > _MOST_TERMS:
        raise _Unknown
    return total


def _product(a: Factors, b: Factors) -> Factors:
    powers = dict(a)
    for atom, power in b:
        power += powers.pop(atom, 0)
        if isinstance(atom, _Holds):
            power = 1
        if power:
            powers[atom] = power
    return frozenset(powers.items())


def _times(a: Terms, b: Terms) -> Terms:
    total: Terms = {}
    for left, c in a.items():
        for right, d in b.items():
            total = _added(total, {_product(left, right): c * d})
    return total


def _inverse(a: Terms) -> Terms:
    if len(a) == 1:
        ((factors, c),) = a.items()
        if not any(isinstance(atom, _Holds) for atom, _ in factors):
            return {frozenset([(atom, -power) for atom, power in factors]): 1 / c}
    if not a:
        raise _Unknown
    return {frozenset([(_Inverse(frozenset(a.items())), 1)]): Fraction(1)}


def _ends_of(r: Range, given: Mapping[str, Expr]) -> _Ends:
    """given: ends that read tensors, by their names."""

    def end(e: Index) -> _End:
        names = e.variables() & given.keys()
        if names and e != var(next(iter(names))):
            raise _Unknown
        return given[str(e)] if names else e

    return r.variable, end(r.lower), end(r.upper)


def _summed(terms: Terms, ranges: Sequence[_Ends]) -> Terms:
    if not ranges:
        return terms
    total: Terms = {}
    bounding = {v for _, *ends in ranges for e in ends for v in variables_of(e)}
    for factors, c in terms.items():
        # how many points a range has that reads a tensor is a sum of its own
        plain = [r for r in ranges if isinstance(r[1], Index) and isinstance(r[2], Index)]
        counts = [r for r in plain if not _moves(r[0], factors) and r[0] not in bounding]
        found = _total(factors, [r for r in ranges if r not in counts])
        for _, lower, upper in counts:
            assert isinstance(upper, Index)
            if lower != ZERO or upper.constant < 0 or len(upper.terms) > 1:
                raise _Unknown  # it may be empty, and then be no number of points
            found = _times(found, _of_index(upper))
        total = _added(total, _times(found, _number(c)))
    return total


def _moves(variable: str, factors: Factors) -> bool:
    return any(variable in _variables(atom) for atom, _ in factors)


def _total(factors: Factors, ranges: Sequence[_Ends]) -> Terms:
    if not ranges:
        return {factors: Fraction(1)}
    names = {v for v, _, _ in ranges}
    inside = frozenset([f for f in factors if _variables(f[0]) & names])
    depth = 1 + max([atom.depth for atom, _ in inside if isinstance(atom, _Total)], default=0)
    summed = list(ranges)
    own = _ONE
    for atom, power in inside:
        if isinstance(atom, _Total) and power == 1:  # a sum of sums is one
            summed += atom.ranges
            own = _product(own, atom.factors)
        else:
            own = _product(own, frozenset([(atom, power)]))
    summed.sort(key=lambda r: _appearance(r[0], [v for v, _, _ in summed], own))
    called = {v: var(f"#{depth}.{k}") for k, (v, _, _) in enumerate(summed)}
    ends = [(str(called[v]), _end_at(a, called), _end_at(b, called)) for v, a, b in summed]
    own = frozenset([(_with(atom, called), power) for atom, power in own])
    made: Atom = _Total(tuple(ends), own, depth)
    return {_product(factors - inside, frozenset([(made, 1)])): Fraction(1)}


def _end_at(e: _End, values: Mapping[str, Index]) -> _End:
    return substitute(e, values) if isinstance(e, Index) else with_indices(e, values)


def _appearance(variable: str, summed: Sequence[str], factors: Factors) -> list[str]:
    """Where a summed variable stands, whatever it and the others are called."""
    values = {v: var("#" if v == variable else "_") for v in summed}
    return sorted(
        f"{_with(atom, values)!r} {power}"
        for atom, power in factors
        if variable in _variables(atom)
    )


def _variables(atom: Atom) -> frozenset[str]:
    match atom:
        case Index():
            return frozenset(atom.variables())
        case _Total(ranges, factors):
            used = [_variables(a) for a, _ in factors]
            used += [variables_of(e) for _, a, b in ranges for e in (a, b)]
            return frozenset[str]().union(*used) - {v for v, _, _ in ranges}
        case _Inverse(of):
            return frozenset[str]().union(*(_variables(a) for f, _ in of for a, _ in f))
        case _Holds(condition):
            return frozenset(variables_of(condition))
    return frozenset(variables_of(atom))


def _with(atom: Atom, values: Mapping[str, Index]) -> Atom:
    match atom:
        case Index():
            return substitute(atom, values)
        case _Total(ranges, factors, depth):
            ends = [(v, _end_at(a, values), _end_at(b, values)) for v, a, b in ranges]
            own = frozenset([(_with(a, values), power) for a, power in factors])
            return _Total(tuple(ends), own, depth)
        case _Inverse(of):
            return _Inverse(frozenset(_substituted(dict(of), values).items()))
        case _Holds(condition):
            return _Holds(with_indices(condition, values))
    return with_indices(atom, values)


def _substituted(terms: Terms, values: Mapping[str, Index]) -> Terms:
    total: Terms = {}
    for factors, c in terms.items():
        product = {_ONE: c}
        for atom, power in factors:
            product = _times(product, {frozenset([(_with(atom, values), power)]): Fraction(1)})
        total = _added(total, product)
    return total
