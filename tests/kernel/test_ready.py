# SPDX-License-Identifier: Apache-2.0
"""What one process keeps serves the calls of the next: the same results, errors and facts."""

from __future__ import annotations

import json
import marshal
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.kernel import ready as ready_module
from tcsym.kernel.ready import ready
from tcsym.runtime import versions as versions_module
from tcsym.runtime.background import settle
from tcsym.runtime.cache import _cache_at
from tcsym.runtime.processor import known_processor
from tests.entered import python_frames

SOURCE = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def two(float(N) A) -> (S, O) { S +=! A(n)  O(n) = 2.0 * A(n) }
def pick(float(N,4) A) -> (C) { C(n) = A(n, 3) }
"""
A, B = np.arange(30, dtype=np.float32).reshape(5, 6), np.ones((6, 7), np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    monkeypatch.setenv("TCSYM_VERIFY", "0")
    _cache_at.cache_clear()
    yield tmp_path
    settle()  # what is still being kept belongs here


def filled(*names: str) -> tc.Module:
    """A module whose named defs are kept: as a second process defines it."""
    first = tc.define(SOURCE, strategy="symbolic")
    given = {"mm": (A, B), "two": (A[0],), "pick": (A[:, :4].copy(),)}
    for name in names:
        first[name](*given[name])
        settle()
    return tc.define(SOURCE, strategy="symbolic")


CHAIN = """def f(float(I,K) A, float(K,L) B, float(L,J) C) -> (Y) {
  T(i,l) +=! A(i,k) * B(k,l)
  Y(i,j) +=! T(i,l) * C(l,j)
}"""


@pytest.mark.parametrize("strategy", ["symbolic", "auto"])
def test_calls_of_one_order_are_served_without_the_program(strategy: str) -> None:
    def arrays(i: int, k: int, n: int, j: int) -> tuple[Any, ...]:
        return tuple(np.ones(shape, np.float32) for shape in ((i, k), (k, n), (n, j)))

    first = tc.define(CHAIN, strategy=strategy).f
    assert (first(*arrays(40, 40, 2, 40)) == 80).all()
    settle()
    second = tc.define(CHAIN, strategy=strategy).f
    assert (second(*arrays(50, 30, 2, 40)) == 60).all()
    assert not is_whole(second)
    for _ in range(3):
        assert (second(*arrays(40, 2, 40, 2)) == 80).all()
        assert (second(*arrays(50, 30, 2, 40)) == 60).all()
        settle()
    assert is_whole(second)
    orders = ["written order" in version for version in second.stats.dispatch]
    assert orders == [True, False][: len(orders)]
    assert sum(second.stats.dispatch.values()) == 7
    third = tc.define(CHAIN, strategy=strategy).f
    third(*arrays(50, 30, 2, 40))
    assert not is_whole(third)


def is_whole(kernel: tc.Kernel) -> bool:
    return kernel._made is not None


def test_calls_are_served_without_the_program() -> None:
    m = filled("mm", "two")
    np.testing.assert_array_equal(m.mm(A, B), A @ B)
    s, o = m.two(A[1])
    assert s == A[1].sum() and (o == 2 * A[1]).all()
    assert python_frames(lambda: m.mm(A, B)) == []
    assert not is_whole(m.mm) and not is_whole(m.two)
    assert (m.pick(A[:, :4].copy()) == A[:, 3]).all()  # nobody called it before
    assert is_whole(m.pick)


def test_whatever_was_not_kept_is_loaded() -> None:
    m = filled("mm")
    np.testing.assert_array_equal(m.mm(A.T.copy().T, B), A @ B)
    np.testing.assert_array_equal(m.mm(A=A, B=B), A @ B)
    out = np.empty((5, 7), np.float32)
    assert m.mm(A, B, out=out) is out
    np.testing.assert_array_equal(m.mm.reference(A, B), A @ B)
    with pytest.raises(tc.SizeError, match="mm"):
        m.mm(A, A)


def test_facts_are_those_of_a_kernel_from_the_code_cache() -> None:
    m = filled("mm")
    m.mm(A, B)
    assert (m.mm.stats.compilations, m.mm.stats.cache_hits) == (0, 1)
    assert "symbolic, all sizes" in m.mm.explain("variants")
    assert m.mm.name == "mm" and list(m.mm.sizes) == ["M", "K", "N"]
    np.testing.assert_array_equal(m.mm(A, B), A @ B)
    assert m.mm.stats.compilations == 0
    again = pickle.loads(pickle.dumps(m))
    np.testing.assert_array_equal(again.mm(A, B), A @ B)


def test_facts_may_be_asked_before_the_first_call() -> None:
    m = filled("mm")
    assert m.mm.stats.cache_hits == 0
    np.testing.assert_array_equal(m.mm(A, B), A @ B)
    assert (m.mm.stats.compilations, m.mm.stats.cache_hits) == (0, 1)


def test_an_executable_of_a_kept_kernel() -> None:
    m = filled("mm")
    executable = m.mm.compile(A, B)
    np.testing.assert_array_equal(executable(A, B), A @ B)
    with pytest.raises(tc.SizeError):
        executable(A[:3], B)


def test_calls_of_a_kept_kernel_are_recorded(tmp_path: Path) -> None:
    m = filled("mm")
    with tc.record(tmp_path / "trace.jsonl"):
        m.mm(A, B)
    m.mm(A, B)
    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert [line["calls"] for line in lines if "calls" in line] == [1]


@pytest.mark.parametrize("settings", [{"sizes": {"K": 6}}, {"options": tc.Options()}])
def test_other_settings_do_not_use_it(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    filled("mm")
    monkeypatch.setattr("tcsym.kernel.definition.ready", lambda *_: pytest.fail("looked up"))
    m = tc.define(SOURCE, strategy="symbolic", **settings)
    np.testing.assert_array_equal(m.mm(A, B), A @ B)


def test_a_changed_options_store_is_another_key(cache: Path) -> None:
    filled("mm")
    assert ready(SOURCE, False) is not None
    (cache / "options").mkdir()
    (cache / "options" / "options.db").touch()
    assert ready(SOURCE, False) is None


def test_another_processor_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    filled("mm")
    monkeypatch.setattr(ready_module, "processor_marks", lambda: "another")
    assert ready(SOURCE, False) is None
    monkeypatch.setattr(ready_module, "processor_marks", lambda: "")  # not known: nothing is kept
    assert ready(SOURCE, False) is None


@pytest.mark.parametrize("content", [b"", b"[", marshal.dumps([1]), marshal.dumps(None)])
def test_a_record_of_another_form_is_a_miss(content: bytes) -> None:
    filled("mm")
    key = ready_module._key(SOURCE, False)
    assert key is not None
    ready_module.CodeCache.default().write(key, {}, content)
    m = tc.define(SOURCE, strategy="symbolic")
    np.testing.assert_array_equal(m.mm(A, B), A @ B)


def forged(kept: Any, changes: dict[int, Any]) -> Any:
    return tuple(changes.get(k, x) for k, x in enumerate(kept))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "changes",
    [
        {0: b""},
        {0: b"no object"},
        {0: b"\x7fELF\x02\x01" + bytes(300)},
        {2: ()},
        {2: ("mm", "numpy", b"no object", {}, (), (), {}, {}, (0, 0))},
        {3: (b"no object", (), 0.0, None)},
        {3: 7},
    ],
)
@pytest.mark.parametrize("strategy", ["auto", "symbolic"])
def test_code_that_cannot_be_loaded_is_a_miss(changes: dict[int, Any], strategy: str) -> None:
    """The checksum is right: somebody wrote it so."""
    counted = strategy == "auto"
    tc.define(SOURCE, strategy=strategy).mm(A, B)
    settle()
    kept = ready(SOURCE, counted)
    assert kept is not None and kept["mm"] is not None
    key = ready_module._key(SOURCE, counted)
    assert key is not None
    data = marshal.dumps({**kept, "mm": forged(kept["mm"], changes)})
    ready_module.CodeCache.default().write(key, {}, data)
    m = tc.define(SOURCE, strategy=strategy)
    np.testing.assert_array_equal(m.mm(A, B), A @ B)
    np.testing.assert_array_equal(m.mm(A, B), A @ B)
    settle()
    renewed = ready(SOURCE, counted)
    assert renewed is not None and renewed["mm"] is not None
    assert renewed["mm"][0] == kept["mm"][0] and renewed["mm"][3] == kept["mm"][3]


@pytest.mark.parametrize("code", [b"", b"no object", b"\x7fELF\x02\x01" + bytes(300)])
def test_any_entry_of_the_code_cache_may_hold_no_object(code: bytes) -> None:
    tc.define(SOURCE).mm(A, B)
    settle()
    code_cache = ready_module.CodeCache.default()
    for entry in code_cache.entries():
        code_cache.write(entry.key, entry.manifest, code)
    versions_module._versions.cache_clear()
    known_processor.cache_clear()
    m = tc.define(SOURCE)
    np.testing.assert_array_equal(m.mm(A, B), A @ B)
    settle()
    assert m.mm.stats.compilations == 1
    again = tc.define(SOURCE)
    np.testing.assert_array_equal(again.mm(A, B), A @ B)
    assert again.mm.stats.compilations == 0


PROCESS = f"""
import numpy as np, sys, tcsym
from tcsym.runtime.background import settle
kernel = tcsym.define({SOURCE!r}).mm
a = np.arange(30, dtype=np.float32).reshape(5, 6)
for _ in range(100):
    assert (kernel(a, np.ones((6, 7), np.float32)) == a.sum(1)[:, None]).all()
    settle()
