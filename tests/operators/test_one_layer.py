"""One layer, one text: called from numpy, from torch in every way that torch has, and from JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym as tc

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch.library, "register_vmap"):
    pytest.skip("torch is older than 2.5", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = """
def layer(double(B,K) X, double(N,K) W, double(N) b) -> (Y) {
  Y(i,n) +=! X(i,k) * W(n,k)
  Y(i,n) = tanh(Y(i,n) + b(n))
}"""
layer = tc.define(TEXT).layer


def same_in_torch(x: Any, w: Any, b: Any) -> Any:
    return torch.tanh(x @ w.T + b)


def tensors(grad: bool = False) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    shapes = (2, 3), (4, 3), (4,)
    x, w, b = (torch.rand(s, dtype=torch.float64, requires_grad=grad) for s in shapes)
    return x, w, b


def test_numpy() -> None:
    x, w, b = (t.numpy() for t in tensors())
    assert np.allclose(layer(x, w, b), np.tanh(x @ w.T + b))


def test_torch() -> None:
    torch.testing.assert_close(layer(*tensors()), same_in_torch(*tensors()))


def test_gradients_of_any_order() -> None:
    given = tensors(grad=True)
    assert torch.autograd.gradcheck(layer, given)
    assert torch.autograd.gradgradcheck(layer, given)


def test_batch() -> None:
    x, w, b = tensors()
    many = torch.stack([x, 2 * x, 3 * x], dim=1)  # the batch is in the middle
    run = torch.func.vmap(layer, in_dims=(1, None, None))
    expected = torch.stack([layer(x, w, b), layer(2 * x, w, b), layer(3 * x, w, b)])
    torch.testing.assert_close(run(many, w, b), expected)


def test_functions_of_functions() -> None:
    x, w, b = tensors()
    for transform in (torch.func.jacrev, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        have, want = (transform(f)(x, w, b) for f in (layer, same_in_torch))
        torch.testing.assert_close(have, want)


def test_one_graph_for_all_sizes() -> None:
    torch._dynamo.reset()
    seen = []

    def backend(graph: Any, example: Any) -> Any:
        seen.append(graph)
        return graph

    run = torch.compile(lambda *a: layer(*a) + 1, backend=backend, fullgraph=True, dynamic=True)
    for n in (2, 5, 9):
        x, w, b = torch.rand(n, n + 1), torch.rand(n + 2, n + 1), torch.rand(n + 2)
        given = x.double(), w.double(), b.double()
        torch.testing.assert_close(run(*given), same_in_torch(*given) + 1)
    assert len(seen) == 1


def test_export() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any, w: Any, b: Any) -> Any:
            return layer(x, W=w, b=b)

    given = tensors()
    exported = torch.export.export(Model(), given, strict=False).module()
    torch.testing.assert_close(exported(*given), same_in_torch(*given))
    torch.testing.assert_close(torch.jit.trace(Model(), given)(*given), same_in_torch(*given))
    torch.testing.assert_close(torch.fx.symbolic_trace(Model())(*given), same_in_torch(*given))


def test_operator_is_sound() -> None:
    from tcsym.torch import operator

    torch.library.opcheck(operator(layer), tensors())
    assert layer(*(x.to("meta") for x in tensors())).shape == (2, 4)
    with pytest.raises(tc.SizeError, match="`W` has size 5 on axis 1"):
        layer(*(x.to("meta") for x in (*tensors()[:1], torch.ones(4, 5).double(), tensors()[2])))


def test_types_are_the_texts_where_torch_chooses_them() -> None:
    x, w, b = tensors()
    with torch.autocast("cpu"):
        assert layer(x.bfloat16(), w, b).dtype is torch.float64


def test_module() -> None:
    from tcsym.torch import Layer

    made = Layer(TEXT, W=None, b=0.5, sizes={"K": 3, "N": 4})
    assert list(made.state_dict()) == ["W", "b"] and "double" not in repr(made)
    x = tensors()[0]
    torch.testing.assert_close(made(x), same_in_torch(x, made.W, made.b))
    made(x).sum().backward()
    assert made.b.grad.shape == (4,) and abs(made.W).max() <= 3**-0.5
    with pytest.raises(tc.SizeError, match="`N`"):
        Layer(TEXT, W=None, sizes={"K": 3})
    with pytest.raises(tc.OptionError, match="no floating input `w`"):
        Layer(TEXT, w=None)


def test_jax() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    from tcsym.jax import operator

    given = [t.numpy() for t in tensors()]
    jax.config.update("jax_enable_x64", True)
    try:
        f, same = operator(layer), lambda x, w, b: jax.numpy.tanh(x @ w.T + b)
        have, want = (jax.grad(lambda *a, g=g: g(*a).sum(), (0, 1, 2)) for g in (f, same))
        assert np.allclose(jax.jit(f)(*given), same(*given))
        for a, b in zip(jax.jit(have)(*given), want(*given)):
            assert np.allclose(a, b)
    finally:
        jax.config.update("jax_enable_x64", False)
