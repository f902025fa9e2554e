# SPDX-License-Identifier: Apache-2.0
"""Statements -> the same with temporaries of half types as they are: float32, as all values."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from tcsym.differentiate.accumulate import Tensors
from tcsym.frontend.half import is_half, stored
from tcsym.frontend.program import Cast, Compare, Const, Expr, Item, Read, dtype_of
from tcsym.frontend.rename import Renaming, S
from tcsym.types import DType

F32 = DType.FLOAT32


def in_float(items: tuple[Item, ...], tensors: Tensors, kept: Collection[str]) -> tuple[Item, ...]:
    """kept: those in memory of the caller; of all others, `tensors` says so, too."""
    halves = {n: t for n, t in tensors.items() if is_half(t.dtype)}
    short = {n: t.dtype for n, t in halves.items() if n in kept}
    tensors |= {n: replace(t, dtype=F32) for n, t in halves.items() if n not in kept}
    return _InFloat(short).items(items) if halves else items


class _InFloat(Renaming):
    """short: the tensors that have half types."""

    def __init__(self, short: dict[str, DType]) -> None:
        super().__init__({})
        self.short = short

    def statement(self, s: S) -> S:
        made = super().statement(s)
        if s.op == "=" and s.target in self.short:
            return replace(made, value=stored(made.value, self.short[s.target]))
        return made

    def changed(self, e: Expr, before: Expr) -> Expr:
        match e:
            case Const(value, dtype):
                return Const(value, dtype.accumulator)
            case Read(tensor, _, dtype) if is_half(dtype):
                return Cast(e, F32) if tensor in self.short else replace(e, dtype=F32)
            case Cast(x, dtype) if is_half(dtype):
                return Cast(stored(x, dtype), F32)
            case Cast(x, DType.FLOAT32) if isinstance(before, Cast):
                return x if is_half(dtype_of(before.operand)) else e
        is_short = not isinstance(e, Compare) and is_half(e.dtype)
        return replace(e, dtype=F32) if is_short else e
