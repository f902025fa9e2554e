# SPDX-License-Identifier: Apache-2.0
"""What a machine with torch and without network lacks, in a folder; and that put to use there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of our dependencies, what torch's environments lack. llvmlite has 60 MB: numba brings it.
PACKED = ("islpy", "lark", "msgspec", "ml_dtypes", "click", "rich")
PACKED += ("markdown-it-py", "mdurl", "pygments")
NEEDED = {"llvmlite": (0, 45), "numpy": (1, 26)}  # there, of these versions or newer ones
GLIBC = (17, 24, 27, 28, 31, 34, 35)
PROGRAMS = "programs"
MOST_BYTES = 64 << 20  # of the files of this repository and the pack, together


def pack(to: Path, python: str, more: frozenset[str]) -> None:
    """Wheels for that Python, and the acceptance programs if they are found. more: packages."""
    to.mkdir(parents=True, exist_ok=True)
    platforms = [x for n in GLIBC for x in ("--platform", f"manylinux_2_{n}_x86_64")]
    platforms += ["--platform", "manylinux2014_x86_64", "--platform", "any"]
    wheels = ("--only-binary=:all:", "--python-version", python, "--implementation", "cp")
    wanted = [*PACKED, *sorted(more)]
    for old in (x for name in wanted for x in wheels_of(name, to)):
        old.unlink()
    pip("download", "--no-deps", "-d", str(to), *wheels, *platforms, *wanted)
    if (programs_here() / "run.py").is_file():
        kept = shutil.ignore_patterns("__pycache__")
        shutil.copytree(programs_here(), to / PROGRAMS, dirs_exist_ok=True, ignore=kept)
    own, whole = bytes_in(to), tree_bytes()
    print(f"{own / 2**20:.1f} MiB in {to}, {whole / 2**20:.1f} in this repository's files")
    if own + whole > MOST_BYTES:
        raise SystemExit(f"gpu: together more than {MOST_BYTES >> 20} MiB")


def wheels_of(package: str, folder: Path) -> list[Path]:
    return list(folder.glob(f"{package.replace('-', '_')}-*.whl"))


def programs_here() -> Path:
    return Path(os.environ.get("TCSYM_PROGRAMS", ROOT.parent / "shared" / PROGRAMS))


def bytes_in(folder: Path) -> int:
    return sum(x.stat().st_size for x in folder.rglob("*") if x.is_file())


def tree_bytes() -> int:
    """Of all files here that git knows or does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    files = [ROOT / name.decode() for name in listed.stdout.split(b"\0") if name]
    return sum(x.lstat().st_size for x in files if x.is_file())


def unpack(source: Path, site: Path) -> None:
    """What this interpreter lacks goes into the folder `site`, for PYTHONPATH."""
    wheels = list[str]()
    for name in NEEDED:
        along = [str(x) for x in wheels_of(name, source)]
        if not along:
            require_newer(name)
        wheels += along
    for name in (n for n in PACKED if not found_version(n)):
        found = wheels_of(name, source)
        if not found:
            raise SystemExit(f"gpu: this Python lacks {name}, which is not in {source}")
        wheels += map(str, found)
    offline = "--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(site)
    if wheels:
        pip("install", *offline, *wheels)


def require_newer(name: str) -> None:
    """It is there, and new enough."""
    found, least = found_version(name), NEEDED[name]
    wanted, how = ".".join(map(str, least)), f"pack it: ./dev gpu --pack DIR --with {name}"
    if not found:
        raise SystemExit(f"gpu: this Python lacks {name} (>= {wanted}); {how}")
    if tuple(int(x) for x in found.split(".")[:2]) < least:
        raise SystemExit(f"gpu: {name} {found} here is older than {wanted}; {how}")


def found_version(package: str) -> str:
    """Of a package that this interpreter has; else empty."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def pip(*arguments: str) -> None:
    command = sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"
    subprocess.run([*command, *arguments], check=True)
