# SPDX-License-Identifier: Apache-2.0
"""Loops are verified whenever code is made of them, not in tests alone."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym
from tcsym.ir.verify import InternalError
from tcsym.schedule import map_cpu, map_gpu

SOFTMAX = """def f(float(N,M) X) -> (Y) {
  s(i) max=! X(i,j)  t(i) +=! exp(X(i,j) - s(i))  Y(i,j) = exp(X(i,j) - s(i)) / t(i)
}"""


def call(kernel: tcsym.Kernel) -> object:
    return kernel(np.ones((3, 5), np.float32))


def explain(kernel: tcsym.Kernel) -> object:
    return kernel.explain("mapped")


@pytest.mark.parametrize(
    ("stage", "spoils", "target", "ask"),
    [
        (map_cpu, "place_allocations", "cpu:avx2", call),
        (map_cpu, "place_allocations", "cpu:avx2", explain),
        (map_gpu, "place_allocations", "cuda:sm_80", explain),
    ],
)
def test_a_pass_that_spoils_a_kernel_is_found_before_there_is_code(
    stage: ModuleType,
    spoils: str,
    target: str,
    ask: Callable[[tcsym.Kernel], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TCSYM_VERIFY", "0")
    monkeypatch.setenv("TCSYM_CACHE", "0")
    kernel = tcsym.define(SOFTMAX, target=target, strategy="symbolic").f
    with monkeypatch.context() as spoilt:
        spoilt.setattr(stage, spoils, lambda kernel: replace(kernel, buffers=()))
        with pytest.raises(InternalError, match="an argument without a buffer"):
            ask(kernel)
    ask(kernel)
