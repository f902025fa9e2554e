# SPDX-License-Identifier: Apache-2.0
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
def test_torch_keeps_states_of_some_steps(name: str, torch: Any) -> None:
    layer = LAYERS[name]

    def leaves(steps: int) -> list[Any]:
        made = (torch.randn(s, dtype=torch.float64) for s in _shapes(steps))
        return [x.requires_grad_() for x in made]

    for steps in (0, 1, 10):
        assert torch.autograd.gradcheck(layer, leaves(steps))
    if name == "scan":
        assert torch.autograd.gradgradcheck(layer, leaves(3))


def _saved_bytes(torch: Any, layer: Any, given: list[Any]) -> tuple[Any, int]:
    """A recorded call, and what it keeps beside its arguments."""
    found = {}

    def pack(x: Any) -> Any:
        found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = layer(*given)
    own = {x.untyped_storage().data_ptr() for x in given}
    return result, sum(n for place, n in found.items() if place not in own)


@pytest.mark.filterwarnings("ignore")
def test_torch_compiled_keeps_as_little(torch: Any) -> None:
    """Of 1000 steps, in segments of 32: 33 states in place of 1001."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    layer = LAYERS.scan
    run = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    through_aot = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for steps in (1000, 10):
        given = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in _shapes(steps)]
        expected = torch.autograd.grad(layer(*given).sum(), given)
        for served in (layer, run, through_aot):
            result, n = _saved_bytes(torch, served, given)
            assert n <= (33 + 1) * 3 * 8 if steps == 1000 else n <= (4 + 1) * 3 * 8
            torch.testing.assert_close(torch.autograd.grad(result.sum(), given), expected)
    assert len(graphs) == 1


def test_torch_func(torch: Any) -> None:
    func = torch.func
    plain, kept = (
        tcsym.define(TEXT, recompute=how, target="cpu:novector").scan for how in ("cheap", "sqrt")
    )
    x, w = (torch.randn(s, dtype=torch.float64) for s in _shapes(10))
    many = torch.stack([x, 2 * x])

    def loss(layer: Any) -> Any:
        return lambda x, w: layer(x, w).square().sum()

    for of, given in (
        (lambda f: func.grad(f, (0, 1)), (x, w)),
        (lambda f: func.vmap(func.grad(f, (0, 1)), (0, None)), (many, w)),
        (lambda f: func.jacrev(func.grad(f, 1), 1), (x, w)),
    ):
        torch.testing.assert_close(of(loss(kept))(*given), of(loss(plain))(*given))


@pytest.mark.skipif(
    shutil.which("cc") is None or shutil.which("objcopy") is None, reason="there is no C compiler"
)
@pytest.mark.parametrize("name", ["scan", "gated"])
def test_jax_keeps_states_of_some_steps(name: str, jax: Any) -> None:
    pytest.importorskip("jax.export")
    from tcsym.jax import operator

    layer = tcsym.define(TEXT.replace("double(", "float("), recompute="sqrt")[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s, np.float32) for s in _shapes(10)]
    f = operator(layer)
    if name == "scan":  # of 10 steps, in segments of 4: 4 states and the result
        kept = jax.tree.leaves(jax.vjp(f, *arrays)[1])
        own = sum(x.nbytes for x in arrays)
        assert sum(x.nbytes for x in kept) <= own + 5 * 3 * 4
    loss = jax.jit(lambda *given: (f(*given) ** 2).sum())
    found = jax.grad(loss, argnums=(0, 1))(*arrays)
    (output,) = layer.program.outputs
    expected = layer.grad(recompute="all")(*arrays, **{f"d{output.name}": 2 * layer(*arrays)})
    scope = jax.export.SymbolicScope()
    shapes = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(s, scope=scope), np.float32)
        for s in ("t, n", "n")
    ]
    checks = [jax.export.DisabledSafetyCheck.custom_call("tcsym")]
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    exported = jax.export.export(gradient, disabled_checks=checks)(*shapes)
    for a, b in zip((*found, *exported.call(*arrays)), (*expected, *expected)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_is_no_way_to_compute_again() -> None:
    with pytest.raises(tcsym.OptionError, match="recompute is 'some'"):
        tcsym.define("def f(float(N) X) -> (Y) { Y(i) = X(i) }", recompute="some")
