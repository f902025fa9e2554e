# SPDX-License-Identifier: Apache-2.0
"""Tuned regions of sizes: each strategy follows them."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.dispatch.buckets import typical_sizes, work_edges
from tcsym.dispatch.compile_queue import compilations
from tcsym.index.expr import TRUE, ge, lt, var
from tcsym.runtime.background import settle
from tcsym.sizes.region import Region
from tcsym.sizes.work import estimated_work
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Symbolic
from tests.entered import python_frames

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SMALL, LARGE = tc.Options(min_work_per_thread=1), tc.Options(min_work_per_thread=8)
REGIONS = (
    Region(SMALL, lt(var("M"), 8), "shipped"),
    Region(LARGE, ge(var("M"), 8), "user"),
)


@pytest.fixture
def regions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))  # nothing kept for default options
    monkeypatch.setattr("tcsym.dispatch.making.lookup", lambda *_: REGIONS)


def compile_regions(kernel: Any) -> None:
    """Code of all regions is there, as after a tune."""
    for version in kernel._dispatcher.versions:
        if version.kind == "symbolic":
            version.variants.made_for(version.variants.dense)


def operands(m: int, k: int, n: int) -> tuple[Any, Any]:
    return np.ones((m, k), F32), np.ones((k, n), F32)


@pytest.mark.thinned(3)
@pytest.mark.usefixtures("regions")
@pytest.mark.parametrize(
    "strategy",
    [
        Symbolic(),
        Auto(),
        Specialize(),
        Bucket(edges={"M": (7,)}),
        Pad(8, sizes=("M",)),
        Pad(sizes=("M",)),
    ],
)
def test_each_strategy_follows_the_regions(strategy: Any) -> None:
    kernel = tc.define(MM, strategy=strategy, sizes={"M": tc.Dim(0, 16)}).mm
    for _ in range(3):
        for m in (0, 3, 7, 8, 16):
            assert (kernel(*operands(m, 3, 4)) == 3).all()
        settle()
    below = kernel.explain("variants", M=3, K=3, N=4)
    above = kernel.explain("variants", M=16, K=3, N=4)
    assert "options user" in above and "min_work_per_thread=8" in above
    if not isinstance(strategy, Pad):  # what is padded to 8 or more belongs to the upper region
        assert "options shipped" in below and "min_work_per_thread=1" in below
    assert sum(kernel.stats.dispatch.values()) == 15


@pytest.mark.usefixtures("regions")
def test_substituted_sizes_follow_the_regions() -> None:
    kernel = tc.define(MM, options=tc.Options(bind={"K": "before"})).mm
    for _ in range(3):
        for m, k in ((3, 3), (16, 3), (4, 3), (16, 5), (3, 5)):
            assert (kernel(*operands(m, k, 4)) == k).all()
            settle()
    assert kernel.stats.dispatch == {
        f"specialised, K == {k} && {rows} (region {rows}), options {origin}": n
        for k, rows, origin, n in (
            (3, "7 >= M", "shipped", 6),
            (3, "M >= 8", "user", 3),
            (5, "7 >= M", "shipped", 3),
            (5, "M >= 8", "user", 3),
        )
    }
    below, above = (kernel.explain("mapped", M=m, K=3, N=4).splitlines()[0] for m in (7, 8))
    assert (
        "bind=before min_work_per_thread=1" in below
        and "bind=before min_work_per_thread=8" in above
    )
    assert kernel.options_for(M=3, K=3, N=4).options == SMALL
    kernel.precompile()


def called(kernel: Any, *rows: int) -> dict[str, int]:
    """Calls of these heights; how many the version of each origin served so far."""
    for m in rows:
        assert (kernel(*operands(m, 3, 4)) == 3).all()
        settle()
    return {v.split(", options ")[1]: n for v, n in kernel.stats.dispatch.items()}


@pytest.fixture
def no_code_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "0")


@pytest.mark.usefixtures("regions")
def test_sizes_that_are_called_often() -> None:
    """What notices them was missing from the switch of several regions: the process crashed."""
    assert sum(called(tc.define(MM).mm, *[3, 16] * 100).values()) == 200


@pytest.mark.usefixtures("regions", "no_code_cache")
def test_no_call_waits_for_another_region() -> None:
    kernel = tc.define(MM, strategy=Auto(hot=0.0, share=1.0)).mm
    go = threading.Event()
    original = compilations._compiled
    compilations._compiled = lambda work: (go.wait(), original(work))[1]  # type: ignore
    try:
        assert called(kernel, 3, 16, 8, *[16] * 80) == {"shipped": 83, "user": 0}
        assert len(kernel.stats.variants) == 1
    finally:
        go.set()
        compilations.settle()
        del compilations._compiled  # type: ignore[method-assign]
    assert called(kernel, 16, 8, 16) == {"shipped": 83, "user": 3}
    assert "options user" in kernel.explain("variants", M=16, K=3, N=4)


@pytest.mark.usefixtures("regions", "no_code_cache")
def test_a_region_that_is_hardly_called_is_not_compiled() -> None:
    kernel = tc.define(MM).mm
    called(kernel, 3, *range(8, 80), *[9] * 80)
    compilations.settle()
    assert len(kernel.stats.variants) == 1


@pytest.mark.thinned(5)
@pytest.mark.usefixtures("regions")
@pytest.mark.parametrize("strategy", [Symbolic(), Auto(), Bucket(edges={"M": (7,)})])
def test_new_sizes_run_no_python(strategy: Any) -> None:
    """More than the switch has rows for: each was dispatched in Python, at ten times the cost."""
    kernel = tc.define(MM, strategy=strategy, sizes={"M": tc.Dim(0, 1000)}).mm
    compile_regions(kernel)
    assert called(kernel, 3, 16, 3, 16)
    in_python = 0
    for m in range(4, 700):
        call = partial(kernel, *operands(m, 3, 4))
        in_python += bool(python_frames(lambda call=call: np.testing.assert_array_equal(call(), 3)))
    assert in_python <= (2 if isinstance(strategy, Auto) else 0)  # what `auto` looks at
    assert sum(kernel.stats.dispatch.values()) == 4 + 696
    assert kernel.stats.dispatch[str(kernel._dispatcher.serving((16, 3, 4)))] == 2 + 692


@pytest.mark.usefixtures("regions")
def test_code_in_the_cache_serves_at_once() -> None:
    compile_regions(tc.define(MM).mm)
    kernel = tc.define(MM).mm
    assert called(kernel, 3, 16, 3, 16) == {"shipped": 2, "user": 2}


@pytest.mark.usefixtures("regions", "no_code_cache")
def test_a_region_that_does_not_compile_is_served_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compilations, "_compiled", lambda _: "the compiler is on strike")
    kernel = tc.define(MM, strategy=Auto(hot=0.0, share=1.0)).mm
    called(kernel, 3, *[16] * 70)
    compilations.settle()
    assert called(kernel, *[16] * 70) == {"shipped": 141, "user": 0}
    assert any("on strike" in failure for failure in kernel.stats.failures)


@pytest.mark.thinned(3)
@pytest.mark.usefixtures("regions")
@pytest.mark.parametrize("strategy", [Auto(), Symbolic(), Specialize(), Bucket(count=2), Pad(8)])
def test_regions_are_compiled_after_a_tune(strategy: Any) -> None:
    kernel = tc.define(MM, strategy=strategy, sizes={"M": tc.Dim(0, 16)}).mm
    compile_regions(kernel)
    expected = 2 if isinstance(strategy, Auto | Symbolic) else 0
    assert kernel.stats.compilations + kernel.stats.cache_hits == expected


@pytest.mark.usefixtures("regions")
def test_what_is_known_narrows_the_versions() -> None:
    kernel = tc.define(MM, strategy="symbolic").mm
    assert kernel.explain("variants").count("symbolic") == 2
    assert kernel.explain("variants", M=3).count("symbolic") == 1
    assert kernel.explain("variants", K=3).count("symbolic") == 2


@pytest.mark.usefixtures("regions")
def test_regions_without_declared_sizes_are_left_out() -> None:
    for given, left in (
        ({"M": tc.Dim(0, 7)}, [SMALL]),
        ({"M": tc.Dim(8)}, [LARGE]),
        ({"M": 8}, [LARGE]),
        ({"M": tc.Dim(7, 8)}, [SMALL, LARGE]),
        ({"K": tc.Dim(0, 7)}, [SMALL, LARGE]),
    ):
        kernel = tc.define(MM, sizes=given).mm
        found = kernel._dispatcher.making.regions
        assert [r.options for r in found] == left
        assert (found[0].context == TRUE) == (len(left) == 1)
        assert (kernel(*operands(8 if LARGE in left else 7, 3, 4)) == 3).all()


@pytest.mark.usefixtures("regions")
def test_given_options_come_before_regions() -> None:
    kernel = tc.define(MM, options=tc.Options(min_work_per_thread=2)).mm
    assert "options given" in kernel.explain("variants", M=3, K=3, N=4)
    bound = tc.define(MM, sizes={"K": 3}, options=tc.Options(bind="before")).mm
    text = bound.explain("variants", M=3, N=4)
    assert text.splitlines()[1] == "  options bind=before min_work_per_thread=1"


def test_work_grows_with_sizes() -> None:
    kernel = tc.define(MM, sizes={"M": tc.Dim(1, 4096), "K": 32, "N": tc.Dim(lo=5)}).mm
    program, plan = kernel.program, kernel._plan
    assert typical_sizes(plan) == [4096, 32, 256]
    sizes = {"M": 10, "K": 32, "N": 5}
    assert estimated_work(program, sizes | {"M": 20}) == 2 * estimated_work(program, sizes)
    assert work_edges(plan, 0, 4) == (8, 64, 512, 4096)
    loop = tc.define("def s(float(T,N) X) -> (Y) { for t in T { Y(t,i) = X(t,i) where i in 0:N } }")
    assert estimated_work(loop.s.program, {"T": 3, "N": 4}) == 12
