# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of lanes under a mask, as LLVM's intrinsics: side by side, or each at its place.

Loads give zeros in lanes outside the mask. `pointers`: a vector of them, with its type. `align`: in
bytes. `epoch`: as of `Function.pure`.
"""

from __future__ import annotations

from tcsym.codegen.scalar.values import Code, Val, suffix, type_text


def masked_load(code: Code, pointer: str, kind: str, mask: Val, align: int, epoch: str = "") -> Val:
    lanes, whole = mask.lanes, type_text(kind, mask.lanes)
    name = f"llvm.masked.load.{suffix(kind, lanes)}.p0"
    code.function.module.declare(whole, name, f"ptr, i32, {mask.type}, {whole}")
    operands = f"ptr {pointer}, i32 {align}, {mask.typed}, {whole} zeroinitializer"
    return Val(code.function.pure(f"call {whole} @{name}({operands})", epoch), kind, lanes)


def gather(code: Code, pointers: str, kind: str, mask: Val, align: int, epoch: str = "") -> Val:
    lanes, whole = mask.lanes, type_text(kind, mask.lanes)
    name = f"llvm.masked.gather.{suffix(kind, lanes)}.v{lanes}p0"
    code.function.module.declare(whole, name, f"<{lanes} x ptr>, i32, {mask.type}, {whole}")
    operands = f"{pointers}, i32 {align}, {mask.typed}, {whole} zeroinitializer"
    return Val(code.function.pure(f"call {whole} @{name}({operands})", epoch), kind, lanes)


def masked_store(code: Code, pointer: str, value: Val, mask: Val, align: int) -> None:
    name = f"llvm.masked.store.{suffix(value.kind, value.lanes)}.p0"
    code.function.module.declare("void", name, f"{value.type}, ptr, i32, {mask.type}")
    operands = f"{value.typed}, ptr {pointer}, i32 {align}, {mask.typed}"
    code.function.do(f"call void @{name}({operands})")


def scatter(code: Code, pointers: str, value: Val, mask: Val, align: int) -> None:
    lanes = value.lanes
    name = f"llvm.masked.scatter.{suffix(value.kind, lanes)}.v{lanes}p0"
    code.function.module.declare("void", name, f"{value.type}, <{lanes} x ptr>, i32, {mask.type}")
    operands = f"{value.typed}, {pointers}, i32 {align}, {mask.typed}"
    code.function.do(f"call void @{name}({operands})")
