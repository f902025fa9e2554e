# SPDX-License-Identifier: Apache-2.0
"""Runs loop IR in plain Python: compiled to text, every access checked, fresh memory poisoned.

Vector and unrolled loops run one iteration after another. Floats are accumulated in float64,
and rounded where they are computed or stored. Meant for small sizes.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Collection, Iterable, Mapping
from ctypes import c_float
from functools import lru_cache
from types import CodeType

import numpy as np

from tcsym.frontend.interpret_functions import call
from tcsym.index.values import evaluate
from tcsym.ir.loops import THREADS, Buffer, Kernel, Node, Store, TransposeBlock, Update
from tcsym.ir.traverse import grids, walk
from tcsym.types import DType
from tests.schedule.memory import Clock, Memory, Tracked
from tests.schedule.python_text import kernel_lines, python_name
from tests.schedule.threads import Body, run_block


def execute(
    kernel: Kernel,
    sizes: Mapping[str, int],
    arrays: Mapping[str, np.ndarray],
    unset: Collection[str] = (),
    shuffle: int | None = None,
    backward: bool = False,
    chosen: Mapping[str, int] | None = None,
) -> dict[str, Memory]:
    """Run `kernel` in place on dense `arrays`; gives all memory at the end.

    The arguments `unset` hold nothing at first. `shuffle`: a seed; loops, and threads between their
    barriers, run in any order they may. `backward`: threads run last first. chosen: which version
    of nests runs, else the first.
    """
    memory: dict[str, Memory] = {}
    chance = None if shuffle is None else random.Random(shuffle)
    runtime = _Runtime(chance, backward, any(grids(kernel.body)))
    views: dict[str, np.ndarray] = {}
    for b in kernel.buffers:
        if b.space == "argument":
            shape = tuple(evaluate(e, sizes) for e in b.shape)
            views[b.name] = merged(arrays[b.name], shape)
            memory[b.name] = runtime.allocate(b, shape)
            if b.name not in unset:
                memory[b.name].load(views[b.name])
    launched = {**dict.fromkeys(kernel.launched, 0), **(chosen or {}), THREADS: 2}
    space = {python_name(s): int(v) for s, v in {**launched, **sizes}.items()}
    buffers = {b.name: b for b in kernel.buffers}
    known = {"memory": memory, "_": runtime, "buffers": buffers, "c_float": c_float}
    exec(_compiled(kernel), {**known, **space})
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
    text = "\n".join(kernel_lines(kernel))
    return compile(text, kernel.name, "exec")


def merged(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A view of the array's memory with neighbouring dimensions merged (`order.merge_loops`)."""
    view = array.view()
    view.shape = shape
    return view


_TYPES = {str(t): t for t in DType}
_ENDS = {name: (t.lowest, t.highest) for name, t in _TYPES.items()}


_BITS = {"bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor}


def of_bits(op: str, a: int, b: int, dtype: DType) -> int:
    """The count of a shift is read as unsigned."""
    if op in _BITS:
        return _BITS[op](a, b)
    count = min(b % (1 << dtype.bits), dtype.bits)
    return _Runtime.integer(a << count, str(dtype)) if op == "shl" else a >> count


class _Runtime:
    """What the generated text calls."""

    def __init__(self, chance: random.Random | None, backward: bool, on_device: bool) -> None:
        self.chance, self.backward, self.on_device = chance, backward, on_device
        self.clock = Clock()

    def run(self, body: Body, memory: dict[str, Memory], shape: tuple[int, ...]) -> None:
        """The threads of a block."""
        run_block(body, memory, shape, self.clock, self.order)

    def order(self, threads: Iterable[int]) -> list[int]:
        found = sorted(threads, reverse=self.backward)
        return found if self.chance is None else self.chance.sample(found, len(found))

    def steps(self, lower: int, upper: int, order: str, variable: str) -> Iterable[int]:
        """The values of a loop's variable. A loop that may be tiled never runs backwards."""
        if order == "sequential":
            return range(lower, upper)
        assert lower <= upper, f"{variable} runs from {lower} to {upper}"
        if self.chance is None:
            return range(lower, upper)
        return self.chance.sample(range(lower, upper), upper - lower)

    def allocate(self, buffer: Buffer, shape: tuple[int, ...]) -> Memory:
        between = self.on_device and buffer.space in ("argument", "arena", "shared")
        return Tracked(buffer, shape, self.clock) if between else Memory(buffer, shape)

    @staticmethod
    def div(a: int, b: int) -> int:
        return a // b if b else 0

    @staticmethod
    def mod(a: int, b: int) -> int:
        return a % b if b else 0

    @staticmethod
    def binary(op: str, a, b, t: str):
        if op in _BITS or op in ("shl", "shr"):
            return of_bits(op, a, b, _TYPES[t])
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
        return float(_TYPES[t].numpy.type(float(x)))

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
    ) -> None:
        for r in range(size):
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
