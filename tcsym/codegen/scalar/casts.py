# SPDX-License-Identifier: Apache-2.0
"""Conversions between element types (LANGUAGE B8, E3), and between registers and memory.

Half and bfloat16 live in registers as float32; `rounded` makes such a float representable. Half
goes through F16C where the target has it, else through integer code: no library call is ever
needed.
"""

from __future__ import annotations

from tcsym.codegen.scalar.values import Code, Val, bits_of, constant, memory_kind, register_kind
from tcsym.types import DType

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def cast(code: Code, a: Val, source: DType, target: DType) -> Val:
    """The value of type `source` converted to `target`, rounded at once."""
    if source is target and target not in _HALVES:
        return a
    if target is DType.BOOL:
        op = "fcmp une" if source.is_float else "icmp ne"
        return code.compare(op, a, constant(0, a.kind))
    if target.is_float:
        return _to_float(code, a, source, target)
    if source.is_float:
        if target.bits < 32:
            return _clamped(code, a, target)
        op = "fptosi" if target.is_signed else "fptoui"
        return _saturating(code, op, a, f"i{target.bits}")
    return _resize(code, a, f"i{target.bits}", source.is_signed)


def _resize(code: Code, a: Val, kind: str, signed: bool) -> Val:
    if bits_of(kind) < bits_of(a.kind):
        return code.convert("trunc", a, kind)
    return code.convert("sext" if signed else "zext", a, kind)


def _saturating(code: Code, op: str, a: Val, kind: str) -> Val:
    to = kind if a.lanes == 1 else f"<{a.lanes} x {kind}>"
    ends = f"{'' if a.lanes == 1 else f'v{a.lanes}'}"
    source = {"float": "f32", "double": "f64"}[a.kind]
    name = f"llvm.{op}.sat.{ends}{kind}.{ends}{source}"
    code.function.module.declare(to, name, a.type)
    return Val(code.function.pure(f"call {to} @{name}({a.typed})"), kind, a.lanes)


def _clamped(code: Code, a: Val, target: DType) -> Val:
    """A short integer by way of 32 bits: vectors have no saturating conversion to fewer."""
    least = -(1 << (target.bits - 1)) if target.is_signed else 0
    lowest, highest = constant(least, a.kind), constant(least + (1 << target.bits) - 1, a.kind)
    a = code.select(code.compare("fcmp uno", a, a), constant(0, a.kind), a)
    a = code.select(code.compare("fcmp olt", a, lowest), lowest, a)
    a = code.select(code.compare("fcmp ogt", a, highest), highest, a)
    return code.convert("trunc", code.convert("fptosi", a, "i32"), f"i{target.bits}")


def _to_float(code: Code, a: Val, source: DType, target: DType) -> Val:
    if target is DType.FLOAT64:
        return _widened(code, a, source)
    if target is DType.FLOAT32:
        if source is DType.FLOAT64:
            return code.convert("fptrunc", a, "float")
        if source.is_float:
            return a
        return code.convert("sitofp" if source.is_signed else "uitofp", a, "float")
    return rounded(code, _to_odd_float(code, a, source), target)


def _widened(code: Code, a: Val, source: DType) -> Val:
    if source.is_float:
        return code.convert("fpext", a, "double")
    return code.convert("sitofp" if source.is_signed else "uitofp", a, "double")


def _to_odd_float(code: Code, a: Val, source: DType) -> Val:
    """A float32 that rounds to half or bfloat16 as the value itself would: inexact ones are odd."""
    if source.is_float and source is not DType.FLOAT64:
        return a
    if not source.is_float and (source is DType.BOOL or source.bits < 32):
        return code.convert("sitofp" if source.is_signed else "uitofp", a, "float")
    if source.is_integer and source.bits == 64:
        a = _shortened(code, a, source.is_signed)
    wide = a if source is DType.FLOAT64 else _widened(code, a, source)
    near = code.convert("fptrunc", wide, "float")
    back = code.convert("fpext", near, "double")
    inexact = code.compare("fcmp one", back, wide)
    beyond = code.compare("fcmp ogt", code.intrinsic("fabs", back), code.intrinsic("fabs", wide))
    bits = code.convert("bitcast", near, "i32")
    bits = code.binary("sub", bits, code.convert("zext", beyond, "i32"))
    bits = code.binary("or", bits, code.convert("zext", inexact, "i32"))
    return code.convert("bitcast", bits, "float")


def _shortened(code: Code, a: Val, signed: bool) -> Val:
    """A 64-bit integer to 53 bits without moving it across or onto a tie of a short format."""
    low = code.binary("and", a, constant(0xFFF, "i64"))
    some = code.compare("icmp ne", low, constant(0, "i64"))
    sticky = code.binary("shl", code.convert("zext", some, "i64"), constant(11, "i64"))
    long = code.binary("or", code.binary("and", a, constant(~0xFFF, "i64")), sticky)
    shifted = code.binary("add", a, constant(1 << 52, "i64")) if signed else a
    short = code.compare("icmp ult", shifted, constant(1 << 53, "i64"))
    return code.select(short, a, long)


