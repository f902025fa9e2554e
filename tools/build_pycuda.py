# SPDX-License-Identifier: Apache-2.0
"""Has pip build pycuda against a stand-in for the driver -> a wheel in build/pycuda, installed.

pycuda comes as sources only, and its build wants what machines without a device lack: `libcuda.so`
to link with, and cuRAND. So it is linked with an empty library of all names that cuda.h declares,
made here with the C compiler; what is loaded at run time is the real driver, or the emulated one of
tests/emulated_driver. It takes two minutes, once for each Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "pycuda"
VERSION = "2026.1"
_NEEDED = ("pytools", "platformdirs", "mako")
_STUB = 34  # CUDA_ERROR_STUB_LIBRARY
# aksetup reads options from this file alone. Debian's linker drops what it sees no use of.
_CONFIGURATION = """\
CUDA_ROOT = {root!r}
CUDADRV_LIB_DIR = [{stubs!r}]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O1", "-g0"]
LDFLAGS = ["-Wl,--no-as-needed", "-s"]
"""


def main() -> int:
    about = (__doc__ or "").partition("\n")[0]
    argparse.ArgumentParser(prog="./dev pycuda", description=about).parse_args()
    root = cuda_root()
    if root is None:
        print("build_pycuda: no CUDA toolkit here (cuda.h, nvcc): set CUDA_HOME", file=sys.stderr)
        return 1
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    made = list(WHEELS.glob(f"pycuda-{VERSION}-{tag}-*.whl"))
    if not made:
        build(root)
        made = list(WHEELS.glob(f"pycuda-{VERSION}-{tag}-*.whl"))
    pip("install", *_NEEDED)
    pip("install", "--no-deps", str(made[0]))
    return 0


def cuda_root() -> Path | None:
    """Where cuda.h and nvcc are."""
    nvcc = shutil.which("nvcc")
    places = [os.environ.get("CUDA_HOME"), nvcc and Path(nvcc).resolve().parent.parent]
    for place in (*places, "/usr/local/cuda"):
        if (
            place
            and (Path(place) / "include/cuda.h").exists()
            and (Path(place) / "bin/nvcc").exists()
        ):
            return Path(place)
    return None


def stub_source(include: Path) -> str:
    """C: every name of the driver's interface, also those that macros of cuda.h stand for."""
    text = "".join((include / name).read_text() for name in ("cuda.h", "cudaProfiler.h"))
    names = {"cuCtxAttach", "cuCtxDetach"}
    names.update(re.findall(r"\b(?:CUDAAPI|CUresult)\s+(cu[A-Z]\w*)\s*\(", text))
    macro = r"#\s*define\s+cu[A-Z]\w*\s+(?:__CUDA_API_PT\w+\()?(cu[A-Z]\w*)\)?"
    names.update(re.findall(macro, text))
    names.update(re.findall(r"\b(cu[A-Z]\w*_v[234])\b", text))
    weak = "__attribute__((weak)) "
    return "\n".join(f"{weak}int {name}(void) {{ return {_STUB}; }}" for name in sorted(names))


def build(root: Path, wheels: Path = WHEELS, archive: Path | None = None) -> None:
    """archive: the sources, where they cannot be fetched."""
    wheels.mkdir(parents=True, exist_ok=True)
    os.environ["PATH"] = f"{root}/bin:{os.environ['PATH']}"
    if archive is None:
        pip("install", "setuptools", "wheel", "numpy")
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "stub.c").write_text(stub_source(root / "include"))
        stub = str(work / "libcuda.so")
        soname = "-Wl,-soname,libcuda.so.1"
        run("cc", "-w", "-shared", "-fPIC", str(work / "stub.c"), "-o", stub, soname)
        with tarfile.open(archive or download(work)) as file:
            file.extractall(work, filter="data")
        sources = work / f"pycuda-{VERSION}"
        options = _CONFIGURATION.format(root=str(root), stubs=directory)
        (sources / "siteconf.py").write_text(options)
        here = "--no-build-isolation", "--no-deps", "--no-index"
        pip("wheel", *here, "-w", str(wheels), str(sources))


def download(to: Path) -> Path:
    """The sources."""
    from_sources = "--no-deps", "--no-build-isolation", "--no-binary", ":all:"
    pip("download", *from_sources, f"pycuda=={VERSION}", "-d", str(to))
    return to / f"pycuda-{VERSION}.tar.gz"


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
