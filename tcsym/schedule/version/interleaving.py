# SPDX-License-Identifier: Apache-2.0
"""Short rows, many of them -> the loop to run in lanes, and what has to be copied for it.

Where rows are short, a vector along them is mostly empty. Rows that a loop around makes independent
of each other fill all lanes, if elements of the same place of neighbouring ones lie side by side
(`tile.interleave` copies them so).
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.index.expr import (
    ONE,
    ZERO,
    Condition,
    Index,
    ceildiv,
    ge,
    var,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Kernel, Loop, Store, Update
from tcsym.ir.traverse import loads, walk
from tcsym.schedule.analysis.access import Access, accesses
from tcsym.schedule.analysis.band import Band, Roles, band_of, reductions
from tcsym.schedule.analysis.loops import find_loop, loops_in, statements_in
from tcsym.schedule.analysis.overlap import is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.vector_legality import vector_refusal
from tcsym.schedule.order.interchange import can_sink
from tcsym.schedule.plan import Interleave
from tcsym.schedule.tile.register_tile import can_tile
from tcsym.schedule.version.contraction_versions import (
    loop_around,
)

# Times in tenths of a nanosecond
TILE_TIME, TILE_TERM_TIME = 125, 10  # of a register tile, and of a step of it
SCATTER_TIME = 4  # of an element of a tile whose columns do not lie side by side in the result
LANE_ROWS = 4  # of a register tile of one vector
CACHE_PART = 2  # of the second cache that the copies may fill


class Interleaving(Struct, frozen=True):
    """`loop` runs in the lanes, inside the loops `outer`.

    moved: by buffer, the dimension that moves with the loop. rows: of a register tile, if any, of
    so many of them as `height`.
    """

    loop: str
    outer: tuple[str, ...]
    moved: dict[str, int]
    rows: str | None = None
    height: int = LANE_ROWS

    def plan(self, together: int = 1) -> Interleave:
        moved = tuple(self.moved.items())
        return Interleave(self.loop, self.outer, moved, self.rows, self.height, together)


def interleaving(
    kernel: Kernel,
    nest: str,
    setting: Setting,
    shared: bool = False,
    loop: str | None = None,
    anew: bool = False,
) -> Interleaving | None:
    """The first loop of the nest's band that moves all operands and can run in lanes.

    shared: it need not move all; what it moves in lanes already stays where it is, too. loop: this
    one or none. anew: results may be made in several steps, all of them in a lane's copy.
    """
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    if lanes == 1 or any(isinstance(x, Branch) for x, _ in walk(band.body)):
        return None
    fits = frozenset(
        b.name
        for b in kernel.buffers
        if b.space == "argument" and b.strides is None and len(b.shape) > 1
        if b.dtype.bits in (32, 64) and setting.machine.lanes(b.dtype.bits) == lanes
    )
    candidates = band.variables if loop is None else (loop,)
    found = (_along(kernel, band, v, fits, shared, anew) for v in candidates)
    return next((x for x in found if x is not None), None)


def _along(
    kernel: Kernel, band: Band, v: str, fits: frozenset[str], shared: bool, anew: bool
) -> Interleaving | None:
    """fits: buffers that blocks can be transposed of."""
    moved: dict[str, int] = {}
    outside: dict[str, set[tuple[Index, ...]]] = {}
    within: set[str] = set()
    in_place = {a.buffer for a in accesses(band.body) if shared and _stays(a, v)}
    for a in accesses(band.body):
        if v in kernel.buffer(a.buffer).private or (shared and _stays(a, v)):
            continue
        d = _dimension(kernel, a, v)
        if d is None or a.buffer not in fits or moved.setdefault(a.buffer, d) != d:
            return None
        before = tuple(s for s in a.subscripts[:d] if isinstance(s, Index))
        outside.setdefault(a.buffer, set()).add(before)
        behind = (s for s in a.subscripts[d + 1 :] if isinstance(s, Index))
        within.update(x for s in behind for x in s.variables())
    if not moved or in_place & moved.keys():
        return None
    used = {x for places in outside.values() for p in places for s in p for x in s.variables()}
    if used & within:  # each iteration would copy all that all of them use
        return None
    outer = tuple(x for x in band.variables if x in used)
    steps = moved.items() if anew else ()
    made = {b for b, d in steps if _is_made_whole(kernel, band, b, d, used)}
    inside = used & {x.variable for x in loops_in(band.body)}
    if inside or not _is_legal(kernel, band, v, outer, made):
        return None
    for x, around in statements_in(band.body):
        if any(r.unwritten and r.tensor in moved for r in loads(x.value)):
            return None
        if isinstance(x, Store | Update) and x.buffer in moved:
            loops = (*(y for y in band.loops if y.variable not in used), *around)
            if len(outside[x.buffer]) > 1 or not _is_whole(kernel, x, moved[x.buffer], loops):
                return None
    return Interleaving(v, outer, moved)


def _stays(a: Access, v: str) -> bool:
    """One element for all lanes, or neighbours: the loop moves the last subscript only."""
    indices = [s for s in a.subscripts if isinstance(s, Index)]
    if len(indices) < len(a.subscripts) or any(a.checked):
        return False
    moving = [s for s in indices if v in s.variables()]
    return not moving or (moving == indices[-1:] and moving[0].coefficient(v) == 1)


def _dimension(kernel: Kernel, a: Access, v: str) -> int | None:
    """The one that moves with the loop, by one, and is not the last."""
    indices = [s for s in a.subscripts if isinstance(s, Index)]
    if len(indices) < len(a.subscripts) or any(a.checked):
        return None
    found = [d for d, s in enumerate(indices) if v in s.variables()]
    is_plain = len(found) == 1 and indices[found[0]] == var(v) and found[0] < len(indices) - 1
    return found[0] if is_plain else None


def _is_legal(kernel: Kernel, band: Band, v: str, outer: tuple[str, ...], made: set[str]) -> bool:
    """made: what iterations compute from the start, in copies of their own: again or not."""
    body, lane = band.body, frozenset((v,))
    return (
        extent(band.loop(v)).variables() <= frozenset(kernel.sizes)
        and can_sink(body, lane)
        and can_tile(band, v, None, outer)
        and is_repeatable(kernel, body, lane, made)
        and vector_refusal(kernel, body, v) is None
    )


def _is_made_whole(kernel: Kernel, band: Band, buffer: str, d: int, used: set[str]) -> bool:
    """The first that each iteration does with the buffer is to store all of its part of it."""
    for x, around in statements_in(band.body):
        if any(r.tensor == buffer for r in loads(x.value)):
            return False
        if isinstance(x, Store | Update) and x.buffer == buffer:
            loops = (*(y for y in band.loops if y.variable not in used), *around)
            stored = {v for s in x.subscripts[d + 1 :] for v in s.variables()}
            always = all(y.variable in stored for y in around)
            return isinstance(x, Store) and always and _is_whole(kernel, x, d, loops)
    return False


def _is_whole(kernel: Kernel, x: Store | Update, d: int, loops: tuple[Loop, ...]) -> bool:
    """Every element inside the dimension is stored in `loops`: all of a copy can go back."""
    extents = {y.variable: y.upper for y in loops if y.lower == ZERO}
    inside = list(zip(x.subscripts[d + 1 :], kernel.buffer(x.buffer).shape[d + 1 :]))
    used = {v for s, _ in inside for v in s.variables()}
    walked = all(any(s == var(v) and extents.get(v) == n for v in s.variables()) for s, n in inside)
    return walked and len(used) == len(inside)


def lanes_full(kernel: Kernel, nest: str, x: Interleaving, setting: Setting) -> Condition:
    """There are iterations for all lanes: what `Interleave` needs."""
    band = band_of(find_loop(kernel.body, nest))
    return ge(extent(band.loop(x.loop)), setting.lanes(kernel, band.body))


def copies_fit(kernel: Kernel, x: Interleaving, setting: Setting) -> Condition:
    """The copies stay in the cache."""
    most = setting.machine.level("l2").bytes * 8 // (CACHE_PART * setting.machine.vector_bits)
    return ge(most, sum(copied_elements(kernel, x), ZERO))


def copied_elements(kernel: Kernel, x: Interleaving) -> tuple[Index, ...]:
    """Elements of each copy, in one lane."""
    shapes = (kernel.buffer(b).shape[d + 1 :] for b, d in x.moved.items())
    return tuple(map(product_of, shapes))


def tile_time(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Index:
    """Of the nest in register tiles, but for its panels."""
    band = band_of(find_loop(kernel.body, nest))
    sums = [tuple(map(extent, around)) for _, around in reductions(band.body)]
    wide = setting.lanes(kernel, band.body) * setting.vectors
    step = TILE_TIME + TILE_TERM_TIME * sum(map(product_of, sums), ZERO)
    return _tiles(kernel, band, roles, None, wide, setting) * step


def _tiles(
    kernel: Kernel, band: Band, roles: Roles, v: str | None, wide: int, setting: Setting
) -> Index:
    """Register tiles of one product, of those that the loop `v` makes."""
    around = loop_around(kernel, band, roles, v)
    sides = {roles.columns, roles.columns if around is None else around.variable}
    rest = (extent(y) for y in band.loops if y.variable not in {*sides, roles.rows, v})
    columns = ceildiv(product_of(extent(band.loop(y)) for y in sorted(sides)), wide)
    rows = ONE if roles.rows is None else ceildiv(extent(band.loop(roles.rows)), setting.rows)
    return columns * rows * product_of(rest)
