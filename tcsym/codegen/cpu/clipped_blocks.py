# SPDX-License-Identifier: Apache-2.0
"""Clipped TransposeBlocks where there are mask registers: one function moves those of a kernel.

Its loads and stores are masked, and the exchange in registers is that of whole blocks; one or two
columns or rows of elements of 32 bits and more are gathered or scattered. Being a module of its
own, it is compiled beside the others, once for each width of elements.
"""

from __future__ import annotations

from functools import partial

from tcsym.codegen.cpu.masked import gather, masked_load, masked_store, scatter
from tcsym.codegen.cpu.transpose import fits_registers, is_whole, transposed
from tcsym.codegen.scalar.addresses import address
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.index_code import as_val, number
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Code, Val, bits_of, constant, type_text
from tcsym.index.expr import TRUE
from tcsym.ir.loops import Kernel, TransposeBlock
from tcsym.ir.traverse import walk
from tcsym.target.machine import Machine

_CLIPPED = "tcsym_transpose"
FEW = 2  # columns or rows that are gathered or scattered sooner than a block is exchanged
GATHERED = 32  # bits of the shortest elements that instructions gather and scatter


def define_clipped(kernel: Kernel, whole: Module, machine: Machine) -> None:
    """The functions that move clipped blocks of the kernel, as parts of the module."""
    if not machine.has_masks:
        return
    buffers = {b.name: b for b in kernel.buffers}
    moves = [n for n, _ in walk(kernel.body) if isinstance(n, TransposeBlock)]
    clipped = [n for n in moves if is_whole(n) != TRUE and not buffers[n.target].padded]
    fit = [n for n in clipped if fits_registers(machine, n, buffers[n.source], buffers[n.target])]
    for bits in sorted({buffers[n.target].dtype.bits for n in fit}):
        whole.part(f"{_CLIPPED}{bits}", partial(_write_clipped, bits, machine))


def transpose_clipped(context: Context, n: TransposeBlock) -> None:
    """A block that ends before its last row or column, by the function for them."""
    source, target = context.buffers[n.source], context.buffers[n.target]
    name = f"{_CLIPPED}{target.dtype.bits}"
    with context.in_lanes(None):
        steps = source.element_strides()[n.source_row], target.element_strides()[n.target_column]
        to, at = n.element(0, 0)
        places = address(context, target, to).pointer, address(context, source, at).pointer
        counts = (*steps, n.rows, n.columns)
        given = [as_val(number(context, x)).typed for x in counts]
        context.module.declare("void", name, "ptr, ptr, i64, i64, i64, i64")
        pointers = ", ".join(f"ptr {p}" for p in places)
        context.function.do(f"call void @{name}({pointers}, {', '.join(given)})")
    context.note_store(target.name)


def _write_clipped(bits: int, machine: Machine, part: Module) -> None:
    """to[c * to_step + r] = from[r * from_step + c] for r < rows, c < columns, at most a block.

    Rows and columns beyond the last one are the last one: a mask without a lane takes hundreds of
    cycles where its address is no memory. So the last column is stored after what stands for it.
    """
    head = "ptr %to, ptr %from, i64 %from_step, i64 %to_step, i64 %rows, i64 %columns"
    f = Function(part, f"define void @{_CLIPPED}{bits}({head}) #1")
    code, lanes, kind = Code(f, machine), machine.block_lanes(bits), f"i{bits}"
    rows, columns = Val("%rows", "i64"), Val("%columns", "i64")
    many = code.compare("icmp sgt", code.intrinsic("smin", rows, columns), constant(0, "i64"))
    if bits >= GATHERED:
        many = _few_lines(code, many, rows, columns, lanes, kind)
    with f.when(many.text):
        _block(code, rows, columns, lanes, kind)
    f.do("ret void")
    f.finish()


def _few_lines(code: Code, some: Val, rows: Val, columns: Val, lanes: int, kind: str) -> Val:
    """A few columns or rows, if there are `some`; if there are many of both."""
    few, flat = (code.compare("icmp sle", n, constant(FEW, "i64")) for n in (columns, rows))
    flat = code.binary("and", flat, code.not_(few))
    with code.function.when(code.binary("and", some, few).text):
        _columns(code, columns, _first(code, rows, lanes), kind)
    with code.function.when(code.binary("and", some, flat).text):
        _rows(code, rows, _first(code, columns, lanes), kind)
    return code.binary("and", some, code.not_(code.binary("or", few, flat)))


def _block(code: Code, rows: Val, columns: Val, lanes: int, kind: str) -> None:
    """Through registers."""
    mask, align, taken = _first(code, columns, lanes), bits_of(kind) // 8, []
    for r in range(lanes):
        taken.append(masked_load(code, _line(code, "from", rows, r, kind), kind, mask, align))
    moved, mask = transposed(code, taken), _first(code, rows, lanes)
    for group in reversed(range(0, lanes, 4)):
        with code.function.when(_is_beyond(code, columns, group)):
            for c in reversed(range(group, group + 4)):
                masked_store(code, _line(code, "to", columns, c, kind), moved[c], mask, align)


def _columns(code: Code, columns: Val, mask: Val, kind: str) -> None:
    """A few columns, gathered."""
    align = bits_of(kind) // 8
    for c in range(FEW):
        with code.function.when(_is_beyond(code, columns, c)):
            column = gather(code, _places(code, "from", c, mask.lanes, kind), kind, mask, align)
            masked_store(code, _line(code, "to", columns, c, kind), column, mask, align)


def _rows(code: Code, rows: Val, mask: Val, kind: str) -> None:
    """A few rows, scattered."""
    align = bits_of(kind) // 8
    for r in range(FEW):
        with code.function.when(_is_beyond(code, rows, r)):
            row = masked_load(code, _line(code, "from", rows, r, kind), kind, mask, align)
            scatter(code, _places(code, "to", r, mask.lanes, kind), row, mask, align)


def _is_beyond(code: Code, count: Val, number: int) -> str:
    return code.compare("icmp sgt", count, constant(number, "i64")).text


def _places(code: Code, side: str, element: int, lanes: int, kind: str) -> str:
    """Addresses of an element of each row or column of that side."""
    f = code.function
    first = f.pure(f"getelementptr {kind}, ptr %{side}, i64 {element}")
    steps = code.binary("mul", code.lane_numbers(lanes, "i64"), Val(f"%{side}_step", "i64"))
    places = f.pure(f"getelementptr {kind}, ptr {first}, {steps.typed}")
    return f"{type_text('ptr', lanes)} {places}"


def _first(code: Code, count: Val, lanes: int) -> Val:
    """A mask of the first lanes."""
    return code.compare("icmp slt", code.lane_numbers(lanes, "i64"), count)


def _line(code: Code, side: str, count: Val, number: int, kind: str) -> str:
    """Address of a row or column of that side, or of its last one."""
    f = code.function
    last = code.binary("sub", count, constant(1, "i64"))
    line = code.intrinsic("smin", last, constant(number, "i64"))
    step = code.binary("mul", line, Val(f"%{side}_step", "i64"))
    return f.pure(f"getelementptr {kind}, ptr %{side}, {step.typed}")
