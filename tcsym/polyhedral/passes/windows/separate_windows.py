"""Windows whose terms need no weights -> sums along one side of the window, then along the other.

`O(h, w) max= I(2*h + kh, 2*w + kw)` asks for KH*KW elements a point. The maxima down the columns of
a window, `T(x) max= I(2*h + kh, x)`, serve all windows of the row: KH elements for each x, side by
side in memory whatever the step, then KW of T a point. Sides of known short length become one
expression, without an accumulator. Box filters, pooling, dilation and erosion are such windows.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tcsym.frontend.program import Binary, IndexValue, Read
from tcsym.index import (
    ZERO,
    Index,
    all_of,
    ceildiv,
    condition_variables,
    ge,
    index,
    maximum,
    minimum,
    var,
)
from tcsym.loop_ir import (
    Buffer,
    Holds,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    block,
    conditional,
    loads,
    map_value,
    same,
    substitute_node,
    subvalues,
)
from tcsym.polyhedral.passes.common.access import accesses
from tcsym.polyhedral.passes.common.band import Band, band_of
from tcsym.polyhedral.passes.common.bounds import eliminate, extent, extent_from
from tcsym.polyhedral.passes.common.identities import identity
from tcsym.polyhedral.passes.common.loops import (
    chain_of,
    children,
    find_loop,
    loops_around,
    replace_loop,
)
from tcsym.polyhedral.passes.common.names import Names
from tcsym.polyhedral.passes.windows.expand_reductions import expand_reductions
from tcsym.polyhedral.passes.windows.literal_windows import literal_copy, symbolic_windows
from tcsym.records import dataclass

ROWS = 4  # of a side at a time: what was just stored cannot be loaded at once
FEW_TERMS = 4  # of a window that is one expression
MOST_STEP = 4  # between windows of unknown length, of which few columns are used


@dataclass(frozen=True, slots=True)
class _Side:
    """A subscript of the operand that moves along the row: its least value and its extent."""

    subscript: Index
    low: Index
    n: Index


@dataclass(frozen=True, slots=True)
class _Separable:
    """`update`, in the loops `around`, of which `first` can be done once for all of `inner`."""

    update: Update
    around: tuple[Loop, ...]
    first: tuple[Loop, ...]
    inner: tuple[Loop, ...]
    sides: tuple[_Side, ...]

    @property
    def second(self) -> tuple[Loop, ...]:
        return tuple(x for x in self.around if x not in self.first)


@dataclass(frozen=True, slots=True)
class Separated:
    """`nests` are what is left to schedule."""

    kernel: Kernel
    nests: tuple[str, ...]


def separate_windows(kernel: Kernel, nest: str, names: Names) -> Separated | None:
    """The nest with every reduction over a window in two parts; None if one has no such parts.

    Windows of symbolic size get a version for the commonest one.
    """
    band = band_of(find_loop(kernel.body, nest))
    if len(_separable(kernel, band)) == 0:
        return None
    copies = [nest]
    windows = symbolic_windows(kernel, band, 1)
    if windows.loops:
        literal = literal_copy(kernel, nest, windows, names)
        kernel = literal.before(nest, windows.are_literal)
        copies.append(literal.new[nest])
    nests: list[str] = []
    for x in copies:
        kernel, parts = _separated(kernel, x, names)
        nests += parts
    return Separated(kernel, tuple(nests))


def _separated(kernel: Kernel, nest: str, names: Names) -> tuple[Kernel, tuple[str, ...]]:
    """The nest in two parts, and the outermost loops of what is left to schedule."""
    band = band_of(find_loop(kernel.body, nest))
    found = _separable(kernel, band)
    if all(_is_small(x) for x in found):
        body = expand_reductions(band.body)
        innermost = band.variables[-1]
        changed = replace_loop(kernel.body, innermost, lambda x: replace(x, body=body))
        return replace(kernel, body=changed), (nest,)
    inner = found[0].inner
    outer, rows = band.loops[: -len(inner) - 1], band.loops[-len(inner) - 1]
    tile, row = names.fresh(rows.variable), var(rows.variable) - rows.lower
    around = (*loops_around(kernel.body, nest), *outer)
    private = frozenset((*(x.variable for x in around), tile))
    parts, body = list[Node](), band.body
    for one in found:
        name = names.fresh(f"{one.update.buffer.partition('.')[0]}_side")
        extents = (extent_from(x.n, frozenset(kernel.sizes)) for x in one.sides)
        dtype, shape = kernel.buffer(one.update.buffer).dtype, (extent(rows), *extents)
        kernel = kernel.with_buffer(Buffer(name, dtype, shape, "arena", private=private))
        parts.append(_first(one, name, row, kernel, names))
        second = _second(one, name, row, kernel)
        body = replace_loop(body, one.around[0].variable, lambda _, x=second: x)  # type: ignore[misc]
    parts.append(_around(inner, expand_reductions(body)))
    kernel, blocks, nests = _in_blocks(kernel, rows, tile, parts, names)
    filled = all_of(ge(extent(x), 1) for x in inner)
    node = conditional(filled, _around(outer, blocks))
    return replace(kernel, body=replace_loop(kernel.body, nest, lambda _: node)), nests


def _around(loops: tuple[Loop, ...], node: Node) -> Node:
    for x in reversed(loops):
        node = replace(x, body=node)
    return node


def _is_small(one: _Separable) -> bool:
    """So few terms, side by side or nearly so, that rows for one side would cost more."""
    trips = [extent(x).as_int() for x in one.around]
    near = all(abs(s.subscript.coefficient(x.variable)) <= 2 for s in one.sides for x in one.inner)
    return near and all(trips) and prod(n or 0 for n in trips) <= FEW_TERMS


def _in_blocks(
    kernel: Kernel, rows: Loop, tile: str, parts: list[Node], names: Names
) -> tuple[Kernel, Node, tuple[str, ...]]:
    """Some rows of each part at a time, and the loops over these rows."""
    n, nests = extent(rows), list[Loop]()
    end = minimum(index(ROWS), n - var(tile) * ROWS)
    for x in parts:
        row = names.fresh(rows.variable)
        body = substitute_node(x, {rows.variable: rows.lower + var(tile) * ROWS + var(row)})
        nests.append(Loop(row, ZERO, end, body, "serial", rows.order))
    new = tuple(x.variable for x in nests)
    buffers = tuple(
        replace(b, private=b.private - {rows.variable} | {tile, new[-1]})
        if rows.variable in b.private
        else b
        for b in kernel.buffers
    )
    blocks = Loop(tile, ZERO, ceildiv(n, ROWS), block(*nests), "serial", rows.order)
    return replace(kernel, buffers=buffers), blocks, new


def _first(one: _Separable, name: str, row: Index, kernel: Kernel, names: Names) -> Node:
    """The side done once for all points of the row; nothing where the other side has no points."""
    dtype = kernel.buffer(name).dtype
    along = [names.fresh(_stem(x, one.inner)) for x in one.sides]
    moved = {x.subscript: x.low + var(v) for x, v in zip(one.sides, along)}
    value = map_value(one.update.value, same, lambda i: moved.get(i, i))
    at = (row, *map(var, along))
    update = replace(one.update, buffer=name, subscripts=at, value=value)
    start = Store(name, at, identity(update.op, dtype), update.name)
    node = expand_reductions(block(start, _around(one.first, update)))
    some = minimum(1, *(maximum(0, extent(x)) for x in one.second))
    for side, v in reversed(tuple(zip(one.sides, along))):
        node = Loop(v, ZERO, side.n * some, node, "serial", "parallel")
    return node


def _stem(side: _Side, inner: tuple[Loop, ...]) -> str:
    return next(x.variable for x in inner if x.variable in side.subscript.variables())


def _second(one: _Separable, name: str, row: Index, kernel: Kernel) -> Node:
    at = (row, *(x.subscript - x.low for x in one.sides))
    value = Read(name, at, kernel.buffer(name).dtype)
    return _around(one.second, replace(one.update, value=value))


# ---- what can be done in two parts


def _separable(kernel: Kernel, band: Band) -> tuple[_Separable, ...]:
    """Every reduction of the band's body in two parts, for the fewest inner loops; else none."""
    tops = [x for x in children(band.body) if isinstance(x, Loop)]
    chains = [chain_of(x) for x in tops]
    written = {a.buffer for a in accesses(band.body) if a.written}
    for p in range(len(band.loops) - 1, 0, -1):
        found = [_parts(x, band.loops[p:], band.loops[:p], written, kernel) for x in chains]
        known = tuple(x for x in found if x is not None)
        if known and len(known) == len(found):
            return known
    return ()


