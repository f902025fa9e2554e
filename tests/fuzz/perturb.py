# SPDX-License-Identifier: Apache-2.0
"""The interpreter with every rounding disturbed: how sensitive a program's results are.

Compiled code may round differently: other orders of summation, fused multiply-add, wider or
narrower intermediates of half types, approximate built-ins. Each perturbed run draws, at every
operation that rounds, an error of the size such code may make; the spread of a few runs bounds what
is legitimate. Sums of n terms are moved together by n roundings (the bound of naive summation).
Zeros change sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from tcsym.frontend import (
    interpret,
    interpret_expressions,
    interpret_functions,
    interpret_values,
)
from tcsym.frontend.program import Binary, Program
from tcsym.rewrite.pair_operands import pair_operands
from tcsym.rewrite.reorder_chains import reorder_chains
from tcsym.types import DType

Array = NDArray[Any]

EPS = {
    DType.FLOAT16: 2.0**-11,
    DType.BFLOAT16: 2.0**-8,
    DType.FLOAT32: 2.0**-24,
    DType.FLOAT64: 2.0**-53,
}
HALVES = (DType.FLOAT16, DType.BFLOAT16)
EXACT = frozenset(
    ("ceil", "copysign", "fabs", "floor", "fmax", "fmin", "fmod", "logb", "nextafter")
) | {"remainder", "round", "trunc"}
# only absolutely accurate near their zeros
OSCILLATING = frozenset(("j0", "j1", "y0", "y1", "lgamma", "cospi", "sinpi", "tgamma"))
FUNCTION_ULPS = 8.0


class Noise:
    """Stand-ins for the functions of the interpreter that round."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.direction = 1.0 if seed % 2 else -1.0
        # of four runs one has only positive zeros and one only negative ones: 1/0 - 1/0 tells
        self.zeros = {0: 1.0, 1: -1.0}.get(seed % 4)
        self.in_pairs = seed % 4 == 2
        self.plain_binary = interpret_expressions._binary
        self.plain = interpret.interpret

    def interpret(
        self, program: Program, inputs: Mapping[str, Array], sizes: Mapping[str, int]
    ) -> dict[str, Array]:
        """Of four runs one takes operands in pairs, and chains in another order: infinities then
        meet other sums. What is finite both ways is that of the program as it is: a compiler that
        pairs wrongly must not say how far it may be off."""
        results = self.plain(program, inputs, sizes)
        if not self.in_pairs:
            return results
        paired = self.plain(pair_operands(reorder_chains(program, 1)), inputs, sizes)
        return {
            n: np.where(_finite(x) & _finite(paired[n]), x, paired[n]) for n, x in results.items()
        }

    def disturb(self, values: Array, where: Array, eps: float, absolute: float = 0.0) -> Array:
        r = self.rng.uniform(-1, 1, values.shape)
        moved = values.astype(np.longdouble) * (1 + r * eps) + r * absolute
        sign = r if self.zeros is None else np.full(values.shape, self.zeros)
        moved = np.where(values == 0, np.copysign(moved, sign), moved)
        return np.where(where & np.isfinite(values), moved, values).astype(values.dtype)

    def call(self, function: str, args: list[Array], dtype: DType) -> Array:
        result = interpret_functions.call(function, args, dtype)
        if function in EXACT:
            return result
        eps = max(FUNCTION_ULPS * EPS[DType.FLOAT32], 2 * EPS[dtype])
        if dtype is DType.FLOAT64:
            eps = FUNCTION_ULPS * EPS[dtype]
        absolute = (
            eps if function in OSCILLATING else float(np.finfo(result.dtype).smallest_subnormal)
        )
        return self.disturb(result, np.full(result.shape, True), eps, absolute)

    def arithmetic(self, op: str, a: Array, b: Array) -> Array:
        result = interpret_values.arithmetic(op, a, b)
        if result.dtype.kind != "f" or op in ("min", "max"):
            return result
        wide = interpret_values.arithmetic(op, a.astype(np.longdouble), b.astype(np.longdouble))
        eps = 2.0**-52 if result.dtype == np.float64 else 2.0**-23
        return self.disturb(result, (wide != result) | (result == 0), eps)

    def binary(self, e: Binary, points: Any, memory: Any) -> Array:
        """Intermediates of half types may be rounded to them."""
        result = self.plain_binary(e, points, memory)
        if e.dtype not in HALVES:
            return result
        inexact = result.astype(e.dtype.numpy).astype(np.float32) != result
        return self.disturb(result, inexact, 2 * EPS[e.dtype])

    def cast(self, values: Array, target: DType) -> Array:
        result = interpret_values.cast(values, target)
        if not target.is_float or values.dtype.kind != "f":
            return result
        return self.disturb(result, result != values, 2 * EPS[target])

    def stored(self, values: Array, dtype: DType) -> Array:
        result = interpret_values.stored(values, dtype)
        if not dtype.is_float:
            return result
        inexact = result.astype(np.longdouble) != values.astype(np.longdouble)
        return self.disturb(result, inexact, 2 * EPS[dtype])

    def accumulate(self, op: Any, into: Array, positions: Array, terms: Array) -> None:
        if op in ("+=", "*=") and terms.dtype.kind == "f":
            length = max(1.0, len(terms) / max(1, into.size)) if op == "+=" else 1.0
            eps = 2.0**-53 if terms.dtype == np.longdouble else 2.0**-24
            sign = np.where(terms < 0, -1.0, 1.0)
            terms = (terms * (1 + self.direction * length * eps * sign)).astype(terms.dtype)
        interpret_values.accumulate(op, into, positions, terms)


def _finite(x: Array) -> Array:
    return np.isfinite(x.astype(np.float64))


@contextmanager
def perturbed(seed: int) -> Iterator[None]:
    """Within, `interpret` computes with disturbed roundings (in this process: all threads)."""
    noise = Noise(seed)
    with (
        patch.object(interpret, "interpret", noise.interpret),
        patch.object(interpret_expressions, "call", noise.call),
        patch.object(interpret_expressions, "arithmetic", noise.arithmetic),
        patch.object(interpret_expressions, "_binary", noise.binary),
        patch.object(interpret_expressions, "cast", noise.cast),
        patch.object(interpret, "cast", noise.cast),
        patch.object(interpret, "stored", noise.stored),
        patch.object(interpret, "accumulate", noise.accumulate),
    ):
        yield
