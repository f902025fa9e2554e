# SPDX-License-Identifier: Apache-2.0
"""Processors, a line each: all that schedules and code depend on, but for cache sizes.

Register tiles: tile, one row of B and one broadcast fit. Of 32 registers half hold the tile: sums
enough to keep two multipliers busy. Larger tiles read less, but sizes are more often multiples of 8
than of 12, and of two vectors than of four.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tcsym.process.system import is_macos, processors
from tcsym.target.host import Processor
from tcsym.target.machine import Dot, Family, Level, Machine, Tile
from tcsym.target.target import Target
from tcsym.types import DType

X86_64, AARCH64 = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
if is_macos():  # macOS: never run
    # Its calls, registers and names of functions, in the files that our loader reads.
    AARCH64 = "aarch64-apple-macosx11.0-elf"
SCALAR = {X86_64: "x86-64", AARCH64: "generic"}  # LLVM's name of what all such processors have
LINE_BYTES, CACHE_WAYS = 64, 8
STREAM_BYTES = 16
STREAM_FENCES = {X86_64: "llvm.x86.sse.sfence"}
CacheBytes = tuple[int, int, int]


class Kind(NamedTuple):
    """Processors with the same vectors. `cpu`, `features`, `optional`, `triple`: LLVM's names.

    optional: features of some of them, used where present. triple: empty for what there is of any
    kind, then that of the machine at hand.
    """

    name: str
    vectors: str
    cpu: str
    features: tuple[str, ...]
    optional: tuple[str, ...]
    vector_bits: int
    registers: int
    fma: bool
    masks: bool
    tile: Tile
    strip_vectors: int
    triple: str = X86_64


_AVX2 = ("avx", "avx2", "fma", "bmi", "bmi2", "f16c", "popcnt", "sse4.2", "lzcnt")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_DOTS = ("avx512vnni", "avx512bf16")
_ALL = (*_AVX512, *_DOTS)
_NEON_DOTS = ("dotprod", "i8mm", "bf16")

KINDS = (  # the best first
    Kind("avx512bf16", "avx512", "cooperlake", _ALL, (), 512, 32, True, True, Tile(8, 2), 4),
    Kind("avx512", "avx512", "skylake-avx512", _AVX512, _DOTS, 512, 32, True, True, Tile(8, 2), 4),
    Kind("avx2", "avx2", "haswell", _AVX2, ("avxvnni",), 256, 16, True, False, Tile(6, 2), 8),
    Kind(
        "neonbf16", "neon", "generic", _NEON_DOTS, (), 128, 32, True, False, Tile(8, 2), 4, AARCH64
    ),
    Kind("neon", "neon", "generic", (), _NEON_DOTS, 128, 32, True, False, Tile(8, 2), 4, AARCH64),
    Kind("novector", "novector", "", (), (), 0, 16, False, False, Tile(4, 1), 8, ""),
)
_VNNI = (
    Dot("dot_int16", "x86.avx512.vpdpwssd.{bits}"),
    Dot("dot_uint8_int8", "x86.avx512.vpdpbusd.{bits}"),
)
DOT_FEATURES: dict[str, tuple[Dot, ...]] = {
    "avx512vnni": _VNNI,
    "avxvnni": _VNNI,
    "avx512bf16": (Dot("dot_bfloat16", "x86.avx512bf16.dpbf16ps.{bits}"),),
    "avx2": (Dot("dot_int16"),),
    "dotprod": (Dot("dot_int8", "aarch64.neon.sdot.v4i32.v16i8", "i8"),),
    "i8mm": (Dot("dot_uint8_int8", "aarch64.neon.usdot.v4i32.v16i8", "i8"),),
    "bf16": (Dot("dot_bfloat16", "aarch64.neon.bfdot.v4f32.v8bf16", "bfloat"),),
}
HALVES = {"f16c": DType.FLOAT16, "bf16": DType.BFLOAT16}  # that features convert float32 to


def cpu_target(kind: Kind, caches: CacheBytes) -> Target:
    """Of a kind by its name: no feature more than all its processors have."""
    machine, triple = _machine(kind, kind.features, caches), kind.triple or host_triple()
    cpu = kind.cpu or SCALAR[triple]
    return Target(f"cpu:{kind.name}", triple, cpu, kind.features, machine)


def host_triple() -> str:
    """Of the machine at hand; where no code runs, that of most machines."""
    return next((x for x in SCALAR if x.startswith(processors())), X86_64)


def host_kind(here: Processor) -> Kind:
    """The best that `here` has all of."""
    mine = (k for k in KINDS if k.triple in (host_triple(), ""))
    return next(k for k in mine if here.features.issuperset(k.features))


def host_target(here: Processor, caches: CacheBytes) -> Target:
    """All that `here` has."""
    kind, triple = host_kind(here), host_triple()
    features = (*kind.features, *(name for name in kind.optional if name in here.features))
    machine = _machine(kind, features, caches)
    family: Family = "zen" if here.name.startswith("znver") else "core"
    return Target("cpu", triple, here.name, features, replace(machine, family=family))


def _machine(kind: Kind, features: tuple[str, ...], caches: CacheBytes) -> Machine:
    dots = {x.function: x for name in features for x in DOT_FEATURES.get(name, ())}
    halves = [HALVES[name] for name in features if name in HALVES]
    return Machine(
        name=kind.vectors,
        levels=tuple(
            Level(f"l{k}", size, LINE_BYTES, CACHE_WAYS) for k, size in enumerate(caches, 1)
        ),
        vector_bits=kind.vector_bits,
        vector_registers=kind.registers,
        has_fma=kind.fma,
        has_masks=kind.masks,
        converts=(*(DType.FLOAT16,) * (kind.triple == AARCH64), *halves),
        dots=tuple(dots.values()),
        tile=kind.tile,
        strip_vectors=kind.strip_vectors,
        stream_bytes=STREAM_BYTES,
        stream_fence=STREAM_FENCES.get(kind.triple or host_triple(), ""),
    )
