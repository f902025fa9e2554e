# SPDX-License-Identifier: Apache-2.0
"""Nest, plan -> the nest scheduled so: the plan's mechanism, and plans for nests that it makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from msgspec import Struct

from tcsym.ir.loops import Kernel
from tcsym.mapping.serve import serve
from tcsym.schedule.analysis.band import roles_at
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    ContractionPlan,
    LeafPlan,
    NestPlan,
    Plan,
    Scan,
    Staged,
    SumTerms,
)
from tcsym.schedule.split.guarded_products import guard_factors
from tcsym.schedule.split.terms import find_guard, part_terms, split_ranges, split_terms
from tcsym.schedule.stage.convert_windows import convert_windows
from tcsym.schedule.stage.copy_choices import copy_choices
from tcsym.schedule.stage.pack_windows import pack_windows
from tcsym.schedule.stage.pad_reads import pad_reads
from tcsym.schedule.tile.scan_schedule import is_scan, schedule_scan
from tcsym.schedule.version.apply_contraction import apply_contraction
from tcsym.schedule.version.apply_rows import apply_leaf, schedule_leaf
from tcsym.schedule.version.choose import choose, record, schedule_by
from tcsym.schedule.version.contraction_proposals import CONTRACTION, panels_of_terms
from tcsym.schedule.version.leaf_proposals import LEAF
from tcsym.schedule.version.nest_proposals import PARTS, refused

MOST_GUARDS = 2
Schedule = Callable[[Kernel, str, Setting], Kernel]


def schedule_nest(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by the first plans that apply; what they read from copies is copied first."""
    if is_scan(kernel, nest):
        note = "scan: rows at once, state in registers"
        return schedule_by(Scan(), kernel, nest, setting, apply, note)
    staged = _staged(kernel, nest, setting)
    if staged is None:
        return _without_copies(kernel, nest, setting)
    return record(Staged(staged.what), nest, setting, staged.scheduled, staged.note)


def _without_copies(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by register tiles, as a whole or in parts, or by what needs none."""
    if refused(kernel, nest) is None:
        return choose(kernel, nest, setting, CONTRACTION, apply)
    terms = _sum_terms(kernel, nest, setting)
    if terms is not None:
        return record(SumTerms(), nest, setting, terms.scheduled)
    return choose(kernel, nest, setting, PARTS, apply)


class _Staged(Struct, frozen=True):
    """A nest that reads copies, before it gets its plan by `schedule`: all by `scheduled`."""

    kernel: Kernel
    copies: tuple[str, ...]
    nest: str
    schedule: Schedule
    what: str
    note: str

    def scheduled(self, setting: Setting) -> Kernel:
        kernel = self.kernel
        for x in self.copies:
            kernel = schedule_leaf(kernel, x, setting)
        return self.schedule(kernel, self.nest, setting)


def _staged(kernel: Kernel, nest: str, setting: Setting) -> _Staged | None:
    padded = pad_reads(guard_factors(kernel, nest), nest, setting)
    if padded is not None:
        what, note = "a padded copy of guarded reads", "guarded reads from a padded copy"
        return _Staged(padded.kernel, (), padded.nest, _by_directives, what, note)
    chosen = copy_choices(kernel, nest, setting.names)
    if chosen is not None:
        what, note = "a copy of choices in subscripts", "choices in subscripts from a copy"
        return _Staged(chosen.kernel, chosen.copies, chosen.nest, schedule_nest, what, note)
    packed, what = pack_windows(kernel, nest, setting), "channels side by side"
    if packed is None:
        packed, what = convert_windows(kernel, nest, setting), "converted images"
    if packed is None:
        return None
    note = f"windows over copies with {what}"
    return _Staged(packed.kernel, packed.before, nest, _without_copies, what, note)


def _by_directives(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """By plans of directives, if it has any."""
    return serve(kernel, nest, setting) or schedule_nest(kernel, nest, setting)


class _SumTerms(Struct, frozen=True):
    """`outside`: nests for where a guard does not hold."""

    kernel: Kernel
    nest: str
    outside: tuple[str, ...]

    def scheduled(self, setting: Setting) -> Kernel:
        kernel = choose(self.kernel, self.nest, setting, (panels_of_terms, *LEAF), apply)
        for x in self.outside:
            kernel = schedule_leaf(kernel, x, setting)
        return kernel


def _sum_terms(kernel: Kernel, nest: str, setting: Setting) -> _SumTerms | None:
    """Products in a sum, or under a guard, as contractions; None if they are none."""
    split, outside = split_terms(kernel, nest), tuple[str, ...]()
    for _ in range(MOST_GUARDS):
        guard = find_guard(split, nest)
        if guard is not None:
            ranges = split_ranges(split, nest, guard, setting.names)
            split, outside = ranges.kernel, (*outside, *ranges.outside)
    roles = None if split == kernel else roles_at(split, nest)
    if roles is None or refused(split, nest) is not None:
        return None
    return _SumTerms(part_terms(split, nest, roles, setting.names), nest, outside)


def apply(plan: Plan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by the plan's mechanism. Contract: a proposal made the plan for such a nest."""
    if isinstance(plan, LeafPlan):
        return apply_leaf(plan, kernel, nest, setting)
    if isinstance(plan, ContractionPlan):
        return apply_contraction(plan, kernel, nest, setting)
    return apply_nest(plan, kernel, nest, setting)


def apply_nest(plan: NestPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case Scan():
            return schedule_scan(kernel, nest, setting)
        case Staged() | SumTerms():  # what is staged, or which terms: as the nest says
            return schedule_nest(kernel, nest, setting)
        case _:
            assert_never(plan)
