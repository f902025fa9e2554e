# SPDX-License-Identifier: Apache-2.0
"""Program or kernel + values of sizes -> the same with these sizes as numbers.

Binding before scheduling rewrites the program, binding after it the scheduled kernel; the result of
a run never differs. The sizes stay arguments of the call (and are checked there).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec.structs import replace

from tcsym.frontend.program import (
    Expr,
    For,
    Given,
    If,
    Item,
    Program,
    Range,
    Statement,
    Tensor,
)
from tcsym.index.expr import Index, index
from tcsym.index.values import Values, condition_substitute, substitute
from tcsym.ir.loops import Buffer, Kernel
from tcsym.ir.traverse import substitute_node, substitute_value


def bind_program(program: Program, sizes: Mapping[str, Index | int]) -> Program:
    """`program` with the given sizes substituted everywhere but in its checks."""
    if not sizes:
        return program
    values = {name: index(value) for name, value in sizes.items()}
    return replace(
        program,
        tensors=tuple(_tensor(t, values) for t in program.tensors),
        body=tuple(_item(i, values) for i in program.body),
    )


def bind_kernel(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """`kernel` with the given sizes substituted; its arguments stay the same."""
    if not sizes:
        return kernel
    values = {name: index(value) for name, value in sizes.items()}
    return replace(
        kernel,
        buffers=tuple(_buffer(b, values) for b in kernel.buffers),
        body=substitute_node(kernel.body, values),
    )


def _all(indices: tuple[Index, ...], values: Values) -> tuple[Index, ...]:
    return tuple(substitute(i, values) for i in indices)


def _tensor(t: Tensor, values: Values) -> Tensor:
    return replace(t, shape=_all(t.shape, values))


def _buffer(b: Buffer, values: Values) -> Buffer:
    strides = None if b.strides is None else _all(b.strides, values)
    scanned = condition_substitute(b.scanned, values)
    return replace(b, shape=_all(b.shape, values), strides=strides, scanned=scanned)


def _expr(e: Expr, values: Values) -> Expr:
    return substitute_value(e, values)  # type: ignore[return-value]


def _range(r: Range, values: Values) -> Range:
    at = r.at
    if at is not None:
        at = substitute(at, values) if isinstance(at, Index) else _expr(at, values)
    lower, upper = substitute(r.lower, values), substitute(r.upper, values)
    return replace(r, lower=lower, upper=upper, at=at)


def _item(item: Item, values: Values) -> Item:
    match item:
        case Statement():
            return replace(
                item,
                subscripts=_all(item.subscripts, values),
                domain=tuple(_range(r, values) for r in item.domain),
                value=_expr(item.value, values),
                exists=tuple(_expr(e, values) for e in item.exists),
                given=tuple(Given(g.name, _expr(g.value, values)) for g in item.given),
            )
        case For():
            return replace(
                item,
                lower=substitute(item.lower, values),
                upper=substitute(item.upper, values),
                body=tuple(_item(x, values) for x in item.body),
            )
        case If():
            return replace(
                item,
                condition=condition_substitute(item.condition, values),
                then=tuple(_item(x, values) for x in item.then),
                orelse=tuple(_item(x, values) for x in item.orelse),
            )
        case _:
            assert_never(item)
