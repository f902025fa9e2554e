# SPDX-License-Identifier: Apache-2.0
"""Strategies never change a result: a part of the corpus under each, and what they refuse."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.strategy import Auto, Bucket, Pad, Specialize, Symbolic
from tests.differential.corpus import CORPUS
from tests.differential.test_corpus import check, module

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOME = [name for k, name in enumerate(CORPUS) if k % 6 == 0]
STRATEGIES: dict[str, Any] = {
    "specialize": Specialize(max_variants=2),
    "before": Specialize(bind="before"),
    "bucket": Bucket(),
    "learn": Bucket(learn=2),
    "pad": Pad(8),
    "pad-max": Pad(),
}


def product(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b


def operands(m: int, k: int, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + 10 * k + 100 * n)
    return rng.standard_normal((m, k), dtype=F32), rng.standard_normal((k, n), dtype=F32)


@pytest.mark.thinned(5)  # each strategy in turn
@pytest.mark.parametrize(
    ("name", "strategy"), [(n, s) for k, n in enumerate(SOME) for s in list(STRATEGIES)[k % 2 :: 2]]
)
def test_corpus(name: str, strategy: str) -> None:
    case = CORPUS[name]
    declared = {n: tc.Dim(0, max(s[n] for s in case.sizes)) for n in case.sizes[0]}
    sizes: Any = {} if strategy == "pad" else declared
    if strategy in ("bucket", "learn", "pad-max") and not sizes:
        pytest.skip("the program has no sizes: nothing to cut or pad")
    kernel = module(case, strategy=STRATEGIES[strategy], sizes=sizes)
    for sizes in case.sizes[:4]:
        check(name, kernel, sizes)


# ---- which version serves


def test_each_sizes_get_a_version() -> None:
    kernel = tc.define(MM, strategy="specialize").mm
    for sizes in ((2, 3, 4), (5, 6, 7), (2, 3, 4)):
        a, b = operands(*sizes)
        np.testing.assert_allclose(kernel(a, b), product(a, b), atol=1e-5)
    assert len(kernel.stats.variants) == 2
    text = kernel.explain("variants", M=2, K=3, N=4)
    assert (
        text.startswith("specialised, M == 2 && K == 3 && N == 4") and "options bind=after" in text
    )
    assert "M == 5" not in text and "M == 5" in kernel.explain("variants")


def test_the_least_used_version_makes_room() -> None:
    kernel = tc.define(MM, strategy=Specialize(max_variants=2)).mm
    for n in (1, 1, 1, 2, 3):
        kernel(*operands(2, 3, n))
    text = kernel.explain("variants")
    assert "N == 1" in text and "N == 2" not in text and "N == 3" in text
    assert kernel.stats.evictions == 1 and "evictions: 1" in str(kernel.stats)
    kernel(*operands(2, 3, 2))
    assert kernel.stats.evictions == 2 and "N == 1" in kernel.explain("variants")


def test_precompile_makes_what_calls_need() -> None:
    sizes = {"M": tc.Dim(1, 2), "K": 3, "N": tc.Dim(4, 8, 4)}
    for strategy, n in ((Specialize(), 4), (Bucket(count=2), None), (Pad(), 1), (Pad(4), 2)):
        kernel = tc.define(MM, strategy=strategy, sizes=sizes).mm.precompile()
        made = kernel.stats.compilations + kernel.stats.cache_hits
        assert made == n or n is None
        for m, n in ((1, 4), (2, 4), (2, 8)):
            kernel(*operands(m, 3, n))
        assert kernel.stats.compilations + kernel.stats.cache_hits == made


def test_buckets() -> None:
    edges = {"M": (4, 16)}
    kernel = tc.define(MM, strategy=Bucket(edges=edges), sizes={"M": tc.Dim(1, 64)}).mm
    for m in (1, 4, 5, 16, 17, 64):
        a, b = operands(m, 3, 5)
        np.testing.assert_allclose(kernel(a, b), product(a, b), atol=1e-5)
    assert list(kernel.stats.dispatch.values()) == [2, 2, 2]
    assert "buckets of M up to 4, 16, 64, edges as given" in kernel.explain("variants")
    assert kernel.explain("variants", M=4).startswith("bucket, M >= 1 && 4 >= M, ")
    with pytest.raises(tc.SizeError, match="declared to be from 1 to 64"):
        kernel(*operands(65, 3, 5))


def test_edges_follow_the_work() -> None:
    cube = "def f(float(N,N) A) -> (C) { C(i,j) +=! A(i,k) * A(k,j) }"
    kernel = tc.define(cube, strategy=Bucket(count=3), sizes={"N": tc.Dim(1, 1000)}).f
    assert "buckets of N up to 10, 100, 1000, edges by" in kernel.explain("variants")


def test_edges_are_learned() -> None:
    kernel = tc.define(MM, strategy=Bucket(learn=8), sizes={"M": tc.Dim(0, 99)}).mm
    for m in (1, 1, 2, 2, 7, 7, 9, 9):
        kernel(*operands(m, 3, 5))
    assert "M up to 1, 2, 7, 99, edges learned from 8 calls" in str(kernel.stats)
    a, b = operands(50, 3, 5)
    np.testing.assert_allclose(kernel(a, b), product(a, b), atol=1e-5)


def test_a_bucket_of_one_size_has_a_number() -> None:
    sizes = {"M": tc.Dim(1, 3), "K": tc.Dim(4, 4)}
    kernel = tc.define(MM, strategy=Bucket(edges={"M": (1, 3), "K": (4,)}), sizes=sizes).mm
    assert "options bind=after" in kernel.explain("variants", M=1, K=4, N=1)
    a, b = operands(1, 4, 5)
    np.testing.assert_allclose(kernel(a, b), product(a, b), atol=1e-5)


@pytest.mark.parametrize("strategy", ["specialize", Pad(4)])
def test_stages_are_those_of_the_version_that_serves(strategy: Any) -> None:
    kernel = tc.define(MM, strategy=strategy).mm
    text = kernel.explain("loops", M=2, K=3, N=4)
    assert text.splitlines()[0].startswith(
        "# specialised, M == 2" if strategy == "specialize" else "# padded"
    )
    assert ("m in 0:2" if strategy == "specialize" else "0:4") in text
    assert '"bind": "after"' in kernel.explain("options", M=2, K=3, N=4)
    assert "no version is made before its sizes are known" in kernel.explain("asm")
    assert not kernel.explain("variants").count("specialised")  # looking makes none
    assert kernel.explain("program", M=2) == kernel.explain("program")


def test_stages_of_ranges_say_which_is_shown() -> None:
    sizes = {"M": tc.Dim(1, 64), "K": tc.Dim(1, 8), "N": tc.Dim(1, 8)}
    kernel = tc.define(MM, sizes=sizes, strategy=Bucket({"M": (4, 16)})).mm
    assert "the first of 3 versions" in kernel.explain("mapped").splitlines()[0]
    first = kernel.explain("mapped", M=16, K=1, N=1).splitlines()[0]
    assert first == "# bucket, M >= 5 && 16 >= M, options analytic: defaults"
    assert kernel.explain("llvm", M=3, K=1, N=1).startswith("; bucket, M >= 1 && 4 >= M")


def test_executable_keeps_its_version() -> None:
    kernel = tc.define(MM, strategy=Specialize(max_variants=1)).mm
    a, b = operands(2, 3, 4)
    run = kernel.compile(a, b)
    kernel(*operands(5, 6, 7))
    np.testing.assert_allclose(run(a, b), product(a, b), atol=1e-5)
    with pytest.raises(tc.SizeError):
        run(*operands(5, 6, 7))


def test_a_def_that_is_refused_says_so_when_called() -> None:
    two = MM + "def twice(float(P) A) -> (O) { O(i) = A(i) + A(i) }"
    module = tc.define(two, strategy="pad", sizes={"P": tc.Dim(0, 9)})
    assert (module.twice(np.ones(5, F32)) == 2).all()
    with pytest.raises(tc.OptionError, match="no size of `mm`"):
        module.mm(*operands(2, 3, 4))


# ---- values


@pytest.mark.parametrize(
    "strategy",
    [Symbolic(), Specialize("before", 3, True), Bucket({"M": (4,)}), Pad(16, ("M",)), Auto(5.0)],
)
def test_strategies_pickle(strategy: Any) -> None:
    assert pickle.loads(pickle.dumps(strategy)) == strategy
    kernel = tc.define(MM, strategy=strategy, sizes={"M": tc.Dim(0, 8)}).mm
    again = pickle.loads(pickle.dumps(kernel))
    assert again.settings.strategy == strategy
    a, b = operands(5, 3, 4)
    np.testing.assert_allclose(again(a, b), product(a, b), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Specialize(bind="never"), "expected before or after"),  # type: ignore[arg-type]
        (lambda: Specialize(max_variants=0), "`max_variants` is 0"),
        (lambda: Specialize(background=1.5), "a share from 0 to 1"),
        (lambda: Bucket(count=2, learn=3), "give one of"),
        (lambda: Bucket(count=-1), "`count` is -1"),
        (lambda: Bucket(edges={"M": (4, 4)}), "ascending"),
        (lambda: Bucket(edges={"M": 4}), "expected integers"),  # type: ignore[dict-item]
        (lambda: Bucket(edges=3), "expected a mapping"),  # type: ignore[arg-type]
        (lambda: Pad(to=0), "`to` is 0"),
        (lambda: Pad(sizes=()), "expected names of sizes"),
        (lambda: Pad(bind="x"), "`bind`"),  # type: ignore[arg-type]
        (lambda: Auto(hot=-1), "`hot` is -1"),
        (lambda: Auto(share=2), "`share` is 2"),
    ],
)
def test_bad_values(make: Any, text: str) -> None:
    with pytest.raises(tc.OptionError, match=text):
        make()


@pytest.mark.parametrize(
    ("strategy", "sizes", "text"),
    [
        ("bucket", {}, "no size of `mm` has an upper bound"),
        (Bucket(edges={"M": (4,)}), {}, "`M` is no size of `mm` with an upper bound"),
        (Bucket(edges={"M": (4,)}), {"M": tc.Dim(5, 9)}, "outside of its range 5..9"),
        (Bucket(edges={"Q": (4,)}), {}, "`Q` is no size"),
        (Bucket(count=50), {"M": tc.Dim(0, 99), "K": tc.Dim(0, 99)}, "2500 buckets, at most 64"),
        ("pad", {}, "no size of `mm` has an upper bound to pad to"),
        (Pad(sizes=("M",)), {}, "`M` of `mm` has no upper bound"),
        (Pad(8, sizes=("Q",)), {}, "`Q` is no size of `mm`"),
        (Pad(8, sizes=("M",)), {"M": 4}, "fixed at `define`"),
    ],
)
def test_refusals_say_why(strategy: Any, sizes: Any, text: str) -> None:
    with pytest.raises(tc.OptionError, match=text) as caught:
        tc.define(MM, strategy=strategy, sizes=sizes)
    assert caught.value.hint or "fixed" in text or "outside" in text


def test_what_others_would_cost_is_told() -> None:
    auto = tc.define(MM).mm
    auto(*operands(2, 3, 4))
    assert "specialised: not yet, " in auto.explain("variants", M=2, K=3, N=4)
    assert "not yet" not in auto.explain("variants", M=2)
    waits = tc.define(MM, strategy="specialize").mm
    assert "the first call waits about" in waits.explain("variants", M=2, K=3, N=4)
    waits(*operands(2, 3, 4))
    assert "waits" not in waits.explain("variants", M=2, K=3, N=4)


@pytest.mark.parametrize(
    ("name", "hint"), [("M", "declare it"), ("Q", "sizes of `mm` are M, K, N")]
)
def test_edges_of_what_is_no_bounded_size(name: str, hint: str) -> None:
    with pytest.raises(tc.OptionError, match=f"`{name}` is no size") as caught:
        tc.define(MM, strategy=Bucket(edges={name: (1, 8)}), sizes={"K": tc.Dim(1, 9)})
    assert hint in caught.value.hint