print(kernel._made is None, "tcsym.target.llvm" in sys.modules)
print(kernel.stats.compilations, kernel.stats.cache_hits, *kernel.stats.dispatch.values())
"""


def test_with_strategy_auto_calls_are_counted_from_the_first() -> None:
    """And nothing is loaded to do so, not even where many calls have the same sizes."""
    told = [
        subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True)
        for _ in range(2)
    ]
    assert told[0].stdout.split() == ["False", "True", "1", "0", "100"], told[0].stderr
    assert told[1].stdout.split() == ["True", "False", "0", "1", "100"], told[1].stderr


def test_hot_sizes_of_a_kept_kernel_are_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    tc.define(SOURCE).mm(A, B)
    settle()
    kernel = tc.define(SOURCE).mm
    for _ in range(60):
        kernel(A, B)
    assert kernel._entered is not None and not is_whole(kernel)
    kept, entry, switch = kernel._entered
    assert switch is not None and kept[3] is not None
    eager = (*kept[:3], (kept[3][0], 0.0, None))  # as if its calls had taken long
    kernel._entered = eager, entry, switch
    for _ in range(10):
        kernel(A, B)
    settle()
    assert is_whole(kernel) and switch.calls((5, 6, 7)) == 70
    assert kernel._dispatcher.switch is switch
    considered: list[Any] = []
    monkeypatch.setattr(
        kernel._dispatcher.policy, "_considered", lambda *given: considered.append(given[0]) or 0
    )
    for _ in range(64):
        kernel(A, B)
    assert considered == [(5, 6, 7)]
