# SPDX-License-Identifier: Apache-2.0
"""Naive kernel -> mapped kernel: which loops become threads, register tiles and vectors.

Nests are put into forms that directives map (`tcsym.mapping`), and what these leave of conditions
and ends is simplified. The passes do the rewriting; this module only orders them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import FALSE
from tcsym.ir.loops import Allocate, Block, Branch, Kernel, Loop, Node
from tcsym.ir.verify import verify, verify_exact
from tcsym.mapping.given import unknown_nests
from tcsym.mapping.trees import apart, unmarked
from tcsym.options import Options
from tcsym.process import config
from tcsym.schedule.ahead.stream_stores import stream_stores
from tcsym.schedule.analysis.assume import assume
from tcsym.schedule.analysis.loops import finds_positions
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Note, notes_of, with_conditions
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.multiples import condition_in_sizes, in_quotients, in_sizes, index_in_sizes
from tcsym.schedule.order.associate_factors import associate_factors
from tcsym.schedule.order.coalesce import coalesce_outermost
from tcsym.schedule.order.follow_steps import follow_steps
from tcsym.schedule.order.interchange_scans import has_steps_of_nests, interchange_scans
from tcsym.schedule.order.interchange_sums import interchange_sums
from tcsym.schedule.order.merge_loops import merge_loops
from tcsym.schedule.order.parallelise import independent_as_parallel, parallelise
from tcsym.schedule.order.strength_reduction import reduce_strength
from tcsym.schedule.order.wavefront import wavefronts
from tcsym.schedule.split.assume_inside import assume_inside
from tcsym.schedule.split.canonical_guards import canonical_guards
from tcsym.schedule.split.check_rows_once import check_rows_once
from tcsym.schedule.split.choices import split_choices
from tcsym.schedule.split.clip_sums import clip_in_sizes, clip_sums
from tcsym.schedule.split.drop_empty import drop_empty, drop_single, with_points, without_points
from tcsym.schedule.split.guards import split_guards
from tcsym.schedule.split.quotients import split_quotients
from tcsym.schedule.split.residues import split_residues
from tcsym.schedule.split.share_conditions import share_conditions
from tcsym.schedule.split.unroll_choices import unroll_choices
from tcsym.schedule.split.unswitch import unswitch, unswitch_serial
from tcsym.schedule.stage.binding import bound_apart, bound_buffers
from tcsym.schedule.stage.find_positions import find_positions
from tcsym.schedule.storage.contract_storage import contract_storage
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.schedule.storage.privatise import privatise
from tcsym.schedule.storage.storage_folding import fold_storage
from tcsym.schedule.version.apply import schedule_nest
from tcsym.schedule.version.finite_weights import assume_finite, exceptional_nests
from tcsym.schedule.version.grouped_rows import with_grouped_rows
from tcsym.schedule.version.scatter_proposals import with_scatter_plans
from tcsym.schedule.wanted import offered_in, unmet
from tcsym.target.machine import Machine


class Mapped(Struct, frozen=True):
    """`choices`: the plans of all nests, at which sizes, and why not better ones. nests: those of
    each nest by its outermost loop, on a processor. warnings: what options ask for in vain.
    """

    kernel: Kernel
    choices: tuple[Choice | Note, ...]
    nests: Mapping[str, tuple[Choice | Note, ...]] = {}
    warnings: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was told of each nest, in the order in which they were scheduled."""
        return tuple(map(str, notes_of(self.choices)))


def map_cpu(
    kernel: Kernel,
    machine: Machine,
    options: Options,
    whole: bool = False,
    tells_all: bool = False,
) -> Mapped:
    """A correct kernel for every naive one, fast where a schedule applies.

    whole: with the code for what few sizes need. Else these are left out (`Kernel.left_out`).
    tells_all: choices say all that was offered.
    """
    small = in_quotients(kernel)
    setting = Setting(machine, options, Names.of(small), [], whole=whole, tells_all=tells_all)
    mapped = _mapped(small, setting)
    choices = with_conditions(
        mapped.choices,
        lambda c: condition_in_sizes(c, kernel),
        lambda e: index_in_sizes(e, kernel),
    )
    result = in_sizes(mapped.kernel, kernel)
    verify(result, checks_threads=config.VERIFY.read())  # always: 2 % of what compiling takes
    if config.VERIFY.read():
        verify_exact(kernel, result)
    return replace(mapped, kernel=result, choices=choices)


