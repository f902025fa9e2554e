# SPDX-License-Identifier: Apache-2.0
"""One text, everywhere: a layer is written once and used from each library as that library has it.

Read this first. Every test uses the same kernel; those of libraries that are not installed are
skipped.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym as tc

TEXT = """
def layer(double(B,K) X, double(N,K) W, double(N) b) -> (Y) {
  Y(i,n) +=! X(i,k) * W(n,k)
  Y(i,n) = tanh(Y(i,n) + b(n))
}"""
layer = tc.define(TEXT).layer

rng = np.random.default_rng(0)
X, W, b = rng.random((6, 3)), rng.random((4, 3)), rng.random(4)
EXPECTED = np.tanh(X @ W.T + b)


# ---- numpy


def test_numpy() -> None:
    assert np.allclose(layer(X, W, b), EXPECTED)
    assert np.allclose(layer(X, b=b[::-1], W=W[::-1]), EXPECTED[:, ::-1])  # by name, of any strides


def test_a_gradient_is_a_kernel() -> None:
    """d sum(Y) / db, beside the difference quotient."""
    Y = layer(X, W, b)
    db = layer.grad("b")(Y=Y, dY=np.ones_like(Y))
    step = 1e-6 * np.eye(4)
    quotients = [(layer(X, W, b + h).sum() - layer(X, W, b - h).sum()) / 2e-6 for h in step]
    assert np.allclose(db, quotients)


# ---- torch


@pytest.fixture
def torch(torch: Any) -> Any:
    if not hasattr(torch.library, "register_vmap"):
        pytest.skip("torch is older than 2.5")
    return torch


def tensors(torch: Any) -> list[Any]:
    return [torch.from_numpy(a.copy()).requires_grad_() for a in (X, W, b)]


def same_in_torch(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.tanh(x @ w.T + b)


def test_torch(torch: Any) -> None:
    given = tensors(torch)
    torch.testing.assert_close(layer(*given), same_in_torch(torch, *given))


def test_torch_gradients(torch: Any) -> None:
    assert torch.autograd.gradcheck(layer, tensors(torch))
    assert torch.autograd.gradgradcheck(layer, tensors(torch))


@pytest.mark.filterwarnings("ignore")
def test_torch_compiled(torch: Any) -> None:
    """One graph without a break serves all sizes."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    run = torch.compile(lambda *a: layer(*a) + 1, backend=backend, fullgraph=True, dynamic=True)
    for n in (2, 5, 9):
        x, w, bias = torch.rand(n, n + 1), torch.rand(n + 2, n + 1), torch.rand(n + 2)
        given = x.double(), w.double(), bias.double()
        torch.testing.assert_close(run(*given), same_in_torch(torch, *given) + 1)
    assert len(graphs) == 1


def test_torch_vmapped(torch: Any) -> None:
    x, w, bias = tensors(torch)
    many = torch.stack([x, 2 * x, 3 * x], dim=1)  # the batch is in the middle
    run = torch.func.vmap(layer, in_dims=(1, None, None))
    expected = torch.stack([layer(k * x, w, bias) for k in (1, 2, 3)])
    torch.testing.assert_close(run(many, w, bias), expected)


@pytest.mark.filterwarnings("ignore")
def test_torch_exported(torch: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, w: Any, b: Any) -> Any:
            return layer(x, W=w, b=b)

    given = tuple(tensors(torch))
    expected = same_in_torch(torch, *given)
    exported = torch.export.export(Model(), given, strict=False).module()
    torch.testing.assert_close(exported(*given), expected)
    torch.testing.assert_close(torch.jit.trace(Model(), given)(*given), expected)
    torch.testing.assert_close(torch.fx.symbolic_trace(Model())(*given), expected)


# ---- JAX


@pytest.fixture
def jax(jax: Any) -> Any:
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", False)


def test_jax_jitted(jax: Any) -> None:
    assert np.allclose(jax.jit(layer)(X, W, b), EXPECTED)


def test_jax_batched(jax: Any) -> None:
    Y = jax.vmap(layer, in_axes=(0, None, None))(np.stack([X, X + 1]), W, b)
    assert np.allclose(Y[1], layer(X + 1, W, b))


def test_jax_differentiated(jax: Any) -> None:
    f, same = layer, lambda x, w, b: jax.numpy.tanh(x @ w.T + b)
    ours, jaxs = (jax.grad(lambda *a, g=g: g(*a).sum(), (0, 1, 2)) for g in (f, same))
    for got, want in zip(jax.jit(ours)(X, W, b), jaxs(X, W, b)):
        assert np.allclose(got, want)


# ---- arrays in chunks, arrays with names


def test_dask() -> None:
    """Rows are blocks; the sum over `k` is one of parts, and what follows waits for it."""
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    from tcsym.dask import apply

    Y = apply(layer, da.from_array(X, chunks=(2, 2)), W, b)
    assert Y.chunks == ((2, 2, 2), (4,)) and np.allclose(Y.compute(), EXPECTED)


def test_xarray(xarray: Any) -> None:
    from tcsym.xarray import apply

    named = xarray.DataArray(X, dims=("sample", "feature"), coords={"sample": list("abcdef")})
    Y = apply(layer, named, xarray.DataArray(W, dims=("unit", "feature")), b)
    assert Y.dims == ("sample", "unit") and np.allclose(Y.sel(sample="c"), EXPECTED[2])


# ---- without a compiler

WITHOUT_COMPILER = """
import sys
sys.modules["llvmlite"] = sys.modules["islpy"] = sys.modules["lark"] = None  # as if not installed
import numpy, tcsym
X, W, b = (numpy.load(f"{sys.argv[1]}/{name}.npy") for name in "XWb")
numpy.save(f"{sys.argv[1]}/Y.npy", tcsym.load(f"{sys.argv[1]}/layer")(X, W, b))
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_artifact(tmp_path: Path) -> None:
    layer.export(tmp_path / "layer")
    for name, a in (("X", X), ("W", W), ("b", b)):
        np.save(tmp_path / f"{name}.npy", a)
    subprocess.run([sys.executable, "-c", WITHOUT_COMPILER, str(tmp_path)], check=True)
    assert np.allclose(np.load(tmp_path / "Y.npy"), EXPECTED)
