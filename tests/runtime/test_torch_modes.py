# SPDX-License-Identifier: Apache-2.0
"""Kernels while torch records, transforms, fakes or compiles: calls work or say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tcsym as tc
from tcsym.runtime.entering import read_tensors
from tests.entered import entered, python_frames
from tests.hosts import host

torch = host("torch")
# By name: torch's module of this name is not an attribute of it before it was imported.
forward_ad = pytest.importorskip("torch.autograd.forward_ad")
fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")

SOURCE = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"
pytestmark = pytest.mark.filterwarnings("ignore")
OPERATOR = "torch.library.custom_op"


@pytest.fixture(params=["first call", "later call"])
def kernel(request: pytest.FixtureRequest) -> tc.Kernel:
    made = tc.define(SOURCE, strategy="symbolic").add
    if request.param == "later call":
        x = torch.ones(6)
        if not read_tensors():
            made(x, x)
        else:
            entered(lambda: made(x, x))
    return made


class Model(torch.nn.Module):
    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Any) -> Any:
        return self.kernel(x * 2, B=x) + 1


class Wrapper(torch.Tensor):
    """A tensor without memory, as MaskedTensor and DTensor are."""

    @staticmethod
    def __new__(cls, inner: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("nothing of it is to be run")


class Loud(torch.Tensor):
    """Plain memory, but everything that is asked of it goes through Python."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("its attributes are to be read as they are")


def _fake(k: Any) -> Any:
    with fake_tensor.FakeTensorMode():
        return k(torch.ones(6), torch.ones(6))


def _under_fake_mode(k: Any) -> Any:
    x = torch.ones(6)
    with fake_tensor.FakeTensorMode():
        return k(x, x)


def _dual(k: Any, **options: Any) -> Any:
    with forward_ad.dual_level(), torch.no_grad():
        x = forward_ad.make_dual(torch.ones(6), torch.ones(6))
        return forward_ad.unpack_dual(k(x, torch.ones(6), **options)).tangent


def _freed(k: Any) -> Any:
    x = torch.ones(6)
    x.untyped_storage().resize_(0)
    return k(x, torch.ones(6))


def _nested(k: Any) -> Any:
    return k(torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]), torch.ones(6))


def _no_gradients(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return torch.no_grad()(f)


REFUSED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "functionalize, out": (
        lambda k: torch.func.functionalize(lambda x: k(torch.ones(6), torch.ones(6), out=x))(
            torch.ones(6)
        ),
        "no memory",
        "without `out=`",
    ),
    "dual tensors, out": (lambda k: _dual(k, out=torch.ones(6)), "tangent", "primal"),
    "subclass without memory, out": (
        lambda k: k(torch.ones(6), torch.ones(6), out=Wrapper(torch.ones(6))),
        "Wrapper",
        "plain tensor",
    ),
    "freed": (_freed, "no memory", ""),
    "zeros without memory, out": (
        lambda k: k(torch._efficientzerotensor(6), torch.ones(6), out=torch.ones(6)),
        "no memory",
        "x.clone()",
    ),
    "nested": (_nested, "nested", "unbind"),
    "quantised": (
        lambda k: k(torch.quantize_per_tensor(torch.ones(6), 0.1, 0, torch.qint8), torch.ones(6)),
        "quantised",
        "dequantize",
    ),
    "not initialised": (
        lambda k: k(torch.nn.LazyLinear(3).weight, torch.ones(6)),
        "not initialised",
        "run its module once",
    ),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_has_no_memory_or_is_recorded_is_refused(kernel: tc.Kernel, name: str) -> None:
    call, message, hint = REFUSED[name]
    with pytest.raises(tc.TCTypeError) as caught:
        call(kernel)
    assert message in caught.value.message and hint in caught.value.hint
    assert caught.value.line == 1 and caught.value.column
    x = torch.ones(6)
    assert kernel(x, x).tolist() == [2] * 6  # nothing is left behind


def test_the_interpreter_refuses_the_same() -> None:
    with pytest.raises(tc.TCTypeError, match="FakeTensorMode"):
        _fake(tc.define(SOURCE).add.reference)


def _captured(transform: Callable[..., Any]) -> Callable[[Any], Any]:
    """A transformed function that calls a kernel with other tensors than its own."""

    def run(k: Any) -> Any:
        y = torch.ones(6)
        return transform(lambda x: (k(y, y) * x).sum())

    return run


X = torch.ones(6)
SERVED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "vmap": (lambda k: _captured(torch.func.vmap)(k)(X.expand(3, 6)), [12] * 3),
    "grad": (lambda k: _captured(torch.func.grad)(k)(X), [2] * 6),
    "functionalize": (lambda k: _captured(torch.func.functionalize)(k)(X), 12),
    "vmap of grad": (
        lambda k: _captured(lambda f: torch.func.vmap(torch.func.grad(f)))(k)(X.expand(3, 6)),
        [[2] * 6] * 3,
    ),
    "dual tensors": (_dual, [1] * 6),
    "jvp": (lambda k: _captured(lambda f: torch.func.jvp(f, (X,), (X,))[1])(k), 12),
    "zeros without memory": (lambda k: k(torch._efficientzerotensor(6), X), [1] * 6),
    "subclass": (lambda k: k(X.clone().as_subclass(Loud), X), [2] * 6),
    "parameter": (lambda k: torch.no_grad()(k)(torch.nn.Parameter(X.clone()), X), [2] * 6),
}


