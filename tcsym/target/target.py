"""Targets, what a kernel is compiled for: cpu, or cpu:avx512bf16, :avx512, :avx2, :novector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tcsym.errors import OptionError, TargetError
from tcsym.target.caches import cache_bytes


@dataclass(frozen=True, slots=True)
class Target:
    """A processor: vector registers and caches. Sizes in bits and bytes.

    vector_bits 0: scalar code only. has_libm: code may call the C library's functions; a target
    without it has fused multiply-add. `features` are LLVM's names. `cpu` is LLVM's processor name.
    """

    name: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int
    has_fma: bool
    has_masks: bool
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024
    l3_bytes: int = 32 * 1024 * 1024
    has_libm: bool = True

    def lanes(self, element_bits: int) -> int:
        """Elements of that width in one vector register (1 without vectors)."""
        return max(1, self.vector_bits // element_bits)

    def block_lanes(self, element_bits: int) -> int:
        """Elements a side of a block that is transposed in registers, 16 at most: the columns of
        more are more registers than there are, and few dimensions are as long."""
        return min(16, self.lanes(element_bits))

    @property
    def register_rows(self) -> int:
        """Rows of the default register tile: tile, one row of B and one broadcast fit.

        Of 32 registers half hold the tile: sums enough to keep two multipliers busy. Larger tiles
        read less, but sizes are more often multiples of 8 than of 12, and of two vectors than of
        four.
        """
        return {512: 8, 256: 6, 0: 4}[self.vector_bits]

    @property
    def register_vectors(self) -> int:
        return {512: 2, 256: 2, 0: 1}[self.vector_bits]

    @property
    def strip_vectors(self) -> int:
        """Vectors of a strip of columns: sums enough to keep adders busy, in few columns."""
        return 4 if self.vector_bits == 512 else 8


_AVX2 = ("avx", "avx2", "fma", "bmi", "bmi2", "f16c", "popcnt", "sse4.2", "lzcnt")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd")
_DOTS = {"avx512": ("avx512vnni", "avx512bf16"), "avx2": ("avxvnni",)}  # used where present


@dataclass(frozen=True, slots=True)
class Processor:
    """LLVM's name of a processor and of the features it has."""

    name: str
    features: frozenset[str]


@lru_cache(None)
def processor() -> Processor:
    """This machine's. Loads LLVM, which takes a while; `runtime.processor` remembers the answer."""
    from tcsym.target.llvm import host

    return Processor(*host())


def resolve_target(name: str | None, here: Processor | None = None) -> Target:
    """The target a name means on this machine, or on `here`. OptionError for an unknown name."""
    name = name or "cpu"
    if name == "cpu":
        here = here or processor()
        have = here.features
        best = "avx512" if have.issuperset(_AVX512) else "avx2" if have.issuperset(_AVX2) else ""
        also = tuple(f for f in _DOTS.get(best, ()) if f in have)
        return _make("cpu", best or "novector", here.name, also)
    if name == "cpu:avx512bf16":
        return _make(name, "avx512", "cooperlake", _DOTS["avx512"])
    if name in ("cpu:avx512", "cpu:avx2", "cpu:novector"):
        level = name.partition(":")[2]
        cpu = {"avx512": "skylake-avx512", "avx2": "haswell", "novector": "x86-64"}[level]
        return _make(name, level, cpu)
    if name.startswith("cuda"):
        raise TargetError("target `cuda` is not available in this version", hint='use "cpu"')
    raise OptionError(
        f"unknown target `{name}`",
        hint="use cpu, cpu:avx512bf16, cpu:avx512, cpu:avx2 or cpu:novector",
    )


def _make(name: str, level: str, cpu: str, also: tuple[str, ...] = ()) -> Target:
    caches = cache_bytes()
    if level == "avx512":
        return Target(name, cpu, (*_AVX512, *also), 512, 32, True, True, *caches)
    if level == "avx2":
        return Target(name, cpu, (*_AVX2, *also), 256, 16, True, False, *caches)
    return Target(name, cpu, (), 0, 16, False, False, *caches)


def runs_here(target: Target, here: Processor | None = None) -> bool:
    """True if this processor, or `here`, has the target's features."""
    return (here or processor()).features.issuperset(target.features)
