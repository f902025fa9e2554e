# SPDX-License-Identifier: Apache-2.0
"""Native calls with torch's tensors: what is served, what is left to Python, what comes back."""

from __future__ import annotations

import contextlib
import gc
import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime import entering
from tcsym.runtime.background import settle
from tests.entered import entered, python_frames
from tests.hosts import host

torch = host("torch")

SOURCE = """
def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def scaled(float(N) A, float a) -> (O, S) { O(i) = A(i) * a  S +=! A(i) }
def pad(float(N) A) -> (float(P) O) { O(i) = i < N ? A(i) : 0.0 }
"""


@pytest.fixture(scope="module")
def m() -> tc.Module:
    if not entering.read_tensors():
        pytest.skip(f"torch {torch.__version__} has no exchange API: Python serves its tensors")
    return tc.define(SOURCE, strategy="symbolic")


def test_a_session_enters_before_any_kernel_was_called() -> None:
    """In a process of its own: what reads tensors is the process's."""
    code = """
import torch, tcsym
session = tcsym.define("def f(float(N) A) -> (O) { O(i) = 2 * A(i) }").f.plan().session()
session(torch.ones(3))
import tcsym.network.session as sessions
del sessions.match_arguments
assert session(torch.ones(3)).tolist() == [2, 2, 2]
"""
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        subprocess.run([sys.executable, "-c", code], check=True)


def test_this_torch_shows_its_memory() -> None:
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        assert entering.read_tensors()


def test_results_are_ordinary_tensors(m: tc.Module) -> None:
    x = torch.arange(6.0)
    y = entered(lambda: m.add(x, x))
    assert torch.equal(y, x + x)
    usual = torch.empty(6)
    assert sys.getrefcount(y) == sys.getrefcount(usual)
    for t in (y, usual):
        assert (type(t), t.dtype, t.device, t.layout) == (
            torch.Tensor,
            torch.float32,
            torch.device("cpu"),
            torch.strided,
        )
        assert t.is_leaf and not t.requires_grad and t.is_contiguous()
        assert t.untyped_storage().nbytes() == 24
    y.resize_(3).requires_grad_().sum().backward()
    with pytest.raises(RuntimeError, match="not resizable"):
        m.add(x, x).resize_(100)  # its memory is ours


def test_names_options_and_numbers(m: tc.Module) -> None:
    x, out = torch.arange(6.0), torch.zeros(6)
    assert torch.equal(entered(lambda: m.add(x, B=x, threads=1)), 2 * x)
    assert entered(lambda: m.pad(x, sizes={"P": 3})).tolist() == [0, 1, 2]
    for a in (2, 0.5, np.float32(3), torch.tensor(2.0)):
        result = entered(lambda a=a: m.scaled(x, a))
        assert torch.equal(result.O, x * float(a)) and result.S.item() == 15
        assert type(result).__name__ == "Results" and type(result.S) is torch.Tensor
    entered(lambda: m.add(x, x, out=out))
    before = out._version
    assert m.add(x, x, out=out) is out
    assert out._version > before
    pair = torch.zeros(6), torch.zeros(())
    result = entered(lambda: m.scaled(x, 2.0, out=pair))
    assert result.O is pair[0] and result.S is pair[1]
    assert m.scaled(x[:0], 1).O.shape == (0,)


def ways(x: Any) -> list[Any]:
    rows = torch.zeros(x.shape[0], x.shape[1] + 3)[:, 1:-2]
    rows.copy_(x)
    return [x, rows, x.t().contiguous().t(), x.repeat_interleave(2, 1)[:, ::2]]


def test_every_layout_is_entered_and_agrees() -> None:
    mm = tc.define(SOURCE, strategy="symbolic").mm
    x, y = torch.arange(24.0).reshape(4, 6), torch.arange(18.0).reshape(6, 3)
    calls = list(itertools.product(ways(x), ways(y), (None, *ways(torch.zeros(4, 3)))))
    for a, b, out in calls:
        mm(a, b, out=out)
    settle()
    for a, b, out in calls:
        assert python_frames(lambda a=a, b=b, out=out: mm(a, b, out=out)) == []
        result = mm(a, b, out=out)
        assert out is None or result is out
        assert torch.equal(result, x @ y)
    assert len(mm.stats.variants) == 4
    a = np.ones((4, 6), np.float32)
    assert type(entered(lambda: mm(a, a.T))) is np.ndarray  # both libraries have their entries
    assert type(entered(lambda: mm(x, x.t()))) is torch.Tensor
    assert type(mm(a, y)) is torch.Tensor


