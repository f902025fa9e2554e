# SPDX-License-Identifier: Apache-2.0
"""Context of a variant: ranges and multiples of the sizes it serves; and what follows from it.

Code made for a context need not be right outside of it: whoever enters it has checked the sizes.
What follows is found by interval arithmetic (Moore: Interval Analysis, 1966), which may miss what
relates two sizes, and never claims what is not so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, assert_never

from msgspec import Struct, field

from tcsym.index.expr import (
    FALSE,
    TRUE,
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
    lt,
    maximum,
    minimum,
    mod,
    negate,
    of_atom,
    var,
)


class Known(NamedTuple):
    """What is known of a size: its least and largest value, and what it is a multiple of."""

    name: str
    low: int
    high: int | None
    step: int = 1


Context = tuple[Known, ...]  # (): all sizes


class Interval(Struct, frozen=True):
    """Least and largest value; None: unbounded."""

    low: int | None = None
    high: int | None = None

    @property
    def value(self) -> int | None:
        """The only value, if it is one."""
        return self.low if self.low == self.high else None


ANY = Interval()
Ranges = Mapping[str, Interval]


class Found(Struct, frozen=True):
    """What is known of expressions in certain ranges; it grows."""

    intervals: dict[Index, Interval] = field(default_factory=dict)
    simpler: dict[Index, Index] = field(default_factory=dict)


def ranges_of(context: Context) -> dict[str, Interval]:
    """From the first to the last multiple that is served."""
    return {
        name: Interval(-(-low // step) * step, None if high is None else high // step * step)
        for name, low, high, step in context
    }


def context_condition(context: Context) -> Condition:
    """Its ranges as a condition on sizes; multiples are for mapping (`polyhedral.multiples`)."""
    conditions = []
    for name, low, high, _ in context:
        conditions.append(ge(var(name), low))
        conditions += [] if high is None else [lt(var(name), high + 1)]
    return all_of(conditions)


# ---- values of expressions


def interval(e: Index, ranges: Ranges, found: dict[Index, Interval] | None = None) -> Interval:
    """Where the value of `e` lies; variables without a range may have any value.

    found: the intervals of parts that were asked for before with the same ranges.
    """
    found = {} if found is None else found
    if e not in found:
        found[e] = _sum_interval(e, ranges, found)
    return found[e]


def _sum_interval(e: Index, ranges: Ranges, found: dict[Index, Interval]) -> Interval:
    low: int | None = e.constant
    high: int | None = e.constant
    for atom, c in e.terms:
        part = _atom_interval(atom, ranges, found)
        ends = (part.low, part.high) if c > 0 else (part.high, part.low)
        low = None if low is None or ends[0] is None else low + c * ends[0]
        high = None if high is None or ends[1] is None else high + c * ends[1]
    return Interval(low, high)


def _atom_interval(atom: Atom, ranges: Ranges, found: dict[Index, Interval]) -> Interval:
    match atom:
        case str():
            return ranges.get(atom, ANY)
        case Product(factors):
            return _product([_atom_interval(f, ranges, found) for f in factors])
        case FloorDiv(a, b) if a == b:
            return Interval(int((interval(a, ranges, found).low or 0) > 0), 1)
        case FloorDiv(a, b):
            by, times = interval(b, ranges, found), _times(b, a) if b.terms else 0
            if times and by.low is not None and by.low > 0:  # (b + n - 1) / b: 1 + (n - 1) / b
                rest = _quotient(interval(a - b * times, ranges, found), by)
                return _plus(rest, times)
            return _quotient(interval(a, ranges, found), by)
        case Mod(_, b):
            return _remainder(interval(b, ranges, found))
        case Min(args):
            return _extremum([interval(a, ranges, found) for a in args], True)
        case Max(args):
            return _extremum([interval(a, ranges, found) for a in args], False)
        case Choose(c, a, b):
            held = decided(c, ranges)
            taken = [x for x, never in ((a, FALSE), (b, TRUE)) if held != never]
            arms = [interval(x, ranges, found) for x in taken]
            return Interval(_extremum(arms, True).low, _extremum(arms, False).high)
        case _:
            assert_never(atom)


def _times(b: Index, a: Index) -> int:
    """How often the whole of `b` is a part of `a`."""
    (atom, c), rest = b.terms[0], dict(a.terms)
    n = rest.get(atom, 0) // c
    return n if all(rest.get(x, 0) == n * k for x, k in b.terms) else 0


def _plus(x: Interval, n: int) -> Interval:
    return Interval(None if x.low is None else x.low + n, None if x.high is None else x.high + n)


def _remainder(divisor: Interval) -> Interval:
    if divisor.low is None or divisor.low < 0:
        return ANY
    return Interval(0, None if divisor.high is None else max(0, divisor.high - 1))


def _product(factors: list[Interval]) -> Interval:
    """Of factors that are not negative; else anything."""
    low, high = 1, 1
    bounded = True
    for x in factors:
        if x.low is None or x.low < 0:
            return ANY
        low *= x.low
        bounded = bounded and x.high is not None
        high *= x.high or 0
    if any(x.high == 0 for x in factors):
        return Interval(0, 0)
    return Interval(low, high if bounded else None)


def _quotient(a: Interval, b: Interval) -> Interval:
    """A quotient by 0 is 0."""
    n = b.value
    if n is not None and n > 0:
        return Interval(
            None if a.low is None else a.low // n, None if a.high is None else a.high // n
        )
    if a.low is None or b.low is None or b.low < 0:
        return ANY
    if a.low < 0:
        return Interval(a.low, None if a.high is None else max(0, a.high))
    low = a.low // b.high if b.low and b.high else 0  # where nothing runs, ranges may be empty
    return Interval(low, None if a.high is None else a.high // max(1, b.low))


def _extremum(parts: list[Interval], least: bool) -> Interval:
    lows = [x.low for x in parts if x.low is not None]
    highs = [x.high for x in parts if x.high is not None]
    if least:
        return Interval(min(lows) if len(lows) == len(parts) else None, min(highs, default=None))
    return Interval(max(lows, default=None), max(highs) if len(highs) == len(parts) else None)


# ---- conditions


def decided(c: Condition, ranges: Ranges) -> Condition:
    """`c` without what is always true or never."""
    match c:
        case NonNegative(i):
            found = interval(i, ranges)
            if found.low is not None and found.low >= 0:
                return TRUE
            return FALSE if found.high is not None and found.high < 0 else c
        case IsZero(i):
            found = interval(i, ranges)
            if found.value == 0:
                return TRUE
            above = found.low is not None and found.low > 0
            below = found.high is not None and found.high < 0
            return FALSE if above or below else c
        case Not(inner):
            return negate(decided(inner, ranges))
        case All(cs):
            return all_of(decided(x, ranges) for x in cs)
        case Any_(cs):
            return any_of(decided(x, ranges) for x in cs)
        case _:
            assert_never(c)


def simplified_condition(c: Condition, ranges: Ranges, found: Found | None = None) -> Condition:
    """As `decided`, with simpler expressions in what is left. found: as of `simplified`."""
    found = Found() if found is None else found
    match decided(c, ranges):
        case NonNegative(i):
            return ge(simplified(i, ranges, found), 0)
        case IsZero(i):
            return eq(simplified(i, ranges, found), 0)
        case Not(inner):
            return negate(simplified_condition(inner, ranges, found))
        case All(cs):
            return all_of(simplified_condition(x, ranges, found) for x in cs)
        case Any_(cs):
            return any_of(simplified_condition(x, ranges, found) for x in cs)
        case rest:
            assert_never(rest)


# ---- what conditions tell


def narrowed(c: Condition, ranges: Ranges) -> Ranges:
    """Ranges of variables where `c` holds."""
    match c:
        case All(cs):
            for x in cs:
                ranges = narrowed(x, ranges)
            return ranges
        case NonNegative(i):
            return _not_below_zero(i, ranges)
        case IsZero(i):
            return _not_below_zero(-i, _not_below_zero(i, ranges))
        case Not() | Any_():
            return ranges
        case _:
            assert_never(c)


def _not_below_zero(e: Index, ranges: Ranges) -> Ranges:
    """W - K - 5 >= 0 at K >= 0 tells W >= 5; (W+1)/2 - 17 >= 0 tells W >= 33."""
    mosts = [interval(of_atom(atom) * c, ranges).high for atom, c in e.terms]
    known = [x for x in mosts if x is not None]
    for (atom, c), most in zip(e.terms, mosts):
        if len(known) + (most is None) < len(mosts):
            continue  # of another term nothing is known
        most = e.constant + sum(known) - (most or 0)  # of all the rest
        end = -(most // c) if c > 0 else most // -c  # the atom is not below this, or not above
        match atom:
            case str():
                x = ranges.get(atom, ANY)
                if c > 0:
                    x = Interval(end if x.low is None else max(x.low, end), x.high)
                else:
                    x = Interval(x.low, end if x.high is None else min(x.high, end))
                ranges = {**ranges, atom: x}
            case FloorDiv(a, b) if (n := b.as_int()) is not None and n > 0:
                ranges = _not_below_zero(a - n * end if c > 0 else n * end + n - 1 - a, ranges)
            case _:
                pass
    return ranges


# ---- simpler expressions


def simplified(e: Index, ranges: Ranges, found: Found | None = None) -> Index:
    """An expression equal to `e` where its variables are in range, perhaps a simpler one.

    found: what was asked for before with the same ranges. Parts of expressions are shared, so that
    as trees they are far larger than they are.
    """
    if not any(isinstance(a, Product) or not isinstance(a, str) or a in ranges for a, _ in e.terms):
        return e
    found = Found() if found is None else found
    if e not in found.simpler:
        total = index(e.constant)
        for atom, c in e.terms:
            total = total + _simplified_atom(atom, ranges, found) * c
        found.simpler[e] = total
    return found.simpler[e]


def _simplified_atom(atom: Atom, ranges: Ranges, found: Found) -> Index:
    value = _atom_interval(atom, ranges, found.intervals).value
    if value is not None:
        return index(value)
    match atom:
        case str():
            return of_atom(atom)
        case Product(factors):
            total = index(1)
            for f in factors:
                total = total * _simplified_atom(f, ranges, found)
            return total
        case FloorDiv(a, b):
            return floordiv(simplified(a, ranges, found), simplified(b, ranges, found))
        case Mod(a, b):
            return mod(simplified(a, ranges, found), simplified(b, ranges, found))
        case Min(args):
            return minimum(*_undominated(args, ranges, True, found))
        case Max(args):
            return maximum(*_undominated(args, ranges, False, found))
        case Choose(c, a, b):
            condition = simplified_condition(c, ranges, found)
            return choose(condition, simplified(a, ranges, found), simplified(b, ranges, found))
        case _:
            assert_never(atom)


def _undominated(args: Iterable[Index], ranges: Ranges, least: bool, found: Found) -> list[Index]:
    """The arguments of a minimum (`least`) or maximum that may be it; one, if they are equal."""
    values = tuple(args)
    intervals = [interval(a, ranges, found.intervals) for a in values]
    near = [x.low if least else x.high for x in intervals]  # the end that an argument may reach
    far = [x.high if least else x.low for x in intervals]  # what it never is beyond
    known = [x for x in far if x is not None]
    limit = min(known, default=None) if least else max(known, default=None)
    if limit is None:
        return [simplified(a, ranges, found) for a in values]
    kept = [k for k, x in enumerate(near) if x is None or (x < limit if least else x > limit)]
    if not any(far[k] == limit for k in kept):
        kept.append(far.index(limit))
    return [simplified(values[k], ranges, found) for k in kept]
