# SPDX-License-Identifier: Apache-2.0
"""`Options(bind={"K": "before", "N": "after"})`: numbers for single sizes, never another result."""

from __future__ import annotations

import pickle
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.background import settle
from tcsym.strategy import Bucket, Pad, Specialize
from tests.differential.corpus import CORPUS
from tests.differential.test_corpus import check, module

F32 = np.float32
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
BOTH = tc.Options(bind={"K": "before", "N": "after"})
pytestmark = pytest.mark.usefixtures("own_options")


def operands(m: int, k: int, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + 10 * k + 100 * n)
    return rng.integers(-4, 5, (m, k)).astype(F32), rng.integers(-4, 5, (k, n)).astype(F32)


def agree(kernel: Any, *sizes: int) -> None:
    a, b = operands(*sizes)
    np.testing.assert_array_equal(kernel(a, b), kernel.reference(a, b))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", [name for k, name in enumerate(CORPUS) if k % 8 == 1])
def test_corpus(name: str) -> None:
    """Sizes in turn before scheduling, after it and never, at several sizes."""
    case = CORPUS[name]
    words = zip(case.sizes[0], cycle(("before", "after", "never")))
    kernel = module(case, strategy="symbolic", options=tc.Options(bind=dict(words)))
    for sizes in case.sizes[:4]:
        check(name, kernel, sizes)


@pytest.mark.parametrize("strategy", ["auto", "symbolic"])
def test_a_variant_for_each_value_of_a_substituted_size(strategy: str) -> None:
    kernel = tc.define(MM, options=BOTH, strategy=strategy).mm
    for _ in range(3):
        for sizes in ((3, 4, 5), (70, 4, 5), (9, 4, 6), (3, 8, 5), (0, 4, 5)):
            agree(kernel, *sizes)
            settle()
    assert len(kernel.stats.variants) == 3
    assert set(kernel.stats.dispatch) == {
        f"specialised, K == {k} && N == {n}, options analytic" for k, n in ((4, 5), (4, 6), (8, 5))
    }
    assert sum(kernel.stats.dispatch.values()) == 15


def test_each_size_becomes_a_number_when_asked() -> None:
    kernel = tc.define(MM, options=BOTH).mm
    assert "for m in 0:M, n in 0:N, k in 0:4\n" in kernel.explain("scop", K=4, N=5)
    assert "float32[M, 4] argument" in kernel.explain("loops", K=4, N=5)
    assert "float32[4, 5] argument" in kernel.explain("loops", K=4, N=5)
    before, after = (
        tc.define(MM, options=tc.Options(bind={"K": when})).mm.explain("scop", K=37)
        for when in ("before", "after")
    )
    assert "37" in before.split("\n", 1)[1] and "37" not in after.split("\n", 1)[1]


def test_fixed_sizes_bind_as_they_are_named() -> None:
    kernel = tc.define(MM, options=BOTH, sizes={"K": 16, "N": 24}).mm
    agree(kernel, 5, 16, 24)
    text = kernel.explain("loops")
    assert text.startswith("# symbolic, all sizes, options analytic: bind[K]=before bind[N]=after")
    assert "float32[16, 24] argument" in text
    never = tc.define(MM, options=tc.Options(bind={"K": "before"}), sizes={"K": 16, "N": 24}).mm
    assert "float32[16, N] argument" in never.explain("loops")
    with pytest.raises(tc.SizeError):
        kernel(*operands(5, 16, 23))


def test_without_sizes_nothing_is_made_yet() -> None:
    kernel = tc.define(MM, options=BOTH).mm
    assert "no version is made before its sizes are known" in kernel.explain("mapped")
    assert kernel.explain() == "no variant is compiled yet"
    assert "not compiled yet: the first call waits" in kernel.explain(M=3, K=4, N=5)
    assert kernel.stats.compilations == 0


def test_precompile_and_compile() -> None:
    sizes = {"K": tc.Dim(8, 24, multiple_of=8), "N": 5}
    kernel = tc.define(MM, options=BOTH, sizes=sizes).mm
    kernel.precompile()
    assert len(kernel.stats.variants) == 3
    made = kernel.compile(M=3, K=16, N=5)
    a, b = operands(3, 16, 5)
    np.testing.assert_array_equal(made(a, b), kernel.reference(a, b))
    assert len(kernel.stats.variants) == 3


