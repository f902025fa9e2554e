"""Loops that find positions -> nests of which each thread has its own part.

Where no order of the terms can be seen, a thread for each term updates elements as a whole, or
those of copies where too many would meet at one. Else no two threads may add to one element, and
each adds in the order of the text, so that results are the same in every call: threads own columns
d of rows, `G[id[j], d] += Y[j, d]`, and go through all of them, or own elements and look for
theirs; where there are many terms they are sorted (`sort`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, Index, floordiv, maximum, minimum, mod, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.device import is_atomic
from tcsym.ir.loops import Block, Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.traverse import map_node, position_loads
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    chain_of,
    loops_around,
    loops_in,
    position_in,
    statements_in,
)
from tcsym.schedule.analysis.names import Names

MOST_COPIES = 256
COPY_TERMS = 16


class Scatter(Struct, frozen=True):
    """`terms`: loops over them. `positions`: loops of which the iteration at a position runs, with
    what finds it. `columns`: parallel loops inside, around the `update` and loops of its sum."""

    terms: tuple[Loop, ...]
    positions: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    rest: Node
    update: Update

    @property
    def count(self) -> Index:
        return product_of(maximum(0, extent(x)) for x in self.terms)

    def at_positions(self, leaf: Node) -> Node:
        """What finds the positions of a term, around `leaf`."""
        last = self.positions[-1]
        return _with(self.terms[-1].body, last, replace(last, body=leaf))


def scatter_of(loop: Loop) -> Scatter | None:
    """None if the loops are no box, or more is done than to update elements that are not read."""
    found = position_in(loop)
    if found is None:
        return None
    terms = tuple(takewhile(lambda x: x.at is None and x.value is None, chain_of(loop)))
    path = (*loops_around(loop, found.variable), found)
    positions, (columns, rest) = path[len(terms) :], _columns(found)
    if not terms or any(x.at is None for x in positions):
        return None
    inside = {x.variable for x in loops_in(loop)}
    bounds = (x.lower.variables() | x.upper.variables() for x in (*path, *columns))
    updates = [x for x, _ in statements_in(rest)]
    update = updates[0] if len(updates) == 1 else None
    if frozenset[str]().union(*bounds) & inside or not isinstance(update, Update):
        return None
    read = [a.buffer for a in accesses(rest) if not a.written]
    read += [r.tensor for x in positions for r in position_loads(x)]
    return None if update.buffer in read else Scatter(terms, positions, columns, rest, update)


def at_once(kernel: Kernel, loop: Loop) -> Loop | None:
    """A thread for each term; None where the order of updates would be seen."""
    s = scatter_of(loop)
    if s is None or s.rest is not s.update:
        return None
    if not is_atomic(s.update.op, kernel.buffer(s.update.buffer).dtype):
        return None
    node = s.at_positions(replace(s.update, atomic=True))
    for x in reversed((*s.terms, *s.columns)):
        node = replace(x, order="parallel", body=node)
    assert isinstance(node, Loop)
    return node


def in_copies(kernel: Kernel, loop: Loop, names: Names) -> tuple[Kernel, Node]:
    """The same in copies of what is updated, which terms take in turn, then added as terms of
    their own: so fewer threads wait for each other at one element. Contract: `at_once` is a nest.

    How many copies there are follows from sizes: each element of them gets COPY_TERMS on average.
    """
    s = scatter_of(loop)
    assert s is not None
    b, number = kernel.buffer(s.update.buffer), ZERO
    for x in s.terms:
        number = number * extent(x) + var(x.variable) - x.lower
    most = floordiv(s.count, COPY_TERMS * maximum(1, product_of(b.shape)))
    n = maximum(1, minimum(MOST_COPIES, most))
    copies = Buffer(names.fresh(f"{b.name}_copies"), b.dtype, (n, *b.shape), "arena")
    at = tuple(names.fresh("element") for _ in b.shape)
    turn, every = (names.fresh("copy") for _ in range(2))
    start = Store(copies.name, (var(turn), *map(var, at)), identity(s.update.op, b.dtype))
    into = (mod(number, n), *s.update.subscripts)
    kernel = kernel.with_buffer(copies)
    some = at_once(kernel, _updating(loop, replace(s.update, buffer=copies.name, subscripts=into)))
    place = tuple(names.fresh("element") for _ in b.shape)
    copy = Read(copies.name, (var(every), *map(var, place)), b.dtype)
    add = replace(s.update, subscripts=tuple(map(var, place)), value=copy, atomic=True)
    assert some is not None
    nests = (_box((turn, *at), copies.shape, start), some, _box((every, *place), copies.shape, add))
    return kernel, block(*nests)


def _updating(loop: Loop, update: Update) -> Loop:
    made = map_node(loop, lambda n: update if isinstance(n, Update) else n)
    assert isinstance(made, Loop)
    return made


def _box(variables: Sequence[str], shape: Sequence[Index], body: Node) -> Node:
    for v, n in reversed(list(zip(variables, shape, strict=True))):
        body = Loop(v, ZERO, n, body, "serial", "parallel")
    return body


def owned(loop: Loop, names: Names) -> Loop | None:
    """Each thread goes through all terms; None where one thread has to do it all."""
    found = position_in(loop)
    if found is None:
        return None
    inside = {x.variable for x in loops_in(loop)}
    columns, rest = _columns(found)
    moved = columns or (found,)
    bounds = frozenset[str]().union(*(x.lower.variables() | x.upper.variables() for x in moved))
    if bounds & inside or not _adds(rest):
        return None
    if not columns:
        element = names.fresh(found.variable)
        mine = replace(found, lower=var(element), upper=var(element) + 1)
        body = _with(loop, found, mine)
        return Loop(element, found.lower, found.upper, body, "serial", "parallel")
    first, *others = columns
    node = _with(loop, found, replace(found, body=rest))
    for x in reversed(others):
        node = replace(x, body=node)
    return replace(first, body=node)


def _columns(found: Loop) -> tuple[tuple[Loop, ...], Node]:
    """Parallel loops at a position, and what is inside."""
    columns = tuple(takewhile(lambda x: x.order == "parallel", chain_of(found.body)))
    return columns, columns[-1].body if columns else found.body


def _adds(node: Node) -> bool:
    """One statement, perhaps in loops of its own sum: nothing else is written."""
    match node:
        case Update() | Store():
            return True
        case Loop():
            return _adds(node.body)
        case _:
            return False


def _with(node: Node, old: Loop, new: Node) -> Node:
    """`node` with `new` in the place of `old`."""
    match node:
        case Loop():
            return new if node is old else replace(node, body=_with(node.body, old, new))
        case Block(body):
            return block(*(_with(x, old, new) for x in body))
        case _:
            return node
