"""Which interpreters `./dev test-pythons` takes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "other_pythons.py"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tool, on a machine where only what a test puts under `tmp_path` is found."""
    spec = importlib.util.spec_from_file_location("other_pythons", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, folder in (("PATH", "bin"), ("PYENV_ROOT", "pyenv"), ("UV_PYTHON_INSTALL_DIR", "uv")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return module


def put(path: Path, told: str) -> str:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{told}'\n")
    path.chmod(0o755)
    return str(path)


def test_interpreters_are_found_on_the_path_and_in_folders_of_managers(
    tool: Any, tmp_path: Path
) -> None:
    assert tool.interpreter("3.12") is None
    uv = put(tmp_path / "uv" / "cpython-3.12.4-linux" / "bin" / "python3.12", "3.12")
    assert tool.interpreter("3.12") == uv
    pyenv = put(tmp_path / "pyenv" / "versions" / "3.12.1" / "bin" / "python3.12", "3.12")
    assert tool.interpreter("3.12") == pyenv
    on_path = put(tmp_path / "bin" / "python3.12", "3.12")
    assert tool.interpreter("3.12") == on_path
    assert tool.interpreter("3.13") is None


def test_what_is_no_such_interpreter_is_passed_over(tool: Any, tmp_path: Path) -> None:
    put(tmp_path / "bin" / "python3.13", "")  # another implementation, or free-threaded
    right = put(tmp_path / "uv" / "cpython-3.13.0" / "bin" / "python3.13", "3.13")
    assert tool.interpreter("3.13") == right


def test_the_probe_tells_the_version(tool: Any) -> None:
    import subprocess

    told = subprocess.run([sys.executable, "-c", tool._PROBE], capture_output=True, text=True)
    assert told.stdout.strip() == f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_its_tests_exist(tool: Any) -> None:
    for name in tool.TESTS:
        file, _, test = name.partition("::")
        assert not test or f"def {test}(" in (TOOL.parents[1] / file).read_text()
        assert (TOOL.parents[1] / file).is_file()
