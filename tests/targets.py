# SPDX-License-Identifier: Apache-2.0
"""Targets whose caches do not depend on the machine that runs the tests."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.target.cpu import KINDS, cpu_target
from tcsym.target.machine import Machine
from tcsym.target.target import Target

CACHES = (32 * 1024, 512 * 1024, 32 * 1024 * 1024)
_KINDS = {kind.name: kind for kind in KINDS}


def target_of(name: str, caches: tuple[int, int, int] = CACHES) -> Target:
    """Of the table, by the part of its name behind `cpu:`."""
    return cpu_target(_KINDS[name], caches)


def with_level(machine: Machine, name: str, size: int) -> Machine:
    """With another capacity of one level."""
    levels = [replace(x, bytes=size) if x.name == name else x for x in machine.levels]
    return replace(machine, levels=tuple(levels))
