# SPDX-License-Identifier: Apache-2.0
"""Long epilogues of register tiles -> loops over the tile's rows, with the tile in the frame.

What follows a reduction is the same code for every row of its tile. Unrolled it is most of a kernel
where it computes exponentials or stores ragged rows in pieces; as registers cannot be indexed, the
tile is copied to the frame first, which costs less than what a call of `exp` does, or a branch.
From there vectors start at any column: the last one of a row overlaps the one before it, and needs
no mask. Where masks are at hand and nothing is called, the way by the frame takes longer than all
else that a tile of a few terms does: such epilogues are rolled only if they are much longer.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Call, Read
from tcsym.index.expr import ZERO, Index, floordiv, ge, minimum, var
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Block, Branch, Buffer, Kernel, Loop, Node, Store, Update, block
from tcsym.ir.traverse import map_inner, substitute_node, subvalues, walk
from tcsym.schedule.analysis.access import Access, accesses, rename_buffers
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.split.full_tiles import CHEAP_CALLS
from tcsym.schedule.version.versioning import Copies
from tcsym.target.machine import Machine
from tcsym.types import DType

LEAST_INSTRUCTIONS = 150
LEAST_PLAIN = 400  # of those that call nothing and store in one piece
CALL_INSTRUCTIONS = 30
PIECES_INSTRUCTIONS = 35  # of a vector stored in pieces, where the target has no masks
_CONVERTED = (DType.BOOL, DType.FLOAT16, DType.BFLOAT16)  # other in registers than in memory


class _Tile(Struct, frozen=True):
    """A register buffer whose rows an epilogue reads, in vectors of `width`."""

    buffer: Buffer
    width: int


def reroll_epilogues(kernel: Kernel, machine: Machine, names: Names) -> Kernel:
    """Unrolled loops that only read their tiles and write memory, if long, become serial.

    Contract: storage has its places.
    """
    copies = Copies(kernel, names)
    body = _outside_tiles(copies, kernel.body, machine)
    return replace(copies.kernel, body=body)


def _outside_tiles(copies: Copies, node: Node, machine: Machine) -> Node:
    kernel = copies.kernel

    def inside(x: Node) -> Node:
        return _outside_tiles(copies, x, machine)

    if isinstance(node, Loop) and node.kind == "unrolled":
        long = LEAST_PLAIN if _is_plain(node, machine) else LEAST_INSTRUCTIONS
        if _instructions(node, kernel, machine, False) < long:
            return node
        tiles = _tiles(kernel, node)
        return node if tiles is None else _rolled(copies, node, tiles)
    if isinstance(node, Loop) and (node.order == "reduction" or node.kind == "vector"):
        return node
    return map_inner(node, inside)


def _instructions(n: Node, kernel: Kernel, machine: Machine, masked: bool) -> int:
    """About how many instructions `n` becomes."""
    match n:
        case Loop():
            count = extent(n).as_int() if n.kind == "unrolled" else 1
            ragged = masked or (n.kind == "vector" and n.mask is not None)
            return (count or 1) * _instructions(n.body, kernel, machine, ragged)
        case Block(body):
            return sum(_instructions(x, kernel, machine, masked) for x in body)
        case Branch(_, a, b):
            return 2 + sum(_instructions(x, kernel, machine, masked) for x in (a, b) if x)
        case Store() | Update():
            heavy = _heavy_calls(n)
            in_memory = kernel.buffer(n.buffer).space != "register"
            pieces = masked and in_memory and not machine.has_masks
            return 3 + CALL_INSTRUCTIONS * heavy + PIECES_INSTRUCTIONS * pieces
        case _:
            return 1


def _is_plain(n: Node, machine: Machine) -> bool:
    stores = [x for x, _ in walk(n) if isinstance(x, Store | Update)]
    return machine.has_masks and not any(map(_heavy_calls, stores))


def _heavy_calls(x: Store | Update) -> int:
    calls = [v.function for v in subvalues(x.value) if isinstance(v, Call)]
    return sum(f not in CHEAP_CALLS for f in calls)


def _tiles(kernel: Kernel, rows: Loop) -> list[_Tile] | None:
    """The register buffers with an element for each row; None if `rows` is no epilogue of them."""
    vectors: dict[str, int] = {}
    writes_memory = False
    for x, _ in walk(rows):
        match x:
            case Loop() if x.kind in ("unrolled", "vector"):
                if x.kind == "vector":
                    vectors[x.variable] = extent(x).as_int() or 1
            case Store() | Update():
                writes_memory |= kernel.buffer(x.buffer).space != "register"
            case Branch() | Block():
                pass
            case _:
                return None
    found: dict[str, _Tile] = {}
    for a in accesses(rows):
        b = kernel.buffer(a.buffer)
        if b.space != "register" or not _moves(a, rows.variable):
            continue
        width = _width(a, vectors)
        tile = found.setdefault(b.name, _Tile(b, width))
        size = b.shape[-1].as_int() or 0
        if a.written or not width or tile.width != width or size % width:
            return None
        if not b.padded or b.dtype in _CONVERTED:
            return None
    return list(found.values()) if found and writes_memory else None


def _moves(a: Access, variable: str) -> bool:
    return any(isinstance(s, Index) and variable in s.variables() for s in a.subscripts)


def _width(a: Access, vectors: dict[str, int]) -> int:
    """Lanes of an access that move by one along the last dimension only; 0 for any other."""
    *others, last = a.subscripts
    if not isinstance(last, Index):
        return 0
    lanes = [v for v in last.variables() if v in vectors]
    still = not any(isinstance(s, Index) and s.variables() & vectors.keys() for s in others)
    one = len(lanes) == 1 and linear_coefficient(last, lanes[0])
    return vectors[lanes[0]] if still and one and one.as_int() == 1 else 0


def _rolled(copies: Copies, rows: Loop, tiles: list[_Tile]) -> Node:
    count = rows.upper if rows.mask is None else minimum(rows.upper, rows.mask)
    body, moved = rows.body, list[Node]()
    for tile in tiles:
        b = tile.buffer
        copy = replace(b, name=copies.names.fresh(b.name), space="stack")
        copies.kernel = copies.kernel.with_buffer(copy)
        moved.append(_copied(tile, copy.name, copies.names))
        body = rename_buffers(body, {b.name: copy.name})
    serial = replace(rows, kind="serial", upper=count, mask=None, body=body)
    return block(*moved, _overlapping(copies, serial))


def _overlapping(copies: Copies, rows: Loop) -> Node:
    """Rows of a ragged vector or two: whole vectors, the last of them moved back to end with its
    row, and shorter ones where a row is shorter than a vector."""
    vectors = rows.body if isinstance(rows.body, Loop) and rows.body.kind == "unrolled" else None
    match rows.body if vectors is None else vectors.body:
        case Branch(edge, Loop() as whole, Branch(_, Loop() as part, None)):
            pass
        case _:
            return rows
    place = {} if vectors is None else {vectors.variable: ZERO}
    left = ZERO if part.mask is None else substitute(part.mask, place)
    start = ZERO if vectors is None else var(vectors.variable) * whole.upper
    ragged = part.kind == "vector" and part.mask == left - start
    if not ragged or edge != ge(left - start, whole.upper):
        return rows
    again = is_repeatable(copies.kernel, whole, frozenset((whole.variable,)))
    if rows.variable in left.variables() or not again:
        return rows
    moved: list[Node] = []
    for k in range(1 if vectors is None else vectors.upper.as_int() or 1):
        back = minimum(ZERO, left - whole.upper * (k + 1)) if k else ZERO
        at = dict.fromkeys(place, ZERO + k)
        body = substitute_node(whole.body, {whole.variable: var(whole.variable) + back})
        moved.append(copies.of(substitute_node(replace(whole, body=body), at)))
    node = Branch(ge(left, whole.upper), replace(rows, body=block(*moved)))
    first = replace(whole, body=substitute_node(whole.body, place))
    return replace(node, orelse=_short(rows, first, left, copies))


def _short(rows: Loop, whole: Loop, left: Index, copies: Copies) -> Node | None:
    """Rows of `left` elements, fewer than are in `whole`: two vectors of half as many lanes that
    overlap, or of a quarter; one element by itself."""
    width = (whole.upper.as_int() or 1) // 2
    if not width:
        return None
    lane = var(whole.variable)
    if width == 1:
        node = substitute_node(whole.body, {whole.variable: ZERO})
    else:
        half = replace(whole, upper=ZERO + width)
        last = substitute_node(half.body, {whole.variable: lane + left - width})
        node = block(half, copies.of(replace(half, body=last)))
    fits = copies.of(replace(rows, body=node))
    shorter = _short(rows, replace(whole, upper=ZERO + width), left, copies)
    return Branch(ge(left, width), fits, shorter)


def _copied(tile: _Tile, to: str, names: Names) -> Node:
    b, width = tile.buffer, tile.width
    *rows, columns = b.shape
    at = [names.fresh("r") for _ in b.shape]
    lane = names.fresh("l")
    place = (*map(var, at[:-1]), var(at[-1]) * width + var(lane))
    read = Read(b.name, place, b.dtype)
    node: Node = Loop(lane, Index(), Index((), width), Store(to, place, read), "vector", "parallel")
    for variable, n in reversed(list(zip(at, (*rows, floordiv(columns, width))))):
        node = Loop(variable, Index(), n, node, "unrolled", "parallel")
    return node
