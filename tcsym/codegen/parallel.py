"""Parallel loops: the body becomes a function of its own, run on threads if the work is worth it.

`taskN(data, t, n)` unpacks what the body needs from `data` and calls `taskN.body`, whose pointer
parameters are `noalias`. The iterations are cut into n contiguous balanced chunks, one a task.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, assert_never

from tcsym.codegen.context import Arena, Bound, Context
from tcsym.codegen.index_code import Number, add, as_val, multiply, number, smallest
from tcsym.codegen.stores import end_streams
from tcsym.codegen.text import Function, Module
from tcsym.codegen.values import Code, Val
from tcsym.compiled import CONTEXT_FIELDS
from tcsym.index import Index
from tcsym.loop_ir import (
    Allocate,
    Block,
    Branch,
    Loop,
    Node,
    Prefetch,
    Store,
    TransposeBlock,
    Update,
    Verify,
    loads,
    map_node,
    walk,
)
from tcsym.records import dataclass

ALWAYS_WORTH = Val(str(1 << 60), "i64")  # more work than waking any number of threads

SerialLoop = Callable[[Context, Loop, Number, Number], None]


@dataclass(frozen=True, slots=True)
class _Item:
    """One word that a task receives: `text`, stored in its data, or element `at` of `array`."""

    kind: str
    text: str
    array: Literal["", "buffers", "sizes"] = ""
    at: int = 0


def _stored(items: list[_Item]) -> list[_Item]:
    return [i for i in items if not i.array]


def field(context: Context, name: str, kind: str) -> str:
    """A field of the launch's context struct."""
    assert context.launch is not None
    place = CONTEXT_FIELDS.index(name)
    f = context.function
    address = f.pure(f"getelementptr i64, ptr {context.launch}, i64 {place}")
    return f.pure(f"load {kind}, ptr {address}, align 8")


def parallel_loop(context: Context, loop: Loop, serial_loop: SerialLoop) -> None:
    """Run the loop on at most min(threads, iterations, its work / least work) tasks."""
    code = context.code
    lower, upper = number(context, loop.lower), number(context, loop.upper)
    count = as_val(smallest(code, add(code, upper, multiply(code, lower, -1)), 0, "smax"))
    with context.function.when(code.compare("icmp ne", count, Val("0", "i64")).text):
        work = ALWAYS_WORTH
        if context.min_work:
            work = as_val(multiply(code, count, number(context, loop.work)))
        tasks = _task_count(context, work, count)
        launched = [
            _Item("ptr", context.error),
            _Item("ptr", field(context, "private_arena", "ptr")),
            _Item("i64", field(context, "private_bytes", "i64")),
            _Item("i64", as_val(lower).text),
            _Item("i64", count.text),
            _Item("ptr", "%buffers"),
            _Item("ptr", "%sizes"),
        ]
        numbers, pointers = _received(context, loop)
        received = [*numbers.values(), *pointers.values()]
        name = f"task{context.module.count('task')}"
        part = context.module.part(name)
        _body(context, part, loop, f"{name}.body", list(numbers), list(pointers), serial_loop)
        _task(part, name, launched, received)
        context.module.declare("void", name, "ptr, i64, i64")
        context.finished(part)
        _launch(context, name, [*launched, *_stored(received)], tasks, work)
    for buffer in context.buffers:
        context.note_store(buffer)


def _received(context: Context, loop: Loop) -> tuple[dict[str, _Item], dict[str, _Item]]:
    """What the body of the loop uses: variables, and bases of buffers."""
    kernel, used = context.kernel, buffers_used(loop.body)
    names = _variables_used(context, loop, used)
    numbers, pointers = {}, {}
    for n, bound in context.variables.items():
        if bound.text is None or n not in names:
            continue
        is_size = n in kernel.sizes
        at = kernel.sizes.index(n) if is_size else 0
        numbers[n] = _Item("i64", bound.text, "sizes" if is_size else "", at)
    for n, pointer in context.pointers.items():
        if n in used:
            is_argument = n in kernel.arguments
            at = kernel.arguments.index(n) if is_argument else 0
            pointers[n] = _Item("ptr", pointer, "buffers" if is_argument else "", at)
    return numbers, pointers


def _variables_used(context: Context, loop: Loop, buffers: frozenset[str]) -> frozenset[str]:
    """Of sizes and loops: all in the loop's expressions, and in sizes and strides of buffers."""
    found: set[str] = set()

    def index(e: Index) -> Index:
        found.update(e.variables())
        return e

    map_node(loop, on_index=index)
    for b in (context.buffers[name] for name in buffers):
        for e in (*b.shape, *b.element_strides()):
            index(e)
    return frozenset(found)


