# SPDX-License-Identifier: Apache-2.0
"""Affinity and environment variables, set before any library is imported; foreign work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"),
    *("TCSYM_NUM_THREADS", "NUMBA_NUM_THREADS", "HL_NUM_THREADS"),
)
_FIXED = {
    "OPENBLAS_THREAD_TIMEOUT": "18",  # else its threads spin for 100 ms after each product
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "TCSYM_VERIFY": "0",
}
_AVX2_ONLY = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NUMBA_CPU_NAME": "haswell",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    "HL_JIT_TARGET": "x86-64-linux-sse41-avx-avx2-f16c-fma",
}


def cores_for(threads: int) -> list[int]:
    """The last cores this process may use: the first ones take the system's interrupts.

    Errors: SystemExit if there are fewer.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < threads:
        raise SystemExit(f"{threads} threads wanted, but only {len(allowed)} cores are allowed")
    return allowed[-threads:]


def compile_python_files() -> None:
    """Python's compiled files of this package and of tcsym, as pip makes them when it installs.

    The peers have theirs; without ours a process would compile 20,000 lines of Python.
    """
    root = Path(__file__).parent.parent
    packages = [str(root / name) for name in ("tcsym", "benchmarks")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)


def environment_for(threads: int, target: str | None, cache: str) -> dict[str, str]:
    """For workers. `cache`: an empty directory, so that nothing compiled or tuned is found."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    made = {**inherited, **_FIXED, **dict.fromkeys(_THREADS, str(threads))}
    made |= {"TCSYM_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
    if target == "cpu:avx2":
        made |= _AVX2_ONLY
    return made


def busy_seconds() -> float:
    """Time all cores have worked for anybody since start-up."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, irq, soft_irq, steal = map(int, fields[:8])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")
