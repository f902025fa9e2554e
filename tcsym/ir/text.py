# SPDX-License-Identifier: Apache-2.0
"""Kernel of the loop IR -> text a person can read: loops by indentation, one statement a line.

kernel rows(N, D) X -> O
  X   float32[N, D]  argument
parallel i in 0:N  work 8*D
  vector l in 0:8 mask D - 8*t
    O[i, 8*t + l] = exp(X[i, 8*t + l])   # E
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from msgspec import Struct

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.frontend.program_text import INFIX
from tcsym.index.expr import FALSE, ONE, TRUE, Condition, Index, all_of, eq, mod, var
from tcsym.index.text import condition_text
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
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
)
from tcsym.ir.text_names import name_formulas
from tcsym.ir.traverse import value_children
from tcsym.sizes.context import context_condition
from tcsym.trees import fold

Statement = Store | Update | Verify | TransposeBlock | OnDevice
_ASSIGN = {"add": "+=", "mul": "*=", "min": "min=", "max": "max="}


def kernel_text(kernel: Kernel) -> str:
    """The whole kernel: its signature, its buffers, its body; formulas used again have names."""
    formulas, kernel = name_formulas(kernel)
    lines = [f"kernel {kernel.name}({', '.join(kernel.sizes)}) {' '.join(kernel.arguments)}"]
    if kernel.context:
        multiples = [eq(mod(var(k.name), k.step), 0) for k in kernel.context if k.step > 1]
        known = all_of([context_condition(kernel.context), *multiples])
        lines.append(f"  where {condition_text(known)}")
    lines += [f"  {name} = {e}" for name, e in formulas.items()]
    lines += [f"  {buffer_text(b)}" for b in kernel.buffers]
    if kernel.left_out != FALSE:
        lines.append(f"  left to another: {condition_text(kernel.left_out)}")
    for c in kernel.choices:
        of = ", ".join(c.costs.variables) or "no size"
        by = f"costs by {of} in {len(c.costs.steps)} steps"
        lines.append(f"  {c.variable} in 0:{c.versions}  {by}")
    lines += LoopText().lines(kernel.body, 0)
    return "\n".join(lines) + "\n"


def node_text(n: Node) -> str:
    return "\n".join(LoopText().lines(n, 0))


def buffer_text(b: Buffer) -> str:
    text = f"{b.name} {b.dtype}[{', '.join(map(str, b.shape))}] {b.space}"
    if b.strides is not None:
        text += f" strides ({', '.join(map(str, b.strides))})"
    if b.padded:
        text += " padded"
    if b.private:
        text += f" private to {', '.join(sorted(b.private))}"
    if b.phase:
        text += f" phase {b.phase}"
    if b.finite:
        text += f" finite {b.finite} if {condition_text(b.scanned)}"
    return text


# ---- statements


class LoopText(Struct, frozen=True):
    """Nodes as lines; other notations are subclasses."""

    def lines(self, n: Node, indent: int) -> Iterator[str]:
        match n:
            case Loop():
                yield from self.loop(n, indent)
            case Branch(condition, then, orelse):
                yield from self.nested(self.test(condition), self.lines(then, indent + 1), indent)
                if orelse is not None:
                    yield from self.nested("else", self.lines(orelse, indent + 1), indent)
            case Block(body):
                yield from (line for x in body for line in self.lines(x, indent))
            case Allocate(buffers, body):
                for buffer in buffers:
                    yield "  " * indent + self.allocation(buffer)
                yield from self.lines(body, indent)
            case _:
                yield "  " * indent + self.statement(n)

    def nested(self, head: str, body: Iterator[str], indent: int) -> Iterator[str]:
        """Lines that belong to what the head says."""
        yield "  " * indent + head
        yield from body

    def loop(self, loop: Loop, indent: int) -> Iterator[str]:
        yield from self.nested(loop_text(loop), self.lines(loop.body, indent + 1), indent)

    def test(self, condition: Condition) -> str:
        return f"if {condition_text(condition)}"

    def allocation(self, buffer: str) -> str:
        return f"allocate {buffer}"

    def statement(self, n: Statement) -> str:
        match n:
            case Store() | Update():
                sign = "=" if isinstance(n, Store) else _ASSIGN[n.op]
                left = access_text(n.buffer, n.subscripts)
                end = "  streamed" if isinstance(n, Store) and n.streamed else ""
                end = "  atomic" if isinstance(n, Update) and n.atomic else end
                return f"{left} {sign} {value_text(n.value)}{end}{_tag(n.name)}"
            case Verify(value, name):
                return f"verify {value_text(value)}{_tag(name)}"
            case TransposeBlock():
                return _transpose_text(n)
            case DeviceNode():
                return _device_text(n)
            case _:
                assert_never(n)


def loop_text(loop: Loop) -> str:
    """The head of a loop."""
    text = f"{loop.kind} {loop.variable} in {loop.lower}:{loop.upper}"
    if loop.unroll != 1:
        text += f" by {loop.unroll}"
    if loop.mask is not None:
        text += f" mask {loop.mask}"
    if loop.at is not None:
        text += f" at {loop.at if isinstance(loop.at, Index) else value_text(loop.at)}"
    if loop.value is not None:
        return f"read {loop.variable} = {value_text(loop.value)}"
    if loop.independent and loop.kind == "serial":
        text += "  (independent)"
    if loop.order != "sequential" and loop.kind in ("serial", "unrolled"):
        text += f"  ({loop.order})"
    if loop.resident != 1:
        text += f"  ({loop.resident} at once)"
    if loop.kind == "parallel" and loop.work != ONE:
        text += f"  work {loop.work}"
    return text


def _transpose_text(n: TransposeBlock) -> str:
    target, source = moved_text(n)
    text = f"transpose {n.block} {target} = {source} rows {n.rows} columns {n.columns}"
    if (n.source_row, n.target_column) != (-2, -2):
        text += f" along {n.source_row} of {n.source}, {n.target_column} of {n.target}"
    return text


def _device_text(n: OnDevice) -> str:
    match n:
        case Barrier():
            return "barrier"
        case GridBarrier(counter):
            return f"barrier of the grid, by {counter}"
        case BeginCopy():
            target, source = moved_text(n)
            where = "" if n.condition == TRUE else f" if {condition_text(n.condition)} else 0"
            return f"begin copy {n.elements} {target} = {source}{where}"
        case CommitCopies():
            return "commit copies"
        case WaitCopies(pending):
            return f"wait for copies but {pending}" if pending else "wait for copies"
        case LoadMatrices():
            target, source = moved_text(n)
            steps = "".join(f" and {down} down, {along} along" for down, along in n.steps)
            return f"load matrices{' transposed' * n.transposed} {target} = {source}{steps}"
        case MatrixMultiply():
            target, left, right = factors_text(n)
            return f"multiply 16x8x{n.depth} {target} += {left} * {right}"
        case _:
            assert_never(n)


def moved_text(n: BeginCopy | LoadMatrices | TransposeBlock) -> tuple[str, str]:
    """What is written, and what is read."""
    return access_text(n.target, n.target_subscripts), access_text(n.source, n.source_subscripts)


def factors_text(n: MatrixMultiply) -> tuple[str, str, str]:
    """What a product adds to, and what it multiplies."""
    target = access_text(n.target, n.target_subscripts)
    left = access_text(n.left, n.left_subscripts)
    return target, left, access_text(n.right, n.right_subscripts)


def _tag(name: str) -> str:
    return f"   # {name}" if name else ""


# ---- values


def value_text(v: Value) -> str:
    """A value in the language's notation; operators fully parenthesised below the top."""
    return fold(v, value_children, _of_parts)


