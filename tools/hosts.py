# SPDX-License-Identifier: Apache-2.0
"""Tests that need torch, JAX, Dask's workers or xarray: `./dev test-hosts [pytest's arguments]`.

They run in an environment under `.hosts`, which is made once and has all of them, for processors.
The last lines say what was skipped and why. Exit status 1 if a test failed, if none ran, or if one
was skipped.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.setup import requirements

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ROOT / ".hosts"
EXTRAS = "-e", ".[dev,demo,jax,dask,xarray]", "flatbuffers"  # the last for JAX's exported functions
SECONDS = 1200  # three times what it takes; what hangs ends
MARKS = "host and not slow"
_XDIST = "-n", "auto", "--dist", "worksteal"


def wanted() -> list[str]:
    """Words for pip."""
    return [*EXTRAS, *requirements()["torch"]]


def environment() -> str:
    """The interpreter of the environment, which has what is wanted now."""
    python, mark = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "installed"
    words = wanted()
    told = "\n".join([*words, (ROOT / "pyproject.toml").read_text()])
    if not mark.exists() or mark.read_text() != told:
        say(f"installing torch, JAX, Dask and xarray into {ENVIRONMENT.name}: some minutes, once")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *words], cwd=ROOT, check=True)
        mark.write_text(told)
    return str(python)


def outcome(record: Path) -> tuple[int, Counter[str]]:
    """How many tests ran, and how many were skipped, by reason. record: of pytest, JUnit's XML."""
    ran, skipped = 0, dict[tuple[str | None, str | None], str]()
    for case in ElementTree.parse(record).getroot().iter("testcase"):
        found = case.find("skipped")
        if found is None:
            ran += 1
        else:  # every worker tells of a module that is skipped as a whole
            reason = found.get("message") or ""
            if "collection skipped" in reason:
                reason = (found.text or "").rpartition("Skipped: ")[2].strip("')\" \n")
            skipped[case.get("classname"), case.get("name")] = reason
    return ran, Counter(skipped.values())


def told(ran: int, skipped: Counter[str]) -> list[str]:
    """The closing lines."""
    n = sum(skipped.values())
    lines = [f"{ran} tests with torch, JAX, Dask and xarray ran, {n} were skipped"]
    lines += [f"skipped: {reason} ({count})" for reason, count in skipped.most_common()]
    return lines


def status(code: int, ran: int, skipped: Counter[str]) -> int:
    """Of the task, from that of pytest."""
    if skipped:
        say("nothing may be skipped here")
    return code or int(bool(skipped) or not ran)


def main(arguments: list[str]) -> int:
    python = environment()
    record = ENVIRONMENT / "tests.xml"
    record.unlink(missing_ok=True)
    given = ["-m", MARKS, f"--junitxml={record}", *_XDIST, *arguments]
    try:
        done = subprocess.run([python, "-m", "pytest", *given], cwd=ROOT, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        say(f"not done after {SECONDS} s")
        return 1
    if not record.exists():
        return done.returncode or 1
    ran, skipped = outcome(record)
    for line in told(ran, skipped):
        say(line)
    return status(done.returncode, ran, skipped)


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