def _mapped(kernel: Kernel, setting: Setting) -> Mapped:
    machine, options = setting.machine, setting.options
    kernel = drop_empty(kernel)  # a tensor of no elements has strides of 0, like one that is shared
    kernel = unswitch(replace(kernel, body=without_allocations(kernel.body)), setting.names)
    kernel = _verified(with_grouped_rows(kernel, setting))
    kernel = reduce_strength(share_conditions(kernel))
    kernel = _verified(interchange_sums(kernel, setting.names))
    kernel = _verified(accumulate_privately(kernel, setting.names))
    kernel = follow_steps(kernel)
    kernel = fold_storage(drop_single(privatise(associate_factors(kernel))))
    kernel = clip_in_sizes(canonical_guards(kernel))
    kernel = _verified(assume_finite(kernel, nests(kernel.body), setting.names))
    kernel = _verified(split_residues(kernel, setting.names))
    kernel = _verified(merge_loops(kernel, setting.names))
    kernel = _verified(split_quotients(kernel, setting.names))
    kernel = _verified(split_choices(kernel, setting.names))
    kernel = _verified(split_guards(unroll_choices(kernel), setting.names))
    kernel = _verified(find_positions(kernel, nests(kernel.body), setting.names))
    kernel = _verified(with_scatter_plans(kernel, setting))
    kernel = _verified(interchange_scans(kernel, setting.names, options.parallelize))
    kernel = _verified(wavefronts(kernel, setting))
    kernel = replace(kernel, body=independent_as_parallel(kernel.body, of_lengths=False))
    kernel, points = with_points(kernel, nests(kernel.body), setting.names)
    seldom = {v for x in exceptional_nests(kernel) for v in nests(x)}
    has_all = kernel.left_out == FALSE  # else the kernel for all sizes has more nests
    choices: dict[str, tuple[Choice | Note, ...]] = {}
    if has_all:
        setting.unmet.extend(unknown_nests(nests(kernel.body), options))
    for nest in nests(kernel.body):
        before, own = len(setting.record), setting.of_nest(nest)
        own = replace(own, is_seldom=nest in seldom)
        kernel = _verified(schedule_nest(kernel, nest, own))
        choices[nest] = tuple(setting.record[before:])
    kernel = _verified(without_points(kernel, points))
    bound = bound_buffers(kernel)
    names = setting.names
    kernel = _verified(apart(kernel, names, clip_sums))
    kernel = _verified(assume(contract_storage(drop_empty(kernel))))
    kernel = _verified(apart(kernel, names, drop_empty))
    kernel = _verified(stream_stores(kernel, machine, setting.names))
    kernel = replace(kernel, body=independent_as_parallel(kernel.body))
    if options.parallelize:
        grain, loops = options.min_work_per_thread, options.parallel_loops
        kernel = coalesce_outermost(kernel, machine, setting.names, grain, loops)
        kernel = parallelise(kernel, machine)
    kernel = unswitch_serial(unmarked(kernel), names)
    kernel = check_rows_once(assume_inside(kernel, names), names)
    kernel = place_allocations(bound_apart(kernel, bound))
    record = tuple(setting.record)
    offered = {nest: offered_in(x) for nest, x in choices.items()}
    told = unmet(options, offered_in(record), offered)
    return Mapped(_verified(kernel), record, choices, (*setting.unmet, *told))


_last_verified: Kernel | None = None


def _verified(kernel: Kernel) -> Kernel:
    """`kernel`, checked if TCSYM_VERIFY is on and a pass changed it; most passes work without
    allocations."""
    global _last_verified
    if config.VERIFY.read() and kernel != _last_verified:
        verify(place_allocations(unmarked(kernel)))
        _last_verified = kernel
    return kernel


def nests(node: Node) -> tuple[str, ...]:
    """Outermost loops that need not run in order, below the ones that do or find positions."""
    match node:
        case Loop():
            inside = node.order == "sequential" or has_steps_of_nests(node) or finds_positions(node)
            return nests(node.body) if inside else (node.variable,)
        case Block(body):
            return tuple(v for x in body for v in nests(x))
        case Branch(_, a, b):
            return nests(a) + (() if b is None else nests(b))
        case Allocate(_, body):
            return nests(body)
        case _:
            return ()
