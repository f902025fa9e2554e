# SPDX-License-Identifier: Apache-2.0
"""A loop in order around parallel ones -> the parallel ones outside, or blocks of them.

A scan along the last dimension has its rows in threads then, and unit strides in each. Where rows
lie side by side in memory, threads take blocks of them through all steps: else they would meet at
every step, for which there is rarely enough to do. A few such rows go outside after all: they are
the lanes of vectors that stay in registers from step to step, which memory is too slow for. Rows
with nests inside go outside, too, if they share nothing they read: their state stays in a cache.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import (
    FALSE,
    ONE,
    ZERO,
    Condition,
    Index,
    ceildiv,
    condition_variables,
    floordiv,
    ge,
    maximum,
    minimum,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Branch, Buffer, Kernel, Loop, Node, Store, block
from tcsym.ir.traverse import map_node, substitute_node, walk
from tcsym.schedule.analysis.access import Access, accesses, rename_buffers, stride
from tcsym.schedule.analysis.loops import chain_of, find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops, replace_private
from tcsym.schedule.analysis.rows import are_own
from tcsym.schedule.version.versioning import duplicate

Chain = tuple[Loop, ...]
MOST_BLOCKS = 8  # of rows, for threads: each block goes through all steps
LEAST_ROWS = 2048  # of a block: what it reads of one array is a run of two pages
FEW_ROWS = 32  # of a scan that is done row by row: a few vectors
WHOLE_ROWS = 64  # blocks are whole multiples: only the last one has ragged vectors


def interchange_scans(kernel: Kernel, names: Names, in_blocks: bool = True) -> Kernel:
    """Every outermost loop in order goes inside its parallel loops, if that is legal and pays.

    in_blocks: or else inside a loop over blocks of these.
    """
    for loop, around in tuple(walk(kernel.body)):
        if isinstance(loop, Loop) and loop.is_steps and not around:
            kernel = _interchanged(kernel, loop, names, in_blocks)
    return kernel


def has_steps_of_nests(node: Loop) -> bool:
    """A loop in order inside is around parallel ones: these are nests, and its rows are not."""
    inside = [(x, around) for x, around in walk(node.body) if isinstance(x, Loop)]
    return any(x.order == "parallel" and any(y.is_steps for y in around) for x, around in inside)


def _tops(node: Node) -> tuple[Node, ...]:
    """What is below blocks and conditions."""
    match node:
        case Block(body):
            return tuple(t for x in body for t in _tops(x))
        case Branch(_, a, b):
            return _tops(a) + (() if b is None else _tops(b))
        case _:
            return (node,)


def scans_in_threads(kernel: Kernel) -> Kernel:
    """For devices: outermost loops in order inside all their parallel loops, where nothing else is
    in these and no value crosses rows: a thread takes a row through all steps, and has its state.
    """
    for loop, around in tuple(walk(kernel.body)):
        if isinstance(loop, Loop) and loop.is_steps and not around:
            changed, outside = rows_outside(kernel, loop)
            scan = next(x for x in chain_of(outside) if x.variable == loop.variable)
            if scan is not outside and not loops_in(scan.body):
                kernel = _with_states(kernel, changed, loop, outside)
    return kernel


def _with_states(kernel: Kernel, changed: Kernel, scan: Loop, outside: Loop) -> Kernel:
    """The scan inside its rows, to which temporaries are private that are used nowhere else."""
    rows = {x.variable for x in chain_of(outside)} - {scan.variable}
    for b in _states(kernel, scan):
        own = changed.buffer(b.name)
        changed = changed.with_buffer(replace(own, private=own.private | rows))
    return replace(changed, body=replace_loop(kernel.body, scan.variable, lambda _: outside))


def _states(kernel: Kernel, scan: Loop) -> list[Buffer]:
    """Temporaries that nothing but the scan uses."""
    rest = replace_loop(kernel.body, scan.variable, lambda _: block())
    written = {a.buffer for a in accesses(scan) if a.written}
    own = written - {a.buffer for a in accesses(rest)}
    return [b for b in kernel.buffers if b.name in own and b.space != "argument"]


def rows_outside(kernel: Kernel, scan: Loop) -> tuple[Kernel, Loop]:
    """All loops that nests of the scan share outside of it, and the rest of it inside, as long as
    no value crosses rows; the scan as it is, if there are none."""
    found = _rows_of(scan)
    if found is None:
        return kernel, scan
    rows, inner, new = found
    written = {a.buffer for a in accesses(inner.body) if a.written}
    if not are_own(inner.body, rows[0].variable, written, (scan.variable,)):
        return kernel, scan
    kernel, below = rows_outside(
        replace_private(kernel, {v: (name,) for v, name in new.items()}), inner
    )
    return kernel, replace(rows[0], body=below)


def _rows_of(scan: Loop) -> tuple[Chain, Loop, dict[str, str]] | None:
    """The outermost loops of all nests of the scan, if they are alike and nothing else is there;
    the scan of a row of the first of them; that loop's name by those of the others."""
    tops = _tops(scan.body)
    rows = tuple(x for x in tops if isinstance(x, Loop))
    if not rows or len(rows) < len(tops) or not _are_alike(tuple((x,) for x in rows), scan):
        return None
    if any(x.order != "parallel" or x.kind != "serial" for x in rows):
        return None
    new = {x.variable: rows[0].variable for x in rows[1:]}
    body = scan.body
    for x in rows:
        body = replace_loop(body, x.variable, lambda r: r.body)
    return rows, replace(scan, body=rename_loops(body, new)), new


