# SPDX-License-Identifier: Apache-2.0
"""Grids: the body of a region becomes a function of one thread, launched for all of them.

A launch passes words: the address of the word for faults, then the region's numbers, formulas and
pointers. `NAME.body` is the same function on a device and in the twin; what differs is how it is
entered. A device's functions are in a module of their own, have the words as their parameters, and
are launched by number (`ir.compiled`). In the twin, `NAME(data, shared, block, thread, simt)` reads
the words from `data`, and `tcsym_simt_grid` calls it for all threads (tcsym/native/simt.c).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.codegen.device.instructions import Instructions
from tcsym.codegen.object_code import device_line
from tcsym.codegen.scalar.context import Bound, Context, launch_field
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.index_code import as_val, number
from tcsym.codegen.scalar.least import starts_at
from tcsym.codegen.scalar.regions import inside, received
from tcsym.codegen.scalar.text import WEIGHTS, Function, Module
from tcsym.codegen.scalar.values import Val, constant
from tcsym.index.expr import ONE, ZERO, Index, floordiv, maximum, minimum, of_atom, var
from tcsym.index.values import product_of
from tcsym.ir.allocate import block_bytes
from tcsym.ir.bounds import extent, iteration
from tcsym.ir.device import MOST_STAYING, STAYING, Barrier, GridBarrier
from tcsym.ir.loops import Loop, Node, Store, Update, block
from tcsym.ir.regions import Region, buffers_used
from tcsym.ir.traverse import block_shape, grids, map_node, substitute_node, walk

GRID = "tcsym_simt_grid"
_FIELDS = 7  # of a `Global`
SHARED = "shared"  # the memory of a device's block, of as many bytes as a launch says
BLOCK, BLOCKS = "device.block", "device.blocks"  # of a grid: its number, and how many there are
_HEAD = ("ptr %error", "ptr %arena", "i64 %block", "i64 %thread", "ptr %simt")


def device_module(triple: str) -> Module:
    """An empty module of what devices of that kind run."""
    shared = f"@{SHARED} = external addrspace(3) global [0 x i8], align 128\n"
    attributes = "attributes #0 = { nounwind }\nattributes #1 = { noinline nounwind }\n"
    return Module(device_line(triple) + shared, attributes + WEIGHTS)


class Grids(Struct, frozen=True):
    """Launches on a device. module: of what runs there, a part for each function."""

    module: Module
    instructions: Instructions

    def launch(self, context: Context, region: Region) -> None:
        attributes = "#0 alwaysinline"
        words = add_part(self.module, context, region, self.instructions, attributes)
        number = list(self.module.parts).index(region.name)
        run = launch_field(context, "parallel_for", "ptr")
        given = [f"ptr {launch_field(context, 'pool', 'ptr')}", f"i64 {number}"]
        given += [f"ptr {filled(context, words)}", f"i64 {len(words)}"]
        run_grid(context, run, [*given, *shape_of(context, region)])


class Twin(Struct, frozen=True):
    """Launches on the host: for tests of what a device would do, and on machines without one."""

    instructions: Instructions

    def launch(self, context: Context, region: Region) -> None:
        words = add_part(context.module, context, region, self.instructions, "#1")
        context.module.declare("void", region.name, "ptr, ptr, i64, i64, ptr")
        context.module.declare("i32", GRID, "ptr, ptr, i64, i64, i64, i64, i64")
        given = [f"ptr @{region.name}", f"ptr {filled(context, words)}", *shape_of(context, region)]
        announce(context, region, words[0][1])
        run_grid(context, f"@{GRID}", [*given, "i64 0"])


def add_part(
    module: Module, context: Context, region: Region, instructions: Instructions, attributes: str
) -> list[tuple[str, str]]:
    """Adds the region's functions to the module; the words that a launch of them passes."""
    around = replace(context)

    def write(part: Module) -> None:
        write_body(around, part, region, instructions, attributes)
        instructions.entry(part, region.name, parameters(region), *_bounds(region.loop))

    words = list(words_of(context, region))
    module.part(region.name, write)
    return words


def words_of(context: Context, region: Region) -> Iterator[tuple[str, str]]:
    """Types and values of what the region is told."""

    def value(e: Index) -> tuple[str, str]:
        return "i64", as_val(number(context, e)).text

    yield "ptr", launch_field(context, "fault_word", "ptr")
    yield from (value(var(n)) for n in region.numbers)
    yield from (value(of_atom(atom)) for atom in region.formulas)
    yield from (("ptr", context.pointers[n]) for n in region.pointers)


