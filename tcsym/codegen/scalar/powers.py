# SPDX-License-Identifier: Apache-2.0
"""`pow` with an exponent that few products, a quotient or a root serve; each within 1.5 ulp."""

from __future__ import annotations

import math

from tcsym.codegen.scalar.floats import Num, where
from tcsym.codegen.scalar.values import Code, Val


def power(code: Code, base: Val, exponent: float) -> Val | None:
    """None: it takes a logarithm."""
    x = Num(code, base)
    if exponent == 1:
        return base
    if exponent == 2:
        return (x * x).val
    if exponent == 3:
        return (x * x * x).val
    if exponent == -1:
        return (1.0 / x).val
    if abs(exponent) == 0.5:
        root = (x + 0.0).intrinsic("sqrt")  # of -0, too, `pow` is not negative
        root = where(x.equals(-math.inf), math.inf, root)
        return root.val if exponent > 0 else (1.0 / root).val
    return None
