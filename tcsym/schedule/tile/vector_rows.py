"""An innermost loop -> vectors: groups of them, single ones, and a last one that is ragged.

The last one overlaps the one before it where elements may be made twice, else it is masked;
elements that cannot be masked remain single, maybe after shorter vectors (epilogue vectorisation).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Expr, Read
from tcsym.index.expr import ZERO, Index, ceildiv, floordiv, ge, index, minimum, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Branch,
    Buffer,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    block,
)
from tcsym.ir.traverse import map_node, substitute_node, walk
from tcsym.schedule.analysis.access import accesses, rename_buffer, subscript_variables
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import find_loop, replace_loop, statements_in
from tcsym.schedule.analysis.names import Names, renamed_loops

SHORT_LANES = 4  # least of a shorter vector


class RowShape(Struct, frozen=True):
    """lanes: elements of a vector; unroll: vectors in flight; masked: the remainder is a vector;
    overlapping: one that may make elements of the row again, if the row is long enough; narrowing:
    it is vectors of a quarter, then elements."""

    lanes: int
    unroll: int
    masked: bool
    overlapping: bool = False
    narrowing: bool = False


class _Lanes(Struct, frozen=True):
    """Lane-private accumulators of one reduction: buffer[unroll, lanes]."""

    update: Update
    buffer: Buffer


def vectorise_row(kernel: Kernel, top: str, variable: str, shape: RowShape, names: Names) -> Kernel:
    """The innermost loop `variable` in vectors of `shape.lanes`, `shape.unroll` of them in flight.

    Updates of elements that do not move with any loop from `top` (itself, or a perfect chain around
    it) get lane-private accumulators, set to the identity before `top` and combined after it. The
    remainder has its own copies of the temporaries private to the loop.
    Contract: the loop is parallel or a reduction, and `vector_refusal` has nothing against it.
    """
    row = find_loop(kernel.body, variable)
    around = next(a for x, a in walk(kernel.body) if isinstance(x, Loop) and x.variable == top)
    private = frozenset(x.variable for x in around)
    lanes = _accumulators(kernel, row, shape, names, private)
    main, loops = _main(row, shape, lanes, names)
    remainder, others = _remainder(row, shape, lanes, names)
    kernel = _retile(kernel, variable, loops)
    if remainder is not None:
        kernel, remainder = _own_temporaries(kernel, variable, others, remainder, names)
        for width in _overlapping_widths(shape) if not lanes else ():
            whole, others = _overlapping(row, shape, width, names)
            kernel, whole = _own_temporaries(kernel, variable, others, whole, names)
            remainder = Branch(ge(extent(row), width), whole, remainder)

    def at_top(loop: Loop) -> Node:
        changed = replace_loop(loop, variable, lambda _: block(main, remainder))
        before = [_clear(x, shape, names) for x in lanes]
        after = [_combine(x, shape, names) for x in lanes]
        return block(*before, changed, *after)

    kernel = replace(kernel, body=replace_loop(kernel.body, top, at_top))
    for x in lanes:
        kernel = kernel.with_buffer(x.buffer)
    return kernel


def _overlapping_widths(shape: RowShape) -> tuple[int, ...]:
    """Of vectors that may overlap, the widest last: short ones where a mask costs too much."""
    if not shape.overlapping:
        return ()
    short = shape.lanes // 4
    return (shape.lanes,) if shape.masked or short < 4 else (short, shape.lanes)


def _retile(kernel: Kernel, variable: str, loops: frozenset[str]) -> Kernel:
    """What was private to `variable` is private to the loops that replace it."""
    buffers = tuple(
        replace(b, private=b.private | loops) if variable in b.private else b
        for b in kernel.buffers
    )
    return replace(kernel, buffers=buffers)


def _own_temporaries(
    kernel: Kernel, variable: str, loops: frozenset[str], node: Node, names: Names
) -> tuple[Kernel, Node]:
    for b in kernel.buffers:
        if variable in b.private and any(a.buffer == b.name for a in accesses(node)):
            copy = replace(b, name=names.fresh(b.name), private=b.private | loops)
            kernel, node = kernel.with_buffer(copy), rename_buffer(node, b.name, copy.name)
    return kernel, node


def _accumulators(
    kernel: Kernel, loop: Loop, shape: RowShape, names: Names, private: frozenset[str]
) -> list[_Lanes]:
    """One for each element that `loop` reduces into, under conditions as well."""
    found: dict[tuple[str, tuple[Index, ...]], _Lanes] = {}
    for x, _ in statements_in(loop.body):
        key = (x.buffer, x.subscripts) if isinstance(x, Update) else None
        if not isinstance(x, Update) or key is None or key in found:
            continue
        if loop.variable not in subscript_variables(x.subscripts):
            target = kernel.buffer(x.buffer)
            name = names.fresh(f"{target.name}_lanes")
            extents = (index(shape.unroll), index(shape.lanes))
            buffer = Buffer(name, target.dtype.accumulator, extents, "register", private=private)
            found[key] = _Lanes(x, buffer)
    return list(found.values())


def _main(
    loop: Loop, shape: RowShape, lanes: list[_Lanes], names: Names
) -> tuple[Node | None, frozenset[str]]:
    """Whole groups of vectors (None if there never are any), and the names of their loops."""
    width = shape.lanes * shape.unroll
    if floordiv(extent(loop), width) == ZERO:
        return None, frozenset()
    tile, register, lane = (names.fresh(loop.variable) for _ in range(3))
    at = loop.lower + var(tile) * width + var(register) * shape.lanes + var(lane)
    body = _at(_into_lanes(loop.body, lanes, var(register), var(lane)), loop.variable, at)
    inner: Node = _vector(lane, shape, body, loop, None)
    if shape.unroll > 1:
        inner = Loop(register, ZERO, index(shape.unroll), inner, "unrolled", loop.order)
    else:
        inner = substitute_node(inner, {register: ZERO})
    main = Loop(tile, ZERO, floordiv(extent(loop), width), inner, "serial", loop.order)
    return main, frozenset((tile, register))


def _remainder(
    loop: Loop, shape: RowShape, lanes: list[_Lanes], names: Names
) -> tuple[Node | None, frozenset[str]]:
    """What is left of the row: whole vectors, then a masked one or elements; None if nothing is."""
    n, width = extent(loop), shape.lanes * shape.unroll
    known, whole = n.as_int(), floordiv(n, shape.lanes)
    done = floordiv(n, width) * shape.unroll
    if known is not None and known % width == 0:
        return None, frozenset()
    vectors, private = None, frozenset[str]()
    few = shape.overlapping and not lanes  # then only rows shorter than a vector come here
    if shape.unroll > 1 and not few and (lanes or shape.masked):
        left = (names.fresh(loop.variable), done, whole, None)
        vectors, private = _vectors(loop, shape, lanes, names, left)
        done = whole
    tile = names.fresh(loop.variable)
    if shape.masked:  # known before the row: its mask is made once for all rows
        ragged = (tile, done, ceildiv(n, shape.lanes), n - whole * shape.lanes)
        last, own = _vectors(loop, shape, lanes, names, ragged)
        return block(vectors, last), private | own
    first = loop.lower + done * shape.lanes
    short = max(SHORT_LANES, shape.lanes // 4)
    if shape.narrowing and shape.lanes % short == 0 and short < shape.lanes:
        wide = shape.lanes // short
        left = (names.fresh(loop.variable), done * wide, floordiv(n, short), None)
        more, own = _vectors(loop, replace(shape, lanes=short), lanes, names, left)
        vectors, private = block(vectors, more), private | own
        first = loop.lower + floordiv(n, short) * short
    body = renamed_loops(_at(loop.body, loop.variable, var(tile)), names)
    single = replace(loop, variable=tile, lower=first, body=body)
    return block(vectors, single), private | {tile}


def _vectors(
    loop: Loop,
    shape: RowShape,
    lanes: list[_Lanes],
    names: Names,
    bounds: tuple[str, Index, Index, Index | None],
) -> tuple[Node, frozenset[str]]:
    """One vector after another. bounds: the loop's name, its first and last, and their mask."""
    tile, first, last, mask = bounds
    lane = names.fresh(loop.variable)
    at = loop.lower + var(tile) * shape.lanes + var(lane)
    body = _at(_into_lanes(loop.body, lanes, ZERO, var(lane)), loop.variable, at)
    inner = _vector(lane, shape, renamed_loops(body, names), loop, mask)
    return Loop(tile, first, last, inner, "serial", loop.order), frozenset((tile,))


