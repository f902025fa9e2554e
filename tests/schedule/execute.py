"""Runs loop IR in plain Python: compiled to text, every access checked, fresh memory poisoned.

Vector and unrolled loops run one iteration after another. Floats are accumulated in float64,
and rounded where they are computed or stored. Meant for small sizes.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any, assert_never

import numpy as np

from tcsym.frontend.interpret_functions import call
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
from tcsym.index.expr import (
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
from tcsym.index.values import evaluate
from tcsym.ir.loops import (
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
)
from tcsym.ir.packed import DOTS, PACK
from tcsym.ir.text_names import name_formulas
from tcsym.ir.traverse import walk
from tcsym.types import DType

POISON = -987654321
OPERATORS = {"add": "+", "sub": "-", "mul": "*"}


class Memory(dict[tuple[int, ...], Any]):
    """One buffer: what was set, by subscripts. What was not is missing; reading it is an error."""

    def __init__(self, buffer: Buffer, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.buffer, self.shape = buffer, shape
        self.sums: dict[tuple[int, ...], tuple[float, float]] = {}  # as rounded, and before

    def sum(self, at: tuple[int, ...]) -> float:
        """What was added up to this element: not rounded yet, if nothing was stored meanwhile."""
        value = self[at]
        rounded, wide = self.sums.get(at, (value, value))
        return wide if rounded == value else value

    def place(self, at: tuple[int, ...]) -> tuple[int, ...]:
        """Of an argument's only column, [.., 0, t] is [.., t, 0]: see `loop_ir.Buffer`."""
        if self.buffer.space == "argument" and len(at) > 1 and self.shape[-1] == 1:
            return (*at[:-2], at[-1], 0) if at[-2] == 0 else at
        return at

    def __missing__(self, at: tuple[int, ...]) -> Any:
        if self.place(at) in self:
            return self[self.place(at)]
        inside = len(at) == len(self.shape) and all(0 <= i < n for i, n in zip(at, self.shape))
        if inside and self.buffer.padded and self.buffer.space != "register":
            return math.nan  # beyond a row's end, for lanes that go nowhere: any use of it shows
        what = "unset" if inside else f"outside {self.shape}"
        raise AssertionError(f"{self.buffer.name}{list(at)} {what}")

    def checked(self, *at: int) -> tuple[int, ...]:
        """The place of an element to be set."""
        at = self.place(at)
        return at if at in self or all(map(_is_inside, at, self.shape)) else self[at]

    def copied(self, *at: int) -> Any:
        """What an element holds, perhaps nothing: who copies it need not use the copy."""
        at = self.place(at)
        inside = at in self or self.buffer.padded or all(map(_is_inside, at, self.shape))
        return self.get(at, POISON) if inside else self[at]

    def move(self, value: Any, *at: int) -> None:
        """Sets what may never have been set itself."""
        if value is POISON:
            self.pop(self.checked(*at), None)
        else:
            self[self.checked(*at)] = value

    def run_on(self, at: list[int], dimension: int) -> tuple[int, ...]:
        """The place whose last subscript counts through all dimensions inside that one."""
        inner = self.shape[dimension + 1 :]
        place = sum(i * math.prod(inner[d + 1 :]) for d, i in enumerate(at[dimension + 1 :]))
        if not inner or place not in range(math.prod(inner)):
            return tuple(at)
        return (*at[: dimension + 1], *map(int, np.unravel_index(place, inner)))

    def load(self, array: np.ndarray) -> None:
        places = itertools.product(*map(range, self.shape))
        self.update(zip(places, array.ravel().tolist()))

    def save(self, array: np.ndarray) -> None:
        for at, value in self.items():
            array[at] = value


def _is_inside(i: int, n: int) -> bool:
    return 0 <= i < n


def execute(
    kernel: Kernel,
    sizes: Mapping[str, int],
    arrays: Mapping[str, np.ndarray],
    unset: Collection[str] = (),
    shuffle: int | None = None,
) -> dict[str, Memory]:
    """Run `kernel` in place on dense `arrays`; gives all memory at the end.

    The arguments `unset` hold nothing at first. `shuffle`: a seed; loops run in any order they may.
    """
    memory = {}
    views: dict[str, np.ndarray] = {}
    for b in kernel.buffers:
        if b.space == "argument":
            shape = tuple(evaluate(e, sizes) for e in b.shape)
            views[b.name] = merged(arrays[b.name], shape)
            memory[b.name] = Memory(b, shape)
            if b.name not in unset:
                memory[b.name].load(views[b.name])
    launched = {**dict.fromkeys(kernel.launched, 0), THREADS: 2}
    space = {_name(s): int(v) for s, v in {**launched, **sizes}.items()}
    buffers = {b.name: b for b in kernel.buffers}
    runtime = _Runtime(None if shuffle is None else random.Random(shuffle))
    exec(_compiled(kernel), {"memory": memory, "_": runtime, "buffers": buffers, **space})
    for x, _ in walk(kernel.body):
        name = _written(x)
        if name in views:
            memory[name].save(views.pop(name))
    return memory


