"""Which leaf schedule a nest gets: contraction, blocks of rows, strips, rows; and a note of why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tcsym.index import FALSE, TRUE, Condition, all_of, ceildiv, ge, negate
from tcsym.loop_ir import Kernel, Loop
from tcsym.polyhedral.passes.common.assume import in_context, most_in_context
from tcsym.polyhedral.passes.common.band import Band, Roles, band_of, contraction_roles, roles_of
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.distribute import distribute, is_bounded
from tcsym.polyhedral.passes.common.loops import find_loop, loops_around, loops_in
from tcsym.polyhedral.passes.common.overlap import fits_tiles, is_repeatable
from tcsym.polyhedral.passes.common.setting import Setting
from tcsym.polyhedral.passes.contraction.along_sum import along_sum, copy_along_sum
from tcsym.polyhedral.passes.contraction.contraction_schedule import (
    contraction_refusal,
    schedule_contraction,
    tile_shape,
)
from tcsym.polyhedral.passes.contraction.contraction_versions import (
    FEW_ROWS,
    exchange_pays,
    exchanged,
    panels_pay,
    products_pay,
    row_count,
    steps_apart,
    streams_in_place,
    with_fallback,
)
from tcsym.polyhedral.passes.contraction.guarded_products import guard_factors
from tcsym.polyhedral.passes.contraction.permute_operands import permute_operands
from tcsym.polyhedral.passes.contraction.split_maps import split_maps
from tcsym.polyhedral.passes.contraction.split_terms import find_guard, split_ranges, split_terms
from tcsym.polyhedral.passes.rows.column_blocks import blocks_pay, schedule_column_blocks
from tcsym.polyhedral.passes.rows.jam_rows import jam_rows
from tcsym.polyhedral.passes.rows.row_block import block_rows, row_groups
from tcsym.polyhedral.passes.rows.row_schedule import schedule_rows
from tcsym.polyhedral.passes.rows.scan_schedule import is_scan, schedule_scan
from tcsym.polyhedral.passes.rows.short_rows import short_versions
from tcsym.polyhedral.passes.rows.split_rows import split_rows
from tcsym.polyhedral.passes.rows.strip_schedule import schedule_strips, strip_columns
from tcsym.polyhedral.passes.windows.literal_windows import literal_copy, symbolic_windows
from tcsym.polyhedral.passes.windows.pad_reads import pad_reads
from tcsym.polyhedral.passes.windows.separate_windows import separate_windows
from tcsym.polyhedral.passes.windows.window_schedule import schedule_windows, window_rows

MOST_GUARDS = 2
FEW_BLOCKS = 4  # of rows: with fewer, threads share the work inside each nest
FEW_PACKED_BLOCKS = 20  # where panels are packed for them alone: threads share that only there
SINGLE_ROWS = 2  # more share what they read of the columns


def schedule_nest(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by the first schedule that applies."""
    if is_scan(kernel, nest):
        setting.note(nest, "scan: rows at once, state in registers")
        return schedule_scan(kernel, nest, setting)
    padded = pad_reads(guard_factors(kernel, nest), nest, setting)
    if padded is not None:
        setting.note(nest, "guarded reads from a padded copy")
        return schedule_nest(padded.kernel, padded.nest, setting)
    roles = _roles(kernel, nest)
    refusal = contraction_refusal(kernel, nest, roles)
    if roles is not None and refusal is None:
        kernel = _few_columns(kernel, nest, roles, setting)
        return _contraction(kernel, nest, roles, setting, _few_rows)
    by_terms = _by_terms(kernel, nest, setting)
    if by_terms is not None:
        return by_terms
    blocked = _in_row_blocks(kernel, nest, setting)
    if blocked is not None:
        return blocked
    inner = _inner_contractions(kernel, nest)
    if inner:
        for child in inner:
            kernel = schedule_nest(kernel, child, setting)
        return kernel
    if roles is not None and refusal is not None:
        setting.note(nest, f"no register tile: {refusal}")
    separated = separate_windows(kernel, nest, setting.names)
    if separated is not None:
        setting.note(nest, "windows in two parts")
        kernel = separated.kernel
        for x in separated.nests:
            kernel = _without_tile(kernel, x, setting)
        return kernel
    columns = strip_columns(kernel, nest, setting)
    kernel = short_versions(kernel, nest, columns, setting)
    return _without_tile(kernel, nest, setting)


def _roles(kernel: Kernel, nest: str) -> Roles | None:
    return contraction_roles(kernel, band_of(find_loop(kernel.body, nest)))


Schedule = Callable[[Kernel, str, Setting], Kernel]