def _of_parts(v: Value, parts: list[str]) -> str:
    match v:
        case Const(x, dtype):
            return f"{x}" if dtype.is_float else f"{dtype}({x})"
        case IndexValue(i, dtype):
            return f"{dtype}({i})"
        case Read(tensor, subscripts, _, checked):
            return _access(tensor, subscripts, parts) + ("?" if any(checked) else "")
        case Cast(_, dtype):
            return f"{dtype}({parts[0]})"
        case Call(function, _, _):
            return f"{function}({', '.join(parts)})"
        case Binary(op) if op not in INFIX:
            return f"{op}({', '.join(parts)})"
        case Holds(c):
            return condition_text(c)
        case HorizontalReduce(op, variable, width):
            return f"{op} over {variable} in 0:{width} of ({parts[0]})"
        case Shuffle(direction, lanes):
            return f"shuffle {direction} {lanes} of ({parts[0]})"
        case _:
            return _operator_text(v, list(map(_operand, value_children(v), parts)))


def _operator_text(v: Unary | Binary | Compare | Select, operands: list[str]) -> str:
    match v:
        case Unary(op):
            return f"{'-' if op == 'neg' else '!'}{operands[0]}"
        case Select():
            return "{} ? {} : {}".format(*operands)
        case _:
            return f"{operands[0]} {INFIX[v.op][0]} {operands[1]}"


def _operand(v: Value, text: str) -> str:
    infix = (Binary, Compare, Select, Holds)
    nested = isinstance(v, infix) and not (isinstance(v, Binary) and v.op in ("min", "max"))
    return f"({text})" if nested else text


def _access(buffer: str, subscripts: tuple[Index | Value, ...], parts: list[str]) -> str:
    others = iter(parts)
    texts = [str(s) if isinstance(s, Index) else next(others) for s in subscripts]
    return f"{buffer}[{', '.join(texts)}]"


def access_text(buffer: str, subscripts: tuple[Index | Value, ...]) -> str:
    parts = [value_text(s) for s in subscripts if not isinstance(s, Index)]
    return _access(buffer, subscripts, parts)
