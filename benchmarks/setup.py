# SPDX-License-Identifier: Apache-2.0
"""Makes the peers' environment: `./dev bench --setup [PEER ...]`, into `.bench` of the checkout.

Each peer is installed alone, so one that fails leaves the others. TCSYM_BENCH_TORCH holds other
words for pip, such as another version and an index of builds without CUDA's gigabytes.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

_TORCH = "torch>=2.6,<2.14"  # the newest may exist with CUDA only, where CPU builds are kept aside
ENVIRONMENT = Path(".bench")


def requirements() -> dict[str, list[str]]:
    """Words for pip by what they are for. `plots` draws the picture."""
    return {
        "torch": shlex.split(os.environ.get("TCSYM_BENCH_TORCH", _TORCH)),
        "jax": ["jax"],
        "numba": ["numba"],
        "opt_einsum": ["opt_einsum"],
        "scipy": ["scipy"],
        "halide": ["halide"],
        "plots": ["-e", ".[plots]"],
    }


def main() -> None:
    wanted = sys.argv[1:]
    known = requirements()
    for name in wanted:
        if name not in known:
            raise SystemExit(f"unknown peer `{name}`, it is one of {', '.join(known)}")
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-e", "."], check=True)
    failed = []
    for name in wanted or known:
        print(f"bench: installing {name}", file=sys.stderr, flush=True)
        if subprocess.run([*pip, *known[name]]).returncode:
            failed.append(name)
    for name in failed:
        print(f"bench: {name} could not be installed; benchmarks run without it", file=sys.stderr)


if __name__ == "__main__":
    main()
