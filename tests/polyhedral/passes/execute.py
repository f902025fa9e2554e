"""Runs loop IR in plain Python: compiled to text, every access checked, fresh memory poisoned.

Vector and unrolled loops run one iteration after another; a stored value is rounded to its buffer's
type. Meant for small sizes and integer-valued data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import assert_never

import numpy as np

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
from tcsym.index import (
    All,
    Any_,
    Choose,
    Condition,
    FloorDiv,
    Index,
    IsZero,
    Max,
    Min,
    Mod,
    NonNegative,
    Not,
    Product,
)
from tcsym.index_values import evaluate
from tcsym.loop_ir import (
    THREADS,
    Allocate,
    Block,
    Branch,
    Buffer,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Prefetch,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    walk,
)
from tcsym.loop_ir_names import name_formulas

POISON = -987654321


class Memory:
    """One buffer: a flat list with bounds-checked access by subscripts."""

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], values: np.ndarray | None) -> None:
        self.buffer, self.shape = buffer, shape
        self.values = np.full(shape, POISON, dtype=object) if values is None else values

    def get(self, *at: int):
        value = self.values[self.inside(at)]
        assert value is not POISON or self.values.dtype != object, f"{self.buffer.name}{at} unset"
        return value

    def set(self, value, *at: int) -> None:
        self.values[self.inside(at)] = value

    def inside(self, at: tuple[int, ...]) -> tuple[int, ...]:
        ok = len(at) == len(self.shape) and all(0 <= i < n for i, n in zip(at, self.shape))
        assert ok, f"{self.buffer.name}{list(map(int, at))} outside {self.shape}"
        return tuple(map(int, at))


def execute(
    kernel: Kernel, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]
) -> dict[str, Memory]:
    """Run `kernel` in place on dense `arrays`; gives all memory at the end."""
    memory = {}
    for b in kernel.buffers:
        if b.space == "argument":
            shape = tuple(evaluate(e, sizes) for e in b.shape)
            memory[b.name] = Memory(b, shape, merged(arrays[b.name], shape))
    space = {"memory": memory, "_": _Runtime, "math": math, "kernel": kernel}
    space.update(
        {
            _name(s): int(v)
            for s, v in {**dict.fromkeys(kernel.launched, 0), THREADS: 2, **sizes}.items()
        }
    )
    formulas, kernel = name_formulas(kernel)  # written out they would be evaluated again and again
    lines = [f"{_name(name)} = {_index(e)}" for name, e in formulas.items()]
    text = "\n".join([*lines, *_node(kernel.body, kernel, ""), "pass"])
    exec(compile(text, kernel.name, "exec"), space)
    return memory


def merged(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A view of the array's memory with neighbouring dimensions merged (`passes.merge_loops`)."""
    view = array.view()
    view.shape = shape
    return view


def _name(v: str) -> str:
    return "v_" + v.replace("$", "_f_").replace(".", "_d_").replace(":", "_c_").replace("#", "_h_")


def _index(e: Index) -> str:
    return "+".join([f"({c})*{_atom(a)}" for a, c in e.terms] + [f"({e.constant})"])


def _atom(a) -> str:
    match a:
        case str():
            return _name(a)
        case Product(fs):
            return "(" + "*".join(map(_atom, fs)) + ")"
        case FloorDiv(x, y):
            return f"_.div({_index(x)},{_index(y)})"
        case Mod(x, y):
            return f"_.mod({_index(x)},{_index(y)})"
        case Min(args):
            return f"min({','.join(map(_index, args))})"
        case Max(args):
            return f"max({','.join(map(_index, args))})"
        case Choose(c, x, y):
            return f"(({_index(x)}) if {_condition(c)} else ({_index(y)}))"
        case _:
            assert_never(a)


def _condition(c: Condition) -> str:
    match c:
        case NonNegative(i):
            return f"({_index(i)} >= 0)"
        case IsZero(i):
            return f"({_index(i)} == 0)"
        case Not(x):
            return f"(not {_condition(x)})"
        case All(cs):
            return "(" + (" and ".join(map(_condition, cs)) or "True") + ")"
        case Any_(cs):
            return "(" + (" or ".join(map(_condition, cs)) or "False") + ")"
        case _:
            assert_never(c)


def _value(v: Value) -> str:
    match v:
        case Const(x, _):
            return f"float('{x}')" if isinstance(x, float) else str(x)
        case IndexValue(i, _):
            return f"({_index(i)})"
        case Read(b, subs):
            at = ",".join(_index(s) if isinstance(s, Index) else _value(s) for s in subs)
            return f"memory[{b!r}].get({at})"
        case Cast(x, t):
            return f"_.cast({_value(x)},{str(t)!r})"
        case Unary(op, x, _):
            return f"({'-' if op == 'neg' else 'not '}{_value(x)})"
        case Binary():
            return _binary(v)
        case Compare(op, a, b):
            return f"_.compare({op!r},{_value(a)},{_value(b)})"
        case Select(c, a, b, _):
            return f"({_value(a)} if {_value(c)} else {_value(b)})"
        case Call(f, args):
            return f"_.call({f!r},{','.join(map(_value, args))})"
        case Holds(c):
            return _condition(c)
        case HorizontalReduce(op, name, width, x, t):
            return f"_.reduce({op!r},[{_value(x)} for {_name(name)} in range({width})],{str(t)!r})"
        case _:
            assert_never(v)


