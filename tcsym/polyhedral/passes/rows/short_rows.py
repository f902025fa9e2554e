"""Rows that may be short at run time -> a version of the nest with another loop in the lanes.

A vector along three colours or two classes is mostly empty, and each row pays for its loop, its
masks and its ragged stores. Which rows are short, only the call knows. Where they are, a parallel
loop around them runs in the lanes instead: elements lie apart in memory, but no lane is idle. What
several loops walk in each lane is copied, lanes side by side, if it stays in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tcsym.frontend.program import Call, Read, Select
from tcsym.index import FALSE, Condition, Index, all_of, any_of, ge, var
from tcsym.loop_ir import THREADS, Branch, Kernel, Loop, Store, Update, Value, Verify, subvalues
from tcsym.polyhedral.passes.common.access import (
    Access,
    accesses,
    subscript_variables,
    value_variables,
)
from tcsym.polyhedral.passes.common.assume import in_context
from tcsym.polyhedral.passes.common.band import Band, band_of
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.duplicate import duplicate
from tcsym.polyhedral.passes.common.interchange import can_sink, reorder_chain
from tcsym.polyhedral.passes.common.loops import (
    Statement,
    find_loop,
    is_leaf,
    loops_in,
    replace_loop,
    statements_in,
)
from tcsym.polyhedral.passes.common.overlap import is_repeatable
from tcsym.polyhedral.passes.common.setting import Setting
from tcsym.polyhedral.passes.common.vector_legality import access_cost, vector_refusal
from tcsym.polyhedral.passes.contraction.interleave import with_interleaved
from tcsym.polyhedral.passes.contraction.interleaving import (
    Interleaving,
    copied_elements,
    copies_fit,
    interleaving,
)
from tcsym.polyhedral.passes.contraction.register_tile import TileShape, can_tile, tile_registers
from tcsym.polyhedral.passes.rows.row_schedule import leaf_chain, row_choice, split_rest
from tcsym.polyhedral.passes.rows.transpose_lanes import (
    stored_element,
    strided_access,
    transpose_lanes,
)
from tcsym.polyhedral.passes.rows.transposition import transposition_of
from tcsym.polyhedral.passes.windows.window_schedule import sliding_reads
from tcsym.records import dataclass

VECTOR_COST = 20.0  # of one nearly empty vector, in strided loads: loop, mask, pieces of its store
MASKED_COST = 4.0  # where a mask register makes it one store
CALL_COST = 10.0
GATHER_COST = 1.0
GUARD_COST = 5.0  # of an element that is read only where a condition holds: a branch in each lane
COMBINE_COST = 25.0  # of a reduction's lanes, or a function of it: what follows waits for it
SAVED = 0.6  # of an element that is transposed in a block, not gathered or scattered
GAIN = 2  # by interleaving, so that half as many groups as threads are as fast
LOOP_WEIGHT = 16


@dataclass(frozen=True, slots=True)
class Short:
    """Where `condition` holds, `columns` runs in the lanes, with the loops `rows` inside.

    most: the longest row.
    """

    rows: tuple[str, ...]
    columns: str
    condition: Condition
    most: int


def short_versions(
    kernel: Kernel, nest: str, columns: str | None, setting: Setting, most: int | None = None
) -> Kernel:
    """The nest for long rows, beside versions for short ones. `columns`: its lanes, if one loop.

    most: elements of a row that counts as short (interleaved, twice as many); None: as its
    estimated time says.
    """
    choices = tuple(_choices(kernel, nest, columns, setting, most))
    found = interleaving(kernel, nest, setting, shared=True) if choices else None
    if found is not None:
        twice = choices if most is None else [replace(x, most=2 * x.most) for x in choices]
        few = _few_elements(kernel, nest, twice, found, setting)
        if few != FALSE:
            kernel = with_interleaved(kernel, nest, found, few, setting)
            setting.note(nest, f"short rows: interleaved along {found.loop}")
            choices = tuple(x for x in choices if x.columns != found.loop)
    for short in choices:
        kernel = _with_version(kernel, nest, short, setting)
        setting.note(nest, f"short rows: vectors along {short.columns}")
    return kernel


def _few_elements(
    kernel: Kernel, nest: str, choices: Iterable[Short], x: Interleaving, setting: Setting
) -> Condition:
    """Rows are short, and all that moves with the loop in the lanes stays in the cache.

    FALSE if that is just a row each: blocks of rows need no copy.
    """
    if not any(len(kernel.buffer(b).shape) > d + 2 for b, d in x.moved.items()):
        return FALSE
    band = band_of(find_loop(kernel.body, nest))
    lanes = setting.lanes(kernel, band.body)
    rows = (s for s in choices if x.loop not in s.rows)
    short = any_of(_condition(band, s.rows, x.loop, s.most, lanes) for s in rows)
    whole = (ge(n, lanes) for n in copied_elements(kernel, x))
    shared = ge(extent(band.loop(x.loop)) * GAIN, var(THREADS) * lanes)
    return in_context(kernel, all_of((short, *whole, shared, copies_fit(kernel, x, setting))))


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
            saved[v] = _saved(kernel, inner, rows, v, setting)
            costs[v] = _point_cost(kernel, inner, rows, v, lanes) - saved[v]
    # where windows slide along one loop, the others of the image are as short as the rows
    best = sorted(costs, key=lambda v: (costs[v], sliding_reads(band, v)))
    for v in best[: 2 if isinstance(band.body, Store) else 1]:
        long = _most(band, rows, lanes, saved[v] > 0)
        vector = MASKED_COST if setting.target.has_masks else VECTOR_COST
        cheap = int(_row_cost(band, rows, vector * (2 if long > 2 * lanes else 1)) / costs[v])
        short = min(long, cheap, long if most is None else most)
        condition = in_context(kernel, _condition(band, rows, v, short, lanes))
        if condition != FALSE:
            yield Short(rows, v, condition, short)


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


def _condition(band: Band, rows: tuple[str, ...], columns: str, most: int, lanes: int) -> Condition:
    """All rows are short and the columns fill vectors; FALSE if that cannot be told outside."""
    loops = {x.variable: x for x in (*band.loops, *loops_in(band.body))}
    extents = [extent(loops[v]) for v in (*rows, columns)]
    if frozenset().union(*(n.variables() for n in extents)) & loops.keys():
        return FALSE
    return all_of((*(ge(most, n) for n in extents[:-1]), ge(extents[-1], lanes)))


def _most(band: Band, rows: tuple[str, ...], lanes: int, in_blocks: bool) -> int:
    """Longest row that counts as short, in vectors: more if it is transposed in blocks.

    Half as much again as a vector if it is reduced; just not four if functions of its sums wait.
    """
    statements = tuple(statements_in(band.body))
    combined = any(_is_combined(x, around, rows) for x, around in statements)
    calls = any(isinstance(v, Call) for x, _ in statements for v in subvalues(x.value))
    if combined and calls:
        return lanes * (8 if in_blocks else 4) - 1
    if combined:
        return lanes * 3 if in_blocks else lanes + lanes // 2
    return lanes


def _is_combined(x: Statement, around: tuple[Loop, ...], rows: tuple[str, ...]) -> bool:
    """All lanes of a row are reduced into one element."""
    own = {y.variable for y in around} & set(rows)
    return isinstance(x, Update) and bool(own - subscript_variables(x.subscripts))


def _row_cost(band: Band, rows: tuple[str, ...], vector: float) -> float:
    """Of one row. vector: of one ragged end, for each time that a statement runs."""
    total = 0.0
    for x, around in statements_in(band.body):
        moving = _calls(x, rows)
        waiting = sum(isinstance(v, Call) for v in subvalues(x.value)) - moving
        waiting += _is_combined(x, around, rows)
        cost = vector + CALL_COST * moving + COMBINE_COST * waiting
        total += cost * _trips(around, rows)
    return total


def _point_cost(
    kernel: Kernel, band: Band, rows: tuple[str, ...], columns: str, lanes: int
) -> float:
    """Of one element of a row, with `columns` in the lanes."""
    total = 0.0
    for x, around in statements_in(band.body):
        cost = access_cost(kernel, x, columns, lanes) + CALL_COST * _calls(x, rows) / lanes
        cost += GATHER_COST * sum(_is_gathered(a, columns) for a in accesses(x))
        cost += GUARD_COST * sum(map(_is_guarded, subvalues(x.value)))
        total += cost * _trips(around, rows)
    return total


def _saved(
    kernel: Kernel, band: Band, rows: tuple[str, ...], columns: str, setting: Setting
) -> float:
    """What blocks that are transposed in registers save of an element's cost."""
    lanes, total = setting.lanes(kernel, band.body), 0.0
    for x, around in statements_in(band.body):
        if not around or around[-1].variable not in rows or isinstance(x, Verify):
            continue
        row = around[-1].variable
        places = [v for v in subvalues(x.value) if isinstance(v, Read)]
        places += [stored_element(kernel, x)] if isinstance(x, Store) else []
        strided = (strided_access(kernel, v, row, (columns,), lanes, setting) for v in places)
        total += SAVED * sum(s is not None for s in strided) * _trips(around, rows)
    return total


