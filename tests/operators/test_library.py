"""Gradients and operators of the library's kernels, by torch's own checks. Slow: not by default."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tcsym as tc

torch = pytest.importorskip("torch", reason="torch is not installed")
if not hasattr(torch.library, "register_vmap"):
    pytest.skip("torch is older than 2.5", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SIZES = (3, 4, 2, 5, 3, 2, 4)


def in_double(name: str) -> tc.Kernel:
    text = re.sub(r"\bfloat\b", "double", tc.library.source(name))
    return tc.define(text, filename=f"library/{name}.tc")[name]


def arguments(kernel: tc.Kernel) -> list[Any]:
    """Small ones; images and steps are larger than windows, whose sizes come last."""
    torch.manual_seed(1)
    values = {n: SIZES[k % len(SIZES)] for k, n in enumerate(kernel.program.sizes)}
    values |= {n: 2 for n in ("K", "KH", "KW", "KD") if n in values}
    values |= {n: 5 for n in ("H", "W", "T") if n in values and {"KH", "K"} & values.keys()}
    made = []
    for t in kernel.program.inputs:
        shape = [e.constant if e.is_constant else values[str(e)] for e in t.shape]
        x = torch.rand(shape, dtype=torch.float64) + 0.1
        if t.dtype.is_float:
            made.append(x.requires_grad_())
        else:
            made.append((x * 2).to(getattr(torch, t.dtype.value)))
    return made


NAMES = [n for n in tc.library.names() if n != "matmul_int8"]  # which has no gradient


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str) -> None:
    kernel = in_double(name)
    given = arguments(kernel)
    assert torch.autograd.gradcheck(kernel, given)
    assert torch.autograd.gradgradcheck(kernel, given)


@pytest.mark.parametrize("name", tc.library.names())
def test_operators(name: str) -> None:
    from tcsym.torch import operator

    kernel = in_double(name)
    torch.library.opcheck(operator(kernel), tuple(arguments(kernel)))
