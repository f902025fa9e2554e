"""LLVM IR text -> object code, for tests that stand in for the compiler."""

from __future__ import annotations

from tcsym.target.llvm import Machine, Module

PASSES = ("sroa", "instruction_combine", "simplify_cfg")


def assemble(llvm_ir: str, cpu: str = "x86-64") -> bytes:
    """Object code of the module. LLVM's complaint about a bad module is an assertion here."""
    machine, module = Machine(cpu, triple="x86_64-unknown-linux-gnu"), Module(llvm_ir)
    module.run(PASSES, machine)
    return module.emitted(machine)
