"""Code generation: loop IR -> LLVM IR text -> object code."""

from tcsym.codegen.emit import Generated, emit
from tcsym.codegen.object_code import assembly, object_code, optimised_ir

__all__ = ["Generated", "assembly", "emit", "object_code", "optimised_ir"]
