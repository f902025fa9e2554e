"""Parallel loops: the body becomes a function of its own, run on threads if the work is worth it.

`taskN(data, arena, lower, upper)` unpacks what the body needs from `data` and calls `taskN.body`,
whose pointer parameters are `noalias`. `launch` cuts the iterations into balanced chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, assert_never

from tcsym.codegen.cpu.launch import HEAD, launch_call
from tcsym.codegen.scalar.context import Bound, Context
from tcsym.codegen.scalar.formulas import shared_formulas
from tcsym.codegen.scalar.index_code import Number, as_val, number
from tcsym.codegen.scalar.stores import end_streams
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Code, Val
from tcsym.index.expr import Atom, Index, of_atom
from tcsym.ir.archive import TASK
from tcsym.ir.compiled import CONTEXT_FIELDS
from tcsym.ir.loops import (
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
)
from tcsym.ir.traverse import loads, map_node, walk

SerialLoop = Callable[[Context, Loop, Number, Number], None]


@dataclass(frozen=True, slots=True)
class _Item:
    """One word that a task receives: `text`, stored in its data, or element `at` of `array`."""

    kind: str
    text: str
    array: Literal["", "buffers", "sizes"] = ""
    at: int = 0


def field(context: Context, name: str, kind: str) -> str:
    """A field of the launch's context struct."""
    assert context.launch is not None
    place = CONTEXT_FIELDS.index(name)
    f = context.function
    address = f.pure(f"getelementptr i64, ptr {context.launch}, i64 {place}")
    return f.pure(f"load {kind}, ptr {address}, align 8")


def parallel_loop(context: Context, loop: Loop, serial_loop: SerialLoop) -> None:
    """Run the loop on min(threads, iterations, iterations * work / least work) tasks."""
    lower, upper = number(context, loop.lower), number(context, loop.upper)
    work = number(context, loop.work)
    received = _received(context, loop)
    name = f"{TASK}{context.module.count(TASK)}"
    context.tasks.setdefault(id(loop), []).append(name)
    items, around = received.items(), replace(context, variables=dict(context.variables))

    def write(part: Module) -> None:
        _body(around, part, loop, f"{name}.body", received, serial_loop)
        _task(part, name, items)

    context.module.part(name, write)
    context.module.declare("void", name, "ptr, ptr, i64, i64")
    data = _filled(context, [item for item in items if not item.array])
    ends = [as_val(n).text for n in (lower, upper, work)]
    arguments = [data, f"@{name}", "%context", "%buffers", "%sizes", context.error, *ends]
    context.function.do(launch_call(context.module, arguments, context.min_work))
    context.registers.forget()
    for buffer in context.buffers:
        context.note_store(buffer)


@dataclass(frozen=True, slots=True)
class _Received:
    """What the body of a loop uses: variables, formulas in them, and bases of buffers."""

    numbers: dict[str, _Item]
    formulas: dict[Atom, _Item]
    pointers: dict[str, _Item]

    def items(self) -> list[_Item]:
        return [*self.numbers.values(), *self.formulas.values(), *self.pointers.values()]


def _received(context: Context, loop: Loop) -> _Received:
    kernel, used = context.kernel, buffers_used(loop.body)
    expressions = _expressions_used(context, loop, used)
    names = frozenset[str]().union(*[e.variables() for e in expressions])
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
    formulas = {
        atom: _Item("i64", as_val(number(context, of_atom(atom))).text)
        for atom in shared_formulas(expressions, frozenset(numbers))
    }
    return _Received(numbers, formulas, pointers)


def _expressions_used(context: Context, loop: Loop, buffers: frozenset[str]) -> list[Index]:
    """All of the loop's body, and sizes and strides of buffers."""
    found: dict[Index, None] = {}

    def index(e: Index) -> Index:
        found[e] = None
        return e

    map_node(loop.body, on_index=index)
    for b in (context.buffers[name] for name in sorted(buffers)):
        for e in (*b.shape, *b.element_strides()):
            index(e)
    return list(found)


