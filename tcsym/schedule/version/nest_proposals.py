# SPDX-License-Identifier: Apache-2.0
"""Nest that is no contraction as a whole -> plans of windows in parts, or by its loops."""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import band_of, roles_at
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.separable import separable
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import Plan, Refusal, SplitWindows, Version, always
from tcsym.schedule.tile.contraction_schedule import contraction_refusal
from tcsym.schedule.version.choose import Proposal
from tcsym.schedule.version.leaf_proposals import LEAF


def without_tile(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Refusal]:
    """Why what looks like a contraction is none."""
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


PARTS: tuple[Proposal[Plan], ...] = (without_tile, window_parts, *LEAF)
