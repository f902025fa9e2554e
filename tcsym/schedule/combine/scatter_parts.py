"""A long scatter -> parts on threads, with copies of what they add to, or with their own columns.

`H[bin[i]] += W[i]` runs in the order of i, as two terms may meet. Where there are many terms for
each element, every thread takes a run of them and has a whole H for these; the copies are combined
in their order. Else threads own columns of rows, `G[id[j], d] += Y[j, d]`, and go through all rows.
So results are the same in every call with as many threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import mul

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, ZERO, Condition, Index, floordiv, ge, maximum, minimum, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import THREADS, Branch, Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.traverse import loads, map_node
from tcsym.schedule.analysis.cost import PER_CYCLE, Costs
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    loops_around,
    loops_in,
    position_in,
    replace_loop,
    scatters,
    statements_in,
)
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.version.versioning import duplicate
from tcsym.target.machine import Machine

MOST_PARTS = 16
TERMS_EACH = 16  # of an element of a copy, for which that is set and added up
LEAST_COLUMNS = 64  # of a thread: two lines of memory, at least
PART_WORK = 65536 * PER_CYCLE


class _Scatter(Struct, frozen=True):
    """All that the scan `loop` does. rows: parallel loops inside, around the update; terms: of all
    its loops; elements: positions they meet in."""

    loop: Loop
    update: Update
    rows: tuple[Loop, ...]
    terms: Index
    elements: Index


def scatter_in_parts(kernel: Kernel, machine: Machine, names: Names) -> Kernel:
    """Every outermost scatter that is long enough, beside itself for other sizes."""
    for loop in loops_in(kernel.body):
        outermost = loop.order == "sequential" and not loops_around(kernel.body, loop.variable)
        if outermost and loop.at is None and scatters(loop):
            found = _scatter(kernel, loop)
            if found is not None:
                kernel = _split(kernel, found, machine, names)
    return kernel


def _scatter(kernel: Kernel, loop: Loop) -> _Scatter | None:
    position = position_in(loop)
    inside = [x for x, _ in statements_in(position.body)] if position is not None else []
    if position is None or len(inside) != 1 or not isinstance(inside[0], Update):
        return None
    update, sizes = inside[0], frozenset(kernel.sizes)
    around = [*loops_around(loop, position.variable), position]
    rows = [x for x in loops_in(position.body) if x.order == "parallel"]
    positions = [x for x in around if x.at is not None]
    plain = {var(x.variable) for x in (*positions, *rows)}
    bounds = (x.lower.variables() | x.upper.variables() for x in around)
    if not set(update.subscripts) <= plain or not frozenset[str]().union(*bounds) <= sizes:
        return None
    if any(r.tensor == update.buffer for r in loads(update.value)):
        return None
    terms = [maximum(ZERO, extent(x)) for x in around if x.at is None]
    elements = [maximum(1, extent(x)) for x in positions]
    return _Scatter(loop, update, tuple(rows), reduce(mul, terms, ONE), reduce(mul, elements, ONE))


def _split(kernel: Kernel, found: _Scatter, machine: Machine, names: Names) -> Kernel:
    """The versions side by side, those for more threads first."""
    loop = found.loop
    each = Costs.of(kernel, machine).of_iteration((loop,), frozenset(kernel.sizes))
    work = floordiv(maximum(ZERO, extent(loop)) * each, PART_WORK)
    kernel, columns = _in_columns(kernel, found, work, names)
    kernel, copies = _in_copies(kernel, found, work, names)
    node = Branch(copies[0], copies[1], Branch(*columns, loop) if columns else loop)
    return replace(kernel, body=replace_loop(kernel.body, loop.variable, lambda _: node))


def _in_columns(
    kernel: Kernel, found: _Scatter, work: Index, names: Names
) -> tuple[Kernel, tuple[Condition, Node] | None]:
    """Every thread goes through all terms, for its own part of the outermost of the rows' loops."""
    if not found.rows:
        return kernel, None
    row = found.rows[0]
    if not row.lower.variables() | row.upper.variables() <= frozenset(kernel.sizes):
        return kernel, None
    least = 1 if len(found.rows) > 1 else LEAST_COLUMNS
    parts = minimum(var(THREADS), work, floordiv(extent(row), least))
    kernel, copy, new = duplicate(kernel, found.loop, names)
    part = names.fresh(row.variable)

    def block_of(x: Loop) -> Loop:
        size = floordiv(extent(x) + parts - 1, parts)
        first = x.lower + var(part) * size
        return replace(x, lower=first, upper=minimum(x.upper, first + size))

    body = replace_loop(copy, new[row.variable], block_of)
    return kernel, (ge(parts, 2), Loop(part, ZERO, parts, body, "serial", "parallel"))


def _in_copies(
    kernel: Kernel, found: _Scatter, work: Index, names: Names
) -> tuple[Kernel, tuple[Condition, Node]]:
    """Every thread takes some of the terms, and adds them into a copy of the target."""
    loop, target = found.loop, kernel.buffer(found.update.buffer)
    most = minimum(MOST_PARTS, floordiv(found.terms, found.elements * TERMS_EACH), work)
    parts = minimum(most, var(THREADS))
    shape = (maximum(1, most), *target.shape)
    own = Buffer(names.fresh(f"{target.name}_parts"), target.dtype, shape, "arena")
    part = names.fresh(loop.variable)
    kernel, copy, _ = duplicate(kernel.with_buffer(own), loop, names)
    assert isinstance(copy, Loop)
    size = floordiv(extent(copy) + parts - 1, parts)
    first = copy.lower + var(part) * size
    end = minimum(copy.upper, first + size)
    run = _redirected(replace(copy, lower=first, upper=end), target.name, own.name, part)
    neutral, name = identity(found.update.op, target.dtype), found.update.name
    start = _over(target, names, lambda at: Store(own.name, (var(part), *at), neutral, name))
    last = names.fresh(loop.variable)

    def combined(at: tuple[Index, ...]) -> Node:
        term = Read(own.name, (var(last), *at), target.dtype)
        add = Update(target.name, at, found.update.op, term, name)
        return Loop(last, ZERO, parts, add, "serial", "reduction")

    both = Loop(part, ZERO, parts, block(start, run), "serial", "parallel")
    return kernel, (ge(parts, 2), block(both, _over(target, names, combined)))


def _redirected(node: Node, target: str, own: str, part: str) -> Node:
    def statement(x: Node) -> Node:
        if isinstance(x, Update) and x.buffer == target:
            return replace(x, buffer=own, subscripts=(var(part), *x.subscripts))
        return x

    return map_node(node, statement)


def _over(target: Buffer, names: Names, statement: Callable[[tuple[Index, ...]], Node]) -> Node:
    """A statement for each element of the target."""
    variables = [names.fresh(target.name) for _ in target.shape]
    node = statement(tuple(map(var, variables)))
    for v, n in reversed(list(zip(variables, target.shape))):
        node = Loop(v, ZERO, n, node, "serial", "parallel")
    return node