def _contraction(
    kernel: Kernel, nest: str, roles: Roles, setting: Setting, otherwise: Schedule
) -> Kernel:
    """The packed register tile where panels pay, which may be known only at run time."""
    pays = panels_pay(kernel, nest, roles, setting)
    along = along_sum(kernel, nest, roles, roles.columns, setting.names)
    if along is not None and not along.operands and otherwise is _few_rows:
        pays = all_of((pays, negate(products_pay(kernel, nest, roles, along))))
    pays = in_context(kernel, pays)
    if pays == FALSE:
        return otherwise(kernel, nest, setting)
    copy: str | None = None
    if pays != TRUE:
        kernel, copy = with_fallback(kernel, nest, pays, setting.names)
    kernel = _in_panels(kernel, nest, roles, setting)
    return kernel if copy is None else otherwise(kernel, copy, setting)


def _by_terms(kernel: Kernel, nest: str, setting: Setting) -> Kernel | None:
    """Products in a sum, or under a guard, as contractions; None if they are none."""
    split, outside = split_terms(kernel, nest), tuple[str, ...]()
    for _ in range(MOST_GUARDS):
        guard = find_guard(split, nest)
        if guard is not None:
            ranges = split_ranges(split, nest, guard, setting.names)
            split, outside = ranges.kernel, (*outside, *ranges.outside)
    roles = None if split == kernel else _roles(split, nest)
    if roles is None or contraction_refusal(split, nest, roles) is not None:
        return None
    split = _contraction(split, nest, roles, setting, _without_tile)
    for other in outside:
        split = _without_tile(split, other, setting)
    return split