@pytest.mark.parametrize("name", list(SERVED))
def test_plain_tensors_are_served_inside_of_transforms(kernel: tc.Kernel, name: str) -> None:
    call, expected = SERVED[name]
    result = call(kernel)
    assert type(result) is torch.Tensor and result.tolist() == expected


def test_modes_that_watch_operators_do_not_matter(kernel: tc.Kernel) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        assert kernel(X, X).tolist() == [2] * 6


def test_dual_levels_do_not_matter_to_plain_tensors(kernel: tc.Kernel) -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(6), torch.ones(6))
        tangent = forward_ad.unpack_dual(kernel(X, X) * x).tangent
    assert tangent.tolist() == [2] * 6


def test_native_entries_serve_after_modes_ended() -> None:
    kernel = tc.define(SOURCE, strategy="symbolic").add
    if not read_tensors():
        pytest.skip("this torch is entered through Python only")
    entered(lambda: kernel(X, X))
    with pytest.raises(AssertionError, match="FakeTensors"):  # torch's: plain tensors among fakes
        _under_fake_mode(kernel)
    assert python_frames(lambda: kernel(X, X)) == []


def test_without_torchs_internals_the_operator_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsym.runtime import torch_internals

    monkeypatch.setattr(torch_internals, "_KNOWS", False)
    assert torch_internals.native_watch() is None
    add, x = tc.define(SOURCE).add._checked_call, X.clone().requires_grad_()
    assert add(X, X).tolist() == [2] * 6
    add(x, x).sum().backward()
    assert x.grad.tolist() == [2] * 6
    assert torch.func.vmap(add)(X.expand(3, 6), X.expand(3, 6)).tolist() == [[2] * 6] * 3
    with pytest.raises(tc.TCTypeError, match="no memory"):
        _freed(add)


# ---- torch.compile


def compiled(f: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(f, backend="eager", **options)


def test_compiled_modules_call_kernels(kernel: tc.Kernel) -> None:
    model, x = Model(kernel), torch.arange(6.0)
    run = compiled(model)
    for scale in (1.0, 2.0):
        assert torch.equal(run(x * scale), 3 * x * scale + 1)
    assert run(torch.ones(9)).tolist() == [4] * 9


def test_a_graph_is_of_one_kernel(kernel: tc.Kernel) -> None:
    model, x = Model(kernel), torch.arange(6.0)
    run = compiled(model, fullgraph=True)
    assert torch.equal(run(x), 3 * x + 1)
    model.kernel = tc.define(SOURCE.replace("A(i) + B(i)", "A(i) - B(i)")).add
    assert torch.equal(run(x), x + 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tc.define(SOURCE)(x, x),
        lambda x: tc.define(SOURCE).add(x, x),
        lambda x: tc.define(SOURCE).add.reference(x, x),
        lambda x: tc.define(SOURCE).add.compile(x, x)(x, x),
        lambda x: tc.einsum("i,i->i", x, x + x),
    ],
    ids=["define", "attribute", "reference", "compile", "einsum"],
)
def test_everything_runs_under_torch_compile(call: Any) -> None:
    x = torch.arange(6.0)
    expected = call(x) * 2 + 1
    assert torch.equal(compiled(lambda x: call(x) * 2 + 1)(x), expected)


def test_calls_with_out_end_the_graph(kernel: tc.Kernel) -> None:
    out, x = torch.empty(6), torch.ones(6)
    assert compiled(lambda x: kernel(x, x, out=out) + 1)(x).tolist() == [3] * 6


def test_the_advice_works(kernel: tc.Kernel) -> None:
    @torch.library.custom_op("tcsym_test::add", mutates_args=())
    def add(x: torch.Tensor) -> torch.Tensor:
        return kernel(x, x)

    add.register_fake(torch.empty_like)
    x = torch.arange(6.0)
    assert torch.equal(compiled(lambda x: add(x) + 1, fullgraph=True)(x), 2 * x + 1)
    assert torch.equal(torch.jit.trace(lambda x: add(x) + 1, x)(x + 1), 2 * x + 3)
    assert torch.equal(torch.func.functionalize(add)(x), 2 * x)

    class Add(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return add(x) + 1

    assert torch.equal(torch.export.export(Add(), (x,)).module()(x), 2 * x + 1)


def test_the_advice_for_transforms_works(kernel: tc.Kernel) -> None:
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return kernel(x.reshape(-1), x.reshape(-1)).reshape(x.shape)

        @staticmethod
        def setup_context(context: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            return 2 * gradient

        @staticmethod
        def vmap(about: Any, dims: Any, x: Any) -> Any:
            return Add.apply(x), dims[0]

    x = torch.arange(6.0)
    assert torch.func.grad(lambda x: Add.apply(x).sum())(x).tolist() == [2] * 6
    assert torch.equal(torch.func.vmap(Add.apply)(x.expand(3, 6)), 2 * x.expand(3, 6))
