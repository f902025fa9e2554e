# SPDX-License-Identifier: Apache-2.0
"""Capacities of this machine's caches: code is made for them. Loads nothing."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(None)
def cache_bytes() -> tuple[int, int, int]:
    """Capacity of the three levels of data cache that one core sees, usual values where unknown."""
    found = {1: 32 * 1024, 2: 512 * 1024, 3: 32 * 1024 * 1024}
    for k in range(4):
        try:
            level, kind, size = (_cache_fact(k, name) for name in ("level", "type", "size"))
            if kind != "Instruction" and size.endswith("K"):
                found[int(level)] = int(size[:-1]) * 1024
        except (OSError, ValueError):
            continue
    return found[1], found[2], found[3]


def _cache_fact(k: int, name: str) -> str:
    """What the system says of the first core's cache number `k`."""
    with open(f"/sys/devices/system/cpu/cpu0/cache/index{k}/{name}") as file:
        return file.read().strip()
