# SPDX-License-Identifier: Apache-2.0
"""Parallel loops are modules of their own, compiled beside the emission."""

from __future__ import annotations

import sys

import llvmlite.binding as llvm
import pytest

import tcsym
from tcsym.codegen import Assembler, object_code
from tcsym.codegen.emit import Generated, emit
from tcsym.compiler import Lowering, Unfinished, analyse
from tcsym.ir.archive import members
from tcsym.target.names import resolve_target

TARGET = resolve_target("cpu:avx2")
TWO = """def two(float(M,K) A, float(N,K) B, float(P,N) C) -> (Y) {
  X(m,n) +=! A(m,k) * B(n,k)
  Y(m,p) +=! X(m,n) * C(p,n)
}"""


def lowering(text: str, target: str = "cpu:avx2") -> Lowering:
    (program,) = analyse(text).values()
    layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
    return Lowering(program, resolve_target(target), tcsym.Options(), {}, layouts, (), {})  # type: ignore[arg-type]


def emitted(stages: Lowering) -> Generated:
    kernel = stages.mapped(stages.scheduled()).kernel
    return emit(kernel, stages.target, stages.options.min_work_per_thread)


def test_modules_are_the_whole_in_parts() -> None:
    stages = lowering(TWO)
    generated = emitted(stages)
    assert len(generated.modules) > 2
    assert "@tcsym_kernel(" in generated.modules[-1]
    for text in (*generated.modules, generated.ir_text):
        llvm.parse_assembly(text, context=llvm.create_context()).verify()
    bodies = [text.count("\ndefine ") for text in generated.modules]
    assert sum(bodies) == generated.ir_text.count("\ndefine ")


def test_scalar_code_is_one_module() -> None:
    stages = lowering(TWO, "cpu:novector")
    generated = emitted(stages)
    assert generated.modules == (generated.ir_text,)


def test_archive_has_the_modules_in_order() -> None:
    stages = lowering(TWO)
    generated = emitted(stages)
    begun = Unfinished(lowering(TWO))
    begun.make(begun.missing())
    expected = [object_code(text, TARGET) for text in generated.modules]
    assert list(members(begun.compiled().object_code)) == expected


def test_mistakes_are_raised_and_the_switch_interval_comes_back() -> None:
    before = sys.getswitchinterval()
    with Assembler(TARGET) as assembler:
        assembler.add("define void @f() {")
        with pytest.raises(RuntimeError, match="parsing"):
            assembler.objects()
    with pytest.raises(KeyError), Assembler(TARGET):
        raise KeyError
    assert sys.getswitchinterval() == before