def test_autograd_is_respected(m: tc.Module) -> None:
    x, w = torch.ones(6), torch.nn.Parameter(torch.ones(6))
    entered(lambda: m.add(x, x))

    def call() -> Any:
        return m.add(x, w)

    assert call().requires_grad
    with torch.no_grad():
        assert entered(call).tolist() == [2] * 6
        assert not call().requires_grad
    m.add(x, (w * 2)).sum().backward()
    assert w.grad.tolist() == [2] * 6
    with pytest.raises(tc.TCTypeError, match="requires a gradient"):
        m.add(x, x, out=torch.ones(6, requires_grad=True))
    assert entered(lambda: m.add(x, w.detach())).tolist() == [2] * 6
    y = torch.ones(6, requires_grad=True) * 1
    seen = y.exp()
    entered(lambda: m.add(x, x, out=seen.detach()))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        seen.sum().backward()


def others() -> dict[str, Callable[[], Any]]:
    class Special(torch.Tensor): ...

    return {
        "sparse": lambda: torch.ones(6).to_sparse(),
        "negated": lambda: torch.ones(6, dtype=torch.complex64).conj().imag,
        "double": lambda: torch.ones(6).double(),
        "complex": lambda: torch.ones(6, dtype=torch.complex64),
        "rank 2": lambda: torch.ones(6, 1),
        "short": lambda: torch.ones(5),
        "subclass": lambda: torch.ones(6).as_subclass(Special),
        "numpy": lambda: np.ones(6, np.float32),
        "quantised": lambda: torch.quantize_per_tensor(torch.ones(6), 0.1, 0, torch.qint8),
        "none": lambda: None,
    }


@pytest.mark.parametrize("name", list(others()))
@pytest.mark.filterwarnings("ignore")
def test_other_tensors_are_left_to_python(m: tc.Module, name: str) -> None:
    x, odd = torch.ones(6), others()[name]()
    entered(lambda: m.add(x, x))

    def outcome(call: Callable[..., Any]) -> object:
        try:
            result = call(x, odd)
        except tc.TCError as error:
            return type(error), str(error)
        return type(result), result.tolist()

    assert outcome(m.add) == outcome(m.add._checked_call)
    assert "_checked_call" in python_frames(lambda: outcome(m.add))


def test_inference_mode(m: tc.Module) -> None:
    x, out = torch.ones(6), torch.zeros(6)
    entered(lambda: m.add(x, x))
    with torch.inference_mode():
        y = m.add(x, x)
        inferred = torch.zeros(6)
        assert m.add(y, x, out=inferred) is inferred
        assert y.is_inference() and y.tolist() == [2] * 6
        assert m.add(x, x, out=out) is out
    with pytest.raises(tc.ImmutableError):
        m.add(x, x, out=inferred)
    assert m.add(inferred, x).tolist() == [4] * 6


def test_unaligned_memory_is_left_to_python(m: tc.Module) -> None:
    entered(lambda: m.add(torch.ones(6), torch.ones(6)))
    odd = torch.frombuffer(bytearray(25), dtype=torch.uint8)[1:].view(torch.uint8)
    unaligned = torch.frombuffer(odd.numpy(), dtype=torch.float32)
    assert unaligned.data_ptr() % 4
    assert m.add(unaligned, torch.ones(6)).tolist() == [1] * 6


def test_overlap_is_an_error(m: tc.Module) -> None:
    x = torch.ones(12)
    entered(lambda: m.add(x[:6], x[6:], out=torch.zeros(6)))
    for out in (x[:6], x[1:7], torch.zeros(1).expand(6)):
        with pytest.raises(tc.ImmutableError, match="overlaps"):
            m.add(x[:6], x[6:], out=out)


