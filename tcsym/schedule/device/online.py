# SPDX-License-Identifier: Apache-2.0
"""Rows that need a maximum or a mean before they sum -> both in one loop, by running ones.

    m = max over d of X[d];  s = sum over d of exp(X[d] - m)
->  for d: old = m;  m = max(m, X[d]);  e = exp(min(old, X[d]) - m)
           s = s * e + 1 if X[d] > old else s + e

    s = sum over d of X[d];  m = f(s);  v = sum over d of (X[d] - m)^2
->  for d: n = n + 1;  s = s + X[d];  r = X[d] - c;  c = c + r / n;  v = v + r * (X[d] - c)
    v = v + n * (c - f(s))^2

So the row is read once less. What was stored of exp(X[d] - m), or of X[d] - m, is computed again
where it is read. Threads have maxima and means of their own; their sums are scaled or moved to
those of the row, then added. While a maximum is -inf, 0 stands for it, so that terms are 0, not
NaN, as a greater one may come. In the end m - m is added: NaN where the row's maximum is infinite,
as terms are then, and else 0. References: Milakov, Gimelshein, Online normalizer calculation for
softmax, 2018; Welford, Note on a method for calculating corrected sums of squares and products,
1962; Chan, Golub, LeVeque, Algorithms for computing the sample variance, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    BinaryOp,
    Call,
    Compare,
    Const,
    Expr,
    Read,
    Select,
    dtype_of,
)
from tcsym.index.expr import ge, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Buffer, Kernel, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import loads, map_value, substitute_value
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import children, writes_in
from tcsym.schedule.device.held import held_buffers
from tcsym.schedule.device.nest import Nest, is_own, new_name
from tcsym.types import DType

Part = tuple[Update, Buffer]


class Online(Struct, frozen=True):
    """`nest`: with `loop` in place of two, which is of what each thread has for itself. first,
    sums: what a row's are updated by, and a thread's. start, keep: what a thread does before and
    behind the loop. scale, end: with the row's first, before its sums are added, and behind that.
    """

    nest: Nest
    loop: Loop
    first: Part
    sums: tuple[Part, ...]
    start: Node
    keep: Node
    scale: Node
    end: Node


def online(nest: Nest) -> Online | None:
    """Of the first maximum or sum of the row and the sums behind it, if they are of that kind."""
    body = children(nest.body)
    for k, x in enumerate(body):
        y = next((y for y in range(k + 1, len(body)) if isinstance(body[y], Loop)), None)
        if isinstance(x, Loop) and y is not None and isinstance(b := body[y], Loop):
            found = _Pair(nest, x, b, body[:k], body[k + 1 : y], body[y + 1 :]).online()
            if found is not None:
                return found
    return None


class _Pair(Struct, frozen=True):
    """A loop for the maximum or the sum, one for sums, and what is before, between and behind."""

    nest: Nest
    first: Loop
    second: Loop
    before: Sequence[Node]
    between: Sequence[Node]
    behind: Sequence[Node]

    def online(self) -> Online | None:
        nest, x = self.nest, self.second
        (of, *others) = children(self.first.body)
        same = self.first.lower == x.lower and extent(self.first) == extent(x)
        if others or not same or not isinstance(of, Update):
            return None
        dtype = nest.kernel.buffer(of.buffer).dtype
        if dtype not in (DType.FLOAT32, DType.FLOAT64) or not is_own(nest, of.buffer):
            return None
        element = substitute_value(of.value, {self.first.variable: var(x.variable)})
        assert isinstance(element, Expr)
        changed = {s.buffer for n in (x, *self.between, *self.behind) for s in writes_in(n)}
        if dtype_of(element) is not dtype or {r.tensor for r in loads(element)} & changed:
            return None
        if of.op == "max":
            row = Read(of.buffer, of.subscripts, dtype, (False,) * len(of.subscripts))
            plain = all(isinstance(n, Store) and not loads(n.value) for n in self.between)
            term = _exp(_op("sub", element, row))
            found = self.matched(term, term) if plain else None
            return None if found is None else self.exponentials(of, row, element, *found)
        if of.op == "add" and all(_sets_own(nest, n) for n in self.between):
            terms = [n.value for n in writes_in(x)]
            for mean in dict.fromkeys(r for v in terms for r in loads(v) if is_own(nest, r.tensor)):
                apart = _op("sub", element, mean)
                found = self.matched(apart, _op("mul", apart, apart))
                if found is not None:
                    return self.squares(of, mean, element, *found)
        return None

    def matched(self, kept: Expr, term: Expr) -> tuple[list[Update], list[Node]] | None:
        """What adds terms, and what is behind without what keeps those values; None if anything
        else is done there."""
        sums, stored = list[Update](), set[str]()
        for n in children(self.second.body):
            value = _with(n.value, stored, kept) if isinstance(n, Store | Update) else None
            if isinstance(n, Store) and value == kept:
                stored.add(n.buffer)
            elif isinstance(n, Update) and value == term and n.op == "add":
                sums.append(n)
            else:
                return None
        own = {u.buffer for u in sums}
        is_alone = len(own) == len(sums) and not own & stored
        if not sums or not is_alone or not all(is_own(self.nest, b) for b in own):
            return None
        later = self.recomputed(kept, stored)
        return None if later is None else (sums, later)

    def recomputed(self, term: Expr, kept: set[str]) -> list[Node] | None:
        """What is behind, with terms in place of what kept them, until that is overwritten."""
        if not kept <= held_buffers(self.nest):
            return None
        left, out = {*kept}, list[Node]()
        for x in self.behind:
            if not isinstance(x, Loop) or not left:
                out.append(x)
                continue
            at = substitute_value(term, {self.second.variable: var(x.variable)})
            done = list[Node]()
            for n in children(x.body):
                updates = isinstance(n, Update) and n.buffer in left
                if updates or not isinstance(n, Store | Update):
                    return None
                done.append(replace(n, value=_with(n.value, left, at)))
                left.discard(n.buffer)
            out.append(replace(x, body=block(*done)))
        inside = {*self.nest.variables}
        lost = [b for b in left if not inside <= self.nest.kernel.buffer(b).private]
        return None if lost else out

    def scalars(
        self, of: Update, names: Sequence[str], sums: Sequence[Update]
    ) -> tuple[Kernel, list[Buffer], list[Part]]:
        """Numbers that each thread has for itself, then a part of each sum."""
        kernel, made = self.nest.kernel, list[Buffer]()
        dtype, private = kernel.buffer(of.buffer).dtype, frozenset(self.nest.variables)
        for x in (*(f"{of.buffer}_{s}" for s in names), *(f"{u.buffer}_part" for u in sums)):
            made.append(Buffer(new_name(kernel, x), dtype, (), "arena", private=private))
            kernel = kernel.with_buffer(made[-1])
        parts = list(zip(sums, made[len(names) :], strict=True))
        return kernel, made[: len(names)], parts

    def exponentials(
        self, of: Update, row: Read, element: Expr, sums: Sequence[Update], later: Sequence[Node]
    ) -> Online:
        kernel, own, parts = self.scalars(of, ("new", "part", "old", "base", "rest"), sums)
        new, mine, old, base, rest = own
        x, was, scale = _read(new), _read(old), _read(rest)
        one, grows = Const(1.0, row.dtype), Compare("gt", x, was)

        def added_to(s: Read) -> Expr:
            greater = _op("add", _op("mul", s, scale), one)
            return Select(grows, greater, _op("add", s, scale), row.dtype, eager=True)

        body = block(
            Store(new.name, (), element),
            _store(old, _read(mine)),
            Update(mine.name, (), "max", x, of.name),
            _store(base, _finite(_read(mine))),
            _store(rest, _exp(_op("sub", _op("min", was, x), _read(base)))),
            *(_store(p, added_to(_read(p))) for _, p in parts),
        )
        first = of, mine
        start = [_store(p, identity(u.op, row.dtype)) for u, p in (first, *parts)]
        rescale = block(
            _store(base, _finite(row)),
            _store(rest, _exp(_op("sub", was, _read(base)))),
            *(_store(p, _op("mul", _read(p), scale)) for _, p in parts),
        )
        nothing, trips = _op("sub", row, row), extent(self.second)
        end = Branch(ge(trips, 1), block(*(replace(u, value=nothing) for u in sums)))
        nest, loop = self.fused(kernel, self.between, body, later)
        keep = _store(old, _read(mine))
        return Online(nest, loop, first, tuple(parts), block(*start), keep, rescale, end)

    def squares(
        self, of: Update, mean: Read, element: Expr, sums: Sequence[Update], later: Sequence[Node]
    ) -> Online:
        """Counts, differences and squares are halved on the way: a difference may overflow."""
        kernel, own, parts = self.scalars(of, ("new", "part", "count", "mean", "rest"), sums)
        new, mine, count, centre, rest = own
        x, n, c, r = (_read(b) for b in (new, count, centre, rest))
        zero, half, two = (Const(k, mean.dtype) for k in (0.0, 0.5, 2.0))
        body = block(
            Store(new.name, (), element),
            Update(mine.name, (), "add", x, of.name),
            _store(count, _op("add", n, half)),
            _store(rest, _op("sub", _op("mul", half, x), _op("mul", half, c))),
            _store(centre, _op("add", c, _op("div", r, n))),
            *(_store(p, _op("add", _read(p), _op("mul", r, _op("sub", x, c)))) for _, p in parts),
        )
        start = [_store(b, zero) for b in (mine, count, centre, *(p for _, p in parts))]
        apart = _op("sub", c, mean)
        moved = _op("mul", _op("mul", n, apart), apart)
        some = Select(Compare("gt", n, zero), moved, zero, mean.dtype, eager=True)
        move = (_store(p, _op("mul", two, _op("add", _read(p), some))) for _, p in parts)
        nest, loop = self.fused(kernel, (), body, later)
        scale = block(*self.between, *move)
        return Online(nest, loop, (of, mine), tuple(parts), block(*start), block(), scale, block())

    def fused(
        self, kernel: Kernel, between: Sequence[Node], body: Node, later: Sequence[Node]
    ) -> tuple[Nest, Loop]:
        loop = replace(self.second, body=body, order="reduction")
        return self.nest.doing(block(*self.before, *between, loop, *later), kernel), loop


def _sets_own(nest: Nest, n: Node) -> bool:
    """A store to a number of the row, of such numbers."""
    return isinstance(n, Store) and all(is_own(nest, a.buffer) for a in accesses(n))


def _with(v: Value, kept: set[str], term: Value) -> Value:
    """The value with the term for each element that keeps it."""
    return map_value(
        v, lambda r: term if isinstance(r, Read) and r.tensor in kept else r, lambda i: i
    )


def _read(b: Buffer) -> Read:
    return Read(b.name, (), b.dtype)


def _store(b: Buffer, value: Expr) -> Store:
    return Store(b.name, (), value)


def _op(op: BinaryOp, a: Expr, b: Expr) -> Binary:
    return Binary(op, a, b, dtype_of(a))


def _exp(v: Expr) -> Call:
    return Call("exp", (v,), dtype_of(v))


def _finite(maximum: Read) -> Expr:
    """0 in place of -inf."""
    none = Compare("eq", maximum, Const(-math.inf, maximum.dtype))
    return Select(none, Const(0.0, maximum.dtype), maximum, maximum.dtype, eager=True)
