"""Run-time tests under every other supported Python that this machine has: `./dev test-pythons`.

Looks on PATH and in the folders of pyenv and uv. Each gets an environment under `.pythons`, once.
Exit status 1 if tests fail or take too long under one; missing ones are named and no failure.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
SECONDS = 480  # for the tests of all of them
NEEDED = ("pytest>=8", "hypothesis>=6.100", "setuptools>=77")
# What depends on the inside of an interpreter: objects that native code reads, forks, threads.
TESTS = (
    "tests/process/test_forks.py",
    "tests/process/test_threads.py",
    "tests/process/test_recursion.py",
    "tests/runtime/test_background.py",
    "tests/runtime/test_call_entry.py",
    "tests/runtime/test_calls.py",
    "tests/runtime/test_entries.py",
    "tests/runtime/test_pool.py",
    "tests/dispatch/test_adaptive.py::test_forks",
    "tests/dispatch/test_preferred.py::test_forks_while_ways_are_measured",
)
_PROBE = (
    "import sys, sysconfig, venv; "
    "print('%d.%d' % sys.version_info[:2] if sys.implementation.name == 'cpython' "
    "and not sysconfig.get_config_var('Py_GIL_DISABLED') else '')"
)


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


def environment(version: str, base: str) -> str:
    """The interpreter of an environment that has what the tests need."""
    folder = ROOT / ".pythons" / version
    python, mark = str(folder / "bin" / "python"), folder / "installed"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *NEEDED]
    if not mark.exists() or mark.read_text() != "\n".join(wanted):
        say(f"making an environment with {base}")
        subprocess.run([base, "-m", "venv", "--clear", str(folder)], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, *wanted], check=True)
        mark.write_text("\n".join(wanted))
    return python


def passes(version: str, python: str, seconds: float) -> bool:
    """True if the tests pass in time."""
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", *TESTS]
    start = monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        say(f"Python {version}: not done after {seconds:.0f} s")
        return False
    say(f"Python {version}: status {done.returncode} after {monotonic() - start:.0f} s")
    return done.returncode == 0


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


def main() -> int:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    others = [version for version in SUPPORTED if version != own]
    found = {version: path for version in others if (path := interpreter(version))}
    for version in others:
        if version not in found:
            say(f"Python {version}: none on this machine, not tested")
    pythons = {version: environment(version, path) for version, path in found.items()}
    left, good = float(SECONDS), True
    for k, (version, python) in enumerate(pythons.items()):
        start = monotonic()
        good &= passes(version, python, left / (len(pythons) - k))
        left -= monotonic() - start
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
