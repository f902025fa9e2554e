# SPDX-License-Identifier: Apache-2.0
"""The versions of a contraction: at which sizes panels pay, and what runs at the others.

A register tile of packed panels is best where both sides are long. Few rows, or few columns, have
versions of their own that move each operand once: the tile on operands as they lie, with rows and
columns exchanged if need be, or products of two vectors along the sum.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Call, Read
from tcsym.index.expr import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Condition,
    Index,
    all_of,
    any_of,
    ceildiv,
    eq,
    floordiv,
    ge,
    index,
    maximum,
    mod,
    negate,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop
from tcsym.ir.packed import available, is_dot
from tcsym.ir.traverse import subvalues
from tcsym.mapping.dot_terms import dot_term
from tcsym.schedule.analysis.access import accesses, lies_along, stride, value_variables
from tcsym.schedule.analysis.band import (
    Band,
    Roles,
    band_of,
    factors,
    reductions,
    roles_along,
    roles_of,
)
from tcsym.schedule.analysis.cost import is_light
from tcsym.schedule.analysis.loops import (
    find_loop,
    loops_around,
)
from tcsym.schedule.analysis.operands import is_constant, outer_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.sliding import sliding_loops
from tcsym.schedule.analysis.vector_legality import can_mask
from tcsym.schedule.order.fuse_parallel import stores_follow
from tcsym.schedule.stage.along_sum import Along, along_sum
from tcsym.schedule.stage.packed_steps import reduced
from tcsym.schedule.tile.contraction_schedule import contraction_refusal

REUSE = 2  # register tiles of rows that use a panel: from there packing pays
FEW_ROWS = 4
FEW_COLUMNS = 5
FEW_ELEMENTS, MORE_ELEMENTS = 65, 201  # with fewer, vectors along terms, or many, are full sooner
FEW_TERMS = 16  # with as many, vectors along them are as quick as tiles of a row or two
BLOCK_ROWS = 16  # most for which vectors along terms take less time than to fill panels
FAR_ROWS, FAR_BYTES = 32, 4  # of what the second cache does not hold, by bytes of an element
BLOCK_TERMS = 16  # for each of those rows, without which the ends of sums take longer
MANY_TERMS = 64
BOUND_ROWS = 2  # of panels that were made before: a single row leaves most of a tile idle
PACKED_ROWS = 10  # times the steps that panels take at once
APART_ROWS = 3  # where each step of panels that take several at once is far from the last
NEAR_CACHES = 2  # first caches full of lines, one a step, that are near
NEAR_REUSE = 2  # as many times the uses that make panels pay if steps are near
WHOLE_LANES = 8
PLACED_ROW, PANEL_ROW = 20, 17  # times of a product of vectors in place and in panels
FILLED, SEAM = 100, 98  # of a vector of a panel, and of each end of a row in one more
SUM_TERMS = 10  # what the end of a product of two vectors costs, in terms, four at a time
RUN_TERMS = 20  # what each of its inner loops costs
ALONE_TERMS = 45  # what each of both costs more one by one, as where functions are summed
TILE_TERMS = 10  # as many terms of such a product take as long as one step of a tile's row
TILE_ROWS = 6
COPIED_TERMS = 8  # as many take as long as copying one,
TURNED_TERMS = 20  # or one of a few columns, across memory,
GATHERED_TERMS = 12  # or as gathering one into a panel


def row_count(kernel: Kernel, nest: str, roles: Roles) -> Index:
    """How often one run of the nest uses a packed element."""
    band = band_of(find_loop(kernel.body, nest))
    total = ONE
    for v in band.variables:
        if v != roles.columns and v not in outer_loops(band, roles):
            total = total * extent(band.loop(v))
    return total


def column_count(kernel: Kernel, nest: str, roles: Roles) -> Index:
    """Columns that the register tile runs over: those of a loop around too that follows evenly."""
    band = band_of(find_loop(kernel.body, nest))
    columns, around = extent(band.loop(roles.columns)), loop_around(kernel, band, roles)
    return columns if around is None else columns * extent(around)


def loop_around(kernel: Kernel, band: Band, roles: Roles, but: str | None = None) -> Loop | None:
    """The loop around whose columns panels hold together: stores run on from one to the next, and
    rows are the same for both. but: another one."""
    reads = {r for x, _ in reductions(band.body) for r in factors(x)} - {*roles.streamed}
    moved = frozenset[str]().union(*map(value_variables, reads))
    for outer in reversed(outer_loops(band, roles)):
        if outer not in moved | {but} and stores_follow(kernel, band, outer, roles.columns):
            return band.loop(outer)
    return None


def panels_pay(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Condition:
    """Packed elements are used often enough, also by loops around that leave them as they are.

    Steps of a column tile that stay in near caches are quick to read in place: copies of them pay
    later, except of images that leave lanes idle in place, and of panels that take several steps at
    once, which rows in place do not. If operands cannot be streamed
    as they lie, the choice without panels is one product of vectors along the sum for each element,
    which pays only for few rows, columns or elements of many terms; never if it gathers them.
    Windows have tiles of their own there, which are no better than panels for more than few rows.
    """
    rows = row_count(kernel, nest, roles)
    if bound_once(kernel, nest, roles):
        return ge(rows, BOUND_ROWS)
    if not streams_in_place(kernel, nest, roles, setting):
        return _panels_beat_products(kernel, nest, roles, rows, setting)
    least = REUSE * setting.rows
    uses = rows * _repeats(kernel, nest, roles, rows)
    terms = _term_count(kernel, nest)
    first = setting.machine.level("l1")
    lines = first.bytes // first.line
    far = TRUE if terms is None else ge(terms, NEAR_CACHES * lines)
    enough = all_of((ge(uses, least), any_of((ge(uses, NEAR_REUSE * least), far))))
    often = all_of((ge(rows, min(FEW_ROWS, least)), enough))
    often = any_of((often, _panels_beat_rows(kernel, nest, roles, rows, setting)))
    steps = _steps_at_once(kernel, nest, roles, setting)
    if steps > 1:
        apart = all_of((ge(rows, APART_ROWS), far))
        return any_of((often, ge(rows * steps, PACKED_ROWS), apart))
    return any_of((often, all_of((ge(rows, FEW_ROWS + 1), _aliases(kernel, nest, roles, setting)))))


def bound_once(kernel: Kernel, nest: str, roles: Roles) -> bool:
    """Panels are made of constants when these are bound: they cost calls nothing."""
    band, sizes = band_of(find_loop(kernel.body, nest)), frozenset(kernel.sizes)
    sums = [x for _, around in reductions(band.body) for x in around]
    moving = frozenset[str]().union(*map(value_variables, roles.streamed))
    loops = [x for x in (*band.loops, *sums) if x.variable in moving]
    ends = frozenset[str]().union(*(x.lower.variables() | x.upper.variables() for x in loops))
    known = ends | moving - {x.variable for x in loops} <= sizes
    return known and bool(roles.streamed) and is_constant(kernel, roles.streamed)


def _panels_beat_rows(
    kernel: Kernel, nest: str, roles: Roles, rows: Index, setting: Setting
) -> Condition:
    """Panels of columns of several rows of an image take less time than tiles in place, of which
    each row leaves lanes idle. A single vector at its end waits for its own sums half of the time.
    """
    band = band_of(find_loop(kernel.body, nest))
    around = loop_around(kernel, band, roles)
    if around is None:
        return FALSE
    lanes, n, columns = setting.lanes(kernel, band.body), extent(around), band.loop(roles.columns)
    high, wide = ceildiv(rows, FEW_ROWS) * FEW_ROWS, ceildiv(extent(columns), lanes)
    vectors = ceildiv(n * extent(columns), lanes)
    panels = vectors * (PANEL_ROW * high + FILLED) + SEAM * n
    return ge(n * high * (2 * wide + mod(wide, 2)) * (PLACED_ROW // 2), panels)


def _panels_beat_products(
    kernel: Kernel, nest: str, roles: Roles, rows: Index, setting: Setting
) -> Condition:
    terms = _term_count(kernel, nest)
    if _gathers(kernel, nest):
        return negate(_copied_rows_pay(kernel, nest, roles, rows, setting))
    if terms is None:
        return ge(rows, FEW_ROWS)
    if has_windows(kernel, nest):
        return any_of((ge(rows, FEW_ROWS), ge(FEW_TERMS - 1, terms)))
    columns = column_count(kernel, nest, roles)
    far = ge(columns * terms, setting.machine.level("l2").bytes // FAR_BYTES)
    steps = _steps_at_once(kernel, nest, roles, setting)
    repeats = _repeats(kernel, nest, roles, rows)
    enough = ge(rows, FEW_ROWS)
    if _is_one_run(kernel, nest, roles, setting):
        enough = _fill_panels(rows, repeats, steps, terms, far)
    reused = any_of((enough, ge(FEW_TERMS - 1, terms)))
    many = any_of((ge(rows * columns * repeats, MORE_ELEMENTS), ge(MANY_TERMS - 1, terms)))
    return all_of((ge(rows * columns, FEW_ELEMENTS), reused, many))


def _copied_rows_pay(
    kernel: Kernel, nest: str, roles: Roles, rows: Index, setting: Setting
) -> Condition:
    """Products along a sum, for which the operand of few rows is copied, take less time than to
    gather the columns into panels."""
    assert roles.rows is not None
    along = along_sum(kernel, nest, roles, roles.rows, setting.names)
    terms = _term_count(kernel, nest)
    if along is None or terms is None or has_windows(kernel, nest):
        return FALSE
    runs = floordiv(terms, maximum(1, extent(find_loop(kernel.body, along.variable))))
    columns = column_count(kernel, nest, roles)
    products = columns * rows * (terms + RUN_TERMS * runs + SUM_TERMS) + COPIED_TERMS * rows * terms
    tiles = ceildiv(columns, setting.lanes(kernel, find_loop(kernel.body, nest).body))
    tile = TILE_TERMS * maximum(rows, TILE_ROWS) * floordiv(terms, 4)
    return ge(GATHERED_TERMS * columns * terms + tiles * tile, products)


def has_windows(kernel: Kernel, nest: str) -> bool:
    """Some sum slides over an operand: without panels it has tiles of its own, or short runs."""
    band = band_of(find_loop(kernel.body, nest))
    return bool(sliding_loops(reductions(band.body), band.variables))


def _repeats(kernel: Kernel, nest: str, roles: Roles, rows: Index) -> Index:
    """Runs of the nest that loops around it repeat with the streamed operands as they are."""
    used = frozenset[str]().union(*(value_variables(r) for r in roles.streamed))
    tensors, total = {r.tensor for r in roles.streamed}, ONE
    for loop in reversed(loops_around(kernel.body, nest)):
        written = any(a.written and a.buffer in tensors for a in accesses(loop))
        if loop.variable in used | rows.variables() or written:
            break
        if loop.value is None and loop.at is None:  # else it has one iteration
            total = total * extent(loop)
    return total


def _is_one_run(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> bool:
    """Terms lie one behind the other on both sides: those of windows do so a few at a time."""
    along = along_sum(kernel, nest, roles, roles.columns, setting.names)
    sums = reductions(band_of(find_loop(kernel.body, nest)).body)
    single = all(len(loops) == 1 for _, loops in sums)
    return along is not None and not along.operands and single


def _fill_panels(
    rows: Index, repeats: Index, steps: int, terms: Index, far: Condition
) -> Condition:
    """Rows are too many for products of vectors, as often as panels take `steps` terms at once.

    Panels that loops around use again cost less, but a single row leaves most of a tile idle.
    """
    long = ge(rows * steps, floordiv(terms, BLOCK_TERMS) + 1)
    uses = rows * repeats * steps
    near = all_of((ge(uses, BLOCK_ROWS + 1), negate(far)))
    again = all_of((ge(rows, 2), any_of((near, ge(uses, FAR_ROWS + 1)))))
    return any_of((long, again))


def _steps_at_once(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> int:
    """Terms that panels add by one instruction."""
    have = available(setting.machine)
    sums = reductions(band_of(find_loop(kernel.body, nest)).body)
    terms = (dot_term(x, roles.rows, reduced(loops), have) for x, loops in sums)
    return max((x.steps for x in terms if x is not None), default=1)


def _gathers(kernel: Kernel, nest: str) -> bool:
    """In some term no loop leaves all factors in place, or moves them to their neighbours."""
    band = band_of(find_loop(kernel.body, nest))

    def is_along(v: str, reads: tuple[Read, ...]) -> bool:
        moving = [r for r in reads if v in value_variables(r)]
        return all(lies_along(kernel.buffer(r.tensor), r.subscripts, v) for r in moving)

    return any(
        not any(is_along(v, factors(x)) for v in (*band.variables, *(y.variable for y in around)))
        for x, around in reductions(band.body)
        if factors(x)
    )


def _aliases(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Condition:
    """Steps of a streamed operand fall on the same lines of the first cache: read them once."""
    band = band_of(find_loop(kernel.body, nest))
    steps = {x.variable for _, around in reductions(band.body) for x in around}
    first, found = setting.machine.level("l1"), list[Condition]()
    for r in roles.streamed:
        way = max(1, first.bytes // (first.ways * r.dtype.bytes))
        for v in sorted(steps & value_variables(r)):
            step = stride(kernel.buffer(r.tensor), r.subscripts, v)
            if step is not None and step.variables() <= frozenset(kernel.sizes):
                found.append(eq(mod(step, index(way)), 0))
    return any_of(found)


def _term_count(kernel: Kernel, nest: str) -> Index | None:
    """Most terms that one element of the nest sums; None if that moves with the band."""
    band = band_of(find_loop(kernel.body, nest))
    counts = [product_of(map(extent, around)) for _, around in reductions(band.body)]
    most = maximum(ZERO, *counts)
    return most if most.variables() <= frozenset(kernel.sizes) else None


def streams_in_place(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> bool:
    """The streamed operands can be read as they lie, masked at the end of a row."""
    body = band_of(find_loop(kernel.body, nest)).body
    return can_mask(kernel, body, setting.machine) and all(
        stride(kernel.buffer(r.tensor), r.subscripts, roles.columns) == ONE for r in roles.streamed
    )


def exchanged(kernel: Kernel, nest: str, roles: Roles) -> Roles | None:
    """Rows as columns; their rows are the columns, or better a loop of several sizes, or one that
    is not short as the columns are."""
    band = band_of(find_loop(kernel.body, nest))
    if roles.rows is None:
        return None
    other = _long_rows(kernel, nest, roles)
    if other is None:
        other = roles_along(kernel, band, roles.rows)
        if other is None or len(extent(band.loop(other.rows or "")).variables()) < 2:
            other = roles_of(band, roles.rows, roles.columns)
    possible = other is not None and contraction_refusal(kernel, nest, other) is None
    return other if possible else None


def _long_rows(kernel: Kernel, nest: str, roles: Roles) -> Roles | None:
    """Exchanged, where the columns are short: with rows that are not."""
    if roles.rows is None or not may_be_short(kernel, nest, roles):
        return None
    band = band_of(find_loop(kernel.body, nest))
    rows = (v for v in band.variables if not may_be_short(kernel, nest, replace(roles, columns=v)))
    found = (roles_of(band, roles.rows, v) for v in rows)
    return next((x for x in found if x is not None), None)


def may_be_short(kernel: Kernel, nest: str, roles: Roles) -> bool:
    """The columns are known to be fewer than a vector has, or are a window, of one size, over
    images of several: panels take few columns one by one."""
    band = band_of(find_loop(kernel.body, nest))
    columns = extent(band.loop(roles.columns))
    known, sizes = columns.as_int(), columns.variables()
    if known is not None:
        return known < WHOLE_LANES
    images = sliding_loops(reductions(band.body), (roles.columns,))
    several = all(len(extent(x).variables()) > 1 for x in images)
    return len(sizes) == 1 and bool(images) and several


def short_pays(
    kernel: Kernel, nest: str, roles: Roles, other: Roles, setting: Setting
) -> Condition:
    """Columns are short; their rows, exchanged with them, fill vectors, and panels of these are
    used often."""
    band = band_of(find_loop(kernel.body, nest))
    columns, rows = (extent(band.loop(x.columns)) for x in (roles, other))
    uses = row_count(kernel, nest, other)
    full = (ge(WHOLE_LANES - 1, columns), ge(rows, WHOLE_LANES), ge(uses, 2 * TILE_ROWS))
    return all_of((*full, panels_pay(kernel, nest, other, setting)))


def products_pay(kernel: Kernel, nest: str, roles: Roles, along: Along) -> Condition:
    """Products of two vectors along the sum take less time than a tile with most lanes idle."""
    terms = _term_count(kernel, nest)
    if terms is None:
        return FALSE
    rows, columns = row_count(kernel, nest, roles), column_count(kernel, nest, roles)
    runs = floordiv(terms, maximum(1, extent(find_loop(kernel.body, along.variable))))
    tile = TILE_TERMS * terms * maximum(rows, FEW_ROWS)
    alone = ALONE_TERMS if _sums_functions(kernel, nest) else 0
    ends = (RUN_TERMS + alone) * runs + SUM_TERMS + alone
    products = columns * rows * (terms + ends)
    copies = TURNED_TERMS * columns * terms if along.operands else ZERO
    return all_of((ge(FEW_COLUMNS - 1, columns), ge(tile, products + copies)))


def _sums_functions(kernel: Kernel, nest: str) -> bool:
    sums = reductions(band_of(find_loop(kernel.body, nest)).body)
    calls = [v for x, _ in sums for v in subvalues(x.value) if isinstance(v, Call)]
    return any(not is_dot(v) and not is_light(v.function) for v in calls)
