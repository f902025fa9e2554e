# SPDX-License-Identifier: Apache-2.0
"""Nest, plan -> the nest scheduled so: what plans of directives leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from msgspec import Struct

from tcsym.ir.loops import Kernel
from tcsym.mapping.serve import serve
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    LeafPlan,
    NestPlan,
    Plan,
    Scan,
    Staged,
)
from tcsym.schedule.split.guarded_products import guard_factors
from tcsym.schedule.stage.copy_choices import copy_choices
from tcsym.schedule.stage.pad_reads import pad_reads
from tcsym.schedule.tile.scan_schedule import is_scan, schedule_scan
from tcsym.schedule.version.apply_rows import apply_leaf, schedule_leaf
from tcsym.schedule.version.choose import choose, record, schedule_by
from tcsym.schedule.version.leaf_proposals import LEAF

Schedule = Callable[[Kernel, str, Setting], Kernel]


def schedule_nest(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by the first plans that apply; what they read from copies is copied first."""
    if is_scan(kernel, nest):
        note = "scan: rows at once, state in registers"
        return schedule_by(Scan(), kernel, nest, setting, apply, note)
    staged = _staged(kernel, nest, setting)
    if staged is None:
        return choose(kernel, nest, setting, LEAF, apply)
    return record(Staged(staged.what), nest, setting, staged.scheduled, staged.note)


class _Staged(Struct, frozen=True):
    """A nest that reads copies, before it gets its plan."""

    kernel: Kernel
    copies: tuple[str, ...]
    nest: str
    what: str
    note: str

    def scheduled(self, setting: Setting) -> Kernel:
        """By plans of directives, if it has any."""
        kernel = self.kernel
        for x in self.copies:
            kernel = schedule_leaf(kernel, x, setting)
        mapped = serve(kernel, self.nest, setting)
        return mapped or schedule_nest(kernel, self.nest, setting)


def _staged(kernel: Kernel, nest: str, setting: Setting) -> _Staged | None:
    padded = pad_reads(guard_factors(kernel, nest), nest, setting)
    if padded is not None:
        what, note = "a padded copy of guarded reads", "guarded reads from a padded copy"
        return _Staged(padded.kernel, (), padded.nest, what, note)
    chosen = copy_choices(kernel, nest, setting.names)
    if chosen is None:
        return None
    what, note = "a copy of choices in subscripts", "choices in subscripts from a copy"
    return _Staged(chosen.kernel, chosen.copies, chosen.nest, what, note)


def apply(plan: Plan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by the plan's mechanism. Contract: a proposal made the plan for such a nest."""
    if isinstance(plan, LeafPlan):
        return apply_leaf(plan, kernel, nest, setting)
    return apply_nest(plan, kernel, nest, setting)


def apply_nest(plan: NestPlan, kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    match plan:
        case Scan():
            return schedule_scan(kernel, nest, setting)
        case Staged():  # what is staged: as the nest says
            return schedule_nest(kernel, nest, setting)
        case _:
            assert_never(plan)
