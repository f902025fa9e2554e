"""On a CUDA device, with torch: ./dev gpu. None of it runs elsewhere."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import tcsym as tc

pytestmark = pytest.mark.device

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
PICK = "def pick(float(N) A, int32(M) I) -> (O) { O(i) = A(I(i)) }"


@pytest.fixture
def torch() -> Any:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def test_products(torch: Any) -> None:
    mm = tc.define(MM, target="cuda").mm
    for m, k, n in ((1, 1, 1), (5, 7, 9), (64, 64, 64), (130, 33, 257)):
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        torch.testing.assert_close(mm(a, b), a @ b, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(mm(a, b.T.contiguous().T), a @ b, rtol=1e-4, atol=1e-4)


def test_calls_are_on_the_current_stream(torch: Any) -> None:
    mm = tc.define(MM, target="cuda").mm
    a = torch.randn(64, 64, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10**7)
        b = a * 2
        c = mm(b, b)
    stream.synchronize()
    torch.testing.assert_close(c, 4 * (a @ a), rtol=1e-4, atol=1e-4)


def test_graphs_capture_calls(torch: Any) -> None:
    softmax = tc.define(tc.library.source("softmax"), target="cuda").softmax
    x = torch.randn(40, 70, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        softmax(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side):
        out = softmax(x)
    x.copy_(torch.randn(40, 70, device="cuda"))
    graph.replay()
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_faults_are_raised_later(torch: Any) -> None:
    pick = tc.define(PICK, target="cuda").pick
    a = torch.randn(5, device="cuda")
    pick(a, torch.tensor([5], dtype=torch.int32, device="cuda"))
    with pytest.raises(tc.BoundsError):
        tc.synchronize()
    pick(a, torch.tensor([4], dtype=torch.int32, device="cuda"))
    tc.synchronize()


def test_cupy_gets_its_own(torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    mm, a = tc.define(MM, target="cuda").mm, cupy.ones((4, 4), "f")
    out = mm(a, a)
    assert type(out) is cupy.ndarray and bool((out == 4).all())
    assert "cupy" in sys.modules
