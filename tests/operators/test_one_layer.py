# SPDX-License-Identifier: Apache-2.0
"""A kernel as torch's tools see it; plain uses are in `tests/test_one_text_everywhere.py`."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tcsym as tc
from tests.hosts import host

torch = host("torch")
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


def tensors() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    shapes = (2, 3), (4, 3), (4,)
    x, w, b = (torch.rand(s, dtype=torch.float64) for s in shapes)
    return x, w, b


func = torch.func
FUNCTIONS: dict[str, Any] = {
    "jvp": lambda f: lambda *a: func.jvp(f, a, a),
    "one direction": lambda f: lambda x, w, b: func.jvp(lambda w: f(x, w, b), (w,), (w + 1,)),
    "linearize": lambda f: lambda *a: func.linearize(f, *a)[1](*a),
    "vjp": lambda f: lambda *a: func.vjp(f, *a)[1](torch.ones(2, 4, dtype=torch.float64)),
    "jacfwd": lambda f: func.jacfwd(f, (0, 1, 2)),
    "jacrev": lambda f: func.jacrev(f, (0, 1, 2)),
    "hessian": lambda f: func.hessian(lambda *a: f(*a).square().sum(), (0, 2)),
    "jacrev, jacrev": lambda f: func.jacrev(func.jacrev(f)),
    "jacfwd, jacfwd": lambda f: func.jacfwd(func.jacfwd(f)),
    "jacrev, jacfwd": lambda f: func.jacrev(func.jacfwd(f), 1),
    "vmap, grad": lambda f: func.vmap(
        func.grad(lambda x, w, b: f(x[None], w, b).sum(), (0, 1)), (0, None, None)
    ),
    "vmap, jvp": lambda f: (
        lambda x, w, b: func.vmap(lambda v: func.jvp(lambda x: f(x, w, b), (x,), (v,)))(
            torch.stack([x, 2 * x])
        )
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_functions(name: str) -> None:
    have, want = (FUNCTIONS[name](f)(*tensors()) for f in (layer, same_in_torch))
    torch.testing.assert_close(have, want)


def test_functions_of_functions_under_compile() -> None:
    """torch's operators have no rules for tangents: such calls run outside of graphs."""
    torch._dynamo.reset()
    transform = FUNCTIONS["jvp"]
    run = torch.compile(transform(layer), backend="eager")
    torch.testing.assert_close(run(*tensors()), transform(same_in_torch)(*tensors()))


def test_forward_differentiation() -> None:
    """Of tensors that torch moves, and over what it records."""
    ad = torch.autograd.forward_ad
    x, w, b = (a.requires_grad_() for a in tensors())
    found = []
    for f in (layer, same_in_torch):
        with ad.dual_level():
            tangent = ad.unpack_dual(f(ad.make_dual(x, x.detach()), w, b)).tangent
            found.append((tangent, *torch.autograd.grad(tangent.sum(), (x, w, b))))
    torch.testing.assert_close(*found)
    settings = {"check_forward_ad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(layer, (x, w, b), check_batched_grad=True, **settings)


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


@pytest.mark.parametrize("record", [lambda f: f, torch.compile, torch.func.jacrev])
def test_errors_are_of_the_text_that_was_called(record: Any) -> None:
    """Not of the one that keeps more for gradients, which nobody has seen."""
    torch._dynamo.reset()
    soft = tc.define(
        "def soft(float(N,D) X, float(D) G) -> (Y) {"
        " E(n,d) = exp(X(n,d)) S(n) +=! E(n,d) Y(n,d) = G(d) * E(n,d) / S(n) }"
    ).soft
    assert soft.saving().program.name == "soft_saving"
    with pytest.raises(Exception, match="soft: `G` has size 2 on axis 0"):
        record(soft)(torch.ones(2, 3, requires_grad=True), torch.ones(2))


def test_module() -> None:
    from tcsym.torch import Layer

    made = Layer(TEXT, W=None, b=0.5, sizes={"K": 3, "N": 4})
    assert list(made.state_dict()) == ["W", "b"] and "double" not in repr(made)
    x = tensors()[0]
    torch.testing.assert_close(made(x), same_in_torch(x, made.W, made.b))
    made(x).sum().backward()
    assert made.b.grad.shape == (4,) and abs(made.W).max() <= 3**-0.5
    fixed = Layer(TEXT, W=torch.nn.Parameter(made.W.detach()), b=made.b.detach().clone())
    assert [n for n, _ in fixed.named_buffers()] == ["b"] and fixed.W.requires_grad
    torch.testing.assert_close(fixed(x), made(x))
    made.load_state_dict(fixed.state_dict())
    with pytest.raises(tc.OptionError, match="no floating input `w`"):
        Layer(TEXT, w=torch.ones(3))
    with pytest.raises(tc.SizeError, match="`N`"):
        Layer(TEXT, W=None, sizes={"K": 3})
    with pytest.raises(tc.OptionError, match="no floating input `w`"):
        Layer(TEXT, w=None)


def test_layer_of_a_module() -> None:
    """`define` of one def gives a module, which `Layer` takes as its text."""
    made = tc.torch.Layer(tc.define(TEXT), W=None, b=0.5, sizes={"K": 3, "N": 4})
    x = tensors()[0]
    torch.testing.assert_close(made(x), same_in_torch(x, made.W, made.b))


def test_inputs_of_a_module() -> None:
    made = tc.torch.Layer(TEXT, W=None, b=0.5, sizes={"K": 3, "N": 4})
    x, w, b = tensors()
    torch.testing.assert_close(made(X=x, b=b), same_in_torch(x, made.W, b))
    with pytest.raises(tc.SizeError, match="argument `X` is missing"):
        made()
    with pytest.raises(tc.CallError, match="2 inputs are given by position"):
        made(x, w)
    with pytest.raises(tc.CallError, match="`Q`"):
        made(x, Q=w)


def test_a_parameter_that_torch_computes() -> None:
    """Parametrizations and pruning leave an attribute in the parameter's place."""
    made = tc.torch.Layer(TEXT, W=None, b=0.5, sizes={"K": 3, "N": 4})
    x = tensors()[0]
    torch.nn.utils.parametrizations.weight_norm(made, "W")
    torch.testing.assert_close(made(x), same_in_torch(x, made.W, made.b))
    made(x).sum().backward()
    assert made.parametrizations.W.original0.grad is not None
    prune = importlib.import_module("torch.nn.utils.prune")  # torch does not import it itself
    prune.random_unstructured(made, "b", 0.5)
    torch.testing.assert_close(made(x), same_in_torch(x, made.W, made.b))


def test_a_module_is_a_node_of_torchs_graph() -> None:
    torch.manual_seed(0)
    module = tc.torch.Layer(TEXT, W=None, b=0.0, sizes={"K": 3, "N": 4})
    network = torch.nn.Sequential(module, torch.nn.Linear(4, 1, dtype=torch.float64))
    compiled = torch.compile(network, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in 2, 7:
        x = torch.rand(n, 3, dtype=torch.float64)
        assert torch.allclose(compiled(x), network(x), atol=1e-12)
    compiled(x).sum().backward()
    assert module.W.grad.abs().min() > 0
