# SPDX-License-Identifier: Apache-2.0
"""Loads and stores of scalars and lanes at an address, under a mask.

Contiguous and reversed lanes move at once, those a few elements apart in runs of which lanes are
picked; others are gathered and scattered, by the instructions for it where the target has masks,
else lane by lane: a lane that must not read gets the address of zeros in the frame, one that must
not write is branched around.
"""

from __future__ import annotations

from tcsym.codegen.cpu.lane_pointers import lane_pointers, vector_of_pointers
from tcsym.codegen.cpu.masked import gather, masked_load, masked_store, scatter
from tcsym.codegen.cpu.repeats import is_run, wanted
from tcsym.codegen.scalar.addresses import Address, step_by
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.memory import load_element, load_plain, store_element
from tcsym.codegen.scalar.values import Val, bits_of, constant, type_text
from tcsym.ir.loops import Buffer

_LEAST_VECTOR = 128  # bits
_MOST_NEAR, _NEAR_LANES = 4, 8  # elements apart; with fewer lanes each is as quick by itself

# ---- loads


def load(context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
    """The element, or the lanes, at an address; lanes outside `mask` are not touched."""
    if at.is_uniform:
        return load_element(context, at, buffer)
    if buffer.space == "register":
        known = _held(context, at, buffer)
        if known is not None:
            return known
    epoch = context.memory_state(buffer.name)
    if buffer.padded or buffer.space == "register":
        mask = None
    width = context.width
    if at.offsets is None and at.stride == 1:
        stored = None if mask is None else _stored(context, at, mask, epoch)
        return stored or load_run(context, at.pointer, at.kind, mask, epoch)
    if at.offsets is None and at.stride == -1:
        first = step_by(context, at.pointer, constant(1 - width, "i64"), at.kind)
        backwards = tuple(reversed(range(width)))
        turned = None if mask is None else context.code.shuffle(mask, None, backwards)
        run = load_run(context, first, at.kind, turned, epoch)
        return context.code.shuffle(run, None, backwards)
    if at.offsets is None and at.stride == 2 and _can_load_pairs(context, at, mask):
        return _load_every_second(context, at, mask, epoch)
    if mask is None and _is_near(at, width):
        return _load_near(context, at, epoch)
    if at.places is not None and is_run(at.places) and _can_mask(context, at):
        return _load_repeated(context, at, at.places, mask, epoch)
    return _gather(context, at, mask, epoch)


def _stored(context: Context, at: Address, mask: Val, epoch: str) -> Val | None:
    """What the last store to the buffer left there, if known: a masked store that a load follows
    holds it up until the cache has the line, and LLVM leaves such pairs alone."""
    value: Val | None = context.function.recall((at.pointer, mask, epoch))
    nothing = Val("zeroinitializer", at.kind, context.width)
    return value and context.code.select(mask, value, nothing)


def _held(context: Context, at: Address, buffer: Buffer) -> Val | None:
    plain = at.offsets is None and at.stride == 1
    return context.registers.load(buffer.name, at.place if plain else None, context.width)


def _can_load_pairs(context: Context, at: Address, mask: Val | None) -> bool:
    return context.width > 1 and (mask is None or _can_mask(context, at))


def _can_mask(context: Context, at: Address) -> bool:
    return context.machine.has_masks or bits_of(at.kind) >= 32


def _load_repeated(
    context: Context, at: Address, places: tuple[int, ...], mask: Val | None, epoch: str
) -> Val:
    """Each element once: half a vector of them plainly, other numbers under a mask."""
    low, n, code = min(places), len(set(places)), context.code
    pointer = step_by(context, at.pointer, constant(low, "i64"), at.kind) if low else at.pointer
    if mask is None and n & (n - 1) == 0:
        run = load_plain(context, pointer, at.kind, n, epoch)
        if n == 1:
            return code.spread(run, context.width)
    else:
        run = load_run(context, pointer, at.kind, wanted(context, places, mask), epoch)
    return code.shuffle(run, None, tuple(p - low for p in places))


def _load_every_second(context: Context, at: Address, mask: Val | None, epoch: str) -> Val:
    """Two runs that together end at the last lane's element: nothing outside is touched."""
    width, code = context.width, context.code
    later = step_by(context, at.pointer, constant(width - 1, "i64"), at.kind)
    masks: list[Val | None] = [None, None]
    if mask is not None:  # element j of a run is that of lane j/2, or of none; lanes after `width`
        nothing = Val("zeroinitializer", "i1", width)
        even = tuple(j // 2 if j % 2 == 0 else width for j in range(width))
        odd = tuple((width - 1 + j) // 2 if j % 2 else width for j in range(width))
        masks = [code.shuffle(mask, nothing, picks) for picks in (even, odd)]
    first = load_run(context, at.pointer, at.kind, masks[0], epoch)
    second = load_run(context, later, at.kind, masks[1], epoch)
    picks = tuple(2 * i if 2 * i < width else 2 * i + 1 for i in range(width))
    return code.shuffle(first, second, picks)


def _is_near(at: Address, width: int) -> bool:
    """Lanes are a few elements apart, of 32 bits or more."""
    known = at.offsets is None and isinstance(at.stride, int) and 2 <= at.stride <= _MOST_NEAR
    return known and width >= _NEAR_LANES and bits_of(at.kind) >= 32


def _runs(stride: int, width: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Where runs start that together end at the last lane's element, and the lanes that are new in
    each of them."""
    starts = (*(r * width for r in range(stride - 1)), (stride - 1) * (width - 1))
    ends = (*starts[1:-1], (stride - 1) * width, stride * width)
    lanes = range(width)
    return tuple(
        (start, tuple(i for i in lanes if r * width <= i * stride < end))
        for r, (start, end) in enumerate(zip(starts, ends))
    )


def _load_near(context: Context, at: Address, epoch: str) -> Val:
    """Whole runs, from which lanes are picked one after the other: a gather takes longer."""
    code, width, stride = context.code, context.width, at.stride
    assert isinstance(stride, int)
    found: Val | None = None
    for start, lanes in _runs(stride, width):
        pointer = step_by(context, at.pointer, constant(start, "i64"), at.kind)
        run = load_plain(context, pointer, at.kind, width, epoch)
        picks = [width + i * stride - start if i in lanes else i for i in range(width)]
        found = run if found is None else found
        found = code.shuffle(found, run, tuple(picks))
    assert found is not None
    return found


def load_run(context: Context, pointer: str, kind: str, mask: Val | None, epoch: str) -> Val:
    if mask is None:
        return load_plain(context, pointer, kind, context.width, epoch)
    return masked_load(context.code, pointer, kind, mask, bits_of(kind) // 8, epoch)


def _gather(context: Context, at: Address, mask: Val | None, epoch: str) -> Val:
    if context.machine.has_masks and bits_of(at.kind) >= 32:
        return _gather_at_once(context, at, mask, epoch)
    code, scalars = context.code, []
    if mask is not None and at.offsets is not None:
        for pointer in _safe_pointers(context, at, mask):
            scalars.append(load_plain(context, pointer, at.kind, 1, epoch))
        return code.from_lanes(scalars)
    for lane, pointer in enumerate(lane_pointers(context, at)):
        if mask is not None:
            active = code.lane(mask, lane).text
            nowhere = context.nowhere()
            pointer = context.function.pure(f"select i1 {active}, ptr {pointer}, ptr {nowhere}")
        scalars.append(load_plain(context, pointer, at.kind, 1, epoch))
    return code.from_lanes(scalars)


def _safe_pointers(context: Context, at: Address, mask: Val) -> list[str]:
    """One pointer a lane, to zeros outside the mask; chosen at once: bits of a mask are dear."""
    f, width = context.function, context.width
    whole = vector_of_pointers(context, at)
    zeros = context.code.spread(Val(context.nowhere(), "ptr"), width)
    chosen = f.pure(f"select {mask.typed}, {whole}, {zeros.typed}")
    kind = type_text("ptr", width)
    return [f.pure(f"extractelement {kind} {chosen}, i64 {i}") for i in range(width)]


def _gather_at_once(context: Context, at: Address, mask: Val | None, epoch: str) -> Val:
    active = mask or Val("splat (i1 true)", "i1", context.width)
    pointers = vector_of_pointers(context, at)
    return gather(context.code, pointers, at.kind, active, at.alignment, epoch)


# ---- stores


def store(
    context: Context,
    at: Address,
    buffer: Buffer,
    value: Val,
    mask: Val | None,
    streamed: int = 0,
) -> None:
    """Write a value of the element's memory type; lanes outside `mask` stay as they are.

    `streamed`: bypass the caches, if not 0; the bytes of which the address is a multiple.
    """
    code = context.code
    if at.is_uniform:
        assert value.lanes == 1 and mask is None, f"lanes share an element of {buffer.name}"
        store_element(context, at, buffer, value)
        return
    if buffer.space == "register":
        if mask is not None and not buffer.padded:
            value = code.select(mask, value, load(context, at, buffer, None))
        value = code.spread(value, context.width)
        _store_lanes(context, at, value, None)
        whole = at.offsets is None and at.stride == 1
        context.registers.store(buffer.name, at.place if whole else None, value)
    else:
        kept = None if buffer.padded else mask
        lanes = code.spread(value, context.width)
        if streamed and kept is None and at.offsets is None and at.stride == 1:
            text = f"store {lanes.typed}, ptr {at.pointer}, align {streamed}, !nontemporal !2"
            context.function.do(text)
        else:
            _store_lanes(context, at, lanes, kept)
    context.note_store(buffer.name)
    if mask is not None and buffer.space != "register" and at.offsets is None and at.stride == 1:
        epoch = context.memory_state(buffer.name)
        context.function.remember((at.pointer, mask, epoch), lanes)


def _store_lanes(context: Context, at: Address, value: Val, mask: Val | None) -> None:
    if at.offsets is None and at.stride == 1:
        active = context.lanes.active if context.lanes and mask is not None else None
        if active is None or context.machine.has_masks:
            store_run(context, at.pointer, value, mask)
        else:
            _store_first(context, at.pointer, value, active)
    elif at.offsets is None and at.stride == -1:
        backwards = tuple(reversed(range(value.lanes)))
        first = step_by(context, at.pointer, constant(1 - value.lanes, "i64"), at.kind)
        turned = None if mask is None else context.code.shuffle(mask, None, backwards)
        store_run(context, first, context.code.shuffle(value, None, backwards), turned)
    elif mask is None and context.machine.has_masks and _is_near(at, value.lanes):
        _store_near(context, at, value)
    else:
        _scatter(context, at, value, mask)


def store_run(context: Context, pointer: str, value: Val, mask: Val | None) -> None:
    align = bits_of(value.kind) // 8
    if mask is None:
        context.function.do(f"store {value.typed}, ptr {pointer}, align {align}")
        return
    if context.machine.has_masks:
        value = _not_truncated(context, value)
    masked_store(context.code, pointer, value, mask, align)


def _store_near(context: Context, at: Address, value: Val) -> None:
    """Runs under masks that are known: a scatter takes longer."""
    code, width, stride = context.code, value.lanes, at.stride
    assert isinstance(stride, int)
    for start, lanes in _runs(stride, width):
        pointer = step_by(context, at.pointer, constant(start, "i64"), at.kind)
        place = {i * stride - start: i for i in lanes}
        active = ", ".join(f"i1 {int(k in place)}" for k in range(width))
        spread = code.shuffle(value, None, tuple(place.get(k, 0) for k in range(width)))
        store_run(context, pointer, spread, Val(f"<{active}>", "i1", width))


def _not_truncated(context: Context, value: Val) -> Val:
    """The value, of which LLVM knows no wider one: it would store all of the wider element where it
    finds that the mask is the first lane alone."""
    bits = bits_of(value.kind)
    if value.kind not in ("i8", "i16", "i32"):
        return value
    code, lanes = context.code, max(value.lanes, _LEAST_VECTOR // bits)
    whole = value
    if lanes > value.lanes:
        whole = code.shuffle(value, None, tuple(i % value.lanes for i in range(lanes)))
    text = f'call {whole.type} asm "", "=v,0"({whole.typed})'
    hidden = Val(context.function.pure(text), value.kind, lanes)
    return _part(context, hidden, 0, value.lanes) if lanes > value.lanes else hidden


def _store_first(context: Context, pointer: str, value: Val, active: Val) -> None:
    """The first lanes, in pieces of powers of two: a masked store costs more (AMD Zen: tenfold)."""
    code, f, width = context.code, context.function, value.lanes
    with f.when(code.compare("icmp eq", active, constant(width, "i64")).text):
        store_run(context, pointer, value, None)
    place = pointer
    while width > 1:
        if width < context.width:
            done = f.pure(f"and i64 {active.text}, {-width}")
            place = f.pure(f"getelementptr {value.kind}, ptr {pointer}, i64 {done}")
        width //= 2
        bit = Val(f.pure(f"and i64 {active.text}, {width}"), "i64")
        wanted = code.compare("icmp ne", bit, constant(0, "i64"))
        lower, upper = _part(context, value, 0, width), _part(context, value, width, width)
        with f.when(wanted.text):
            store_run(context, place, lower, None)
        if width > 1:
            value = code.select(wanted, upper, lower)


def _part(context: Context, value: Val, first: int, width: int) -> Val:
    if width == 1:
        return context.code.lane(value, first)
    return context.code.shuffle(value, None, tuple(range(first, first + width)))


def _scatter(context: Context, at: Address, value: Val, mask: Val | None) -> None:
    code, width = context.code, value.lanes
    if context.machine.has_masks and bits_of(at.kind) >= 32:
        active = mask or Val("splat (i1 true)", "i1", width)
        scatter(context.code, vector_of_pointers(context, at), value, active, at.alignment)
        return
    for lane, pointer in enumerate(lane_pointers(context, at)):
        text = f"store {code.lane(value, lane).typed}, ptr {pointer}, align {at.alignment}"
        if mask is None:
            context.function.do(text)
        else:
            with context.function.when(code.lane(mask, lane).text):
                context.function.do(text)
