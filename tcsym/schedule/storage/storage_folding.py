# SPDX-License-Identifier: Apache-2.0
"""Temporaries of which a loop in order reads the last steps only -> storage for as many steps.

C(t,b) = F(t,b)*C(t-1,b) + X(t,b), where nothing else reads the last step, needs C(b): each point
reads its old value, then stores the new one. In H(t+1,i) += H(t,k)*W(k,i) points read what others
store, so two steps are kept, H[(t+1) % 2, i]. What is set before the loop is kept with its first
step, what is read behind it with its last one. Steps that never leave the cache cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index, index, mod, var
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import substitute
from tcsym.ir.loops import Allocate, Block, Branch, Buffer, Kernel, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import map_node, walk
from tcsym.schedule.analysis.access import Access, Subscripts, accesses
from tcsym.schedule.analysis.loops import find_loop

Arms = tuple[tuple[int, bool], ...]


class _Use(Struct, frozen=True):
    """An access, its statement's place in the text, the loops and the sides of branches around."""

    access: Access
    at: int
    loops: tuple[str, ...]
    arms: Arms

    @property
    def nest(self) -> str | int:
        """The outermost loop around it, or the statement."""
        return self.loops[0] if self.loops else self.at

    def is_never_after(self, other: _Use) -> bool:
        """The other one stands behind it, or on another side of a branch."""
        sides = dict(self.arms)
        return self.at <= other.at or any(sides.get(k, s) != s for k, s in other.arms)


class _Steps(Struct, frozen=True):
    """What a loop in order uses along one dimension: positions that move on by one in each step.

    newest: the last of them that a step uses. towards: 1, or -1 for positions that count down.
    ages: how far behind the newest ones they are, inside the loop, before it and after it.
    """

    dimension: int
    newest: Index
    towards: int
    ages: tuple[frozenset[int], frozenset[int], frozenset[int]]

    @property
    def kept(self) -> int:
        return max(self.ages[0]) + 1

    def age(self, use: _Use) -> int | None:
        """How many positions behind the newest one it is."""
        return _age(self.newest, use.access, self.dimension, self.towards)


def fold_storage(kernel: Kernel) -> Kernel:
    """Every temporary keeps as many steps of a loop in order as this reads, where it may.

    Contract: temporaries are in the arena and have plain subscripts, as before any schedule.
    """
    for loop, around in tuple(walk(kernel.body)):
        if isinstance(loop, Loop) and loop.is_steps:
            outside = frozenset(x.variable for x in around)
            for b in kernel.buffers:
                if b.space == "arena" and b.private == outside:
                    kernel = _rolled(kernel, b, loop.variable)
    return kernel


def _rolled(kernel: Kernel, b: Buffer, step: str) -> Kernel:
    scan = find_loop(kernel.body, step)
    before, inside, after = _uses(kernel.body, scan, b)
    for d in range(len(b.shape) if inside else 0):
        steps = _steps(d, scan, before, inside, after)
        if steps is None:
            continue
        if _is_in_place(steps, inside):
            return _with_places(kernel, b, d, None)
        extent = b.shape[d].as_int()
        if extent is None or extent > steps.kept:
            return _with_places(kernel, b, d, steps.kept)
    return kernel


def _uses(body: Node, scan: Loop, b: Buffer) -> tuple[tuple[_Use, ...], ...]:
    """Before the loop, inside and after it, each in the order of the text."""
    found: tuple[list[_Use], ...] = [], [], []
    when = 0
    for at, (x, loops, arms) in enumerate(_statements(body, (), ())):
        inside = scan.variable in loops
        when = 1 if inside else when and 2
        within = loops[loops.index(scan.variable) + 1 :] if inside else loops
        found[when].extend(_Use(a, at, within, arms) for a in accesses(x) if a.buffer == b.name)
    return tuple(map(tuple, found))


def _statements(
    n: Node, loops: tuple[str, ...], arms: Arms
) -> Iterator[tuple[Node, tuple[str, ...], Arms]]:
    match n:
        case Block(body):
            for x in body:
                yield from _statements(x, loops, arms)
        case Loop():
            yield from _statements(n.body, (*loops, n.variable), arms)
        case Branch(_, a, b):
            yield from _statements(a, loops, (*arms, (id(n), True)))
            if b is not None:
                yield from _statements(b, loops, (*arms, (id(n), False)))
        case Allocate(_, body):
            yield from _statements(body, loops, arms)
        case _:
            yield n, loops, arms


