# SPDX-License-Identifier: Apache-2.0
"""Nest -> the nest mapped by directives, from copies of what it reads if only these let it."""

from __future__ import annotations

from msgspec import Struct

from tcsym.index.expr import TRUE
from tcsym.ir.loops import Kernel
from tcsym.mapping.serve import serve
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Taken
from tcsym.schedule.plan import AsItIs, Staged
from tcsym.schedule.split.guarded_products import guard_factors
from tcsym.schedule.stage.copy_choices import copy_choices
from tcsym.schedule.stage.pad_reads import pad_reads


def schedule_nest(kernel: Kernel, nest: str, setting: Setting) -> Kernel:
    """The nest by directives; what no directive maps runs as it is, in order, on one thread or as
    its loops say. What was chosen goes to the record."""
    mapped = serve(kernel, nest, setting)
    if mapped is not None:
        return mapped
    staged = _staged(kernel, nest, setting)
    if staged is None:
        setting.record.append(Choice(nest, (Taken(TRUE, AsItIs()),)))
        return kernel
    inside = setting.recording()
    kernel = staged.scheduled(inside)
    plan = Staged(staged.what)
    setting.record.append(Choice(nest, (Taken(TRUE, plan, tuple(inside.record)),)))
    return kernel


class _Staged(Struct, frozen=True):
    """A nest that reads copies, before it gets its plan."""

    kernel: Kernel
    copies: tuple[str, ...]
    nest: str
    what: str

    def scheduled(self, setting: Setting) -> Kernel:
        kernel = self.kernel
        for x in self.copies:
            kernel = serve(kernel, x, setting) or kernel
        return schedule_nest(kernel, self.nest, setting)


def _staged(kernel: Kernel, nest: str, setting: Setting) -> _Staged | None:
    padded = pad_reads(guard_factors(kernel, nest), nest, setting)
    if padded is not None:
        return _Staged(padded.kernel, (), padded.nest, "a padded copy of guarded reads")
    chosen = copy_choices(kernel, nest, setting.names)
    if chosen is None:
        return None
    return _Staged(chosen.kernel, chosen.copies, chosen.nest, "a copy of choices in subscripts")
