# SPDX-License-Identifier: Apache-2.0
"""Buffer and subscripts -> address of a scalar or of lanes.

An address is a scalar base plus a stride between lanes: 0 (one element for all lanes), 1
(contiguous), -1 (reversed), anything else lane by lane, or one offset a lane. The base is a chain
of pointers, one step a loop depth, with the constant displacement last: LLVM keeps the outer steps
out of inner loops. What tells the copies of unrolled statements apart (the rows of a tile) comes
after the loops' steps: the copies share these, and one distance serves all iterations. So does
what tells many rows of a window apart (`row_groups`). Such distances are an odd multiple of the
stride times a scale of x86: one register serves rows 1, 2, 4 and 8. Only the
step of an innermost reduction comes after it: what is done in one is little. No pointer is
`inbounds`: partial sums may lie outside with negative strides or masked lanes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from msgspec import Struct

from tcsym.codegen.scalar.casts import element_kind
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import (
    Number,
    add,
    as_val,
    atom_value,
    atom_variables,
    depth_of,
    linear,
    multiply,
    names_depth,
    names_of,
    number,
)
from tcsym.codegen.scalar.lane_places import known_places, steady
from tcsym.codegen.scalar.row_groups import from_first_row
from tcsym.codegen.scalar.values import Val, bits_of, constant
from tcsym.index.expr import ZERO, Atom, Index, Product, factors_of, index, of_atom
from tcsym.index.values import product_of
from tcsym.ir.loops import Buffer

_LARGEST_SCALE = 8  # of an index in an address
_Parts = tuple[tuple[tuple[Atom, int], ...], Index]  # terms, and what comes after the loops' steps


class Address(Struct, frozen=True):
    """Where the lanes of an access lie. `offsets`, if given, replaces `stride`.

    `place`: elements from the buffer's base to lane 0, if known. `places`: the offsets, if known.
    `index`: the same as an expression; None with registers among the subscripts.
    """

    pointer: str
    kind: str
    stride: Number
    offsets: Val | None = None
    place: int | None = None
    places: tuple[int, ...] | None = None
    index: Index | None = None

    @property
    def is_uniform(self) -> bool:
        return self.offsets is None and self.stride == 0

    @property
    def alignment(self) -> int:
        return bits_of(self.kind) // 8


# ---- addresses


def address(context: Context, buffer: Buffer, subscripts: tuple[Index | Val, ...]) -> Address:
    """Address of buffer[subscripts]; registers among the subscripts are i64 values."""
    total = context.offset_of(buffer, subscripts)
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
    whole, row = total, from_first_row(context, buffer, total)
    lane, total = context.lane_variable, steady(context, total - row)
    fixed = tuple(t for t in total.terms if lane not in atom_variables(t[0]))
    moving = tuple(t for t in total.terms if lane in atom_variables(t[0]))
    pointer, place = _base(context, buffer, (fixed, row), total.constant, kind)
    stride, offsets = _lane_part(context, moving)
    places, in_registers = None, any(isinstance(s, Val) for s in subscripts)
    if offsets is not None and offsets.lanes == 1:  # a choice that is the same in all lanes
        pointer, place, offsets = step_by(context, pointer, offsets, kind), None, None
    if offsets is not None and not in_registers:
        places = known_places(context, moving)
    for s, step in zip(subscripts, buffer.element_strides()):
        if isinstance(s, Val):
            moved = as_val(multiply(code, s, number(context, step)))
            if moved.lanes == 1:
                pointer, place = step_by(context, pointer, moved, kind), None
            else:
                offsets = moved if offsets is None else code.binary("add", offsets, moved)
    if offsets is not None and stride != 0:
        along = multiply(code, code.lane_numbers(context.width, "i64"), stride)
        offsets, stride = code.binary("add", offsets, as_val(along)), 0
    at = None if in_registers else whole
    return Address(pointer, kind, stride, offsets, place, places, at)


def _base(
    context: Context, buffer: Buffer, parts: _Parts, start: int, kind: str
) -> tuple[str, int | None]:
    """Pointer to lane 0, and its distance from the buffer's base if that is known."""
    first = context.pointers[buffer.name]
    pointer, moved = _moving_base(context, first, parts, kind)
    place = start + moved
    known = place if pointer == first else None
    if place:
        pointer = step_by(context, pointer, constant(place, "i64"), kind)
    return pointer, known


def _moving_base(context: Context, pointer: str, parts: _Parts, kind: str) -> tuple[str, int]:
    """The pointer moved by the terms, and elements still to be added."""
    terms, row = parts
    if not terms and not row.terms:
        return pointer, 0
    bounds = context.bounds(names_of(Index(terms))), context.bounds(names_of(row))
    key = ("base", pointer, parts, bounds, kind)
    known: tuple[str, int] | None = context.function.recall(key)
    if known is None:
        known = _moved(context, pointer, parts, kind)
        context.function.remember(key, known)
    return known