def _few_columns(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """A version beside the nest for few columns, if one wastes less than the register tile."""
    other = exchanged(kernel, nest, roles)
    if other is not None and streams_in_place(kernel, nest, other, setting):
        return _exchanged(kernel, nest, exchange_pays(kernel, nest, roles, True), setting)
    along = along_sum(kernel, nest, roles, roles.columns, setting.names)
    if along is not None:
        few = in_context(kernel, products_pay(kernel, nest, roles, along))
        if not along.operands or few == FALSE:
            return kernel  # the version without panels is one of products, or columns are many
        kernel, copy = with_fallback(kernel, nest, negate(few), setting.names)
        return _products(kernel, copy, True, setting)
    if other is None or not steps_apart(kernel, nest, other):
        return kernel
    return _exchanged(kernel, nest, exchange_pays(kernel, nest, roles, False), setting)


def _exchanged(kernel: Kernel, nest: str, few: Condition, setting: Setting) -> Kernel:
    """A version with rows as columns beside the nest, in place if it can be."""
    few = in_context(kernel, few)
    if few == FALSE:
        return kernel
    kernel, copy = with_fallback(kernel, nest, negate(few), setting.names)
    roles = _roles(kernel, copy)
    other = None if roles is None else exchanged(kernel, copy, roles)
    assert other is not None
    if streams_in_place(kernel, copy, other, setting):
        return _in_place(kernel, copy, other, setting)
    return _in_panels(kernel, copy, other, setting)


def _in_panels(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """The register tile, on copies of operands that lie badly for it."""
    assert roles.rows is not None
    permuted = permute_operands(kernel, nest, roles, setting.names)
    kernel = permuted.kernel
    for copy in permuted.copies:
        kernel = schedule_rows(kernel, copy, setting)
    band = band_of(find_loop(kernel.body, nest))
    moved = roles_of(band, roles.columns, roles.rows)
    assert moved is not None
    setting.note(nest, f"contraction, columns {roles.columns}, rows {roles.rows}")
    return schedule_contraction(kernel, nest, moved, setting)


def _few_rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """A contraction with too few rows to pay for panels: operands in place, or no tile."""
    roles = _roles(kernel, nest)
    if roles is None or not streams_in_place(kernel, nest, roles, setting):
        return _products(kernel, nest, False, setting)
    kernel, nest = _single_rows(kernel, nest, roles, setting)
    roles = _roles(kernel, nest)
    assert roles is not None
    return _in_place(kernel, nest, roles, setting)


def _in_place(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    rows = min(FEW_ROWS, setting.rows, most_in_context(kernel, row_count(kernel, nest, roles)))
    options = replace(setting.options, pack=False, register_rows=rows)
    setting.note(nest, f"contraction in place, columns {roles.columns}, rows {roles.rows}")
    setting = replace(setting, options=options)
    literal = _literal_in_place(kernel, nest, setting)
    if literal is not None:  # what is left has windows of few or many steps
        kernel = literal
        setting = replace(setting, options=replace(options, reduction_unroll=1))
    return schedule_contraction(kernel, nest, roles, setting)


def _single_rows(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> tuple[Kernel, str]:
    """A version for a row or two, each a sum over rows of columns; the name of the other."""
    matrix = len(band_of(find_loop(kernel.body, nest)).loops) == 2
    pays = blocks_pay(kernel, roles.columns, setting) if matrix else None
    if pays is None:
        return kernel, nest
    single = in_context(kernel, all_of((ge(SINGLE_ROWS, row_count(kernel, nest, roles)), pays)))
    if single == FALSE:
        return kernel, nest
    kernel, copy = with_fallback(kernel, nest, single, setting.names)
    setting.note(nest, f"blocks of columns {roles.columns} for {SINGLE_ROWS} rows")
    return _shared_rows(kernel, nest, roles.columns, setting), copy


def _literal_in_place(kernel: Kernel, nest: str, setting: Setting) -> Kernel | None:
    """A version for windows of the commonest size: straight code in overlapping tiles."""
    band = band_of(find_loop(kernel.body, nest))
    windows = symbolic_windows(kernel, band, setting.rows * setting.vectors)
    if not windows.loops:
        return None
    literal = literal_copy(kernel, nest, windows, setting.names)
    copy, kernel = literal.new[nest], literal.kernel
    band = band_of(find_loop(literal.copy, copy))
    roles = contraction_roles(kernel, band)
    if roles is None or roles.rows is None:
        return None
    points = frozenset((roles.columns, roles.rows))
    shape = tile_shape(kernel, band.body, roles, setting)
    fits = fits_tiles(band, roles.columns, roles.rows, shape)
    if fits == FALSE or not is_repeatable(kernel, band.body, points):
        return None
    kernel = literal.before(nest, all_of((windows.are_literal, fits)))
    return schedule_contraction(kernel, copy, roles, setting, True)


def _products(kernel: Kernel, nest: str, few_columns: bool, setting: Setting) -> Kernel:
    """Products of vectors along the sum, of which the smaller operand may need a copy."""
    roles = _roles(kernel, nest)
    few = None if roles is None else roles.columns if few_columns else roles.rows
    if roles is not None and few is not None:
        along = along_sum(kernel, nest, roles, few, setting.names)
        if along is not None:
            kernel = copy_along_sum(kernel, nest, along, setting.names)
    kernel, nests = split_maps(kernel, nest, setting.names)
    for x in nests:
        kernel = _without_tile(kernel, x, setting)
    return kernel


def _in_row_blocks(kernel: Kernel, nest: str, setting: Setting) -> Kernel | None:
    """Several nests over shared rows, some of them contractions: each on blocks of rows.

    Few blocks are no work for threads, and a row or two no register tile: then each nest runs by a
    schedule of its own, over all rows if these are all there is for threads.
    """
    band = band_of(find_loop(kernel.body, nest))
    height = setting.options.row_block * setting.rows
    if not band.loops or block_rows(kernel, nest, height, setting.names) is None:
        return None
    rows = extent(band.loops[-1])
    few = FEW_BLOCKS if loops_around(kernel.body, nest) else FEW_PACKED_BLOCKS
    alone = len(band.loops) == 1 and is_bounded(kernel, nest)
    if alone:
        enough = in_context(kernel, ge(ceildiv(rows, height), few))
    else:  # the loops around the rows are work for threads
        inside = bool(rows.variables() & set(band.variables))
        enough = TRUE if inside else in_context(kernel, ge(rows, FEW_ROWS))
    if enough == TRUE:
        return _blocked(kernel, nest, height, setting)
    copy = nest
    if enough != FALSE:
        kernel, copy = with_fallback(kernel, nest, enough, setting.names)
        kernel = _blocked(kernel, nest, height, setting)
    if not alone:
        return _separately(kernel, copy, setting)
    return _distributed(kernel, copy, (few - 1) * height, setting)


def _distributed(kernel: Kernel, nest: str, most: int, setting: Setting) -> Kernel:
    """A band over nests, for at most so many rows -> bands for each of them, by their schedules."""
    last = band_of(find_loop(kernel.body, nest)).loops[-1]
    groups = tuple(x for _, x in row_groups(kernel, last))
    distributed = distribute(kernel, nest, groups, setting.names, most)
    kernel = distributed.kernel
    for x in distributed.nests:
        kernel = schedule_nest(kernel, x, setting)
    return kernel


def _blocked(kernel: Kernel, nest: str, height: int, setting: Setting) -> Kernel:
    """Contract: `block_rows` has something to block."""
    blocked = block_rows(kernel, nest, height, setting.names)
    assert blocked is not None
    kernel = blocked.kernel
    setting.note(nest, f"blocks of {height} rows, {len(blocked.nests)} nests")
    for inner in blocked.nests:
        roles = _roles(kernel, inner) if inner in blocked.contractions else None
        if roles is not None and contraction_refusal(kernel, inner, roles) is None:
            kernel = schedule_contraction(kernel, inner, roles, setting)
            setting.note(inner, f"contraction, columns {roles.columns}, rows {roles.rows}")
        else:
            kernel = _without_tile(kernel, inner, setting)
    return kernel


def _inner_contractions(kernel: Kernel, nest: str) -> tuple[str, ...]:
    """The nests inside the band at `nest`, if one of them is a contraction by itself."""
    band = band_of(find_loop(kernel.body, nest))
    if not band.loops:
        return ()
    outermost = _outermost_loops(band)
    found = any(
        contraction_refusal(kernel, x.variable, _roles(kernel, x.variable)) is None
        for x in outermost
        if x.order == "parallel"
    )
    return tuple(x.variable for x in outermost) if found else ()


def _has_inner_strips(kernel: Kernel, nest: str, setting: Setting) -> bool:
    """One of the nests inside the band at `nest` runs faster in strips."""
    band = band_of(find_loop(kernel.body, nest))
    inside = _outermost_loops(band) if band.loops else ()
    return any(strip_columns(kernel, x.variable, setting) for x in inside)


def _separately(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Each nest inside the band at `nest` by a schedule of its own."""
    for x in _outermost_loops(band_of(find_loop(kernel.body, nest))):
        kernel = _without_tile(kernel, x.variable, setting)
    return kernel


def _outermost_loops(band: Band) -> tuple[Loop, ...]:
    inside: set[str] = set()
    out: list[Loop] = []
    for x in loops_in(band.body):
        if x.variable not in inside:
            out.append(x)
            inside |= {y.variable for y in loops_in(x)}
    return tuple(out)


def _without_tile(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    columns = strip_columns(kernel, nest, setting)
    if columns is None:
        if _has_inner_strips(kernel, nest, setting):
            return _separately(kernel, nest, setting)
        return _rows(kernel, nest, setting)
    rows = window_rows(kernel, nest, columns)
    windows = rows and schedule_windows(kernel, nest, columns, rows, setting)
    if windows:
        setting.note(nest, f"windows, columns {columns}, rows {rows}")
        return windows
    return _strips(kernel, nest, columns, setting)


def _rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Vectors along rows, of four rows at a time where these share an operand."""
    jammed = jam_rows(kernel, nest, setting)
    if jammed is None:
        return schedule_rows(kernel, nest, setting)
    setting.note(jammed.nest, "four rows at a time")
    return schedule_rows(schedule_rows(jammed.kernel, jammed.nest, setting), nest, setting)


def _strips(kernel: Kernel, nest: str, columns: str, setting: Setting) -> Kernel:
    """Blocks of columns where they pay, which may be known only at run time, else strips."""
    pays = blocks_pay(kernel, columns, setting)
    pays = None if pays is None else in_context(kernel, pays)
    if pays is None or pays == FALSE:
        setting.note(nest, f"strips along {columns}")
        return schedule_strips(kernel, nest, columns, setting)
    setting.note(nest, f"blocks of columns {columns}")
    if pays == TRUE:
        return _column_blocks(kernel, nest, columns, setting)
    place = band_of(find_loop(kernel.body, nest)).variables.index(columns)
    kernel, copy = with_fallback(kernel, nest, pays, setting.names)
    kernel = _column_blocks(kernel, nest, columns, setting)
    setting.note(copy, f"strips along {columns}")
    return schedule_strips(
        kernel, copy, band_of(find_loop(kernel.body, copy)).variables[place], setting
    )


def _column_blocks(kernel: Kernel, nest: str, columns: str, setting: Setting) -> Kernel:
    """Threads share the rows where no loop around the columns gives them parts."""
    if loops_around(kernel.body, columns):
        return schedule_column_blocks(kernel, columns, setting)
    return _shared_rows(kernel, nest, columns, setting)


def _shared_rows(kernel: Kernel, nest: str, columns: str, setting: Setting) -> Kernel:
    split = (
        split_rows(kernel, nest, columns, setting.names) if setting.options.parallelize else None
    )
    if split is None:
        return schedule_column_blocks(kernel, columns, setting)
    kernel = schedule_column_blocks(split.kernel, split.columns, setting, split.rows)
    few = replace(setting, options=replace(setting.options, strip_vectors=1))
    return schedule_strips(kernel, nest, columns, few)
