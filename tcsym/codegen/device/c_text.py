# SPDX-License-Identifier: Apache-2.0
"""Kernel for a device -> C++ for people to read: grids as functions, and the host's launches.

It is told of the loop IR alone, and nothing compiles it. Subscripts are those of arrays of several
dimensions; what threads do together has the names that CUDA gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import assert_never

from msgspec.structs import replace

from tcsym.codegen.device.launch import blocks_of, threads_of
from tcsym.index.expr import TRUE, Condition, Index, floordiv, mod, var
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
from tcsym.ir.loops import Kernel, Loop, Shuffle, Store, Update, Value, Verify
from tcsym.ir.regions import Host, Region, outline
from tcsym.ir.text import (
    LoopText,
    Statement,
    access_text,
    factors_text,
    moved_text,
    value_text,
)

_ELSE = re.compile(r"\}\s*else")
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
    return _ELSE.sub("} else", whole).replace("[]", "")  # of single numbers


class _Text(LoopText, frozen=True):
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

    def host_function(self) -> Iterator[str]:
        given = [f"int64 {n}" for n in self.kernel.sizes]
        given += [self.pointer(n) for n in self.kernel.arguments]
        yield f"void {self.kernel.name}({', '.join(given)})"
        yield "{"
        yield from self.lines(self.host.body, 1)
        yield "}"

    @property
    def index(self) -> str:
        """The type of numbers, but for those that tensors hold."""
        return "int32" if self.kernel.narrow else "int64"

    def pointer(self, name: str) -> str:
        b = self.kernel.buffer(name)
        return f"{b.dtype} *{name}"

    def nested(self, head: str, body: Iterator[str], indent: int) -> Iterator[str]:
        yield from super().nested(f"{head} {{", body, indent)
        yield "  " * indent + "}"

    def test(self, condition: Condition) -> str:
        return f"if ({condition_text(condition)})"

    def allocation(self, buffer: str) -> str:
        b = self.kernel.buffer(buffer)
        shape = f"[{', '.join(map(str, b.shape))}]"
        if b.space == "arena":
            return f"{b.dtype} *{b.name};  // {shape} of the device's memory"
        return f"{'__shared__ ' * (b.space == 'shared')}{b.dtype} {b.name}{shape};"

    def statement(self, n: Statement) -> str:
        match n:
            case Store() | Update():
                return _assignment(n)
            case Verify(value, _):
                return f"verify({value_text(value)});"
            case DeviceNode():
                return _device_text(n)
            case _:
                raise AssertionError(f"only a processor has this: {n}")  # as `verify` sees to

    def loop(self, loop: Loop, indent: int) -> Iterator[str]:
        pad, i, index = "  " * indent, loop.variable, self.index
        launched = [r for r in self.host.regions if r.loop is loop]
        if launched:
            yield pad + self.launch(launched[0])
        elif loop.kind == "thread":
            nest = _nest(loop)
            body = self.masked(nest, indent + 1)
            places = self.places(nest, var("threadIdx.x"), indent + 1)
            yield from super().nested("{", chain(places, body), indent)
            yield f"{pad}}}"
        elif loop.kind == "block":
            i = f"block_{i}"
            ends = f"{i} = blockIdx.x; {i} < {blocks_of(loop)}; {i} += gridDim.x"
            yield from self.nested(
                f"for ({index} {ends})", self.block(loop, var(i), indent + 1), indent
            )
        elif loop.at is not None:
            at = loop.at
            yield f"{pad}const int64 {i} = {at if isinstance(at, Index) else _value(at)};"
            inside = f"if ({loop.lower} <= {i} && {i} < {loop.upper})"
            yield from self.nested(inside, self.lines(loop.body, indent + 1), indent)
        elif loop.value is not None:
            yield f"{pad}const int64 {i} = {_value(loop.value)};"
            yield from self.lines(loop.body, indent)
        elif (loop.upper - loop.lower).as_int() == 1:
            yield f"{pad}const {index} {i} = {loop.lower};"
            yield from self.lines(loop.body, indent)
        else:
            if loop.kind in ("unrolled", "vector"):
                yield f"{pad}#pragma unroll"
            head = f"for ({index} {i} = {loop.lower}; {i} < {loop.upper}; {i}++)"
            yield from self.nested(head, self.masked([loop], indent + 1), indent)

    def block(self, loop: Loop, place: Index, indent: int) -> Iterator[str]:
        """What the block of that number does."""
        nest = _nest(loop)
        yield from self.places(nest, place, indent)
        yield from self.lines(nest[-1].body, indent)

    def places(self, nest: Sequence[Loop], place: Index, indent: int) -> Iterator[str]:
        """In the loops of a nest, of which the innermost counts fastest."""
        for x in reversed(nest):
            at = place if x is nest[0] else mod(place, extent(x))
            yield f"{'  ' * indent}const {self.index} {x.variable} = {x.lower + at};"
            place = floordiv(place, extent(x))

    def masked(self, nest: Sequence[Loop], indent: int) -> Iterator[str]:
        """The body, where the masks of all loops of the nest let it run."""
        masks = [f"{x.variable} < {x.mask}" for x in nest if x.mask is not None]
        if not masks:
            return self.lines(nest[-1].body, indent)
        body = self.lines(nest[-1].body, indent + 1)
        return self.nested(f"if ({' && '.join(masks)})", body, indent)

    def launch(self, r: Region) -> str:
        together = ", cooperative" * (r.loop.kind == "grid")
        shared = block_bytes(self.kernel, r.loop)
        shape = f"<<<{blocks_of(r.loop)}, {threads_of(r.loop)}, {shared}{together}>>>"
        return f"{r.name}{shape}({', '.join((*r.numbers, *r.pointers))});"


def _nest(loop: Loop) -> list[Loop]:
    """Loops of its kind, each the whole body of the one around it."""
    nest = [loop]
    while isinstance(nest[-1].body, Loop) and nest[-1].body.kind == loop.kind:
        nest.append(nest[-1].body)
    return nest


def _assignment(n: Store | Update) -> str:
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


def _device_text(n: OnDevice) -> str:
    match n:
        case Barrier():
            return "__syncthreads();"
        case GridBarrier(counter):
            return f"grid_sync({counter});"
        case BeginCopy():
            target, source = moved_text(n)
            where = "" if n.condition == TRUE else f", {condition_text(n.condition)}"
            return f"cp_async<{n.elements}>(&{target}, &{source}{where});"
        case CommitCopies():
            return "cp_async_commit();"
        case WaitCopies(pending):
            return f"cp_async_wait<{pending}>();"
        case LoadMatrices():
            name = f"ldmatrix_x{1 << len(n.steps)}{'_trans' * n.transposed}"
            return f"{name}(&{moved_text(n)[0]}, &{access_text(n.source, n.row)});"
        case MatrixMultiply():
            return f"mma_m16n8k{n.depth}(&{', &'.join(factors_text(n))});"
        case _:
            assert_never(n)
