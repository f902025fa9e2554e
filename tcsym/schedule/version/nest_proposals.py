# SPDX-License-Identifier: Apache-2.0
"""Nest that is no contraction as a whole -> plans of windows in parts, or by its loops."""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.band import roles_at
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import Plan, Refusal
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


PARTS: tuple[Proposal[Plan], ...] = (without_tile, *LEAF)