def _written(x: Node) -> str:
    match x:
        case Store() | Update():
            return x.buffer
        case TransposeBlock():
            return x.target
        case _:
            return ""


@lru_cache(maxsize=8)
def _compiled(kernel: Kernel) -> CodeType:
    formulas, kernel = name_formulas(kernel)  # written out they would be evaluated again and again
    lines = [f"{_name(name)} = {_index(e)}" for name, e in formulas.items()]
    text = "\n".join([*lines, *_node(kernel.body, kernel, ""), "pass"])
    return compile(text, kernel.name, "exec")


def merged(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A view of the array's memory with neighbouring dimensions merged (`order.merge_loops`)."""
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
            at = ",".join(map(_subscript, subs))
            return f"memory[{b!r}][{at or '()'}{',' * (len(subs) == 1)}]"
        case Cast(x, t):
            return _cast(_value(x), t)
        case Unary(op, x, t):
            return _cast(f"-{_value(x)}", t) if op == "neg" else f"(not {_value(x)})"
        case Binary():
            return _binary(v)
        case Compare(op, a, b):
            return f"_.compare({op!r},{_value(a)},{_value(b)})"
        case Select(c, a, b, _):
            return f"({_value(a)} if {_value(c)} else {_value(b)})"
        case Call():
            return _call(v)
        case Holds(c):
            return _condition(c)
        case HorizontalReduce(op, name, width, x, t):
            return f"_.reduce({op!r},[{_value(x)} for {_name(name)} in range({width})],{str(t)!r})"
        case _:
            assert_never(v)


def _call(v: Call) -> str:
    args = ",".join(map(_value, v.args))
    if v.function == PACK:
        return f"({args},)"
    if v.function in DOTS:
        return _cast(f"_.dot({args})", v.dtype)
    return f"_.call({v.function!r},{str(v.dtype)!r},{args})"


def _subscript(s: Index | Value) -> str:
    return _index(s) if isinstance(s, Index) else _value(s)


def _binary(v: Binary) -> str:
    if v.op in ("and", "or"):
        return f"({_value(v.left)} {v.op} {_value(v.right)})"
    if v.exact and v.op in OPERATORS:
        return f"({_value(v.left)}{OPERATORS[v.op]}{_value(v.right)})"
    text = _combined(v.op, _value(v.left), _value(v.right), v.dtype)
    return _cast(text, DType.FLOAT32) if v.dtype.is_float and v.dtype.bits < 64 else text


def _combined(op: str, a: str, b: str, t: DType) -> str:
    if t is not DType.BOOL and op in OPERATORS:
        return f"({a}{OPERATORS[op]}{b})" if t.is_float else _cast(f"{a}{OPERATORS[op]}{b}", t)
    return f"_.binary({op!r},{a},{b},{str(t)!r})"


def _cast(text: str, t: DType) -> str:
    if t is DType.BOOL or t is DType.FLOAT64:
        return f"{'float' if t.is_float else 'bool'}({text})"
    return f"_.{'rounded' if t.is_float else 'integer'}({text},{str(t)!r})"


def _place(buffer: str, subscripts: tuple[Index, ...]) -> str:
    at = ",".join(map(_index, subscripts))
    return f"memory[{buffer!r}][memory[{buffer!r}].checked({at})]"


def _node(n: Node, k: Kernel, pad: str) -> list[str]:
    match n:
        case Store(b, subs, Read(tensor, place, _, checked, None)) if not any(checked):
            to, at = (",".join(map(_subscript, s)) for s in (subs, place))
            copied = f"memory[{tensor!r}].copied({at})"
            return [f"{pad}memory[{b!r}].move({copied},{to})"]
        case Store(b, subs, v):
            return [f"{pad}{_place(b, subs)} = {_cast(_value(v), k.buffer(b).dtype)}"]
        case Update():
            return _update(n, k.buffer(n.buffer).dtype, pad)
        case Verify(v):
            return [f"{pad}{_value(v)}"]
        case Loop():
            steps = f"_.steps({_index(n.lower)},{_index(n.upper)},{n.order!r},{n.variable!r})"
            out = [f"{pad}for {_name(n.variable)} in {steps}:"]
            if n.mask is not None:
                out.append(f"{pad} if {_name(n.variable)} >= {_index(n.mask)}:")
                out += [*_other_lanes(n, k, pad + "  "), f"{pad}  continue"]
            return out + _arm(n.body, k, pad)
        case Branch(c, a, b):
            out = [f"{pad}if {_condition(c)}:", *_arm(a, k, pad)]
            return out if b is None else [*out, f"{pad}else:", *_arm(b, k, pad)]
        case Block(body):
            return [line for x in body for line in _node(x, k, pad)]
        case Allocate(b, body):
            shape = "".join(f"({_index(e)})," for e in k.buffer(b).shape)
            return [
                f"{pad}memory[{b!r}] = _.allocate(buffers[{b!r}],({shape}))",
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


def _arm(n: Node, k: Kernel, pad: str) -> list[str]:
    return _node(n, k, pad + " ") or [pad + " pass"]


def _update(n: Update, t: DType, pad: str) -> list[str]:
    wide = t.is_float and t.bits < 64  # such sums are kept in a wider type as well
    added = _value(n.value) if t.is_float else _cast(_value(n.value), t)
    new = _combined(n.op, "old.sum(at)" if wide else "old[at]", added, t)
    return [
        f"{pad}old = memory[{n.buffer!r}]",
        f"{pad}at = old.checked({','.join(map(_index, n.subscripts))})",
        f"{pad}old[at] = {_cast(f'new := {new}', t) if wide else new}",
        *([f"{pad}old.sums[at] = old[at], new"] if wide else []),
    ]


def _other_lanes(n: Loop, k: Kernel, pad: str) -> list[str]:
    """Generated code stores whole vectors into padded buffers, where masked loads give zeros."""
    stores = [x for x, _ in walk(n.body) if isinstance(x, Store) and k.buffer(x.buffer).padded]
    if n.kind != "vector":
        return []
    return [
        f"{pad}memory[{x.buffer!r}].move(0,{','.join(map(_index, x.subscripts))})" for x in stores
    ]


_TYPES = {str(t): t for t in DType}
_ENDS = {name: (t.lowest, t.highest) for name, t in _TYPES.items()}


class _Runtime:
    """What the generated text calls."""

    def __init__(self, chance: random.Random | None) -> None:
        self.chance = chance

    def steps(self, lower: int, upper: int, order: str, variable: str) -> Iterable[int]:
        """The values of a loop's variable. A loop that may be tiled never runs backwards."""
        if order == "sequential":
            return range(lower, upper)
        assert lower <= upper, f"{variable} runs from {lower} to {upper}"
        if self.chance is None:
            return range(lower, upper)
        return self.chance.sample(range(lower, upper), upper - lower)

    @staticmethod
    def allocate(buffer: Buffer, shape: tuple[int, ...]) -> Memory:
        return Memory(buffer, shape)

    @staticmethod
    def div(a: int, b: int) -> int:
        return a // b if b else 0

    @staticmethod
    def mod(a: int, b: int) -> int:
        return a % b if b else 0

    @staticmethod
    def binary(op: str, a, b, t: str):
        if t == "bool":
            return bool(a or b) if op in ("add", "max") else bool(a and b)
        match op:
            case "add":
                return a + b
            case "mul":
                return a * b
            case "div" if "int" in t:
                return a // b if b else 0
            case "div":
                return a / b if b else math.nan if a == 0 or a != a else math.copysign(math.inf, a)
            case "mod" if "int" in t:
                return a % b if b else 0
            case "mod":
                with np.errstate(all="ignore"):
                    return float(np.mod(np.float64(a), np.float64(b)))
            case _:
                if a != a or b != b:
                    return math.nan
                return min(a, b) if op == "min" else max(a, b)

    @staticmethod
    def compare(op: str, a, b) -> bool:
        table = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}
        return bool(table[op])

    @staticmethod
    def dot(x: tuple, y: tuple):
        """Of packed elements, or of the zeros beside a ragged tile."""
        return sum(a * b for a, b in zip(x, y)) if x and y else 0

    @staticmethod
    def integer(x, t: str) -> int:
        """As a value of an integer type: floats saturate, integers wrap. Packed ones stay."""
        if isinstance(x, tuple):
            return x
        lowest, highest = _ENDS[t]
        if isinstance(x, float):
            if x != x:
                return 0
            return int(x) if lowest <= x <= highest else lowest if x < 0 else highest
        return (x - lowest) % (highest - lowest + 1) + lowest

    @staticmethod
    def rounded(x, t: str) -> float:
        return float(np.float32(x)) if t == "float32" else float(_TYPES[t].numpy.type(float(x)))

    @staticmethod
    def call(f: str, t: str, *args):
        try:
            if f != "nextafter":  # the only one that asks for the type
                return float(getattr(math, f)(*args))
        except (AttributeError, ValueError, OverflowError):
            pass
        dtype = _TYPES[t]
        with np.errstate(all="ignore"):  # of no name in `math`, or where that raises
            return float(call(f, [np.full(1, x, dtype.numpy) for x in args], dtype)[0])

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
                    value = source[source.run_on(at, row)] if inside else 0
                    target.move(value, *target.run_on(to, column))
