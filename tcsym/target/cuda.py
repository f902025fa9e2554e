# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's devices, a line each: all that schedules and code depend on.

Code for one is two halves: what the device runs, and what the host does around launches, which is
scalar code of the host. The twin of a device runs the same kernels on the host, for tests and where
there is no device.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tcsym.target.cpu import SCALAR, host_triple
from tcsym.target.machine import Level, Machine, Multiprocessor, Tile
from tcsym.target.target import TWIN, Target
from tcsym.types import DType


class Kind(NamedTuple):
    """Devices of one compute capability. shared_bytes: most of a block. l2_bytes: of the smallest.

    ptx: the first version of the ISA that has it, as LLVM names it. multiprocessors: of a usual
    device, each of which runs a few blocks at once.
    """

    name: str
    ptx: str
    shared_bytes: int
    l2_bytes: int
    multiprocessors: int


KINDS = (
    Kind("sm_80", "ptx70", 163 * 1024, 40 << 20, 108),
    Kind("sm_86", "ptx71", 99 * 1024, 4 << 20, 68),
    Kind("sm_90a", "ptx80", 227 * 1024, 50 << 20, 132),
    Kind("sm_100", "ptx86", 227 * 1024, 126 << 20, 148),
)
TRIPLE = "nvptx64-nvidia-cuda"
MULTIPROCESSORS = {
    "sm_80": Multiprocessor(1 << 16, 2048, 164 * 1024, 64, 1024, 10, 40, 1410),
    "sm_86": Multiprocessor(1 << 16, 1536, 100 * 1024, 128, 512, 6, 20, 1710, blocks=16),
    "sm_90a": Multiprocessor(1 << 16, 2048, 228 * 1024, 128, 1280, 14, 40, 1755),
    "sm_100": Multiprocessor(1 << 16, 2048, 228 * 1024, 128, 1280, 29, 64, 1965),
}
REGISTERS = 255  # of a thread, at most
LINE_BYTES = 128


def machine_of(
    kind: Kind, converts: tuple[DType, ...] = (DType.FLOAT16, DType.BFLOAT16)
) -> Machine:
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
        converts=converts,
        dots=(),
        tile=Tile(8, 8),
        strip_vectors=1,
        stream_bytes=16,
        has_libm=False,
        workers=kind.multiprocessors,
        multiprocessor=MULTIPROCESSORS[kind.name],
        factors=(DType.FLOAT16, DType.BFLOAT16),
    )


def cuda_target(kind: Kind) -> Target:
    """Of all devices of a kind."""
    return Target(f"cuda:{kind.name}", TRIPLE, kind.name, (kind.ptx,), machine_of(kind))


def twin_target() -> Target:
    """Of the first kind, on the host."""
    triple = host_triple()
    return Target(TWIN, triple, SCALAR[triple], (), machine_of(KINDS[0], converts=()))


def host_half(target: Target) -> Target:
    """What the code around launches is compiled for."""
    triple = host_triple()
    return replace(target, triple=triple, cpu=SCALAR[triple], features=())
