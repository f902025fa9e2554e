# SPDX-License-Identifier: Apache-2.0
"""Capacities of this machine's caches: code is made for them. Loads nothing."""

from __future__ import annotations

from functools import lru_cache

from tcsym.process.system import is_macos, macos_fact


@lru_cache(None)
def cache_bytes() -> tuple[int, int, int]:
    """Capacity of the three levels of data cache that one core sees, usual values where unknown."""
    found = {1: 32 * 1024, 2: 512 * 1024, 3: 32 * 1024 * 1024}
    found |= _macos_caches() if is_macos() else _linux_caches()
    return found[1], found[2], found[3]


def _linux_caches() -> dict[int, int]:
    found = {}
    for k in range(4):
        try:
            level, kind, size = (_cache_fact(k, name) for name in ("level", "type", "size"))
            if kind != "Instruction" and size.endswith("K"):
                found[int(level)] = int(size[:-1]) * 1024
        except (OSError, ValueError):
            continue
    return found


def _cache_fact(k: int, name: str) -> str:
    """What the system says of the first core's cache number `k`."""
    with open(f"/sys/devices/system/cpu/cpu0/cache/index{k}/{name}") as file:
        return file.read().strip()


def _macos_caches() -> dict[int, int]:
    """Of a fast core. Several share the second level, so that it stands for the third, too.

    macOS: never run.
    """
    names = ("l1dcachesize", "l2cachesize", "cpusperl2")
    first, second, sharing = (
        int.from_bytes(macos_fact(f"hw.perflevel0.{name}"), "little") for name in names
    )
    levels = {1: first, 2: second // max(1, sharing), 3: second}
    return {k: size for k, size in levels.items() if size}
