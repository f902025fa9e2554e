# SPDX-License-Identifier: Apache-2.0
"""Nest that is no contraction as a whole -> plans by its parts: terms, inner nests, shared rows."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from tcsym.index.expr import (
    FALSE,
    ONE,
    TRUE,
    Index,
    Min,
    all_of,
    any_of,
    ceildiv,
    ge,
    maximum,
    of_atom,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.band import Band, band_of, contraction_roles, reductions, roles_at
from tcsym.schedule.analysis.loops import find_loop, loops_around, outermost_loops
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.order.distribute import is_bounded
from tcsym.schedule.plan import (
    Blocked,
    Distribute,
    InnerLeaves,
    InnerNests,
    Interleave,
    PermuteFactors,
    Plan,
    Refusal,
    SharedRows,
    Version,
    always,
)
from tcsym.schedule.stage.permute_factors import factors_pay
from tcsym.schedule.tile.contraction_schedule import contraction_refusal, tile_shape
from tcsym.schedule.tile.row_block import block_rows, row_groups, rows_last
from tcsym.schedule.version.choose import Proposal
from tcsym.schedule.version.contraction_versions import FEW_ROWS
from tcsym.schedule.version.interleaving import copies_fit, interleaving, lanes_full
from tcsym.schedule.version.row_proposals import ROWS

FEW_BLOCKS = 4  # of rows: with fewer, threads share the work inside each nest
TOGETHER = 4  # sums in lanes: an addition takes as many cycles
FEW_BETWEEN = 4  # with more, register tiles pay again,
FEW_ADDED = 40  # or with so many for a lane, times the terms that each of them sums
FEW_PACKED_BLOCKS = 20  # where panels are packed for them alone: threads share that only there


def shared_rows(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[SharedRows]]:
    """Several nests over shared rows, some of them contractions."""
    if not band_of(find_loop(kernel.body, nest)).loops:
        return
    kernel, nest = rows_last(kernel, nest)
    strip = _most(extent(band_of(find_loop(kernel.body, nest)).loops[-1])) or 1
    height = max(strip, setting.options.row_block * _tile_rows(kernel, nest, setting))
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

    def few_between(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Interleave]]:
        return _few_between(kernel, nest, setting)

    def in_blocks(
        kernel: Kernel, nest: str, setting: Setting
    ) -> Iterator[Version[Blocked | Distribute | InnerLeaves]]:
        return _in_blocks(kernel, nest, height)

    return few_between, in_blocks


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


def _few_between(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Interleave]]:
    """Rows in the lanes, where a nest leaves a few elements a row for the next.

    These are the columns of its register tile, or the terms of the next one's.
    """
    rows = band_of(find_loop(kernel.body, nest)).loops[-1].variable
    between = _between(kernel, nest, rows)
    found = interleaving(kernel, nest, setting, shared=True, loop=rows) if between else None
    if found is None:
        return
    terms = _most_terms(kernel, nest)
    lanes = setting.lanes(kernel, find_loop(kernel.body, nest))
    most = FEW_ADDED * lanes
    short = (any_of((ge(FEW_BETWEEN, n), ge(most, n * terms))) for n in between)
    few = all_of((*short, copies_fit(kernel, found, setting)))
    needs = lanes_full(kernel, nest, found, setting)
    few = all_of((few, needs))
    note = f"few elements between nests: rows {rows} in the lanes"
    yield Version(few, found.plan(TOGETHER), "before", note=note, keeps_rest=True, needs=needs)


def _most_terms(kernel: Kernel, nest: str) -> Index:
    """Of the nest's sums, as far as sizes tell."""
    sums = reductions(band_of(find_loop(kernel.body, nest)).body)
    steps = ([x for x in around if x.order == "reduction"] for _, around in sums)
    terms = (product_of(map(extent, loops)) for loops in steps)
    return maximum(*(n for n in terms if n.variables() <= frozenset(kernel.sizes)), ONE)


def _between(kernel: Kernel, nest: str, rows: str) -> tuple[Index, ...]:
    """Elements of each temporary of a row; none if one is not as long as sizes say."""
    top, found = find_loop(kernel.body, nest), dict[str, Index]()
    for a in accesses(top):
        b = kernel.buffer(a.buffer)
        if rows in b.private:
            own = (b.private & subscript_variables((s,)) for s in a.subscripts)
            sizes = [n for n, moved in zip(b.shape, own) if not moved]
            found[a.buffer] = product_of(sizes)
    longer = tuple(n for n in found.values() if n != ONE)
    return longer if all(n.variables() <= frozenset(kernel.sizes) for n in longer) else ()


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


def on_permuted_factors(
    kernel: Kernel, nest: str, setting: Setting
) -> Iterator[Version[PermuteFactors]]:
    """A map on operands that lie as its result does."""
    if factors_pay(kernel, nest) != FALSE:
        yield always(PermuteFactors())


PARTS: tuple[Proposal[Plan], ...] = (shared_rows, inner_contractions, on_permuted_factors, *ROWS)
