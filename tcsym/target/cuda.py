"""NVIDIA's devices, a line each: all that schedules and code depend on.

The twin of one runs the same kernels on the host, for tests and where there is no device: one
thread of it at a time, by scalar code that any x86-64 processor runs.
"""

from __future__ import annotations

from typing import NamedTuple

from tcsym.target.cpu import TRIPLE as HOST_TRIPLE
from tcsym.target.machine import Level, Machine, Tile
from tcsym.target.target import TWIN, Target


class Kind(NamedTuple):
    """Devices of one compute capability. shared_bytes: most of a block. l2_bytes: of the smallest.

    multiprocessors: of a usual device, each of which runs a few blocks at once.
    """

    name: str
    shared_bytes: int
    l2_bytes: int
    multiprocessors: int


KINDS = (
    Kind("sm_80", 163 * 1024, 40 << 20, 108),
    Kind("sm_86", 99 * 1024, 4 << 20, 68),
    Kind("sm_90a", 227 * 1024, 50 << 20, 132),
)
REGISTERS = 255  # of a thread, at most
LINE_BYTES = 128


def machine_of(kind: Kind) -> Machine:
    """Scalar code for each thread, with fused multiply-add and no C library."""
    return Machine(
        name=kind.name,
        levels=(
            Level("shared", kind.shared_bytes, LINE_BYTES, 1),
            Level("l2", kind.l2_bytes, 64, 16),
        ),
        vector_bits=0,
        vector_registers=REGISTERS,
        has_fma=True,
        has_masks=False,
        has_halves=False,
        dots=(),
        tile=Tile(8, 8),
        strip_vectors=1,
        stream_bytes=16,
        has_libm=False,
        workers=kind.multiprocessors,
    )


def twin_target() -> Target:
    """Of the first kind, on the host."""
    return Target(TWIN, HOST_TRIPLE, "x86-64", (), machine_of(KINDS[0]))
