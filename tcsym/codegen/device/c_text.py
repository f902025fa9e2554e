"""Kernel for a device -> C++ for people to read: grids as functions, and the host's launches.

It is told of the loop IR alone, and nothing compiles it. Subscripts are those of arrays of several
dimensions; what threads do together has the names that CUDA gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.codegen.device.launch import block_loops, blocks_of, threads_of
from tcsym.index.expr import TRUE, Index, floordiv, mod, var
from tcsym.index.text import condition_text
from tcsym.ir.allocate import block_bytes
from tcsym.ir.bounds import extent
from tcsym.ir.device import (
    Barrier,
    BeginCopy,
    CommitCopies,
    DeviceNode,
    GridBarrier,
    LoadMatrices,
    MatrixMultiply,
    OnDevice,
    WaitCopies,
)
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Prefetch,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
)
from tcsym.ir.regions import Host, Region, outline
from tcsym.ir.text import access_text, value_text

_NAME = re.compile(r"\b(?!blockIdx|threadIdx|gridDim)([A-Za-z_]\w*)\.(?=\w)")
_ASSIGN = {"add": "+=", "mul": "*="}
_SHUFFLES = {"across": "xor", "up": "up", "down": "down"}


def c_text(kernel: Kernel) -> str:
    """The grids, then the host."""
    host = outline(kernel)
    text = _Text(kernel, host)
    parts = ["\n".join(text.function(r)) for r in host.regions]
    parts.append("\n".join(text.host_function()))
    whole = "\n\n".join(parts) + "\n"
    while (named := _NAME.sub(r"\1_", whole)) != whole:
        whole = named
    return whole.replace("[]", "")  # of single numbers


class _Text(Struct, frozen=True):
    kernel: Kernel
    host: Host

    def function(self, r: Region) -> Iterator[str]:
        names = [f"{self.index} {n}" for n in r.numbers] + [self.pointer(n) for n in r.pointers]
        bounds = f"__launch_bounds__({threads_of(r.loop)})"
        yield f"__global__ void {bounds} {r.name}({', '.join(names)})"
        yield "{"
        yield from (f"  const {self.index} {name} = {value};" for name, value in r.known)
        if r.loop.kind == "grid":
            yield from self.loop(replace(r.loop, kind="serial"), 1)
        else:
            yield from self.block(r.loop, var("blockIdx.x"), 1)
        yield "}"

    def block(self, loop: Loop, place: Index, indent: int) -> Iterator[str]:
        """What the block of that number does."""
        nest = block_loops(loop)
        for x in reversed(nest):
            at = place if x is loop else mod(place, extent(x))
            yield f"{'  ' * indent}const {self.index} {x.variable} = {x.lower + at};"
            place = floordiv(place, extent(x))
        yield from self.lines(nest[-1].body, indent)

    @property
    def index(self) -> str:
        """The type of numbers, but for those that tensors hold."""
        return "int32" if self.kernel.narrow else "int64"

    def pointer(self, name: str) -> str:
        b = self.kernel.buffer(name)
        return f"{b.dtype} *{name}"

    def host_function(self) -> Iterator[str]:
        given = [f"int64 {n}" for n in self.kernel.sizes]
        given += [self.pointer(n) for n in self.kernel.arguments]
        yield f"void {self.kernel.name}({', '.join(given)})"
        yield "{"
        yield from self.lines(self.host.body, 1)
        yield "}"

    def lines(self, n: Node, indent: int) -> Iterator[str]:
        pad = "  " * indent
        match n:
            case Store() | Update():
                yield pad + _statement(n)
            case Verify(value, _):
                yield f"{pad}verify({value_text(value)});"
            case Loop():
                yield from self.loop(n, indent)
            case Branch(condition, then, orelse):
                yield f"{pad}if ({condition_text(condition)}) {{"
                yield from self.lines(then, indent + 1)
                if orelse is not None:
                    yield f"{pad}}} else {{"
                    yield from self.lines(orelse, indent + 1)
                yield f"{pad}}}"
            case Block(body):
                yield from (line for x in body for line in self.lines(x, indent))
            case Allocate(name, body):
                yield pad + _declaration(self.kernel.buffer(name))
                yield from self.lines(body, indent)
            case Prefetch() | TransposeBlock():
                raise AssertionError(f"only a processor has this: {n}")  # as `verify` sees to
            case DeviceNode():
                yield pad + _device_text(n)
            case _:
                assert_never(n)

    def loop(self, loop: Loop, indent: int) -> Iterator[str]:
        pad = "  " * indent
        regions = [r for r in self.host.regions if r.loop is loop]
        if regions:
            yield pad + self.launch(regions[0])
        elif loop.kind == "thread":
            yield from self.threads(loop, indent)
        elif loop.kind == "block":
            i = f"block_{loop.variable}"
            ends = f"{i} = blockIdx.x; {i} < {blocks_of(loop)}; {i} += gridDim.x"
            yield f"{pad}for ({self.index} {ends}) {{"
            yield from self.block(loop, var(i), indent + 1)
            yield f"{pad}}}"
        elif loop.at is not None:
            at, i = loop.at, loop.variable
            yield f"{pad}const int64 {i} = {at if isinstance(at, Index) else _value(at)};"
            yield f"{pad}if ({loop.lower} <= {i} && {i} < {loop.upper}) {{"
            yield from self.lines(loop.body, indent + 1)
            yield f"{pad}}}"
        elif loop.value is not None:
            yield f"{pad}const int64 {loop.variable} = {_value(loop.value)};"
            yield from self.lines(loop.body, indent)
        elif (loop.upper - loop.lower).as_int() == 1:
            yield f"{pad}const {self.index} {loop.variable} = {loop.lower};"
            yield from self.lines(loop.body, indent)
        else:
            if loop.kind in ("unrolled", "vector"):
                yield f"{pad}#pragma unroll"
            i = loop.variable
            yield f"{pad}for ({self.index} {i} = {loop.lower}; {i} < {loop.upper}; {i}++) {{"
            yield from self.masked(loop, indent + 1)
            yield f"{pad}}}"

    def masked(self, loop: Loop, indent: int) -> Iterator[str]:
        if loop.mask is None:
            yield from self.lines(loop.body, indent)
            return
        pad = "  " * indent
        yield f"{pad}if ({loop.variable} < {loop.mask}) {{"
        yield from self.lines(loop.body, indent + 1)
        yield f"{pad}}}"

    def threads(self, loop: Loop, indent: int) -> Iterator[str]:
        """A nest of threads; the innermost loop counts fastest."""
        nest = [loop]
        while isinstance(nest[-1].body, Loop) and nest[-1].body.kind == "thread":
            nest.append(nest[-1].body)
        pad, place = "  " * indent, var("threadIdx.x")
        yield f"{pad}{{"
        for x in reversed(nest):
            at = place if x is loop else mod(place, extent(x))
            yield f"{pad}  const {self.index} {x.variable} = {at};"
            place = floordiv(place, extent(x))
        masks = [f"{x.variable} < {x.mask}" for x in nest if x.mask is not None]
        if masks:
            yield f"{pad}  if ({' && '.join(masks)}) {{"
            yield from self.lines(nest[-1].body, indent + 2)
            yield f"{pad}  }}"
        else:
            yield from self.lines(nest[-1].body, indent + 1)
        yield f"{pad}}}"

    def launch(self, r: Region) -> str:
        together = ", cooperative" * (r.loop.kind == "grid")
        shared = block_bytes(self.kernel, r.loop)
        shape = f"<<<{blocks_of(r.loop)}, {threads_of(r.loop)}, {shared}{together}>>>"
        return f"{r.name}{shape}({', '.join((*r.numbers, *r.pointers))});"


def _statement(n: Store | Update) -> str:
    left, right = access_text(n.buffer, n.subscripts), _value(n.value)
    tag = f"  // {n.name}" if n.name else ""
    if isinstance(n, Store):
        return f"{left} = {right};{tag}"
    if n.atomic:
        return f"atomic{n.op.title()}(&{left}, {right});{tag}"
    if n.op in _ASSIGN:
        return f"{left} {_ASSIGN[n.op]} {right};{tag}"
    return f"{left} = {n.op}({left}, {right});{tag}"


def _value(v: Value) -> str:
    if not isinstance(v, Shuffle):
        return value_text(v)
    return f"__shfl_{_SHUFFLES[v.direction]}_sync(~0u, {value_text(v.value)}, {v.lanes})"


def _declaration(b: Buffer) -> str:
    shape = f"[{', '.join(map(str, b.shape))}]"
    if b.space == "arena":
        return f"{b.dtype} *{b.name};  // {shape} of the device's memory"
    return f"{'__shared__ ' * (b.space == 'shared')}{b.dtype} {b.name}{shape};"


def _device_text(n: OnDevice) -> str:
    match n:
        case Barrier():
            return "__syncthreads();"
        case GridBarrier(counter):
            return f"grid_sync({counter});"
        case BeginCopy():
            target = access_text(n.target, n.target_subscripts)
            source = access_text(n.source, n.source_subscripts)
            where = "" if n.condition == TRUE else f", {condition_text(n.condition)}"
            return f"cp_async<{n.elements}>(&{target}, &{source}{where});"
        case CommitCopies():
            return "cp_async_commit();"
        case WaitCopies(pending):
            return f"cp_async_wait<{pending}>();"
        case LoadMatrices():
            target, source = (
                access_text(n.target, n.target_subscripts),
                access_text(n.source, n.row),
            )
            name = f"ldmatrix_x{1 << len(n.steps)}{'_trans' * n.transposed}"
            return f"{name}(&{target}, &{source});"
        case MatrixMultiply():
            at = (
                (n.target, n.target_subscripts),
                (n.left, n.left_subscripts),
                (n.right, n.right_subscripts),
            )
            return f"mma_m16n8k{n.depth}({', '.join('&' + access_text(*x) for x in at)});"
        case _:
            assert_never(n)
