# SPDX-License-Identifier: Apache-2.0
"""Contraction, plan -> the nest scheduled so, and the copies and sums that the plan makes."""

from __future__ import annotations

from typing import assert_never

from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import Roles, band_of, roles_at, roles_of
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.operands import widened_terms
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    ContractionPlan,
    InPlace,
    Panels,
    Products,
    RegisterTile,
)
from tcsym.schedule.split.maps import split_maps
from tcsym.schedule.stage.along_sum import along_sum, copy_along_sum
from tcsym.schedule.stage.packed_steps import pack_steps
from tcsym.schedule.tile.contraction_schedule import schedule_contraction
from tcsym.schedule.version.apply_rows import schedule_leaf
from tcsym.schedule.version.choose import schedule_by


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
    return schedule_contraction(
        kernel, nest, roles, setting.with_tiling(packs=False, rows=x.height)
    )


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
