# SPDX-License-Identifier: Apache-2.0
"""What `./dev test-hosts` takes, and what it says of tests that are skipped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.hosts import HOSTS
from tools import hosts

ROOT = hosts.ROOT
TEST = """
import pytest
from tests.hosts import host

def test_runs(): pass

def test_lacks_something(): pytest.skip("no such processor")

@pytest.mark.host
def test_of_a_host(): pass

def test_with_a_fixture({fixture}): pass
"""


def run_in(folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    plugins = "-p", "tests.hosts", "-p", "no:cacheprovider", "-p", "no:xdist"
    options = "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), *plugins, *given
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Of a run with a test that lacks something, and a module left out."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "test_some.py").write_text(TEST.format(fixture=HOSTS[0]))
    (folder / "test_all.py").write_text(
        "import pytest\npytest.skip('no compiler', allow_module_level=True)\n"
    )
    made = tmp_path / "tests.xml"
    done = run_in(folder, "-m", "", f"--junitxml={made}", "-k", "not fixture")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def test_what_was_skipped_is_counted_by_reason(record: Path) -> None:
    ran, skipped = hosts.outcome(record)
    assert ran == 2
    assert skipped == {"no such processor": 1, "no compiler": 1}
    first, *lines = hosts.told(ran, skipped)
    assert first == "2 tests with torch, JAX, Dask and xarray ran, 2 were skipped"
    assert set(lines) == {f"skipped: {reason} (1)" for reason in skipped}


@pytest.mark.parametrize(
    ("code", "ran", "skipped", "expected"),
    [
        (0, 9, {}, 0),
        (0, 9, {"torch is not installed": 1}, 1),
        (0, 0, {}, 1),
        (5, 0, {}, 5),
        (1, 9, {}, 1),
    ],
)
def test_nothing_may_be_lacking(
    code: int, ran: int, skipped: dict[str, int], expected: int
) -> None:
    assert hosts.status(code, ran, Counter(skipped)) == expected


def test_tests_of_hosts_are_marked(tmp_path: Path) -> None:
    """By what they say, the fixtures they take, and the libraries of their module."""
    (tmp_path / "test_some.py").write_text(TEST.format(fixture=HOSTS[0]))
    for name in HOSTS:  # a stand-in: the mark is of the module's name
        (tmp_path / f"test_of_{name}.py").write_text(
            f"import sys, types\n{name} = types.ModuleType({name!r})\ndef test_here(): pass\n"
        )
    done = run_in(tmp_path, "-m", "host", "--collect-only")
    found = set(re.findall(r"^(test_\w+\.py::\w+)$", done.stdout, re.M))
    own = {"test_some.py::test_of_a_host", "test_some.py::test_with_a_fixture"}
    assert found == own | {f"test_of_{name}.py::test_here" for name in HOSTS}, done.stdout


def test_tests_take_hosts_from_one_place() -> None:
    """Else `./dev test-hosts` would leave them out without a word."""
    taken = re.compile(rf"importorskip\(\s*\"({'|'.join(HOSTS)})\"")
    for path in (ROOT / "tests").rglob("*.py"):
        assert not taken.search(path.read_text()), path


def test_the_environment_is_of_processors() -> None:
    """The range that brings no CUDA is said once."""
    from benchmarks.setup import requirements

    words = hosts.wanted()
    assert set(requirements()["torch"]) < set(words)
    assert not [word for word in words if "cuda" in word]
