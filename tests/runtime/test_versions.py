# SPDX-License-Identifier: Apache-2.0
"""Keys of what is kept: they change with everything that shapes generated code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tcsym.options import Options
from tcsym.runtime import versions as versions_module
from tcsym.runtime.cache import CodeCache, _cache_at
from tcsym.runtime.versions import code_key, compiler_version
from tests.targets import target_of, with_level

TARGET = target_of("novector")


def test_key_changes_with_everything_that_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    base = ("def f", TARGET, Options(), {"N": 3}, ("dense", "any"))
    others = [
        ("def g", *base[1:]),
        (base[0], replace(TARGET, features=("avx",)), *base[2:]),
        (base[0], replace(TARGET, machine=with_level(TARGET.machine, "l2", 1)), *base[2:]),
        (*base[:2], Options(parallelize=False), *base[3:]),
        (*base[:3], {"N": 4}, base[4]),
        (*base[:3], {}, base[4]),
        (*base[:4], ("dense", "dense")),
    ]
    keys = [code_key(*facts) for facts in [base, *others]]  # type: ignore[arg-type]
    assert code_key(*base) == keys[0]
    monkeypatch.setattr(versions_module, "compiler_version", lambda: "other")
    keys.append(code_key(*base))
    assert len(set(keys)) == len(keys)


def test_compiler_version_names_the_compilers() -> None:
    assert "llvmlite-" in compiler_version()
    json.dumps(compiler_version())


def test_what_compiles_is_in_the_version() -> None:
    """Nothing above the compiler is loaded when it compiles: its state need not be in keys."""
    code = (
        "from tcsym.compiler import analyse, compile_program; from tcsym.options import Options;"
        "from tcsym.target.names import resolve_target; import sys;"
        "target = resolve_target('cpu');"
        "program = analyse('def f(float(N) A) -> (C) { C(i) = A(i) }')['f'];"
        "compile_program(program, target, Options(), {}, ('dense', 'dense'));"
        "print(*{m.split('.')[1] for m in sys.modules if m.startswith('tcsym.')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "codegen" in loaded
    assert not loaded & versions_module._ABOVE


# ---- the compiler's sources


def version_in(copy: Path, whole: bool = False) -> str:
    """What a process says that runs this copy of the package, without compiled files of Python."""
    name = "whole_version" if whole else "compiler_version"
    code = f"from tcsym.runtime import versions as v; print(v.__file__, v.{name}())"
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file, _, version = done.stdout.partition(" ")
    assert file.startswith(str(copy))
    return version


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package whose sources have all one time, as builds make them."""
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "cache"))
    package = Path(versions_module.ROOT)
    made = tmp_path / "copy" / "tcsym"
    shutil.copytree(package, made, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (made, *made.rglob("*")):
        os.utime(path, (10**9, 10**9))
    return made.parent


def changed(copy: Path, place: str) -> None:
    """Another content of the same length, at the same time."""
    path = copy / "tcsym" / place
    text = path.read_text()
    path.write_text(text.replace("a", "e", 1))
    os.utime(path, (10**9, 10**9))


def settled(copy: Path) -> None:
    """Some time later. (The next process keeps the digests of the sources.)"""
    time.sleep(2.1)


@pytest.mark.parametrize("kept", [False, True])
def test_a_changed_source_of_the_same_length_and_time_is_another_version(
    copy: Path, kept: bool
) -> None:
    if kept:
        settled(copy)
    before, whole = version_in(copy), version_in(copy, whole=True)
    assert version_in(copy) == before
    assert len(list((copy.parent / "cache" / "code").glob("*.tco"))) == int(kept)
    changed(copy, "codegen/__init__.py")
    assert version_in(copy) != before
    assert version_in(copy, whole=True) != whole


def test_the_same_sources_elsewhere_are_the_same_version(copy: Path, tmp_path: Path) -> None:
    shutil.copytree(copy / "tcsym", tmp_path / "another" / "tcsym")  # at other times
    assert version_in(tmp_path / "another") == version_in(copy)


def test_sources_above_the_compiler_do_not_count_for_its_code(copy: Path) -> None:
    before, whole = version_in(copy), version_in(copy, whole=True)
    changed(copy, "dispatch/stand_ins.py")
    assert version_in(copy) == before
    assert version_in(copy, whole=True) != whole


def test_another_record_of_a_wheel_is_read_anew(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files have no time of their last change, as in some read-only file systems."""
    monkeypatch.setattr(versions_module, "ROOT", str(copy / "tcsym"))
    monkeypatch.setattr(versions_module, "_SETTLED_SECONDS", -1.0)
    _cache_at.cache_clear()
    read: list[int] = []
    digests = versions_module._read_digests

    def counted(paths: list[str]) -> tuple[str, str]:
        read.append(len(paths))
        return digests(paths)

    monkeypatch.setattr(versions_module, "_read_digests", counted)
    for record in (b"one", b"one", b"two"):
        monkeypatch.setattr(versions_module, "record", lambda *_, given=record: given)
        versions_module._digests()
    assert len(read) == 2 and read[0] == read[1] > 100


def test_kept_digests_of_another_form_are_read_anew(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions_module, "ROOT", str(copy / "tcsym"))
    monkeypatch.setattr(versions_module, "_SETTLED_SECONDS", -1.0)
    _cache_at.cache_clear()
    good = versions_module._digests()
    (path,) = (copy.parent / "cache" / "code").iterdir()
    for content in (b"", b"\xff", b"one two three"):
        CodeCache.default().write(path.stem, {}, content)
        assert versions_module._digests() == good
