# SPDX-License-Identifier: Apache-2.0
"""Texts with results in place of updates."""

from __future__ import annotations

import numpy as np

import tcsym

TEXT = """
def add(inout float(N) Y, float(N) X) -> (s) { Y(i) += X(i)  s +=! Y(i) }
def f(inout float(N,M) Y, float(N) X, inout int32 Y_new) -> (Z) {
  Z(i) = X(i)
  s = add(Z, X)
  Y(i,j) = Y(i,j) * Z(i) + Y(0,j) where i in 0:N, j in 0:M
  for t in 1:N { if t > 1 { Y(t,j) += Y(t-1,j) } }
  Y_new += 1
}
"""


def test_results_are_what_would_be_updated() -> None:
    kernel = tcsym.define(TEXT, target="cpu:novector").f
    made = kernel.functional()
    assert list(made.signature.outputs) == ["Z", "Y_new2", "Y_new_new"] and not made.program.inouts
    assert kernel.functional() is made and made.functional() is made
    Y, X, n = np.ones((4, 3), np.float32), np.arange(4, dtype=np.float32), np.zeros((), np.int32)
    before = Y.copy()
    Z, new, steps = made(Y, X, n)
    assert np.array_equal(Y, before) and n == 0
    assert np.array_equal(kernel(Y, X, n), Z)
    np.testing.assert_allclose(new, Y)
    assert steps == n == 1


def test_gradients_are_those_of_what_is_given_back() -> None:
    text = "def f(inout float(N) Y, float(N) X) -> () { Y(i) = Y(i) * X(i) }"
    gradient = tcsym.define(text, target="cpu:novector").f.grad()
    assert list(gradient.signature.inputs) == ["Y", "X", "dY_new"]
    Y, X, d = np.array([[2, 3], [5, 7], [1, 2]], np.float32)
    assert [x.tolist() for x in gradient(Y, X, d)] == [[5, 14], [2, 6]]


def test_a_batch_updates_a_batch() -> None:
    kernel = tcsym.define(TEXT, target="cpu:novector").add.batched(["X"])
    Y, X = np.zeros((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    assert kernel(Y, X).tolist() == [3, 12] and np.array_equal(Y, X)