def test_the_least_used_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tc.define(MM, options=BOTH).mm
    monkeypatch.setattr(kernel._dispatcher.policy.room, "most", 2)  # type: ignore[attr-defined]
    for k in (2, 3, 2, 4, 2, 3):
        agree(kernel, 5, k, 6)
        settle()
        assert len(kernel._dispatcher.versions) <= 2
    assert kernel.stats.evictions == 2  # what was given up is not entered by a row that is left
    assert sum(kernel.stats.dispatch.values()) == 6


@pytest.mark.parametrize("background", [False, True])
def test_specialize_follows_what_is_named(background: bool) -> None:
    options = tc.Options(bind={"K": "before", "M": "never"})
    kernel = tc.define(MM, options=options, strategy=Specialize(background=background)).mm
    for sizes in ((3, 4, 5), (7, 4, 5), (70, 4, 5)):
        agree(kernel, *sizes)
        settle()
    text = kernel.explain("loops", M=3, K=4, N=5)
    if not background:  # else the symbolic version serves until that is made
        assert "bind[K]=before bind[N]=after" in text and "float32[M, 4] argument" in text
        assert len(kernel.stats.variants) == 1


def test_sizes_that_no_argument_has_are_kept_too() -> None:
    """Of a def without inputs a call gives all sizes by name."""
    source = "def f() -> (int64(N) F) { F(i) = 2 * i }"
    kernel = tc.define(source, strategy=Specialize(background=1.0)).f
    for n in (3, 3, 3, 7, 3, 7):
        np.testing.assert_array_equal(kernel(sizes={"N": n}), 2 * np.arange(n))
        settle()


def test_pad_follows_what_is_named() -> None:
    kernel = tc.define(MM, options=BOTH, strategy=Pad(to=8)).mm
    for sizes in ((3, 4, 5), (7, 9, 5), (70, 4, 5)):
        agree(kernel, *sizes)
    loops = kernel.explain("options", M=3, K=4, N=5)
    assert tc.Options.from_json(loops).bind_of == {"K": "before", "M": "after", "N": "after"}
    symbolic = tc.define(MM, options=tc.Options(bind={"K": "never"}), strategy=Pad(to=8)).mm
    agree(symbolic, 3, 4, 5)
    agree(symbolic, 3, 12, 5)


def test_bucket_takes_fixed_sizes_and_refuses_others() -> None:
    sizes = {"M": tc.Dim(1, 64), "K": 16, "N": 24}
    kernel = tc.define(MM, options=BOTH, strategy="bucket", sizes=sizes).mm
    for m in (1, 5, 64):
        agree(kernel, m, 16, 24)
    assert "float32[16, 24] argument" in kernel.explain("loops", M=3)
    wrong: Any
    for wrong in (Bucket(), Pad(to=8, sizes=("M",))):
        with pytest.raises(tc.OptionError, match="`K`") as error:
            tc.define(MM, options=BOTH, strategy=wrong, sizes={"M": tc.Dim(1, 64)})
        assert 'strategy="specialize"' in error.value.hint


def test_unknown_sizes_are_refused_with_the_nearest() -> None:
    with pytest.raises(tc.OptionError, match="has `BATHC`, which is no size") as error:
        tc.define(
            "def f(float(BATCH,N) x) -> (y) { y(b) +=! x(b,i) }",
            options=tc.Options(bind={"BATHC": "before"}),
        )
    assert error.value.hint == "did you mean `BATCH`? sizes are BATCH, N"
    two = tc.define(f"{MM} def f(float(P) x) -> (y) {{ y(i) = x(i) }}", options=BOTH)
    assert two.f(np.ones(3, F32)).tolist() == [1, 1, 1]


def test_tuned_options_and_pickles_keep_the_binding() -> None:
    kernel = pickle.loads(pickle.dumps(tc.define(MM, options=BOTH).mm))
    agree(kernel, 3, 4, 5)
    kernel.tune(sizes=[{"M": 8, "K": 4, "N": 5}], candidates=2, progress=False)
    agree(kernel, 8, 4, 5)
    assert "bind[K]=before bind[N]=after" in kernel.explain("loops", M=8, K=4, N=5)


def test_the_code_cache_tells_bindings_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # a cache that other runs kept has both
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))
    texts = []
    for when in ("before", "after"):
        kernel = tc.define(MM, options=tc.Options(bind={"K": when})).mm
        agree(kernel, 3, 37, 5)
        assert (kernel.stats.compilations, kernel.stats.cache_hits) == (1, 0)
        texts.append(kernel.explain("scop", K=37).split("\n", 1)[1])
    assert texts[0] != texts[1]
    again = tc.define(MM, options=tc.Options(bind={"K": "after"})).mm
    agree(again, 3, 37, 5)
    assert again.stats.cache_hits == 1
