"""LLVM IR text -> object code or assembly, through LLVM's passes. The only user of llvmlite here.

Code that is already vectors takes three passes: the emitter numbers values, moves invariant ones
out of loops, and tests loops at their end, so more passes find nothing to do. Scalar code takes O2,
with loop vectorisation as the target allows. Two parts of LLVM are off for the process: the machine
scheduler, which hoists broadcasts out of register tiles and spills (recipes/cpu.md), and loop
strength reduction, which takes half of the code generation time and rebuilds our addresses for the
worse.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from tcsym.target import Target

_LOCK = threading.RLock()
_SHORT = ("sroa", "instruction_combine", "simplify_cfg")
_VECTORS = "; vectors: explicit\n"
_SCALAR = "; vectors: none\n"


def pipeline_line(has_vectors: bool) -> str:
    """First line of the IR text; decides the pipeline."""
    return _VECTORS if has_vectors else _SCALAR


def object_code(ir_text: str, target: Target) -> bytes:
    """Relocatable object that defines `tcsym_kernel`."""
    with _LOCK:
        machine = _machine(target)
        return bytes(machine.emit_object(_optimised(ir_text, target, machine)))


def assembly(ir_text: str, target: Target) -> str:
    with _LOCK:
        machine = _machine(target)
        return str(machine.emit_assembly(_optimised(ir_text, target, machine)))


def optimised_ir(ir_text: str, target: Target) -> str:
    """The IR after the passes, for reading."""
    with _LOCK:
        return str(_optimised(ir_text, target, _machine(target)))


@lru_cache(None)
def _initialise() -> None:
    for option in ("-enable-misched=false", "-disable-lsr"):
        llvm.set_option("tcsym", option)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@lru_cache(None)
def _machine(target: Target) -> Any:
    _initialise()
    features = ",".join("+" + f for f in target.features)
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


def _optimised(ir_text: str, target: Target, machine: Any) -> Any:
    module = llvm.parse_assembly(ir_text)
    module.verify()  # else a mistake of ours would abort the process
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    if ir_text.startswith(_SCALAR):
        tuning = llvm.create_pipeline_tuning_options(speed_level=2)
        tuning.loop_vectorization = tuning.slp_vectorization = target.vector_bits > 0
        passes = llvm.create_pass_builder(machine, tuning)
        manager = passes.getModulePassManager()
    else:
        passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
        manager = llvm.create_new_module_pass_manager()
        for name in _SHORT:
            getattr(manager, f"add_{name}_pass")()
    manager.run(module, passes)
    return module