def _calls(x: Statement, rows: tuple[str, ...]) -> int:
    """Of functions for each element of a row: those of its sums are called once."""
    moved = [v for v in subvalues(x.value) if isinstance(v, Call)]
    return sum(bool(value_variables(v) & set(rows)) for v in moved)


def _is_guarded(v: Value) -> bool:
    return isinstance(v, Select) and not v.eager and any(isinstance(x, Read) for x in subvalues(v))


def _is_gathered(a: Access, columns: str) -> bool:
    """A subscript is computed in each lane, and checked there."""
    return any(not isinstance(s, Index) for s in a.subscripts) and columns in subscript_variables(
        a.subscripts
    )


def _trips(around: tuple[Loop, ...], rows: tuple[str, ...]) -> int:
    total = 1
    for x in around:
        if x.variable not in rows:
            total *= min(extent(x).as_int() or LOOP_WEIGHT, LOOP_WEIGHT)
    return total


def _with_version(kernel: Kernel, nest: str, short: Short, setting: Setting) -> Kernel:
    """Whole vectors of the columns: the last one overlaps, or elements are left for scalars."""
    names = setting.names
    kernel, copied, new = duplicate(kernel, find_loop(kernel.body, nest), names)
    copy = find_loop(copied, new[nest])
    columns, rows = new[short.columns], tuple(new[v] for v in short.rows)
    band = band_of(copy)
    lanes = setting.lanes(kernel, band.body)
    inside = tuple(v for v in band.variables if v in rows)
    order = (*(v for v in band.variables if v not in rows), *inside)
    copy = reorder_chain(copy, order)
    body = replace_loop(kernel.body, nest, lambda x: Branch(short.condition, copy, x))
    kernel = replace(kernel, body=body)
    overlapping = is_repeatable(kernel, copy, frozenset((columns,)))
    if not overlapping:
        kernel, _ = split_rest(kernel, order[0], columns, lanes, names)
    whole = band_of(find_loop(kernel.body, columns))
    outer = tuple(x for x in whole.loops if x.variable not in inside)
    tile = Band(outer, find_loop(kernel.body, inside[0]) if inside else whole.body)
    shape = TileShape(1, 1, lanes)
    tiled = tile_registers(kernel, tile, columns, None, (), shape, names, overlapping)
    if short.most < 2 * lanes:  # one block at most, which is one vector of the row
        return tiled.kernel
    return transpose_lanes(tiled.kernel, tiled.top, lanes, setting)
