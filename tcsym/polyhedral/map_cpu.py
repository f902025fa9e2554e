"""Naive kernel -> mapped kernel: which loops become threads, register tiles and vectors.

Every nest gets the first leaf schedule that applies: register tile of a contraction, strips of
columns, vector rows, scalar (`passes.nest_schedule`). The passes do the rewriting; this module only
orders them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcsym import config
from tcsym.loop_ir import Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.options import Options
from tcsym.polyhedral.multiples import in_quotients, in_sizes
from tcsym.polyhedral.passes.accumulate import accumulate_privately
from tcsym.polyhedral.passes.allocate import place_allocations, without_allocations
from tcsym.polyhedral.passes.clamp_rows import clamp_rows, drop_masks
from tcsym.polyhedral.passes.collapse import collapse_outermost
from tcsym.polyhedral.passes.common.access import accesses
from tcsym.polyhedral.passes.common.assume import assume
from tcsym.polyhedral.passes.common.loops import outermost_loop, replace_loop
from tcsym.polyhedral.passes.common.names import Names
from tcsym.polyhedral.passes.common.setting import Setting
from tcsym.polyhedral.passes.contract_storage import contract_storage
from tcsym.polyhedral.passes.contraction.associate_factors import associate_factors
from tcsym.polyhedral.passes.contraction.contraction_nest import Schedule
from tcsym.polyhedral.passes.drop_empty import drop_empty
from tcsym.polyhedral.passes.find_positions import find_positions
from tcsym.polyhedral.passes.follow_steps import follow_steps
from tcsym.polyhedral.passes.full_tiles import full_tiles
from tcsym.polyhedral.passes.hoist_conditions import hoist_conditions, unswitch_serial
from tcsym.polyhedral.passes.interchange_scans import interchange_scans, is_blocked_scan
from tcsym.polyhedral.passes.leaf_schedule import schedule_leaf
from tcsym.polyhedral.passes.merge_branches import merge_branches
from tcsym.polyhedral.passes.merge_loops import merge_loops
from tcsym.polyhedral.passes.nest_schedule import schedule_nest
from tcsym.polyhedral.passes.parallelise import parallelise
from tcsym.polyhedral.passes.place_guards import place_guards
from tcsym.polyhedral.passes.privatise import privatise
from tcsym.polyhedral.passes.roll_epilogues import roll_epilogues
from tcsym.polyhedral.passes.roll_state import roll_state
from tcsym.polyhedral.passes.rows.prefetch_gathers import prefetch_gathers
from tcsym.polyhedral.passes.rows.prefetch_rows import prefetch_rows
from tcsym.polyhedral.passes.share_conditions import share_conditions
from tcsym.polyhedral.passes.split_choices import split_choices
from tcsym.polyhedral.passes.split_guards import split_guards
from tcsym.polyhedral.passes.split_quotients import split_quotients
from tcsym.polyhedral.passes.split_reductions import split_reductions
from tcsym.polyhedral.passes.stream_stores import stream_stores
from tcsym.polyhedral.passes.unroll_choices import unroll_choices
from tcsym.polyhedral.passes.whole_rows import whole_rows
from tcsym.polyhedral.passes.windows.fetch_blocks import fetch_ahead
from tcsym.polyhedral.passes.windows.finite_weights import assume_finite, exceptional_nests
from tcsym.polyhedral.passes.windows.split_residues import split_residues
from tcsym.polyhedral.passes.windows.unit_windows import (
    skip_unit_windows,
    unit_view,
    without_unit_loops,
)
from tcsym.polyhedral.passes.write_squares import write_squares
from tcsym.target import Target


@dataclass(frozen=True, slots=True)
class Mapped:
    """`notes`: one line a loop nest, the schedule chosen and why not a better one."""

    kernel: Kernel
    notes: tuple[str, ...]


def map_cpu(kernel: Kernel, target: Target, options: Options, whole: bool = False) -> Mapped:
    """A correct kernel for every naive one, fast where a schedule applies.

    whole: with the code for what few sizes need. Else these are left out (`Kernel.left_out`).
    """
    mapped = _mapped(in_quotients(kernel), target, options, whole)
    return replace(mapped, kernel=_verified(in_sizes(mapped.kernel, kernel)))


def _mapped(kernel: Kernel, target: Target, options: Options, whole: bool) -> Mapped:
    kernel = drop_empty(kernel)  # a tensor of no elements has strides of 0, like one that is shared
    setting = Setting(target, options, Names.of(kernel), [], whole=whole)
    body = without_allocations(kernel.body)
    body = hoist_conditions(body, setting.names)
    kernel = write_squares(share_conditions(replace(kernel, body=body)))
    kernel = _verified(accumulate_privately(kernel, setting.names))
    kernel = follow_steps(kernel)
    kernel = roll_state(without_unit_loops(privatise(associate_factors(kernel))))
    kernel = place_guards(kernel)
    kernel = _verified(assume_finite(kernel, nests(kernel.body), setting.names))
    kernel = _verified(split_residues(kernel, setting.names))
    kernel = _verified(merge_loops(replace(kernel, view=unit_view(kernel)), setting.names))
    kernel = _verified(split_quotients(kernel, setting.names))
    kernel = _verified(split_choices(kernel, setting.names))
    kernel = _verified(split_guards(unroll_choices(kernel), setting.names))
    kernel = _verified(find_positions(kernel, nests(kernel.body), setting.names))
    kernel = _verified(interchange_scans(kernel, setting.names, options.parallelize))
    if options.parallelize:
        kernel = _verified(split_reductions(kernel, target, setting.names))
    seldom = {v for x in exceptional_nests(kernel) for v in nests(x)}
    for k, nest in enumerate(nests(kernel.body)):
        schedule = schedule_leaf if nest in seldom else schedule_nest
        kernel = _verified(_scheduled(kernel, nest, schedule, setting.of_nest(k)))
    kernel = _verified(skip_unit_windows(kernel, setting.names))
    kernel = _verified(clamp_rows(drop_empty(assume(contract_storage(kernel)))))
    kernel = _verified(full_tiles(drop_masks(whole_rows(kernel)), setting.names))
    kernel = _verified(stream_stores(kernel, target.l3_bytes, setting.names))
    if target.vector_bits:
        kernel = _verified(prefetch_gathers(prefetch_rows(kernel), target.l2_bytes))
    kernel = _verified(fetch_ahead(kernel, setting.ahead, target.l2_bytes, setting.names))
    if options.parallelize:
        grain, loops = options.min_work_per_thread, options.parallel_loops
        kernel = collapse_outermost(kernel, target, setting.names, grain, loops)
        kernel = parallelise(kernel, target)
    kernel = replace(kernel, body=unswitch_serial(kernel.body, setting.names))
    kernel = merge_branches(roll_epilogues(kernel, target, setting.names))
    kernel = place_allocations(kernel)
    return Mapped(_verified(kernel), tuple(setting.notes))


def _scheduled(kernel: Kernel, nest: str, schedule: Schedule, setting: Setting) -> Kernel:
    """The kernel with the nest scheduled, seen as if the outermost loop around it were all.

    No schedule asks for more, and each looks for its loops and buffers in all it sees.
    """
    top = outermost_loop(kernel.body, nest)
    used = {a.buffer for a in accesses(top)}
    seen = tuple(b for b in kernel.buffers if b.name in used)
    rest = tuple(b for b in kernel.buffers if b.name not in used)
    part = schedule(replace(kernel, body=top, buffers=seen), nest, setting)
    body = replace_loop(kernel.body, top.variable, lambda _: part.body)
    buffers = (*rest, *part.buffers)
    return replace(kernel, body=body, buffers=buffers, left_out=part.left_out)


def _verified(kernel: Kernel) -> Kernel:
    """`kernel`, checked if TCSYM_VERIFY is on; most passes work without allocations."""
    if config.VERIFY.read():
        from tcsym.loop_ir_verify import verify

        verify(place_allocations(kernel))
    return kernel


def nests(node: Node) -> tuple[str, ...]:
    """Outermost loops that need not run in order, below the ones that do."""
    match node:
        case Loop():
            inside = node.order == "sequential" or is_blocked_scan(node)
            return nests(node.body) if inside else (node.variable,)
        case Block(body):
            return tuple(v for x in body for v in nests(x))
        case Branch(_, a, b):
            return nests(a) + (() if b is None else nests(b))
        case Allocate(_, body):
            return nests(body)
        case _:
            return ()
