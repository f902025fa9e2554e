# SPDX-License-Identifier: Apache-2.0
"""An address of lanes that do not lie side by side -> a pointer for each of them."""

from __future__ import annotations

from tcsym.codegen.scalar.addresses import Address, step_by
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.values import constant


def vector_of_pointers(context: Context, at: Address) -> str:
    code, width = context.code, context.width
    offsets = at.offsets
    if offsets is None:
        short = isinstance(at.stride, int) and abs(at.stride) < 1 << 20
        numbers = code.lane_numbers(width, "i32" if short else "i64")
        step = constant(at.stride, numbers.kind) if isinstance(at.stride, int) else at.stride
        offsets = code.binary("mul", numbers, step)
    text = f"getelementptr {at.kind}, ptr {at.pointer}, {offsets.typed}"
    return f"<{width} x ptr> {context.function.pure(text)}"


def lane_pointers(context: Context, at: Address) -> list[str]:
    """One pointer a lane."""
    code, width = context.code, context.width
    if at.offsets is not None:
        return [
            step_by(context, at.pointer, code.lane(at.offsets, i), at.kind) for i in range(width)
        ]
    if isinstance(at.stride, int):
        steps = [constant(at.stride * i, "i64") for i in range(width)]
        return [step_by(context, at.pointer, s, at.kind) for s in steps]
    pointers = [at.pointer]
    for _ in range(width - 1):
        pointers.append(step_by(context, pointers[-1], at.stride, at.kind))
    return pointers
