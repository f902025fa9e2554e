"""Leaf schedule `contraction`: a register tile over packed panels, with the band's epilogue on it."""

from __future__ import annotations

from dataclasses import replace

from tcsym.index import ONE, Index, ge
from tcsym.loop_ir import Branch, Kernel, Loop, Node
from tcsym.options import Options
from tcsym.polyhedral.passes.access import subscript_variables
from tcsym.polyhedral.passes.band import (
    Band,
    Roles,
    band_of,
    contraction_roles,
    factors,
    reductions,
)
from tcsym.polyhedral.passes.bounds import extent
from tcsym.polyhedral.passes.duplicate import duplicate
from tcsym.polyhedral.passes.interchange import can_sink
from tcsym.polyhedral.passes.loops import find_loop, is_leaf, loops_in, replace_loop
from tcsym.polyhedral.passes.names import Names
from tcsym.polyhedral.passes.pack_operand import (
    Operand,
    fill_panel,
    plan_operand,
    redirect_operand,
)
from tcsym.polyhedral.passes.register_tile import TileShape, can_tile, tile_registers
from tcsym.polyhedral.passes.vector_legality import lanes_for, vector_refusal
from tcsym.target import Target

CONSTANT_UNROLL = 4
REDUCTION_UNROLL = 4


def contraction_refusal(kernel: Kernel, nest: str, roles: Roles | None) -> str | None:
    """Why the nest is not a register-tiled contraction, or None."""
    band = band_of(find_loop(kernel.body, nest))
    if roles is None or roles.rows is None:
        return "no contraction with rows and columns"
    points = frozenset((roles.columns, roles.rows))
    if not can_sink(band.body, points):
        return "bounds or conditions move with the tile"
    if any(x.order == "parallel" and not is_leaf(x) for x in loops_in(band.body)):
        return "several nests share the band"
    if not can_tile(band, roles.columns, roles.rows, _outer(band, roles)):
        return "bounds of the band move with each other"
    return vector_refusal(kernel, band.body, roles.columns)


def schedule_contraction(
    kernel: Kernel, nest: str, roles: Roles, target: Target, options: Options, names: Names
) -> Kernel:
    """Register tile of rows x columns; the streamed operands packed. Needs no refusal."""
    band = band_of(find_loop(kernel.body, nest))
    assert roles.rows is not None
    shape = tile_shape(kernel, band.body, roles, target, options)
    operands: list[Operand] = []
    if options.pack:
        operands = _operands(kernel, band, roles, names)
    for operand in operands:
        kernel = redirect_operand(kernel, operand)
    band = band_of(find_loop(kernel.body, nest))
    inner = [x.variable for x in loops_in(band.body) if is_leaf(x)]
    all_inner = [x.variable for x in loops_in(band.body)]
    outer = _outer(band, roles)
    tiled = tile_registers(kernel, band, roles.columns, roles.rows, outer, shape, names)
    kernel = tiled.kernel
    for operand in operands:
        kernel = fill_panel(replace(tiled, kernel=kernel), operand, shape, names)
    return _unroll_reductions(kernel, all_inner, inner)


def tile_shape(
    kernel: Kernel, body: Node, roles: Roles, target: Target, options: Options
) -> TileShape:
    """The target's register tile, with fewer rows if several elements are accumulated."""
    lanes = lanes_for(kernel, body, target) if options.vectorize else 1
    rows = options.register_rows or target.register_rows
    vectors = options.register_vectors or target.register_vectors
    if lanes == 1:
        vectors = max(vectors, 2)
    return TileShape(max(1, rows // max(1, roles.accumulators)), vectors, lanes)


def _outer(band: Band, roles: Roles) -> tuple[str, ...]:
    """Loops of the band that a streamed operand moves with: they stay around its panel."""
    used = frozenset[str]().union(*(subscript_variables(r.subscripts) for r in roles.streamed))
    return tuple(v for v in band.variables if v in used and v not in (roles.columns, roles.rows))


def _operands(kernel: Kernel, band: Band, roles: Roles, names: Names) -> list[Operand]:
    found: list[Operand] = []
    for r in roles.streamed:
        around = next(a for x, a in reductions(band.body) if r in factors(x))
        same = all(a == around for x, a in reductions(band.body) if r in factors(x))
        plan = plan_operand(kernel, r, band.loop(roles.columns), around, names) if same else None
        if plan is not None:
            found.append(plan)
    return found


def _unroll_reductions(kernel: Kernel, loops: list[str], innermost: list[str]) -> Kernel:
    """Short constant reduction loops are unrolled, the innermost long ones by a few."""

    def change(x: Loop) -> Loop:
        n = extent(x).as_int()
        if n is not None and n <= CONSTANT_UNROLL and x.lower.as_int() == 0:
            return replace(x, kind="unrolled")
        return replace(x, unroll=REDUCTION_UNROLL) if x.variable in innermost else x

    for v in loops:
        kernel = replace(kernel, body=replace_loop(kernel.body, v, change))
    return kernel


def row_count(kernel: Kernel, nest: str, roles: Roles) -> Index:
    """How often a packed element is used."""
    band = band_of(find_loop(kernel.body, nest))
    total = ONE
    for v in band.variables:
        if v != roles.columns and v not in _outer(band, roles):
            total = total * extent(band.loop(v))
    return total


def with_fallback(
    kernel: Kernel, nest: str, least: int, roles: Roles, names: Names
) -> tuple[Kernel, str | None]:
    """The nest under the condition that panels pay, and the name of its copy for when they do not."""
    rows = row_count(kernel, nest, roles)
    if rows.as_int() is not None:
        return kernel, None
    kernel, copy, new = duplicate(kernel, find_loop(kernel.body, nest), names)
    body = replace_loop(kernel.body, nest, lambda x: Branch(ge(rows, least), x, copy))
    return replace(kernel, body=body), new[nest]


__all__ = [
    "contraction_refusal",
    "contraction_roles",
    "schedule_contraction",
    "with_fallback",
]
