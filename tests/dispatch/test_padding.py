# SPDX-License-Identifier: Apache-2.0
"""Padding is exact: which ranges run into it, what it holds, and generated programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import tcsym as tc
from tcsym.compiler import analyse
from tcsym.rewrite.pad import PaddedProgram, pad_program
from tcsym.strategy import Pad
from tests.fuzz.compare import difference, outcome, tolerances
from tests.fuzz.model import Case
from tests.fuzz.test_fuzz import cases
from tests.fuzz.updates import in_place, results_of

F32 = np.float32


def padded(text: str, *names: str) -> PaddedProgram:
    program = next(iter(analyse(text).values()))
    return pad_program(program, names or program.sizes)


def ranges(text: str, *names: str) -> dict[str, str]:
    """Range of each statement -> what its end is: a size's name, padded or true."""
    body: Any = padded(text, *names).program.body
    return {f"{s.name}.{r.variable}": str(r.upper) for s in body for r in s.domain}


def test_a_dot_product_runs_into_zeros() -> None:
    made = padded("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    assert made.fill == {"A": 0, "B": 0} and made.true == {n: f"{n}_true" for n in "MKN"}
    assert {r.variable: str(r.upper) for r in made.program.body[0].domain} == {  # type: ignore
        "m": "M",
        "n": "N",
        "k": "K",
    }
    assert [str(e) for t in made.program.tensors for e in t.shape] == list("MKKNMN")


@pytest.mark.parametrize(
    ("text", "fill"),
    [
        ("def f(float(N) A) -> (S) { S +=! A(i) }", 0),
        ("def f(float(N) A) -> (S) { S *=! A(i) }", 1),
        ("def f(float(N) A) -> (S) { S max=! A(i) }", float("-inf")),
        ("def f(float(N) A) -> (S) { S min=! A(i) }", float("inf")),
        ("def f(float(N) A) -> (S) { S min=! -A(i) }", float("-inf")),
        ("def f(int8(N) A) -> (S) { S max=! A(i) }", -128),
        ("def f(uint8(N) A) -> (S) { S min=! A(i) }", 255),
        ("def f(bool(N) A) -> (S) { S min=! A(i) }", 1),
        ("def f(int32(N) A, int32 b) -> (S) { S +=! A(i) * b }", 0),
    ],
)
def test_identities(text: str, fill: float) -> None:
    made = padded(text)
    assert made.fill["A"] == fill and "padded to N" in made.notes[0]
    dtype = np.dtype(made.program.inputs[0].dtype.numpy)
    kernel = tc.define(text, strategy=Pad(8)).f
    rest = [np.int32(3)] if "b" in text.split(")")[1] else []
    for n in (0, 1, 5, 8, 9):
        a = (np.arange(n) % 2 + 1).astype(dtype)
        assert kernel(a, *rest) == kernel.reference(a, *rest)


@pytest.mark.parametrize(
    ("text", "end", "why"),
    [
        # An unknown factor may be infinite: 0 * inf is NaN.
        ("def f(float(N) A, float b) -> (S) { S +=! A(i) * b }", "N_true", "identity"),
        ("def f(float(N) A) -> (S) { S +=! exp(A(i)) }", "N_true", "identity"),
        ("def f(int8(N) A) -> (S) { S max=! int32(A(i)) }", "N_true", "identity"),
        ("def f(float(N) A) -> (S) { S +=! A(N - 1 - i) where i in 0:N }", "N_true", "identity"),
        ("def f(float(N) A) -> (S) { S +=! A(0) where i in 0:N }", "N_true", "identity"),
        ("def f(float(N) A) -> (S) { S +=! A(i) where i in N/2:N }", "N_true", "begins at a size"),
        ("def f(float(N) A) -> (O) { O(i) = A(i) + A(N - 1 - i) }", "N_true", "outside"),
    ],
)
def test_true_bounds_stay_where_padding_could_be_seen(text: str, end: str, why: str) -> None:
    assert end in ranges(text).values()
    assert any(why in note for note in padded(text).notes)
    kernel = tc.define(text, strategy=Pad(8)).f
    rest = [np.float32(np.inf)] if "b)" in text else []
    for n in (1, 2, 5, 8, 9):
        a = np.arange(1, n + 1).astype(kernel.signature.inputs["A"].dtype.numpy)
        np.testing.assert_array_equal(kernel(a, *rest), kernel.reference(a, *rest))


def test_a_size_as_a_value_is_the_true_one() -> None:
    mean = tc.define("def f(float(N) A) -> (m) { m +=! A(i) / float(N) }", strategy=Pad(16)).f
    assert mean(np.full(5, 3, F32)) == pytest.approx(3)
    shifted = "def f(float(N) A) -> (float(2*N) O) { O(i) = i < N ? A(i) : A(i - N) }"
    double = tc.define(shifted, strategy=Pad(16)).f
    np.testing.assert_array_equal(double(np.arange(3, dtype=F32)), [0, 1, 2, 0, 1, 2])


def test_what_a_gather_is_checked_against_is_not_padded() -> None:
    text = "def f(float(H,D) T, int32(N) i) -> (O) { O(n,d) = T(i(n),d) }"
    assert [str(e) for e in padded(text).program.tensor("T").shape] == ["H_true", "D"]
    lookup = tc.define(text, strategy=Pad(8)).f
    table = np.arange(12, dtype=F32).reshape(4, 3)
    np.testing.assert_array_equal(lookup(table, np.array([3, 0], np.int32)), table[[3, 0]])
    assert lookup(table[:0], np.zeros(0, np.int32)).shape == (0, 3)
    for wrong in (4, 7, -1):
        with pytest.raises(tc.BoundsError):
            lookup(table, np.array([wrong], np.int32))


def test_loops_run_as_often_as_meant() -> None:
    text = """def f(float(T,N) X) -> (float(N) s) {
  s(i) = 0.0
  for t in T { s(i) = s(i) * 0.5 + X(t,i) + 1.0 }
}"""
    kernel = tc.define(text, strategy=Pad(8)).f
    for shape in ((0, 3), (1, 1), (5, 9), (8, 8)):
        x = np.ones(shape, F32)
        np.testing.assert_array_equal(kernel(x), kernel.reference(x))


def test_part_of_an_output() -> None:
    text = """def f(float(N) A, float(M) B) -> (float(N+M) O) {
  O(i) = 9.0
  O(i) = A(i) where i in 0:N
}"""
    kernel = tc.define(text, strategy=Pad(8)).f
    a, b = np.ones(3, F32), np.ones(2, F32)
    np.testing.assert_array_equal(kernel(a, b), [1, 1, 1, 9, 9])


def test_only_chosen_sizes() -> None:
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    assert set(ranges(text, "M").values()) == {"M", "K", "N"}
    kernel = tc.define(text, strategy=Pad(8, sizes="M")).f  # type: ignore[arg-type]
    for m in (1, 5, 8):
        kernel(np.ones((m, 3), F32), np.ones((3, 4), F32))
    assert kernel.stats.compilations + kernel.stats.cache_hits == 1


def test_out_and_strides() -> None:
    kernel = tc.define("def f(float(M,N) A) -> (O) { O(j,i) = A(i,j) }", strategy=Pad(8)).f
    a = np.arange(60, dtype=F32).reshape(6, 10)[::2, ::-3]
    out = np.zeros((4, 3), F32)
    assert kernel(a, out=out) is out
    np.testing.assert_array_equal(out, a.T)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_generated_programs(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", "1")
    strategies = (Pad(8), Pad(3, bind="before"))

    @settings(
        max_examples=2,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(level))
    def check(case: Case) -> None:
        names = results_of(case)
        for strategy in strategies:
            try:
                kernel = in_place(tc.define(case.source, strategy=strategy)[case.name], case)
            except tc.TCError:
                return
            for sizes in case.sizes[:3]:
                inputs = case.arrays(sizes)
                want = outcome(kernel.reference, names, inputs, sizes)
                got = outcome(kernel, names, inputs, sizes)
                if isinstance(want, tc.TCError) or isinstance(got, tc.TCError):
                    assert getattr(got, "kind", got) == getattr(want, "kind", want), case.source
                    continue
                allowed = tolerances(kernel.reference, want, inputs, sizes, 0)
                wrong, details = difference(got, want, allowed)
                assert not wrong, f"{strategy} {sizes}\n{case.source}\n{details}"

    check()
