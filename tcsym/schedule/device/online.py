"""Rows that need their maximum before they sum -> both in one loop, by a running maximum.

    m = max over d of X[d];  s = sum over d of exp(X[d] - m)
->  for d: old = m;  m = max(m, X[d]);  e = exp(min(old, X[d]) - m)
           s = s * e + 1 if X[d] > old else s + e

So the row is read once less. What was stored of exp(X[d] - m) on the way is computed again where it
is read. Threads have maxima of their own; their sums are scaled to the greatest, then added. While
a maximum is -inf, 0 stands for it, so that terms are 0, not NaN, as a greater one may come. In the
end m - m is added: NaN where the row's maximum is infinite, as terms are then, and else 0.
Reference: Milakov, Gimelshein, Online normalizer calculation for softmax, 2018.
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
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Store, Update, Value, block
from tcsym.ir.traverse import loads, map_value, substitute_value, walk
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.device.held import held_buffers
from tcsym.schedule.device.nest import Nest, is_own
from tcsym.types import DType

Part = tuple[Update, Buffer]


class Online(Struct, frozen=True):
    """`nest`: with `loop` in place of two, which is of what each thread has for itself. maximum,
    sums: what a row's are updated by, and a thread's. start, keep: what a thread does before and
    behind the loop. scale, end: with the row's maximum, before its sums are added, and behind that.
    """

    nest: Nest
    loop: Loop
    maximum: Part
    sums: tuple[Part, ...]
    start: Node
    keep: Node
    scale: Node
    end: Node


def online(nest: Nest) -> Online | None:
    """Of the first maximum of the row and the sums behind it, if they are of that kind."""
    body = children(nest.body)
    for k, x in enumerate(body):
        y = next((y for y in range(k + 1, len(body)) if isinstance(body[y], Loop)), None)
        if isinstance(x, Loop) and y is not None and isinstance(b := body[y], Loop):
            found = _Pair(nest, x, b, body[:k], body[k + 1 : y], body[y + 1 :]).online()
            if found is not None:
                return found
    return None


class _Pair(Struct, frozen=True):
    """A loop for the maximum, one for sums, and what is before, between and behind."""

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
        if others or not same or not isinstance(of, Update) or of.op != "max":
            return None
        dtype = nest.kernel.buffer(of.buffer).dtype
        if dtype not in (DType.FLOAT32, DType.FLOAT64) or not is_own(nest, of.buffer):
            return None
        element = substitute_value(of.value, {self.first.variable: var(x.variable)})
        assert isinstance(element, Expr)
        row = Read(of.buffer, of.subscripts, dtype, (False,) * len(of.subscripts))
        term = _exp(_op("sub", element, row))
        found = self.sums(term)
        later = None if found is None else self.recomputed(term, found[1])
        changed = {s.buffer for n in (x, *self.between, *self.behind) for s in _written(n)}
        if found is None or later is None or {r.tensor for r in loads(element)} & changed:
            return None
        return self.made(of, row, element, found[0], later)

    def sums(self, term: Expr) -> tuple[list[Update], set[str]] | None:
        """What adds terms, and what keeps them; None if anything else is done between or there."""
        plain = all(isinstance(n, Store) and not loads(n.value) for n in self.between)
        sums: list[Update] = []
        kept = set[str]()
        for n in children(self.second.body):
            if not isinstance(n, Store | Update) or _with(n.value, kept, term) != term:
                return None
            if isinstance(n, Store):
                kept.add(n.buffer)
            elif n.op == "add" and is_own(self.nest, n.buffer):
                sums.append(n)
            else:
                return None
        own = {u.buffer for u in sums} & kept
        is_alone = len({u.buffer for u in sums}) == len(sums) and not own
        return (sums, kept) if plain and sums and is_alone else None

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

    def made(
        self, of: Update, row: Read, element: Expr, sums: Sequence[Update], later: Sequence[Node]
    ) -> Online:
        nest, x = self.nest, self.second
        kernel, dtype = nest.kernel, row.dtype
        taken = {b.name for b in kernel.buffers}
        added: list[Buffer] = []

        def scalar(name: str) -> Buffer:
            while name in taken:
                name += "_"
            taken.add(name)
            added.append(Buffer(name, dtype, (), "arena", private=frozenset(nest.variables)))
            return added[-1]

        new, own, old, base, rest = (
            scalar(f"{of.buffer}_{s}") for s in ("new", "part", "old", "base", "rest")
        )
        parts = [(u, scalar(f"{u.buffer}_part")) for u in sums]
        x_, was, scale = _read(new), _read(old), _read(rest)
        one, grows = Const(1.0, dtype), Compare("gt", x_, was)

        def added_to(s: Read) -> Expr:
            greater = _op("add", _op("mul", s, scale), one)
            return Select(grows, greater, _op("add", s, scale), dtype, eager=True)

        body = block(
            Store(new.name, (), element),
            _store(old, _read(own)),
            Update(own.name, (), "max", x_, of.name),
            _store(base, _finite(_read(own))),
            _store(rest, _exp(_op("sub", _op("min", was, x_), _read(base)))),
            *(_store(p, added_to(_read(p))) for _, p in parts),
        )
        loop = replace(x, body=body, order="reduction")
        start = block(*(Store(p.name, (), identity(u.op, dtype)) for u, p in ((of, own), *parts)))
        rescale = block(
            _store(base, _finite(row)),
            _store(rest, _exp(_op("sub", was, _read(base)))),
            *(_store(p, _op("mul", _read(p), scale)) for _, p in parts),
        )
        nothing = _op("sub", row, row)
        end = Branch(ge(extent(x), 1), block(*(replace(u, value=nothing) for u in sums)))
        for b in added:
            kernel = kernel.with_buffer(b)
        inner = block(*self.before, *self.between, loop, *later)
        *chain, last = nest.chain
        fused = Nest(kernel, (*chain, replace(last, body=inner)))
        keep = _store(old, _read(own))
        return Online(fused, loop, (of, own), tuple(parts), start, keep, rescale, end)


def _with(v: Value, kept: set[str], term: Value) -> Value:
    """The value with the term for each element that keeps it."""
    return map_value(
        v, lambda r: term if isinstance(r, Read) and r.tensor in kept else r, lambda i: i
    )


def _written(n: Node) -> list[Store | Update]:
    return [x for x, _ in walk(n) if isinstance(x, Store | Update)]


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
