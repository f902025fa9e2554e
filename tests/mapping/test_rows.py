# SPDX-License-Identifier: Apache-2.0
"""Plans of rows, columns and maps: each is right at all sizes, and so is what is chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCError
from tests.mapping.proposals import proposed

SIZES = [(0, 3), (3, 0), (1, 1), (2, 7), (5, 16), (9, 17), (33, 3), (40, 31), (65, 33), (70, 100)]
PROGRAMS = {
    "softmax": "S(n) max=! X(n,d)  T(n) +=! exp(X(n,d) - S(n))  Y(n,d) = exp(X(n,d) - S(n)) / T(n)",
    "centred": "S(n) +=! X(n,d)  T(n) +=! X(n,d) * X(n,d)  Y(n,d) = X(n,d) * T(n) - b(d) * S(n)",
    "columns": "S(d) +=! X(n,d)  T(d) max=! X(n,d)  Y(n,d) = X(n,d)",
    "map": "S(n) +=! X(n,d)  T(n,d) = X(n,d) > b(d)  Y(n,d) = tanh(X(n,d)) + b(d)",
    "bytes": "S(n) +=! int32(Z(n,d))  T(d) min=! Z(n,d)  Y(n,d) = float(Z(n,d)) * b(d)",
}
HEAD = "def f({0}(N,D) X, {0}(D) b, int8(N,D) Z) -> (S, T, Y) {{ {1} }}"


def arguments(n: int, d: int, dtype: str) -> tuple[np.ndarray, ...]:
    r = np.random.default_rng(n + 100 * d)
    kind = {"half": np.float16, "float": np.float32, "double": np.float64}[dtype]
    x, b = (r.uniform(-1, 1, s).astype(kind) for s in ((n, d), (d,)))
    return x, b, r.integers(-9, 9, (n, d)).astype(np.int8)


def assert_right(f: tcsym.Kernel, n: int, d: int, dtype: str) -> None:
    given = arguments(n, d, dtype)
    near = 2e-2 if dtype == "half" else 1e-5
    for got, wanted in zip(f(*given), f.reference(*given), strict=True):
        np.testing.assert_allclose(got, wanted, near, near * (n + d), equal_nan=True)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("dtype", ["float", "double", "half"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_chosen(name: str, dtype: str, target: str) -> None:
    f = tcsym.define(HEAD.format(dtype, PROGRAMS[name]), target=target).f
    told = str(f.explain("mapped")).splitlines()
    assert not any("not mapped by directives" in x for x in told)
    for n, d in SIZES:
        assert_right(f, n, d, dtype)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_proposal(name: str, target: str) -> None:
    source = HEAD.format("float", PROGRAMS[name])
    for plans in proposed(source, target):
        f = tcsym.define(source, target=target, options=tcsym.Options(plan=plans)).f
        for n, d in SIZES:
            assert_right(f, n, d, "float")


def test_sums_of_many_rows() -> None:
    """Parts of long columns, whichever there are."""
    source = HEAD.format("float", PROGRAMS["columns"])
    for plans in proposed(source, "cpu:avx2"):
        f = tcsym.define(source, target="cpu:avx2", options=tcsym.Options(plan=plans)).f
        for n in (8191, 8192, 20_000):
            assert_right(f, n, 3, "float")


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_copies_are_merged(target: str) -> None:
    """A row of a copy goes on as the next one, so that no lane is found by a division."""
    source = "def f(float(N,D) X, float(D) W) -> (Y) { Y(n,d) = X(n,d) * W(d) }"
    plans = next(x for x in proposed(source, target) if "merge n.tile d" in x)
    f = tcsym.define(source, target=target, options=tcsym.Options(plan=plans)).f
    reads = [x for x in str(f.explain("mapped")).splitlines() if "] * W.copy" in x]
    assert reads and not any("/D" in x or "%" in x for x in reads)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("split n tile row:8; combine n.tail at d", "there is no loop n.tail"),
        ("split n tile row:8; combine n.row at n", "there is no loop n"),
        ("merge d n", "n is not right inside of d"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    source = "def f(float(N,D) X) -> (S) { S(d) +=! X(n,d) }"
    with pytest.raises(tcsym.OptionError, match=reason):
        tcsym.define(source, options=tcsym.Options(plan=f"d: {text}")).f(
            np.ones((9, 9), np.float32)
        )


KINDS = {"float": "f4", "double": "f8", "int8": "i1"}
ACROSS = {
    "transposed": "O(j,i) = X(i,j)",
    "of both": "O(j,i) = X(i,j) + X(j,i) + X(i,0)",
    "functions": "O(j,i) = exp(X(i,j)) * X(0,j) + X(i,i)",
    "backwards": "O(i,j) = X(i,N-1-j) + X(N-1-j,i)",
    "every other": "O(i,j) = X(i,2*j) + X(2*j,i) where j in 0:N/2, i in 0:N",
    "repeated": "O(j,i) = X(i/2,j/3) where i in 0:N, j in 0:N",
    "outer": "O(i,j,k) = X(i,j) * X(i,k) where i in 0:N",
    "permuted": "T(i,j,k) = X(i,j) * X(j,k)  O(k,i,j) = T(i,j,k)",
    "sums": "S(i,k) max=! X(j,k) - X(j,i)  T(i,k) +=! exp(X(k,j) - S(i,j))  O(k,i) = T(i,k)",
    "in the middle": "O(i,k) +=! exp(X(i,j) - X(j,k))",
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("dtype", ["float", "double", "int8"])
@pytest.mark.parametrize("name", ACROSS)
def test_what_lies_across(name: str, dtype: str, target: str) -> None:
    """By all plans; square blocks of float and double are transposed in registers."""
    source = f"def f({dtype}(N,N) X) -> (O) {{ {ACROSS[name]} }}"
    if (dtype == "int8" and "exp" in source) or (dtype == "double" and name != "transposed"):
        return
    for plans in proposed(source, target):
        f = tcsym.define(source, target=target, options=tcsym.Options(plan=plans)).f
        for n in (0, 1, 7, 31, 70):
            x = np.random.default_rng(n).uniform(-5, 5, (n, n)).astype(KINDS[dtype])
            np.testing.assert_allclose(f(x), f.reference(x), 1e-4, 1e-4)


FOUND = {
    "rows": "O(i,j) = X(p(i),j)",
    "elements": "O(i,j) = X(i,p(j)) + X(p(i),0)",
    "of rows": "O(i,j) = X(i,q(j,i))",
    "bags": "O(i,j) +=! X(q(i,k),j)",
    "weighted bags": "O(i,j) +=! X(q(i,k),j) * X(i,k)",
    "turned sums": "O(j,i) max=! X(q(i,k),j)",
    "one of a row": "S(i) max=! X(i,j)  O(i) = S(i) - X(i,p(i))",
    "tables": "O(i) +=! X(k,q(i,k))",
    "a shift": "O(i,j) = X(p(0) + i,j) where i in 0:N",
    "guards": "O(i,j) = i < N/2 ? exp(X(i,j)) : X(p(i-N/2),j) where i in 0:N",
    "joined": "O(j,i) = i < N/2 ? X(i,j) : X(i-N/2,p(j)) where i in 0:N",
    "several": "T(i,j) = X(p(i),j)  S(i) +=! T(i,q(i,j))  O(i,j) = T(i,p(j)) * S(p(i))",
}
PLACES = "def f(float(N,N) X, int32(N) p, int32(N,N) q) -> (O) {{ {0} }}"


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("name", FOUND)
def test_places_that_are_found(name: str, target: str) -> None:
    """By all plans; a place outside is the interpreter's error."""
    source = PLACES.format(FOUND[name])
    refused = list[bool]()
    for plans in proposed(source, target):
        f = tcsym.define(source, target=target, options=tcsym.Options(plan=plans)).f
        refused.append(_is_refused(f))
        for n in () if refused[-1] else (0, 1, 8, 17, 40):
            r = np.random.default_rng(n)
            x = r.uniform(-1, 1, (n, n)).astype("f4")
            p, q = (r.integers(0, max(1, n), (n,) * k).astype("i4") for k in (1, 2))
            p = p * 0 if name == "a shift" else p
            np.testing.assert_allclose(f(x, p, q), f.reference(x, p, q), 1e-4, 1e-4)
            if n > 2:
                p[n - 1 if n % 2 else 0] = q[n - 1, n // 2] = n if n % 2 else -1
                assert _outcome(f, x, p, q) == _outcome(f.reference, x, p, q)
    assert not all(refused)


def _is_refused(f: tcsym.Kernel) -> bool:
    """No copy is made ahead of the condition that it is read behind."""
    try:
        f(np.ones((1, 1), "f4"), np.zeros(1, "i4"), np.zeros((1, 1), "i4"))
    except tcsym.OptionError as error:
        assert "a condition decides" in error.message
        return True
    return False


def _outcome(f: Callable[..., object], *arguments: np.ndarray) -> str:
    try:
        f(*arguments)
    except TCError as error:
        return type(error).__name__
    return "a result"


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_two_sums_into_one_element(target: str) -> None:
    """Each has parts of its own shape."""
    text = "def f(float(M,N) A, float(M,K) B) -> (P) { P(m) +=! A(m,n)  P(m) += B(m,k) }"
    f, numbers = tcsym.define(text, target=target).f, np.random.default_rng(0)
    for m, n, k in ((1, 0, 2), (3, 4, 5), (17, 33, 70)):
        a, b = numbers.random((m, n), dtype="f4"), numbers.random((m, k), dtype="f4")
        np.testing.assert_allclose(f(a, b), a.sum(1) + b.sum(1), rtol=1e-5)