def _rows_outside(kernel: Kernel, scan: Loop, names: Names) -> Kernel:
    """The outermost loops of nests outside of the scan, as long as iterations share nothing."""
    found = _rows_of(scan)
    if found is None or not all(loops_in(x.body) for x in found[0]):
        return kernel
    rows, inner, new = found
    row = rows[0].variable
    touched = tuple(accesses(inner.body))
    is_across = any(stride(kernel.buffer(a.buffer), a.subscripts, row) == ONE for a in touched)
    if is_across or not are_own(inner.body, row, {a.buffer for a in touched}, (scan.variable,)):
        return kernel
    states = _states(kernel, scan)
    kernel, copy = _for_single_points(kernel, scan, inner, names)
    node: Node = replace(rows[0], body=inner)
    if copy is not None:
        single, scans = copy
        for b in states:
            if any(a.buffer == b.name for a in accesses(scans)):  # a scan of all rows has others
                kernel = kernel.with_buffer(replace(b, name=names.fresh(b.name)))
                scans = rename_buffers(scans, {b.name: kernel.buffers[-1].name})
        node = Branch(single, scans, node)
    for b in states:
        kernel = kernel.with_buffer(replace(b, private=b.private | {row}))
    kernel = replace_private(kernel, {v: (name,) for v, name in new.items()})
    body = replace_loop(kernel.body, scan.variable, lambda _: node)
    return _rows_outside(replace(kernel, body=body), inner, names)


def _for_single_points(
    kernel: Kernel, scan: Loop, inner: Loop, names: Names
) -> tuple[Kernel, tuple[Condition, Node] | None]:
    """A copy of the scan for nests of a single point each, which has rows in the lanes instead."""
    points = [x for x, _ in walk(inner.body) if isinstance(x, Loop) and x.order == "parallel"]
    extents = {extent(x) for x in points if not _has_points(x.body)}
    if len(extents) != 1:
        return kernel, None
    single = ge(ONE, next(iter(extents)))
    if single == FALSE or condition_variables(single) - {*kernel.sizes}:
        return kernel, None
    kernel, copy, _ = duplicate(kernel, scan, names)
    return kernel, (single, copy)


def _has_points(node: Node) -> bool:
    return any(isinstance(x, Loop) and x.order == "parallel" for x, _ in walk(node))


def _interchanged(kernel: Kernel, scan: Loop, names: Names, in_blocks: bool) -> Kernel:
    chains = _chains(scan.body)
    if not chains:
        return _rows_outside(kernel, scan, names)
    if not _are_alike(chains, scan):
        return kernel
    inner, rows, _ = _with_rows_outside(scan, chains, names)
    if not _are_independent(inner, rows):
        return kernel
    if _pays(kernel, inner, rows):
        return _outside(kernel, scan, names)
    few = ge(FEW_ROWS, extent(rows[0]))
    if len(rows) > 1 or few == FALSE or not _are_neighbours(kernel, inner, rows[0].variable):
        return _in_blocks(kernel, scan, chains, names) if in_blocks else kernel
    kernel, copy, new = duplicate(kernel, scan, names)
    body = replace_loop(kernel.body, scan.variable, lambda x: Branch(few, copy, x))
    kernel = replace(kernel, body=body)
    kernel = _outside(kernel, find_loop(kernel.body, new[scan.variable]), names)
    return _in_blocks(kernel, scan, chains, names) if in_blocks else kernel


def _with_rows_outside(
    scan: Loop, chains: tuple[Chain, ...], names: Names
) -> tuple[Loop, Chain, dict[str, str]]:
    """The scan of single rows, the loops over these to put around it, their names by old ones."""
    shared = {x.variable: names.fresh(x.variable) for x in chains[0]}
    new = {x.variable: n for c in chains for x, n in zip(c, shared.values())}
    inner = replace(scan, body=_without_rows(rename_loops(scan.body, new)))
    return inner, tuple(replace(x, variable=shared[x.variable]) for x in chains[0]), new


def _outside(kernel: Kernel, scan: Loop, names: Names) -> Kernel:
    """The kernel with that scan inside its rows. Contract: they are alike and independent."""
    inner, rows, new = _with_rows_outside(scan, _chains(scan.body), names)
    node: Node = inner
    for row in reversed(rows):
        node = replace(row, body=node)
    body = replace_loop(kernel.body, scan.variable, lambda _: node)
    return replace(replace_private(kernel, {v: (name,) for v, name in new.items()}), body=body)


