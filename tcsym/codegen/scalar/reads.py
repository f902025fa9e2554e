# SPDX-License-Identifier: Apache-2.0
"""Loads of the kernel's values, with the checks they ask for (LANGUAGE B3, B4, B6).

A read touches no memory that its executed points do not: inactive lanes are masked, an element for
all lanes is loaded only if some lane wants it, and a failed check gives zero instead of a load.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from tcsym.codegen.scalar.addresses import Address, address
from tcsym.codegen.scalar.branches import choose, fail_if, record
from tcsym.codegen.scalar.casts import from_memory
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import alike, condition, number
from tcsym.codegen.scalar.positions import condition_at
from tcsym.codegen.scalar.values import Val, constant
from tcsym.frontend.program import Expr, Read, children, dtype_of, position_name
from tcsym.index.expr import Index, condition_variables
from tcsym.ir.compiled import Fault
from tcsym.ir.loops import Buffer
from tcsym.trees import leaves
from tcsym.types import DType

Evaluate = Callable[[Context, Expr], Val]


def read(context: Context, r: Read, evaluate: Evaluate) -> Val:
    """The element of a read, in its register type."""
    own = context.memory.read(context, r)
    if own is not None:
        return own
    buffer = context.buffers[r.tensor]
    subscripts = _subscripts(context, r, evaluate)
    fault = Fault("bounds", f"index out of range in `{r.tensor}`", r.span)
    inside = _inside(context, buffer, r, subscripts)
    if r.unwritten is not None:
        _check_written(context, r, subscripts, inside)
    at = address(context, buffer, subscripts)
    element = (
        _uniform(context, at, buffer, inside, fault, _names(r))
        if at.is_uniform
        else _lanes(context, at, buffer, inside, fault)
    )
    if buffer.space == "register" and buffer.dtype is not DType.BOOL:
        return element
    return from_memory(context.code, element, buffer.dtype)


def verify_place(context: Context, r: Read, evaluate: Evaluate) -> None:
    """Only the checks of a read outside of vectors: its element is not touched."""
    buffer = context.buffers[r.tensor]
    subscripts = _subscripts(context, r, evaluate)
    inside = _inside(context, buffer, r, subscripts)
    if r.unwritten is not None:
        _check_written(context, r, subscripts, inside)
    if inside is not None:
        fault = Fault("bounds", f"index out of range in `{r.tensor}`", r.span)
        fail_if(context, context.code.not_(inside), fault)


def place(context: Context, r: Read, evaluate: Evaluate) -> Address:
    """Where the element of a read lies, unchecked."""
    return address(context, context.buffers[r.tensor], _subscripts(context, r, evaluate))


def _subscripts(context: Context, r: Read, evaluate: Evaluate) -> tuple[Index | Val, ...]:
    return tuple(
        s if isinstance(s, Index) else _integer_subscript(context, s, evaluate)
        for s in r.subscripts
    )


def _integer_subscript(context: Context, s: Expr, evaluate: Evaluate) -> Val:
    value = evaluate(context, s)
    signed = dtype_of(s).is_signed
    return context.code.convert("sext" if signed else "zext", value, "i64")


def _names(r: Read) -> frozenset[str]:
    """Variables of all subscripts, also inside gathers."""
    found: set[str] = set()
    for s in r.subscripts:
        if isinstance(s, Index):
            found |= s.variables()
    for child in children(r):
        for x in _reads_below(child):
            found |= _names(x)
    return frozenset(found)


def _reads_below(e: Expr) -> list[Read]:
    found = leaves(e, lambda x: () if isinstance(x, Read) else children(x))
    return [x for x in found if isinstance(x, Read)]


# ---- checks


def _check_written(
    context: Context, r: Read, subscripts: tuple[Index | Val, ...], inside: Val | None
) -> None:
    assert r.unwritten is not None
    fault = Fault("init", f"`{r.tensor}` is read before it is written here", r.span)
    known = [s for s in subscripts if isinstance(s, Val)]
    positions = {position_name(k): s for k, s in enumerate(known)}
    if not condition_variables(r.unwritten).isdisjoint(positions):
        missing = condition_at(context, r.unwritten, positions)
        fail_if(context, context.code.and_(inside, missing) or missing, fault)
        return
    held = condition(context, r.unwritten)
    if held is not False:
        fail_if(context, constant(1, "i1") if held is True else held, fault)


def _inside(
    context: Context, buffer: Buffer, r: Read, subscripts: tuple[Index | Val, ...]
) -> Val | None:
    """Where all checked subscripts are in range; None if none is checked."""
    inside: Val | None = None
    for s, extent, checked in zip(subscripts, buffer.shape, r.checked):
        if checked:
            place = s if isinstance(s, Val) else number(context, s)
            ends = alike(context.code, place, number(context, extent))
            inside = context.code.and_(inside, context.code.compare("icmp ult", *ends))
    return inside


# ---- loads


def _lanes(context: Context, at: Address, buffer: Buffer, inside: Val | None, fault: Fault) -> Val:
    if inside is None:
        return context.memory.load(context, at, buffer, context.mask)
    if inside.lanes == 1:
        return _row(context, at, buffer, inside, fault)
    inside = context.code.spread(inside, context.width)
    fail_if(context, context.code.not_(inside), fault)
    active = context.code.and_(context.mask, inside)
    return context.memory.load(context, at, replace(buffer, padded=False), active)


def _row(context: Context, at: Address, buffer: Buffer, inside: Val, fault: Fault) -> Val:
    """Elements whose place was checked once for all of them."""

    def elements() -> Val:
        return context.memory.load(context, at, buffer, context.mask)

    def failed() -> Val:
        fail_if(context, constant(1, "i1"), fault)
        return Val("zeroinitializer", at.kind)

    return choose(context, inside, elements, failed, context.width, True)


def _uniform(
    context: Context,
    at: Address,
    buffer: Buffer,
    inside: Val | None,
    fault: Fault,
    names: frozenset[str],
) -> Val:
    """One element for all lanes, loaded if it is in range and some lane wants it."""
    code = context.code
    live: Val | None = None
    if inside is not None and inside.lanes > 1:
        fail_if(context, code.not_(inside), fault)
        active = code.and_(context.mask, inside)
        live = code.any_lane(active) if active else None
        inside = None
    elif context.mask is not None and (inside is not None or may_be_idle(context, buffer, names)):
        live = code.any_lane(context.mask)

    def element() -> Val:
        return context.memory.load(context, at, buffer, None)

    def zero() -> Val:
        return Val("zeroinitializer", at.kind)

    def failed() -> Val:
        record(context, fault)
        return zero()

    def checked() -> Val:
        return element() if inside is None else choose(context, inside, element, failed, 1, True)

    return checked() if live is None else choose(context, live, checked, zero, 1)


def may_be_idle(context: Context, buffer: Buffer, names: frozenset[str]) -> bool:
    """True if the load might not be executed by any lane.

    Under the loop's own mask alone, an access that varies with nothing of that mask is also made by
    the first lane of the first vector, which exists whenever this code is reached.
    """
    lanes = context.lanes
    if lanes is None or lanes.mask is None or buffer.padded or buffer.space == "register":
        return False
    return lanes.guarded or not names.isdisjoint(lanes.ragged)
