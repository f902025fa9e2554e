# SPDX-License-Identifier: Apache-2.0
"""Mapped kernel -> a stage behind it as text: of the host's half, or of the device's."""

from __future__ import annotations

from tcsym.codegen.device.c_text import c_text
from tcsym.codegen.device.ptxas import disassembled
from tcsym.codegen.emit import emit
from tcsym.codegen.object_code import assembly
from tcsym.ir.loops import Kernel
from tcsym.target.target import Target


def explain_device(stage: str, kernel: Kernel, target: Target, min_work_per_thread: int) -> str:
    """`llvm`: both halves. `asm`: the host's. `cuda`, `ptx`, `sass`: the device's."""
    if stage == "cuda":
        return c_text(kernel)
    made = emit(kernel, target, min_work_per_thread)
    if stage == "llvm":
        return f"{made.device_text}\n{made.ir_text}"
    if stage == "asm":
        return assembly(made.ir_text, target)
    ptx = assembly(made.device_text, target)
    return ptx if stage == "ptx" else disassembled(ptx, target.cpu)
