"""Recorded calls of long loops keep states of some steps: torch and JAX."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import tcsym

TEXT = """
    def scan(double(T,N) X, double(N) w) -> (double(N) y) {
      h(n) = double(0.0) where n in 0:N
      for t in T { h(n) = tanh(w(n) * h(n) + X(t,n)) }
      y(n) = h(n)
    }
    def gated(double(T,N) X, double(N) w) -> (double(T+1,N) h) {
      h(0,n) = double(0.0)
      for t in T {
        q(n) = 1.0 / (1.0 + exp(-w(n) * h(t,n)))
        h(t+1,n) = q(n) * h(t,n) + (1.0 - q(n)) * X(t,n)
      }
    }"""
LAYERS = tcsym.define(TEXT, recompute="sqrt")


def _shapes(steps: int) -> list[tuple[int, ...]]:
    return [(steps, 3), (3,)]


@pytest.mark.parametrize("name", ["scan", "gated"])
def test_torch_keeps_states_of_some_steps(name: str) -> None:
    torch = pytest.importorskip("torch")
    layer = LAYERS[name]

    def leaves(steps: int) -> list[Any]:
        made = (torch.randn(s, dtype=torch.float64) for s in _shapes(steps))
        return [x.requires_grad_() for x in made]

    for steps in (0, 1, 10):
        assert torch.autograd.gradcheck(layer, leaves(steps))
    result = layer(*leaves(10))
    if name == "scan":  # of 10 steps, in segments of 4: 4 states
        assert (4, 3) in [tuple(x.shape) for x in result.grad_fn.saved_tensors]
        assert torch.autograd.gradgradcheck(layer, leaves(3))


@pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("objcopy") is None, reason="there is no C compiler"
)
@pytest.mark.parametrize("name", ["scan", "gated"])
def test_jax_keeps_states_of_some_steps(name: str) -> None:
    jax = pytest.importorskip("jax")
    from tcsym.jax import operator

    layer = tcsym.define(TEXT.replace("double(", "float("), recompute="sqrt")[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in _shapes(10)]
    loss = jax.jit(lambda *given: (operator(layer)(*given) ** 2).sum())
    found = jax.grad(loss, argnums=(0, 1))(*arrays)
    (output,) = layer.program.outputs
    expected = layer.grad(recompute="all")(*arrays, **{f"d{output.name}": 2 * layer(*arrays)})
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_is_no_way_to_compute_again() -> None:
    with pytest.raises(tcsym.OptionError, match="recompute is 'some'"):
        tcsym.define("def f(float(N) X) -> (Y) { Y(i) = X(i) }", recompute="some")
