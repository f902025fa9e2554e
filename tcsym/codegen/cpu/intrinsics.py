# SPDX-License-Identifier: Apache-2.0
"""Calls and statements of mapped loops that processors have instructions for."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tcsym.codegen.cpu.clipped_blocks import transpose_clipped
from tcsym.codegen.cpu.packed import add_dot, dot_term, packed
from tcsym.codegen.cpu.transpose import (
    fits_registers,
    is_whole,
    transpose_in_registers,
    transpose_whole,
)
from tcsym.codegen.scalar.branches import in_blocks
from tcsym.codegen.scalar.by_element import by_element
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.expressions import value
from tcsym.codegen.scalar.index_code import condition
from tcsym.codegen.scalar.values import Val, constant, register_kind
from tcsym.frontend.program import Call
from tcsym.ir.device import DeviceNode, OnDevice, not_on_a_cpu
from tcsym.ir.loops import Shuffle, TransposeBlock, Update
from tcsym.ir.packed import DOTS, PACK


class VectorIntrinsics:
    """Packed elements and their dot products, blocks transposed in registers."""

    def value(self, context: Context, v: Call) -> Val | None:
        if v.function == PACK:
            return packed(context, v.args, value)
        if v.function in DOTS:
            x, y = (value(context, a) for a in v.args)
            return add_dot(context.code, v.function, constant(0, register_kind(v.dtype)), x, y)
        return None

    def term(self, context: Context, n: Update) -> Callable[[Val], Val] | None:
        return dot_term(context, n, value)

    def shuffle(self, context: Context, v: Shuffle) -> Val:
        raise not_on_a_cpu(v)

    def perform(self, context: Context, n: TransposeBlock | OnDevice) -> None:
        match n:
            case TransposeBlock():
                _transpose(context, n)
            case DeviceNode():
                raise not_on_a_cpu(n)
            case _:
                assert_never(n)


def _transpose(context: Context, n: TransposeBlock) -> None:
    source, target = context.buffers[n.source], context.buffers[n.target]
    elements = by_element(n, source, target)
    if not fits_registers(context.machine, n, source, target):
        statement(context, elements)
    elif target.padded:
        transpose_in_registers(context, n)
    else:  # without mask registers masked stores cost more than single elements
        arms = [lambda: transpose_whole(context, n), lambda: statement(context, elements)]
        if context.machine.has_masks:
            arms[1] = lambda: transpose_clipped(context, n)
        whole = condition(context, is_whole(n))
        if isinstance(whole, Val):
            in_blocks(context, whole, arms)
        else:
            arms[0 if whole else 1]()
