# SPDX-License-Identifier: Apache-2.0
"""Ragged ends, all of them, after tiling: masks are dropped, kept, or split off.

A tile whose points are masked becomes `if it is whole: without masks; else: masked`, the latter
perhaps once more with half of its rows or vectors (`half`). Rows of the ragged tile that only
temporaries see are computed all, the last real one again in place of those that are not there, so
that its sums have no masks either. A row of tiles may have its last one split off instead (`peel`).

Each mask is ended at the innermost loop that moves it, from the outermost on: of `m.tile { n.tile {
k.tile { .. } } }` rows and columns at `n.tile`, then in each of the arms what is left at `k.tile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from tcsym.cost.statements import function_cycles
from tcsym.frontend.program import Call, Read
from tcsym.index.expr import (
    TRUE,
    ZERO,
    Condition,
    Index,
    all_of,
    ceildiv,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import substitute
from tcsym.ir.bounds import eliminate
from tcsym.ir.loops import Branch, Buffer, Loop, Node, Store, Update, Value, allocated, block
from tcsym.ir.traverse import (
    allocated_in,
    loads,
    map_inner,
    map_node,
    map_value,
    subvalues,
    walk,
)
from tcsym.mapping.nest import places
from tcsym.mapping.overlap import Overlap
from tcsym.mapping.tree import (
    Mapping_,
    Place,
    accessed,
    chain,
    moved,
    redirected,
    unused,
    variables_of,
)

LIGHT = 2  # cycles: of a function that is an instruction or two, whose code may stand often
MANY_ROWS = 4  # of a ragged tile, that are not stored one by one, each behind a branch


def ends(m: Mapping_) -> Mapping_:
    made = dict[str, Buffer]()
    node = _rolled(replace(m, made=made, own=allocated_in(m.node)), m.node)
    node = _tiles(replace(m, made=made, own=allocated_in(node)), node)
    return replace(m, node=node, buffers={**m.buffers, **made})


def _rolled(m: Mapping_, node: Node) -> Node:
    """Functions of what registers hold, that memory gets: in a loop over rows of these, which has
    the code of them once, and ends where rows do. Registers have no subscripts: by the stack."""
    if not isinstance(node, Loop) or node.kind != "unrolled":
        return map_inner(node, partial(_rolled, m))
    points = list(_points(node))
    store = points[-1].body
    if not isinstance(store, Store) or store.buffer in m.own or not _calls(store.value):
        return node
    names, spills = dict[str, str](), list[Node]()
    for r in dict.fromkeys(r for r in loads(store.value) if r.tensor in m.own):
        b, at = m.buffer(r.tensor), tuple(var(x.variable) for x in points)
        if r.subscripts != at or r.tensor in names:
            return node
        names[r.tensor] = name = unused(r.tensor, "rows", {**m.buffers, **m.made})
        m.made[name] = replace(b, name=name, space="stack", padded=True)
        spill: Node = Store(name, at, r, name)
        for x in reversed(points):
            spill = replace(x, body=spill)
        spills.append(spill)
    if not names:
        return node
    upper = node.upper if node.mask is None else minimum(node.upper, node.mask)
    row: Node = replace(node, kind="serial", upper=upper, mask=None)
    moves: dict[str, Place] = {x: lambda at, new=new: (new, at) for x, new in names.items()}  # type: ignore[misc]
    row = redirected(row, moves)
    node = block(*spills, row)
    for name in names.values():
        node = allocated(name, node)
    return node


def _calls(v: Value) -> bool:
    return any(isinstance(x, Call) and function_cycles(x.function) > LIGHT for x in subvalues(v))


def _tiles(m: Mapping_, node: Node) -> Node:
    """Each tile right inside of the last loop that moves its masks."""
    if isinstance(node, Loop) and node.kind == "serial":
        loops = list(chain(node))
        names, body = {x.variable for x in loops}, loops[-1].body
        inside = {x.variable for x, _ in walk(body) if isinstance(x, Loop) and x.kind == "serial"}
        masks = [x for x in _masks(body) if _moves(x) & names and not _moves(x) & inside]
        if masks:
            moves = frozenset[str]().union(*map(_moves, masks))
            last = [x for x in loops if x.variable in moves][-1]
            overlap = _overlap(m, masks, body)
            if overlap is not None:
                return _overlapping(m, masks, node, loops[-1], overlap)
            if m.ends.get(last.variable) != "peel":
                return _with(node, last, lambda x: _branched(m, masks, x))
            others = [x for x in masks if last.variable not in _moves(x)]
            if not others:
                return _with(node, last, lambda x: _peeled(m, masks, x))
            moves = frozenset[str]().union(*map(_moves, others))
            last = [x for x in loops if x.variable in moves][-1]  # around what is peeled
            return _with(node, last, lambda x: _branched(m, others, x))
    return map_inner(node, partial(_tiles, m))


def _masks(node: Node) -> list[Loop]:
    return [x for x, _ in walk(node) if isinstance(x, Loop) and x.mask is not None]


def _moves(x: Loop) -> frozenset[str]:
    return frozenset() if x.mask is None else x.mask.variables()


def _with(node: Loop, last: Loop, f: Callable[[Loop], Node]) -> Node:
    if node is last:
        return f(node)
    assert isinstance(node.body, Loop)
    return replace(node, body=_with(node.body, last, f))


# ---- whole tiles, ragged ones


def _branched(m: Mapping_, masks: list[Loop], last: Loop) -> Node:
    copies = [x for x, _ in walk(last.body) if isinstance(x, Loop) and x.kind == "unrolled"]
    full = all_of(dict.fromkeys(_whole(x, copies) for x in masks))
    whole = _tiles(m, _unmasked(last.body, _names(masks)))
    if full == TRUE:
        return replace(last, body=whole)
    ragged = _ragged_of(m, masks, last.body)
    if ragged == whole:
        return replace(last, body=whole)
    return replace(last, body=Branch(full, whole, _narrowed(m, masks, copies, ragged)))


def _names(masks: list[Loop]) -> set[str]:
    return {x.variable for x in masks}


def _ragged_of(m: Mapping_, masks: list[Loop], node: Node) -> Node:
    return _tiles(m, _ragged(m, _names(masks), node))


def _overlap(m: Mapping_, masks: list[Loop], body: Node) -> Overlap | None:
    """None if not all of the masks are ended so."""
    if not all(_has_end(m, x, "overlap") for x in masks):
        return None
    copies = [x for x, _ in walk(body) if isinstance(x, Loop) and x.kind == "unrolled"]
    return Overlap(m, tuple((x, _least(x, copies)) for x in masks))


def _overlapping(m: Mapping_, masks: list[Loop], node: Loop, last: Loop, overlap: Overlap) -> Node:
    """The loops around tiles that are all whole, and around others where there are too few."""
    whole = overlap.shifted(_tiles(m, _unmasked(last.body, _names(masks))))
    ragged = _ragged_of(m, masks, last.body)
    if whole == ragged:
        return _with(node, last, lambda x: replace(x, body=whole))
    arms = [_with(node, last, partial(replace, body=x)) for x in (whole, ragged)]
    return Branch(overlap.fits, *arms)


def _has_end(m: Mapping_, x: Loop, end: str) -> bool:
    return any(m.ends.get(v) == end for v in _moves(x))


def _whole(x: Loop, copies: list[Loop]) -> Condition:
    """All points of a loop are there, in all copies of the loop around it."""
    return ge(_least(x, copies), x.upper)


def _least(x: Loop, copies: list[Loop]) -> Index:
    """Points that are left for the last copy."""
    assert x.mask is not None
    least = eliminate(x.mask, [y for y in copies if y.variable in _moves(x)][:1], False)
    assert least is not None
    return least


def _unmasked(node: Node, names: set[str]) -> Node:
    def one(x: Node) -> Node:
        return replace(x, mask=None) if isinstance(x, Loop) and x.variable in names else x

    return map_node(node, one)


def _narrowed(m: Mapping_, masks: list[Loop], copies: list[Loop], ragged: Node) -> Node:
    """And again with half of the rows, or of the vectors, and with one, where others are empty."""
    out, done = ragged, set[str]()
    for x in masks:
        around = [y for y in copies if y.variable in _moves(x)][:1]
        halved = (*around, x)[0]
        if halved.kind != "unrolled" or halved.variable in done:
            continue
        if not _has_end(m, x, "half"):
            continue
        done.add(halved.variable)
        assert x.mask is not None
        left, all_ = eliminate(x.mask, around, True), halved.upper.as_int() or 1
        assert left is not None
        for n in {all_ // 2} - {0}:
            most = x.upper * n if around else index(n)
            out = Branch(ge(most, left), _fewer(ragged, halved.variable, n), out)
    return out


def _fewer(node: Node, variable: str, n: int) -> Node:
    def fewer(x: Node) -> Node:
        if isinstance(x, Loop) and x.variable == variable and x.kind == "unrolled":
            return replace(x, upper=index(n))
        return x

    return map_node(node, fewer)


# ---- the ragged tile


def _ragged(m: Mapping_, names: set[str], node: Node) -> Node:
    """Masks stay where memory would be touched that is not there; rows are clamped, stored in a
    loop over those that are there, and sums are not unrolled: it runs once in a row of tiles."""
    if isinstance(node, Loop) and node.kind != "serial":
        statements = [x for x, _ in walk(node) if isinstance(x, Store | Update)]
        if statements and all(_holds_all(m, names, node, x) for x in statements):
            return _clamped(m, names, node, statements)
        if len(statements) != 1:
            return node
        if _is_filled(m, node, statements[0]):
            return _one_by_one(node)
        return _row_by_row(m, node, statements[0])
    if isinstance(node, Loop):
        node = replace(node, unroll=1)
    return map_inner(node, partial(_ragged, m, names))


def _is_filled(m: Mapping_, node: Loop, statement: Store | Update) -> bool:
    """A copy gets elements that are too short for masked loads."""
    far = (b for b in (m.buffer(r.tensor) for r in loads(statement.value)) if not b.padded)
    short = any(b.dtype.bits < 32 for b in far) and not m.machine.has_masks
    is_masked = any(x.kind == "vector" and x.mask is not None for x in _points(node))
    return short and is_masked and isinstance(statement, Store) and statement.buffer in m.own


def _one_by_one(node: Node) -> Node:
    """Loops over what is there in place of points."""
    if not isinstance(node, Loop):
        return node
    upper = node.upper if node.mask is None else minimum(node.upper, node.mask)
    return replace(node, kind="serial", upper=upper, mask=None, body=_one_by_one(node.body))


def _holds_all(m: Mapping_, names: set[str], points: Loop, statement: Store | Update) -> bool:
    """A temporary has an element for each row of a tile, also for those that are not there."""
    found = (x for x in _points(points) if x.variable in names)
    rows = (x for x in found if x.kind == "unrolled" and x.mask is not None)
    name, at = statement.buffer, statement.subscripts
    own = name in m.own or name in m.made
    return own and all(var(x.variable) in at and _has_rows(m, x, name, at) for x in rows)


def _clamped(
    m: Mapping_, names: set[str], node: Node, statements: Sequence[Store | Update]
) -> Node:
    """Without masks of rows, nor of lanes that move temporaries only."""
    if not isinstance(node, Loop):
        return node
    body, mask, v = node.body, node.mask, node.variable
    if mask is not None and v in names and node.order == "parallel":
        reads = [r for x in statements for r in loads(x.value)]
        memory = [r for r in reads if not m.buffer(r.tensor).padded]
        if node.kind == "unrolled":
            inside, mask = {v: minimum(var(v), mask - 1)}, None

            def clamp(x: Value) -> Value:
                is_there = not isinstance(x, Read) or _has_rows(m, node, x.tensor, places(x))
                return x if is_there else moved(x, inside)  # type: ignore[arg-type]

            def of_statement(x: Node) -> Node:
                if isinstance(x, Loop):
                    low, high = (substitute(e, inside) for e in (x.lower, x.upper))
                    return replace(x, lower=low, upper=high)
                if not isinstance(x, Store | Update):
                    return x
                return replace(x, value=map_value(x.value, clamp, lambda i: i))

            body = map_node(body, of_statement)
        elif all(m.buffer(x.buffer).padded for x in statements) and not any(
            v in variables_of(r.subscripts) for r in memory
        ):
            mask = None
    return replace(node, mask=mask, body=_clamped(m, names, body, statements))


def _has_rows(m: Mapping_, rows: Loop, buffer: str, at: Sequence[Index]) -> bool:
    """A temporary of a tile: it has an element for each of these rows, also for those that are not
    there. One of all rows has not, nor a copy that gets those alone."""
    v, shape = rows.variable, m.buffer(buffer).shape
    moved = ((s, n) for s, n in zip(at, shape, strict=True) if v in s.variables())
    own = (buffer in m.own or buffer in m.made) and buffer not in m.counted
    return own and all(s == var(v) and n == rows.upper for s, n in moved)


def _row_by_row(m: Mapping_, rows: Loop, store: Store | Update) -> Node:
    """Registers to the stack, then a loop that stores the rows that are there from it."""
    target = m.buffer(store.buffer)
    many = rows.kind == "unrolled" and (rows.upper.as_int() or 0) >= MANY_ROWS
    points = list(_points(rows))
    masked = [x for x in points if x.kind == "unrolled" and x.mask is not None]
    there = (_has_rows(m, x, r.tensor, places(r)) for x in masked for r in loads(store.value))
    if rows.mask is None or not many or not isinstance(store, Store) or not all(there):
        return rows
    at, shape = tuple(var(x.variable) for x in points), tuple(x.upper for x in points)
    name = f"{store.buffer}.rows"
    if name in m.made and m.made[name].shape != shape:
        name = unused(store.buffer, "rows", m.made)
    m.made[name] = Buffer(name, target.dtype, shape, "stack", padded=True)
    spill: Node = replace(store, buffer=name, subscripts=at, streamed=False)
    row: Node = replace(store, value=Read(name, at, target.dtype))
    padded = all(m.buffer(r.tensor).padded for r in loads(store.value))
    for x in reversed(points):
        spill = replace(x, mask=None if padded or x.kind == "unrolled" else x.mask, body=spill)
        row = replace(x, body=row) if x is not rows else row
    upper = minimum(rows.upper, rows.mask)
    return allocated(
        name, block(spill, replace(rows, kind="serial", upper=upper, mask=None, body=row))
    )


def _points(node: Node) -> Iterator[Loop]:
    while isinstance(node, Loop):
        yield node
        node = node.body


# ---- the last tile apart


def _peeled(m: Mapping_, masks: list[Loop], tiles: Loop) -> Node:
    """Whole tiles, then what is left of the row in single vectors, then a masked one."""
    names = {x.variable for x in masks}
    mask, lanes = masks[0].mask, masks[0].upper.as_int() or 1
    assert mask is not None
    copies = [x for x, _ in walk(tiles.body) if isinstance(x, Loop) and x.kind == "unrolled"]
    around = [x for x in copies if x.variable in mask.variables()][:1]
    last = eliminate(mask, around, False)  # of the last vector
    assert last is not None
    unit = -last.coefficient(tiles.variable)
    n = last + var(tiles.variable) * unit + unit - lanes
    whole = minimum(tiles.upper, maximum(tiles.lower, floordiv(n, unit)))
    first = replace(tiles, upper=whole, body=_unmasked(tiles.body, names))
    rest = _single(tiles.body, {x.variable for x in around}, masks[0].variable, mask, lanes)
    return block(first, replace(tiles, lower=whole, body=rest))


def _single(node: Node, copies: set[str], lane: str, mask: Index, lanes: int) -> Node:
    """Copies of vectors -> a loop over those that are there. Parts of sums all go to the first."""
    if not isinstance(node, Loop) or node.variable not in copies:
        return map_inner(node, lambda x: _single(x, copies, lane, mask, lanes))
    body, own = node.body, var(node.variable)
    places = dict[str, Place]()
    for name in {b for b, *_ in accessed(body) if b.endswith(".parts")}:
        places[name] = lambda at, name=name: (name, tuple(ZERO if i == own else i for i in at))  # type: ignore[misc]
    body = redirected(body, places)
    left = mask + own * lanes
    whole = minimum(node.upper, floordiv(left, lanes))
    row = replace(node, kind="serial", mask=None)
    first = replace(row, upper=whole, body=_unmasked(body, {lane}))
    upper = minimum(node.upper, ceildiv(left, lanes))
    return block(first, replace(row, lower=whole, upper=upper, body=body))
