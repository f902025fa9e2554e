"""A kernel as torch's tools see it; plain uses are in `tests/test_one_text_everywhere.py`."""

from __future__ import annotations

from typing import Any

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


def tensors() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    shapes = (2, 3), (4, 3), (4,)
    x, w, b = (torch.rand(s, dtype=torch.float64) for s in shapes)
    return x, w, b


def test_functions_of_functions() -> None:
    x, w, b = tensors()
    for transform in (torch.func.jacrev, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        have, want = (transform(f)(x, w, b) for f in (layer, same_in_torch))
        torch.testing.assert_close(have, want)


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
