# SPDX-License-Identifier: Apache-2.0
"""Contraction, plan -> the nest scheduled so, and the copies and sums that the plan makes."""

from __future__ import annotations

from typing import assert_never

from tcsym.index.expr import FALSE, TRUE, Condition, all_of, condition_variables
from tcsym.ir.loops import Kernel, Loop, Node
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Roles, band_of, reductions, roles_at, roles_of
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.operands import widened_terms
from tcsym.schedule.analysis.overlap import fits_tiles, is_repeatable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.sliding import sliding_loops
from tcsym.schedule.order.order_reductions import order_reductions
from tcsym.schedule.plan import (
    ContractionPlan,
    InPlace,
    Panels,
    Products,
    RegisterTile,
    UnitWindows,
)
from tcsym.schedule.split.maps import split_maps
from tcsym.schedule.stage.along_sum import along_sum, copy_along_sum
from tcsym.schedule.stage.packed_steps import pack_steps
from tcsym.schedule.tile.contraction_schedule import schedule_contraction, tile_shape
from tcsym.schedule.tile.point_windows import schedule_unit_windows
from tcsym.schedule.version.apply_rows import schedule_leaf
from tcsym.schedule.version.choose import schedule_by
from tcsym.schedule.version.literal_windows import (
    LiteralCopy,
    are_known,
    literal_copy,
    symbolic_windows,
)

WHOLE_VECTORS = 2  # of overlapping tiles, where columns are too few for the target's tile


def apply_contraction(plan: ContractionPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case Panels(columns, rows):
            return _in_panels(kernel, nest, columns, rows, setting)
        case RegisterTile(columns, rows):
            setting.note(nest, f"contraction, columns {columns}, rows {rows}")
            return schedule_contraction(kernel, nest, _roles(kernel, nest, columns, rows), setting)
        case InPlace():
            return _in_place(kernel, nest, plan, setting)
        case Products(few_columns):
            return _products(kernel, nest, few_columns, setting)
        case UnitWindows():
            return schedule_unit_windows(kernel, nest, plan, setting)
        case _:
            assert_never(plan)


def _roles(kernel: Kernel, nest: str, columns: str, rows: str) -> Roles:
    roles = roles_of(band_of(find_loop(kernel.body, nest)), columns, rows)
    assert roles is not None
    return roles


def _in_panels(kernel: Kernel, nest: str, columns: str, rows: str, setting: Setting) -> Kernel:
    """The register tile, on copies of operands that lie badly for it."""
    roles = _roles(kernel, nest, columns, rows)
    packed = pack_steps(widened_terms(kernel, nest), nest, roles, setting)
    kernel = packed.kernel
    for total in packed.sums:
        kernel = schedule_leaf(kernel, total, setting)
    return schedule_by(RegisterTile(columns, rows), kernel, nest, setting, apply_contraction)


def _in_place(kernel: Kernel, nest: str, x: InPlace, setting: Setting) -> Kernel:
    roles = _roles(kernel, nest, x.columns, x.rows)
    setting.note(nest, f"contraction in place, columns {x.columns}, rows {x.rows}")
    return _in_whole_tiles(kernel, nest, roles, setting.with_tiling(packs=False, rows=x.height))


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
        wide = setting.with_tiling(vectors=vectors)
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
        setting = setting.with_tiling(unroll=1)
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


def _products(kernel: Kernel, nest: str, few_columns: bool, setting: Setting) -> Kernel:
    """Products of vectors along the sum, of which the smaller operand may need a copy."""
    roles = roles_at(kernel, nest)
    few = None if roles is None else roles.columns if few_columns else roles.rows
    if roles is not None and few is not None:
        along = along_sum(kernel, nest, roles, few, setting.names)
        if along is not None:
            kernel = copy_along_sum(kernel, nest, along, setting.names)
    kernel, nests = split_maps(kernel, nest, setting.names)
    for x in nests:
        kernel = schedule_leaf(kernel, x, setting)
    return kernel
