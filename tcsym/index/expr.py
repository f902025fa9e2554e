# SPDX-License-Identifier: Apache-2.0
"""Integer index expressions and conditions: the one integer language of all stages.

An `Index` is a linear combination with integer coefficients of atoms; an atom is a variable
(a size, an index or loop variable, a stride), a product, a floored quotient or remainder, a
minimum, a maximum, or a choice. Values are exact integers (the machine computes them in 64 bits).
Constructors normalise, so structural equality decides many equalities; anything deeper is asked of
isl (`tcsym.index.presburger`).

Example: `2*var("i") + floordiv(var("N"), 4) - 1` prints as `2*i + N/4 - 1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, assert_never

from msgspec import Struct


class _Kept:
    """Of an atom: its text once it was wanted, as it is hundreds of times in a kernel."""

    __slots__ = ("_text",)
    _text: str


class Product(_Kept, Struct, frozen=True, cache_hash=True):
    """Product of two or more atoms, sorted by text."""

    factors: tuple[Atom, ...]


class FloorDiv(_Kept, Struct, frozen=True, cache_hash=True):
    """floor(dividend / divisor); 0 where the divisor is 0."""

    dividend: Index
    divisor: Index


class Mod(_Kept, Struct, frozen=True, cache_hash=True):
    """dividend - divisor * floor(dividend / divisor); 0 where the divisor is 0."""

    dividend: Index
    divisor: Index


class Min(_Kept, Struct, frozen=True, cache_hash=True):
    args: tuple[Index, ...]


class Max(_Kept, Struct, frozen=True, cache_hash=True):
    args: tuple[Index, ...]


class Choose(_Kept, Struct, frozen=True, cache_hash=True):
    """`then` where `condition` holds, else `orelse`."""

    condition: Condition
    then: Index
    orelse: Index


Atom = str | Product | FloorDiv | Mod | Min | Max | Choose
_keep_text: Callable[[_Kept, str], None] = vars(_Kept)["_text"].__set__


class _KeptOfIndex(_Kept):
    """Of an index expression: its variables, too."""

    __slots__ = ("_variables",)
    _variables: frozenset[str]


class Index(_KeptOfIndex, Struct, frozen=True, cache_hash=True):
    """sum(coefficient * atom) + constant; `terms` sorted by the atom's text, none is zero."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Made again: hashes of names differ from process to process."""
        return _shared, (self.terms, self.constant)

    def __add__(self, other: Index | int) -> Index:
        if not isinstance(other, Index):
            other = index(other)
        if not other.terms:
            return _shared(self.terms, self.constant + other.constant)
        if not self.terms:
            return _shared(other.terms, self.constant + other.constant)
        sums = dict(self.terms)
        for atom, c in other.terms:
            sums[atom] = sums.get(atom, 0) + c
        return _linear(sums, self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self._scaled(-1)

    def __sub__(self, other: Index | int) -> Index:
        if not isinstance(other, Index):
            other = index(other)
        if not other.terms:
            return _shared(self.terms, self.constant - other.constant)
        return weighted_sum(((self, 1), (other, -1)))

    def __rsub__(self, other: Index | int) -> Index:
        return index(other) - self

    def __mul__(self, other: Index | int) -> Index:
        if not isinstance(other, Index):
            other = index(other)
        if not other.terms:
            return self._scaled(other.constant)
        if not self.terms:
            return other._scaled(self.constant)
        return _product(self, other)

    __rmul__ = __mul__

    def _scaled(self, n: int) -> Index:
        if n == 0:
            return ZERO
        if n == 1:
            return self
        return _shared(tuple([(a, c * n) for a, c in self.terms]), self.constant * n)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def as_int(self) -> int | None:
        """The value if it is known, else None."""
        return None if self.terms else self.constant

    def is_multiple(self, n: int) -> bool:
        """So it looks, whatever its atoms are."""
        return self.constant % n == 0 and all(c % n == 0 for _, c in self.terms)

    def coefficient(self, atom: Atom) -> int:
        return next((c for a, c in self.terms if a == atom), 0)

    def variables(self) -> frozenset[str]:
        """Names of all variables, also those inside quotients, minima and conditions."""
        try:
            return self._variables
        except AttributeError:
            for e in _inside_out(self, "_variables"):
                found = frozenset[str]().union(*[_atom_variables(a) for a, _ in e.terms])
                _set_variables(e, found)
            return self._variables

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            for e in _inside_out(self, "_text"):
                _keep_text(e, _sum_text(e))
            return self._text


def _inside_out(e: Index, slot: str) -> Iterator[Index]:
    """All in the expression that does not have this yet, and it last: what was loaded nests deeper
    than calls may."""
    levels = [[e]]
    while levels[-1]:
        atoms = (a for x in levels[-1] for a, _ in x.terms if not isinstance(a, str))
        parts = {id(p): p for a in atoms for p in atom_parts(a) if not hasattr(p, slot)}
        levels.append(list(parts.values()))
    return chain.from_iterable(reversed(levels))


# The setter of the slot, for Index is frozen. The text is kept because terms are sorted by it.
_set_variables: Callable[[Index, frozenset[str]], None] = vars(_KeptOfIndex)["_variables"].__set__


_MOST_SHARED = 1 << 16
_made: dict[tuple[tuple[tuple[Atom, int], ...], int], Index] = {}


def _shared(terms: tuple[tuple[Atom, int], ...], constant: int) -> Index:
    """The expression, as the object made before if there is one: equal ones are then compared and
    hashed by identity, and know their variables and text. (So long as not too many are kept.)
    """
    key = (terms, constant)
    known = _made.get(key)
    if known is None:
        if len(_made) >= _MOST_SHARED:
            _made.clear()
        known = _made[key] = Index(terms, constant)
    return known


def index(value: Index | int) -> Index:
    return value if isinstance(value, Index) else _shared((), int(value))


def var(name: str) -> Index:
    return _shared(((name, 1),), 0)


ZERO = index(0)
ONE = index(1)


def of_atom(atom: Atom) -> Index:
    return _shared(((atom, 1),), 0)


def weighted_sum(parts: Iterable[tuple[Index, int]], constant: int = 0) -> Index:
    """constant + sum(expression * weight), normalised once."""
    sums: dict[Atom, int] = {}
    for e, n in parts:
        constant += e.constant * n
        for atom, c in e.terms:
            sums[atom] = sums.get(atom, 0) + c * n
    return _linear(sums, constant)


def _linear(sums: Mapping[Atom, int], constant: int) -> Index:
    kept = [(a, c) for a, c in sums.items() if c]
    if len(kept) > 1:
        kept.sort(key=_term_text)
    return _shared(tuple(kept), constant)


def _term_text(term: tuple[Atom, int]) -> str:
    return atom_text(term[0])


def _product(a: Index, b: Index) -> Index:
    sums: dict[Atom, int] = {}
    constant = 0
    left: list[tuple[Atom | None, int]] = [*a.terms, *([(None, a.constant)] if a.constant else [])]
    right: list[tuple[Atom | None, int]] = [*b.terms, *([(None, b.constant)] if b.constant else [])]
    for x, cx in left:
        for y, cy in right:
            factors = [f for z in (x, y) if z is not None for f in factors_of(z)]
            if not factors:
                constant += cx * cy
                continue
            atom = (
                factors[0] if len(factors) == 1 else Product(tuple(sorted(factors, key=atom_text)))
            )
            sums[atom] = sums.get(atom, 0) + cx * cy
    return _linear(sums, constant)


def factors_of(atom: Atom) -> tuple[Atom, ...]:
    return atom.factors if isinstance(atom, Product) else (atom,)


def floordiv(a: Index | int, b: Index | int) -> Index:
    """floor(a / b), 0 where b is 0."""
    a, b = index(a), index(b)
    n = b.as_int()
    if n is None:
        return of_atom(FloorDiv(a, b))
    if n == 0:
        return ZERO
    if n < 0:
        return floordiv(-a, -n)
    if n == 1:
        return a
    whole = {t: c // n for t, c in a.terms if c % n == 0}
    rest = tuple((t, c) for t, c in a.terms if c % n)
    quotient, remainder = divmod(a.constant, n)
    base = _linear(whole, quotient)
    if not rest:
        return base
    g = math.gcd(n, *(c for _, c in rest))
    if g > 1:  # floor((g*x + r) / (g*m)) = floor((x + floor(r/g)) / m)
        rest, remainder, n = tuple((t, c // g) for t, c in rest), remainder // g, n // g
    return base + of_atom(FloorDiv(_shared(rest, remainder), index(n)))


def ceildiv(a: Index | int, n: Index | int) -> Index:
    """ceil(a / n) for a positive n."""
    return floordiv(index(a) + n - 1, n)


def mod(a: Index | int, b: Index | int) -> Index:
    """a - b*floor(a/b), 0 where b is 0."""
    a, b = index(a), index(b)
    n = b.as_int()
    if n is None:
        return of_atom(Mod(a, b))
    return ZERO if n == 0 else a - floordiv(a, n) * n


def minimum(*args: Index | int) -> Index:
    return _extremum(Min, [index(a) for a in args], lambda d: d <= 0)


def maximum(*args: Index | int) -> Index:
    return _extremum(Max, [index(a) for a in args], lambda d: d >= 0)


def _extremum(kind: type[Min] | type[Max], args: list[Index], wins: Callable[[int], bool]) -> Index:
    flat: list[Index] = []
    for a in dict.fromkeys(args):
        inner = a.terms[0][0] if len(a.terms) == 1 else None
        nested = isinstance(inner, kind) and a.terms[0][1] == 1
        for x in (
            [y + a.constant for y in inner.args] if nested and isinstance(inner, Min | Max) else [a]
        ):
            known = [(k, (x - y).as_int()) for k, y in enumerate(flat)]
            close = [(k, d) for k, d in known if d is not None]
            if not close:
                flat.append(x)
            elif wins(close[0][1]):
                flat[close[0][0]] = x
    if len(flat) == 1:
        return flat[0]
    return of_atom(kind(tuple(sorted(flat, key=str))))


def choose(condition: Condition, then: Index | int, orelse: Index | int) -> Index:
    then, orelse = index(then), index(orelse)
    if condition == TRUE or then == orelse:
        return then
    if condition == FALSE:
        return orelse
    return of_atom(Choose(condition, then, orelse))


# ---- conditions


class NonNegative(Struct, frozen=True):
    """index >= 0"""

    index: Index


class IsZero(Struct, frozen=True):
    """index == 0"""

    index: Index


class Not(Struct, frozen=True):
    condition: Condition


class All(Struct, frozen=True):
    """Conjunction; empty: true."""

    conditions: tuple[Condition, ...]


class Any_(Struct, frozen=True):
    """Disjunction; empty: false."""

    conditions: tuple[Condition, ...]


Condition = NonNegative | IsZero | Not | All | Any_
TRUE = All(())
FALSE = Any_(())


def ge(a: Index | int, b: Index | int) -> Condition:
    d = index(a) - b
    return NonNegative(d) if d.terms else (TRUE if d.constant >= 0 else FALSE)


def lt(a: Index | int, b: Index | int) -> Condition:
    return ge(index(b) - 1, a)


def eq(a: Index | int, b: Index | int) -> Condition:
    d = index(a) - b
    return IsZero(d) if d.terms else (TRUE if d.constant == 0 else FALSE)


def negate(c: Condition) -> Condition:
    match c:
        case NonNegative(i):
            return ge(-i, 1)
        case Not(inner):
            return inner
        case All(cs):
            return any_of(negate(x) for x in cs)
        case Any_(cs):
            return all_of(negate(x) for x in cs)
        case IsZero():
            return Not(c)
        case _:
            assert_never(c)


def all_of(conditions: Iterable[Condition]) -> Condition:
    return _joined(All, FALSE, conditions)


def any_of(conditions: Iterable[Condition]) -> Condition:
    return _joined(Any_, TRUE, conditions)


def _joined(
    kind: type[All] | type[Any_], decisive: Condition, conditions: Iterable[Condition]
) -> Condition:
    flat: dict[Condition, None] = {}
    for c in conditions:
        if c == decisive:
            return c
        flat.update(dict.fromkeys(c.conditions if isinstance(c, kind) else (c,)))
    kept = tuple(flat)
    return kept[0] if len(kept) == 1 else kind(kept)


# ---- traversal


def atom_parts(atom: Atom) -> tuple[Index, ...]:
    """The expressions that an atom is made of; none of a variable."""
    match atom:
        case str():
            return ()
        case Product(factors):
            return tuple(of_atom(f) for f in factors)
        case FloorDiv(a, b) | Mod(a, b):
            return a, b
        case Min(args) | Max(args):
            return args
        case Choose(c, a, b):
            return (*condition_parts(c), a, b)
        case _:
            assert_never(atom)


def condition_parts(c: Condition) -> tuple[Index, ...]:
    """The expressions that a condition compares."""
    match c:
        case NonNegative(i) | IsZero(i):
            return (i,)
        case Not(inner):
            return condition_parts(inner)
        case All(cs) | Any_(cs):
            return tuple(i for x in cs for i in condition_parts(x))
        case _:
            assert_never(c)


def _atom_variables(atom: Atom) -> frozenset[str]:
    if isinstance(atom, str):
        return frozenset((atom,))
    return frozenset[str]().union(*(i.variables() for i in atom_parts(atom)))


def condition_variables(c: Condition) -> frozenset[str]:
    return frozenset[str]().union(*(i.variables() for i in condition_parts(c)))


# ---- text


def atom_text(atom: Atom) -> str:
    if isinstance(atom, str):
        return atom
    try:
        return atom._text
    except AttributeError:
        text = _text_of(atom)
        _keep_text(atom, text)
        return text


def _text_of(atom: Product | FloorDiv | Mod | Min | Max | Choose) -> str:
    match atom:
        case Product(factors):
            return "*".join(_factor_text(f) for f in factors)
        case FloorDiv(a, b):
            return f"{_operand_text(a)}/{_operand_text(b)}"
        case Mod(a, b):
            return f"{_operand_text(a)}%{_operand_text(b)}"
        case Min(args):
            return f"min({', '.join(map(str, args))})"
        case Max(args):
            return f"max({', '.join(map(str, args))})"
        case Choose(c, a, b):
            from tcsym.index.text import condition_text  # which is made of these

            return f"({condition_text(c)} ? {a} : {b})"
        case _:
            assert_never(atom)


def _factor_text(atom: Atom) -> str:
    text = atom_text(atom)
    return f"({text})" if isinstance(atom, FloorDiv | Mod) else text


def _operand_text(e: Index) -> str:
    atom = e.terms[0][0] if e.terms else None
    simple = atom is None or (isinstance(atom, str) and e == var(atom))
    return str(e) if simple else f"({e})"


def _sum_text(e: Index) -> str:
    # sizes and variables before quotients, positive terms first: N - K + 1, not - K + N + 1
    terms = sorted(e.terms, key=lambda t: (t[1] < 0,))
    out = ""
    for atom, c in terms:
        text = atom_text(atom)
        if isinstance(atom, FloorDiv | Mod) and (abs(c) != 1 or (c < 0 and not out)):
            text = f"({text})"  # -(i/2) is not (-i)/2
        body = text if abs(c) == 1 else f"{abs(c)}*{text}"
        out += (" - " if c < 0 else " + ") + body if out else ("-" if c < 0 else "") + body
    if e.constant or not out:
        out += f" {'-' if e.constant < 0 else '+'} {abs(e.constant)}" if out else str(e.constant)
    return out
