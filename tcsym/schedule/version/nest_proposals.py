# SPDX-License-Identifier: Apache-2.0
"""Nest that is no contraction as a whole -> plans by its parts: terms, inner nests, shared rows."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from tcsym.index.expr import (
    TRUE,
    Index,
    Min,
    ceildiv,
    ge,
    of_atom,
)
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop
from tcsym.schedule.analysis.band import Band, band_of, contraction_roles, roles_at
from tcsym.schedule.analysis.loops import find_loop, loops_around, outermost_loops
from tcsym.schedule.analysis.separable import separable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.distribute import is_bounded
from tcsym.schedule.plan import (
    Blocked,
    Distribute,
    InnerLeaves,
    InnerNests,
    Plan,
    Refusal,
    SharedRows,
    SplitWindows,
    Version,
    always,
)
from tcsym.schedule.tile.contraction_schedule import contraction_refusal, tile_shape
from tcsym.schedule.tile.row_block import block_rows, row_groups, rows_last
from tcsym.schedule.version.choose import Proposal
from tcsym.schedule.version.contraction_versions import FEW_ROWS
from tcsym.schedule.version.leaf_proposals import LEAF

FEW_BLOCKS = 4  # of rows: with fewer, threads share the work inside each nest
FEW_PACKED_BLOCKS = 20  # where panels are packed for them alone: threads share that only there


def shared_rows(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[SharedRows]]:
    """Several nests over shared rows, some of them contractions."""
    if not band_of(find_loop(kernel.body, nest)).loops:
        return
    kernel, nest = rows_last(kernel, nest)
    strip = _most(extent(band_of(find_loop(kernel.body, nest)).loops[-1])) or 1
    height = max(strip, _tile_rows(kernel, nest, setting))
    if block_rows(kernel, nest, height, setting.names) is not None:
        yield always(SharedRows(height))


def _most(rows: Index) -> int | None:
    """Of rows that are a strip of others: a number less than their end, if not at that."""
    for atom, times in rows.terms:
        if isinstance(atom, Min) and times == 1:
            rest = rows - of_atom(atom)
            known = [(x + rest).as_int() for x in atom.args]
            return min((n for n in known if n is not None), default=None)
    return None


def with_shared_rows(height: int) -> tuple[Proposal[Plan], ...]:
    """Proposals for such nests, whose register tiles together fill so many rows."""

    def in_blocks(
        kernel: Kernel, nest: str, setting: Setting
    ) -> Iterator[Version[Blocked | Distribute | InnerLeaves]]:
        return _in_blocks(kernel, nest, height)

    return (in_blocks,)


def _in_blocks(
    kernel: Kernel, nest: str, height: int
) -> Iterator[Version[Blocked | Distribute | InnerLeaves]]:
    """All nests on blocks of rows.

    Few blocks are no work for threads, and a row or two no register tile: then each nest runs by a
    plan of its own, over all rows if these are all there is for threads.
    """
    band = band_of(find_loop(kernel.body, nest))
    rows = extent(band.loops[-1])
    few = FEW_BLOCKS if loops_around(kernel.body, nest) else FEW_PACKED_BLOCKS
    if len(band.loops) == 1 and is_bounded(kernel, nest):
        yield Version(ge(ceildiv(rows, height), few), Blocked(height), needs=TRUE)
        yield always(Distribute((few - 1) * height))
    else:  # the loops around the rows are work for threads
        inside = bool(rows.variables() & set(band.variables))
        yield Version(TRUE if inside else ge(rows, FEW_ROWS), Blocked(height), needs=TRUE)
        yield always(InnerLeaves())


def _tile_rows(kernel: Kernel, nest: str, setting: Setting) -> int:
    """Rows that full register tiles of all contractions below the nest's last loop make up."""
    rows = band_of(find_loop(kernel.body, nest)).loops[-1]
    heights = [1]
    for contracts, child in row_groups(kernel, rows):
        if contracts:
            assert isinstance(child, Loop)
            inner = band_of(child)
            roles = contraction_roles(kernel, Band((rows, *inner.loops), inner.body))
            assert roles is not None
            heights.append(tile_shape(kernel, inner.body, roles, setting).rows)
    return lcm(*heights)


def inner_contractions(
    kernel: Kernel, nest: str, setting: Setting
) -> Iterator[Version[InnerNests] | Refusal]:
    """The nests inside the band, if one of them is a contraction by itself."""
    band = band_of(find_loop(kernel.body, nest))
    inside = (x for x in outermost_loops(band.body) if x.order == "parallel")
    if band.loops and any(refused(kernel, x.variable) is None for x in inside):
        yield always(InnerNests())
    reason = refused(kernel, nest)
    if roles_at(kernel, nest) is not None and reason is not None:
        yield Refusal(f"no register tile: {reason}")


def refused(kernel: Kernel, nest: str) -> str | None:
    """Why the nest is no contraction, as a whole, that a register tile may run."""
    return contraction_refusal(kernel, nest, roles_at(kernel, nest))


def window_parts(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[SplitWindows]]:
    """Windows one dimension after the other."""
    if separable(kernel, band_of(find_loop(kernel.body, nest))):
        yield always(SplitWindows())


PARTS: tuple[Proposal[Plan], ...] = (shared_rows, inner_contractions, window_parts, *LEAF)
