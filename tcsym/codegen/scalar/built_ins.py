"""The 64 built-in functions (LANGUAGE A18): name -> instruction, vector code or library function.

In this order: one LLVM intrinsic; straight vector code for float32 or float64; a function written
into the module (`math_special`); a function of the C library, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.scalar import math_f32, math_f64, math_f64_angles, math_f64_pow
from tcsym.codegen.scalar.casts import from_bits, to_bits
from tcsym.codegen.scalar.floats import Num, where
from tcsym.codegen.scalar.math_special import SPECIAL, special
from tcsym.codegen.scalar.remainders import fmod, remainder
from tcsym.codegen.scalar.values import Code, Val
from tcsym.types import DType

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
    return where(x.magnitude() >= float("inf"), x.magnitude(), x.each("logb"))


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
    "cos": math_f64.cos,
    "cosh": math_f64_angles.cosh,
    "erf": math_f64.erf,
    "exp": math_f64.exp,
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
LIBRARY = frozenset(
    {
        "cbrt",
        "erf",
        "erfc",
        "exp10",
        "j0",
        "j1",
        "lgamma",
        "tgamma",
        "y0",
        "y1",
    }
)
# float32 by way of the double function, which is more accurate
WIDENED = frozenset({"j0", "j1", "lgamma", "tgamma", "y0", "y1"})
NAMES = frozenset({*LLVM, *ANY, *SINGLE, *DOUBLE, *SPECIAL, *LIBRARY})


def call(code: Code, function: str, args: list[Val], dtype: DType) -> Val:
    """The built-in on values of `dtype` (half and bfloat16 in float32)."""
    if function == "nextafter" and dtype in (DType.FLOAT16, DType.BFLOAT16):
        return _next_short(code, args, dtype)
    if function in LLVM:
        return code.intrinsic(LLVM[function], *args)
    inline = ANY.get(function) or (SINGLE if args[0].kind == "float" else DOUBLE).get(function)
    if inline is not None:
        args = code.level(*args)
        return inline(*(Num(code, a) for a in args)).val
    if function in SPECIAL:
        return special(code, function, args)
    assert function in LIBRARY, function
    if function in WIDENED and args[0].kind == "float":
        wide = (code.convert("fpext", a, "double") for a in args)
        return code.convert("fptrunc", _library(code, function, *wide), "float")
    return _library(code, function + ("f" if args[0].kind == "float" else ""), *args)


def _library(code: Code, function: str, *args: Val) -> Val:
    if function == "lgamma":  # it stores the sign where all threads would write
        return code.call_each("lgamma_r", *args, Val(code.function.alloca("i32", 4), "ptr"))
    return code.call_each(function, *args)


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
