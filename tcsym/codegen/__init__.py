# SPDX-License-Identifier: Apache-2.0
"""Code generation: loop IR -> LLVM IR text -> object code."""

from tcsym.codegen.emit import Generated, emit
from tcsym.codegen.object_code import Assembler, assembly, object_code, optimised_ir

__all__ = ["Assembler", "Generated", "assembly", "emit", "object_code", "optimised_ir"]
