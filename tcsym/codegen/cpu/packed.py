# SPDX-License-Identifier: Apache-2.0
"""Values that hold several short elements, and sums of their products (`tcsym.ir.packed`).

Elements that lie side by side in memory are one load: as they are, or converted side by side too.
Others are computed apart and put together.
"""

from __future__ import annotations

from collections.abc import Callable

from tcsym.codegen.cpu.lane_pointers import lane_pointers, vector_of_pointers
from tcsym.codegen.cpu.masked import gather, masked_load
from tcsym.codegen.scalar.addresses import Address, address
from tcsym.codegen.scalar.arithmetic import arithmetic
from tcsym.codegen.scalar.casts import cast
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.reads import may_be_idle
from tcsym.codegen.scalar.values import Code, Val, bits_of, constant, register_kind, type_text
from tcsym.frontend.program import Binary, Call, Cast, Expr, dtype_of
from tcsym.index.expr import Index
from tcsym.ir.loops import Update
from tcsym.ir.packed import first_of_run, is_dot
from tcsym.target.machine import Dot

Evaluate = Callable[[Context, Expr], Val]
_SUM_LANES = 4  # of the smallest vector of 32-bit sums


def packed(context: Context, elements: tuple[Expr, ...], evaluate: Evaluate) -> Val:
    """32-bit numbers, a lane for each lane of the elements."""
    n, found = len(elements), _side_by_side(context, elements, evaluate)
    if found.lanes == 1:
        found = context.code.spread(found, n)
    lanes = found.lanes // n
    text = f"bitcast {found.typed} to {type_text('i32', lanes)}"
    return Val(context.function.pure(text), "i32", lanes)


def _side_by_side(context: Context, parts: tuple[Expr, ...], evaluate: Evaluate) -> Val:
    """The elements of each lane, one lane's after the other's; halves as their bits."""
    code, first = context.code, parts[0]
    run = _load_run(context, parts)
    if run is not None:
        return run
    if all(x == first for x in parts):
        return _repeated(context, _bits(context, evaluate(context, first)), len(parts))
    casts = [x for x in parts if isinstance(x, Cast) and not x.exact and _is_integer(x.operand)]
    if len(casts) == len(parts):
        inner, source = tuple(x.operand for x in casts), dtype_of(casts[0].operand)
        if all(dtype_of(x) is source for x in inner):
            inside = _side_by_side(context, inner, evaluate)
            return _bits(context, cast(code, inside, source, dtype_of(first)))
    if isinstance(first, Binary) and _is_integer(first) and all(_is_alike(x, first) for x in parts):
        pairs = [(x.left, x.right) for x in parts if isinstance(x, Binary)]
        sides = [_side_by_side(context, side, evaluate) for side in zip(*pairs)]
        lanes = max(x.lanes for x in sides)
        left, right = (_in_all_lanes(context, x, lanes) for x in sides)
        return arithmetic(code, first.op, left, right, first.dtype)
    each = [_bits(context, evaluate(context, x)) for x in parts]
    return _interleaved(context.code, context.code.level(*each))


def _is_integer(v: Expr) -> bool:
    return dtype_of(v).is_integer


def _is_alike(x: Expr, first: Binary) -> bool:
    plain = isinstance(x, Binary) and not x.exact and x.op in ("add", "sub", "mul")
    return plain and x.op == first.op and x.dtype is first.dtype  # type: ignore[union-attr]


def _in_all_lanes(context: Context, x: Val, lanes: int) -> Val:
    """The elements of one lane for the others, too."""
    if x.lanes in (1, lanes):
        return x
    return context.code.shuffle(x, None, tuple(i % x.lanes for i in range(lanes)))


def _repeated(context: Context, x: Val, n: int) -> Val:
    """n times each lane; one element for all is spread where it is used."""
    if x.lanes == 1:
        return x
    return context.code.shuffle(x, None, tuple(i for i in range(x.lanes) for _ in range(n)))


def _bits(context: Context, x: Val) -> Val:
    """A bfloat16 in a float register as its 16 bits."""
    if x.kind != "float":
        return x
    code = context.code
    bits = code.binary("lshr", code.convert("bitcast", x, "i32"), constant(16, "i32"))
    return code.convert("trunc", bits, "i16")


def _interleaved(code: Code, parts: list[Val]) -> Val:
    """Level parts: once put together, elements of one lane look like one element of several."""
    if len(parts) > 2:
        return _interleaved(code, [_interleaved(code, parts[k::2]) for k in (0, 1)])
    a, b = parts
    if a.lanes == 1:
        return code.from_lanes([a, b])
    picks = tuple(i + side * a.lanes for i in range(a.lanes) for side in (0, 1))
    return code.shuffle(a, b, picks)


# ---- loads of several elements