def _steps(
    d: int, scan: Loop, before: tuple[_Use, ...], inside: tuple[_Use, ...], after: tuple[_Use, ...]
) -> _Steps | None:
    """None if a position does not move with the loop, or one outside of it is none of the first
    step's, or of the last one's.

    All positions of a step have storage of their own then, and take it over in order.
    """
    some = inside[0].access.subscripts[d]
    moved = linear_coefficient(some, scan.variable) if isinstance(some, Index) else None
    towards = None if moved is None else moved.as_int()
    if not isinstance(some, Index) or towards not in (1, -1):
        return None
    known = _ages(inside, d, some, towards)
    if known is None:
        return None
    newest = some - min(known) * towards
    first = substitute(newest, {scan.variable: scan.lower})
    last = substitute(newest, {scan.variable: scan.upper - 1})
    ages = frozenset(k - min(known) for k in known)
    around = _ages(before, d, first, towards), _ages(after, d, last, towards)
    if around[0] is None or around[1] is None:
        return None
    steps = _Steps(d, newest, towards, (ages, around[0], around[1]))
    return steps if around[0] | around[1] <= set(range(steps.kept)) else None


def _ages(uses: tuple[_Use, ...], d: int, newest: Index, towards: int) -> frozenset[int] | None:
    """How many positions behind `newest` each of them is."""
    found: set[int] = set()
    for u in uses:
        age = _age(newest, u.access, d, towards)
        if age is None:
            return None
        found.add(age)
    return frozenset(found)


def _age(newest: Index, a: Access, d: int, towards: int) -> int | None:
    s = a.subscripts[d]
    age = None if not isinstance(s, Index) or a.checks(d) else (newest - s).as_int()
    return None if age is None else age * towards


def _is_in_place(steps: _Steps, inside: tuple[_Use, ...]) -> bool:
    """One step's storage is enough: each element of the last step is read before it is replaced.

    That is so below other loops, or in the same ones by the point that replaces it.
    """
    ages, before, after = steps.ages
    if not ages <= {0, 1} or not before <= {max(ages)} or not after <= {0}:
        return False
    new = [u for u in inside if steps.age(u) == 0 and u.access.written]
    old = [u for u in inside if steps.age(u) == 1]
    return not any(r.access.written for r in old) and all(
        _is_first(r, w, steps.dimension) for r in old for w in new
    )


def _is_first(read: _Use, write: _Use, d: int) -> bool:
    """The old element is read before the write stores its new one, in no other nest's midst."""
    if not read.is_never_after(write):
        return False
    if read.nest != write.nest:
        return True
    places = [u.access.subscripts[:d] + u.access.subscripts[d + 1 :] for u in (read, write)]
    own = {var(x) for x in write.loops} <= set(places[1])  # no two points store one element
    return read.loops == write.loops and places[0] == places[1] and own


def _with_places(kernel: Kernel, b: Buffer, d: int, kept: int | None) -> Kernel:
    """With `kept` steps of dimension d, used in turns; None: one, and no such dimension."""

    def place(s: Subscripts) -> Subscripts:
        turn = s[d]
        assert isinstance(turn, Index)
        return (*s[:d], *(() if kept is None else (mod(turn, kept),)), *s[d + 1 :])

    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update) and x.buffer == b.name:
            subscripts = tuple(s for s in place(x.subscripts) if isinstance(s, Index))
            return replace(x, subscripts=subscripts)
        return x

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor != b.name:
            return v
        checked = v.checked[:d] + v.checked[d + 1 :] if kept is None else v.checked
        return replace(v, subscripts=place(v.subscripts), checked=checked)

    extents = () if kept is None else (index(kept),)
    shape = (*b.shape[:d], *extents, *b.shape[d + 1 :])
    kernel = kernel.with_buffer(replace(b, shape=shape, strides=None))
    return replace(kernel, body=map_node(kernel.body, statement, value))