def buffers_used(body: Node) -> frozenset[str]:
    """Names of all buffers that the statements below touch."""
    used: set[str] = set()
    for n, _ in walk(body):
        match n:
            case Store() | Update():
                used |= {n.buffer, *(r.tensor for r in loads(n.value))}
            case Verify(v, _) | Prefetch(v):
                used.update(r.tensor for r in loads(v))
            case TransposeBlock():
                used |= {n.target, n.source}
            case Loop() | Branch() | Block() | Allocate():
                pass
            case _:
                assert_never(n)
    return frozenset(used)


def _filled(context: Context, items: list[_Item]) -> str:
    """Memory for the head of a task's data, and behind it what only this loop's tasks need."""
    f = context.function
    data = f.alloca(f"[{len(HEAD) + len(items)} x i64]", 16)
    for i, item in enumerate(items):
        place = f.pure(f"getelementptr i64, ptr {data}, i64 {len(HEAD) + i}")
        f.do(f"store {item.kind} {item.text}, ptr {place}, align 8")
    return data


def _task(module: Module, name: str, received: list[_Item]) -> None:
    """Unpack `data`, call the body."""
    head = f"define void @{name}(ptr %data, ptr %arena, i64 %lower, i64 %upper) #0"
    f = Function(module, head)

    def word(kind: str, array: str, at: int) -> str:
        place = f.pure(f"getelementptr i64, ptr {array}, i64 {at}")
        return f.pure(f"load {kind}, ptr {place}, align 8")

    values, n_stored = [], len(HEAD)
    for item in received:
        if item.array:
            value = word(item.kind, word("ptr", "%data", HEAD.index(item.array)), item.at)
        else:
            value, n_stored = word(item.kind, "%data", n_stored), n_stored + 1
        values.append(f"{item.kind} {value}")
    error = word("ptr", "%data", HEAD.index("error"))
    arguments = [f"ptr {error}", "ptr %arena", "i64 %lower", "i64 %upper", *values]
    f.do(f"call void @{name}.body({', '.join(arguments)})")
    f.do("ret void")
    f.finish()


def _body(
    context: Context,
    module: Module,
    loop: Loop,
    name: str,
    received: _Received,
    serial_loop: SerialLoop,
) -> None:
    outer, n_formulas = list(received.numbers), len(received.formulas)
    parameters = ["ptr noalias %error", "ptr noalias %arena", "i64 %lower", "i64 %upper"]
    parameters += [f"i64 %v{i}" for i in range(len(outer))]
    parameters += [f"i64 %f{i}" for i in range(n_formulas)]
    parameters += [f"ptr noalias %p{i}" for i in range(len(received.pointers))]
    head = f"define internal void @{name}({', '.join(parameters)}) #1"
    inner = _inside(context, Function(module, head), received)
    for variable, b in context.variables.items():
        if b.text is None:
            inner.variables[variable] = b
        elif variable in outer:
            inner.variables[variable] = Bound(f"%v{outer.index(variable)}", b.offset)
    serial_loop(inner, loop, Val("%lower", "i64"), Val("%upper", "i64"))
    end_streams(inner, loop.body)
    inner.function.do("ret void")
    inner.function.finish()


def _inside(context: Context, f: Function, received: _Received) -> Context:
    """That of the body `f`, which knows its parameters by their places."""
    return Context(
        kernel=context.kernel,
        target=context.target,
        module=f.module,
        buffers=context.buffers,
        faults=context.faults,
        min_work=context.min_work,
        code=Code(f, context.target),
        error="%error",
        storage=context.storage,
        arena="%arena",
        launch=None,
        calls=context.calls,
        tasks=context.tasks,
        pointers={n: f"%p{i}" for i, n in enumerate(received.pointers)},
        formulas={atom: Val(f"%f{i}", "i64") for i, atom in enumerate(received.formulas)},
        order=context.order,
        ranges=context.ranges,
        intervals=context.intervals,
        facts=context.facts,
    )
