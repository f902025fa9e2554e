# SPDX-License-Identifier: Apache-2.0
"""States that are read in their own loops at positions that only data know (LANGUAGE E6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tests.differentiate.differences import disagreement

TREE = """def tree({t}(N,D) X, int32(N1) at, int32(E) child, {t}(D,D) U) -> ({t}(N,D) h) {{
  for n in N {{
    s(d) +=! h(child(e), d) where e in at(n):at(n+1)
    z(d) +=! s(k) * U(k,d)
    h(n,d) = tanh(X(n,d) + z(d))
  }}
}}"""
CHAIN = """def chain(float(N) X, int32(N) p) -> (float(N+1) h, float(N) y) {
  h(0) = 1.0
  for t in N {
    y(t) = h(p(t)) * 2.0
    h(t+1) = sin(y(t)) + X(t)
  }
}"""
BACKWARDS = """def back(float(N,D) X, int32(N) p) -> (float(N,D) h) {
  for t in N {
    h(N-1-t,d) = t == 0 ? X(t,d) : X(t,d) + 0.5 * h(p(t),d)
  }
}"""
ROWS = """def rows(float(N,N) X, int32(N,N) p) -> (float(N,N) h) {
  for i in N { for j in N {
    h(i,j) = i + j > 0 ? X(i,j) + 0.5 * h(p(i,j) / N, p(i,j) % N) : X(i,j)
  } }
}"""
TARGETS = ("cpu", "cpu:novector", "cuda:twin")


def tree_given(n: int, d: int, rng: np.random.Generator, dtype: Any = np.float32) -> dict[str, Any]:
    """A forest, children before parents."""
    at, child, roots = [0], list[int](), list[int]()
    for k in range(n):
        for _ in range(rng.integers(0, 3)):
            if roots:
                child.append(roots.pop(rng.integers(len(roots))))
        at.append(len(child))
        roots.append(k)
    return {
        "X": rng.uniform(-1, 1, (n, d)).astype(dtype),
        "at": np.array(at, np.int32),
        "child": np.array(child or [0], np.int32),
        "U": rng.uniform(-1, 1, (d, d)).astype(dtype),
    }


def _same(kernel: Any, given: dict[str, Any]) -> None:
    """The same results, or the same error at the same place."""
    try:
        expected = kernel.reference(**given)
    except tcsym.TCError as error:
        with pytest.raises(type(error)) as raised:
            kernel(**given)
        assert (raised.value.line, raised.value.column) == (error.line, error.column)
        return
    found = kernel(**given)
    pairs = zip(found, expected) if isinstance(expected, tuple) else [(found, expected)]
    for x, y in pairs:
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [0, 1, 7, 40])
def test_trees(target: str, n: int) -> None:
    kernel = tcsym.define(TREE.format(t="float"), target=target).tree
    rng = np.random.default_rng(n)
    for d in (1, 5, 17):
        given = tree_given(n, d, rng)
        _same(kernel, given)
        kernel(**given)  # no error
        wrong = given["child"].copy()
        for k in range(len(wrong)):
            for value in (n - 1, n, -1, 2**31 - 1):
                wrong[k], before = value, wrong[k]
                _same(kernel, given | {"child": wrong})
                wrong[k] = before


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [CHAIN, BACKWARDS, ROWS])
def test_positions_that_were_written_and_others(target: str, text: str) -> None:
    kernel = tcsym.define(text, target=target)
    kernel = kernel[next(iter(kernel))]
    rng = np.random.default_rng(0)
    kinds = set[str]()
    for n in (1, 2, 3, 5):
        for attempt in range(20):
            shape = {t.name: (n,) * len(t.shape) for t in kernel.program.inputs}
            p = rng.integers(0, n + 1, shape["p"])
            if attempt % 3:
                steps = np.arange(p.size).reshape(p.shape)
                p = (
                    p % np.maximum(steps, 1)
                    if text is not BACKWARDS
                    else n - 1 - p % np.maximum(steps, 1)
                )
            given = {
                "X": rng.uniform(-1, 1, shape["X"]).astype(np.float32),
                "p": p.astype(np.int32),
            }
            try:
                kernel.reference(**given)
                kinds.add("")
            except tcsym.TCError as error:
                kinds.add(error.kind)
            _same(kernel, given)
    assert {"", "init"} <= kinds


def test_what_is_wrong_is_shown_at_the_read() -> None:
    kernel = tcsym.define(CHAIN).chain
    with pytest.raises(tcsym.InitError, match="`h` is read before it is written") as found:
        kernel(np.ones(3, np.float32), np.array([0, 2, 1], np.int32))
    assert (found.value.line, found.value.column) == (4, 12)


def test_behind_its_loop_all_that_is_reached_must_be_written() -> None:
    text = """def f(float(N) X, int32(N) p) -> (float(N) Y) {
      for t in N { h(t+1) = X(t) }
      Y(i) = h(p(i))
    }"""
    with pytest.raises(tcsym.TCError):
        tcsym.define(text)(np.ones(3, np.float32), np.zeros(3, np.int32))


@pytest.mark.parametrize("recompute", ["auto", "all", "none", "cheap"])
def test_gradients_go_to_these_positions(recompute: str) -> None:
    rng = np.random.default_rng(1)
    given = tree_given(7, 3, rng, np.float64)
    sizes = {"N": 7, "N1": 8, "E": len(given["child"]), "D": 3}
    text = TREE.format(t="double")
    assert disagreement(text, sizes, arrays=given, recompute=recompute) == ""
    kernel = tcsym.define(text).tree
    saved = kernel.saving(recompute="none").output_shapes(**sizes)
    assert all(np.prod(shape) <= 7 * 3 for shape in saved.values())
    assert "dh_sum(child(e), d) += " in kernel.grad().source
