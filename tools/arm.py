# SPDX-License-Identifier: Apache-2.0
"""Runs tests and the acceptance programs on an emulated AArch64: `./dev arm [--all]`.

--all: also the demo, which compiles there, and tests that need torch: minutes, and a gigabyte.

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
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".arm"
SYSTEM, SITE, MORE, MADE, TESTS = (KEPT / x for x in ("root", "site", "more", "made", "tests"))
OWN, PYTHON, CACHE, UNPACKED = (KEPT / x for x in ("own", "python", "cache", "unpacked"))
PROGRAMS = Path(os.environ.get("TCSYM_PROGRAMS", ROOT.parent / "shared/programs")).resolve()
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
TORCH = "torch>=2.6,<2.11"  # later wheels for AArch64 need those of CUDA
TORCH_NEEDS = ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec")
ALWAYS = (
    "tests/arm",
    "tests/test_smoke.py",
    *(f"tests/runtime/test_{x}.py" for x in ("pool", "jit", "simt", "call_entry", "loader")),
)
# QEMU's madvise accepts MADV_WIPEONFORK, and does nothing.
NOT_THERE = ("fork_while_the_pool", "openmp_is_used_but_not_in_a_forked")
WITH_TORCH = (
    *(f"tests/runtime/test_{x}.py" for x in ("torch", "torch_entries", "torch_modes")),
    "tests/differentiate/test_torch.py",
    "tests/operators/test_one_layer.py",
    "tests/test_train.py",
    "-k",
    "not functions_of_functions",  # minutes, for the same operators
)


class Missing(Exception):
    """What is not here, and cannot be had."""


def main() -> int:
    """The tests that are given, or the usual work; 0 with a sentence where nothing can be run."""
    words = sys.argv[1:]
    is_all = words == ["--all"]
    try:
        set_up()
        if is_all and not MORE.exists():
            download_more()
    except Missing as e:
        print(f"arm: skipped, {e}")
        return 0
    if words and not is_all:
        fill_cache([])
        return tested(*words)
    programs = acceptance_programs()
    fill_cache(programs)
    left = " or ".join(NOT_THERE)
    statuses = [tested(*ALWAYS, "-m", "not slow", "-k", f"not ({left})")]
    if programs:
        statuses += [emulated("-W", "ignore", "-m", "tests.arm.programs", *programs)]
    if is_all:
        statuses += [emulated(str(TESTS / "examples/demo.py"), more=True)]
        statuses += [tested(*WITH_TORCH, more=True)]
    return int(any(statuses))


def acceptance_programs() -> list[str]:
    """Words for `tests.arm.programs`; none, with a sentence, where there is no runner."""
    if not (PROGRAMS / "run.py").is_file():
        print(f"arm: no acceptance programs at {PROGRAMS}")
        return []
    return [str(x) for x in (PROGRAMS, *sorted((TESTS / "tests/programs").glob("*.jsonl")))]


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
        download_usual()
        UNPACKED.touch()
    build_wheel()
    PYTHON.write_text(
        f"#!/bin/sh\nexport PYTHONHOME={SYSTEM}/usr\n"
        f'exec qemu-aarch64 -cpu max -0 {PYTHON} -L {SYSTEM} {SYSTEM}/usr/bin/python3.11 "$@"\n'
    )
    PYTHON.chmod(0o755)
    copy_tests()


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


def download_usual() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    download(SITE, [*pinned(project["dependencies"]), *TOOLS])


def download_more() -> None:
    """What the demo and tests with torch need beside the rest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = KEPT / "unfinished"
    shutil.rmtree(folder, ignore_errors=True)
    demo = project["optional-dependencies"]["demo"]
    download(folder, [*pinned(["numpy"]), *demo, *TORCH_NEEDS])
    # not what it needs elsewhere: pip takes conditions on the processor for those on this one
    download(folder, ["--no-deps", TORCH])
    folder.rename(MORE)


def download(to: Path, wanted: Sequence[str]) -> None:
    """Raises Missing."""
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    words += [x for p in PLATFORMS for x in ("--platform", p)]
    with TemporaryDirectory() as wheels:
        words += ["--python-version", VERSION, "--dest", wheels, *wanted]
        required(words, "no wheels for AArch64")
        for wheel in Path(wheels).glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(to)


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


def fill_cache(programs: Sequence[str]) -> None:
    """By the same files, which have the same keys: on this machine without their native part."""
    environment = {
        **os.environ,
        "TCSYM_CACHE_DIR": str(CACHE),
        "PYTHONPATH": f"{OWN}{os.pathsep}{TESTS}",
        "CC": "aarch64-linux-gnu-gcc",
        "OBJCOPY": "aarch64-linux-gnu-objcopy",
    }
    shutil.rmtree(MADE, ignore_errors=True)
    works = [["tests.arm.kernels", str(MADE)]]
    works += [["tests.arm.programs", "--compile", *programs]] if programs else []
    python = [sys.executable, "-W", "ignore", "-m"]
    quiet = subprocess.DEVNULL
    running = [
        subprocess.Popen([*python, *words], cwd=KEPT, env=environment, stdout=quiet)
        for words in works
    ]
    statuses = [process.wait() for process in running]
    if any(statuses):
        raise SystemExit("arm: what is to be run could not be compiled")


def tested(*words: str, more: bool = False) -> int:
    return emulated("-m", "pytest", "-p", "no:cacheprovider", *words, more=more)


def emulated(*words: str, more: bool = False) -> int:
    """Of that Python. more: with what `--all` needs."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (OWN, SITE, TESTS, *[MORE] * more))),
        "TCSYM_CACHE_DIR": str(CACHE),
        "TCSYM_ARM_MADE": str(MADE),
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.run([str(PYTHON), *words], cwd=TESTS, env=environment, check=False).returncode


def copy_tests() -> None:
    """Without the package beside them, which has no code for the emulator."""
    shutil.rmtree(TESTS, ignore_errors=True)
    left = shutil.ignore_patterns("__pycache__")
    for name in ("tests", "examples"):
        shutil.copytree(ROOT / name, TESTS / name, ignore=left)
    shutil.copy(ROOT / "pyproject.toml", TESTS)


if __name__ == "__main__":
    sys.exit(main())
