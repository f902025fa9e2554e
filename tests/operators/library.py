# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.operators.library [NAME...]`: torch's own checks of the library's kernels.

Gradients, gradients of gradients and operators, in float64, at small sizes: minutes.
"""

from __future__ import annotations

import re
import sys
import time
from typing import Any

import torch

import tcsym as tc

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


def check(name: str) -> None:
    """Errors: those of torch's checks."""
    from tcsym.torch import operator

    kernel = in_double(name)
    given = arguments(kernel)
    if name != "matmul_int8":  # which has no gradient
        assert torch.autograd.gradcheck(kernel, given)
        assert torch.autograd.gradgradcheck(kernel, given)
    torch.library.opcheck(operator(kernel), tuple(given))


def main(names: list[str]) -> int:
    wrong = 0
    for name in names or tc.library.names():
        start = time.perf_counter()
        try:
            check(name)
            said = "right"
        except Exception as error:
            said, wrong = f"{type(error).__name__}: {str(error)[:500]}", wrong + 1
        print(f"{name}: {said} ({time.perf_counter() - start:.0f} s)", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