def buffers_used(body: Node) -> frozenset[str]:
    """Names of all buffers that the statements below touch."""
    used: set[str] = set()
    for n, _ in walk(body):
        match n:
            case Store() | Update():
                used |= {n.buffer, *(r.tensor for r in loads(n.value))}
            case Verify(v, _):
                used.update(r.tensor for r in loads(v))
            case Prefetch(name, _):
                used.add(name)
            case TransposeBlock():
                used |= {n.target, n.source}
            case Loop() | Branch() | Block() | Allocate():
                pass
            case _:
                assert_never(n)
    return frozenset(used)


def _task_count(context: Context, work: Val, count: Val) -> Val:
    code = context.code
    threads = Val(field(context, "threads", "i64"), "i64")
    most = code.intrinsic("smin", threads, count)
    if not context.min_work:
        return most
    worth = code.binary("sdiv", work, Val(str(context.min_work), "i64"))
    return code.intrinsic("smin", most, code.intrinsic("smax", worth, Val("1", "i64")))


def _launch(context: Context, name: str, items: list[_Item], tasks: Val, work: Val) -> None:
    f = context.function
    data = f.alloca(f"[{len(items)} x i64]", 16)
    for i, item in enumerate(items):
        place = f.pure(f"getelementptr i64, ptr {data}, i64 {i}")
        f.do(f"store {item.kind} {item.text}, ptr {place}, align 8")
    run, pool = field(context, "parallel_for", "ptr"), field(context, "pool", "ptr")
    several = context.code.compare("icmp sgt", tasks, Val("1", "i64"))
    threads, alone, end = f.new_label("threads"), f.new_label("alone"), f.new_label("end")
    f.branch(several.text, threads, alone)
    f.start_block(threads)
    f.do(f"call void {run}(ptr {pool}, ptr @{name}, ptr {data}, {tasks.typed}, {work.typed})")
    f.jump(end)
    f.start_block(alone)
    f.do(f"call void @{name}(ptr {data}, i64 0, i64 1)")
    f.jump(end)
    f.start_block(end)


def _task(module: Module, name: str, launched: list[_Item], received: list[_Item]) -> None:
    """Unpack `data`, find the chunk and the private arena, call the body."""
    f = Function(module, f"define void @{name}(ptr %data, i64 %task, i64 %tasks) #0")

    def word(kind: str, array: str, at: int) -> str:
        place = f.result(f"getelementptr i64, ptr {array}, i64 {at}")
        return f.result(f"load {kind}, ptr {place}, align 8")

    words = [word(item.kind, "%data", i) for i, item in enumerate(launched)]
    arrays = dict(zip(("buffers", "sizes"), words[-2:]))
    values, n_stored = [], len(launched)
    for item in received:
        array, at = (arrays[item.array], item.at) if item.array else ("%data", n_stored)
        n_stored += not item.array
        values.append(f"{item.kind} {word(item.kind, array, at)}")
    error, arena, size, lower, count = words[:5]
    skip = f.result(f"mul i64 %task, {size}")
    private = f.result(f"getelementptr i8, ptr {arena}, i64 {skip}")
    ends = []
    following = f.result("add i64 %task, 1")
    for t in ("%task", following):
        share = f.result(f"mul i64 {t}, {count}")
        first = f.result(f"udiv i64 {share}, %tasks")
        ends.append(f.result(f"add i64 {first}, {lower}"))
    args = [f"ptr {error}", f"ptr {private}", f"i64 {ends[0]}", f"i64 {ends[1]}"]
    f.do(f"call void @{name}.body({', '.join([*args, *values])})")
    f.do("ret void")
    f.finish()


def _body(
    context: Context,
    module: Module,
    loop: Loop,
    name: str,
    outer: list[str],
    buffers: list[str],
    serial_loop: SerialLoop,
) -> None:
    parameters = ["ptr noalias %error", "ptr noalias %arena", "i64 %lower", "i64 %upper"]
    parameters += [f"i64 %v{i}" for i in range(len(outer))]
    parameters += [f"ptr noalias %p{i}" for i in range(len(buffers))]
    head = f"define internal void @{name}({', '.join(parameters)}) #1"
    f = Function(module, head)
    inner = Context(
        kernel=context.kernel,
        target=context.target,
        module=module,
        buffers=context.buffers,
        faults=context.faults,
        min_work=context.min_work,
        code=Code(f, context.target),
        error="%error",
        arena=Arena("%arena"),
        launch=None,
        finished=context.finished,
        calls=context.calls,
        pointers={n: f"%p{i}" for i, n in enumerate(buffers)},
        order=context.order,
    )
    for variable, b in context.variables.items():
        if b.text is None:
            inner.variables[variable] = b
        elif variable in outer:
            inner.variables[variable] = Bound(f"%v{outer.index(variable)}", b.offset)
    serial_loop(inner, loop, Val("%lower", "i64"), Val("%upper", "i64"))
    end_streams(inner, loop.body)
    f.do("ret void")
    f.finish()