def _parts(
    chain: tuple[Loop, ...],
    inner: tuple[Loop, ...],
    outer: tuple[Loop, ...],
    written: set[str],
    kernel: Kernel,
) -> _Separable | None:
    update = chain[-1].body
    if not isinstance(update, Update) or any(x.order != "reduction" for x in chain):
        return None
    row = {x.variable for x in inner}
    sliding = [s for s in _subscripts(update) if s.variables() & row]
    second = tuple(x for x in chain if any(x.variable in s.variables() for s in sliding))
    first = tuple(x for x in chain if x not in second)
    moving = row | {x.variable for x in second}
    others = {x.variable for x in (*first, *outer)}
    alone = any(s.variables() & moving and s not in sliding for s in _subscripts(update))
    if alone or not _is_free(update, moving, others, written) or not first or not second:
        return None
    sides = _sides(sliding, inner, second, frozenset(kernel.sizes))
    one = sides and _Separable(update, chain, first, inner, sides)
    return one if one and _pays(one) else None


def _subscripts(update: Update) -> tuple[Index, ...]:
    found = (s for r in loads(update.value) for s in r.subscripts)
    return tuple(dict.fromkeys(s for s in found if isinstance(s, Index)))


def _is_free(update: Update, moving: set[str], others: set[str], written: set[str]) -> bool:
    """The term uses the row only in subscripts of its own, and nothing that the nest makes."""
    for x in subvalues(update.value):
        if isinstance(x, IndexValue) and x.index.variables() & moving:
            return False
        if isinstance(x, Holds) and condition_variables(x.condition) & moving:
            return False
        if isinstance(x, Read) and not _is_plain(x, written):
            return False
        if isinstance(x, Binary) and x.op == "mul" and len(set(loads(x))) > 1:
            return False  # weights: a contraction, or a window that is not of one operand
    return all(not s.variables() & others for s in _subscripts(update) if s.variables() & moving)


