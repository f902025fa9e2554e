# SPDX-License-Identifier: Apache-2.0
"""Interpreters of every supported Python: those here, and those of a newer Debian in a chroot.

On PATH and in the folders of pyenv and uv first. What is not there comes from Debian's packages,
into `.pythons/debian` by `mmdebstrap`, once; to run there one has to be root.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / ".pythons"
SUPPORTED = ("3.11", "3.12", "3.13", "3.14", "3.15")
SUITE, OFFERED = "sid", ("3.13", "3.14", "3.15")  # of Debian; and what it has
_PROBE = (
    "import sys, sysconfig, venv; "
    "print('%d.%d' % sys.version_info[:2] if sys.implementation.name == 'cpython' "
    "and not sysconfig.get_config_var('Py_GIL_DISABLED') else '')"
)
# The root, the checkout, a command: run there, where the checkout has the place that it has here.
_INSIDE = """
mkdir -p "$1$2"
mount --bind "$2" "$1$2"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
root=$1 at=$2
shift 2
exec chroot "$root" env --chdir "$at" "$@"
"""


class Interpreter(NamedTuple):
    """`path`: where it is, below `root` if it has one of its own. `of`: what its environment is
    called that is not the usual one of this version."""

    version: str
    path: str
    root: Path | None = None
    of: str = ""

    @property
    def folder(self) -> Path:
        """Of its environment."""
        return KEPT / (self.of or self.version)

    def command(self, words: Iterable[str], python: str = "") -> list[str]:
        """The words of a command that runs it, or `python`, an environment's, in the checkout."""
        words = [python or self.path, *words]
        if self.root is None:
            return words
        inside = ["unshare", "--mount", "sh", "-euc", _INSIDE, "sh"]
        return [*inside, str(self.root), str(ROOT), *words]


def interpreters(versions: Iterable[str]) -> dict[str, Interpreter]:
    """Those that there are, by version; of a newer Debian, if that is there or can be had."""
    wanted = list(versions)
    found = {v: Interpreter(v, path) for v in wanted if (path := interpreter(v))}
    lacking = [v for v in wanted if v not in found and v in OFFERED]
    if lacking and (root := debian()) is not None:
        found |= {v: Interpreter(v, f"/usr/bin/python{v}", root) for v in lacking}
    return found


def candidates(version: str) -> list[str]:
    """Where an interpreter of this version may be, the preferred one first."""
    found = shutil.which(f"python{version}")
    home = os.path.expanduser("~")
    pyenv = os.environ.get("PYENV_ROOT") or f"{home}/.pyenv"
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or f"{home}/.local/share/uv/python"
    managed = [f"{pyenv}/versions/{version}.*", f"{uv}/cpython-{version}.*"]
    kept = [path for pattern in managed for path in sorted(glob.glob(pattern), reverse=True)]
    return [*([found] if found else []), *(f"{path}/bin/python{version}" for path in kept)]


def interpreter(version: str) -> str | None:
    """The first candidate that is what it is called."""
    for path in candidates(version):
        try:
            told = subprocess.run([path, "-c", _PROBE], capture_output=True, text=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if told.returncode == 0 and told.stdout.strip() == version:
            return path
    return None


def debian() -> Path | None:
    """The root of a system that has the Pythons of `OFFERED`, made if it is not there."""
    root, mark = KEPT / "debian", KEPT / "debian.made"
    wanted = " ".join([SUITE, *OFFERED])
    if mark.exists() and mark.read_text() == wanted:
        return root
    if os.geteuid() != 0:
        say("interpreters of a newer Debian need root, who may mount and change the root")
        return None
    if not shutil.which("mmdebstrap"):
        if not shutil.which("apt-get"):
            say("no mmdebstrap, and no apt-get to install it")
            return None
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-qq", "-y", "mmdebstrap"], check=True)
    say(f"unpacking Python {', '.join(OFFERED)} of Debian {SUITE}: some minutes, once")
    shutil.rmtree(root, ignore_errors=True)
    KEPT.mkdir(exist_ok=True)
    packages = ",".join(f"python{v}-{part}" for v in OFFERED for part in ("venv", "dev"))
    options = ["--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"']
    made = ["mmdebstrap", "--quiet", *options, f"--include={packages}", SUITE, str(root)]
    subprocess.run(made, check=True)
    mark.write_text(wanted)
    return root


def environment(of: Interpreter, packages: Iterable[str]) -> str:
    """The interpreter of an environment below `.pythons` that has these packages.

    They are installed from here, so that a root of its own needs no network.
    """
    folder = of.folder
    python, mark = folder / "bin" / "python", folder / "installed"
    words = list(packages)
    if mark.exists() and mark.read_text() == "\n".join(words):
        return str(python)
    say(f"Python {of.version}: installing what it needs")
    plain = ["-m", "venv", "--clear", "--without-pip", str(folder)]
    subprocess.run(of.command(plain), check=True)
    install(of, words)
    mark.write_text("\n".join(words))
    return str(python)


def install(of: Interpreter, words: Iterable[str]) -> None:
    """Into the environment of an interpreter that may not run here: wheels for its version."""
    to = of.folder / "lib" / f"python{of.version}" / "site-packages"
    glibcs = [f"manylinux_2_{k}_x86_64" for k in range(28, 4, -1)]
    tags = [*glibcs, "manylinux2014_x86_64", "linux_x86_64"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--upgrade", "--target", str(to), "--only-binary=:all:", "--implementation", "cp"]
    pip.append("--ignore-requires-python")  # which older pips compare with their own
    pip += ["--python-version", of.version, "--abi", f"cp{of.version.replace('.', '')}"]
    pip += ["--abi", "abi3", "--abi", "none", *(w for t in tags for w in ("--platform", t))]
    subprocess.run([*pip, *words], check=True)


def run(
    of: Interpreter, words: Iterable[str], env: Mapping[str, str], timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """A command of an environment's interpreter, in the checkout; output is kept."""
    python = str(of.folder / "bin" / "python")
    return subprocess.run(
        of.command(words, python),
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)
