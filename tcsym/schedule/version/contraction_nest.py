"""Contraction -> its versions: panels, operands in place, products along the sum.

Packed panels in register tiles are for many rows and columns. Few columns change places with the
rows, or each element is a product of vectors. What pays may be known only at run time: then
versions lie side by side, chosen by a condition on sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tcsym.frontend.program import Call
from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    all_of,
    any_of,
    condition_variables,
    eq,
    ge,
    negate,
)
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.ir.packed import BFLOAT
from tcsym.ir.traverse import substitute_node
from tcsym.schedule.analysis.assume import in_context, most_in_context
from tcsym.schedule.analysis.band import (
    Band,
    Roles,
    band_of,
    contraction_roles,
    reductions,
    roles_of,
)
from tcsym.schedule.analysis.loops import find_loop, loops_around, replace_loop
from tcsym.schedule.analysis.operands import widened_terms
from tcsym.schedule.analysis.overlap import fits_tiles, is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.sliding import sliding_loops
from tcsym.schedule.combine.split_k import is_long, split_k
from tcsym.schedule.order.order_reductions import order_reductions
from tcsym.schedule.split.maps import split_maps
from tcsym.schedule.stage.along_sum import along_sum, copy_along_sum
from tcsym.schedule.stage.evaluate_operands import evaluate_operands
from tcsym.schedule.stage.packed_steps import pack_steps
from tcsym.schedule.stage.permute_operands import permute_operands
from tcsym.schedule.tile.column_blocks import blocks_pay, schedule_column_blocks
from tcsym.schedule.tile.contraction_schedule import (
    schedule_contraction,
    tile_shape,
)
from tcsym.schedule.tile.fold_rows import fold_rows
from tcsym.schedule.tile.register_tile import (
    TileShape,
    can_tile,
    tile_registers,
)
from tcsym.schedule.tile.row_schedule import schedule_rows
from tcsym.schedule.tile.strip_schedule import schedule_strips, strip_columns
from tcsym.schedule.tile.window_schedule import (
    schedule_whole_windows,
    window_rows,
    windows_fit,
)
from tcsym.schedule.version.contraction_versions import (
    FEW_ROWS,
    exchange_pays,
    exchanged,
    has_windows,
    may_be_short,
    panels_pay,
    products_pay,
    row_count,
    short_pays,
    steps_apart,
    streams_in_place,
)
from tcsym.schedule.version.exchange_sides import shared_pays
from tcsym.schedule.version.leaf_schedule import schedule_leaf, schedule_shared_rows
from tcsym.schedule.version.literal_windows import (
    LiteralCopy,
    are_known,
    literal_copy,
    symbolic_windows,
)
from tcsym.schedule.version.short_rows import add_lanes
from tcsym.schedule.version.versioning import add_version

SINGLE_ROWS = 2  # more share what they read of the columns
LONG_COLUMNS = 512  # of which a tile for both rows reads a line here and there
WHOLE_VECTORS = 2  # of overlapping tiles, where columns are too few for the target's tile
SLOW_ROWS = 2  # as many rows in flight where sums of pairs of bfloat16 wait for each other
ROW_VECTORS = 4  # their sums are in flight at once

Schedule = Callable[[Kernel, str, Setting], Kernel]


def tile_where_it_pays(
    kernel: Kernel, nest: str, roles: Roles, setting: Setting, otherwise: Schedule
) -> Kernel:
    """The packed register tile where panels pay, which may be known only at run time."""
    pays = panels_pay(kernel, nest, roles, setting)
    along = along_sum(kernel, nest, roles, roles.columns, setting.names)
    alone = otherwise is schedule_few_rows and not has_windows(kernel, nest)
    if along is not None and not along.operands and alone:
        pays = all_of((pays, negate(products_pay(kernel, nest, roles, along))))
    pays = in_context(kernel, pays)
    if pays == FALSE:
        return otherwise(kernel, nest, setting)
    copy: str | None = None
    if pays != TRUE:
        kernel, copy = add_version(kernel, nest, pays, setting.names)
    kernel = _in_panels(kernel, nest, roles, setting)
    return kernel if copy is None else otherwise(kernel, copy, setting)


def add_few_columns(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """A version beside the nest for few columns, if one wastes less than the register tile."""
    other = exchanged(kernel, nest, roles)
    if other is not None and streams_in_place(kernel, nest, other, setting):
        return _exchanged(kernel, nest, exchange_pays(kernel, nest, roles, True), setting)
    along = along_sum(kernel, nest, roles, roles.columns, setting.names)
    if other is not None and may_be_short(kernel, nest, roles):
        short = in_context(kernel, short_pays(kernel, nest, roles, other, setting))
        if short != FALSE:
            return _exchanged(kernel, nest, short, setting)
    if along is not None:
        shared = FALSE if other is None else shared_pays(kernel, nest, roles, other, setting)
        shared = in_context(kernel, shared)
        if along.operands and shared != FALSE:
            left = _left_out(kernel, nest, shared, setting)
            return left or _exchanged(kernel, nest, shared, setting)
        few = in_context(kernel, products_pay(kernel, nest, roles, along))
        if not along.operands or few == FALSE:
            return kernel  # the version without panels is one of products, or columns are many
        kernel, copy = add_version(kernel, nest, negate(few), setting.names)
        return _products(kernel, copy, True, setting)
    if other is None or not steps_apart(kernel, nest, other):
        return kernel
    return _exchanged(kernel, nest, exchange_pays(kernel, nest, roles, False), setting)


def add_long_sums(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """A version beside the nest for sums so long that panels of them leave every cache.

    Those of windows are left: tiles in place take less time than panels of them. So are those
    inside of other loops, which have shares of the caches and threads of their own. Few sizes have
    them: unless the kernel is to be whole, these are left out.
    """
    inside = not setting.long_sums or loops_around(kernel.body, nest)
    if inside or has_windows(kernel, nest):
        return kernel
    pays = is_long(kernel, nest)
    pays = FALSE if pays is None else in_context(kernel, pays)
    if pays == FALSE or not condition_variables(pays) <= frozenset(kernel.sizes):
        return kernel
    left = _left_out(kernel, nest, pays, setting)
    if left is not None:
        return left
    split = split_k(kernel, nest, pays, setting.names)
    kernel = split.kernel
    setting.note(nest, f"long sums in blocks {split.sums}")
    zeros, total = split.maps
    columns = strip_columns(kernel, total, setting)
    kernel = schedule_leaf(kernel, zeros, setting)
    if columns is None:
        kernel = schedule_leaf(kernel, total, setting)
    else:
        kernel = schedule_strips(kernel, total, columns, setting)
    rows = roles.rows and split.new[roles.rows]
    band = band_of(find_loop(kernel.body, split.sums))
    moved = rows and roles_of(band, split.new[roles.columns], rows)
    assert moved
    return _in_panels(kernel, split.sums, moved, setting)


def _left_out(kernel: Kernel, nest: str, few: Condition, setting: Setting) -> Kernel | None:
    """The kernel without sizes that few calls have, unless it is to be whole, or these are all."""
    if few == TRUE or setting.whole or not setting.long_sums or loops_around(kernel.body, nest):
        return None
    return replace(kernel, left_out=any_of((kernel.left_out, few)))


def _exchanged(kernel: Kernel, nest: str, few: Condition, setting: Setting) -> Kernel:
    """A version with rows as columns beside the nest, in place if it can be."""
    few = in_context(kernel, few)
    if few == FALSE:
        return kernel
    kernel, copy = add_version(kernel, nest, negate(few), setting.names)
    roles = roles_at(kernel, copy)
    other = None if roles is None else exchanged(kernel, copy, roles)
    assert other is not None
    if streams_in_place(kernel, copy, other, setting):
        return _in_place(kernel, copy, other, setting)
    return _in_panels(kernel, copy, other, setting)


def _in_panels(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """The register tile, on copies of operands that lie badly for it."""
    assert roles.rows is not None
    new = permute_operands(widened_terms(kernel, nest), nest, roles, setting.names)
    packed = pack_steps(new.kernel, nest, roles, setting)
    values = evaluate_operands(packed.kernel, nest, roles, setting.names)
    kernel = values.kernel
    for total in packed.sums:
        kernel = schedule_leaf(kernel, total, setting)
    for copy in (*new.copies, *values.copies):
        kernel = schedule_rows(kernel, copy, setting)
    band = band_of(find_loop(kernel.body, nest))
    moved = roles_of(band, roles.columns, roles.rows)
    assert moved is not None
    setting.note(nest, f"contraction, columns {roles.columns}, rows {roles.rows}")
    return schedule_contraction(kernel, nest, moved, setting)


def schedule_few_rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """A contraction with too few rows to pay for panels: operands in place, or no tile."""
    roles = roles_at(kernel, nest)
    if roles is None or not streams_in_place(kernel, nest, roles, setting):
        return _products(kernel, nest, False, setting)
    for add in (_single_rows, _single_channels, _single_points):
        kernel, nest = add(kernel, nest, roles, setting)
        roles = roles_at(kernel, nest)
        assert roles is not None
    return _in_place(kernel, nest, roles, setting)


def _in_place(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    most = FEW_ROWS * SLOW_ROWS if _adds_slowly(kernel, nest) else FEW_ROWS
    rows = min(most, setting.rows, most_in_context(kernel, row_count(kernel, nest, roles)))
    options = replace(setting.options, pack=False, register_rows=rows)
    setting.note(nest, f"contraction in place, columns {roles.columns}, rows {roles.rows}")
    setting = replace(setting, options=options)
    return _in_whole_tiles(kernel, nest, roles, setting)


def _adds_slowly(kernel: Kernel, nest: str) -> bool:
    """A sum waits for its last term longer than those of other numbers do."""
    sums = reductions(band_of(find_loop(kernel.body, nest)).body)
    return any(isinstance(x.value, Call) and x.value.function == BFLOAT for x, _ in sums)


def _in_whole_tiles(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """Operands in place: overlapping tiles for windows of known size, or of the commonest one;
    masked tiles elsewhere. Masks cost little on some targets: only straight code gains there.
    """
    band = band_of(find_loop(kernel.body, nest))
    if not sliding_loops(reductions(band.body), band.variables):
        return schedule_contraction(kernel, nest, roles, setting)
    kernel = order_reductions(kernel, nest, roles)
    band = band_of(find_loop(kernel.body, nest))
    windows = symbolic_windows(kernel, band, setting.rows * WHOLE_VECTORS)
    straight = setting.rows * WHOLE_VECTORS if setting.machine.has_masks else None
    if not windows.loops and not are_known(band, straight):
        return schedule_contraction(kernel, nest, roles, setting)
    for vectors in dict.fromkeys((setting.vectors, min(setting.vectors, WHOLE_VECTORS))):
        wide = replace(setting, options=replace(setting.options, register_vectors=vectors))
        whole = literal_copy(kernel, nest, windows, setting.names)
        moved = _renamed(roles, whole)
        fits = _fits_whole(whole.kernel, whole.copy, moved, wide)
        fits = in_context(kernel, all_of((windows.are_literal, fits)))
        if fits == TRUE:
            return schedule_contraction(kernel, nest, roles, wide, True)
        if fits != FALSE:
            kernel = whole.before(nest, fits)
            kernel = schedule_contraction(kernel, whole.new[nest], moved, wide, True)
    if windows.loops:  # what is left has windows of few or many steps
        setting = replace(setting, options=replace(setting.options, reduction_unroll=1))
    return schedule_contraction(kernel, nest, roles, setting)


def _renamed(roles: Roles, copy: LiteralCopy) -> Roles:
    assert isinstance(copy.copy, Loop) and roles.rows is not None
    moved = roles_of(band_of(copy.copy), copy.new[roles.columns], copy.new[roles.rows])
    assert moved is not None
    return moved


def _fits_whole(kernel: Kernel, nest: Node, roles: Roles, setting: Setting) -> Condition:
    """Where overlapping tiles may run: both loops fill a tile, and may repeat iterations."""
    assert isinstance(nest, Loop) and roles.rows is not None
    band = band_of(nest)
    if not is_repeatable(kernel, band.body, frozenset((roles.columns, roles.rows))):
        return FALSE
    shape = tile_shape(kernel, band.body, roles, setting)
    fits = fits_tiles(band, roles.columns, roles.rows, shape)
    return FALSE if condition_variables(fits) & set(band.variables) else fits


def _single_rows(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> tuple[Kernel, str]:
    """A version for a row or two, each a sum over rows of columns; the name of the other."""
    band = band_of(find_loop(kernel.body, nest))
    may = len(band.loops) == 2 or (len(band.loops) > 2 and not has_windows(kernel, nest))
    pays = blocks_pay(kernel, roles.columns, setting) if may else None
    if pays is None:
        return kernel, nest
    rows, columns = row_count(kernel, nest, roles), extent(band.loop(roles.columns))
    few = ge(SINGLE_ROWS, rows)
    if len(band.loops) > 2:  # rows come again and again
        few = all_of((few, any_of((ge(1, rows), ge(columns, LONG_COLUMNS)))))
    single = in_context(kernel, all_of((few, pays)))
    if single == FALSE:
        return kernel, nest
    kernel, copy = add_version(kernel, nest, single, setting.names)
    setting.note(nest, f"blocks of columns {roles.columns} for {SINGLE_ROWS} rows")
    if len(band.loops) > 2:  # those around give threads parts
        return schedule_column_blocks(kernel, roles.columns, setting), copy
    return schedule_shared_rows(kernel, nest, roles.columns, setting), copy


def _single_channels(
    kernel: Kernel, nest: str, roles: Roles, setting: Setting
) -> tuple[Kernel, str]:
    """A version for windows of one or two output channels; the name of the other.

    Rows of the image share what windows read of it, and weights: a tile has four of these then,
    where one of channels would be mostly empty.
    """
    rows = window_rows(kernel, nest, roles.columns)
    if rows is None or rows == roles.rows:
        return kernel, nest
    fits = windows_fit(kernel, nest, roles.columns, rows, setting)
    few = ge(SINGLE_ROWS, row_count(kernel, nest, roles))
    single = in_context(kernel, all_of((few, fits)))
    if single == FALSE:
        return kernel, nest
    kernel, copy = add_version(kernel, nest, single, setting.names)
    setting.note(nest, f"windows, columns {roles.columns}, rows {rows}")
    return schedule_whole_windows(kernel, nest, roles.columns, rows, setting), copy


def _single_points(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> tuple[Kernel, str]:
    """A version for a row or two of columns and windows of one point; the name of the other.

    A tile of four rows is mostly empty then, one of four vectors of a row is not.
    """
    columns, names = roles.columns, setting.names
    band = band_of(find_loop(kernel.body, nest))
    inner = Band(band.loops[band.variables.index(columns) :], band.body)
    windows = sliding_loops(reductions(band.body), band.variables)
    if not windows or not can_tile(inner, columns, None, ()):
        return kernel, nest
    if not is_repeatable(kernel, band.body, frozenset((columns,))):
        return kernel, nest
    shape = TileShape(1, ROW_VECTORS, setting.lanes(kernel, band.body))
    few = ge(SINGLE_ROWS, row_count(kernel, nest, roles))
    wide = ge(extent(band.loop(columns)), shape.columns)
    single = in_context(kernel, all_of((few, wide, *(eq(extent(x), 1) for x in windows))))
    if single == FALSE or not condition_variables(single) <= frozenset(kernel.sizes):
        return kernel, nest
    kernel, copy = add_version(kernel, nest, single, names)
    setting.note(nest, f"vectors along {columns} for {SINGLE_ROWS} rows")
    for x in windows:
        body = replace_loop(kernel.body, x.variable, _only_iteration)
        kernel = replace(kernel, body=body)
    inner = band_of(find_loop(kernel.body, columns))
    return tile_registers(kernel, inner, columns, None, (), shape, names, True).kernel, copy


def _only_iteration(x: Loop) -> Node:
    return substitute_node(x.body, {x.variable: x.lower})


def _products(kernel: Kernel, nest: str, few_columns: bool, setting: Setting) -> Kernel:
    """Products of vectors along the sum, of which the smaller operand may need a copy."""
    roles = roles_at(kernel, nest)
    few = None if roles is None else roles.columns if few_columns else roles.rows
    if roles is not None and few is not None:
        along = along_sum(kernel, nest, roles, few, setting.names)
        if along is not None:
            kernel = copy_along_sum(kernel, nest, along, setting.names)
    kernel, nests = split_maps(kernel, nest, setting.names)
    if len(nests) > 1:
        kernel = with_rows_folded(kernel, nests[-1], setting)
    for x in nests:
        kernel = schedule_leaf(kernel, x, setting)
    return kernel


def with_rows_folded(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The map beside a version for short rows, or for those of one element."""
    folded = fold_rows(kernel, nest, setting, True)
    if folded is not None:
        return folded
    band = band_of(find_loop(kernel.body, nest))
    if len(band.loops) < 2:
        return kernel
    *_, rows, columns = band.loops
    single = all_of((eq(extent(columns), 1), ge(extent(rows), setting.lanes(kernel, band.body))))
    single = in_context(kernel, single)
    if single == FALSE or not condition_variables(single) <= frozenset(kernel.sizes):
        return kernel
    return add_lanes(kernel, nest, rows.variable, single, setting)


def roles_at(kernel: Kernel, nest: str) -> Roles | None:
    return contraction_roles(kernel, band_of(find_loop(kernel.body, nest)))
