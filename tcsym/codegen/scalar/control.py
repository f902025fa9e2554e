# SPDX-License-Identifier: Apache-2.0
"""Statements of the loop IR -> basic blocks: stores, loops, branches, allocations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import assert_never

from msgspec.structs import replace

from tcsym.codegen.scalar.branches import fail_if, in_blocks
from tcsym.codegen.scalar.casts import element_kind
from tcsym.codegen.scalar.context import Bound, Context, Lanes
from tcsym.codegen.scalar.expressions import value
from tcsym.codegen.scalar.functions import call
from tcsym.codegen.scalar.index_code import (
    Number,
    active_under,
    add,
    alike,
    as_val,
    condition,
    lanes_under,
    multiply,
    names_depth,
    number,
    widened,
)
from tcsym.codegen.scalar.index_code import smallest as extremum
from tcsym.codegen.scalar.least import starts_at
from tcsym.codegen.scalar.quotients import begin_quotients, next_quotients, note_quotients
from tcsym.codegen.scalar.reads import verify_place
from tcsym.codegen.scalar.values import Code, Val, constant
from tcsym.frontend.program import Const, Expr, Read, Select, dtype_of, far_end
from tcsym.index.expr import (
    ZERO,
    Condition,
    Index,
    condition_variables,
    floordiv,
    ge,
    mod,
    negate,
    var,
)
from tcsym.ir.bounds import extent
from tcsym.ir.compiled import Fault
from tcsym.ir.device import DeviceNode
from tcsym.ir.loops import (
    LAUNCHED,
    MOST_VALUE,
    Allocate,
    Block,
    Branch,
    Buffer,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
)
from tcsym.ir.regions import sizes_in
from tcsym.ir.traverse import loads, substitute_node, walk
from tcsym.ir.value_range import known_range
from tcsym.sizes.context import interval

THREAD = "device.thread"  # of a block: its number
# Between the copies of an unrolled body: LLVM would load for several copies at once, and spill.
_BARRIER = 'call void asm sideeffect "", ""()'


def statement(context: Context, n: Node) -> None:
    match n:
        case Store() | Update():
            context.memory.assign(context, n)
        case Verify(Read() as r, _) if context.lanes is None:
            verify_place(context, r, value)
        case Verify(Select(c, Read() as r, Const()), _) if context.lanes is None:
            in_blocks(context, value(context, c), [lambda: verify_place(context, r, value)])
        case Verify(v, _):
            value(context, v)
        case Loop():
            _loop(context, n)
        case Branch(c, then, orelse):
            _branch(context, c, then, orelse)
        case Block(body):
            context.memory.block(context, body)
        case Allocate(names, body):
            _allocate(context, [context.buffers[name] for name in names], body)
        case TransposeBlock() | DeviceNode():
            context.backend.intrinsics.perform(context, n)
        case _:
            assert_never(n)


# ---- loops


def _loop(context: Context, loop: Loop) -> None:
    in_lanes = loop.kind == "vector" and context.backend.has_lanes
    if loop.value is not None:
        _read_scalar(context, loop, loop.value)
    elif in_lanes and loop.upper.as_int() != 1:
        _vector_loop(context, loop)
    elif loop.kind in ("unrolled", "vector"):
        _unrolled_loop(context, loop)
    elif id(loop) in context.calls:
        call(context, context.calls[id(loop)])
    elif loop.kind == "thread":
        _thread(context, loop)
    elif loop.kind in LAUNCHED and context.host is not None and context.lanes is None:
        context.backend.launcher.launch(context, context.host.region(loop))
    elif loop.at is not None:
        _at_position(context, loop, loop.at)
    elif (loop.upper - loop.lower).as_int() == 1:
        _single(context, loop)
    else:
        ends = number(context, loop.lower), number(context, loop.upper)
        serial_loop(context, loop, *ends, is_certain=_has_iteration(context, loop))


def _thread(context: Context, loop: Loop) -> None:
    """The iteration of the thread that runs this, if there is one."""
    nest: list[Loop] = [loop]
    while isinstance(nest[-1].body, Loop) and nest[-1].body.kind == "thread":
        nest.append(nest[-1].body)
    place, at, body = var(THREAD), dict[str, Index](), nest[-1].body
    for x in reversed(nest):
        n = extent(x)
        at[x.variable] = place if x is loop else mod(place, n)
        place = floordiv(place, n)
        if x.mask is not None:
            body = Branch(ge(x.mask - 1, at[x.variable]), body)
    starts_at(context, THREAD, ZERO)
    with context.bound(THREAD, context.thread):
        statement(context, substitute_node(body, at))


def _unrolled_loop(context: Context, loop: Loop) -> None:
    count = loop.upper.as_int()
    starts_at(context, loop.variable, ZERO)
    assert count is not None, f"unrolled loop {loop.variable} without a constant bound"
    body: Node = loop.body
    if loop.mask is not None:
        body = Branch(ge(loop.mask - 1, var(loop.variable)), body)
    shares = not (context.backend.has_lanes or context.in_copies) and _has_branches(body)
    with _before_copies(context, loop) if shares else nullcontext():
        for i in range(count):
            with context.bound(loop.variable, Bound(None, i)):
                statement(context, body)


def _has_branches(n: Node) -> bool:
    return any(isinstance(x, Branch) for x, _ in walk(n))


@contextmanager
def _before_copies(context: Context, loop: Loop) -> Iterator[None]:
    """What copies of guarded statements share is computed in front of all of them, as for a loop.

    Where there are vectors, full tiles have no guards in them.
    """
    f = context.function
    f.jump(start := f.new_label("copies"))
    f.start_block(start)
    context.depth, context.in_copies = context.depth + 1, True
    with f.loop(context.stored(loop)), context.inside(loop):
        yield
    context.depth, context.in_copies = context.depth - 1, False


def _vector_loop(context: Context, loop: Loop) -> None:
    width = loop.upper.as_int()
    assert width is not None and context.lanes is None, f"vector loop {loop.variable}"
    lanes = Lanes(loop.variable, width)
    with context.in_lanes(lanes):
        active = True if loop.mask is None else lanes_under(context, loop.mask)
    if active is False:
        return
    if loop.mask is not None and isinstance(active, Val):
        moving = loop.mask.variables() - set(context.kernel.sizes)
        with context.in_lanes(lanes):
            count = active_under(context, loop.mask)
        lanes = replace(lanes, mask=active, ragged=moving, active=count)
    with context.in_lanes(lanes):
        statement(context, loop.body)


def _read_scalar(context: Context, loop: Loop, read: Value) -> None:
    """The one iteration for which the variable has that value."""
    with context.in_lanes(None):
        given = _in_range(context, loop, read, value(context, read))
    starts_at(context, loop.variable, loop.lower)
    with context.bound(loop.variable, Bound(given.text, 0, len(context.function.loops))):
        statement(context, loop.body)


def _in_range(context: Context, loop: Loop, read: Value, given: Val) -> Val:
    """The value, or 0 behind a fault if it is far from all that there may be."""
    most, known = -(loop.lower.as_int() or -MOST_VALUE), known_range(read)
    if most >= MOST_VALUE or (known is not None and -most <= known[0] and known[1] <= most):
        return given
    code, source = context.code, loads(read)[0]
    shifted = code.binary("add", given, constant(most, "i64"))
    bad = code.compare("icmp ugt", shifted, constant(2 * most, "i64"))
    fail_if(context, bad, Fault("bounds", far_end(source.tensor), source.span))
    return code.select(bad, constant(0, "i64"), given)


def _single(context: Context, loop: Loop) -> None:
    """The one iteration of a loop, which then is none."""
    depth = names_depth(context, loop.lower.variables())
    place = number(context, loop.lower)
    starts_at(context, loop.variable, loop.lower)
    bound = (
        Bound(None, place) if isinstance(place, int) else Bound(place.text, 0, depth, place.kind)
    )
    with context.bound(loop.variable, bound):
        statement(context, loop.body)


def _at_position(context: Context, loop: Loop, at: Index | Expr) -> None:
    """The iteration that the position is, if it is one of the loop."""
    if isinstance(at, Index):
        place = widened(context.code, as_val(number(context, at)))
    else:
        signed = dtype_of(at).is_signed
        place = context.code.convert("sext" if signed else "zext", value(context, at), "i64")
    compare = context.code.compare
    ends = (as_val(number(context, x)) for x in (loop.lower, loop.upper))
    lower, upper = (widened(context.code, x) for x in ends)
    if loop.lower == ZERO:
        inside = compare("icmp ult", place, upper)  # as the check before it asks
    else:
        inside = compare("icmp sge", place, lower)
        inside = context.code.binary("and", inside, compare("icmp slt", place, upper))

    def iteration() -> None:
        bound = Bound(place.text, 0, context.depth)
        with context.bound(loop.variable, bound), context.inside(loop):
            statement(context, loop.body)

    in_blocks(context, inside, [iteration])


def _has_iteration(context: Context, loop: Loop) -> bool:
    """Whenever this place is reached, as far as the conditions around it tell."""
    least = interval(loop.upper - loop.lower, context.facts).low
    return least is not None and least > 0


def serial_loop(
    context: Context, loop: Loop, lower: Number, upper: Number, is_certain: bool = False
) -> None:
    """is_certain: it has an iteration."""
    starts_at(context, loop.variable, loop.lower)
    step = loop.unroll
    if step <= 1:
        _counted(context, loop, lower, upper, 1, is_certain)
        return
    names = loop.end_variables
    with context.function.at(names_depth(context, names)):
        middle = _whole_steps(context.code, lower, upper, step)
    _counted(context, loop, lower, middle, step)
    _counted(context, loop, middle, upper, 1)


def _whole_steps(code: Code, lower: Number, upper: Number, step: int) -> Number:
    """Where the last whole step from `lower` ends."""
    count = extremum(code, add(code, upper, multiply(code, lower, -1)), 0, "smax")
    if isinstance(count, int):
        rest: Number = count % step
    elif step & (step - 1) == 0:
        rest = code.binary("and", count, constant(step - 1, count.kind))
    else:
        rest = code.binary("urem", count, constant(step, count.kind))
    return add(code, add(code, lower, count), multiply(code, rest, -1))


def _counted(
    context: Context,
    loop: Loop,
    lower: Number,
    upper: Number,
    step: int,
    is_certain: bool = False,
) -> None:
    """for (i = lower; i < upper; i += step); upper - lower is a multiple of step."""
    f = context.function
    if isinstance(lower, int) and isinstance(upper, int):
        if upper <= lower:
            return
        is_certain = True
    first, last = alike(context.code, lower, upper, context.index_kind)
    kind = first.kind
    start, body, end = f.new_label("enter"), f.new_label("loop"), f.new_label("done")
    if is_certain:
        f.jump(start)
    else:
        is_any = context.code.compare("icmp slt", first, last)
        f.branch(is_any.text, start, end)
    f.start_block(start)
    counter, following = f.new_register(), f.new_register()
    quotients = begin_quotients(context, loop) if step == 1 and kind == "i64" else ()
    context.depth += 1
    context.forget_loads()
    with (
        f.loop(context.stored(loop), loop.order == "reduction", is_certain),
        context.inside(loop),
    ):
        f.jump(body)
        f.start_block(body)
        place = len(f.lines)
        f.do("")
        for offset in range(step):
            if offset and context.machine.vector_bits:
                f.do(_BARRIER)
            with context.bound(loop.variable, Bound(counter, offset, context.depth, kind)):
                note_quotients(context, loop.variable, quotients)
                statement(context, loop.body)
        phis = next_quotients(context, quotients, start)
    context.forget_loads()
    context.depth -= 1
    begin = f"[ {first.text}, %{start} ]"  # a latch of its own would attract sunk code
    phis.append(f"  {counter} = phi {kind} {begin}, [ {following}, %{f.current} ]")
    f.lines[place] = "\n".join(phis)
    f.do(f"{following} = add nsw {kind} {counter}, {step}")
    again = f.result(f"icmp slt {kind} {following}, {last.text}")
    f.branch(again, body, end)
    f.start_block(end)


# ---- branches


def _branch(context: Context, c: Condition, then: Node, orelse: Node | None) -> None:
    held = condition(context, c)
    if isinstance(held, bool):
        if held or orelse is not None:
            statement(context, then if held or orelse is None else orelse)
    elif held.lanes > 1:
        with context.masked(held):
            statement(context, then)
        if orelse is not None:
            with context.masked(context.code.not_(held)):
                statement(context, orelse)
    else:

        def first() -> None:
            with context.known(sizes_in(c, context.kernel.sizes)), context.where(c):
                statement(context, then)

        arms: list[Callable[[], None]] = [first]
        if orelse is not None:
            arms.append(lambda: _otherwise(context, c, orelse))
        moves = names_depth(context, condition_variables(c)) == len(context.function.loops) > 0
        in_blocks(context, held, arms, rare_else=moves)


def _otherwise(context: Context, c: Condition, orelse: Node) -> None:
    with context.where(negate(c)):
        statement(context, orelse)


# ---- memory


def _allocate(context: Context, buffers: list[Buffer], body: Node) -> None:
    before = {b.name: context.pointers.get(b.name) for b in buffers}
    for buffer in buffers:
        if buffer.space in ("arena", "shared"):
            with context.function.at(0):  # in front of all loops, as addresses may be
                offset = as_val(number(context, context.storage.offsets[buffer.name]))
                start = f"getelementptr i8, ptr {context.arena}, {offset.typed}"
                context.pointers[buffer.name] = context.function.pure(start)
        else:
            context.pointers[buffer.name] = _frame(context, buffer)
    statement(context, body)
    for name, place in before.items():
        if place is None:
            del context.pointers[name]
        else:
            context.pointers[name] = place


def _frame(context: Context, buffer: Buffer) -> str:
    count = 1
    for size in buffer.shape:
        n = size.as_int()
        assert n is not None, f"{buffer.space} buffer {buffer.name} has no constant shape"
        count *= n
    kind = element_kind(buffer.dtype, buffer.space == "register")
    return context.function.alloca(f"[{max(count, 1)} x {kind}]", 64)
