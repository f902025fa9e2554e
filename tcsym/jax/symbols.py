# SPDX-License-Identifier: Apache-2.0
"""Sizes that may be dimension expressions of JAX: what these do not decide, the call checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import jax

from tcsym.errors import SizeError
from tcsym.operators.shapes import Size, Symbols, Truth


class JaxSymbols(Symbols):
    def quotient(self, a: Size, b: Size) -> Size:
        return 0 if isinstance(b, int) and not b else a // b

    def remainder(self, a: Size, b: Size) -> Size:
        return 0 if isinstance(b, int) and not b else a % b

    def minimum(self, args: Sequence[Size]) -> Size:
        return reduce(jax.core.min_dim, args)

    def maximum(self, args: Sequence[Size]) -> Size:
        return reduce(jax.core.max_dim, args)

    def zero(self, value: Size) -> Truth:
        return value == 0 or not (value > 0 or value < 0)  # JAX's `==` is True only if it is sure

    def choose(self, c: Truth, a: Size, b: Size) -> Size:
        return a if c else b

    def negation(self, truth: Truth) -> Truth:
        return not truth

    def near_root(self, n: Size) -> Size:
        """JAX takes too long to decide about roots of symbols: a number serves all."""
        return super().near_root(n) if isinstance(n, int) else 64

    def require(self, truth: Callable[[], Truth], text: str) -> None:
        try:
            holds = bool(truth())
        except jax.errors.InconclusiveDimensionOperation:
            return
        if not holds:
            raise SizeError(text)