@pytest.mark.parametrize("dtype", [d for d in tc.DType if hasattr(torch, d.value)], ids=str)
def test_every_element_type(dtype: tc.DType) -> None:
    f = tc.define(f"def f({dtype}(N) A) -> (O) {{ O(i) = A(i) }}")
    x = torch.tensor([0, 1, 1], dtype=getattr(torch, dtype.value))
    y = entered(lambda: f(x))
    assert y.dtype is x.dtype and y.tolist() == x.tolist()


def test_references_stay_right(m: tc.Module) -> None:
    x, out = torch.ones(6), torch.zeros(6)
    entered(lambda: m.add(x, x))
    entered(lambda: m.add(x, x, out=out))
    watched = (x, out, torch.Tensor, torch.nn.Parameter, torch.autograd.graph.increment_version)
    gc.collect()
    before = [sys.getrefcount(t) for t in watched]
    blocks = sys.getallocatedblocks()
    for _ in range(10_000):
        m.add(x, x)
        m.add(x, x, out=out)
    assert [sys.getrefcount(t) for t in watched] == before
    assert sys.getallocatedblocks() < blocks + 50


def test_sizes_that_no_memory_could_hold(m: tc.Module) -> None:
    pad = tc.define("def pad(float(N) A) -> (float(P, P) O) { O(i, j) = i < N ? A(i) : 0.0 }")
    x = torch.ones(3)
    assert entered(lambda: pad(x, sizes={"P": 2})).shape == (2, 2)
    for p in (2**30, 2**31 - 1, 2**40):
        with pytest.raises((tc.TCError, MemoryError, RuntimeError)):
            pad(x, sizes={"P": p})


def test_another_torch_is_served_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entering, "read_tensors", lambda: False)
    f = tc.define("def f(float(N) A) -> (O) { O(i) = A(i) }")
    x = torch.ones(3)
    f(x)
    settle()
    assert torch.equal(f(x), x)


def test_large_results_use_memory_again(m: tc.Module) -> None:
    before = tc.get_result_memory().most
    tc.set_result_memory(2**28)
    try:
        x = torch.ones(2**20)
        m.add(x, x)  # decides how much may be idle
        y = entered(lambda: m.add(x, x))
        address, part = y.data_ptr(), y[5:]
        assert address % 2**21 == 0
        del y
        other = m.add(x, x)
        assert other.data_ptr() != address and bool((part == 2).all())
        del part
        again = m.add(x, x + 1)
        assert again.data_ptr() == address
        assert bool((again == 3).all()) and bool((other == 2).all())
    finally:
        tc.set_result_memory(before)


def test_a_trace_is_pythons_matter(m: tc.Module) -> None:
    """Traced, what a native call does would be a constant."""
    x, seen = torch.ones(6), list[str]()
    entered(lambda: m.add(x, x))

    def traced(y: Any) -> Any:
        def call() -> None:
            with contextlib.suppress(tc.TCError):
                m.add(y, y)

        seen.extend(python_frames(call))
        return y + 1

    torch.jit.trace(traced, (x,), check_trace=False)
    assert "_checked_call" in seen


def test_negated_memory_without_gaps_is_seen(m: tc.Module) -> None:
    x = torch.ones(3)
    m.add(x, x)  # its entry is there
    with pytest.raises(tc.TCTypeError, match="lazily negated"):
        m.add(x, torch._neg_view(torch.ones(3)))


def test_negated_views_of_few_elements_are_seen(m: tc.Module) -> None:
    """Their strides say nothing: all extents are 1."""
    one = torch.tensor([1 + 2j]).conj().imag
    x = torch.ones(1)
    entered(lambda: m.add(x, x))
    for call in (m.add, m.add._checked_call):
        with pytest.raises(tc.TCTypeError, match="lazily negated"):
            call(x, one)
    assert m.add(x, one.resolve_neg()).tolist() == [-1]


def test_tensors_without_memory_are_left_to_python(m: tc.Module) -> None:
    x = torch.ones(6)
    entered(lambda: m.add(x, x))
    for call in (m.add, m.add._checked_call):
        assert call(x, torch._efficientzerotensor(6)).tolist() == [1] * 6
    assert m.add(x[:0], torch.ones(0)).shape == (0,)
