# SPDX-License-Identifier: Apache-2.0
"""LLVM IR text -> object code, for tests that stand in for the compiler."""

from __future__ import annotations

from tcsym.target.cpu import SCALAR, host_triple
from tcsym.target.llvm import Module, TargetMachine

PASSES = ("sroa", "instruction_combine", "simplify_cfg")


def assemble(llvm_ir: str, cpu: str = "") -> bytes:
    """Object code of the module. LLVM's complaint about a bad module is an assertion here."""
    triple = host_triple()
    machine, module = TargetMachine(triple, cpu or SCALAR[triple]), Module(llvm_ir)
    module.run(PASSES, machine)
    return module.emitted(machine)
