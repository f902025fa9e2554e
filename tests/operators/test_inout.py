# SPDX-License-Identifier: Apache-2.0
"""Kernels that update tensors of torch: plainly, in graphs, and where gradients are asked for."""

from __future__ import annotations

from typing import Any

import pytest

import tcsym as tc
from tests.hosts import host

torch = host("torch")
if not hasattr(torch.library, "register_vmap"):
    pytest.skip("torch is older than 2.5", allow_module_level=True)

module = tc.define(
    """
def add(inout float(N) Y, float(N) X) -> () { Y(n) += X(n) }
def total(inout float(N) Y, float(N) X) -> (s) { Y(n) += X(n) * X(n)  s +=! Y(n) }
""",
    target="cpu:novector",
)


def test_plain_tensors_change_and_torch_knows() -> None:
    Y, X = torch.zeros(4, 2).T[0], torch.arange(4.0)
    before = Y._version
    for _ in range(3):
        assert module.add(Y, X) is None
    assert torch.equal(Y, 3 * X) and Y._version == before + 3


def test_a_graph_has_it_as_a_node_that_writes() -> None:
    def step(a: Any, b: Any) -> Any:
        module.add(a, 2 * b)
        return module.total(a, b), a + 1

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (5, 7):
        Y, X = torch.zeros(n), torch.arange(float(n))
        s, more = compiled(Y, X)
        want = 2 * X + X * X
        assert torch.equal(Y, want) and torch.equal(more, want + 1) and s == want.sum()


def test_gradients_are_refused_and_without_updates_recorded() -> None:
    Y, X = torch.ones(3), torch.arange(3.0, requires_grad=True)
    for call in (module.add, torch.func.vmap(module.add)):
        with pytest.raises(tc.TCError, match="updates `Y` in place"):
            call(Y[None], X[None]) if call is not module.add else call(Y, X)
    with torch.no_grad():
        module.add(Y, X)
    assert Y.tolist() == [1, 2, 3]
    result = module.total.functional()(Y, X)
    (result.s + result.Y_new.sum()).backward()
    assert torch.equal(X.grad, 4 * X.detach()) and Y.tolist() == [1, 2, 3]


def test_a_number_is_no_memory() -> None:
    text = "def f(inout float s, float(N) X) -> () { s += X(n) }"
    with pytest.raises(tc.TCError, match="is the scalar"):
        tc.define(text, target="cpu:novector")(1.0, torch.ones(2))
