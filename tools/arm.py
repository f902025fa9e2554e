# SPDX-License-Identifier: Apache-2.0
"""Runs tests on an emulated AArch64: `./dev arm`.

Into `.arm`, once: Python and what it needs from Debian's packages for arm64, which mmdebstrap
unpacks there, wheels from the package index, and a wheel of tcsym by the cross compiler. QEMU's
user mode runs that Python; what it starts is started through a script, as no kernel here starts
files of another processor. Kernels are compiled here, into a code cache that the emulated process
reads: LLVM takes twenty times as long there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".arm"
SYSTEM, SITE, WHEELS, MADE = KEPT / "root", KEPT / "site", KEPT / "wheels", KEPT / "made"
OWN, PYTHON, CACHE, UNPACKED = (KEPT / x for x in ("own", "python", "cache", "unpacked"))
NEEDED = {
    "qemu-aarch64": "qemu-user",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "mmdebstrap": "mmdebstrap",
}
SUITE = "bookworm"  # of Debian, whose Python is that of the wheels
PACKAGES = ("python3.11", "libpython3.11-dev", "libgomp1", "libstdc++6")
PLATFORMS = (*(f"manylinux_2_{k}_aarch64" for k in (28, 27, 26, 17)), "manylinux2014_aarch64")
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "ml_dtypes")
VERSION = "3.11"
ALWAYS = (
    "tests/arm",
    "tests/test_smoke.py",
    *(f"tests/runtime/test_{x}.py" for x in ("pool", "jit", "simt", "call_entry", "loader")),
)
# QEMU's madvise accepts MADV_WIPEONFORK, and does nothing.
NOT_THERE = ("fork_while_the_pool", "openmp_is_used_but_not_in_a_forked")


class Missing(Exception):
    """What is not here, and cannot be had."""


def main() -> int:
    """The tests that are given, or the usual ones; 0 with a sentence where nothing can be run."""
    try:
        set_up()
    except Missing as e:
        print(f"arm: skipped, {e}")
        return 0
    fill_cache()
    left = " or ".join(NOT_THERE)
    words = sys.argv[1:] or [*ALWAYS, "-m", "not slow", "-k", f"not ({left})"]
    return emulated("-m", "pytest", "-p", "no:cacheprovider", *words)


def set_up() -> None:
    """Raises Missing."""
    if f"{sys.version_info[0]}.{sys.version_info[1]}" != VERSION:
        raise Missing(f"wheels are for Python {VERSION}, which is Debian's; run it with that one")
    for command, package in NEEDED.items():
        if shutil.which(command) is None and not installed(package):
            raise Missing(f"`{command}` is not here: install {package}")
    if not UNPACKED.exists():
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir()
        unpack_system()
        download_wheels()
        UNPACKED.touch()
    build_wheel()
    PYTHON.write_text(
        f"#!/bin/sh\nexport PYTHONHOME={SYSTEM}/usr\n"
        f'exec qemu-aarch64 -0 {PYTHON} -L {SYSTEM} {SYSTEM}/usr/bin/python3.11 "$@"\n'
    )
    PYTHON.chmod(0o755)


def installed(package: str) -> bool:
    """After trying to."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    words = (["apt-get", "update"], ["apt-get", "install", "--yes", package])
    return all(subprocess.run(x, capture_output=True, check=False).returncode == 0 for x in words)


def unpack_system() -> None:
    words = ["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64"]
    words += ["--skip=check/qemu", f"--include={','.join(PACKAGES)}", SUITE, str(SYSTEM)]
    required(words, "no Debian packages for arm64")


def required(words: Sequence[str], otherwise: str) -> None:
    """Raises Missing, with the last line that the command says."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{otherwise}: {(done.stderr.splitlines() or ['failed'])[-1]}")


def download_wheels() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    words += [x for p in PLATFORMS for x in ("--platform", p)]
    words += ["--python-version", VERSION, "--dest", str(WHEELS)]
    required([*words, *pinned(project["dependencies"]), *TOOLS], "no wheels for AArch64")
    for wheel in WHEELS.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(SITE)


def pinned(dependencies: list[str]) -> list[str]:
    """The versions that are installed here: keys of the code cache have those of the compiler."""
    from importlib.metadata import version

    names = [x.split(">")[0].strip() for x in dependencies]
    return [f"{name}=={version(name)}" for name in names]


def build_wheel() -> None:
    """Of the sources as they are."""
    import numpy

    source, headers = KEPT / "source", SYSTEM / "usr/include"
    shutil.rmtree(source, ignore_errors=True)
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "tcsym", "*.toml"]
    listed += ["setup.py", "README.md", "LICENSE", "MANIFEST.in"]
    for name in subprocess.check_output(listed, cwd=ROOT, text=True).splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    compiler = "aarch64-linux-gnu-gcc"
    environment = {
        **os.environ,
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{VERSION.replace('.', '')}-aarch64-linux-gnu.so",
        "CC": compiler,
        "LDSHARED": f"{compiler} -shared",
        "CFLAGS": f"-I{headers}/python{VERSION} -I{headers} -I{numpy.get_include()}",
    }
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    shutil.rmtree(KEPT / "wheel", ignore_errors=True)
    subprocess.run(
        [*words, "--wheel-dir", str(KEPT / "wheel"), str(source)], env=environment, check=True
    )
    shutil.rmtree(OWN, ignore_errors=True)
    (wheel,) = (KEPT / "wheel").glob("tcsym-*_aarch64.whl")
    zipfile.ZipFile(wheel).extractall(OWN)


def fill_cache() -> None:
    """By the same files, which have the same keys: on this machine without their native part."""
    environment = {
        **os.environ,
        "TCSYM_CACHE_DIR": str(CACHE),
        "PYTHONPATH": f"{OWN}{os.pathsep}{copied_tests()}",
        "CC": "aarch64-linux-gnu-gcc",
        "OBJCOPY": "aarch64-linux-gnu-objcopy",
    }
    shutil.rmtree(MADE, ignore_errors=True)
    words = [sys.executable, "-m", "tests.arm.kernels", str(MADE)]
    subprocess.run(words, cwd=KEPT, env=environment, stdout=subprocess.DEVNULL, check=True)


def emulated(*words: str) -> int:
    """Of that Python."""
    at = copied_tests()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (OWN, SITE, at))),
        "TCSYM_CACHE_DIR": str(CACHE),
        "TCSYM_ARM_MADE": str(MADE),
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.run([str(PYTHON), *words], cwd=at, env=environment, check=False).returncode


def copied_tests() -> Path:
    """Without the package beside them, which has no code for the emulator."""
    folder = KEPT / "tests"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


if __name__ == "__main__":
    sys.exit(main())
