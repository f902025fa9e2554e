# SPDX-License-Identifier: Apache-2.0
"""Size parameters that calls keep: numbers in the code, and right if they change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch import adaptive
from tcsym.dispatch.compile_queue import compilations
from tcsym.runtime.background import settle
from tcsym.strategy import Auto, Pad, Specialize
from tests.entered import entered

HEAD, BODY = "def f(float(N) X, float(K) W{}) -> (Y) ", "{{ Y(i) +=! X({}*i + {}*k) * W(k) }}"
TEXT = HEAD.format(", size S, size D") + BODY.format("S", "D")
WITH_NUMBERS = HEAD.format("") + BODY.format(3, 2)
TARGET = "cpu:avx2"


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(adaptive, "FIRST_LOOK", 8)
    yield
    compilations.settle()


def called(kernel: tc.Kernel, n: int, step: int, dilation: int) -> None:
    x, w = np.arange(n, dtype=np.float32) % 11, np.array([1, 2, 4], np.float32)
    count = (n - 1 - 2 * dilation) // step + 1
    want = [sum(x[step * i + dilation * k] * w[k] for k in range(3)) for i in range(count)]
    np.testing.assert_array_equal(kernel(x, w, step, dilation), want)


def mapped(kernel: tc.Kernel, **sizes: int) -> str:
    """The loops, without what they are called with."""
    lines = kernel.explain("mapped", **sizes).splitlines()
    return "\n".join(x for x in lines if not x.startswith(("#", "kernel ")))


def test_code_is_that_of_numbers_in_the_text() -> None:
    numbers = tc.define(WITH_NUMBERS, target=TARGET, strategy="symbolic").f
    kept = tc.define(TEXT, target=TARGET).f
    called(kept, 40, 3, 2)
    fixed = tc.define(TEXT, target=TARGET, sizes={"S": 3, "D": 2}, strategy="symbolic").f
    assert mapped(kept, S=3, D=2) == mapped(fixed) == mapped(numbers)
    assert mapped(kept, S=2, D=1) != mapped(numbers)
    every = {"N": 40, "K": 3}
    special = [tc.define(t, target=TARGET, strategy=Specialize()).f for t in (WITH_NUMBERS, TEXT)]
    assert mapped(special[1], S=3, D=2, **every) == mapped(special[0], **every)


def test_the_first_call_decides_for_all_other_sizes() -> None:
    kernel = tc.define(TEXT, strategy=Auto(share=0)).f
    for n in (40, 41, 99):
        called(kernel, n, 2, 1)
    assert kernel.stats.compilations + kernel.stats.cache_hits == 1
    for n in (40, 77):
        called(kernel, n, 1, 3)
        called(kernel, n, 2, 1)
    settle()
    x, w = np.ones(50, np.float32), np.ones(3, np.float32)
    assert entered(lambda: kernel(x, w, 2, 1)).shape == (24,)  # each natively
    assert entered(lambda: kernel(x, w, 3, 1)).shape == (16,)
    counts = kernel.stats.dispatch
    assert {name.partition(",")[0] for name in counts} == {"specialised", "symbolic"}
    assert sum(counts.values()) == 13
    assert "S == 2 && D == 1" in kernel.explain(N=40, K=3, S=2, D=1)


def test_other_values_follow_once_their_calls_took_long() -> None:
    kernel = tc.define(TEXT, strategy=Auto(hot=1e-9, share=1.0)).f
    called(kernel, 40, 2, 1)
    for n in range(20, 60):
        called(kernel, n, 3, 2)
        settle()
    compilations.settle()
    for n in (40, 41):
        called(kernel, n, 3, 2)
        called(kernel, n, 2, 1)
        called(kernel, n, 1, 1)
    served = kernel.explain(N=500, K=3, S=3, D=2)
    assert served.startswith("specialised, S == 3 && D == 2")
    assert not kernel.stats.failures


@pytest.mark.parametrize("strategy", ["symbolic", "specialize", "bucket", Pad(16)], ids=str)
def test_strategies(strategy: tc.Strategy) -> None:
    kernel = tc.define(TEXT, strategy=strategy, sizes={"N": tc.Dim(0, 64)}).f
    for step, dilation in ((2, 1), (1, 3), (2, 1)):
        called(kernel, 33, step, dilation)
    with pytest.raises(tc.TCError, match="positive"):
        kernel(np.ones(5, np.float32), np.ones(3, np.float32), 0, 1)
