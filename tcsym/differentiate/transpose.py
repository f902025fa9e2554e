# SPDX-License-Identifier: Apache-2.0
"""A contribution to `X(f(i))` for all i -> for each element of X, the sum of what it gets.

Subscripts are solved for index variables: `X(i + k)` at p is reached from `i = p - k`, where that
lies in the range of i; `X(2*i + k)` where `p - k` is even; `X(i/2)` from `i = 2*p + r`. Of windows
that do not overlap, `X(2*i + k)` with k in 0:2, one has p: then `i = p/2` and `k = p % 2`, if that
leaves no sum. What cannot be solved is scattered: each term is added where it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.algebra import (
    TRUTH,
    Subscript,
    Substituting,
    both,
    constant,
    select,
    with_indices,
)
from tcsym.differentiate.conditions import (
    conjuncts,
    index_condition,
    index_of,
    parts_of,
    simplified,
)
from tcsym.differentiate.dependent import Placing, boxed
from tcsym.differentiate.names import Names
from tcsym.differentiate.places import Bounds, is_at_least
from tcsym.differentiate.terms import Sum, Term, extents_of
from tcsym.frontend.affine import exact_value
from tcsym.frontend.program import (
    Cast,
    Compare,
    Expr,
    Given,
    IndexValue,
    Range,
    Read,
    dtype_of,
)
from tcsym.index.expr import TRUE as CERTAIN
from tcsym.index.expr import (
    ZERO,
    Condition,
    FloorDiv,
    Index,
    NonNegative,
    Product,
    all_of,
    floordiv,
    ge,
    index,
    lt,
    maximum,
    mod,
    of_atom,
    var,
)
from tcsym.index.values import substitute
from tcsym.types import DType

Numbers = Callable[[Index], str]


def transposed(
    term: Term,
    shape: tuple[Index, ...],
    names: Names,
    sizes: frozenset[str],
    loops: Bounds,
    numbers: Numbers,
    known: Sequence[Condition] = (),
    written: Mapping[int, Index] = {},
) -> Sum:
    """`term` as a sum at each element of its tensor.

    shape: of the tensor. loops: around the sum. numbers: for an extent, the name of a tensor whose
    elements are their positions. known: what holds where it stands. written: positions, by their
    dimensions, at which the program defines the tensor there.
    """
    extents = {**term.extents, **extents_of(term.subscripts, shape)}
    box, dependent = boxed(term.domain, term.given, extents)
    term = replace(term, domain=box)
    given = term, shape, names, sizes, dependent, loops, numbers, tuple(known), written
    solving = _Solving(*given)
    found = solving.run()
    if solving.disjoint and found.reduces:
        one = _Solving(*given, apart=True).run()
        if not one.reduces:  # schedules take sums by the window's conditions apart, as products
            return one
    if found.reduces and term.won is not None:
        return transposed(term.won, shape, names, sizes, loops, numbers, known, written)
    return found


class _Solving(Struct):
    term: Term
    shape: tuple[Index, ...]
    names: Names
    sizes: frozenset[str]
    dependent: tuple[Range, ...]
    loops: Bounds
    numbers: Numbers
    known: tuple[Condition, ...]
    written: Mapping[int, Index]
    apart: bool = False  # solve for both variables of a window that overlaps no other
    disjoint: bool = False  # there was one
    fixed: set[int] = field(default_factory=set)
    left: dict[int, Index] = field(default_factory=dict)
    ranges: dict[str, Range] = field(default_factory=dict)  # of what is on the left
    open: dict[str, Range] = field(default_factory=dict)  # variables that are not solved
    values: dict[str, Index] = field(default_factory=dict)  # of those that are
    guard: Expr = TRUTH
    when: Condition = CERTAIN
    whole: bool = True

    def __post_init__(self) -> None:
        self.open = {r.variable: r for r in self.term.domain}

    def run(self) -> Sum:
        for d, e in enumerate(self.term.subscripts):
            self.exactly(d, e)
        for d, e in enumerate(self.term.subscripts):
            if d not in self.left:
                self.solved(d, e)
        for c in conjuncts(with_indices(self.term.guard, self.values)):
            self.chosen(c)
        return self.result()

    def exactly(self, d: int, e: Subscript) -> None:
        """`X(.., i, ..)`: i stays on the left."""
        r = next((r for v, r in self.open.items() if e == var(v)), None)
        if r is None:
            return
        del self.open[r.variable]
        self.left[d] = var(r.variable)
        inside = r.lower == ZERO and is_at_least(self.shape[d] - r.upper, 0, {})
        if self.term.given and self.term.guard == TRUTH:  # as the call checks for what is read
            inside = is_at_least(r.lower, 0, {}) and r.lower.variables() <= self.sizes
        if inside and r.upper.variables() <= self.sizes:
            upper = r.upper
            if r.reduced and not is_at_least(upper, 0, {}):
                upper = maximum(upper, 0)  # what goes to the left may not be negative
            self.ranges[r.variable] = replace(r, upper=upper, reduced=False)
            self.whole = self.whole and r.lower == ZERO and r.upper == self.shape[d]
        else:
            self.ranges[r.variable] = Range(r.variable, ZERO, self.shape[d], False)
            self._within(var(r.variable), r)

    def chosen(self, c: Expr) -> None:
        """`t == 0`: what is summed over t has one term."""
        match c:
            case Compare("eq", IndexValue(i), other) | Compare("eq", other, IndexValue(i)):
                value = index_of(other)
                r = next((r for v, r in self.open.items() if i == var(v)), None)
                bounding = {v for x in self.dependent for v in _used(x)}
                if value is None or r is None or r.variable in {*bounding, *value.variables()}:
                    return
                if value.variables() <= self.sizes:
                    del self.open[r.variable]
                    self._put(r.variable, value)
                    self._within(value, r)

    def solved(self, d: int, e: Subscript) -> None:
        if not isinstance(e, Index):
            self._scattered(d, e)
            return
        e = substitute(e, self.values)
        ours = self.open.keys() | self.ranges.keys()
        if not e.variables() & ours and self._is_place(e):
            self._fixed(d, e)
            return
        found = self._linear(e)
        if found is None:
            if not self._quotient(d, e):
                self._found(d)
            return
        if self._leaves_longer(e, found[0]):
            if self._is_strided(e) and self.open[found[0]].reduced:
                self._scattered(
                    d, self.term.subscripts[d]
                )  # the compiler solves it for what the size multiplies
                return
            found = self._windowed(e)
        if found is not None:
            self._substituted(d, e, *found)
        else:
            self._found(d)

    # ---- ways of solving

    def _fixed(self, d: int, e: Index) -> None:
        """`X(N-1)`; or under a guard that it may need, which then is around the statement, or
        else where each term finds it."""
        needed = [] if self.written.get(d) == e else self._needed(e, self.shape[d] - 1 - e)
        if self.term.guard != TRUTH and needed is None:
            self._found(d)
            return
        self.left[d] = e
        self.fixed.add(d)
        if needed:
            self.when = all_of((self.when, *needed))
            self.whole = False

    def _is_place(self, e: Index) -> bool:
        """True if `e`, of loop variables and sizes, may stand on the left: a sum of products."""
        inner = [a for a, _ in e.terms if not isinstance(a, str | Product)]
        return all(of_atom(a).variables() <= self.sizes for a in inner)

    def _needed(self, *conditions: Index) -> list[Condition] | None:
        """What of the guard says that all of them are at least 0; None if it does not."""
        moving = {r.variable for r in self.term.domain}
        found = [c for c in map(index_condition, conjuncts(self.term.guard)) if c is not None]
        found = [c for c in found if not c.index.variables() & moving]
        known = [c for k in self.known for c in parts_of(k)]
        needed: list[Condition] = []
        for e in conditions:
            if is_at_least(e, 0, self.loops) or any(self._follows(e, c) for c in known):
                continue
            c = next((c for c in found if self._follows(e, c)), None)
            if c is None or not self.loops:
                return None
            needed.append(c)
        return needed

    def _follows(self, e: Index, c: NonNegative) -> bool:
        return is_at_least(e - c.index, 0, self.loops)

    def _leaves_longer(self, e: Index, v: str) -> bool:
        """`X(3*i + k)`, where k has few values for each i, solved for k would leave all i; and
        `X(t - k)` in a loop all positions of each step."""
        in_loop = e.variables() & self.loops.keys()
        if in_loop and self.open[v].reduced:
            return True
        left = [x for x in self.open if x != v and x in e.variables()]
        left = [x for x in left if abs(e.coefficient(x)) != 1]
        return any(self.open[v].reduced or not self.open[x].reduced for x in left)

    def _windowed(self, e: Index) -> tuple[str, int] | None:
        """i of `X(3*i + k)`, if windows do not overlap."""
        for v, r in self.open.items():
            factor = e.coefficient(v)
            if factor and self._window(r, e - var(v) * factor, factor) is not None:
                return v, factor
        return None

    def _is_strided(self, e: Index) -> bool:
        """A sum of products of sizes and a variable each, and inside wherever it is evaluated."""
        moving = [of_atom(a).variables() - self.sizes for a, _ in e.terms]
        plain = all(isinstance(a, str | Product) for a, _ in e.terms)
        plain = plain and all(len(v) < 2 and v <= self.open.keys() for v in moving)
        return plain and self.term.guard == TRUTH

    def _linear(self, e: Index) -> tuple[str, int] | None:
        """Variables of the result before those that were summed: these have the longer ranges."""
        for wide, fits in ((True, _is_unit), (True, _is_any), (False, _is_unit), (False, _is_any)):
            found = self._candidate(e, fits, wide)
            if found is not None:
                return found
        return None

    def _candidate(
        self, e: Index, fits: Callable[[int], bool], wide: bool
    ) -> tuple[str, int] | None:
        for v, r in self.open.items():
            factor = e.coefficient(v)
            fitting = factor and fits(factor) and r.reduced is not wide
            if fitting and v not in (e - var(v) * factor).variables():
                return v, factor
        return None

    def _substituted(self, d: int, e: Index, v: str, factor: int) -> None:
        r = self.open.pop(v)
        rest = e - var(v) * factor
        if abs(factor) == 1 and self._shifted(d, r, rest, factor):
            return
        p = self._position(d, v)
        window = self._window(r, rest, factor)
        self.disjoint = self.disjoint or window is not None
        if window is not None and self.apart:
            self._both(p - (rest - var(window.variable)), r, factor, window)
            return
        over = p - rest if factor > 0 else rest - p
        self._put(v, floordiv(over, abs(factor)))
        if abs(factor) > 1:
            rest_of = exact_value(mod(over, abs(factor)))
            self.guard = both(self.guard, Compare("eq", rest_of, exact_value(ZERO)))
        self._within(self.values[v], r)

    def _window(self, outer: Range, rest: Index, factor: int) -> Range | None:
        """k of `X(3*i + k)`, i in `outer`, if it has at most 3 values and bounds nothing."""
        bounding = {v for x in self.dependent for v in _used(x)}
        if outer.variable in bounding:
            return None
        for v, r in self.open.items():
            extent = (r.upper - r.lower).as_int()
            alone = rest.coefficient(v) == 1 and v not in (rest - var(v)).variables()
            if alone and extent is not None and extent <= factor > 1 and v not in bounding:
                return r
        return None

    def _both(self, p: Index, r: Range, factor: int, window: Range) -> None:
        """`factor * i + k == p`, i in `r`, k in `window`."""
        del self.open[window.variable]
        over = p - window.lower
        whole = floordiv(over, factor)
        self._put(r.variable, whole)
        self._put(window.variable, p - whole * factor)
        self._within(over, Range(r.variable, r.lower * factor, r.upper * factor, False))
        extent = window.upper - window.lower
        if extent.as_int() != factor:
            at = exact_value(over - whole * factor)
            self.guard = both(self.guard, Compare("lt", at, exact_value(extent)))

    def _shifted(self, d: int, r: Range, rest: Index, factor: int) -> bool:
        """`X(i + 1)`: the range of positions says which i there are."""
        if (rest.variables() | r.lower.variables() | r.upper.variables()) - self.sizes:
            return False
        first = r.lower + rest if factor > 0 else rest - r.upper + 1
        last = r.upper + rest if factor > 0 else rest - r.lower + 1
        if not (is_at_least(first, 0, {}) and is_at_least(self.shape[d] - last, 0, {})):
            return False  # a guard kept the read inside
        if r.reduced and not is_at_least(last - first, 0, {}):
            return False  # what goes to the left may not be negative
        p = var(r.variable)
        self.left[d] = p
        self.ranges[r.variable] = Range(r.variable, first, last, False)
        self.whole = self.whole and first == ZERO and last == self.shape[d]
        self._put(r.variable, p - rest if factor > 0 else rest - p)
        return True

    def _quotient(self, d: int, e: Index) -> bool:
        """`X(i/2 + j)` with j known."""
        for atom, factor in e.terms:
            if not isinstance(atom, FloorDiv) or abs(factor) != 1:
                continue
            n = atom.divisor.as_int()
            rest = e - of_atom(atom) * factor
            v = next((x for x in self.open if atom.dividend.coefficient(x) == 1), None)
            if n is None or v is None or v in rest.variables():
                continue
            inner = atom.dividend - var(v)
            if v in inner.variables():
                continue
            r = self.open.pop(v)
            p = self._position(d)
            whole = p - rest if factor > 0 else rest - p
            remainder = self.names.fresh("r")
            self.open[remainder] = Range(remainder, ZERO, index(n), True)
            self._put(v, whole * n + var(remainder) - inner)
            self._within(self.values[v], r)
            return True
        return False

    def _found(self, d: int) -> None:
        """`X(min(i + k, N - 1))`: only what reads a tensor may stand on the left so."""
        at = Read(self.numbers(self.shape[d]), (self.term.subscripts[d],), DType.INT32)
        self._scattered(d, Cast(at, DType.INT64))

    def _scattered(self, d: int, at: Subscript) -> None:
        """F4's form, by the variables of the term. Where the guard does not hold there is no
        position."""
        p = self._position(d)
        name = next(iter(p.variables()))
        self.ranges[name] = replace(self.ranges[name], at=at)

    # ---- parts

    def _position(self, d: int, name: str | None = None) -> Index:
        """A new variable on the left for dimension `d`."""
        name = self.names.fresh("p") if name is None else name
        self.left[d] = var(name)
        self.ranges[name] = Range(name, ZERO, self.shape[d], False)
        return var(name)

    def _put(self, v: str, value: Index) -> None:
        """`v` is `value` from here on."""
        one = {v: value}
        self.values = {name: substitute(e, one) for name, e in self.values.items()} | one
        self.guard = with_indices(self.guard, one)

    def _within(self, e: Index, r: Range) -> None:
        if any(r.variable == x.variable for x in self.dependent):
            return  # its own ends say more than the box
        if ge(e, r.lower) != CERTAIN:
            self.guard = both(self.guard, Compare("ge", exact_value(e), exact_value(r.lower)))
        if lt(e, r.upper) != CERTAIN:
            self.guard = both(self.guard, Compare("lt", exact_value(e), exact_value(r.upper)))

    def _placed(self, r: Range) -> Range:
        match r.at:
            case None:
                return r
            case Index():
                return replace(r, at=substitute(r.at, self.values))
        return replace(r, at=with_indices(r.at, self.values))

    def bounds(self) -> Mapping[str, tuple[Index, Index]]:
        return {
            r.variable: (r.lower, r.upper) for r in (*self.ranges.values(), *self.open.values())
        }

    def result(self) -> Sum:
        placing = Placing(self.ranges, self.open, self.values, self.term.given, self.term.domain)
        bounds = self.bounds()
        for r in self.dependent:
            placing.place(r)
        guard = both(both(self.guard, placing.guard), with_indices(self.term.guard, self.values))
        value = with_indices(self.term.value, self.values)
        value = simplified(select(guard, value, constant(0.0, dtype_of(value))), bounds)
        summed = [replace(r, reduced=True) for r in placing.summed()]
        found = Sum(
            tuple(self.left[d] for d in range(len(self.shape))),
            (*map(self._placed, self.ranges.values()), *summed),
            value,
            frozenset(self.fixed),
            self.whole and not placing.loops,
            tuple(placing.kept),
            self.when,
        )
        return _in_loops(found, tuple(placing.loops.values()), self.names)


def _in_loops(s: Sum, loops: tuple[Range, ...], names: Names) -> Sum:
    """With `loops` around it, whose variables have names of their own."""
    if not loops:
        return s
    called = {r.variable: var(names.fresh(r.variable)) for r in loops}
    calling = Substituting(called)
    return replace(
        s,
        domain=tuple(map(calling.range, s.domain)),
        value=calling.expression(s.value),
        given=tuple(Given(g.name, calling.expression(g.value)) for g in s.given),
        loops=tuple(replace(r, variable=str(called[r.variable])) for r in loops),
    )


def _used(r: Range) -> set[str]:
    return {r.variable, *r.lower.variables(), *r.upper.variables()}


def _is_unit(factor: int) -> bool:
    return abs(factor) == 1


def _is_any(factor: int) -> bool:
    return factor != 0
