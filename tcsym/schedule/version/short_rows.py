# SPDX-License-Identifier: Apache-2.0
"""Rows that may be short at run time -> a version of the nest with another loop in the lanes.

A vector along three colours or two classes is mostly empty, and each row pays for its loop, its
masks and its ragged stores. Which rows are short, only the call knows. Where they are, a parallel
loop around them runs in the lanes instead: elements lie apart in memory, but no lane is idle. What
several loops walk in each lane is copied, lanes side by side, if it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import (
    FALSE,
    TRUE,
    ZERO,
    Condition,
    Index,
    all_of,
    any_of,
    condition_variables,
    eq,
    ge,
    maximum,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.loops import THREADS, Kernel, Store
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Band, band_of
from tcsym.schedule.analysis.loops import (
    find_loop,
    is_leaf,
    loops_in,
)
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.analysis.vector_legality import vector_refusal
from tcsym.schedule.order.interchange import can_sink
from tcsym.schedule.plan import Interleave, Lanes, Version
from tcsym.schedule.tile.lane_windows import lane_windows
from tcsym.schedule.tile.register_tile import can_tile
from tcsym.schedule.tile.row_schedule import leaf_chain, row_choice
from tcsym.schedule.tile.transposition import transposition_of
from tcsym.schedule.tile.window_schedule import sliding_reads
from tcsym.schedule.version.interleaving import (
    Interleaving,
    copied_elements,
    copies_fit,
    interleaving,
    lanes_full,
)
from tcsym.schedule.version.row_costs import (
    BLOCK_COST,
    CLIPPED_COST,
    MASKED_COST,
    VECTOR_COST,
    across_cost,
    lane_cost,
    longest_row,
    point_cost,
    row_cost,
    saved_cost,
)

TINY_COST = 6.0  # of a row that is copied, where fewer elements may take less in place
LEAST_TINY = 3  # elements, for a version of that
GAIN = 2  # by interleaving, so that half as many groups as threads are as fast


class Short(Struct, frozen=True):
    """Where `condition` holds, `columns` runs in the lanes, with the loops `rows` inside.

    most: the longest row, or row and `window` that slides along it. cost: of an element, in place.
    """

    rows: tuple[str, ...]
    columns: str
    condition: Condition
    most: int
    cost: float
    window: Index = ZERO

    @property
    def plan(self) -> Lanes:
        return Lanes(self.columns, self.rows, self.most)


def short_versions(
    kernel: Kernel,
    nest: str,
    columns: str | None,
    setting: Setting,
    most: int | None = None,
) -> Iterator[Version[Lanes | Interleave]]:
    """Versions of the nest for short rows. `columns`: its lanes, if one loop.

    most: elements of a row that counts as short (interleaved, twice as many); None: as its
    estimated time says.
    """
    choices = tuple(_choices(kernel, nest, columns, setting, most))
    body = band_of(find_loop(kernel.body, nest)).body
    copied = setting.machine.has_masks and not isinstance(body, Store)  # one way for what is summed
    for found in _interleavings(kernel, nest, choices, setting):
        longer = [_longer(kernel, nest, x, found, setting, most) for x in choices]
        few = _few_elements(kernel, nest, longer, found, setting)
        if few != FALSE:
            if most is None and copied:
                yield from _windows(kernel, nest, found, few, setting)
            for short in _tiny(kernel, nest, choices, found, setting) if copied else ():
                yield _version_in_lanes(kernel, nest, short, setting)
            note, needs = (
                f"short rows: interleaved along {found.loop}",
                lanes_full(kernel, nest, found, setting),
            )
            yield Version(few, found.plan(), "before", note=note, keeps_rest=True, needs=needs)
            choices = tuple(x for x in choices if x.columns != found.loop and not copied)
            break
    for short in choices:
        yield from _single_row(kernel, nest, short, setting)
        yield _version_in_lanes(
            kernel, nest, short, setting, f"short rows: vectors along {short.columns}"
        )


def _version_in_lanes(
    kernel: Kernel, nest: str, short: Short, setting: Setting, note: str = ""
) -> Version[Lanes]:
    band = band_of(find_loop(kernel.body, nest))
    wide = ge(extent(band.loop(short.columns)), setting.lanes(kernel, band.body))
    needs = wide if condition_variables(wide) <= frozenset(kernel.sizes) else None
    return Version(short.condition, short.plan, "before", note=note, keeps_rest=True, needs=needs)


def _single_row(
    kernel: Kernel, nest: str, short: Short, setting: Setting
) -> Iterator[Version[Lanes]]:
    """A transposition of one row or column moves no element: a copy."""
    band = band_of(find_loop(kernel.body, nest))
    if transposition_of(kernel, band.loops) is None or loops_in(band.body):
        return
    lanes = setting.lanes(kernel, band.body)
    once = (eq(extent(band.loop(v)), 1) for v in short.rows)
    condition = in_context(kernel, all_of((*once, ge(extent(band.loop(short.columns)), lanes))))
    if condition != TRUE:
        yield _version_in_lanes(kernel, nest, replace(short, condition=condition), setting)


def in_lanes(
    kernel: Kernel, nest: str, columns: str, condition: Condition
) -> Iterator[Version[Lanes]]:
    """That loop of the band in the lanes where the condition holds, if it may run there."""
    band = band_of(find_loop(kernel.body, nest))
    inside = tuple(v for v in band.variables if v != columns)
    inner = _arranged(band, inside, columns) if inside else None
    if not inside or (inner is not None and _is_legal(kernel, inner, columns)):
        note = f"few elements: vectors along {columns}"
        plan = Lanes(columns, inside)
        yield Version(condition, plan, "before", note=note, keeps_rest=True)


def _windows(
    kernel: Kernel, nest: str, x: Interleaving, few: Condition, setting: Setting
) -> Iterator[Version[Interleave]]:
    """Tiles of points along which windows slide, if there are any.

    They are also better than single points, for which there is a version where `few` holds.
    """
    windows = lane_windows(kernel, nest, x, setting)
    if windows is None:
        return
    more = all_of((windows.pays, _is_shared(kernel, nest, x, setting)))
    pays = all_of((windows.fits, any_of((few, more))))
    tiles = windows.interleaving
    note = f"windows: tiles along {tiles.rows}, {x.loop} in the lanes"
    yield Version(pays, tiles.plan(), "before", note=note, keeps_rest=True, needs=windows.fits)


def _interleavings(
    kernel: Kernel, nest: str, choices: tuple[Short, ...], setting: Setting
) -> Iterator[Interleaving]:
    """Loops to run in lanes. Where short copies need no loops inner ones come first, whose copies
    are smaller; but last what is short where the rows are."""
    masks, top = setting.machine.has_masks, find_loop(kernel.body, nest)
    band = band_of(top)
    if not choices or (masks and transposition_of(kernel, band.loops) is not None):
        return  # blocks need no copy
    rows = {v for x in choices for v in x.rows}
    short = {n for x in loops_in(top) if x.variable in rows for n in extent(x).variables()}
    loops = list(band.loops)
    if masks:
        loops.reverse()
        loops.sort(key=lambda x: bool(short & extent(x).variables()))
    for x in loops:
        found = interleaving(kernel, nest, setting, True, x.variable, anew=masks)
        if found is not None:
            yield found


def _longer(
    kernel: Kernel,
    nest: str,
    short: Short,
    x: Interleaving,
    setting: Setting,
    most: int | None,
) -> Short:
    """Up to which length rows count as short where they are copied.

    With mask registers a copy is a block for each vector of a row, however short. Sums along rows
    cost more than that, or several statements; a row that is just computed and stored does not.
    """
    if not setting.machine.has_masks:
        return short if most is None else replace(short, most=2 * short.most)
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    clipped = sum(not _is_inside(kernel, b, d) for b, d in x.moved.items())
    if clipped and isinstance(band.body, Store):
        return replace(short, most=0)
    row = row_cost(band, short.rows, MASKED_COST) - CLIPPED_COST * clipped
    point = lane_cost(band, short.rows, lanes) + BLOCK_COST * len(x.moved) / lanes
    long, window = longest_row(band, short.rows, lanes, False), ZERO
    if long == lanes:  # no row is summed: a vector that is nearly full is as fast
        long, window = long - lanes // 8, _window(kernel, band, short.rows)
    return replace(short, most=max(0, min(long, int(row / point))), window=window)


def _window(kernel: Kernel, band: Band, rows: tuple[str, ...]) -> Index:
    """What the longest window along the rows reads beside an element: vectors share that."""
    found = ZERO
    for x in loops_in(band.body):
        pairs = {frozenset((x.variable, v)) for v in rows if v != x.variable}
        read = (s for a in accesses(band.body) for s in a.subscripts if isinstance(s, Index))
        slides = any(pair <= s.variables() for s in read for pair in pairs)
        if slides and x.variable not in rows and extent(x).variables() <= set(kernel.sizes):
            found = maximum(found, extent(x) - 1)
    return found


def _tiny(
    kernel: Kernel, nest: str, choices: tuple[Short, ...], x: Interleaving, setting: Setting
) -> list[Short]:
    """Rows too short for a copy: to sum three elements in place takes as long as to move them."""
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    clipped = sum(not _is_inside(kernel, b, d) for b, d in x.moved.items())
    tiny = []
    for s in choices:
        most = min(s.most, int(TINY_COST * clipped / s.cost))
        if s.columns == x.loop and most >= LEAST_TINY:
            condition = in_context(kernel, _condition(band, s.rows, s.columns, most, lanes))
            tiny.append(replace(s, most=most, condition=condition))
    return tiny


def _is_inside(kernel: Kernel, buffer: str, dimension: int) -> bool:
    """A lane moves a row of several dimensions."""
    return len(kernel.buffer(buffer).shape) > dimension + 2


def _few_elements(
    kernel: Kernel, nest: str, choices: Iterable[Short], x: Interleaving, setting: Setting
) -> Condition:
    """Rows are short, and all that moves with the loop in the lanes stays in the cache.

    FALSE if that is just a row each and there are no mask registers: blocks need no copy then.
    """
    masks = setting.machine.has_masks
    if not masks and not any(_is_inside(kernel, b, d) for b, d in x.moved.items()):
        return FALSE
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    rows = (s for s in choices if x.loop not in s.rows and s.most > 0)
    short = any_of(_condition(band, s.rows, x.loop, s.most - s.window, lanes) for s in rows)
    whole = () if masks else (ge(n, lanes) for n in copied_elements(kernel, x))
    shared = _is_shared(kernel, nest, x, setting)
    return in_context(kernel, all_of((short, *whole, shared, copies_fit(kernel, x, setting))))


def _is_shared(kernel: Kernel, nest: str, x: Interleaving, setting: Setting) -> Condition:
    """There are groups of lanes for all threads."""
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    return ge(extent(band.loop(x.loop)) * GAIN, var(THREADS) * lanes)


def _choices(
    kernel: Kernel, nest: str, columns: str | None, setting: Setting, most: int | None
) -> Iterator[Short]:
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    if lanes == 1 or not band.loops:
        return
    moved = transposition_of(kernel, band.loops) if not loops_in(band.body) else None
    if moved is not None:
        row, column = moved.row.variable, moved.column.variable
        yield from _by_cost(kernel, band, (row,), (column,), setting, most)
        yield from _by_cost(kernel, band, (column,), (row,), setting, most)
        return
    rows = _rows(kernel, nest, lanes) if columns is None else (columns,)
    if rows:
        yield from _by_cost(kernel, band, rows, band.variables, setting, most)


def _rows(kernel: Kernel, nest: str, lanes: int) -> tuple[str, ...]:
    """The loops that run in lanes if each innermost loop gets vectors of its own."""
    top = find_loop(kernel.body, nest)
    leaves = [x.variable for x in loops_in(top) if is_leaf(x)]
    chosen = (row_choice(kernel, leaf_chain(top, v), lanes)[0] for v in leaves)
    return tuple(dict.fromkeys(v for v in chosen if v is not None))


def _by_cost(
    kernel: Kernel,
    band: Band,
    rows: tuple[str, ...],
    candidates: tuple[str, ...],
    setting: Setting,
    most: int | None,
) -> Iterator[Short]:
    """The cheapest loop for the lanes; where little is computed, another if that is short too."""
    lanes = setting.lanes(kernel, band.body)
    costs: dict[str, float] = {}
    saved: dict[str, float] = {}
    for v in reversed(candidates):
        inner = _arranged(band, rows, v)
        if inner is not None and _is_legal(kernel, inner, v):
            saved[v] = saved_cost(kernel, inner, rows, v, setting)
            costs[v] = point_cost(kernel, inner, rows, v, lanes) - saved[v]
    # where windows slide along one loop, the others of the image are as short as the rows
    best = sorted(costs, key=lambda v: (costs[v], sliding_reads(band, v)))
    for v in best[: 2 if isinstance(band.body, Store) else 1]:
        long = longest_row(band, rows, lanes, saved[v] > 0)
        if setting.machine.has_masks:  # rows that blocks pay for are copied
            row = row_cost(band, rows, MASKED_COST) + across_cost(kernel, band, rows)
            cheap = max(1, int(row / (costs[v] + saved[v])))
        else:
            often = 2 if long > 2 * lanes else 1
            cheap = int(row_cost(band, rows, VECTOR_COST * often) / costs[v])
        short = min(long, cheap, long if most is None else most)
        condition = in_context(kernel, _condition(band, rows, v, short, lanes))
        if condition != FALSE:
            yield Short(rows, v, condition, short, costs[v] + saved[v])


def _arranged(band: Band, rows: tuple[str, ...], columns: str) -> Band | None:
    """The band from `columns` inwards, with those of its loops that are `rows` in its body."""
    if columns in rows:
        return None
    outer = tuple(x for x in band.loops if x.variable not in rows)
    body = band.body
    for x in reversed(band.loops):
        body = replace(x, body=body) if x.variable in rows else body
    at = next(k for k, x in enumerate(outer) if x.variable == columns)
    return Band(outer[at:], body)


def _is_legal(kernel: Kernel, band: Band, columns: str) -> bool:
    return (
        can_sink(band.body, frozenset((columns,)))
        and can_tile(band, columns, None, ())
        and vector_refusal(kernel, band.body, columns) is None
    )


def _condition(
    band: Band, rows: tuple[str, ...], columns: str, most: Index | int, lanes: int
) -> Condition:
    """All rows are short and the columns fill vectors; FALSE if that cannot be told outside."""
    loops = {x.variable: x for x in (*band.loops, *loops_in(band.body))}
    extents = [extent(loops[v]) for v in (*rows, columns)]
    if frozenset().union(*(n.variables() for n in extents)) & loops.keys():
        return FALSE
    return all_of((*(ge(most, n) for n in extents[:-1]), ge(extents[-1], lanes)))
