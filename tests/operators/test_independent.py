# SPDX-License-Identifier: Apache-2.0
"""Inputs that no result depends on: their derivatives are zeros wherever others differentiate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.errors import IndependentError

TEXTS = {
    "another size": "def f(float(N) X, float(M) Z) -> (Y) { Y(i) = X(i) * X(i) }",
    "the same size": "def f(float(N) X, float(N) Z) -> (Y) { Y(i) = X(i) * X(i) }",
    "a scalar": "def f(float(N) X, float Z) -> (Y) { Y(i) = X(i) * X(i) }",
    "its size only": "def f(float(N) X, float(M) Z) -> (float(M,N) Y) { Y(j,i) = X(i) * X(i) }",
    "beside a sum": "def f(float(N) X, float(M) Z) -> (Y) { s +=! exp(X(i))  Y(i) = X(i) / s }",
    "two results": "def f(float(N) X, float(M) Z) -> (Y, V) { Y(i) = X(i) * X(i)  V = 2.0 * X(0) }",
    "free sizes": "def f(float(N) X, float(M) Z, size S) -> (Y) { Y(i) = X(S*i) where i in 0:N/S }",
}
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=TEXTS)
def kernel(request: pytest.FixtureRequest) -> Any:
    return tcsym.define(TEXTS[request.param]).f


def values(kernel: Any) -> tuple[Any, Any]:
    rank = kernel.plan().call.inputs[1].rank
    return np.arange(1, 5, dtype=np.float32), np.ones((4,) * rank, np.float32)


def total(kernel: Any) -> Any:
    """The kernel, and the sum of its results, as functions of X and Z."""
    sizes = {"sizes": {"S": 1}} if "size S" in kernel.source else {}

    def summed(x: Any, z: Any) -> Any:
        found = kernel(x, z, **sizes)
        results = found if isinstance(found, tuple) else (found,)
        return sum(y.sum() for y in results)

    return summed


def test_a_derivative_by_them_alone_says_so(kernel: Any) -> None:
    for derive in (kernel.grad, kernel.jvp, kernel.saving):
        with pytest.raises(IndependentError, match="no floating output of `f` depends on `Z`"):
            derive("Z")


def test_torch(kernel: Any, torch: Any) -> None:
    func, f = torch.func, total(kernel)
    x, z = map(torch.from_numpy, values(kernel))
    zs = torch.stack([z, 2 * z, 3 * z])
    torch.testing.assert_close(torch.vmap(f, (None, 0))(x, zs), f(x, z).expand(3))
    expected = func.grad(f)(x, z)
    torch.testing.assert_close(torch.vmap(func.grad(f), (None, 0))(x, zs), expected.expand(3, 4))
    for derive in (func.grad, func.jacrev, func.jacfwd):
        assert not derive(f, 1)(x, z).any()
        assert not torch.vmap(derive(f, 1), (None, 0))(x, zs).any()
    assert not func.hessian(f, 1)(x, z).any()
    moved = func.jvp(lambda z: f(x, z), (z,), (z,))
    assert moved[0] == f(x, z) and moved[1] == 0


@pytest.mark.parametrize("way", ["recorded", "compiled"])
def test_torch_records_nothing(kernel: Any, torch: Any, way: str) -> None:
    f = total(kernel)
    if way == "compiled":
        torch.compiler.reset()
        f = torch.compile(f, fullgraph=True, backend="aot_eager")
    x, z = map(torch.from_numpy, values(kernel))
    needed = z.clone().requires_grad_()
    for _ in range(2):
        found = f(x, needed) + needed.sum() * 3
        torch.testing.assert_close(found, f(x, z) + z.sum() * 3)
        (gradient,) = torch.autograd.grad(found, needed)
        torch.testing.assert_close(gradient, torch.full_like(z, 3))


def test_jax(kernel: Any, jax: Any) -> None:
    f = total(kernel)
    x, z = values(kernel)
    zs = np.stack([z, 2 * z, 3 * z])
    for g in (f, jax.jit(f)):
        assert np.allclose(jax.vmap(g, (None, 0))(x, zs), f(x, z))
        assert np.allclose(jax.vmap(jax.grad(g), (None, 0))(x, zs), jax.grad(g)(x, z))
        for derive in (jax.grad, jax.jacrev, jax.jacfwd, jax.hessian):
            assert not np.any(derive(g, 1)(x, z))
        moved = jax.jvp(lambda z, g=g: g(x, z), (z,), (z,))
        assert np.allclose(moved[0], f(x, z)) and moved[1] == 0
