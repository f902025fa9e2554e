# SPDX-License-Identifier: Apache-2.0
"""Tests of the wheels under every supported Python but this one: `./dev test-pythons [VERSIONS]`.

And under this one with the oldest of what the package depends on (`lowest`). Each gets a wheel
(`tools.wheels`), an environment below `.pythons` with it and what it needs, and runs there: smoke,
the tests of what depends on an interpreter, README and tutorial. A table says what passed. Exit
status 1 if something failed, took too long, or no other Python was found.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from time import monotonic

from tools.interpreters import (
    ROOT,
    SUPPORTED,
    Interpreter,
    environment,
    install,
    interpreters,
    run,
    say,
)
from tools.wheels import Wrong, source_distributions, wheel

LOWEST = "lowest"
SECONDS = 480  # for the tests of all of them
NEEDED = (
    "pytest>=8",
    "pytest-timeout>=2.3",
    "hypothesis>=6.100",
    "setuptools>=77",
    "wheel",
    "build",
)
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
PAGES = ("README.md", "docs/tutorial.md")
BESIDE = ("tests", "tools", "benchmarks", "examples", "docs")  # what tests import or read


def steps() -> dict[str, list[str]]:
    """Words of the interpreter, by what they try."""
    pytest = ["-m", "pytest", "-p", "no:cacheprovider"]
    pages = {page: ["-m", "tests.pages", page] for page in PAGES}
    return {"smoke": [*pytest, "tests/test_smoke.py"], "run time": [*pytest, *TESTS], **pages}


def requirements(lowest: bool = False) -> list[str]:
    """lowest: the oldest series that are admitted."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [f"{x.replace('>=', '==')}.*" if lowest else x for x in project["dependencies"]]
    return [*needed, *NEEDED]


def tried(of: Interpreter, seconds: float) -> Mapping[str, str]:
    """What came of each step: seconds, or what was wrong. Output of what failed is printed."""
    told: dict[str, str] = {}
    end = monotonic() + seconds
    with TemporaryDirectory(dir=ROOT / ".pythons") as folder:
        for name in (*BESIDE, "pyproject.toml", "README.md", "dev"):
            Path(folder, name).symlink_to(ROOT / name)  # all but the package itself
        for name, words in steps().items():
            start = monotonic()
            given = {"PYTHONPATH": folder, "TCSYM_CACHE_DIR": f"{folder}/cache"}
            run_in = ["-c", _IN, folder, *words]
            try:
                done = run(of, run_in, env=given, timeout=max(1.0, end - start))
            except TimeoutExpired:
                told[name] = "too long"
                continue
            told[name] = f"{monotonic() - start:.0f} s" if done.returncode == 0 else "failed"
            if done.returncode:
                print(done.stdout, flush=True)
    return told


_IN = (
    "import os, sys; os.chdir(sys.argv[1]); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
)


def main() -> int:
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    others = sys.argv[1:] or [version for version in SUPPORTED if version != own]
    found = interpreters([version for version in others if version != LOWEST])
    if not found and others != [LOWEST]:
        say(f"no Python {', '.join(others)} on this machine, and none could be had")
        return 1
    if LOWEST in others or not sys.argv[1:]:
        found[LOWEST] = Interpreter(own, sys.executable, of=LOWEST)
    with TemporaryDirectory() as folder:
        try:
            sources = source_distributions(Path(folder))
            wheels = {
                v: [os.fspath(wheel(of, source, Path(folder))) for source in sources]
                for v, of in found.items()
            }
        except Wrong as wrong:
            say(str(wrong))
            return 1
        for v, of in found.items():
            environment(of, requirements(v == LOWEST))
            install(of, ["--no-deps", *wheels[v]])
    table, left = {}, float(SECONDS)
    for k, (version, of) in enumerate(found.items()):
        start = monotonic()
        table[version] = tried(of, left / (len(found) - k))
        left -= monotonic() - start
    for version in dict.fromkeys([*others, *table]):
        row = table.get(version)
        say(f"Python {version}: {_line(row) if row else 'none on this machine, not tested'}")
    return 0 if all(x[-1:] == "s" for row in table.values() for x in row.values()) else 1


def _line(row: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {said}" for name, said in row.items())


if __name__ == "__main__":
    sys.exit(main())