def _overlapping(
    loop: Loop, shape: RowShape, width: int, names: Names
) -> tuple[Node, frozenset[str]]:
    """What whole groups leave of a row of `width` or more: the last vector ends where it does."""
    n = extent(loop)
    tile, lane = names.fresh(loop.variable), names.fresh(loop.variable)
    start = minimum(var(tile) * width, n - width)
    body = renamed_loops(_at(loop.body, loop.variable, loop.lower + start + var(lane)), names)
    inner = _vector(lane, replace(shape, lanes=width), body, loop, None)
    done = floordiv(n, shape.lanes * shape.unroll) * (shape.lanes * shape.unroll // width)
    return Loop(tile, done, ceildiv(n, width), inner, "serial", loop.order), frozenset((tile,))


def _vector(lane: str, shape: RowShape, body: Node, loop: Loop, mask: Index | None) -> Loop:
    return Loop(lane, ZERO, index(shape.lanes), body, "vector", loop.order, mask)


def _at(node: Node, variable: str, position: Index) -> Node:
    return substitute_node(node, {variable: position})


def _into_lanes(node: Node, lanes: list[_Lanes], register: Index, lane: Index) -> Node:
    names = {(x.update.buffer, x.update.subscripts): x.buffer.name for x in lanes}

    def redirect(x: Node) -> Node:
        name = names.get((x.buffer, x.subscripts)) if isinstance(x, Update) else None
        if name is None or not isinstance(x, Update):
            return x
        return replace(x, buffer=name, subscripts=(register, lane))

    return map_node(node, redirect)


def _clear(x: _Lanes, shape: RowShape, names: Names) -> Node:
    register, lane = names.fresh("r"), names.fresh("l")
    start = identity(x.update.op, x.buffer.dtype)
    store = Store(x.buffer.name, (var(register), var(lane)), start, x.update.name)
    vector = Loop(lane, ZERO, index(shape.lanes), store, "vector", "parallel")
    return Loop(register, ZERO, index(shape.unroll), vector, "unrolled", "parallel")


def _combine(x: _Lanes, shape: RowShape, names: Names) -> Node:
    lane, b = names.fresh("l"), x.buffer
    vectors: list[Expr] = [
        Read(b.name, (index(r), var(lane)), b.dtype) for r in range(shape.unroll)
    ]
    total = tree(lambda p, q: Binary(x.update.op, p, q, b.dtype), vectors)
    value: Value = HorizontalReduce(x.update.op, lane, shape.lanes, total, b.dtype)
    return replace(x.update, value=value)


def tree(combine: Callable[[Expr, Expr], Expr], values: list[Expr]) -> Expr:
    """Pairwise combination: half the depth of a chain, and the more accurate sum."""
    while len(values) > 1:
        pairs = [values[k : k + 2] for k in range(0, len(values), 2)]
        values = [reduce(combine, p) for p in pairs]
    return values[0]
