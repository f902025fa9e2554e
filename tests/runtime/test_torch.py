# SPDX-License-Identifier: Apache-2.0
"""torch tensors as arguments and results: zero-copy, no import, no silent loss of gradients."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tests.hosts import host

torch = host("torch")
pytestmark = pytest.mark.usefixtures("interpreted")

ONE = "def f(float(N) A) -> (O) { O(i) = A(i) + 1 }"
TWO = "def g(float(M,N) A, float s) -> (O, P) { O(i,j) = A(i,j) * s  P +=! A(i,j) }"


def refused(f: Any, *args: Any, kind: str = "type", **kwargs: Any) -> tc.TCError:
    with pytest.raises(tc.TCError) as caught:
        f(*args, **kwargs)
    assert caught.value.kind == kind, str(caught.value)
    return caught.value


def test_torch_in_torch_out() -> None:
    f = tc.define(ONE)
    x = torch.arange(3.0)
    for result in (f(x), f.reference(x)):
        assert type(result) is torch.Tensor and torch.equal(result, x + 1)


def test_first_library_that_is_not_numpy_wins() -> None:
    g = tc.define(TWO)
    results = g(np.ones((2, 3), np.float32), torch.tensor(2.0))
    assert torch.equal(results.O, torch.full((2, 3), 2.0)) and results.P.item() == 6
    assert type(g(torch.ones(2, 3), 2).P) is torch.Tensor


def test_any_strides_in_place() -> None:
    g = tc.define(TWO)
    x = torch.arange(24.0).reshape(4, 6)
    for view in (x.T, x[::2, 1::3], x[:1].expand(4, 6), x[:, :0], x[1:, 2:]):
        assert torch.equal(g(view, 1.0).O, view)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "uint16",
        "uint32",
        "uint64",
    ],
)
def test_types(dtype: str) -> None:
    if not hasattr(torch, dtype):
        pytest.skip(f"torch {torch.__version__} has no type {dtype}")
    f = tc.define(f"def f({dtype}(N) A) -> (O) {{ O(i) = A(i) }}")
    x = torch.tensor([1, 0, 1]).to(getattr(torch, dtype))
    for result in (f(x), f.reference(x), f(x[::2])):
        assert result.dtype is x.dtype and result[0].item() == 1
    refused(tc.define(ONE), torch.zeros(3, dtype=torch.complex64))


def test_type_message_is_in_torch_words() -> None:
    assert "int64" in refused(tc.define(ONE), torch.tensor([1, 2])).message
    assert "complex64" in refused(tc.define(ONE), torch.ones(3, dtype=torch.complex64)).message


def test_gradients_are_recorded_where_torch_records() -> None:
    f = tc.define(ONE)
    x = torch.ones(3, requires_grad=True)
    assert f(x).requires_grad
    (f(x) * torch.arange(3.0)).sum().backward()
    assert x.grad.tolist() == [0, 1, 2]
    assert "`out=`" in refused(f, x, out=torch.empty(3)).hint
    with torch.no_grad():
        assert f(x).tolist() == [2, 2, 2]
    assert f(x.detach()).tolist() == [2, 2, 2]
    assert f(torch.nn.Parameter(torch.ones(2), requires_grad=False)).tolist() == [2, 2]
    with torch.inference_mode():
        assert f(torch.ones(2)).tolist() == [2, 2]


def test_not_on_the_cpu() -> None:
    assert tc.define(ONE)(torch.ones(3, device="meta")).shape == (3,)  # a shape needs no memory
    f, x = tc.define(ONE), torch.ones(3)
    assert "`out` for" in refused(f, x, out=x.to("meta"), kind="device").message
    assert "dense" in refused(tc.define(ONE), torch.ones(3).to_sparse()).hint


def test_lazy_views() -> None:
    lazily_negated = torch.ones(3, dtype=torch.complex64).conj().imag
    assert lazily_negated.is_neg()
    assert "resolve_neg" in refused(tc.define(ONE), lazily_negated).hint
    assert tc.define(ONE)(lazily_negated.resolve_neg()).tolist() == [1, 1, 1]


def test_out() -> None:
    f = tc.define(ONE)
    x, out = torch.arange(3.0), torch.empty(6)[::2]
    version = out._version
    assert f(x, out=out) is out and out.tolist() == [1, 2, 3]
    assert out._version > version  # autograd must know
    assert f(x.numpy(), out=out) is out
    refused(f, x, out=x, kind="immutable")
    refused(f, x, out=x.numpy(), kind="immutable")
    refused(f, x, out=torch.empty(1).expand(3), kind="immutable")
    refused(f, x, out=torch.empty(3, dtype=torch.float64))
    refused(f, x, out=torch.empty(4), kind="size")


def test_empty_tensors() -> None:
    f = tc.define(ONE)
    assert f(torch.empty(0)).shape == (0,) and f.reference(torch.empty(0)).shape == (0,)
    out = torch.empty(0)
    assert f(torch.empty(0), out=out) is out


def test_default_device_does_not_matter() -> None:
    torch.set_default_device("meta")
    try:
        x = torch.ones(3, device="cpu")
        assert tc.define(ONE)(x).device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_einsum_with_tensors() -> None:
    a, b = torch.rand(2, 3), torch.rand(3, 4)
    torch.testing.assert_close(tc.einsum("ij,jk->ik", a, b), a @ b)
    torch.testing.assert_close(
        tc.einsum("...ij,...jk", a[None], b.expand(5, 3, 4)), a @ b.expand(5, 3, 4)
    )


def test_torch_is_never_imported() -> None:
    code = (
        "import sys, numpy as np, tcsym as tc\n"
        "f = tc.define('def f(float(N) A) -> (O) { O(i) = A(i) }')\n"
        "f.reference(np.ones(3, np.float32))\n"
        "assert 'torch' not in sys.modules and 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wrong_types_are_mended_in_the_words_of_torch() -> None:
    kernel = tc.define("def f(float(N) A) -> (C) { C(i) = 2 * A(i) }")
    with pytest.raises(tc.TCError, match=r"to\(torch.float32\)"):
        kernel(torch.ones(3, dtype=torch.float16))


GATED = "def f(int32(N) g, float(N) X, float(D) w) -> (Y) { Y(i,d) = g(i) * X(i) * w(d) }"


@pytest.mark.parametrize(
    ("given", "kind", "name"),
    [("gX", "size", "w"), ("gX?", "type", "w"), ("XXw", "type", "g")],
)
def test_what_is_wrong_with_another_argument_is_told_where_gradients_are_recorded(
    given: str, kind: str, name: str
) -> None:
    """Not that the tensor which needs a gradient is in the way."""
    arrays = {
        "g": torch.ones(3, dtype=torch.int32),
        "X": torch.ones(3, requires_grad=True),
        "w": torch.ones(2),
        "?": [1.0, 2.0],
    }
    with pytest.raises(tc.TCError) as caught:
        tc.define(GATED)(*[arrays[x] for x in given])
    assert caught.value.kind == kind and f"`{name}`" in caught.value.message
    assert "gradient" not in str(caught.value)
