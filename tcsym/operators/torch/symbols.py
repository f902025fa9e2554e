# SPDX-License-Identifier: Apache-2.0
"""Sizes that may be symbols of torch: what a call checks becomes assumptions of its graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import torch

from tcsym.operators.shapes import Size, Symbols, Truth
from tcsym.runtime.torch_internals import require


class TorchSymbols(Symbols):
    """Divisors are no less than 0."""

    def quotient(self, a: Size, b: Size) -> Size:
        if isinstance(b, int):
            return a // b if b else 0
        return a // torch.sym_max(b, 1) * torch.sym_min(b, 1)

    def remainder(self, a: Size, b: Size) -> Size:
        if isinstance(b, int):
            return a % b if b else 0
        return a % torch.sym_max(b, 1) * torch.sym_min(b, 1)

    def minimum(self, args: Sequence[Size]) -> Size:
        return reduce(torch.sym_min, args)

    def maximum(self, args: Sequence[Size]) -> Size:
        return reduce(torch.sym_max, args)

    def choose(self, c: Truth, a: Size, b: Size) -> Size:
        return torch.sym_ite(c, a, b)

    def negation(self, truth: Truth) -> Truth:
        return torch.sym_not(truth)

    def require(self, truth: Callable[[], Truth], text: str) -> None:
        require(truth(), lambda: text)
