"""Grids: the body of a region becomes a function of one thread, launched for all of them.

A launch passes words: the address of the error cell, then the region's numbers, formulas and
pointers. On the host, `taskN(data, shared, block, thread, simt)` reads them from `data`, and
`tcsym_simt_grid` calls it for all threads of all blocks (tcsym/native/simt.c).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tcsym.codegen.scalar.context import Bound, Context
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.index_code import as_val, number
from tcsym.codegen.scalar.regions import inside, received
from tcsym.codegen.scalar.text import Function, Module
from tcsym.index.expr import Index, of_atom, var
from tcsym.ir.loops import Loop
from tcsym.ir.regions import Region
from tcsym.ir.traverse import walk

GRID = "tcsym_simt_grid"
_HEAD = ("ptr %error", "ptr %arena", "i64 %block", "i64 %thread", "ptr %simt")


class Twin:
    """Launches on the host: for tests of what a device would do, and on machines without one."""

    def launch(self, context: Context, region: Region) -> None:
        f, name = context.function, region.name
        words, around = list(_words(context, region)), replace(context)
        kinds = [kind for kind, _ in words]

        def write(part: Module) -> None:
            _body(around, part, region)
            _entry(part, name, kinds)

        context.module.part(name, write)
        context.module.declare("void", name, "ptr, ptr, i64, i64, ptr")
        context.module.declare("i32", GRID, "ptr, ptr, i64, i64, i64, i64")
        blocks = as_val(number(context, region.loop.upper)).text
        grid = f"i64 {blocks}, i64 {_threads(region.loop)}, "
        grid += f"i64 {context.storage.block_bytes}, i64 0"
        data = _filled(context, words)
        code = f.result(f"call i32 @{GRID}(ptr @{name}, ptr {data}, {grid})")
        _note_failure(f, context.error, code)
        context.registers.forget()
        for buffer in context.buffers:
            context.note_store(buffer)


def _words(context: Context, region: Region) -> Iterator[tuple[str, str]]:
    """Types and values of what the region is told."""

    def value(e: Index) -> tuple[str, str]:
        return "i64", as_val(number(context, e)).text

    yield "ptr", context.error
    yield from (value(var(n)) for n in region.numbers)
    yield from (value(of_atom(atom)) for atom in region.formulas)
    yield from (("ptr", context.pointers[n]) for n in region.pointers)


def _filled(context: Context, words: list[tuple[str, str]]) -> str:
    f = context.function
    data = f.alloca(f"[{len(words)} x i64]", 16)
    for k, (kind, text) in enumerate(words):
        place = f.pure(f"getelementptr i64, ptr {data}, i64 {k}")
        f.do(f"store {kind} {text}, ptr {place}, align 8")
    return data


def _threads(loop: Loop) -> int:
    """Of a block."""
    inside = (x for x, _ in walk(loop.body) if isinstance(x, Loop) and x.kind == "thread")
    return max(x.upper.as_int() or 1 for x in inside)


def _note_failure(f: Function, error: str, code: str) -> None:
    failed, end = f.new_label("failed"), f.new_label("launched")
    f.branch(f.result(f"icmp ne i32 {code}, 0"), failed, end, False)
    f.start_block(failed)
    f.do(f"store i32 {code}, ptr {error}, align 4")
    f.jump(end)
    f.start_block(end)


def _entry(module: Module, name: str, kinds: list[str]) -> None:
    head = "ptr %data, ptr %shared, i64 %block, i64 %thread, ptr %simt"
    f = Function(module, f"define void @{name}({head}) #0")
    words = []
    for k, kind in enumerate(kinds):
        place = f.pure(f"getelementptr i64, ptr %data, i64 {k}")
        words.append(f"{kind} " + f.pure(f"load {kind}, ptr {place}, align 8"))
    given = [words[0], "ptr %shared", "i64 %block", "i64 %thread", "ptr %simt", *words[1:]]
    f.do(f"call void @{name}.body({', '.join(given)})")
    f.do("ret void")
    f.finish()


def _body(context: Context, module: Module, region: Region) -> None:
    parameters = ", ".join([*_HEAD, *received(region)])
    f = Function(module, f"define internal void @{region.name}.body({parameters}) #1")
    inner = inside(context, region, f)
    with inner.bound(region.loop.variable, Bound("%block")):
        statement(inner, region.loop.body)
    f.do("ret void")
    f.finish()
