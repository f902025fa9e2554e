"""Addresses, and loads and stores of scalars and lanes.

An address is a scalar base plus a stride between lanes: 0 (one element for all lanes), 1
(contiguous), -1 (reversed), anything else lane by lane, or one offset a lane. The base is a chain
of pointers, one step a loop depth, with the constant displacement last: LLVM keeps the outer steps
out of inner loops. No pointer is `inbounds`: partial sums may lie outside with negative strides or
masked lanes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcsym.codegen.casts import element_kind
from tcsym.codegen.context import Context
from tcsym.codegen.index_code import (
    Number,
    add,
    as_val,
    atom_value,
    atom_variables,
    depth_of,
    linear,
    multiply,
    names_of,
    number,
)
from tcsym.codegen.values import Val, bits_of, constant, suffix, type_text
from tcsym.index import ZERO, Atom, Index, Product, of_atom
from tcsym.loop_ir import Buffer


@dataclass(frozen=True, slots=True)
class Address:
    """Where the lanes of an access lie. `offsets`, if given, replaces `stride`."""

    pointer: str
    kind: str
    stride: Number
    offsets: Val | None = None

    @property
    def is_uniform(self) -> bool:
        return self.offsets is None and self.stride == 0

    @property
    def alignment(self) -> int:
        return bits_of(self.kind) // 8


# ---- addresses


def address(context: Context, buffer: Buffer, subscripts: tuple[Index | Val, ...]) -> Address:
    """Address of buffer[subscripts]; registers among the subscripts are i64 values."""
    total = _offset(context, buffer, subscripts)
    key = (buffer.name, subscripts, context.bounds(names_of(total)), context.width)
    known: Address | None = context.function.recall(key)
    if known is None:
        known = _address(context, buffer, subscripts, total)
        context.function.remember(key, known)
    return known


def _address(
    context: Context, buffer: Buffer, subscripts: tuple[Index | Val, ...], total: Index
) -> Address:
    code = context.code
    kind = element_kind(buffer.dtype, buffer.space == "register")
    lane = context.lane_variable
    fixed = tuple(t for t in total.terms if lane not in atom_variables(t[0]))
    moving = tuple(t for t in total.terms if lane in atom_variables(t[0]))
    pointer = _base(context, buffer, fixed, total.constant, kind)
    stride, offsets = _lane_part(context, moving)
    for s, step in zip(subscripts, buffer.element_strides()):
        if isinstance(s, Val):
            moved = as_val(multiply(code, s, number(context, step)))
            if moved.lanes == 1:
                pointer = _step(context, pointer, moved, kind)
            else:
                offsets = moved if offsets is None else code.binary("add", offsets, moved)
    if offsets is not None and stride != 0:
        along = multiply(code, code.lane_numbers(context.width, "i64"), stride)
        offsets, stride = code.binary("add", offsets, as_val(along)), 0
    return Address(pointer, kind, stride, offsets)


def _offset(context: Context, buffer: Buffer, subscripts: tuple[Index | Val, ...]) -> Index:
    """Sum of the index subscripts times their strides, computed once a buffer and subscripts."""
    plain = tuple(s if isinstance(s, Index) else ZERO for s in subscripts)
    key = (buffer.name, plain)
    total = context.offsets.get(key)
    if total is None:
        total = ZERO
        for s, step in zip(plain, buffer.element_strides()):
            total = total + s * step
        context.offsets[key] = total
    return total


def _base(
    context: Context, buffer: Buffer, terms: tuple[tuple[Atom, int], ...], start: int, kind: str
) -> str:
    displacement = start
    by_depth: dict[int, Number] = {}
    for atom, coefficient in terms:
        for depth, value in _pieces(context, atom):
            scaled = multiply(context.code, value, coefficient)
            if isinstance(scaled, int):
                displacement += scaled
            else:
                by_depth[depth] = add(context.code, by_depth.get(depth, 0), scaled)
    pointer = context.pointers[buffer.name]
    for depth in sorted(by_depth):
        pointer = _step(context, pointer, as_val(by_depth[depth]), kind)
    return _step(context, pointer, constant(displacement, "i64"), kind) if displacement else pointer


def _pieces(context: Context, atom: Atom) -> list[tuple[int, Number]]:
    """The atom as a sum, each part with its loop depth: (k + 1)*s is k*s and, farther out, s."""
    if isinstance(atom, Product):
        moved = [f for f in atom.factors if _is_moved(context, f)]
        if len(moved) == 1:
            others: list[Atom] = list(atom.factors)
            others.remove(moved[0])
            rest = _product(context, others)
            value, offset = atom_value(context, moved[0])
            depth = max([depth_of(context, f) for f in others], default=0)
            whole = multiply(context.code, rest, value)
            along = multiply(context.code, rest, offset)
            return [(max(depth, depth_of(context, moved[0])), whole), (depth, along)]
    value, offset = atom_value(context, atom)
    return [(depth_of(context, atom), value), (0, offset)]


def _is_moved(context: Context, factor: Atom) -> bool:
    if not isinstance(factor, str):
        return False
    bound = context.variables[factor]
    return bound.text is not None and bound.offset != 0


def _product(context: Context, factors: list[Atom]) -> Number:
    value: Number = 1
    for f in sorted(factors, key=lambda f: depth_of(context, f)):
        value = multiply(context.code, value, number(context, of_atom(f)))
    return value


def _step(context: Context, pointer: str, elements: Val, kind: str) -> str:
    return context.function.pure(f"getelementptr {kind}, ptr {pointer}, {elements.typed}")


def _lane_part(context: Context, terms: tuple[tuple[Atom, int], ...]) -> tuple[Number, Val | None]:
    """Stride of the lane variable, and offsets for what is not linear in it."""
    stride: Number = 0
    other: list[tuple[Atom, int]] = []
    lane = context.lane_variable
    for atom, coefficient in terms:
        factors: list[Atom] = list(atom.factors) if isinstance(atom, Product) else [atom]
        along = [f for f in factors if lane in atom_variables(f)]
        if along != [lane]:
            other.append((atom, coefficient))
            continue
        factors.remove(along[0])
        step = multiply(context.code, _product(context, factors), coefficient)
        stride = add(context.code, stride, step)
    offsets = as_val(linear(context, tuple(other), 0)) if other else None
    return stride, offsets


# ---- loads


def load(context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
    """The element, or the lanes, at an address; lanes outside `mask` are not touched."""
    epoch = context.memory_state(buffer.name)
    if at.is_uniform:
        return _load_plain(context, at.pointer, at.kind, 1, epoch)
    if buffer.padded or buffer.space == "register":
        mask = None
    width = context.width
    if at.offsets is None and at.stride == 1:
        return _load_run(context, at.pointer, at.kind, mask, epoch)
    if at.offsets is None and at.stride == -1:
        first = _step(context, at.pointer, constant(1 - width, "i64"), at.kind)
        backwards = tuple(reversed(range(width)))
        turned = None if mask is None else context.code.shuffle(mask, None, backwards)
        run = _load_run(context, first, at.kind, turned, epoch)
        return context.code.shuffle(run, None, backwards)
    return _gather(context, at, mask, epoch)


def _load_plain(context: Context, pointer: str, kind: str, lanes: int, epoch: str) -> Val:
    align = bits_of(kind) // 8
    text = f"load {type_text(kind, lanes)}, ptr {pointer}, align {align}"
    return Val(context.function.pure(text, epoch), kind, lanes)


def _load_run(context: Context, pointer: str, kind: str, mask: Val | None, epoch: str) -> Val:
    width = context.width
    if mask is None:
        return _load_plain(context, pointer, kind, width, epoch)
    whole, lanes = type_text(kind, width), mask.type
    name = f"llvm.masked.load.{suffix(kind, width)}.p0"
    context.module.declare(whole, name, f"ptr, i32, {lanes}, {whole}")
    align = bits_of(kind) // 8
    operands = f"ptr {pointer}, i32 {align}, {mask.typed}, {whole} zeroinitializer"
    return Val(context.function.pure(f"call {whole} @{name}({operands})", epoch), kind, width)


def _gather(context: Context, at: Address, mask: Val | None, epoch: str) -> Val:
    if context.target.has_masks and bits_of(at.kind) >= 32:
        return _gather_at_once(context, at, mask, epoch)
    code, scalars = context.code, []
    for lane, pointer in enumerate(lane_pointers(context, at)):
        if mask is not None:
            active = code.lane(mask, lane).text
            nowhere = context.nowhere()
            pointer = context.function.pure(f"select i1 {active}, ptr {pointer}, ptr {nowhere}")
        scalars.append(_load_plain(context, pointer, at.kind, 1, epoch))
    return code.from_lanes(scalars)


def _gather_at_once(context: Context, at: Address, mask: Val | None, epoch: str) -> Val:
    width = context.width
    pointers = _vector_of_pointers(context, at)
    active = mask or Val("splat (i1 true)", "i1", width)
    whole = type_text(at.kind, width)
    name = f"llvm.masked.gather.{suffix(at.kind, width)}.v{width}p0"
    context.module.declare(whole, name, f"<{width} x ptr>, i32, {active.type}, {whole}")
    operands = f"{pointers}, i32 {at.alignment}, {active.typed}, {whole} zeroinitializer"
    return Val(context.function.pure(f"call {whole} @{name}({operands})", epoch), at.kind, width)


def _vector_of_pointers(context: Context, at: Address) -> str:
    code, width = context.code, context.width
    offsets = at.offsets
    if offsets is None:
        short = isinstance(at.stride, int) and abs(at.stride) < 1 << 20
        numbers = code.lane_numbers(width, "i32" if short else "i64")
        step = constant(at.stride, numbers.kind) if isinstance(at.stride, int) else at.stride
        offsets = code.binary("mul", numbers, step)
    text = f"getelementptr {at.kind}, ptr {at.pointer}, {offsets.typed}"
    return f"<{width} x ptr> {context.function.pure(text)}"


def lane_pointers(context: Context, at: Address) -> list[str]:
    """One pointer a lane."""
    code, width = context.code, context.width
    if at.offsets is not None:
        return [_step(context, at.pointer, code.lane(at.offsets, i), at.kind) for i in range(width)]
    if isinstance(at.stride, int):
        steps = [constant(at.stride * i, "i64") for i in range(width)]
        return [_step(context, at.pointer, s, at.kind) for s in steps]
    pointers = [at.pointer]
    for _ in range(width - 1):
        pointers.append(_step(context, pointers[-1], at.stride, at.kind))
    return pointers


# ---- stores


def store(context: Context, at: Address, buffer: Buffer, value: Val, mask: Val | None) -> None:
    """Write a value of the element's memory type; lanes outside `mask` stay as they are."""
    code = context.code
    if at.is_uniform and value.lanes == 1:
        _store_one(context, at, value, mask)
    elif buffer.space == "register":
        if mask is not None and not buffer.padded:
            value = code.select(mask, value, load(context, at, buffer, None))
        _store_lanes(context, at, code.spread(value, context.width), None)
    else:
        kept = None if buffer.padded and not at.is_uniform else mask
        _store_lanes(context, at, code.spread(value, context.width), kept)
    context.note_store(buffer.name)


