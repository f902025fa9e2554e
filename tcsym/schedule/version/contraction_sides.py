# SPDX-License-Identifier: Apache-2.0
"""The two sides of a contraction: what its columns and its rows are, and which operands get panels.

An image's two loops become one side where they can (`contraction.fuse_parallel`): all of it is then
cut into whole tiles, with one ragged end instead of one a row.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import Band, Roles, band_of, reductions
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.operands import (
    Operand,
    outer_loops,
    over_outer,
    stationary_operands,
    streamed_operands,
)
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.sliding import slides_over
from tcsym.schedule.order.fuse_parallel import (
    can_fuse,
    follows_evenly,
    fuse_loops,
    stores_follow,
)
from tcsym.schedule.order.interchange import reorder_chain
from tcsym.schedule.stage.pack_operand import redirect_operand


class Sides(Struct, frozen=True):
    """The kernel with operands redirected to panels and loops fused; `outer` loops stay around."""

    kernel: Kernel
    nest: str
    roles: Roles
    outer: tuple[str, ...]
    streamed: tuple[Operand, ...] = ()
    stationary: tuple[Operand, ...] = ()


def contraction_sides(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Sides:
    """Operands and loops of the register tile of the nest."""
    band = _band(kernel, nest)
    sides = Sides(kernel, nest, roles, outer_loops(band, roles))
    if not setting.tiling.packs:
        return _with_rows(sides, (), setting)
    streamed = streamed_operands(kernel, band, roles, setting.names)
    stationary = stationary_operands(kernel, band, roles, setting.names)
    sides = _with_columns(sides, tuple(streamed), setting)
    return _with_rows(sides, tuple(stationary), setting)


def _with_columns(sides: Sides, operands: tuple[Operand, ...], setting: Setting) -> Sides:
    """Streamed operands redirected; the columns fused with a loop that all else follows evenly."""
    kernel, nest, columns = sides.kernel, sides.nest, sides.roles.columns
    band = _band(kernel, nest)
    for outer in reversed(sides.outer) if operands else ():
        kept = tuple(v for v in sides.outer if v != outer)
        wider = tuple(replace(x, across=band.loop(outer)) for x in operands)
        wider = tuple(over_outer(kernel, band, x, kept) for x in wider)
        redirected = _redirected(kernel, wider)
        inside = _band(redirected, nest)
        if can_fuse(redirected, inside, outer, columns) and follows_evenly(
            redirected, inside, outer, columns
        ):
            new = setting.names.fresh(columns)
            sides = _fused(sides, redirected, outer, columns, new)
            roles = replace(sides.roles, columns=new)
            return replace(sides, roles=roles, outer=kept, streamed=wider)
    operands = tuple(over_outer(kernel, band, x, sides.outer) for x in operands)
    return replace(sides, kernel=_redirected(kernel, operands), streamed=operands)


def _with_rows(sides: Sides, operands: tuple[Operand, ...], setting: Setting) -> Sides:
    """Stationary operands redirected; their rows fused with a loop around, if that is the same
    image or the same matrix, or if both may be short (a division then finds each row of a tile).
    Rows that lie anywhere, as those of no operand in panels, are fused with further ones."""
    sides = _with_loop_around(sides)
    kernel, rows = sides.kernel, sides.roles.rows
    band = _band(kernel, sides.nest)
    assert rows is not None
    around = _row_loops(sides, band)[: _row_loops(sides, band).index(rows)]
    if around:
        outer = around[-1]
        wider = tuple(replace(x, across=band.loop(outer)) for x in operands)
        redirected = _redirected(kernel, wider)
        inside = _band(redirected, sides.nest)
        even = follows_evenly(redirected, inside, outer, rows) or _may_be_few(band, outer, rows)
        if can_fuse(redirected, inside, outer, rows) and (even or _slides(band, rows)):
            new = setting.names.fresh(rows)
            sides = _fused(sides, redirected, outer, rows, new)
            sides = replace(sides, roles=replace(sides.roles, rows=new), stationary=wider)
            return sides if operands else _with_rows(sides, (), setting)
    return replace(sides, kernel=_redirected(kernel, operands), stationary=operands)


def _row_loops(sides: Sides, band: Band) -> list[str]:
    """The rows and the loops that could be: those that leave the streamed operands as they are."""
    return [v for v in band.variables if v not in (sides.roles.columns, *sides.outer)]


def _with_loop_around(sides: Sides) -> Sides:
    """The last loop that could be rows around the rows, if there is none and both may be few.

    Where the stores run on from one loop into the other, neighbours in them make better tiles.
    """
    kernel, rows = sides.kernel, sides.roles.rows
    band = _band(kernel, sides.nest)
    loops = _row_loops(sides, band)
    if rows is None or loops[0] != rows or not _may_be_few(band, rows, loops[-1]):
        return sides
    if stores_follow(kernel, band, rows, loops[-1]):
        return sides
    order = [v for v in band.variables if v != loops[-1]]
    order.insert(order.index(rows), loops[-1])
    body = replace_loop(kernel.body, sides.nest, lambda x: reorder_chain(x, tuple(order)))
    return replace(sides, kernel=replace(kernel, body=body), nest=order[0])


def _may_be_few(band: Band, *loops: str) -> bool:
    """Several loops, of one size each: a loop of several sizes rarely has few iterations."""
    single = (len(extent(band.loop(v)).variables()) == 1 for v in loops)
    return len(set(loops)) == len(loops) and all(single)


def _band(kernel: Kernel, nest: str) -> Band:
    return band_of(find_loop(kernel.body, nest))


def _fused(sides: Sides, kernel: Kernel, outer: str, inner: str, new: str) -> Sides:
    """The nest's outermost loop may be the one that is gone."""
    band = _band(kernel, sides.nest)
    top = band.variables[1] if sides.nest == outer else sides.nest
    kernel = fuse_loops(kernel, outer, inner, new)
    return replace(sides, kernel=kernel, nest=new if top == inner else top)


def _redirected(kernel: Kernel, operands: tuple[Operand, ...]) -> Kernel:
    for operand in operands:
        kernel = redirect_operand(kernel, operand)
    return kernel


def _slides(band: Band, rows: str) -> bool:
    """Some operand is read at rows + window: the rows of an image."""
    return any(slides_over(x, around, rows) for x, around in reductions(band.body))