def _are_neighbours(kernel: Kernel, scan: Loop, row: str) -> bool:
    """What is stored lies side by side for neighbouring rows."""
    stores = [x for x, _ in walk(scan.body) if isinstance(x, Store)]
    return bool(stores) and all(
        stride(kernel.buffer(x.buffer), x.subscripts, row) == ONE
        for x in stores
        if scan.variable not in kernel.buffer(x.buffer).private
    )


def _in_blocks(kernel: Kernel, scan: Loop, chains: tuple[Chain, ...], names: Names) -> Kernel:
    """Contract: no step reads what another row wrote."""
    count, inner = extent(chains[0][0]), ONE
    for x in chains[0][1:]:
        inner = inner * maximum(ZERO, extent(x))
    least = maximum(1, floordiv(LEAST_ROWS, inner))
    whole = WHOLE_ROWS if len(chains[0]) == 1 else 1
    length = maximum(least, ceildiv(count, MOST_BLOCKS * whole) * whole)
    part = names.fresh(scan.variable)
    rows = {first.variable for first, *_ in chains}
    body = scan.body
    for v in sorted(rows):
        body = replace_loop(body, v, lambda x: _block(x, var(part) * length, length))
    parts = ceildiv(count, length)
    node = Loop(part, ZERO, parts, replace(scan, body=body), "serial", "parallel")
    body = replace_loop(kernel.body, scan.variable, lambda _: node)
    return replace_private(replace(kernel, body=body), {v: (v, part) for v in rows})


def _block(rows: Loop, done: Index, length: Index) -> Loop:
    """At most `length` rows after the first `done`, counted from 0."""
    at = {rows.variable: rows.lower + done + var(rows.variable)}
    n = minimum(length, extent(rows) - done)
    return replace(rows, lower=ZERO, upper=n, body=substitute_node(rows.body, at))


def _chains(node: Node) -> tuple[Chain, ...]:
    """The parallel nests below conditions, if there is nothing else; else none."""
    match node:
        case Block(body):
            parts = [_chains(x) for x in body]
            return () if not all(parts) else tuple(c for p in parts for c in p)
        case Branch(_, a, b):
            parts = [_chains(x) for x in (a, b) if x is not None]
            return () if not all(parts) else tuple(c for p in parts for c in p)
        case Loop():
            chain = chain_of(node)
            free = all(x.order == "parallel" and x.kind == "serial" for x in chain)
            return (chain,) if free and not loops_in(chain[-1].body) else ()
        case _:
            return ()


def _are_alike(chains: tuple[Chain, ...], scan: Loop) -> bool:
    """The same iterations in every nest and in every step."""
    bounds = {tuple((x.lower, x.upper) for x in c) for c in chains}
    inside = {x.variable for c in chains for x in c} | {scan.variable}
    used = frozenset[str]().union(
        *(x.end_variables for x in chains[0]),
        scan.end_variables,
    )
    return len(bounds) == 1 and not used & inside


def _without_rows(node: Node) -> Node:
    """`node` with the bodies of its loops in their places."""
    return map_node(node, lambda x: x.body if isinstance(x, Loop) else x)


def _are_independent(scan: Loop, rows: Chain) -> bool:
    """Steps touch what another row writes in no case: rows show alike in all its subscripts."""
    written = {a.buffer for a in accesses(scan.body) if a.written}
    loops = {scan.variable, *(x.variable for x in rows)}
    return all(are_own(scan.body, x.variable, written, loops - {x.variable}) for x in rows)


def _pays(kernel: Kernel, scan: Loop, rows: Chain) -> bool:
    """What is stored moves in unit strides with the scan, and nothing that steps read anew does
    with a row. Where steps store nothing anew, something they read moves so with the scan."""
    moved = [a for a in accesses(scan.body) if _moves(kernel, a, scan.variable)]
    stores = [a for a in moved if a.written]
    along = [_is_unit(kernel, a, scan.variable) for a in stores or moved]
    across = any(_is_unit(kernel, a, r.variable) for a in moved for r in rows)
    return (all(along) if stores else any(along)) and not across


def _is_unit(kernel: Kernel, a: Access, variable: str) -> bool:
    """It moves to a neighbour, forwards or backwards."""
    return stride(kernel.buffer(a.buffer), a.subscripts, variable) in (ONE, -ONE)


def _moves(kernel: Kernel, a: Access, variable: str) -> bool:
    """It touches another element in the next step, as far as is known, and not one of the few that
    a temporary keeps."""
    b = kernel.buffer(a.buffer)
    return variable not in b.private and any(
        not isinstance(s, Index) or variable in s.variables()
        for s, n in zip(a.subscripts, b.shape)
        if b.space == "argument" or n.as_int() is None
    )
