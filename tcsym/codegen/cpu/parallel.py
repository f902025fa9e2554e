"""Regions on threads: each is a function of its own, run by tasks if the work is worth it.

`taskN(data, arena, lower, upper)` unpacks what the body needs from `data` and calls `taskN.body`,
whose pointer parameters are `noalias`. `launch` cuts the iterations into balanced chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tcsym.codegen.cpu.launch import HEAD, launch_call
from tcsym.codegen.scalar.context import Bound, Context
from tcsym.codegen.scalar.index_code import Number, as_val, number
from tcsym.codegen.scalar.stores import end_streams
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Code, Val
from tcsym.index.expr import Index, of_atom, var
from tcsym.ir.compiled import CONTEXT_FIELDS
from tcsym.ir.loops import Loop
from tcsym.ir.regions import Region

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
    place, f = CONTEXT_FIELDS.index(name), context.function
    address = f.pure(f"getelementptr i64, ptr %context, i64 {place}")
    return f.pure(f"load {kind}, ptr {address}, align 8")


def launch(context: Context, region: Region, serial_loop: SerialLoop) -> None:
    """Run it on min(threads, iterations, iterations * work / least work) tasks."""
    loop, name = region.loop, region.name
    ends = [as_val(number(context, n)).text for n in (loop.lower, loop.upper, region.work)]
    items, around = list(_items(context, region)), replace(context)

    def write(part: Module) -> None:
        _body(around, part, region, serial_loop)
        _task(part, name, items)

    context.module.part(name, write)
    context.module.declare("void", name, "ptr, ptr, i64, i64")
    data = _filled(context, [item for item in items if not item.array])
    arguments = [data, f"@{name}", "%context", "%buffers", "%sizes", context.error, *ends]
    context.function.do(launch_call(context.module, arguments, context.min_work))
    context.registers.forget()
    for buffer in context.buffers:
        context.note_store(buffer)


def _items(context: Context, region: Region) -> Iterator[_Item]:
    """Numbers, formulas and pointers, in this order."""
    sizes, arguments = context.kernel.sizes, context.kernel.arguments

    def value(e: Index) -> str:
        return as_val(number(context, e)).text

    for n in region.numbers:
        is_size = n in sizes
        at = sizes.index(n) if is_size else 0
        yield _Item("i64", value(var(n)), "sizes" if is_size else "", at)
    for atom in region.formulas:
        yield _Item("i64", value(of_atom(atom)))
    for n in region.pointers:
        is_argument = n in arguments
        at = arguments.index(n) if is_argument else 0
        yield _Item("ptr", context.pointers[n], "buffers" if is_argument else "", at)


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


def _body(context: Context, module: Module, region: Region, serial_loop: SerialLoop) -> None:
    parameters = ["ptr noalias %error", "ptr noalias %arena", "i64 %lower", "i64 %upper"]
    parameters += [f"i64 %v{i}" for i in range(len(region.numbers))]
    parameters += [f"i64 %f{i}" for i in range(len(region.formulas))]
    parameters += [f"ptr noalias %p{i}" for i in range(len(region.pointers))]
    head = f"define internal void @{region.name}.body({', '.join(parameters)}) #1"
    inner = _inside(context, Function(module, head), region)
    serial_loop(inner, region.loop, Val("%lower", "i64"), Val("%upper", "i64"))
    end_streams(inner, region.loop.body)
    inner.function.do("ret void")
    inner.function.finish()


def _inside(context: Context, f: Function, region: Region) -> Context:
    """That of the body `f`, which knows its parameters by their places."""
    known = {name: Bound(None, value) for name, value in region.known}
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
        host=None,
        calls=context.calls,
        variables=known | {name: Bound(f"%v{i}") for i, name in enumerate(region.numbers)},
        pointers={n: f"%p{i}" for i, n in enumerate(region.pointers)},
        formulas={atom: Val(f"%f{i}", "i64") for i, atom in enumerate(region.formulas)},
        order=context.order,
        ranges=context.ranges,
        intervals=context.intervals,
        facts=context.facts,
    )