def parameters(region: Region) -> list[str]:
    """Types of the words, and what is known of pointers."""
    written, exchanged = _written(region), _exchanged(region)
    n_numbers = len(region.numbers) + len(region.formulas)
    pointers = [
        "ptr" + " noalias" * (n not in exchanged) + " readonly" * (n not in written)
        for n in region.pointers
    ]
    return ["ptr", *["i64"] * n_numbers, *pointers]


def _written(region: Region) -> frozenset[str]:
    nodes = [n for n, _ in walk(region.loop)]
    written = {n.buffer for n in nodes if isinstance(n, Store | Update)}
    return frozenset(written | {n.counter for n in nodes if isinstance(n, GridBarrier)})


def _exchanged(region: Region) -> frozenset[str]:
    """Buffers that threads may hand to each other: LLVM takes what is `noalias` as nobody else's,
    and would keep what it has read of it across a barrier."""
    waits = any(isinstance(n, Barrier | GridBarrier) for n, _ in walk(region.loop))
    return _written(region) if waits else frozenset()


def filled(context: Context, words: list[tuple[str, str]]) -> str:
    """Memory with the words."""
    f = context.function
    data = f.alloca(f"[{len(words)} x i64]", 16)
    for k, (kind, text) in enumerate(words):
        place = f.pure(f"getelementptr i64, ptr {data}, i64 {k}")
        f.do(f"store {kind} {text}, ptr {place}, align 8")
    return data


def shape_of(context: Context, region: Region) -> list[str]:
    """Numbers of blocks, of a block's threads, bytes that these share; whether all blocks are to
    run at once: then there are at most as many as can."""
    n_blocks = as_val(number(context, blocks_of(region.loop))).typed
    threads = threads_of(region.loop)
    shape = [n_blocks, f"i64 {threads}", f"i64 {block_bytes(context.kernel, region.loop)}"]
    return [*shape, f"i64 {int(region.loop.kind == 'grid')}"]


def run_grid(context: Context, function: str, arguments: list[str]) -> None:
    """Calls what launches a grid, notes its failure, and forgets what memory was."""
    f = context.function
    code = f.result(f"call i32 {function}({', '.join(arguments)})")
    failed, end = f.new_label("failed"), f.new_label("launched")
    f.branch(f.result(f"icmp ne i32 {code}, 0"), failed, end, False)
    f.start_block(failed)
    f.do(f"store i32 {code}, ptr {context.error}, align 4")
    f.jump(end)
    f.start_block(end)
    context.registers.forget()
    for buffer in context.buffers:
        context.note_store(buffer)


def blocks_of(loop: Loop) -> Index:
    """Of a grid; of blocks that stay, as many as some nest inside has in some step."""
    if loop.kind != "grid":
        return product_of(map(extent, block_loops(loop)))
    inside = {x.variable for x, _ in walk(loop) if isinstance(x, Loop)}
    found = [blocks_of(x) for x, _ in grids(loop)]
    return maximum(1, *(MOST_STAYING if n.variables() & inside else n for n in found))


def threads_of(loop: Loop) -> int:
    """Of a block: all its nests of threads are of one shape."""
    return math.prod(block_shape(loop))


def _bounds(loop: Loop) -> tuple[int, int]:
    """Threads of a block, and blocks that are to have room on a multiprocessor."""
    return threads_of(loop), STAYING if loop.kind == "grid" else loop.resident


def write_body(
    context: Context,
    module: Module,
    region: Region,
    instructions: Instructions,
    attributes: str,
) -> None:
    """`NAME.body`: what one thread does, told of its block and of its number there."""
    parameters = ", ".join([*_HEAD, *received(region, _exchanged(region))])
    head = f"define internal void @{region.name}.body({parameters}) {attributes}"
    inner = inside(context, region, Function(module, head))
    number_of_block = Bound("%block")
    if context.kernel.narrow:
        inner.index_kind = "i32"
        number_of_block = _short(inner, number_of_block)
        inner.thread = _short(inner, inner.thread)
        inner.variables = {n: _short(inner, b) for n, b in inner.variables.items()}
        formulas = {a: Bound(v.text) for a, v in inner.formulas.items()}
        inner.formulas = {a: Val(_short(inner, b).text or "", "i32") for a, b in formulas.items()}
    starts_at(inner, BLOCK, ZERO)
    with inner.bound(BLOCK, number_of_block):
        if region.loop.kind != "grid":
            statement(inner, _in_block(region.loop, var(BLOCK)))
        else:
            starts_at(inner, BLOCKS, ONE)
            blocks = Bound(instructions.blocks(inner).text)
            with inner.bound(BLOCKS, _short(inner, blocks) if context.kernel.narrow else blocks):
                statement(inner, _staying(inner, region.loop))
    inner.function.do("ret void")
    inner.function.finish()


