# SPDX-License-Identifier: Apache-2.0
"""Rows in which ranges vary -> strips of rows, over which each such range is one range.

`C(i,j) +=! A(i,k)*B(k,j) where k in 0:i+1` and causal attention reuse operands from row to row, so
they want tiles of rows; but each row sums over a range of its own. In a strip every sum runs over
the hull of its ranges in all rows of the strip, and terms outside of a row's own range count as the
identity: work is that of the ranges, and a strip of it. What a strip does not read of temporaries,
it does not compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Compare, Const, Expr, IndexValue, Read, Select
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    Max,
    Min,
    all_of,
    any_of,
    ceildiv,
    ge,
    maximum,
    minimum,
    var,
)
from tcsym.ir.bounds import at_least, eliminate, extent, is_nonnegative
from tcsym.ir.loops import (
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    block,
    value_dtype,
)
from tcsym.ir.traverse import loads, map_node, substitute_node, walk
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.band import Band, band_of, contraction_roles
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import children, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.types import DType


def strip_ranges(kernel: Kernel, rows: Loop, height: int, names: Names) -> Kernel | None:
    """`height` rows a strip; None unless ranges vary with the loop `rows` and with nothing else,
    and something contracts over its rows."""
    own = frozenset(b.name for b in kernel.buffers if rows.variable in b.private)
    rows = replace(rows, body=map_node(rows.body, lambda x: _maps_apart(x, rows, own, names)))
    inside = loops_in(rows.body)
    known = frozenset((*kernel.sizes, rows.variable if rows.lower == ZERO else ""))
    stated = [_as_stated(x, known) for x in inside if rows.variable in _used(x)]
    maps = {x.variable for x in stated if x is not None and _is_own_map(x, rows, own)}
    varying = [x for x in stated if x is not None and (_is_sum(x) or x.variable in maps)]
    fixed = not any(x.independent or x.value is not None for x in inside)
    if not fixed or not varying or len(varying) < len(stated) or not _contracts(kernel, rows):
        return None
    strip = names.fresh(rows.variable)
    first = rows.lower + var(strip) * height
    end = minimum(first + height, rows.upper)
    part = replace(rows, lower=first, upper=end, order="parallel", independent=False)
    parts: dict[str, tuple[Loop, ...]] = {}
    ends = {x.variable: x for x in varying}
    for x in varying:
        pieces = _pieces(x, part, frozenset((*kernel.sizes, strip)), x.variable in maps, names)
        if pieces is None:
            return None
        parts[x.variable] = pieces
    ordered = {(y.lower, y.upper) for pieces in parts.values() for y in pieces}
    edges = {y.variable for pieces in parts.values() for y in pieces[1:]}

    def over_hull(x: Node) -> Node:
        if not isinstance(x, Loop):
            return x
        if x.variable in parts:
            x = replace(ends[x.variable], body=x.body)
            return block(*(_piece(x, y, rows.variable, names) for y in parts[x.variable]))
        return _apart(kernel, x, edges, names) if x.order == "parallel" else x

    part = replace(part, body=map_node(part.body, over_hull))
    part = replace(part, body=_without_unread(part.body, own, ordered))
    over = Loop(strip, ZERO, ceildiv(extent(rows), height), part, independent=True)
    strips = rename_loops(
        over, {rows.variable: strip, strip: rows.variable}
    )  # the nest's name stays
    kernel = replace(kernel, body=replace_loop(kernel.body, rows.variable, lambda _: strips))
    for name in own:
        b = kernel.buffer(name)
        kernel = kernel.with_buffer(replace(b, private=b.private | {strip}))
    return kernel


def has_range_of(kernel: Kernel, rows: Loop, n: int) -> Condition:
    """One of the ranges that vary with `rows` has `n` terms in some row, or one for each row."""
    long: list[Condition] = []
    for x in loops_in(rows.body):
        if rows.variable in _used(x):
            lows, ends = _arms(x.lower), [e for e in _arms(x.upper) if e not in _arms(x.lower)]
            spans = [eliminate(b - a, (rows,), True) for a in lows for b in ends]
            known = [e for e in spans if e is not None and e.variables() <= set(kernel.sizes)]
            long.append(all_of(ge(e, n) for e in known if e != extent(rows)))
    return any_of(long)


def _as_stated(x: Loop, known: frozenset[str]) -> Loop | None:
    """`x` with `hi` for an upper end `max(lo, hi)`; None if its range is plainly empty.

    What is read lies inside tensors from the least `lo` of all rows to the greatest `hi`. The `lo`
    of a row whose range is empty may lie beyond, and must not become a part of the hull.
    """
    lows = _arms(x.lower)
    stated = [e for e in _arms(x.upper) if e not in lows]
    if not stated:
        return None
    return replace(x, lower=_plain(x.lower, known), upper=_plain(maximum(*stated), known))


def _arms(e: Index) -> tuple[Index, ...]:
    """What a maximum is one of."""
    atom = e.terms[0][0] if len(e.terms) == 1 and e.terms[0][1] == 1 else None
    return tuple(a + e.constant for a in atom.args) if isinstance(atom, Max) else (e,)


def _pieces(
    x: Loop, rows: Loop, known: frozenset[str], is_map: bool, names: Names
) -> tuple[Loop, ...] | None:
    """The sum over what is in the ranges of all rows, then over what is in those of some.

    is_map: elements that no row reads may be made, too: all at once.
    """
    found = [eliminate(e, (rows,), high) for e in (x.lower, x.upper) for high in (False, True)]
    first, last_first, first_end, end = (e and _plain(e, known) for e in found)
    if first is None or last_first is None or first_end is None or end is None:
        return None
    if is_map:
        return (replace(x, lower=first, upper=at_least(end, first, known)),)
    start = first if first == last_first else minimum(end, last_first)
    stop = at_least(first_end, start, known)
    pieces = [replace(x, lower=start, upper=stop)]
    for lower, upper in ((first, start), (stop, end)):
        if lower != upper:
            name = names.fresh(x.variable)
            last = upper if lower == first_end else maximum(lower, upper)
            pieces.append(replace(x, variable=name, lower=lower, upper=last))
    return tuple(pieces)


def _plain(e: Index, known: frozenset[str]) -> Index:
    """`e` without what plainly is not the greatest of a maximum, for `known` that are >= 0."""
    atom = e.terms[0][0] if len(e.terms) == 1 and e.terms[0][1] == 1 else None
    if not isinstance(atom, Max):
        return e
    kept = list(atom.args)
    for a in atom.args:
        if any(is_nonnegative(b - a, known) or _is_never_less(b, a, known) for b in kept if b != a):
            kept.remove(a)
    return maximum(*kept) + e.constant


def _is_never_less(b: Index, a: Index, known: frozenset[str]) -> bool:
    atom = b.terms[0][0] if len(b.terms) == 1 and b.terms[0][1] == 1 else None
    return isinstance(atom, Min) and all(
        is_nonnegative(x + b.constant - a, known) for x in atom.args
    )


def _piece(x: Loop, piece: Loop, rows: str, names: Names) -> Node:
    """The sum over one piece of its ranges; `piece` has the ends and another name, and loops inside
    have others, too."""
    whole = piece.variable == x.variable
    body = x.body if whole else _guarded(x, rows)
    if not whole:
        body = rename_loops(body, {y.variable: names.fresh(y.variable) for y in loops_in(body)})
    here = substitute_node(body, {x.variable: var(piece.variable)})
    return replace(piece, body=here)


def _apart(kernel: Kernel, x: Loop, edges: set[str], names: Names) -> Node:
    """Columns of sums in two nests, of which the first has the pieces that need no guard."""
    inside = children(x.body)
    at = next((k for k, y in enumerate(inside) if isinstance(y, Loop) and y.variable in edges), 0)
    mine = any(x.variable in b.private for b in kernel.buffers)
    if not at or mine or x.lower.variables() & edges:
        return x
    first, rest = block(*inside[:at]), block(*inside[at:])
    other = names.fresh(x.variable)
    second = substitute_node(rest, {x.variable: var(other)})
    return block(replace(x, body=first), replace(x, variable=other, body=second))


def _used(x: Loop) -> frozenset[str]:
    return x.lower.variables() | x.upper.variables()


def _maps_apart(x: Node, rows: Loop, own: frozenset[str], names: Names) -> Node:
    """A sum over terms that are stored as well, in two loops: terms, then the sum."""
    inside = children(x.body) if isinstance(x, Loop) else ()
    stores = [n for n in inside if isinstance(n, Store)]
    sums = [n for n in inside if isinstance(n, Update)]
    if not isinstance(x, Loop) or rows.variable not in _used(x) or not (stores and sums):
        return x
    read = {r.tensor for n in stores for r in loads(n.value)}
    name = names.fresh(x.variable)
    body = substitute_node(block(*stores), {x.variable: var(name)})
    terms = replace(x, variable=name, body=body, order="parallel")
    total = replace(x, body=block(*sums))
    is_apart = len(stores) + len(sums) == len(inside) and read.isdisjoint(n.buffer for n in sums)
    return block(terms, total) if is_apart and _is_own_map(terms, rows, own) else x


def _is_own_map(x: Loop, rows: Loop, own: frozenset[str]) -> bool:
    """Stores an element of temporaries of a row at each of its points, and may do so beyond."""
    if x.order != "parallel":
        return False
    return all(
        isinstance(n, Store)
        and n.buffer in own
        and n.subscripts.count(var(x.variable)) == 1
        and all(_stays_inside(r, x.variable, frozenset((rows.variable,))) for r in loads(n.value))
        for n in children(x.body)
    )


def _is_sum(x: Loop) -> bool:
    """Only updates inside, of elements that do not move with it."""
    if x.order != "reduction":
        return False
    for n, _ in walk(x.body):
        if isinstance(n, Update):
            if x.variable in subscript_variables(n.subscripts):
                return False
        elif not isinstance(n, Loop | Block | Branch):
            return False
    return True


def _contracts(kernel: Kernel, rows: Loop) -> bool:
    for child in children(rows.body):
        if isinstance(child, Loop) and child.order == "parallel":
            inner = band_of(child)
            if contraction_roles(kernel, Band((rows, *inner.loops), inner.body)) is not None:
                return True
    return False


# ---- terms outside of a row's range


def _guarded(x: Loop, rows: str) -> Node:
    """The body of a sum that counts terms inside of its range only."""
    sides = [var(x.variable) - x.lower] if rows in x.lower.variables() else []
    sides += [x.upper - 1 - var(x.variable)] if rows in x.upper.variables() else []
    tests = [Compare("ge", IndexValue(e, DType.INT64), Const(0, DType.INT64)) for e in sides]
    test: Expr = tests[0]
    for other in tests[1:]:
        test = Binary("and", test, other, DType.BOOL)
    moving = frozenset[str]().union(*(e.variables() for e in sides)) - {x.variable}

    def term(n: Node) -> Node:
        if not isinstance(n, Update):
            return n
        dtype = value_dtype(n.value)
        eager = all(_stays_inside(r, x.variable, moving) for r in loads(n.value))
        return replace(
            n,
            value=Select(test, n.value, identity(n.op, dtype), dtype, eager),  # type: ignore[arg-type]
        )

    return map_node(x.body, term)


def _stays_inside(r: Read, variable: str, moving: frozenset[str]) -> bool:
    """Inside the tensor wherever the variable is in some row's range: no subscript moves with the
    row as well, and nothing is checked."""
    if any(r.checked) or r.unwritten is not None:
        return False
    for s in r.subscripts:
        if not isinstance(s, Index):
            return False
        if variable in s.variables() and s.variables() & moving:
            return False
    return True


# ---- what no row of the strip reads


Ends = tuple[Index, Index]


def _without_unread(body: Node, own: frozenset[str], ordered: set[Ends]) -> Node:
    """`body` with loops that only store elements of `own` over those that are read.

    ordered: ranges of which the upper end is not below the lower one.
    """
    for x in reversed(loops_in(body)):
        if x.order == "parallel":
            body = _clipped(body, x, own, ordered)
    return body


def _clipped(body: Node, x: Loop, own: frozenset[str], ordered: set[Ends]) -> Node:
    targets: set[tuple[str, int]] = set()
    for n, _ in walk(x.body):
        if isinstance(n, Store | Update):
            at = [d for d, s in enumerate(n.subscripts) if s == var(x.variable)]
            if n.buffer not in own or len(at) != 1:
                return body
            targets.add((n.buffer, at[0]))
    ends = [e for t in sorted(targets) for e in _ends_read(body, x, *t)]
    if not ends or None in ends:
        return body
    known = {e for e in ends if e is not None}
    starts, stops = {a for a, _ in known}, {b for _, b in known}
    lower = maximum(x.lower, minimum(*(starts - {b for _, b in known & ordered})))
    most = maximum(*(stops - {a for a, _ in known & ordered}))
    atom = most.terms[0][0] if len(most.terms) == 1 else None
    within = isinstance(atom, Min) and most == minimum(most, x.upper)
    upper = most if within else minimum(x.upper, most)
    return replace_loop(body, x.variable, lambda y: replace(y, lower=lower, upper=upper))


def _ends_read(body: Node, x: Loop, buffer: str, dimension: int) -> Iterator[Ends | None]:
    """For each read elsewhere, the range of its subscript; None if that is no loop variable."""
    for n, around in walk(body):
        if isinstance(n, Loop | Block | Branch) or any(y.variable == x.variable for y in around):
            continue
        for a in accesses(n):
            if a.buffer != buffer or a.written:
                continue
            s = a.subscripts[dimension]
            loop = next((y for y in around if s == var(y.variable)), None)
            inside = {y.variable for y in loops_in(body)}
            if loop is None or a.checks(dimension) or _used(loop) & inside:
                yield None
            else:
                yield loop.lower, loop.upper
