# SPDX-License-Identifier: Apache-2.0
"""`pow(x, 2)` -> `x*x`, a product to all passes; of an `x` that calls nothing, as it stands twice.

Code generation has products for more powers of anything (`codegen.scalar.powers`).
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Call, Const
from tcsym.ir.loops import Kernel, Value
from tcsym.ir.traverse import map_node, subvalues


def reduce_strength(kernel: Kernel) -> Kernel:
    return replace(kernel, body=map_node(kernel.body, None, _square))


def _square(v: Value) -> Value:
    if not isinstance(v, Call) or v.function != "pow":
        return v
    x, exponent = v.args
    if exponent != Const(2.0, v.dtype) or any(isinstance(y, Call) for y in subvalues(x)):
        return v
    return Binary("mul", x, x, v.dtype)
