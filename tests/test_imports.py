"""Modules of tcsym from one file: as Python would import them, and only while that holds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tcsym

PROBE = """
import json, sys
import numpy as np
import tcsym
from tcsym.imports import Finder, Loader
kernel = tcsym.define("def f(float(N) a) -> (b) { b(i) = a(i) + 1.0 }")
assert kernel(np.ones(3, np.float32)).tolist() == [2.0] * 3
import tcsym.sizes
from tcsym.runtime.background import settle
settle()
ours = [m for n, m in sys.modules.items() if n.startswith("tcsym.") and n != "tcsym.imports"]
print(json.dumps({
    "from the file": sum(isinstance(m.__loader__, Loader) for m in ours),
    "modules": len(ours),
    "missed": Finder.missed,
    "added": getattr(tcsym.sizes, "ADDED", None),
    "attributes": {m.__name__: [m.__file__, m.__cached__, m.__package__, m.__spec__.origin,
        getattr(m, "__path__", None), m.__loader__.get_filename(m.__name__)] for m in ours},
    "code": tcsym.sizes.Dim.contains.__code__.co_filename if hasattr(tcsym.sizes.Dim, "contains")
        else tcsym.sizes.size_value.__code__.co_filename,
}))
"""


def run(copy: Path, **environment: str) -> Any:
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    cache = str(copy.parent / "cache")
    given = {**inherited, "PYTHONPATH": str(copy), "TCSYM_CACHE_DIR": cache, **environment}
    shutil.rmtree(cache, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=given, cwd=copy.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """An installation of its own: without any compiled file."""
    root = tmp_path / "installed"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(tcsym.__file__).parent, root / "tcsym", ignore=ignored)
    return root


def files(copy: Path) -> list[Path]:
    return sorted((copy / "tcsym" / "__pycache__").glob("imports*-all*"))


def test_first_processes_write_what_later_ones_read(copy: Path) -> None:
    first = run(copy)
    assert (first["from the file"], first["missed"]) == (0, False)  # written, so none is missing
    assert len(files(copy)) == 1
    second = run(copy)
    assert second["from the file"] == second["modules"] == first["modules"]
    assert second["attributes"] == first["attributes"]
    assert second["code"] == first["code"] == str(copy / "tcsym" / "sizes.py")


def test_code_knows_its_file_whatever_name_it_was_compiled_under(copy: Path) -> None:
    compiled = [sys.executable, "-m", "compileall", "-q", "tcsym"]  # as tcsym/sizes.py
    subprocess.run(compiled, cwd=copy, check=True)
    for _ in range(2):
        assert run(copy)["code"] == str(copy / "tcsym" / "sizes.py")


def test_a_changed_source_is_imported_by_python(copy: Path) -> None:
    run(copy)
    run(copy)
    source = copy / "tcsym" / "sizes.py"
    source.write_text(source.read_text() + "\nADDED = 5\n")
    changed = run(copy)
    assert changed["added"] == 5
    assert changed["from the file"] == changed["modules"] - 1
    again = run(copy)
    assert (again["added"], again["from the file"]) == (5, again["modules"])


def test_damage_moves_and_bans_leave_it_to_python(copy: Path) -> None:
    run(copy, PYTHONDONTWRITEBYTECODE="1")
    assert files(copy) == []
    run(copy)
    (file,) = files(copy)
    whole = file.read_bytes()
    for content in (b"", whole[:5], whole[:2000], b"\xff" * 1000):
        file.write_bytes(content)
        assert run(copy, PYTHONDONTWRITEBYTECODE="1")["from the file"] == 0
    index = 8 + int.from_bytes(whole[:8], "little")
    file.write_bytes(whole[:index] + bytes(len(whole) - index))  # all code is damaged
    os.utime(file)
    damaged = run(copy, PYTHONDONTWRITEBYTECODE="1")
    assert damaged["from the file"] == damaged["modules"]  # found there, made from Python's files
    file.write_bytes(whole)
    moved = copy.parent / "moved"
    shutil.copytree(copy, moved)
    at = run(moved, PYTHONDONTWRITEBYTECODE="1")
    assert at["from the file"] == 0
    assert at["code"] == str(moved / "tcsym" / "sizes.py")


def test_a_directory_that_cannot_be_written_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tcsym import imports

    monkeypatch.setattr(imports, "_path", lambda: str(tmp_path / "none" / "imports.py-all"))
    imports.renew()
    assert list(tmp_path.iterdir()) == []
