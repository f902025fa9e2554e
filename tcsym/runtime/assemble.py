"""LLVM IR text -> object code of call entries, and of what they share, cached.

They are position-independent code for any x86-64 processor, so one cached object serves all. The
text is SSA form written with care: three passes do what O2 does to it, in a tenth of the time.
"""

from __future__ import annotations

from tcsym.digest import hexdigest
from tcsym.packages import installed
from tcsym.runtime.cache import CodeCache
from tcsym.runtime.own_objects import PASSES, RECIPE


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
    from tcsym.llvm import Machine, Module

    machine, module = Machine(cpu, triple="x86_64-unknown-linux-gnu"), Module(llvm_ir)
    module.run(PASSES, machine)
    return module.emitted(machine)
