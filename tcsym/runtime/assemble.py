"""LLVM IR text -> object code of call entries, and of what they share, cached.

They are position-independent code for any x86-64 processor, so one cached object serves all. The
text is SSA form written with care: three passes do what O2 does to it, in a tenth of the time.
"""

from __future__ import annotations

from typing import Any

from tcsym.digest import hexdigest
from tcsym.packages import installed
from tcsym.runtime.cache import CodeCache
from tcsym.runtime.own_objects import PASSES, RECIPE

_INITIALISED: list[bool] = []


def cached_object(llvm_ir: str, what: str) -> bytes:
    """Object code of the module, from the code cache if it was assembled before."""
    text = f"{RECIPE} {installed('llvmlite')}\n{llvm_ir}"
    key = hexdigest(text.encode())
    cache = CodeCache.default()
    entry = cache.read(key)
    if entry is not None:
        return entry[1]
    code = assemble(llvm_ir)
    cache.write(key, {"what": what}, code)
    return code


def assemble(llvm_ir: str, cpu: str = "x86-64") -> bytes:
    """Object code of the module. LLVM's complaint about a bad module is an assertion here."""
    from tcsym.llvm import emitted, llvm, parsed, run_passes

    machine = _machine(llvm, cpu)
    module = parsed(llvm_ir)
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    run_passes(manager, module, passes)
    return emitted(module, machine)


def _machine(llvm: Any, cpu: str) -> Any:
    if not _INITIALISED:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        _INITIALISED.append(True)
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    return target.create_target_machine(cpu=cpu, opt=2, reloc="pic", codemodel="small")
