# SPDX-License-Identifier: Apache-2.0
"""Options and `recompute` of derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym

TEXT = """def f(float(N,M) X, float(M) w) -> (float y) {
  s(n) +=! X(n,m) * w(m)
  y +=! tanh(s(n)) * s(n)
}"""
LIMITED = tcsym.Options(max_operations=77_000, chains=2)
OWN = tcsym.Options(max_operations=33_000, vectorize=False)


def _derived(kernel: Any, **given: Any) -> list[Any]:
    module = tcsym.derivative(kernel, **given)
    return [kernel.grad(**given), kernel.saving(**given), kernel.jvp(**given), module.f_grad]


def test_derivatives_have_the_limits_of_their_kernel_and_options_of_their_own() -> None:
    kernel = tcsym.define(TEXT, options=LIMITED).f
    for made in _derived(kernel):
        assert made.settings.options == LIMITED.limits == tcsym.Options(max_operations=77_000)
    for made in _derived(kernel, options=OWN):
        assert made.settings.options == OWN
    assert kernel.grad() is not kernel.grad(options=OWN) is kernel.grad(options=OWN)
    X, w = np.ones((5, 3), np.float32), np.full(3, 0.1, np.float32)
    given = {"X": X, "w": w, "dy": np.float32(1)}
    for a, b in zip(kernel.grad()(**given), kernel.grad(options=OWN)(**given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_what_are_no_options_is_said() -> None:
    kernel = tcsym.define(TEXT).f
    for make in (kernel.grad, kernel.saving, kernel.jvp):
        with pytest.raises(tcsym.OptionError, match="`options` is dict"):
            make(options={"max_operations": 3})


@pytest.mark.parametrize("recompute", ["auto", "all", "cheap", "none", "sqrt"])
def test_recorded_calls_compute_again_what_is_said(recompute: str, torch: Any) -> None:
    kernel = tcsym.define(TEXT, recompute=recompute, options=LIMITED).f
    X = torch.randn(5, 3, requires_grad=True)
    w = torch.randn(3, requires_grad=True)
    kept: list[int] = []

    def pack(x: Any) -> Any:
        kept.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = kernel(X, w)
    y.backward()
    s = (X @ w).detach()
    ds = torch.tanh(s) + s * (1 - torch.tanh(s) ** 2)
    torch.testing.assert_close(w.grad, X.detach().T @ ds)
    assert (5 in kept) is (recompute in ("cheap", "none"))
