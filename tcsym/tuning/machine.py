# SPDX-License-Identifier: Apache-2.0
"""Target, threads -> name of what tuned options are for: processor, vectors, caches, threads.

Options that split work for several threads cost time on one, and the other way round. So what was
tuned with one thread serves one, what was tuned with more serves any number above one; a key
without threads (`shipped` options, which are measured with one and with all) serves all.
"""

from __future__ import annotations

from tcsym.target.target import Target


def machine_key(target: Target, threads: int | None = None) -> str:
    """`znver3 avx2 l1=32K l2=512K threads=2`: equal keys may use each other's measurements."""
    own = target.machine.levels[:2]  # what other cores do with the rest is not known
    near = " ".join([f"{level.name}={level.bytes // 1024}K" for level in own])
    told = "" if threads is None else f" threads={threads}"
    return f"{target.cpu} {target.machine.name} {near}{told}"


def machine_and_threads(key: str) -> tuple[str, int | None]:
    """The inverse, as far as keys may differ where options serve."""
    machine, _, threads = key.partition(" threads=")
    return machine, int(threads) if threads.isdecimal() else None


def threads_alike(tuned: str, key: str) -> bool:
    """One thread in both, or more in both, or one of them says nothing."""
    a, b = machine_and_threads(tuned)[1], machine_and_threads(key)[1]
    return a is None or b is None or (a > 1) == (b > 1)


def serves(tuned: str, key: str) -> bool:
    """Options of one key may serve calls of the other: the same machine, threads alike."""
    is_same = machine_and_threads(tuned)[0] == machine_and_threads(key)[0]
    return is_same and threads_alike(tuned, key)


def similar(a: str, b: str) -> bool:
    """Machines with the same vectors: one's options are a good guess for the other."""
    return a.split()[1:2] == b.split()[1:2] and threads_alike(a, b)
