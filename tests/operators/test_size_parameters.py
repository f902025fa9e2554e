# SPDX-License-Identifier: Apache-2.0
"""Size parameters of kernels as operators of torch and JAX, and of artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import TCError

TEXT = "def f(float(N) X, size S, float(K) W) -> (Y) { Y(i) +=! X(S*i + k) * W(k) }"
X, W = np.arange(20, dtype=np.float32), np.array([1, 10], np.float32)


def expected(step: int) -> Any:
    return np.convolve(X, W[::-1], "valid")[::step]


def test_torch(torch: Any) -> None:
    kernel = tcsym.define(TEXT).f
    x, w = torch.tensor(X, requires_grad=True), torch.tensor(W)
    y = kernel(x, 3, w)
    y.sum().backward()
    np.testing.assert_array_equal(y.detach(), expected(3))
    np.testing.assert_array_equal(x.grad[:6], [1, 10, 0, 1, 10, 0])
    many = torch.func.vmap(lambda a: kernel(a, W=w, S=2))(torch.stack([x, 2 * x]))
    np.testing.assert_array_equal(many[1].detach(), 2 * expected(2))
    run = torch.compile(lambda *a, **given: kernel(*a, **given), backend="aot_eager")
    for given in (
        {"W": w, "S": 3},
        {"W": w, "sizes": {"S": 3}},
        {"W": w, "S": 3, "sizes": {"S": 3}},
    ):
        np.testing.assert_array_equal(run(x, **given).detach(), expected(3))
    with pytest.raises(TCError, match="`S` is 3, but 2 in `sizes=`"):
        run(x, 3, w, sizes={"S": 2})
    for size in (2.0, w):
        with pytest.raises(TCError) as e:
            kernel(x, size, w)
        assert (e.value.kind, e.value.column) == ("type", 24)


def test_jax(jax: Any) -> None:
    from tcsym.jax import operator

    run = operator(tcsym.define(TEXT).f)
    np.testing.assert_array_equal(jax.jit(lambda a: run(a, 3, W))(X), expected(3))
    gradient = jax.grad(lambda a: run(a, S=3, W=W).sum())(jax.numpy.asarray(X))
    np.testing.assert_array_equal(gradient[:6], [1, 10, 0, 1, 10, 0])


def test_artifact(tmp_path: Path) -> None:
    made = tcsym.load(tcsym.define(TEXT).f.export(tmp_path / "f"))
    for got in (made(X, 3, W), made(X, W=W, S=np.int8(3)), made(X, W=W, sizes={"S": 3})):
        np.testing.assert_array_equal(got, expected(3))
    for size, kind in ((2.0, "type"), (-1, "size"), (0, "size")):
        with pytest.raises(TCError) as e:
            made(X, size, W)
        assert e.value.kind == kind
