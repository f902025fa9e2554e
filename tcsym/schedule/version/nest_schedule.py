"""Which schedule a nest gets: scan, contraction, blocks of rows, or a leaf's; and a note of why."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import lcm
from operator import mul

from tcsym.index.expr import FALSE, ONE, TRUE, Index, all_of, any_of, ceildiv, ge, maximum, negate
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop
from tcsym.schedule.analysis.access import accesses, subscript_variables
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Band, Roles, band_of, contraction_roles, reductions
from tcsym.schedule.analysis.loops import find_loop, loops_around, outermost_loops
from tcsym.schedule.analysis.separable import separable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.combine.separable_windows import separate_windows
from tcsym.schedule.order.distribute import distribute, is_bounded
from tcsym.schedule.split.guarded_products import guard_factors
from tcsym.schedule.split.maps import split_maps
from tcsym.schedule.split.terms import (
    find_guard,
    part_terms,
    split_ranges,
    split_terms,
)
from tcsym.schedule.stage.convert_windows import convert_windows
from tcsym.schedule.stage.copy_choices import copy_choices
from tcsym.schedule.stage.pack_windows import pack_windows
from tcsym.schedule.stage.pad_reads import pad_reads
from tcsym.schedule.stage.permute_factors import permute_factors
from tcsym.schedule.tile.contraction_schedule import (
    contraction_refusal,
    schedule_contraction,
    tile_shape,
)
from tcsym.schedule.tile.fold_rows import fold_rows
from tcsym.schedule.tile.interleave import add_interleaved, with_interleaved
from tcsym.schedule.tile.row_block import block_rows, row_groups, rows_last
from tcsym.schedule.tile.row_schedule import schedule_rows
from tcsym.schedule.tile.scan_schedule import is_scan, schedule_scan
from tcsym.schedule.tile.step_lanes import add_step_lanes
from tcsym.schedule.tile.strip_schedule import strip_columns
from tcsym.schedule.version.contraction_nest import (
    add_few_columns,
    add_long_sums,
    roles_at,
    schedule_few_rows,
    tile_where_it_pays,
    with_rows_folded,
)
from tcsym.schedule.version.contraction_versions import (
    FEW_ROWS,
)
from tcsym.schedule.version.interleaving import copies_fit, interleaving
from tcsym.schedule.version.leaf_schedule import (
    plainly,
    schedule_inner_nests,
    schedule_leaf,
    schedule_long_rows,
)
from tcsym.schedule.version.narrow_columns import functions_pay, single_pays
from tcsym.schedule.version.short_rows import short_versions
from tcsym.schedule.version.single_terms import as_map, is_seldom, may_be_single
from tcsym.schedule.version.strips_version import add_strips
from tcsym.schedule.version.unit_columns import add_unit_columns, size_of, with_single_column
from tcsym.schedule.version.versioning import add_version

MOST_GUARDS = 2
FEW_BLOCKS = 4  # of rows: with fewer, threads share the work inside each nest
FEW_POOLED = 3  # columns of windows done in two parts: more are quicker so
TOGETHER = 4  # sums in lanes: an addition takes as many cycles
FEW_BETWEEN = 4  # with more, register tiles pay again,
FEW_ADDED = 40  # or with so many for a lane, times the terms that each of them sums
FEW_PACKED_BLOCKS = 20  # where panels are packed for them alone: threads share that only there


def schedule_nest(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by the first schedule that applies."""
    if is_scan(kernel, nest):
        setting.note(nest, "scan: rows at once, state in registers")
        return schedule_scan(kernel, nest, setting)
    padded = pad_reads(guard_factors(kernel, nest), nest, setting)
    if padded is not None:
        setting.note(nest, "guarded reads from a padded copy")
        return schedule_nest(padded.kernel, padded.nest, setting)
    chosen = copy_choices(kernel, nest, setting.names)
    if chosen is not None:
        setting.note(nest, "choices in subscripts from a copy")
        kernel = chosen.kernel
        for x in chosen.copies:
            kernel = schedule_leaf(kernel, x, setting)
        return schedule_nest(kernel, chosen.nest, setting)
    packed, note = pack_windows(kernel, nest, setting), "channels side by side"
    if packed is None:
        packed, note = convert_windows(kernel, nest, setting), "converted images"
    if packed is not None:
        setting.note(nest, f"windows over copies with {note}")
        kernel = packed.kernel
        for x in packed.before:
            kernel = schedule_leaf(kernel, x, setting)
    return _as_contraction(kernel, nest, setting)


