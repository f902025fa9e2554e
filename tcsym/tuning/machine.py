"""Target -> name of the machines that tuned options are for: processor, vectors, caches."""

from __future__ import annotations

from tcsym.target import Target

_LEVELS = {512: "avx512", 256: "avx2", 0: "novector"}


def machine_key(target: Target) -> str:
    """`znver3 avx2 l1=32K l2=512K`: equal keys may use each other's options and measurements."""
    level = _LEVELS.get(target.vector_bits, f"{target.vector_bits}-bit")
    l1, l2 = target.l1_bytes // 1024, target.l2_bytes // 1024
    return f"{target.cpu} {level} l1={l1}K l2={l2}K"


def similar(a: str, b: str) -> bool:
    """Machines with the same vectors: one's options are a good guess for the other."""
    return a.split()[1:2] == b.split()[1:2]