def _is_plain(r: Read, written: set[str]) -> bool:
    unchecked = r.unwritten is None and not any(r.checked)
    indices = all(isinstance(s, Index) for s in r.subscripts)
    return unchecked and indices and r.tensor not in written


def _sides(
    sliding: list[Index], inner: tuple[Loop, ...], second: tuple[Loop, ...], sizes: frozenset[str]
) -> tuple[_Side, ...] | None:
    """One for each subscript, in the order of the inner loops; None if they share a loop."""
    loops = (*inner, *second)
    bounds = (e for x in loops for e in (x.lower, x.upper))
    if any(not e.variables() <= sizes for e in bounds):
        return None
    sides: list[_Side] = []
    for x in inner:
        own = [s for s in sliding if x.variable in s.variables()]
        if len(own) > 1 or any(own[0] == y.subscript for y in sides if own):
            return None
        if not own:
            continue
        low, high = eliminate(own[0], loops, False), eliminate(own[0], loops, True)
        if low is None or high is None or not (low.variables() | high.variables()) <= sizes:
            return None
        sides.append(_Side(own[0], low, high - low + 1))
    alone = all(sum(x.variable in s.subscript.variables() for s in sides) == 1 for x in second)
    return tuple(sides) if sides and alone else None


def _pays(one: _Separable) -> bool:
    """Few columns are made that no window uses, and both sides have some length."""
    for x in one.inner:
        for s in (y.subscript for y in one.sides):
            step = s.coefficient(x.variable)
            used = prod(extent(y).as_int() or MOST_STEP for y in one.second)
            if x.variable in s.variables() and not 0 < step <= max(2 * used, MOST_STEP):
                return False
    sizes = [prod(extent(y).as_int() or 2 for y in part) for part in (one.first, one.second)]
    return min(sizes) > 1
