"""What threads of a device do beside loads, stores and arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tcsym.codegen.scalar.by_element import by_element
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.expressions import value
from tcsym.codegen.scalar.values import Code, Val, constant
from tcsym.frontend.program import Call
from tcsym.ir.device import (
    WARP,
    Barrier,
    BeginCopy,
    CommitCopies,
    MatrixMultiply,
    OnDevice,
    WaitCopies,
)
from tcsym.ir.loops import Prefetch, Shuffle, TransposeBlock, Update


class DeviceIntrinsics:
    """Nothing is packed, and nothing is fetched ahead by itself."""

    def value(self, context: Context, v: Call) -> Val | None:
        return None

    def term(self, context: Context, n: Update) -> Callable[[Val], Val] | None:
        return None

    def perform(self, context: Context, n: Prefetch | TransposeBlock | OnDevice) -> None:
        match n:
            case TransposeBlock():
                buffers = context.buffers[n.source], context.buffers[n.target]
                statement(context, by_element(n, *buffers))
            case Barrier():
                context.module.declare("void", "tcsym_simt_barrier", "ptr")
                context.function.do("call void @tcsym_simt_barrier(ptr %simt)")
                _forget(context)
            case Prefetch():
                pass
            case BeginCopy() | CommitCopies() | WaitCopies() | MatrixMultiply():
                raise AssertionError(f"not planned for yet: {n}")
            case _:
                assert_never(n)

    def shuffle(self, context: Context, v: Shuffle) -> Val:
        """As 64 bits, whatever their type."""
        code, own = context.code, value(context, v.value)
        lane = code.binary("and", Val("%thread", "i64"), constant(WARP - 1, "i64"))
        other = _other(code, v, lane)
        context.module.declare("i64", "tcsym_simt_shuffle", "ptr, i64, i64")
        bits = _bits(code, own)
        text = f"call i64 @tcsym_simt_shuffle(ptr %simt, i64 {bits.text}, i64 {other.text})"
        return _value(code, Val(context.function.result(text), "i64"), own.kind)


def _other(code: Code, v: Shuffle, lane: Val) -> Val:
    step = constant(v.lanes, "i64")
    match v.direction:
        case "across":
            return code.binary("xor", lane, step)
        case "up":
            return code.binary("sub", lane, step)
        case "down":
            return code.binary("add", lane, step)
        case _:
            assert_never(v.direction)


def _bits(code: Code, v: Val) -> Val:
    kinds = {"half": "i16", "float": "i32", "double": "i64"}
    whole = code.convert("bitcast", v, kinds[v.kind]) if v.kind in kinds else v
    return whole if whole.kind == "i64" else code.convert("zext", whole, "i64")


def _value(code: Code, bits: Val, kind: str) -> Val:
    kinds = {"half": "i16", "float": "i32", "double": "i64"}
    whole = kinds.get(kind, kind)
    part = bits if whole == "i64" else code.convert("trunc", bits, whole)
    return code.convert("bitcast", part, kind) if kind in kinds else part


def _forget(context: Context) -> None:
    """Other threads may have written anything."""
    context.registers.forget()
    context.forget_loads()
    for buffer in context.buffers:
        context.note_store(buffer)
