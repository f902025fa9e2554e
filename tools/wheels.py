# SPDX-License-Identifier: Apache-2.0
"""Source distributions, and wheels for each Python: `./dev wheels [VERSIONS] [--out FOLDER]`.

Of tcsym, and of tcsym-runtime. For glibc 2.28 and newer on x86-64.

The C part is compiled by zig's compiler, which links to the glibc that it is told, whatever the one
here is; `auditwheel` then says what the wheel needs. A release builds the same by cibuildwheel.
Exit status 1 if a wheel could not be made, or needs more than its tag says.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tools.interpreters import (
    KEPT,
    ROOT,
    SUPPORTED,
    Interpreter,
    environment,
    interpreters,
    run,
    say,
)
from tools.runtime_package import write

GLIBC = (2, 28)
TAG = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_x86_64"
BUILD = ("setuptools>=77", "wheel", "build", "numpy>=2")
OUT = ROOT / "dist"


def compiler() -> Path:
    """zig, where every interpreter of a root of its own sees it."""
    folder = KEPT / "zig"
    found = folder / "ziglang" / "zig"
    if not found.exists():
        say("installing zig's compiler and auditwheel")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(folder), "ziglang", "auditwheel"], check=True)
    return found


def source_distributions(out: Path) -> list[Path]:
    """The archives that wheels are made of, of tcsym and tcsym-runtime; raises Wrong."""
    to, runtime = KEPT / "built" / "source", KEPT / "built" / "runtime"
    for folder in (to, runtime):
        shutil.rmtree(folder, ignore_errors=True)
    write(runtime)
    for project in (ROOT, runtime):
        words = ["-m", "build", "--sdist", "--no-isolation", "--outdir", str(to)]
        told = subprocess.run([sys.executable, *words], cwd=project, capture_output=True, text=True)
        if told.returncode != 0:
            raise Wrong(f"no source distribution\n{told.stdout}{told.stderr}")
    out.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(path, out)) for path in sorted(to.glob("*.tar.gz"))]


def wheel(of: Interpreter, source: Path, out: Path) -> Path:
    """Builds it for this Python; raises Wrong."""
    zig, of = compiler(), of._replace(of=f"{of.of or of.version}-build")
    environment(of, BUILD)
    cc = f"{zig} cc -target x86_64-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    cc += " -idirafter /usr/include"  # where Debian's Python.h finds the rest of it
    to = KEPT / "built" / of.of
    shutil.rmtree(to, ignore_errors=True)
    with tarfile.open(source) as archive:  # nothing that was built before is in it
        archive.extractall(to, filter="data")
    (unpacked,) = to.iterdir()
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(to)]
    words += [f"--config-setting=--build-option=--plat-name={TAG}", str(unpacked)]
    tools = {"CC": cc, "LDSHARED": f"{cc} -shared"}  # without flags that zig has not
    told = run(of, words, env=tools | {"ZIG_GLOBAL_CACHE_DIR": str(KEPT / "zig" / "cache")})
    found = list(to.glob("*.whl"))
    if told.returncode != 0 or len(found) != 1:
        raise Wrong(f"Python {of.version}: not built\n{told.stdout}")
    checked(found[0], of.version)
    return Path(shutil.copy(found[0], out))


class Wrong(Exception):
    pass


def checked(path: Path, version: str) -> None:
    """That it has the C part and needs no more than its name says; raises Wrong."""
    python = f"cp{version.replace('.', '')}"
    if not path.name.endswith(f"-{python}-{python}-{TAG}.whl"):
        raise Wrong(f"{path.name}: expected the tag {python}-{python}-{TAG}")
    with zipfile.ZipFile(path) as archive:
        native = [n for n in archive.namelist() if n.endswith(".so")]
    if len(native) != 1:
        raise Wrong(f"{path.name} has {len(native)} compiled modules, expected one")
    audit = [sys.executable, "-m", "auditwheel", "show", str(path)]
    folder = {"PYTHONPATH": str(KEPT / "zig"), "PATH": "/usr/bin:/bin"}
    told = subprocess.run(audit, capture_output=True, text=True, env=folder)
    least = re.search(r'following\s+platform tag:\s+"(\w+)"', told.stdout)
    if least is None or not _allows(least[1]):
        raise Wrong(f"{path.name} needs more than {TAG}:\n{told.stdout}{told.stderr}")


def _allows(tag: str) -> bool:
    """A wheel of this tag runs with the glibc that is asked for."""
    found = re.fullmatch(r"manylinux_(\d+)_(\d+)_x86_64", tag)
    return found is not None and (int(found[1]), int(found[2])) <= GLIBC


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev wheels", description=__doc__.split("\n\n")[0])
    parser.add_argument("versions", nargs="*", help=f"of Python; default: {' '.join(SUPPORTED)}")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    wanted = arguments.versions or SUPPORTED
    found = interpreters(wanted)
    lacking = [v for v in wanted if v not in found]
    try:
        sources = source_distributions(arguments.out)
        for of in found.values():
            for source in sources:
                say(f"{wheel(of, source, arguments.out)}")
    except Wrong as wrong:
        say(str(wrong))
        return 1
    if lacking:
        say(f"no Python {', '.join(lacking)} on this machine: no wheel")
    return 0 if found and not (arguments.versions and lacking) else 1


if __name__ == "__main__":
    sys.exit(main())