def _store_one(context: Context, at: Address, value: Val, mask: Val | None) -> None:
    text = f"store {value.typed}, ptr {at.pointer}, align {at.alignment}"
    if mask is None:
        context.function.do(text)
        return
    with context.function.when(context.code.any_lane(mask).text):
        context.function.do(text)


def _store_lanes(context: Context, at: Address, value: Val, mask: Val | None) -> None:
    if at.offsets is None and at.stride == 1:
        _store_run(context, at.pointer, value, mask)
    elif at.offsets is None and at.stride == -1:
        backwards = tuple(reversed(range(value.lanes)))
        first = _step(context, at.pointer, constant(1 - value.lanes, "i64"), at.kind)
        turned = None if mask is None else context.code.shuffle(mask, None, backwards)
        _store_run(context, first, context.code.shuffle(value, None, backwards), turned)
    else:
        _scatter(context, at, value, mask)


def _store_run(context: Context, pointer: str, value: Val, mask: Val | None) -> None:
    align = bits_of(value.kind) // 8
    if mask is None:
        context.function.do(f"store {value.typed}, ptr {pointer}, align {align}")
        return
    name = f"llvm.masked.store.{suffix(value.kind, value.lanes)}.p0"
    context.module.declare("void", name, f"{value.type}, ptr, i32, {mask.type}")
    operands = f"{value.typed}, ptr {pointer}, i32 {align}, {mask.typed}"
    context.function.do(f"call void @{name}({operands})")


def _scatter(context: Context, at: Address, value: Val, mask: Val | None) -> None:
    code, width = context.code, value.lanes
    if context.target.has_masks and bits_of(at.kind) >= 32:
        active = mask or Val("splat (i1 true)", "i1", width)
        name = f"llvm.masked.scatter.{suffix(at.kind, width)}.v{width}p0"
        context.module.declare("void", name, f"{value.type}, <{width} x ptr>, i32, {active.type}")
        pointers = _vector_of_pointers(context, at)
        operands = f"{value.typed}, {pointers}, i32 {at.alignment}, {active.typed}"
        context.function.do(f"call void @{name}({operands})")
        return
    for lane, pointer in enumerate(lane_pointers(context, at)):
        text = f"store {code.lane(value, lane).typed}, ptr {pointer}, align {at.alignment}"
        if mask is None:
            context.function.do(text)
        else:
            with context.function.when(code.lane(mask, lane).text):
                context.function.do(text)