def _as_contraction(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by register tiles, as a whole or in parts, or by what needs none."""
    roles = roles_at(kernel, nest)
    refusal = contraction_refusal(kernel, nest, roles)
    if roles is not None and refusal is None:
        kernel = add_step_lanes(kernel, nest, roles, setting)
        kernel = _add_map(kernel, nest, setting)
        kernel = _add_narrow(kernel, nest, roles, setting)
        kernel = add_interleaved(kernel, nest, roles, setting)
        kernel = add_strips(kernel, nest, roles, setting)
        kernel = add_few_columns(kernel, nest, roles, setting)
        kernel = add_long_sums(kernel, nest, roles, setting)
        return tile_where_it_pays(kernel, nest, roles, setting, schedule_few_rows)
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
    return _without_tiles(kernel, nest, setting)


def _add_map(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """A map beside the nest, for sums of one term."""
    single = may_be_single(kernel, nest, setting)
    if single == FALSE:
        return kernel
    if is_seldom(band_of(find_loop(kernel.body, nest))) and not setting.whole and single != TRUE:
        return replace(kernel, left_out=any_of((kernel.left_out, single)))
    made = as_map(kernel, nest, single, setting.names)
    setting.note(made.map, "sums of one term: a map")
    return _outer_product(made.kernel, made.map, setting)


def _add_narrow(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Kernel:
    """Versions beside the nest for few columns and many rows."""
    size = size_of(band_of(find_loop(kernel.body, nest)).loop(roles.columns))
    single = FALSE if size is None else single_pays(kernel, nest, roles)
    functions = in_context(kernel, functions_pay(kernel, nest, roles, setting))
    few = in_context(kernel, any_of((single, functions)))
    if few == FALSE or not setting.long_sums or loops_around(kernel.body, nest):
        return kernel
    if not setting.whole and few != TRUE:
        return replace(kernel, left_out=any_of((kernel.left_out, few)))
    if size is not None and single != FALSE:
        kernel, row = with_single_column(kernel, nest, size, single, setting)
        if row is not None:
            setting.note(row, "a single column: a row")
            kernel = _in_rows(kernel, row, setting)
    if functions == FALSE:
        return kernel
    kernel, copy = add_version(kernel, nest, negate(functions), setting.names)
    kernel, nests = split_maps(kernel, copy, setting.names)
    setting.note(copy, "few columns: functions of sums apart")
    kernel = with_rows_folded(kernel, nests[-1], setting)
    for x in nests:
        kernel = schedule_nest(kernel, x, replace(setting, long_sums=False))
    return kernel


def _outer_product(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """A map that few calls run: on copies, in vectors across short rows, or along rows."""
    copied = permute_factors(kernel, nest, setting, True)
    if copied is not None:
        kernel = copied.kernel
        for x in copied.copies:
            kernel = schedule_rows(kernel, x, setting)
    return schedule_leaf(fold_rows(kernel, nest, setting) or kernel, nest, plainly(setting))


def _without_tiles(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """A map on operands that lie as its result does, or as they do."""
    factors = permute_factors(kernel, nest, setting)
    if factors is None:
        return _in_rows(kernel, nest, setting)
    setting.note(nest, "operands across the result from copies")
    kernel = factors.kernel
    for x in factors.copies:
        kernel = schedule_rows(kernel, x, setting)
    if factors.rest is not None:
        kernel = _in_rows(kernel, factors.rest, setting)
    return _in_rows(kernel, nest, setting)


def _in_rows(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Versions for short rows, windows in two parts, or a leaf's schedule."""
    columns = strip_columns(kernel, nest, setting)
    in_parts = separable(kernel, band_of(find_loop(kernel.body, nest)))
    most = FEW_POOLED if in_parts else None
    folded = fold_rows(kernel, nest, setting)
    kernel = short_versions(folded or kernel, nest, columns, setting, most, folded is not None)
    kernel, row = add_unit_columns(kernel, nest, setting)
    if row is not None:
        setting.note(row, "a single column: a row")
        kernel = schedule_leaf(kernel, row, setting)
    separated = separate_windows(kernel, nest, setting)
    if separated is not None:
        setting.note(nest, "windows in two parts")
        kernel = separated.kernel
        for x in separated.long:
            lines = separated.ahead.get(x, ())
            kernel = schedule_long_rows(kernel, x, separated.length, lines, setting)
        rest = plainly(setting) if separated.long else setting
        for x in separated.nests:
            kernel = schedule_leaf(kernel, x, rest)
        return kernel
    return schedule_leaf(kernel, nest, setting)


def _by_terms(kernel: Kernel, nest: str, setting: Setting) -> Kernel | None:
    """Products in a sum, or under a guard, as contractions; None if they are none."""
    split, outside = split_terms(kernel, nest), tuple[str, ...]()
    for _ in range(MOST_GUARDS):
        guard = find_guard(split, nest)
        if guard is not None:
            ranges = split_ranges(split, nest, guard, setting.names)
            split, outside = ranges.kernel, (*outside, *ranges.outside)
    roles = None if split == kernel else roles_at(split, nest)
    if roles is None or contraction_refusal(split, nest, roles) is not None:
        return None
    split = part_terms(split, nest, roles, setting.names)
    split = tile_where_it_pays(split, nest, roles, setting, schedule_leaf)
    for other in outside:
        split = schedule_leaf(split, other, setting)
    return split


def _in_row_blocks(kernel: Kernel, nest: str, setting: Setting) -> Kernel | None:
    """Several nests over shared rows, some of them contractions: each on blocks of rows.

    Few blocks are no work for threads, and a row or two no register tile: then each nest runs by a
    schedule of its own, over all rows if these are all there is for threads.
    """
    band = band_of(find_loop(kernel.body, nest))
    if not band.loops:
        return None
    kernel, nest = rows_last(kernel, nest)
    band = band_of(find_loop(kernel.body, nest))
    height = setting.options.row_block * _tile_rows(kernel, nest, setting)
    if block_rows(kernel, nest, height, setting.names) is None:
        return None
    kernel = _with_few_between(kernel, nest, setting)
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
        kernel, copy = add_version(kernel, nest, enough, setting.names)
        kernel = _blocked(kernel, nest, height, setting)
    if not alone:
        return schedule_inner_nests(kernel, copy, setting)
    return _distributed(kernel, copy, (few - 1) * height, setting)


def _with_few_between(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """Where a nest leaves a few elements a row for the next, a version with rows in the lanes.

    These are the columns of its register tile, or the terms of the next one's.
    """
    rows = band_of(find_loop(kernel.body, nest)).loops[-1].variable
    between = _between(kernel, nest, rows)
    found = interleaving(kernel, nest, setting, shared=True, loop=rows) if between else None
    if found is None:
        return kernel
    terms = _most_terms(kernel, nest)
    lanes = setting.lanes(kernel, find_loop(kernel.body, nest))
    most = FEW_ADDED * lanes
    short = (any_of((ge(FEW_BETWEEN, n), ge(most, n * terms))) for n in between)
    few = all_of((*short, copies_fit(kernel, found, setting)))
    few = in_context(kernel, all_of((few, ge(extent(find_loop(kernel.body, rows)), lanes))))
    if few == FALSE:
        return kernel
    setting.note(nest, f"few elements between nests: rows {rows} in the lanes")
    return with_interleaved(kernel, nest, found, few, setting, TOGETHER)


def _most_terms(kernel: Kernel, nest: str) -> Index:
    """Of the nest's sums, as far as sizes tell."""
    sums = reductions(band_of(find_loop(kernel.body, nest)).body)
    steps = ([x for x in around if x.order == "reduction"] for _, around in sums)
    terms = (reduce(mul, map(extent, loops), ONE) for loops in steps)
    return maximum(*(n for n in terms if n.variables() <= frozenset(kernel.sizes)), ONE)


def _between(kernel: Kernel, nest: str, rows: str) -> tuple[Index, ...]:
    """Elements of each temporary of a row; none if one is not as long as sizes say."""
    top, found = find_loop(kernel.body, nest), dict[str, Index]()
    for a in accesses(top):
        b = kernel.buffer(a.buffer)
        if rows in b.private:
            own = (b.private & subscript_variables((s,)) for s in a.subscripts)
            sizes = [n for n, moved in zip(b.shape, own) if not moved]
            found[a.buffer] = reduce(mul, sizes, ONE)
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


def _distributed(kernel: Kernel, nest: str, most: int, setting: Setting) -> Kernel:
    """A band over nests, for at most so many rows -> bands for each of them, by their schedules."""
    last = band_of(find_loop(kernel.body, nest)).loops[-1]
    groups = tuple(x for _, x in row_groups(kernel, last))
    distributed = distribute(kernel, nest, groups, setting.names, most)
    kernel = distributed.kernel
    for x in distributed.nests:
        kernel = schedule_nest(kernel, x, replace(setting, long_sums=False))
    return kernel


def _blocked(kernel: Kernel, nest: str, height: int, setting: Setting) -> Kernel:
    """Contract: `block_rows` has something to block."""
    blocked = block_rows(kernel, nest, height, setting.names)
    assert blocked is not None
    kernel = blocked.kernel
    setting.note(nest, f"blocks of {height} rows, {len(blocked.nests)} nests")
    for inner in blocked.nests:
        roles = roles_at(kernel, inner) if inner in blocked.contractions else None
        if roles is not None and contraction_refusal(kernel, inner, roles) is None:
            kernel = schedule_contraction(kernel, inner, roles, setting)
            setting.note(inner, f"contraction, columns {roles.columns}, rows {roles.rows}")
        else:
            kernel = schedule_leaf(kernel, inner, setting)
    return kernel


def _inner_contractions(kernel: Kernel, nest: str) -> tuple[str, ...]:
    """The nests inside the band at `nest`, if one of them is a contraction by itself."""
    band = band_of(find_loop(kernel.body, nest))
    if not band.loops:
        return ()
    outermost = outermost_loops(band.body)
    found = any(
        contraction_refusal(kernel, x.variable, roles_at(kernel, x.variable)) is None
        for x in outermost
        if x.order == "parallel"
    )
    return tuple(x.variable for x in outermost) if found else ()