def _binary(v: Binary) -> str:
    if v.op in ("and", "or"):
        return f"({_value(v.left)} {v.op} {_value(v.right)})"
    return f"_.binary({v.op!r},{_value(v.left)},{_value(v.right)},{str(v.dtype)!r})"


def _node(n: Node, k: Kernel, pad: str) -> list[str]:
    match n:
        case Store(b, subs, Read(tensor, place)) if k.buffer(b).padded and k.buffer(tensor).padded:
            to, at = (",".join(map(_index, s)) for s in (subs, place))  # with what was never set
            return [f"{pad}memory[{b!r}].set(memory[{tensor!r}].values[{at}],{to})"]
        case Store(b, subs, v):
            at = ",".join(map(_index, subs))
            return [
                f"{pad}memory[{b!r}].set(_.rounded({_value(v)},{str(k.buffer(b).dtype)!r}),{at})"
            ]
        case Update(b, subs, op, v):
            at, t = ",".join(map(_index, subs)), str(k.buffer(b).dtype)
            old = f"memory[{b!r}].get({at})"
            new = f"_.binary({op!r},{old},_.cast({_value(v)},{t!r}),{t!r})"
            return [f"{pad}memory[{b!r}].set(_.rounded({new},{t!r}),{at})"]
        case Verify(v):
            return [f"{pad}{_value(v)}"]
        case Loop():
            out = [f"{pad}for {_name(n.variable)} in range({_index(n.lower)},{_index(n.upper)}):"]
            if n.mask is not None:
                out.append(f"{pad} if {_name(n.variable)} >= {_index(n.mask)}:")
                out += [*_other_lanes(n, k, pad + "  "), f"{pad}  continue"]
            return out + (_node(n.body, k, pad + " ") or [pad + " pass"])
        case Branch(c, a, b):
            out = [f"{pad}if {_condition(c)}:", *(_node(a, k, pad + " ") or [pad + " pass"])]
            return (
                out
                if b is None
                else [*out, f"{pad}else:", *(_node(b, k, pad + " ") or [pad + " pass"])]
            )
        case Block(body):
            return [line for x in body for line in _node(x, k, pad)]
        case Allocate(b, body):
            shape = "".join(f"({_index(e)})," for e in k.buffer(b).shape)
            return [
                f"{pad}memory[{b!r}]=_.allocate(kernel.buffer({b!r}),({shape}))",
                *_node(body, k, pad),
            ]
        case Prefetch():
            return [f"{pad}pass"]
        case TransposeBlock(t, ts, s, ss, rows, columns, size, row, column, blocks):
            a, b = ",".join(map(_index, ts)), ",".join(map(_index, ss))
            return [
                f"{pad}_.transpose(memory[{t!r}],[{a}],memory[{s!r}],[{b}],"
                f"{_index(rows)},{_index(columns)},{size},{row},{column},{blocks})"
            ]
        case _:
            assert_never(n)


def _other_lanes(n: Loop, k: Kernel, pad: str) -> list[str]:
    """Generated code stores whole vectors into padded buffers, where masked loads give zeros."""
    stores = [x for x, _ in walk(n.body) if isinstance(x, Store) and k.buffer(x.buffer).padded]
    if n.kind != "vector":
        return []
    return [
        f"{pad}memory[{x.buffer!r}].set(0,{','.join(map(_index, x.subscripts))})" for x in stores
    ]


class _Runtime:
    """What the generated text calls."""

    @staticmethod
    def allocate(buffer: Buffer, shape: tuple[int, ...]) -> Memory:
        values = np.empty(tuple(max(0, n) for n in shape), dtype=object)
        values.fill(POISON)
        return Memory(buffer, shape, values)

    @staticmethod
    def div(a: int, b: int) -> int:
        return a // b if b else 0

    @staticmethod
    def mod(a: int, b: int) -> int:
        return a % b if b else 0

    @staticmethod
    def rounded(x, t: str):
        return bool(x) if t == "bool" else int(x) if "int" in t else x

    @staticmethod
    def cast(x, t: str):
        return bool(x) if t == "bool" else int(x) if "int" in t else float(x)

    @staticmethod
    def binary(op: str, a, b, t: str):
        if t == "bool":
            return bool(a or b) if op in ("add", "max") else bool(a and b)
        match op:
            case "add":
                return a + b
            case "sub":
                return a - b
            case "mul":
                return a * b
            case "div":
                return (a // b if b else 0) if "int" in t else a / b
            case "mod":
                return a - b * math.floor(a / b) if b else 0
            case _:
                if a != a or b != b:
                    return math.nan
                return min(a, b) if op == "min" else max(a, b)

    @staticmethod
    def compare(op: str, a, b) -> bool:
        table = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}
        return bool(table[op])

    @staticmethod
    def call(f: str, *args):
        return getattr(math, f)(*args)

    @staticmethod
    def reduce(op: str, lanes: list, t: str):
        total = lanes[0]
        for x in lanes[1:]:
            total = _Runtime.binary(op, total, x, t)
        return total

    @staticmethod
    def transpose(
        target: Memory,
        ts,
        source: Memory,
        ss,
        rows: int,
        columns: int,
        size: int,
        row: int,
        column: int,
        blocks: int,
    ) -> None:
        for r in range(size * blocks):
            for c in range(size):
                inside = r < rows and c < columns
                if inside or target.buffer.padded:
                    to, at = list(ts), list(ss)
                    to[column] += c
                    to[-1] += r
                    at[row] += r
                    at[-1] += c
                    target.set(source.get(*at) if inside else 0, *to)
