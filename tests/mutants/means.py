# SPDX-License-Identifier: Apache-2.0
"""How a planted bug may be found: commands that fail where it is, within two minutes each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from tests.mutants.model import ROOT, Mutant, Place, place_of
from tests.mutants.reach import Ways, marked
from tests.mutants.table import MUTANTS

MEANS = ("proofs", "twin", "differential", "fuzz")
COPIED = ("setup.py", "tcsym", "tests", "pyproject.toml")
_running: set[subprocess.Popen[bytes]] = set()
GRACE = 90  # seconds that a run may take to end by itself


class Outcome(Struct, frozen=True):
    """`how`: the last words of the run that found the bug."""

    caught: bool
    seconds: float
    how: str = ""


@contextmanager
def planted(mutant: Mutant | None) -> Iterator[tuple[Path, Place | None]]:
    """A copy of the package and its tests, with the bug in it (None: as they are)."""
    place = None if mutant is None else place_of(mutant)
    directory = Path(tempfile.mkdtemp(prefix="tcsym-mutant-"))
    try:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, directory / name)
            else:
                shutil.copy2(source, directory / name)
        if place is not None:
            (directory / place.path).write_text(place.text)
        yield directory, place
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def reached(programs: int) -> dict[str, Ways]:
    """For each mutant, the ways of the fuzzer's first programs that run the code it changes."""
    with planted(None) as (directory, _):
        for path, text in marked(MUTANTS).items():
            (directory / path).write_text(text)
        file = directory / "reached.json"
        command = [sys.executable, "-m", "tests.mutants.reach", str(file)]
        code, words = _run([*command, "--programs", str(programs)], directory, 7200)
        if code != 0:
            raise RuntimeError(words)
        found: dict[str, Ways] = json.loads(file.read_text())
        return found


class Limits(Struct, frozen=True):
    """Of each means: seconds, and for the fuzzer, if given, so many programs, or only these."""

    seconds: float
    programs: int = 0
    ways: Ways | None = None


def tried(means: str, directory: Path, place: Place | None, limits: Limits) -> Outcome:
    """What the means says of the copy."""
    begin = time.monotonic()
    for command in _commands(means, directory, place, limits):
        within = limits.seconds
        if means == "fuzz":
            is_counted = limits.programs or limits.ways is not None
            within = 3600 if is_counted else limits.seconds + GRACE
        code, words = _run(command, directory, within)
        if code is not None and code != 0:
            return Outcome(True, time.monotonic() - begin, f"exit {code}: {words}")
    return Outcome(False, time.monotonic() - begin)


def _commands(
    means: str, directory: Path, place: Place | None, limits: Limits
) -> Iterator[list[str]]:
    python = [sys.executable, "-m"]
    on_device = place is not None and ("device" in place.path or "map_gpu" in place.path)
    if means == "proofs" and on_device:
        yield [*python, "tests.mutants.twin", "--proofs"]
    elif means == "proofs":
        yield [*python, "tests.mutants.proofs"]
    elif means == "twin":
        yield [*python, "tests.mutants.twin"]
    elif means == "fuzz":
        limit = ["--minutes", f"{limits.seconds / 60:g}"]
        if limits.programs:
            limit = ["--minutes", "60", "--programs", str(limits.programs)]
        if limits.ways is not None:
            file = directory / "ways.json"
            file.write_text(json.dumps(limits.ways))
            limit = ["--minutes", "60", "--ways", str(file)]
        if on_device:
            limit += ["--modes", "cuda:twin"]
        yield [*python, "tests.fuzz", *limit, "--fail-fast", "--no-reduce"]
    else:
        options = ["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
        for paths in (_own_tests(directory, place), ["tests/differential"]):
            if paths:
                yield [*python, "pytest", *options, *paths]


def _own_tests(directory: Path, place: Place | None) -> list[str]:
    """Those of the changed file, its folder, all that use it, its part; of the whole, of calls."""
    if place is None:
        return ["tests/dispatch", "tests/runtime"]
    folder, stem = Path("tests", *Path(place.path).parent.parts[1:]), Path(place.path).stem
    while not (directory / folder).exists():
        folder = folder.parent
    found = [folder / f"test_{stem}.py", folder, *_users(directory, place), Path(*folder.parts[:2])]
    if folder == Path("tests"):
        found = [folder / f"test_{stem}.py", folder / "dispatch", folder / "runtime"]
    return [str(x) for x in dict.fromkeys(found) if (directory / x).exists()]


def _users(directory: Path, place: Place) -> list[Path]:
    """Tests that import the changed file; the fuzzer's are another means."""
    module = ".".join(Path(place.path).with_suffix("").parts)
    tests = sorted((directory / "tests").rglob("test_*.py"))
    found = [x.relative_to(directory) for x in tests if f"from {module} import" in x.read_text()]
    return [x for x in found if x.parts[1] not in ("fuzz", "mutants")]


def _run(command: Sequence[str], directory: Path, seconds: float) -> tuple[int | None, str]:
    """Exit code, None if it ran out of time, and the last line of what it said."""
    cache = directory / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    environment = {**os.environ, "PYTHONPATH": str(directory), "TCSYM_CACHE_DIR": str(cache)}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _running.add(process)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
        said.seek(0)
        return code, _last_words(said.read())


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process and what it started."""
    _running.discard(process)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_all() -> None:
    """What is still running, of all threads."""
    for process in tuple(_running):
        _end(process)


def _last_words(text: str) -> str:
    """The line that says what failed, of the fuzzer's or pytest's output; else the last."""
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    told = [x for x in lines if x.startswith(("====", "FAILED", "ERROR", "E  ", "Fatal"))]
    return (told or lines or [""])[0 if told else -1][:200]
