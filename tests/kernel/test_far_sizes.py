# SPDX-License-Identifier: Apache-2.0
"""Sizes that are far from those of arrays: guards hold them off, or the call is refused.

Every way of calling a kernel says the same, on memory next to pages that nothing may touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.limits import Limits
from tests.guarded import guarded

STRIDED = """def w(float(N) X, size R, size M) -> (float(M) Y) {
  Y(i) = R*i < N ? X(R*i) : 0.0 where i in 0:M
}"""
WINDOWED = """def w(float(N) X, size R, size M) -> (float(M) Y) {
  Y(i) +=! R*i+j < N ? X(R*i+j) : 0.0 where i in 0:M, j in 0:2
}"""
BLOCKS = """def w(float(N) X, size R, size M) -> (float(M) Y) {
  Y(i) +=! X(k) where i in 0:M, k in min(i*R,N):min((i+1)*R,N)
}"""
QUOTIENTS = """def w(float(N) X, size R, size M) -> (float(M) Y) {
  Y(i) = (R*i + 7) / 4 < N && R*i % 8 == 0 ? X((R*i + 7) / 4) : 1.0 where i in 0:M
}"""
STEPS = """def w(float(N) X, size R, size M) -> (float(M) Y) {
  Y(i) = 0.0 where i in 0:M
  for t in min(R*M, 4) { if R*t < N { Y(i) = Y(i) + X(R*t) where i in 0:M } }
}"""
BACKWARDS = """def w(float(N) X, size R, size M) -> (float(M) Y) {
  Y(i) = N - 1 - R*i >= 0 ? X(N - 1 - R*i) : 2.0 where i in 0:M
}"""
CHOSEN = """def w(float(N) X, size R, size M) -> (float(M) Y) {
  Y(i) = X(min(R*i, N-1)) + X(max(N-1-R*i, 0)) where i in 0:M
}"""
TEXTS = [STRIDED, WINDOWED, BLOCKS, QUOTIENTS, STEPS, BACKWARDS, CHOSEN]
N, MOST = 37, 2**63 - 1
FITTING = [(3, 9), (2**15, 70), (65536, 40000), (2**31 - 1, 9), (2**32, 5), (2**60, 3), (2**61, 2)]
FITTING += [(2**62 - 50, 1), (2**40, 33), (2**48, 33), (2**47 + 1, 2)]
BEYOND = [(2**62, 3), (2**62, 4000), (MOST, 9), (2**33, 2**33)]

Way = Callable[[str, Mapping[str, int], Path], Callable[..., Any]]


def _fixed(text: str, sizes: Mapping[str, int], folder: Path) -> Callable[..., Any]:
    return tc.define(text, sizes={"R": sizes["R"]})


def _declared(text: str, sizes: Mapping[str, int], folder: Path) -> Callable[..., Any]:
    return tc.define(text, sizes={"R": tc.Dim(0, sizes["R"])})


def _session(text: str, sizes: Mapping[str, int], folder: Path) -> Callable[..., Any]:
    return tc.define(text).w.plan().session()


def _artifact(text: str, sizes: Mapping[str, int], folder: Path) -> Callable[..., Any]:
    return tc.load(tc.define(text, target="cpu:avx2").w.export(folder / "w"))


WAYS: dict[str, Way] = {
    "symbolic": lambda text, *_: tc.define(text, strategy="symbolic"),
    "auto": lambda text, *_: tc.define(text),
    "specialize": lambda text, *_: tc.define(text, strategy="specialize"),
    "twin": lambda text, *_: tc.define(text, target="cuda:twin"),
    "novector": lambda text, *_: tc.define(text, target="cpu:novector"),
    "fixed": _fixed,
    "declared": _declared,
    "session": _session,
    "artifact": _artifact,
}
ONCE = ("fixed", "declared")  # made for a value of R


def _outcome(call: Callable[..., Any], r: int, m: int) -> Any:
    x = guarded(np.arange(1, N + 1, dtype=np.float32))
    try:
        return np.array(call(x, r, m))
    except tc.TCError as error:
        return type(error).__name__


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", TEXTS)
def test_all_ways_say_what_mathematics_says(text: str, way: str, tmp_path: Path) -> None:
    reference = tc.define(text).w.reference
    made = None if way in ONCE else WAYS[way](text, {}, tmp_path)
    for r, m in (*FITTING, *BEYOND):
        if way == "twin" and m > 1000:
            continue  # a thread for each, one after the other
        want = _outcome(reference, r, m)
        got = _outcome(made or WAYS[way](text, {"R": r}, tmp_path), r, m)
        np.testing.assert_array_equal(got, want, err_msg=f"R = {r}, M = {m}")
        assert isinstance(want, np.ndarray) or want == "SizeError", (r, m)


@pytest.mark.parametrize(("r", "m"), FITTING)
def test_what_fits_is_right(r: int, m: int) -> None:
    want = [r * i + 1 if r * i < N else 0 for i in range(m)]
    assert _outcome(tc.define(STRIDED), r, m).tolist() == want


def test_the_error_is_at_the_first_token_of_the_formula() -> None:
    for call in (tc.define(STRIDED), tc.define(STRIDED).w.reference):
        with pytest.raises(tc.SizeError, match=r"`N - R\*i - 1` does not fit in 64 bits") as found:
            call(np.ones(N, np.float32), 2**62, 3)
        assert (found.value.line, found.value.column) == (2, 10)


@pytest.mark.parametrize(
    ("header", "body", "column"),
    [
        ("inout float(N) Y, size R, size Q) -> (", "Y(i) = 7.0 where i in 0:min(R*Q,N)", 28),
        ("float(N) X, size R, size Q) -> (Y", "Y(i) = X(0) where i in R*Q:R*Q+2", 27),
        ("float(N) X, size R, size Q) -> (Y", "Y = 0.0 for t in R*Q { Y = Y + X(0) }", 21),
        ("float(N) X, size R, size Q) -> (Y", "Y() +=! X(i) where i in R*Q*0:2, j in R*Q:3", 42),
        ("float(N) X, size R, size Q) -> (Y", "Y(i) = X(min(R*Q*i, N-1)) where i in 0:2", 13),
        ("float(N) X, size R, size Q) -> (Y", "Y(i) = X((R*Q + i) % N) where i in 0:2", 13),
        ("float(N) X, size R, size Q) -> (Y", "Y(i) = X((R*Q + i) / R % N) where i in 0:2", 13),
    ],
)
def test_no_formula_wraps(header: str, body: str, column: int) -> None:
    text = f"def w({header}) {{\n   {body} }}"
    kernel, x = tc.define(text), np.ones(5, np.float32)
    for r, q in [(2**31, 2**32), (2**32, 2**32), (2**62, 5), (MOST, MOST)]:
        for call in (kernel, kernel.w.reference):
            with pytest.raises(tc.SizeError, match="fit") as found:
                call(x, r, q)
            assert found.value.column == column, found.value
    assert x.tolist() == [1] * 5


def test_a_guard_is_no_excuse() -> None:
    text = "def w(float(N) X, size R) -> (Y) { Y(i) = i < 0 ? X(R*i) : 0.0 where i in 0:3 }"
    with pytest.raises(tc.SizeError):
        tc.define(text)(np.ones(3, np.float32), 2**62)


def test_values_of_sizes_wrap() -> None:
    text = "def w(int64(N) X, size R) -> (Y) { Y(i) = X(i) + R*i + int32(R*i) }"
    kernel, x = tc.define(text), np.zeros(3, np.int64)
    for r in (5, 2**31, 2**31 + 7):
        want = [2 * ((r * i + 2**31) % 2**32 - 2**31) for i in range(3)]
        assert kernel(x, r).tolist() == want == kernel.reference(x, r).tolist()


def test_a_guard_on_values_is_none() -> None:
    """`int32(R*i)` wraps, so that nothing follows from it."""
    text = """def w(float(N) X, size R) -> (Y) {
      Y(i) = int32(R*i) >= 0 && int32(R*i) < N ? X(R*i) : 0.0 where i in 0:4
    }"""
    kernel, x = tc.define(text).w, guarded(np.ones(5, np.float32))
    for r in (1, 2**30, 2**31, 2**32 + 1):
        got, want = (_bounds_or(f, x, r) for f in (kernel, kernel.reference))
        assert got == want


def _bounds_or(call: Callable[..., Any], *given: Any) -> Any:
    try:
        return call(*given).tolist()
    except tc.BoundsError:
        return "bounds"


def test_extents_of_arrays_without_elements() -> None:
    text = "def w(float(A,B) X, float(N) Z) -> (Y) { Y(i) = A*i < N ? Z(A*i) : 3.0 where i in 0:4 }"
    kernel, z = tc.define(text), guarded(np.ones(5, np.float32))
    for a in (2**31, 2**40, 2**60):
        x = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (a, 1), (0, 4))
        assert kernel(x, z).tolist() == [1, 3, 3, 3] == kernel.reference(x, z).tolist()


@pytest.mark.parametrize("position", ["j", "4*j", "j+3", "N-1-j"])
@pytest.mark.parametrize(
    "offsets",
    [[-1, MOST], [0, MOST], [MOST, -MOST - 1], [2**62, 2**62 + 2], [-(2**62), 0], [MOST - 1, MOST]],
)
def test_ends_of_ranges_that_tensors_say(position: str, offsets: list[int]) -> None:
    text = f"""def w(float(N) X, int64(P) off) -> (Y) {{
      Y(b) +=! X({position}) where b in 0:P-1, j in off(b):off(b+1)
    }}"""
    kernel, x = tc.define(text).w, guarded(np.ones(9, np.float32))
    for call in (kernel, kernel.reference):
        with pytest.raises(tc.BoundsError):
            call(x, np.array(offsets))


def test_guarded_reads_are_not_copied_as_far_as_they_reach() -> None:
    plan = tc.define(WINDOWED).w.plan()
    near, far = ({"N": 100, "R": r, "M": 4000} for r in (1, 65536))
    assert plan.memory().at(**far) <= plan.memory().at(**near) + 2**20


def test_seldom_sizes_have_versions_of_their_own() -> None:
    kernel = tc.define(STRIDED, strategy="symbolic").w
    x = np.ones(N, np.float32)
    kernel(x, 3, 5), kernel(x, 2**50, 5)
    assert len(kernel.stats.variants) == 2
    assert "wide" in kernel.explain("variants", N=N, R=2**50, M=5)


ENDS = "int32(P) off, float(J) X, size B"
USUAL = [
    f"def f({ENDS}) -> (Y) {{ Y(b) +=! j+1 < J ? X(j+1) : 0.0 where b in 0:B, j in off(b):J }}",
    f"def f({ENDS}) -> (Y) {{ Y(b) +=! j < J ? X(j) : 0.0 where b in 0:B, j in 0:off(b) }}",
    f"def f({ENDS}) -> (Y) {{ Y(b) +=! 16*j < J ? X(16*j) : 0.0 where b in 0:B, j in 0:off(b) }}",
    """def f(int32(B) n, float(B,J) X) -> (Y) {
      Y(b) +=! j < J && k <= j ? X(b,j) * X(b,k) : 0.0 where j in 0:n(b), k in 0:n(b)
    }""",
]


@pytest.mark.parametrize("text", USUAL)
def test_sizes_of_arrays_are_usual_whatever_ends_tensors_say(text: str) -> None:
    program = tc.define(text).f.program
    assert not Limits(program).is_wide((100,) * len(program.sizes))
