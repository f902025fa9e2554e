# SPDX-License-Identifier: Apache-2.0
"""Loops in single assignment -> loops over segments of S steps, with the states where these begin.

`for t in T {..}` becomes `for c in (T + S - 1)/S { for u in S { if S*c + u < T {..} } }`: strip
mining. A tensor that only the loop uses then has room for the steps of one segment. Its state at
the end of a segment is kept for the next one: the checkpoints. Going back, a gradient computes the
states of a segment again from its checkpoint, so that it needs about T/S + S states, not T.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.accumulate import Tensors
from tcsym.differentiate.algebra import Substituting, reads_replaced
from tcsym.differentiate.names import Names
from tcsym.differentiate.places import is_at_least, range_of, writes
from tcsym.differentiate.single import Single
from tcsym.frontend.program import (
    Const,
    Expr,
    For,
    If,
    Item,
    Range,
    Read,
    Statement,
    Tensor,
    reads,
    statements,
)
from tcsym.index.expr import ZERO, Condition, Index, floordiv, lt, maximum, minimum, of_atom, var
from tcsym.index.quasi_affine import odd_atoms
from tcsym.index.values import substitute


class Segmented(Struct, frozen=True):
    """`single`, in which tensors that are `inner` to a loop over segments, by its variable, are
    written anew by each iteration of it.

    checkpoints: the states. kept: these, and what such loops write that others use. steps: size
    parameter, the steps of a segment -> those of the loops. counts: size of checkpoints -> how many
    there are. lengths: loop over a segment, by its variable -> how many of its steps the loop that
    was cut has, and the condition that it has one.
    """

    single: Single
    inner: Mapping[str, frozenset[str]] = {}
    checkpoints: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    steps: Mapping[str, Index] = {}
    counts: Mapping[str, Index] = {}
    lengths: Mapping[str, tuple[Index, Condition]] = {}

    @property
    def sizes(self) -> frozenset[str]:
        return frozenset((*self.steps, *self.counts))

    def count(self, e: Index) -> Index:
        """`e` with the numbers of checkpoints said by other sizes."""
        return substitute(e, self.counts)

    def counted(
        self, items: Iterable[Item], names: Collection[str] | None = None
    ) -> tuple[Item, ...]:
        """Statements with numbers of checkpoints, by default all of them, said by other sizes."""
        counts = {n: e for n, e in self.counts.items() if names is None or n in names}
        return Substituting(counts).items(tuple(items))

    def ranged(self, items: Iterable[Item]) -> Iterator[Item]:
        """Ranges over checkpoints said by other sizes, subscripts not: a call with checkpoints of
        segments that have another number of steps is refused, as these are not within bounds."""
        for item in items:
            match item:
                case Statement():
                    said = Substituting(self.counts)
                    yield replace(item, domain=tuple(map(said.range, item.domain)))
                case For(_, lower, upper):
                    yield replace(item, lower=self.count(lower), upper=self.count(upper))
                case _:
                    yield item


def in_segments(
    single: Single, names: Names, sizes: Iterable[str], loops: Container[str]
) -> Segmented:
    """Of `loops`, by their variables, those that have states of their own are cut; sizes: all."""
    made = _Cutting(dict(single.tensors), names, frozenset(sizes))
    items = single.items
    for k, x in enumerate(single.items):
        if isinstance(x, For) and x.variable in loops and not _is_multiplied((x,), x.variable):
            items = made.cut(items, len(items) - len(single.items) + k)
    checkpoints = frozenset(made.checkpoints)
    kept = checkpoints | made.shared
    return Segmented(
        replace(single, items=items, tensors=made.tensors),
        made.inner,
        checkpoints,
        kept,
        made.steps,
        made.counts,
        made.lengths,
    )


def _is_multiplied(items: Iterable[Item], variable: str) -> bool:
    """True if positions or conditions have products with a variable, such as the number of a
    segment: checks could not follow those of a segment of segments."""

    def odd(*given: Index | Condition) -> bool:
        return any(variable in of_atom(a).variables() for a in odd_atoms(*given))

    for item in items:
        match item:
            case Statement():
                read = [i for e in item.expressions for r in reads(e) for i in r.subscripts]
                ends = [e for r in item.domain for e in (r.lower, r.upper)]
                if odd(*item.subscripts, *ends, *(i for i in read if isinstance(i, Index))):
                    return True
            case For(_, lower, upper, body):
                if odd(lower, upper) or _is_multiplied(body, variable):
                    return True
            case If(condition, then, orelse):
                if odd(condition) or _is_multiplied((*then, *orelse), variable):
                    return True
            case _:
                assert_never(item)
    return False


class _State(Struct, frozen=True):
    """A tensor of which iteration t writes the slice `t + offset` of a dimension.

    memory: how many slices before that one are read.
    """

    dimension: int
    offset: Index
    memory: int

    def lag(self, at: Index | Expr, t: Index) -> int | None:
        """How many steps before the slice that iteration `t` writes."""
        return (t + self.offset - at).as_int() if isinstance(at, Index) else None

    def moved(self, subscripts: tuple[Index | Expr, ...], to: Index) -> tuple[Index | Expr, ...]:
        d = self.dimension
        return (*subscripts[:d], to, *subscripts[d + 1 :])


class _Cutting(Struct):
    tensors: Tensors
    names: Names
    sizes: frozenset[str]
    inner: dict[str, frozenset[str]] = field(default_factory=dict)
    checkpoints: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    steps: dict[str, Index] = field(default_factory=dict)
    counts: dict[str, Index] = field(default_factory=dict)
    lengths: dict[str, tuple[Index, Condition]] = field(default_factory=dict)

    def cut(self, items: tuple[Item, ...], place: int) -> tuple[Item, ...]:
        loop = items[place]
        assert isinstance(loop, For)
        states = self._states(items, place, loop)
        if not states:
            return items
        size, count = self._sizes_for(loop)
        c, u = self.names.fresh("c"), self.names.fresh("u")
        step = loop.lower + var(c) * var(size) + var(u)
        starts = {n: self._checkpoints(n, s, count) for n, s in states.items()}
        stalled, begin, end = list[Item](), list[Item](), list[Item]()
        for name, s in states.items():
            t = self.tensors[name]
            moved = s.moved(t.shape, var(size) + s.memory)
            self.tensors[name] = t = replace(t, shape=moved)
            variables, domain = self._slice(t, s.dimension)
            for lag, start in enumerate(starts[name], 1):
                at = s.memory - lag
                first, last = (_at(variables, s.dimension, e + at) for e in (ZERO, var(size)))
                begin.append(_copy(t, name, first, start, (var(c), *variables), domain))
                end.append(_copy(t, start, (var(c) + 1, *variables), name, last, domain))
            if s.memory:
                now, past = (_at(variables, s.dimension, var(u) + s.memory - k) for k in (0, 1))
                stalled.append(_copy(t, name, now, name, past, domain))
        body = _within(loop.body, states, var(loop.variable), var(u))
        body = Substituting({loop.variable: step}).items(body)
        steps = If(lt(step, loop.upper), body, tuple(stalled))
        self.lengths[u] = minimum(var(size), loop.upper - step + var(u)), steps.condition
        segment = For(u, ZERO, var(size), (steps,))
        whole = For(c, ZERO, var(count) - 1, (*begin, segment, *end))
        self.inner[c] = frozenset(states)
        inside = {s.target for s in statements(loop.body)} - states.keys()
        self.shared |= {n for n in inside if self.tensors[n].role == "temporary"}
        self.checkpoints |= {n for ns in starts.values() for n in ns}
        before, starting = self._before(items[:place], loop, states, starts)
        after = [_behind(x, loop, states, starts, var(count) - 1) for x in items[place + 1 :]]
        return (*before, *starting, whole, *after)

    def _sizes_for(self, loop: For) -> tuple[str, str]:
        n = loop.upper - loop.lower
        if not is_at_least(n, 0, {}):
            n = maximum(n, 0)
        for (size, known), count in zip(self.steps.items(), self.counts):
            if known == n:
                return size, count
        size, count = self.names.fresh("S"), self.names.fresh("C")
        self.steps[size] = n
        self.counts[count] = floordiv(n + var(size) - 1, var(size)) + 1
        return size, count

    # ---- which tensors are states of a loop alone

    def _states(self, items: tuple[Item, ...], at: int, loop: For) -> dict[str, _State]:
        names = dict.fromkeys(s.target for s in statements(loop.body))
        found = {n: self._state(n, items, at, loop) for n in names}
        return {n: s for n, s in found.items() if s is not None}

    def _state(self, name: str, items: tuple[Item, ...], at: int, loop: For) -> _State | None:
        tensor, t = self.tensors[name], var(loop.variable)
        if tensor.role != "temporary":
            return None
        own = [w.statement for w in writes(loop.body) if w.statement.target == name]
        for d in range(len(tensor.shape)):
            offsets = {s.subscripts[d] - t for s in own}
            if len(offsets) == 1 and (offset := next(iter(offsets))).variables() <= self.sizes:
                break
        else:
            return None
        state = _State(d, offset, 0)
        lags = [state.lag(e, t) for e in _places(loop.body, name, d)]
        starting = [s for s in statements(items[:at]) if s.target == name]
        first = [state.lag(s.subscripts[d], loop.lower) for s in starting]
        first += [state.lag(e, loop.lower) for e in _places(items[:at], name, d)]
        behind = _places(items[at + 1 :], name, d)
        ends = _ends(loop, offset)
        if any(s not in items[:at] for s in starting) or any(
            s.target == name for s in statements(items[at + 1 :])
        ):
            return None
        if any(e not in ends for e in behind) or None in (*lags, *first):
            return None
        memory = max((*(x for x in lags if x is not None), *(1 for _ in behind)), default=0)
        known = [x for x in (*lags, *first) if x is not None]
        if any(x < 0 for x in known) or any(x is not None and not 1 <= x <= memory for x in first):
            return None
        whole = _writes_whole(loop.body, name, d, tensor) and all(
            _is_slice(s, d, tensor) for s in starting
        )
        return replace(state, memory=memory) if whole or not memory else None

    # ---- statements

    def _checkpoints(self, name: str, s: _State, count: str) -> list[str]:
        """Tensors of the states 1, 2, .. steps before each segment."""
        t = self.tensors[name]
        rest = (*t.shape[: s.dimension], *t.shape[s.dimension + 1 :])
        made = [self.names.fresh(f"{name}_start") for _ in range(s.memory)]
        for start in made:
            self.tensors[start] = Tensor(start, t.dtype, (var(count), *rest), "temporary")
        return made

    def _slice(self, t: Tensor, d: int) -> tuple[tuple[Index, ...], tuple[Range, ...]]:
        """Index variables for the dimensions other than `d`, and their ranges."""
        extents = (*t.shape[:d], *t.shape[d + 1 :])
        variables = tuple(map(var, self.names.variables(len(extents))))
        domain = tuple(Range(str(v), ZERO, e, False) for v, e in zip(variables, extents))
        return variables, domain

    def _before(
        self,
        items: tuple[Item, ...],
        loop: For,
        states: Mapping[str, _State],
        starts: Mapping[str, list[str]],
    ) -> tuple[list[Item], list[Item]]:
        """What stands before a loop, and zeros for checkpoints that nothing there writes."""

        def start(name: str, subscripts: tuple[Index | Expr, ...]) -> tuple[str, tuple[Index, ...]]:
            s = states[name]
            lag = s.lag(subscripts[s.dimension], loop.lower)
            assert lag is not None
            rest = (*subscripts[: s.dimension], *subscripts[s.dimension + 1 :])
            return starts[name][lag - 1], (ZERO, *rest)  # type: ignore[arg-type]

        def read(r: Read) -> Expr:
            if r.tensor not in states:
                return r
            name, subscripts = start(r.tensor, r.subscripts)
            return replace(r, tensor=name, subscripts=subscripts)

        found: list[Item] = []
        written: set[str] = set()
        for item in items:
            item = reads_replaced(item, read)
            if isinstance(item, Statement) and item.target in states:
                name, subscripts = start(item.target, item.subscripts)
                item = replace(item, target=name, subscripts=subscripts)
                written.add(name)
            found.append(item)
        zeros: list[Item] = []
        for names in starts.values():
            for name in (n for n in names if n not in written):
                t = self.tensors[name]
                variables, domain = self._slice(t, 0)
                zero = Const(0.0 if t.dtype.is_float else 0, t.dtype)
                zeros.append(Statement("", name, (ZERO, *variables), "=", False, domain, zero))
        return found, zeros


def _at(variables: tuple[Index, ...], d: int, e: Index) -> tuple[Index, ...]:
    return (*variables[:d], e, *variables[d:])


def _copy(
    t: Tensor,
    target: str,
    left: tuple[Index, ...],
    source: str,
    read: tuple[Index, ...],
    domain: tuple[Range, ...],
) -> Statement:
    return Statement("", target, left, "=", False, domain, Read(source, read, t.dtype))


def _ends(loop: For, offset: Index) -> tuple[Index, ...]:
    """The slice that the last iteration writes; that before the first, if there is none."""
    return loop.upper - 1 + offset, maximum(loop.upper, loop.lower) - 1 + offset


def _places(items: Iterable[Item], name: str, d: int) -> list[Index | Expr]:
    """What subscripts a dimension of a tensor that is read."""
    found = (r for s in statements(tuple(items)) for e in s.expressions for r in reads(e))
    return [r.subscripts[d] for r in found if r.tensor == name]


def _is_slice(s: Statement, d: int, t: Tensor) -> bool:
    """True if all of a slice is assigned."""
    for k, (e, extent) in enumerate(zip(s.subscripts, t.shape)):
        r = range_of(e, s.domain)
        if k != d and (r is None or r.lower != ZERO or r.upper != extent or r.at is not None):
            return False
    return True


def _writes_whole(items: Iterable[Item], name: str, d: int, t: Tensor) -> bool:
    """True if every way through `items` assigns all of a slice, and each statement does."""
    surely = False
    for item in items:
        match item:
            case Statement():
                surely = surely or (item.target == name and _is_slice(item, d, t))
            case If(_, then, orelse):
                arms = (then, orelse)
                surely = surely or all(_writes_whole(x, name, d, t) for x in arms)
            case For():
                pass
            case _:
                assert_never(item)
    return surely


def _within(
    items: Iterable[Item], states: Mapping[str, _State], t: Index, u: Index
) -> tuple[Item, ...]:
    """The body of a loop, at step `u` of a segment."""

    def place(name: str, subscripts: tuple[Index | Expr, ...]) -> tuple[Index | Expr, ...]:
        s = states[name]
        lag = s.lag(subscripts[s.dimension], t)
        assert lag is not None
        return s.moved(subscripts, u + (s.memory - lag))

    def read(r: Read) -> Expr:
        if r.tensor not in states:
            return r
        return replace(r, subscripts=place(r.tensor, r.subscripts))

    def write(item: Item) -> Item:
        match item:
            case Statement():
                if item.target not in states:
                    return item
                return replace(item, subscripts=place(item.target, item.subscripts))
            case For():
                return replace(item, body=tuple(map(write, item.body)))
            case If():
                then, orelse = tuple(map(write, item.then)), tuple(map(write, item.orelse))
                return replace(item, then=then, orelse=orelse)
            case _:
                assert_never(item)

    return tuple(write(reads_replaced(item, read)) for item in items)


def _behind(
    item: Item, loop: For, states: Mapping[str, _State], starts: Mapping[str, list[str]], at: Index
) -> Item:
    """What stands behind a loop: it reads the last states where the last segment ends."""

    def read(r: Read) -> Expr:
        if r.tensor not in states:
            return r
        d = states[r.tensor].dimension
        rest = (*r.subscripts[:d], *r.subscripts[d + 1 :])
        return replace(r, tensor=starts[r.tensor][0], subscripts=(at, *rest))

    return reads_replaced(item, read)
