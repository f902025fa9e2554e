# SPDX-License-Identifier: Apache-2.0
"""Ranges that use other variables or read tensors -> a box around them, and what remains of them.

A term is solved in a box. Then each range stands again where its variable is still summed; else its
ends bound one of the other summed variables (`k in 0:i+1` is `i in k:N`), or they are conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.algebra import TRUTH, both, compared, truth, with_indices
from tcsym.differentiate.places import is_at_least
from tcsym.errors import DerivativeError
from tcsym.frontend.infer_dependent import hull
from tcsym.frontend.infer_forms import Interval
from tcsym.frontend.program import Compare, Expr, Given, IndexValue, Range, variables_of
from tcsym.index.expr import ZERO, Index, Max, Min, ge, maximum, minimum, var
from tcsym.index.values import substitute
from tcsym.types import DType

Values = Mapping[str, Index]


def boxed(
    domain: Sequence[Range], given: Sequence[Given], extents: Values
) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """`domain` as a box, and those of its ranges that were none.

    extents: of variables that subscript a tensor at every point.
    """
    names = {g.name for g in given}
    box: list[Range] = []
    dependent: list[Range] = []
    for r in domain:
        used = r.lower.variables() | r.upper.variables()
        if used.isdisjoint(names | {x.variable for x in box}):
            box.append(r)
            continue
        dependent.append(r)
        scope = [Interval(x.variable, x.lower, x.upper) for x in reversed(box)]
        here = Interval(r.variable, r.lower, r.upper)
        wide = None if used & names else hull(here, scope, frozenset())
        if wide is not None:
            box.append(replace(r, lower=wide.lower, upper=wide.upper))
        elif r.variable in extents:
            box.append(replace(r, lower=ZERO, upper=extents[r.variable]))
        else:
            message = f"the range of `{r.variable}` has no bound that does not read tensors"
            raise DerivativeError(message, hint=f"read a tensor at `{r.variable}`")
    return tuple(box), tuple(dependent)


class Placing(Struct):
    """`place` for each dependent range, when all is solved; then `summed` is the domain."""

    left: Mapping[str, Range]
    open: dict[str, Range]
    values: Values
    given: tuple[Given, ...]
    box: tuple[Range, ...]
    kept: list[Given] = field(default_factory=list)
    loops: dict[str, Range] = field(default_factory=dict)
    guard: Expr = TRUTH
    uses: dict[str, set[str]] = field(default_factory=dict)  # summed variables in ends of others

    def place(self, r: Range) -> None:
        ends = {g.name: g for g in self.given}
        lower, upper = substitute(r.lower, self.values), substitute(r.upper, self.values)
        read = [
            replace(g, value=with_indices(g.value, self.values))
            for g in map(ends.get, (r.lower.variables() | r.upper.variables()) & ends.keys())
            if g is not None
        ]
        if r.variable in self.open and self._stands(r.variable, lower, upper, read):
            self.open[r.variable] = replace(r, lower=lower, upper=upper)
            self.kept += [g for g in read if g not in self.kept]
            return
        v = self.values.get(r.variable, var(r.variable))
        if read:
            values = {g.name: g.value for g in read}
            if not is_at_least(v - lower, 0, self._bounds()):
                self.guard = both(self.guard, _not_less(v, lower, values))
            self.guard = both(self.guard, _less(v, upper, values))
            return
        for end in _parts(lower, Max):
            self._bound(v - end)
        for end in _parts(upper, Min):
            self._bound(end - 1 - v)

    def summed(self) -> Iterator[Range]:
        """The summed ranges, each behind those that it uses."""
        done: set[str] = set()
        while len(done) < len(self.open):
            for name, r in self.open.items():
                if name not in done and self.uses.get(name, set()) & self.open.keys() <= done:
                    done.add(name)
                    yield r

    # ---- parts

    def _stands(self, v: str, lower: Index, upper: Index, read: Sequence[Given]) -> bool:
        used = (lower.variables() | upper.variables()) & self.open.keys()
        reads = frozenset[str]().union(*(variables_of(g.value) for g in read))
        moving = reads & self.open.keys()
        if not all(self._is_kept(x) for x in reads & self.left.keys()):
            return False
        if any(v in self._all_uses(x) for x in (*used, *moving)):
            return False
        if any(self.uses.get(x) for x in moving):
            return False
        if moving:  # what reads may only follow variables on the left, and those of loops
            self.loops |= {x: self.open.pop(x) for x in moving}
        self.uses.setdefault(v, set()).update(used - moving)
        return True

    def _is_kept(self, v: str) -> bool:
        """Of a variable on the left: its values are those it had, so that reads there exist."""
        ends = [(r.lower, r.upper) for r in self.box if r.variable == v]
        return ends == [(self.left[v].lower, self.left[v].upper)] and v not in self.values

    def _all_uses(self, v: str) -> set[str]:
        return {v}.union(*(self._all_uses(x) for x in self.uses.get(v, ())))

    def _bounds(self) -> dict[str, tuple[Index, Index]]:
        ranges = {r.variable: r for r in (*self.left.values(), *self.open.values())}
        ranges |= {r.variable: r for r in self.box if r.variable in ranges and self._reads(r)}
        return {v: (r.lower, r.upper) for v, r in ranges.items()}

    def _reads(self, r: Range) -> bool:
        ends = self.open.get(r.variable, r)
        used = ends.lower.variables() | ends.upper.variables()
        return any(g.name in used for g in self.kept)

    def _bound(self, e: Index) -> None:
        """`e >= 0`, by the range of a summed variable if one is linear in it."""
        box = self._bounds()
        if is_at_least(e, 0, box):
            return
        for v, r in self.open.items():
            factor = e.coefficient(v)
            rest = e - var(v) * factor
            used = rest.variables() & self.open.keys()
            if abs(factor) != 1 or v in rest.variables() or self._reads(r):
                continue
            if any(v in self._all_uses(x) for x in used):
                continue
            if factor > 0:
                tight = is_at_least(-rest - r.lower, 0, box)
                r = replace(r, lower=-rest if tight else maximum(r.lower, -rest))
            else:
                tight = is_at_least(r.upper - 1 - rest, 0, box)
                r = replace(r, upper=rest + 1 if tight else minimum(r.upper, rest + 1))
            self.open[v] = r
            self.uses.setdefault(v, set()).update(used)
            return
        self.guard = both(self.guard, truth(ge(e, ZERO)))


def _parts(e: Index, kind: type[Min] | type[Max]) -> Collection[Index]:
    if len(e.terms) == 1 and isinstance(e.terms[0][0], kind) and e.terms[0][1] == 1:
        return [x + e.constant for x in e.terms[0][0].args]
    return [e]


def _less(v: Index, end: Index, values: Mapping[str, Expr]) -> Expr:
    """`v` is below an end of its range, which reads as a whole or not at all."""
    read = _read(end, values)
    return truth(ge(end - 1, v)) if read is None else Compare("lt", _value(v), read)


def _not_less(v: Index, end: Index, values: Mapping[str, Expr]) -> Expr:
    read = _read(end, values)
    return truth(ge(v, end)) if read is None else Compare("ge", _value(v), read)


def _value(e: Index) -> Expr:
    return IndexValue(e, DType.INT32)


def _read(end: Index, values: Mapping[str, Expr]) -> Expr | None:
    name = next(iter(end.variables()), "")
    return compared(values[name]) if end == var(name) and name in values else None
