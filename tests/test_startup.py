# SPDX-License-Identifier: Apache-2.0
"""A second process runs without the compiler: neither llvmlite nor islpy nor lark is loaded."""

from __future__ import annotations

import json
import marshal
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym import compiler as compiler_module
from tcsym.compiler import analyse
from tcsym.kernel.analysed import analysed
from tcsym.runtime import processor as processor_module
from tcsym.runtime.cache import CodeCache, _cache_at
from tcsym.runtime.processor import known_processor
from tcsym.target import host as host_module
from tcsym.target.host import Processor, processor

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
HEAVY = ("llvmlite", "islpy", "lark", "msgspec", "ml_dtypes", "rich", "click")
PROBE = f"""
import json, sys
import numpy as np
import tcsym
kernel = tcsym.define({MM!r}).mm
result = kernel(np.ones((5, 6), np.float32), np.ones((6, 7), np.float32))
from tcsym.runtime.background import settle
settle()
again = kernel(np.ones((5, 6), np.float32), np.ones((6, 7), np.float32))
assert (result == 6).all() and (again == 6).all()
print(json.dumps([
    [m for m in {HEAVY} if m in sys.modules],
    kernel.stats.compilations,
    kernel.explain("program"),
    kernel._entry == kernel._checked_call,
]))
"""


def run_probe(directory: Path) -> Any:
    environment = {**os.environ, "TCSYM_CACHE_DIR": str(directory), "TCSYM_VERIFY": "0"}
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_warm_process_loads_no_compiler(tmp_path: Path) -> None:
    loaded, compilations, text, is_slow = run_probe(tmp_path)
    assert {"llvmlite", "islpy", "lark"} <= set(loaded)
    assert (compilations, is_slow) == (1, False)
    assert run_probe(tmp_path) == [[], 0, text, False]


def test_warm_process_survives_damage(tmp_path: Path) -> None:
    first = run_probe(tmp_path)
    for path in (tmp_path / "code").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert run_probe(tmp_path) == first


MODULES = """
import sys, threading
import numpy as np
before = set(sys.modules)
threading.Thread.start = lambda self: None  # work beside the caller comes after the first result
import tcsym
kernel = tcsym.define(%r).mm
kernel(np.ones((5, 6), np.float32), np.ones((6, 7), np.float32))
print(*sorted(set(sys.modules) - before))
"""
STANDARD = [
    "__future__",
    "_blake2",
    "_string",
    "atexit",
    "errno",
    "logging",  # with three of these: its hook at forks is to be there before ours
    "mmap",
    "string",
    "threading",  # of the probe
    "traceback",
]
WARM = {
    "": "",
    "ir": "archive",
    "kernel": "definition differentiable in_torch kernel module ready registry",
    "process": "config forks outside_graphs system threads",
    "runtime": (
        "_native arena cache digest entering kernel_code loader memory native packages packing "
        "pool private processor switch versions"
    ),
    "target": "caches",
}


def test_warm_process_loads_these_modules_only(tmp_path: Path) -> None:
    """Each takes a third of a millisecond or more: one that is new here must be worth it."""
    run_probe(tmp_path)
    environment = {**os.environ, "TCSYM_CACHE_DIR": str(tmp_path), "TCSYM_VERIFY": "0"}
    command = [sys.executable, "-c", MODULES % MM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    own = {m for m in loaded if m.startswith("tcsym")}
    assert own == {
        ".".join(filter(None, ("tcsym", package, name)))
        for package, names in WARM.items()
        for name in ["", *names.split()]
    }
    assert {m for m in loaded if m not in own} <= set(STANDARD)


# ---- programs


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodeCache:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    monkeypatch.setenv("TCSYM_VERIFY", "0")
    _cache_at.cache_clear()
    return CodeCache.default()


def refuse(*_: object) -> Any:
    raise AssertionError("analysed again")


def test_text_is_analysed_once(cache: CodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    first = analysed(MM, "a.tc")
    monkeypatch.setattr(compiler_module, "analyse", refuse)
    second = analysed(MM, "b.tc")
    assert first == second == analyse(MM)
    assert (second["mm"].filename, second["mm"].source) == ("b.tc", MM)
    assert second["mm"].tensors[1].span == first["mm"].tensors[1].span
    with pytest.raises(AssertionError):
        analysed(MM + " ", "a.tc")


def test_errors_are_not_kept(cache: CodeCache) -> None:
    for filename in ("a.tc", "b.tc"):
        with pytest.raises(tc.TCNameError) as caught:
            tc.define("def f(float(N) A) -> (C) { C(i) = B(i) }", filename=filename)
        assert str(caught.value).startswith(f"{filename}:1:")
    assert cache.entries() == ()


@pytest.mark.parametrize(
    "content",
    [b"", b"[", *map(marshal.dumps, ([], {}, 3, [["Span", 1]], [["", 1]], [["no such", 1]]))],
)
def test_entry_of_another_form_is_a_miss(cache: CodeCache, content: bytes) -> None:
    expected = analysed(MM, "a.tc")
    (entry,) = [e for e in cache.entries() if e.manifest["what"] == "programs mm"]
    cache.write(entry.key, entry.manifest, content)
    assert analysed(MM, "a.tc") == expected
    found = cache.read(entry.key)
    assert found is not None
    assert found[1] != content  # written again


def test_call_errors_of_a_kept_program_quote_the_text(cache: CodeCache) -> None:
    analysed(MM, "a.tc")
    kernel = tc.define(MM, filename="b.tc")
    with pytest.raises(tc.SizeError) as caught:
        kernel(np.ones((2, 3), np.float32), np.ones((4, 5), np.float32))
    assert str(caught.value).startswith("b.tc:1:")
    assert MM in str(caught.value)


def test_text_that_is_no_unicode_is_an_error(cache: CodeCache) -> None:
    with pytest.raises(tc.TCSyntaxError):
        tc.define("def f(\ud800")


# ---- the processor


def test_processor_is_asked_once(cache: CodeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = known_processor.__wrapped__
    assert ask() == processor()
    monkeypatch.setattr(host_module, "processor", refuse)
    assert ask() == processor()
    monkeypatch.setattr(processor_module, "processor_marks", lambda: "another machine")
    with pytest.raises(AssertionError):
        ask()


@pytest.mark.parametrize(
    "content", [b"", b"no object", b"\x7fELF" + bytes(300), b"processor a\0 x", b"\xff"]
)
def test_an_entry_that_tells_of_no_processor_is_a_miss(cache: CodeCache, content: bytes) -> None:
    ask = known_processor.__wrapped__
    ask()
    (entry,) = [e for e in cache.entries() if e.manifest.get("what") == "processor"]
    cache.write(entry.key, entry.manifest, content)
    assert ask() == processor()
    found = cache.read(entry.key)
    assert found is not None and found[1] != content


def test_processor_without_marks_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Processor("other", frozenset({"sse2"}))
    monkeypatch.setattr(host_module, "processor", lambda: other)
    monkeypatch.setattr(processor_module, "processor_marks", lambda: "")
    assert known_processor.__wrapped__() == other
