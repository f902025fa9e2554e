# SPDX-License-Identifier: Apache-2.0
"""The 64 built-in functions (LANGUAGE A18): name -> instruction, vector code or library function.

In this order: one LLVM intrinsic; straight vector code for float32 or float64; a function of the C
library, lane by lane; straight vector code of float64 for both (`math_special`).
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.scalar import (
    math_f32,
    math_f64,
    math_f64_angles,
    math_f64_pow,
    math_f64_tails,
)
from tcsym.codegen.scalar.casts import from_bits, to_bits
from tcsym.codegen.scalar.floats import Num, where
from tcsym.codegen.scalar.math_special import SPECIAL
from tcsym.codegen.scalar.remainders import fmod, remainder
from tcsym.codegen.scalar.values import Code, Val
from tcsym.types import DType

INF = float("inf")
LLVM = {
    "ceil": "ceil",
    "copysign": "copysign",
    "fabs": "fabs",
    "floor": "floor",
    "fma": "fma",
    "fmax": "maxnum",
    "fmin": "minnum",
    "round": "round",
    "sqrt": "sqrt",
    "trunc": "trunc",
}


def _fdim(x: Num, y: Num) -> Num:
    return where(x <= y, 0.0, x - y)


def _logb(x: Num) -> Num:
    """The exponent's bits, of denormals after a shift."""
    a = x.magnitude()
    bits, bias, tiny = (23, 127, 2.0**-126) if a.val.kind == "float" else (52, 1023, 2.0**-1022)
    small = a < tiny
    exponent = where(small, a * 2.0**bits, a).bits() >> bits
    exponent = exponent - where(small, exponent.like(bias + bits), bias)
    found = exponent.to(a.val.kind, "sitofp")
    return where(a < INF, where(a.equals(0.0), -INF, found), a)


def _next(x: Num, y: Num) -> Num:
    """A step of the bits, away from zero or towards it."""
    bits = x.bits()
    outward = (x < y) ^ (bits < 0)
    stepped = where(outward, bits + 1, bits - 1).as_float()
    stepped = where(x.equals(0.0), bits.like(1).as_float().with_sign(y), stepped)
    return where(x.equals(y), y, where(x.is_nan() | y.is_nan(), x + y, stepped))


ANY: dict[str, Callable[..., Num]] = {
    "fdim": _fdim,
    "fdivide": lambda x, y: x / y,
    "fmod": fmod,
    "nextafter": _next,
    "remainder": remainder,
    "logb": _logb,
    "rsqrt": math_f32.rsqrt,
}
SINGLE: dict[str, Callable[..., Num]] = {
    "acos": math_f32.acos,
    "acosh": math_f32.acosh,
    "asin": math_f32.asin,
    "asinh": math_f32.asinh,
    "atan": math_f32.atan,
    "atan2": math_f32.atan2,
    "atanh": math_f32.atanh,
    "cbrt": math_f32.cbrt,
    "cos": math_f32.cos,
    "cosh": math_f32.cosh,
    "erf": math_f32.erf,
    "erfc": math_f32.erfc,
    "erfcinv": math_f32.erfcinv,
    "erfinv": math_f32.erfinv,
    "exp": math_f32.exp,
    "exp10": math_f32.exp10,
    "exp2": math_f32.exp2,
    "expm1": math_f32.expm1,
    "hypot": math_f32.hypot,
    "log": math_f32.log,
    "log10": math_f32.log10,
    "log1p": math_f32.log1p,
    "log2": math_f32.log2,
    "normcdf": math_f32.normcdf,
    "normcdfinv": math_f32.normcdfinv,
    "pow": math_f32.pow,
    "rcbrt": math_f32.rcbrt,
    "sin": math_f32.sin,
    "sinh": math_f32.sinh,
    "tan": math_f32.tan,
    "tanh": math_f32.tanh,
}
DOUBLE: dict[str, Callable[..., Num]] = {
    "acos": math_f64_angles.acos,
    "acosh": math_f64_angles.acosh,
    "asin": math_f64_angles.asin,
    "asinh": math_f64_angles.asinh,
    "atan": math_f64_angles.atan,
    "atan2": math_f64_angles.atan2,
    "atanh": math_f64_angles.atanh,
    "cbrt": math_f64_pow.cbrt,
    "cos": math_f64.cos,
    "cosh": math_f64_angles.cosh,
    "erf": math_f64.erf,
    "erfc": math_f64_tails.erfc,
    "exp": math_f64.exp,
    "exp10": math_f64.exp10,
    "exp2": math_f64.exp2,
    "expm1": math_f64.expm1,
    "hypot": math_f64_angles.hypot,
    "log": math_f64.log,
    "log10": math_f64.log10,
    "log1p": math_f64.log1p,
    "log2": math_f64.log2,
    "pow": math_f64_pow.pow,
    "sin": math_f64.sin,
    "sinh": math_f64_angles.sinh,
    "tan": math_f64.tan,
    "tanh": math_f64.tanh,
}
# Those of the C library are relatively accurate nearer to their zeros than ours.
LIBRARY = {"j0": "j0", "j1": "j1", "lgamma": "lgamma_r", "y0": "y0", "y1": "y1"}
NAMES = frozenset({*LLVM, *ANY, *SINGLE, *DOUBLE, *SPECIAL})


def call(code: Code, function: str, args: list[Val], dtype: DType) -> Val:
    """The built-in on values of `dtype` (half and bfloat16 in float32)."""
    if function == "nextafter" and dtype in (DType.FLOAT16, DType.BFLOAT16):
        return _next_short(code, args, dtype)
    if function in LLVM:
        return code.intrinsic(LLVM[function], *args)
    inline = ANY.get(function) or (SINGLE if args[0].kind == "float" else DOUBLE).get(function)
    if function in LIBRARY and args[0].kind == "double" and code.machine.has_libm:
        return _library(code, function, args)
    args = code.level(*args)
    if inline is not None:
        return inline(*(Num(code, a) for a in args)).val
    wide = (Num(code, code.convert("fpext", a, "double")) for a in args)
    return code.convert("fptrunc", SPECIAL[function](*wide).val, args[0].kind)


def _library(code: Code, function: str, args: list[Val]) -> Val:
    if function == "lgamma":  # it stores the sign where all threads would write
        args = [*args, Val(code.function.alloca("i32", 4), "ptr")]
    return code.call_each(LIBRARY[function], *args)


def _next_short(code: Code, args: list[Val], dtype: DType) -> Val:
    """nextafter among the values of half or bfloat16, by stepping the 16 bits."""
    x, y = (Num(code, from_bits(code, to_bits(code, a, dtype), dtype)) for a in code.level(*args))
    bits = Num(code, code.convert("sext", to_bits(code, x.val, dtype), "i32"))
    outward = where(bits < 0, (y < x), (y > x))
    stepped = where(outward, bits + 1, bits - 1)
    smallest = where(y > 0.0, bits.like(1), bits.like(0x8001))
    stepped = where(x.equals(0.0), smallest, stepped)
    short = code.convert("trunc", stepped.val, "i16")
    moved = Num(code, from_bits(code, short, dtype))
    return where(x.equals(y), y, where(x.is_nan(), x, where(y.is_nan(), y, moved))).val