def _short(context: Context, b: Bound) -> Bound:
    """The number in 32 bits."""
    if b.text is None:
        return b
    return Bound(context.function.pure(f"trunc i64 {b.text} to i32"), kind="i32")


def block_loops(loop: Loop) -> list[Loop]:
    """The nest of a grid: block loops, each the whole body of the one around it."""
    nest = [loop]
    while isinstance(nest[-1].body, Loop) and nest[-1].body.kind == "block":
        nest.append(nest[-1].body)
    return nest


def _staying(context: Context, loop: Loop) -> Loop:
    """The steps of a block that stays: of each nest inside, every block that is its own number away
    from a multiple of how many stay."""
    outermost = {id(x): k for k, (x, _) in enumerate(grids(loop.body))}

    def shared_out(n: Node) -> Node:
        if not isinstance(n, Loop) or id(n) not in outermost:
            return n
        share = f"device.share.{outermost[id(n)]}"
        body = _in_block(n, var(BLOCK) + var(share) * var(BLOCKS))
        if any(context.buffers[b].space == "shared" for b in buffers_used(n)):
            body = block(body, Barrier())
        count = floordiv(blocks_of(n) - var(BLOCK) + var(BLOCKS) - 1, var(BLOCKS))
        return Loop(share, ZERO, count, body, "serial", "parallel")

    return replace(loop, kind="serial", body=map_node(loop.body, shared_out))


def _in_block(loop: Loop, place: Index) -> Node:
    """The body of the nest in the block of that number; the innermost loop counts fastest."""
    nest = block_loops(loop)
    return substitute_node(nest[-1].body, iteration(nest, place))


# ---- what the twin is told


def announce(context: Context, region: Region, fault: str) -> None:
    """A table of the global buffers of the grid that is launched next, by which the twin judges
    every access (`Global` of tcsym/native/simt.h). `fault`: where it notes faults."""
    f, n = context.function, len(region.pointers)
    table = f.alloca(f"[{max(1, n) * _FIELDS} x i64]", 16)
    written = context.stored(region.loop)
    for k, name in enumerate(region.pointers):
        for place, value in enumerate(_global(context, name, name in written)):
            at = f.pure(f"getelementptr i64, ptr {table}, i64 {k * _FIELDS + place}")
            f.do(f"store {value}, ptr {at}, align 8")
    f.call("void", "tcsym_simt_globals", f"ptr {table}", f"i64 {n}", f"ptr {fault}")


def _global(context: Context, name: str, is_written: bool) -> tuple[str, ...]:
    """The fields, with their types."""
    buffer = context.buffers[name]
    ends = [(n - 1) * s for n, s in zip(buffer.shape, buffer.element_strides(), strict=True)]
    first = sum((minimum(ZERO, e) for e in ends), ZERO)
    last = sum((maximum(ZERO, e) for e in ends), ZERO)
    count = product_of(buffer.shape)
    numbers: tuple[Index | int, ...] = first, last, count, buffer.dtype.bytes, int(is_written)
    values = [
        constant(e, "i64") if isinstance(e, int) else as_val(number(context, e)) for e in numbers
    ]
    text = _text(context, name)
    return f"ptr {context.pointers[name]}", *(v.typed for v in values), f"ptr {text}"


def _text(context: Context, name: str) -> str:
    """A constant of the module, which ends with a zero."""
    symbol, data = f'@"tcsym_name.{name}"', name.encode()
    text = "".join(f"\\{c:02x}" for c in (*data, 0))
    kind = f"private unnamed_addr constant [{len(data) + 1} x i8]"
    context.module.declarations[symbol] = f'{symbol} = {kind} c"{text}"'
    return symbol
