# SPDX-License-Identifier: Apache-2.0
"""Short constructors for typed programs written by hand, and how to run them."""

from __future__ import annotations

from typing import Any

import pytest

from tcsym.errors import ERROR_KINDS, Span, TCError
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import (
    Check,
    Expr,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
)
from tcsym.index.expr import Index, index, var
from tcsym.types import DType

F16, BF16, F32, F64 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64
I8, I32, I64, U8, U64, BOOL = (
    DType.INT8,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.UINT64,
    DType.BOOL,
)
N, M, K = var("N"), var("M"), var("K")
i, j, k, t = var("i"), var("j"), var("k"), var("t")
READ, LEFT, OUTPUT = Span(1, 10), Span(1, 20), Span(1, 30)


def inp(name: str, dtype: DType, *shape: Index) -> Tensor:
    return Tensor(name, dtype, shape, "input")


def out(name: str, dtype: DType, *shape: Index) -> Tensor:
    return Tensor(name, dtype, shape, "output", OUTPUT)


def tmp(name: str, dtype: DType, *shape: Index) -> Tensor:
    return Tensor(name, dtype, shape, "temporary")


def rd(name: str, dtype: DType, *subscripts: Index | Expr) -> Read:
    return Read(name, subscripts, dtype, span=READ)


def left(name: str, upper: Index | int, lower: Index | int = 0) -> Range:
    return Range(name, index(lower), index(upper), False)


def red(name: str, upper: Index | int, lower: Index | int = 0) -> Range:
    return Range(name, index(lower), index(upper), True)


def st(
    target: str,
    subscripts: tuple[Index, ...],
    op: Any,
    value: Expr,
    *domain: Range,
    exists: tuple[Expr, ...] = (),
) -> Statement:
    """A statement; `op` ends in `!` to initialise."""
    initialise, plain = op.endswith("!"), op.rstrip("!")
    return Statement("S", target, subscripts, plain, initialise, domain, value, exists, LEFT)


def run(
    tensors: list[Tensor], body: list[Item], sizes: dict[str, int], *checks: Check, **inputs: Any
) -> Any:
    program = Program("f", tuple(sizes), (), tuple(tensors), tuple(body), checks, source="def f")
    results = interpret(program, inputs, sizes)
    return next(iter(results.values())) if len(results) == 1 else results


def fails(kind: str, span: Span, *args: Any, **kwargs: Any) -> TCError:
    with pytest.raises(ERROR_KINDS[kind]) as caught:
        run(*args, **kwargs)
    assert caught.value.span == span
    return caught.value
