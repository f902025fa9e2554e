# SPDX-License-Identifier: Apache-2.0
"""Runs tests on an emulated AArch64: `./dev arm`.

Into `.arm`, once: Python and what it needs from Debian's packages for arm64 (apt with a state of
its own, so that nothing of this system changes), wheels from the package index, and a wheel of
tcsym by the cross compiler. QEMU's user mode runs that Python; what it starts is started through a
script, as no kernel here starts files of another processor. Kernels are compiled here, into a code
cache that the emulated process reads, since LLVM takes twenty times as long there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".arm"
SYSTEM, SITE, WHEELS, MADE = KEPT / "root", KEPT / "site", KEPT / "wheels", KEPT / "made"
OWN, PYTHON, CACHE = KEPT / "own", KEPT / "python", KEPT / "cache"
NEEDED = {"qemu-aarch64": "qemu-user", "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu"}
PACKAGES = ("python3.11", "libpython3.11-dev", "libgomp1", "libstdc++6")
PLATFORMS = (*(f"manylinux_2_{k}_aarch64" for k in (28, 27, 26, 17)), "manylinux2014_aarch64")
TOOLS = ("pytest", "pytest-timeout", "hypothesis")
VERSION = "3.11"
ALWAYS = (
    *(
        "tests/arm",
        "tests/test_smoke.py",
        "tests/runtime/test_pool.py",
        "tests/runtime/test_jit.py",
    ),
    *("tests/runtime/test_simt.py", "tests/runtime/test_call_entry.py"),
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
    if not (SYSTEM / "usr/bin/python3.11").exists():
        unpack_system()
    if not WHEELS.exists():
        download_wheels()
    build_wheel()
    PYTHON.write_text(
        f"#!/bin/sh\nexport PYTHONHOME={SYSTEM}/usr\n"
        f'exec qemu-aarch64 -0 {PYTHON} -L {SYSTEM} {SYSTEM}/usr/bin/python3.11 "$@"\n'
    )
    PYTHON.chmod(0o755)


def installed(package: str) -> bool:
    """After trying to."""
    if os.getuid() or shutil.which("apt-get") is None:
        return False
    quiet: Mapping[str, int] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["apt-get", "update"], check=False, **quiet)  # type: ignore[call-overload]
    done = subprocess.run(["apt-get", "install", "--yes", package], check=False, **quiet)  # type: ignore[call-overload]
    return bool(done.returncode == 0)


def unpack_system() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Missing("Python for arm64 comes from Debian's packages, by apt-get and dpkg-deb")
    state = KEPT / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    config = state / "apt.conf"
    config.write_text(
        'APT::Architecture "arm64"; APT::Architectures { "arm64"; };\n'
        f'Dir::State "{state}"; Dir::State::status "{state}/status"; Dir::Cache "{state}/cache";\n'
        'APT::Install-Recommends "false"; APT::Sandbox::User "root";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(config)}
    for words in (("update",), ("install", "--yes", "--download-only", *PACKAGES)):
        done = subprocess.run(
            ["apt-get", "-qq", *words], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise Missing(f"apt-get {words[0]}: {(done.stderr.splitlines() or ['failed'])[-1]}")
    for package in sorted((state / "cache/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", str(package), str(SYSTEM)], check=True)


def download_wheels() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    words += [x for p in PLATFORMS for x in ("--platform", p)]
    words += ["--python-version", VERSION, "--dest", str(WHEELS)]
    done = subprocess.run(
        [*words, *pinned(project["dependencies"]), *TOOLS],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(WHEELS, ignore_errors=True)
        raise Missing(f"no wheels for AArch64: {(done.stderr.splitlines() or ['failed'])[-1]}")
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
