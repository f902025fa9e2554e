# SPDX-License-Identifier: Apache-2.0
"""What of LLVM is used: passes run, code comes out, mistakes are told."""

from __future__ import annotations

import pytest

from tcsym.target.cpu import X86_64
from tcsym.target.llvm import PASSES, Module, TargetMachine, host, version

WITH_CALL = """
declare i64 @g(i64)
define i64 @f(i64 %x) {
  %at = alloca i64
  store i64 %x, ptr %at
  %y = load i64, ptr %at
  %z = call i64 @g(i64 %y)
  ret i64 %z
}
"""


def test_what_there_is() -> None:
    assert version() >= (15,)
    name, features = host()
    assert name and "sse2" in features


@pytest.mark.parametrize("passes", [tuple(PASSES), None])
def test_passes_run_and_code_comes_out(passes: tuple[str, ...] | None) -> None:
    machine, module = TargetMachine(X86_64, "x86-64"), Module(WITH_CALL)
    module.target(machine)
    assert "alloca" in str(module) and machine.triple in str(module)
    if passes is None:
        module.optimise(machine, vectorise=True)
    else:
        module.run(passes, machine)
    assert "alloca" not in str(module)
    assert module.emitted(machine).startswith(b"\x7fELF")
    assert b"call" in module.emitted(machine, as_object=False) or passes is None


def test_mistakes_in_a_text_are_told() -> None:
    with pytest.raises(RuntimeError, match="parsing error"):
        Module("define i32 @f( {")
    with pytest.raises(RuntimeError, match="PHI"):
        Module("define i32 @f() {\n  br label %b\nb:\n  %x = phi i32\n  ret i32 %x\n}")
    with pytest.raises(RuntimeError, match="triple"):
        TargetMachine("no-such-triple", "x86-64")
