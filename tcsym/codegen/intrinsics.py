"""The built-in functions: name -> code (LANGUAGE A18)."""

from __future__ import annotations

from tcsym.codegen.values import Code, Val
from tcsym.types import DType


def call(code: Code, function: str, args: list[Val], dtype: DType) -> Val:
    kind = args[0].kind
    if function in ("sqrt", "fabs", "floor", "ceil", "trunc", "round", "copysign", "fma"):
        return code.intrinsic(function, *args)
    return code.call_each(function + ("f" if kind == "float" else ""), *args)