# ---- half and bfloat16

_SHORT = {DType.FLOAT16: "half", DType.BFLOAT16: "bfloat"}


def rounded(code: Code, a: Val, target: DType) -> Val:
    """A float32 rounded to half or bfloat16, as a float32."""
    return from_bits(code, to_bits(code, a, target), target)


def to_bits(code: Code, a: Val, target: DType) -> Val:
    """The 16 bits of a float32 as half or bfloat16."""
    if target in code.machine.converts:
        return code.convert("bitcast", code.convert("fptrunc", a, _SHORT[target]), "i16")
    return _to_bfloat(code, a) if target is DType.BFLOAT16 else _to_half(code, a)


def from_bits(code: Code, a: Val, source: DType) -> Val:
    """float32 of 16 bits that are a half or bfloat16."""
    if source in code.machine.converts:
        return code.convert("fpext", code.convert("bitcast", a, _SHORT[source]), "float")
    if source is DType.BFLOAT16:
        wide = code.convert("zext", a, "i32")
        return code.convert("bitcast", code.binary("shl", wide, constant(16, "i32")), "float")
    return _from_half(code, a)


def _int(value: int) -> Val:
    return constant(value, "i32")


def _to_bfloat(code: Code, a: Val) -> Val:
    bits = code.convert("bitcast", a, "i32")
    odd = code.binary("and", code.binary("lshr", bits, _int(16)), _int(1))
    near = code.binary("add", code.binary("add", bits, _int(0x7FFF)), odd)
    quiet = code.binary("or", bits, _int(0x400000))
    chosen = code.select(code.compare("fcmp uno", a, a), quiet, near)
    return code.convert("trunc", code.binary("lshr", chosen, _int(16)), "i16")


def _to_half(code: Code, a: Val) -> Val:
    """Round to nearest even by adding to the bits; a float addition rounds the denormal results."""
    whole = code.convert("bitcast", a, "i32")
    bits = code.binary("and", whole, _int(0x7FFFFFFF))
    odd = code.binary("and", code.binary("lshr", bits, _int(13)), _int(1))
    biased = code.binary("add", code.binary("sub", bits, _int(0x38000000 - 0xFFF)), odd)
    normal = code.binary("lshr", biased, _int(13))
    half = constant(0.5, "float")
    aligned = code.binary("fadd", code.convert("bitcast", bits, "float"), half)
    tiny = code.binary("sub", code.convert("bitcast", aligned, "i32"), _int(0x3F000000))
    is_tiny = code.compare("icmp ult", bits, _int(0x38800000))
    finite = code.select(is_tiny, tiny, normal)
    is_nan = code.compare("icmp ugt", bits, _int(0x7F800000))
    beyond = code.select(is_nan, _int(0x7E00), _int(0x7C00))
    result = code.select(code.compare("icmp uge", bits, _int(0x477FF000)), beyond, finite)
    sign = code.binary("and", code.binary("lshr", whole, _int(16)), _int(0x8000))
    return code.convert("trunc", code.binary("or", result, sign), "i16")


def _from_half(code: Code, a: Val) -> Val:
    wide = code.convert("zext", a, "i32")
    shifted = code.binary("shl", code.binary("and", wide, _int(0x7FFF)), _int(13))
    exponent = code.binary("and", shifted, _int(0x0F800000))
    normal = code.binary("add", shifted, _int(0x38000000))
    special = code.binary("add", shifted, _int(0x70000000))
    lifted = code.convert("bitcast", code.binary("add", shifted, _int(0x38800000)), "float")
    tiny = code.binary("fsub", lifted, constant(2.0**-14, "float"))
    result = code.select(
        code.compare("icmp eq", exponent, _int(0)), code.convert("bitcast", tiny, "i32"), normal
    )
    result = code.select(code.compare("icmp eq", exponent, _int(0x0F800000)), special, result)
    sign = code.binary("shl", code.binary("and", wide, _int(0x8000)), _int(16))
    return code.convert("bitcast", code.binary("or", result, sign), "float")


# ---- registers and memory


def to_memory(code: Code, a: Val, dtype: DType) -> Val:
    if dtype is DType.BOOL:
        return code.convert("zext", a, "i8")
    return to_bits(code, a, dtype) if dtype in _HALVES else a


def from_memory(code: Code, a: Val, dtype: DType) -> Val:
    if dtype is DType.BOOL:
        return code.compare("icmp ne", a, constant(0, "i8"))
    return from_bits(code, a, dtype) if dtype in _HALVES else a


def element_kind(dtype: DType, in_registers: bool) -> str:
    """Type of an element of a buffer: register buffers keep halves as float32."""
    if in_registers and dtype is not DType.BOOL:
        return register_kind(dtype)
    return memory_kind(dtype)
