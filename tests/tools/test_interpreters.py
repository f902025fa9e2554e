# SPDX-License-Identifier: Apache-2.0
"""Which interpreters `./dev wheels` and `./dev test-pythons` take, and what they try there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import interpreters as tool
from tools.other_pythons import PAGES, TESTS, requirements
from tools.wheels import TAG, Wrong, checked

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine where only what a test puts under `tmp_path` is found."""
    for name, folder in (("PATH", "bin"), ("PYENV_ROOT", "pyenv"), ("UV_PYTHON_INSTALL_DIR", "uv")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setattr(tool, "debian", lambda: None)


def put(path: Path, told: str) -> str:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{told}'\n")
    path.chmod(0o755)
    return str(path)


def test_interpreters_are_found_on_the_path_and_in_folders_of_managers(tmp_path: Path) -> None:
    assert tool.interpreter("3.12") is None
    uv = put(tmp_path / "uv" / "cpython-3.12.4-linux" / "bin" / "python3.12", "3.12")
    assert tool.interpreter("3.12") == uv
    pyenv = put(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python3.12", "3.12")
    assert tool.interpreter("3.12") == pyenv
    on_path = put(tmp_path / "bin" / "python3.12", "3.12")
    assert tool.interpreter("3.12") == on_path
    assert tool.interpreter("3.13") is None


def test_what_is_no_such_interpreter_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "bin" / "python3.13", "")  # another implementation, or free-threaded
    right = put(tmp_path / "uv" / "cpython-3.13.0" / "bin" / "python3.13", "3.13")
    assert tool.interpreter("3.13") == right


def test_the_probe_tells_the_version() -> None:
    told = subprocess.run([sys.executable, "-c", tool._PROBE], capture_output=True, text=True)
    assert told.stdout.strip() == f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_what_is_not_here_is_of_a_newer_debian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = put(tmp_path / "bin" / "python3.13", "3.13")
    assert tool.interpreters(["3.12", "3.13", "3.14"]) == {"3.13": tool.Interpreter("3.13", here)}
    monkeypatch.setattr(tool, "debian", lambda: tmp_path)
    found = tool.interpreters(["3.12", "3.13", "3.14"])
    assert found.keys() == {"3.13", "3.14"} and found["3.13"].root is None
    command = found["3.14"].command(["-c", "pass"])
    assert command[:2] == ["unshare", "--mount"]
    assert command[-4:] == [str(tool.ROOT), "/usr/bin/python3.14", "-c", "pass"]


def test_its_tests_and_pages_exist() -> None:
    for name in TESTS:
        file, _, test = name.partition("::")
        assert not test or f"def {test}(" in (ROOT / file).read_text()
        assert (ROOT / file).is_file()
    assert all((ROOT / page).is_file() for page in PAGES)
    assert any(x.startswith("numpy>=") for x in requirements())
    assert any(x.startswith("numpy==") for x in requirements(lowest=True))


def test_a_wheel_of_another_tag_is_refused(tmp_path: Path) -> None:
    for name in (f"tcsym-0.1.0-cp313-cp313-{TAG}", "tcsym-0.1.0-py3-none-any"):
        with pytest.raises(Wrong, match="expected the tag cp314-cp314-"):
            checked(tmp_path / f"{name}.whl", "3.14")