def _load_run(context: Context, parts: tuple[Expr, ...]) -> Val | None:
    """Neighbours in memory as one load a lane, or one of all lanes."""
    first = first_of_run(parts)
    if first is None:
        return None
    buffer, n = context.buffers[first.tensor], len(parts)
    one = buffer.element_strides()[-1].as_int() == 1
    if not one or buffer.space == "register" or dtype_of(first) is not buffer.dtype:
        return None
    subscripts = tuple(s for s in first.subscripts if isinstance(s, Index))
    at = address(context, buffer, subscripts)
    names = frozenset[str]().union(*(s.variables() for s in subscripts))
    if at.is_uniform and context.mask is not None and may_be_idle(context, buffer, names):
        return None
    mask = None if at.is_uniform or buffer.padded else context.mask
    wide = f"i{n * bits_of(at.kind)}"
    found = _load_wide(context, at, n, wide, mask, context.memory_state(buffer.name))
    if found is None:
        return None
    text = f"bitcast {found.typed} to {type_text(at.kind, n * found.lanes)}"
    return Val(context.function.pure(text), at.kind, n * found.lanes)


def _load_wide(
    context: Context, at: Address, n: int, wide: str, mask: Val | None, epoch: str
) -> Val | None:
    """Numbers of n elements each; None where a mask has no instruction."""
    align, f = at.alignment, context.function
    if at.is_uniform:
        return Val(f.pure(f"load {wide}, ptr {at.pointer}, align {align}", epoch), wide)
    if mask is not None and not (context.machine.has_masks or bits_of(wide) >= 32):
        return None
    lanes = context.width
    whole = type_text(wide, lanes)
    if at.offsets is None and at.stride == n:
        if mask is None:
            text = f"load {whole}, ptr {at.pointer}, align {align}"
            return Val(f.pure(text, epoch), wide, lanes)
        return masked_load(context.code, at.pointer, wide, mask, align, epoch)
    if context.machine.has_masks and bits_of(wide) >= 32:
        active = mask or Val("splat (i1 true)", "i1", lanes)
        return gather(context.code, vector_of_pointers(context, at), wide, active, align, epoch)
    if mask is not None:
        return None
    pointers = lane_pointers(context, at)
    loads = (f.pure(f"load {wide}, ptr {p}, align {align}", epoch) for p in pointers)
    return context.code.from_lanes([Val(x, wide) for x in loads])


# ---- dot products


def add_dot(code: Code, function: str, total: Val, x: Val, y: Val) -> Val:
    """total + the sum of products, lane by lane."""
    total, x, y = code.level(total, x, y)
    lanes, most = total.lanes, code.machine.vector_bits // 32
    if lanes > most:
        halves = [
            add_dot(code, function, *(_lanes(code, v, at, lanes // 2) for v in (total, x, y)))
            for at in (0, lanes // 2)
        ]
        return code.shuffle(halves[0], halves[1], tuple(range(lanes)))
    if lanes < _SUM_LANES:
        spread = [_filled(code, v) for v in (total, x, y)]
        return _lanes(code, add_dot(code, function, *spread), 0, lanes)
    dot = next(d for d in code.machine.dots if d.function == function)
    if not dot.instruction:
        return code.binary("add", total, _pair_sums(code, x, y))
    return _fused(code, dot, total, x, y)


def _fused(code: Code, dot: Dot, total: Val, x: Val, y: Val) -> Val:
    full = f"llvm.{dot.instruction.format(bits=32 * total.lanes)}"
    lanes = x.lanes * 32 // bits_of(dot.elements)
    if dot.elements != x.kind:
        as_held = f"to {type_text(dot.elements, lanes)}"
        texts = (code.function.pure(f"bitcast {v.typed} {as_held}") for v in (x, y))
        x, y = (Val(v, dot.elements, lanes) for v in texts)
    code.function.module.declare(total.type, full, f"{total.type}, {x.type}, {y.type}")
    text = f"call {total.type} @{full}({total.typed}, {x.typed}, {y.typed})"
    return Val(code.function.pure(text), total.kind, total.lanes)


def _pair_sums(code: Code, x: Val, y: Val) -> Val:
    name = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[x.lanes]
    full, short = f"llvm.x86.{name}", type_text("i16", 2 * x.lanes)
    code.function.module.declare(x.type, full, f"{short}, {short}")
    a, b = (code.function.pure(f"bitcast {v.typed} to {short}") for v in (x, y))
    text = code.function.pure(f"call {x.type} @{full}({short} {a}, {short} {b})")
    return Val(text, "i32", x.lanes)


def _lanes(code: Code, v: Val, first: int, count: int) -> Val:
    if count == 1:
        return code.lane(v, first)
    return code.shuffle(v, None, tuple(range(first, first + count)))


def _filled(code: Code, v: Val) -> Val:
    """The value in the lanes of the smallest vector; those beyond its own hold anything."""
    if v.lanes == 1:
        return code.spread(v, _SUM_LANES)
    return code.shuffle(v, None, tuple(i % v.lanes for i in range(_SUM_LANES)))


def dot_term(context: Context, n: Update, evaluate: Evaluate) -> Callable[[Val], Val] | None:
    """Adds a dot product by the instruction that computes it."""
    v, dtype = n.value, context.buffers[n.buffer].dtype
    if not (isinstance(v, Call) and is_dot(v) and n.op == "add"):
        return None
    if register_kind(dtype) != register_kind(v.dtype):
        return None
    x, y = (evaluate(context, a) for a in v.args)
    return lambda total: add_dot(context.code, v.function, total, x, y)
