# SPDX-License-Identifier: Apache-2.0
"""A table for other devices: AMD's, for which LLVM makes code from the same functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tcsym.codegen import assembly, emit
from tcsym.codegen.device.backend import TABLES
from tcsym.codegen.device.instructions import Fragments, as_bits, of_bits
from tcsym.codegen.device.launch import SHARED
from tcsym.codegen.device.nvptx import generic
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Val, constant
from tcsym.ir.loops import Buffer
from tcsym.target.cuda import KINDS, machine_of
from tcsym.target.target import Target
from tests.ir.device_kernels import CASES

TRIPLE = "amdgcn-amd-amdhsa"
TARGET = Target("cuda:amd", TRIPLE, "gfx1100", ("wavefrontsize32",), machine_of(KINDS[0]))
# Local memory is address space 5 there; nothing is left in it, but LLVM wants to be told.
STACK = re.compile(r"^  (%a\d+) = alloca (.*)$", re.MULTILINE)


class OfAmd:
    """Reference: LLVM, User Guide for AMDGPU. A warp is a wave of 32 threads."""

    def entry(
        self, module: Module, name: str, words: Sequence[str], threads: int, resident: int
    ) -> None:
        words = [word.replace("ptr", "ptr addrspace(1)") for word in words]
        kinds = [word.removesuffix(" readonly").removesuffix(" noalias") for word in words]
        given = ", ".join(f"{word} %w{k}" for k, word in enumerate(words))
        size = f'"amdgpu-flat-work-group-size"="{threads},{threads}"'
        f = Function(module, f"define amdgpu_kernel void @{name}({given}) #0 {size}")
        told = [generic(f, kind, f"%w{k}") for k, kind in enumerate(kinds)]
        own = [generic(f, "ptr addrspace(3)", f"@{SHARED}")]
        for place in ("workgroup", "workitem"):
            module.declare("i32", f"llvm.amdgcn.{place}.id.x", "")
            number = f.pure(f"call i32 @llvm.amdgcn.{place}.id.x()")
            own.append(f"i64 {f.pure(f'zext i32 {number} to i64')}")
        f.do(f"call void @{name}.body({', '.join([told[0], *own, 'ptr null', *told[1:]])})")
        f.do("ret void")
        f.finish()

    def barrier(self, context: Context) -> None:
        context.module.declare("void", "llvm.amdgcn.s.barrier", "")
        context.function.do('fence syncscope("workgroup") release')
        context.function.do("call void @llvm.amdgcn.s.barrier()")
        context.function.do('fence syncscope("workgroup") acquire')

    def shuffle(self, context: Context, value: Val, lane: Val) -> Val:
        code, bits = context.code, as_bits(context.code, value, 32)
        place = code.binary("shl", code.convert("trunc", lane, "i32"), constant(2, "i32"))
        context.module.declare("i32", "llvm.amdgcn.ds.bpermute", "i32, i32")
        call = f"call i32 @llvm.amdgcn.ds.bpermute({place.typed}, {bits.typed})"
        return of_bits(code, Val(context.function.result(call), "i32"), value.kind)

    def begin_copy(
        self, context: Context, to: str, source: str, n_bytes: int, reads: Val | None
    ) -> None:
        """At once, by the thread itself."""
        f, kind = context.function, f"i{8 * n_bytes}"
        f.do(f"store {kind} 0, ptr {to}, align {n_bytes}")
        with f.when("true" if reads is None else reads.text):
            element = f.result(f"load {kind}, ptr {source}, align {n_bytes}")
            f.do(f"store {kind} {element}, ptr {to}, align {n_bytes}")

    def commit_copies(self, context: Context) -> None:
        pass

    def wait_copies(self, context: Context, pending: int) -> None:
        pass

    def multiply(self, context: Context, held: Fragments, depth: int) -> list[Val]:
        raise AssertionError("its fragments are others")

    def touch(
        self, context: Context, pointer: str, buffer: Buffer, writes: bool, line: int
    ) -> None:
        pass


@pytest.mark.parametrize(
    ("name", "instructions"),
    [
        ("pipelined_3", {"flat_load_b32", "v_fmac_f32_e32"}),
        ("row_sums", {"ds_bpermute_b32", "s_barrier", "flat_store_b32"}),
    ],
)
def test_code_for_amd_takes_a_table_only(
    name: str, instructions: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TABLES, TRIPLE, OfAmd())
    text = emit(CASES[name].kernel, TARGET, 1).device_text
    in_local = (
        r"  \1.5 = alloca \2, addrspace(5)\n  \1 = addrspacecast ptr addrspace(5) \1.5 to ptr"
    )
    try:
        made = assembly(STACK.sub(in_local, text), TARGET)
    except RuntimeError as error:
        assert "triple" in str(error)
        pytest.skip("this llvmlite makes no code for amdgcn")
    assert ".amdhsa_kernel tcsym_task0" in made
    assert set(re.findall(r"^\t([a-z]\w+)", made, re.MULTILINE)) >= instructions
