# SPDX-License-Identifier: Apache-2.0
"""Regions on threads: each is a function of its own, run by tasks if the work is worth it.

`taskN(data, arena, lower, upper)` unpacks what the body needs from `data` and calls `taskN.body`,
whose pointer parameters are `noalias`. `launch` cuts the iterations into balanced chunks.
Iterations that sum over ranges that are read, or that grow with the iteration, take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from tcsym.codegen.cpu.launch import HEAD, launch_call
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.control import serial_loop
from tcsym.codegen.scalar.index_code import as_val, number
from tcsym.codegen.scalar.regions import inside, received
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Val
from tcsym.index.expr import Index, Max, of_atom, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Loop
from tcsym.ir.regions import Region
from tcsym.ir.traverse import walk


class _Item(Struct, frozen=True):
    """One word that a task receives: `text`, stored in its data, or element `at` of `array`."""

    kind: str
    text: str
    array: Literal["", "buffers", "sizes"] = ""
    at: int = 0


class Tasks(Struct, frozen=True):
    """Runs regions on threads, one for each `min_work` of the work (0: on all there are)."""

    min_work: int

    def launch(self, context: Context, region: Region) -> None:
        """Run it on min(threads, iterations, iterations * work / least work) tasks."""
        loop, name = region.loop, region.name
        ends = [as_val(number(context, n)).text for n in (loop.lower, loop.upper, region.work)]
        items, around = list(_items(context, region)), replace(context)

        def write(part: Module) -> None:
            _body(around, part, region)
            _task(part, name, items)

        context.module.part(name, write)
        context.module.declare("void", name, "ptr, ptr, i64, i64")
        data = _filled(context, [item for item in items if not item.array])
        arguments = [data, f"@{name}", "%context", "%buffers", "%sizes", context.error, *ends]
        call = launch_call(context.module, arguments, self.min_work, is_uneven(loop))
        context.function.do(call)
        context.registers.forget()
        context.note_stores()


def is_uneven(loop: Loop) -> bool:
    """A loop inside has as many iterations as is read, or a sum grows with a parallel loop."""
    inside = [x for x, _ in walk(loop) if isinstance(x, Loop)]
    read = {x.variable for x in inside if x.value is not None}
    moving = {x.variable for x in inside if x.kind in ("serial", "parallel") and x.value is None}
    moving -= {x.variable for x in inside if x.order != "parallel"}
    return any(
        x.end_variables & read or (x.order == "reduction" and _grows(extent(x), moving))
        for x in inside
    )


def _grows(e: Index, moving: set[str]) -> bool:
    """With one of these variables; also where it is no less than a bound."""
    for atom, _ in e.terms:
        if atom in moving or (isinstance(atom, Max) and any(_grows(a, moving) for a in atom.args)):
            return True
    return False


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


def _body(context: Context, module: Module, region: Region) -> None:
    parameters = ["ptr noalias %error", "ptr noalias %arena", "i64 %lower", "i64 %upper"]
    parameters += received(region)
    head = f"define internal void @{region.name}.body({', '.join(parameters)}) #1"
    inner = inside(context, region, Function(module, head))
    serial_loop(inner, region.loop, Val("%lower", "i64"), Val("%upper", "i64"))
    inner.memory.finish(inner, region.loop.body)
    inner.function.do("ret void")
    inner.function.finish()