def _moved(context: Context, pointer: str, parts: _Parts, kind: str) -> tuple[str, int]:
    """Pieces of one depth are one step; `_base` says in which order."""
    same, copies, displacement = _folded(context, parts[0])
    row = Index(tuple(t for t in copies if not depth_of(context, t[0])))
    by_depth, more = _by_depth(context, same)
    apart, moved = _by_depth(context, tuple(t for t in copies if t not in row.terms))
    steps = sorted(by_depth.items())
    loops = context.function.loops
    rest: list[tuple[int, Number]] = []
    if loops and loops[-1].is_reduction and steps and steps[-1][0] == len(loops):
        rest.append(steps.pop())
    deepest = 0

    def move(steps: Iterable[tuple[int, Number]]) -> None:
        nonlocal deepest, pointer
        for depth, step in steps:
            with context.function.at(deepest := max(deepest, depth)):
                pointer = step_by(context, pointer, as_val(step), kind)

    move(steps)
    with context.function.at(deepest):
        pointer = moved_by(context, pointer, row + parts[1], kind)
    move((*sorted(apart.items()), *rest))
    return pointer, displacement + more + moved


def moved_by(context: Context, pointer: str, step: Index, kind: str) -> str:
    """`step` elements on: odd multiples of a stride are kept, small powers of two are scales."""
    if not step.terms and not step.constant:
        return pointer
    factor = gcd(step.constant, *(c for _, c in step.terms))
    power = min(factor & -factor, _LARGEST_SCALE)
    terms = tuple((atom, c // power) for atom, c in step.terms)
    size = number(context, Index(terms, step.constant // power) * (bits_of(kind) // 8))
    if isinstance(size, int):
        size, power = size * power, 1
    return step_by(context, pointer, as_val(size), f"i{8 * power}")


def _by_depth(
    context: Context, terms: tuple[tuple[Atom, int], ...]
) -> tuple[dict[int, Number], int]:
    """The sum of the terms, the part of each loop depth by itself, and its constant."""
    key = ("depths", terms, context.bounds(names_of(Index(terms))))
    known: tuple[dict[int, Number], int] | None = context.function.recall(key)
    if known is None:
        known = _sum_by_depth(context, terms)
        context.function.remember(key, known)
    return known


def _sum_by_depth(
    context: Context, terms: tuple[tuple[Atom, int], ...]
) -> tuple[dict[int, Number], int]:
    displacement = 0
    by_depth: dict[int, Number] = {}
    for atom, stride in _strides(context, terms).items():
        for depth, value in _pieces(context, atom, stride):
            if isinstance(value, int):  # unrolled loops: most pieces of their copies
                displacement += value
                continue
            with context.function.at(depth):
                by_depth[depth] = add(context.code, by_depth.get(depth, 0), value)
    return by_depth, displacement


def _strides(context: Context, terms: tuple[tuple[Atom, int], ...]) -> dict[Atom, Index]:
    """What each loop's variable is multiplied by, which is known outside of the loop."""
    found: dict[Atom, Index] = {}
    for atom, coefficient in terms:
        factors = sorted(factors_of(atom), key=lambda f: depth_of(context, f))
        depths = [0, *(depth_of(context, f) for f in factors)]
        moving, rest = atom, index(coefficient)
        if depths[-1] > depths[-2]:
            moving = factors[-1]
            rest = rest * product_of(map(of_atom, factors[:-1]))
        found[moving] = found.get(moving, ZERO) + rest
    return found


def _folded(
    context: Context, terms: tuple[tuple[Atom, int], ...]
) -> tuple[tuple[tuple[Atom, int], ...], tuple[tuple[Atom, int], ...], int]:
    """Products with unrolled variables as multiples of the rest, like ones added up.

    Copies of a statement that mean one element then have one address: s*k - s*r at k - r = 1 is s.
    What is the same for all copies comes first, then what is not, then the constant.
    """
    start = 0
    total: dict[Atom, int] = {}
    unrolled = set[Atom]()
    for atom, coefficient in terms:
        rest: list[Atom] = []
        is_copy = False
        for f in factors_of(atom):
            if isinstance(f, str) and _is_known(context, f):
                coefficient *= context.variables[f].offset
                is_copy = is_copy or f not in context.kernel.sizes
            else:
                rest.append(f)
        if not rest:
            start += coefficient
            continue
        left = rest[0] if len(rest) == 1 else Product(tuple(rest))
        total[left] = total.get(left, 0) + coefficient
        if is_copy:
            unrolled.add(left)
    same = tuple((a, c) for a, c in total.items() if c and a not in unrolled)
    return same, tuple((a, c) for a, c in total.items() if c and a in unrolled), start


def _is_known(context: Context, factor: Atom) -> bool:
    """The variable of an unrolled loop."""
    return isinstance(factor, str) and context.variables[factor].text is None


def _pieces(context: Context, atom: Atom, stride: Index) -> list[tuple[int, Number]]:
    """The atom times its stride as a sum, each part with its loop depth.

    (k + 1)*s of an unrolled step is k*s plus s, which is known farther out. The sum is one piece:
    steps then share the pointers of a tile's rows instead of having a set each, too many to hold.
    """
    depth, step = depth_of(context, atom), number(context, stride)
    with context.function.at(depth):
        value, offset = atom_value(context, atom)
        along = multiply(context.code, value, step)
    if isinstance(step, int):
        return [(depth, along), (0, offset * step)]
    with context.function.at(names_depth(context, stride.variables())):
        more = multiply(context.code, step, offset)
    with context.function.at(depth):
        return [(depth, add(context.code, along, more))]


def _product(context: Context, factors: list[Atom]) -> Number:
    value: Number = 1
    for f in sorted(factors, key=lambda f: depth_of(context, f)):
        with context.function.at(depth_of(context, f)):
            value = multiply(context.code, value, number(context, of_atom(f)))
    return value


def step_by(context: Context, pointer: str, elements: Val, kind: str) -> str:
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
