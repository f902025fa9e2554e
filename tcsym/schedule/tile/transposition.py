# SPDX-License-Identifier: Apache-2.0
"""Element-wise nests whose loads and stores run along different loops -> blocks of both loops.

A plain transposition is moved block by block through registers. So is what other values need
(`transposed_values`); where that is too little for a block, or may not be read, they stay
element-wise, but reuse the cache lines of their strided side within a block.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, choose, eq, maximum, minimum, mod, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Kernel, Loop, Node, Store, TransposeBlock
from tcsym.ir.traverse import substitute_node
from tcsym.schedule.analysis.access import accesses, stride
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.interchange import reorder_chain
from tcsym.schedule.tile.tile_loop import is_multiple, tile_loop

CACHE_POINTS = 128  # of a side of a cache block, which has whole tiles
CONFLICT_BYTES = 2048  # rows a multiple of it apart share one or two sets of the first cache
BLOCK_POINTS = 16


class Transposition(Struct, frozen=True):
    """target[.., column.., row] = source[.., row.., column]

    source_row, target_column: positions of the slow subscripts, counted from the end.
    """

    store: Store
    source: Read
    row: Loop
    column: Loop
    source_row: int
    target_column: int


def transposition_of(kernel: Kernel, chain: tuple[Loop, ...]) -> Transposition | None:
    """The transposition that a perfect chain of parallel loops is, or None."""
    store = chain[-1].body
    if not isinstance(store, Store) or not isinstance(store.value, Read):
        return None
    same = kernel.buffer(store.value.tensor).dtype is kernel.buffer(store.buffer).dtype
    return moved_read(kernel, chain, store, store.value) if same else None


def moved_read(
    kernel: Kernel, chain: tuple[Loop, ...], store: Store, read: Read
) -> Transposition | None:
    """The transposition if the store, in the chain, stored the element as it is."""
    target = kernel.buffer(store.buffer)
    plain = not any(read.checked) and read.unwritten is None
    subscripts = tuple(s for s in read.subscripts if isinstance(s, Index))
    if not plain or min(len(subscripts), len(store.subscripts)) < 2:
        return None
    if len(subscripts) < len(read.subscripts) or read.tensor == store.buffer:
        return None
    row, column = _mover(chain, store.subscripts[-1]), _mover(chain, subscripts[-1])
    if row is None or column is None or row is column:
        return None
    if {row.variable, column.variable} & (target.private | kernel.buffer(read.tensor).private):
        return None
    target_column = _slow_position(store.subscripts, column, row)
    source_row = _slow_position(subscripts, row, column)
    if target_column is None or source_row is None:
        return None
    return Transposition(store, read, row, column, source_row, target_column)


def _mover(chain: tuple[Loop, ...], subscript: Index) -> Loop | None:
    """The loop of the chain that moves a subscript one by one."""
    found = [x for x in chain if subscript.coefficient(x.variable) == 1]
    return found[0] if len(found) == 1 else None


def _slow_position(subscripts: tuple[Index, ...], slow: Loop, fast: Loop) -> int | None:
    """Where `slow` moves, from the end, if it moves one subscript and `fast` only the last."""
    *others, last = subscripts
    s, f = slow.variable, fast.variable
    moved = [k for k, x in enumerate(others) if s in x.variables()]
    if len(moved) != 1 or others[moved[0]].coefficient(s) != 1 or s in last.variables():
        return None
    if last.coefficient(f) != 1 or any(f in x.variables() for x in others):
        return None
    return moved[0] - len(subscripts)


def transpose_in_blocks(
    kernel: Kernel, chain: tuple[Loop, ...], t: Transposition, block: int, setting: Setting
) -> Kernel:
    """The chain as register-transposed blocks, in cache blocks of 128 by 128 points.

    Tiles have a line of elements a side: blocks side by side fill lines of the target, those behind
    each other use up lines of the source. The last block starts early enough to be whole: masked
    stores cost more than elements moved twice.
    Contract: all loops of the chain are parallel; no bound uses the row or column loop.
    """
    bytes_, names = kernel.buffer(t.store.buffer).dtype.bytes, setting.names
    line = max(1, setting.machine.line_bytes // (block * bytes_))

    def move(first: dict[str, Index]) -> Node:
        return _block(t, first, block, line)

    node = over_blocks(kernel, chain, t, block, line, move, False, names)
    return replace(kernel, body=replace_loop(kernel.body, chain[0].variable, lambda _: node))


def over_blocks(
    kernel: Kernel,
    chain: tuple[Loop, ...],
    t: Transposition,
    block: int,
    line: int,
    body: Callable[[dict[str, Index]], Node],
    whole: bool,
    names: Names,
) -> Node:
    """The chain over blocks of `block` columns and `line` times as many rows.

    body: of the block whose first row and column are given, by their loops' names. whole: the last
    one starts early enough to have all its rows, not just `block` of them.
    """
    row, column, halves = (names.fresh(x.variable) for x in (t.row, t.column, t.column))
    order = _tile_order(kernel, t, block * line, (row, column), names)
    behind = order.column * line + var(halves)
    rows = (order.row, block * line) if whole else (order.row * line, block)
    first = {
        t.row.variable: t.row.lower + _block_start(extent(t.row), *rows),
        t.column.variable: t.column.lower + _block_start(extent(t.column), behind, block),
    }
    node = body(first)
    if line > 1:
        pieces = minimum(line, ceildiv(extent(t.column), block) - order.column * line)
        node = Loop(halves, ZERO, pieces, node, "serial", "parallel")
    else:
        node = substitute_node(node, {halves: ZERO})
    for loop in reversed(order.loops):
        node = replace(loop, body=node)
    for x, name in ((t.column, column), (t.row, row)):
        points = max(CACHE_POINTS, block * line)
        node = Loop(name, ZERO, ceildiv(extent(x), points), node, "serial", "parallel")
    for x in reversed(chain):
        if x.variable not in first:
            node = replace(x, body=node)
    return node


class _TileOrder(Struct, frozen=True):
    """Loops over the tiles of a cache block; which tile of all rows and columns they are at."""

    loops: tuple[Loop, Loop]
    row: Index
    column: Index


def _tile_order(
    kernel: Kernel, t: Transposition, points: int, block: tuple[str, str], names: Names
) -> _TileOrder:
    """Along a row of the source first: it is read as it lies.

    But along a row of the target first where its rows fall on the same sets of the caches: their
    lines would be evicted half-written. `block`: the loops over rows and columns of cache blocks.
    """
    target, many = kernel.buffer(t.store.buffer), max(1, CACHE_POINTS // points)
    apart = target.element_strides()[t.target_column]
    conflict = eq(mod(apart, CONFLICT_BYTES // target.dtype.bytes), 0)
    low = [var(name) * many for name in block]
    rows, columns = (ceildiv(extent(x), points) - k for x, k in zip((t.row, t.column), low))
    outer, inner = names.fresh(t.row.variable), names.fresh(t.column.variable)
    ends = choose(conflict, columns, rows), choose(conflict, rows, columns)
    loops = [
        Loop(name, ZERO, minimum(many, end), Block(()), "serial", "parallel")
        for name, end in zip((outer, inner), ends)
    ]
    return _TileOrder(
        (loops[0], loops[1]),
        low[0] + choose(conflict, var(inner), var(outer)),
        low[1] + choose(conflict, var(outer), var(inner)),
    )


def _block(t: Transposition, first: dict[str, Index], block: int, blocks: int) -> TransposeBlock:
    """Blocks side by side, from `first` of the row and of the column loop."""
    return TransposeBlock(
        t.store.buffer,
        tuple(substitute(s, first) for s in t.store.subscripts),
        t.source.tensor,
        tuple(substitute(s, first) for s in t.source.subscripts if isinstance(s, Index)),
        t.row.upper - first[t.row.variable],
        t.column.upper - first[t.column.variable],
        block,
        t.source_row,
        t.target_column,
        blocks,
    )


def _block_start(n: Index, number: Index, block: int) -> Index:
    start = number * block
    return start if is_multiple(n, block) else minimum(start, maximum(ZERO, n - block))


def strided_partner(kernel: Kernel, chain: tuple[Loop, ...], lanes: str) -> str | None:
    """Another parallel loop of the chain along which a load runs that jumps along `lanes`."""
    inside = {x.variable for x in chain}
    for a in accesses(chain[-1].body):
        b = kernel.buffer(a.buffer)
        step = stride(b, a.subscripts, lanes)
        if step is None or step in (ZERO, ONE) or b.space != "argument":
            continue
        for x in reversed(chain):
            bounds = [(y.lower.variables() | y.upper.variables()) & inside for y in chain]
            if x.variable == lanes or x.order != "parallel" or any(bounds):
                continue
            if stride(b, a.subscripts, x.variable) == ONE:
                return x.variable
    return None


def block_points(
    kernel: Kernel, chain: tuple[Loop, ...], lanes: str, partner: str, width: int, names: Names
) -> Kernel:
    """.., partner tiles, vectors, a few points of `partner`, lanes.

    Contract: all loops of the chain are parallel, their bounds use none of them, and the extent of
    `lanes` is a multiple of `width`.
    """
    vectors, lane, tile, point = (names.fresh(v) for v in (lanes, lanes, partner, partner))
    top = chain[0].variable
    node = find_loop(kernel.body, top)
    changed = replace_loop(node, lanes, lambda x: tile_loop(x, width, vectors, lane))
    changed = replace_loop(changed, lane, lambda x: replace(x, kind="vector"))
    changed = replace_loop(changed, partner, lambda x: tile_loop(x, BLOCK_POINTS, tile, point))
    changed = replace_loop(changed, point, _serial)
    others = tuple(x.variable for x in chain if x.variable not in (lanes, partner))
    assert isinstance(changed, Loop)
    changed = reorder_chain(changed, (*others, tile, vectors, point, lane))
    kernel = replace(kernel, body=replace_loop(kernel.body, top, lambda _: changed))
    new = {lanes: {vectors}, partner: {tile, point}}
    for b in kernel.buffers:
        private = set(b.private)
        for old, names_ in new.items():
            private |= names_ if old in private else set()
        kernel = kernel.with_buffer(replace(b, private=frozenset(private)))
    return kernel


def _serial(x: Loop) -> Loop:
    upper = x.upper if x.mask is None else minimum(x.upper, x.mask)
    return replace(x, kind="serial", mask=None, upper=upper)
