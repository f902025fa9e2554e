# SPDX-License-Identifier: Apache-2.0
"""Loop IR + arrays -> results: runs a kernel one scalar at a time. For tests of all passes.

Loops of every kind run serially (vector and unrolled ones lane by lane, under their mask). To test
what was proved, `shuffle` runs loops of order `parallel` and `reduction` in random order and
overwrites the storage that is private to a loop at the start of each of its iterations. Every
subscript is checked against the buffer's shape. Allocated storage starts as garbage.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, assert_never

import numpy as np
from msgspec.structs import replace

from tcsym.errors import ERROR_KINDS
from tcsym.frontend.interpret_functions import call
from tcsym.frontend.interpret_values import (
    arithmetic,
    cast,
    compare,
    exact_arithmetic,
    held_in,
    stored,
)
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
    Atom,
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
    index,
)
from tcsym.index.values import evaluate
from tcsym.ir.device import DeviceNode, not_on_a_cpu
from tcsym.ir.loops import (
    THREADS,
    Allocate,
    Block,
    Branch,
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
from tcsym.types import DType
from tests.schedule.memory import place_in

Env = dict[str, int]
Run = Callable[[Env], Any]


def execute(
    kernel: Kernel,
    inputs: Mapping[str, Any],
    sizes: Mapping[str, int],
    shuffle: int | None = None,
) -> dict[str, Any]:
    """Arrays of all arguments but inputs, in the shapes of the kernel's buffers.

    `sizes` without strides; `shuffle`: a random seed.
    """
    env = dict.fromkeys(kernel.launched, 0) | {THREADS: 2} | dict(sizes)
    formulas, kernel = name_formulas(kernel)  # written out they would be evaluated again and again
    for name, formula in formulas.items():
        env[name] = evaluate(formula, env)
    machine = Machine(kernel, None if shuffle is None else random.Random(shuffle))
    return machine.run(inputs, env)


class Machine:
    def __init__(self, kernel: Kernel, chance: random.Random | None):
        self.kernel, self.chance = kernel, chance
        self.arrays: dict[str, Any] = {}
        self.buffers = {b.name: b for b in kernel.buffers}

    def run(self, inputs: Mapping[str, Any], env: Env) -> dict[str, Any]:
        """Arrays of the arguments that are no inputs."""
        for name, x in inputs.items():
            shape = tuple(evaluate(e, env) for e in self.buffers[name].shape)
            self.arrays[name] = np.reshape(x, shape)
        names = [n for n in self.kernel.arguments if n not in inputs]
        for name in names:
            self.allocate(name, env)
        with np.errstate(all="ignore"):
            self.node(self.kernel.body)(env)
        return {n: self.arrays[n] for n in names}

    def allocate(self, name: str, env: Env) -> None:
        b = self.buffers[name]
        shape = tuple(evaluate(x, env) for x in b.shape)
        self.arrays[name] = _garbage(shape, b.dtype)

    # ---- nodes

    def node(self, n: Node) -> Run:
        match n:
            case Store(buffer, subscripts, value):
                return self._store(buffer, subscripts, self.value(value))
            case Update():
                return self._update(n)
            case Verify(value):
                return self.value(value)
            case Loop():
                return self._loop(n) if n.value is None else self._once(n, self.value(n.value))
            case Branch(c, a, b):
                test, yes = _condition(c), self.node(a)
                no = self.node(b) if b is not None else (lambda env: None)
                return lambda env: (yes if test(env) else no)(env)
            case Block(body):
                return _in_order([self.node(x) for x in body])
            case Allocate(buffers, body):
                first = [partial(self.allocate, buffer) for buffer in buffers]
                return _in_order([*first, self.node(body)])
            case TransposeBlock():
                return self._transpose(n)
            case DeviceNode():
                raise not_on_a_cpu(n)
            case _:
                assert_never(n)

    def _store(self, buffer: str, subscripts: tuple[Index, ...], value: Run) -> Run:
        place, dtype = self._place(buffer, subscripts), self.buffers[buffer].dtype

        def store(env: Env) -> None:
            v = value(env)
            self.arrays[buffer][place(env)] = stored(np.asarray(v), dtype)

        return store

    def _update(self, n: Update) -> Run:
        place, dtype, value = (
            self._place(n.buffer, n.subscripts),
            self.buffers[n.buffer].dtype,
            self.value(n.value),
        )

        def update(env: Env) -> None:
            at = place(env)
            old = np.asarray(self.arrays[n.buffer][at]).astype(held_in(dtype))
            new = arithmetic(n.op, old, np.asarray(value(env)).astype(held_in(dtype)))
            self.arrays[n.buffer][at] = stored(np.asarray(new), dtype)

        return update

    def _once(self, n: Loop, value: Run) -> Run:
        """The one iteration for which the variable has that value."""
        body = self.node(n.body)

        def read(env: Env) -> None:
            env[n.variable] = int(value(env))
            body(env)
            env.pop(n.variable, None)

        return read

    def _loop(self, n: Loop) -> Run:
        lower, upper, body = _integer(n.lower), _integer(n.upper), self.node(n.body)
        mask = None if n.mask is None else _integer(n.mask)
        at = n.at and (_integer(n.at) if isinstance(n.at, Index) else self.value(n.at))
        own = [b.name for b in self.buffers.values() if n.variable in b.private]

        def loop(env: Env) -> None:
            values = list(range(lower(env), upper(env)))
            if at is not None:
                values = [v for v in values if v == int(at(env))]
            if self.chance is not None and n.order != "sequential":
                self.chance.shuffle(values)
            limit = None if mask is None else mask(env)
            for v in values:
                if limit is None or v < limit:
                    for name in own if self.chance is not None else ():
                        b = self.arrays.get(name)
                        if b is not None:
                            self.arrays[name] = _garbage(b.shape, self.buffers[name].dtype)
                    env[n.variable] = v
                    body(env)
            env.pop(n.variable, None)

        return loop

    def _transpose(self, n: TransposeBlock) -> Run:
        target = [_integer(x) for x in n.target_subscripts]
        source = [_integer(x) for x in n.source_subscripts]
        rows, columns = _integer(n.rows), _integer(n.columns)
        padded = self.buffers[n.target].padded

        def transpose(env: Env) -> None:
            t, s = [x(env) for x in target], [x(env) for x in source]
            for r in range(n.block):
                for c in range(n.block):
                    inside = r < rows(env) and c < columns(env)
                    moved = replace(
                        n,
                        target_subscripts=tuple(map(index, t)),
                        source_subscripts=tuple(map(index, s)),
                    )
                    to, at = (tuple(x.constant for x in y) for y in moved.element(r, c))
                    if inside or padded:
                        self.arrays[n.target][to] = self.arrays[n.source][at] if inside else 0

        return transpose

    # ---- values

    def _place(self, buffer: str, subscripts: tuple[Index, ...]) -> Run:
        parts = [_integer(x) for x in subscripts]

        def place(env: Env) -> tuple[int, ...]:
            at = tuple(p(env) for p in parts)
            shape = self.arrays[buffer].shape
            at = place_in(self.buffers[buffer], shape, at)
            inside = len(at) == len(shape) and all(0 <= x < e for x, e in zip(at, shape))
            assert inside, f"{buffer}{at} outside {shape}"
            return at

        return place

    def value(self, v: Value) -> Run:
        match v:
            case Const(c, dtype):
                constant = np.asarray(float(c) if dtype.is_float else int(c), held_in(dtype))
                return lambda env: constant
            case IndexValue(i, dtype):
                exact = _integer(i)
                low, modulus = dtype.lowest, 1 << dtype.bits
                return lambda env: np.asarray((exact(env) - low) % modulus + low, dtype=dtype.numpy)
            case Read():
                return self._read(v)
            case Cast(x, dtype):
                inner = self.value(x)
                return lambda env: cast(np.atleast_1d(inner(env)), dtype)[0]
            case Unary(op, x, _):
                inner = self.value(x)
                negate = op == "neg"
                return lambda env: (np.negative if negate else np.logical_not)(inner(env))
            case Binary():
                return self._binary(v)
            case Compare(op, a, b):
                left, right = self.value(a), self.value(b)
                return lambda env: compare(op, np.asarray(left(env)), np.asarray(right(env)))
            case Select(c, a, b):
                test, yes, no = self.value(c), self.value(a), self.value(b)
                return lambda env: yes(env) if test(env) else no(env)
            case Call(function, args, dtype):
                parts = [self.value(a) for a in args]
                return lambda env: call(function, [np.atleast_1d(p(env)) for p in parts], dtype)[0]
            case Holds(c):
                holds = _condition(c)
                return lambda env: np.bool_(holds(env))
            case HorizontalReduce() | Shuffle():
                return self._of_lanes(v)
            case _:
                assert_never(v)

    def _binary(self, v: Binary) -> Run:
        left, right = self.value(v.left), self.value(v.right)
        if v.op == "and":
            return lambda env: np.bool_(left(env) and right(env))
        if v.op == "or":
            return lambda env: np.bool_(left(env) or right(env))
        if not v.exact:
            return lambda env: arithmetic(v.op, np.asarray(left(env)), np.asarray(right(env)))

        def exact(env: Env) -> Any:
            a, b = np.atleast_1d(left(env)), np.atleast_1d(right(env))
            result = exact_arithmetic(v.op, a, b)
            if result is None:
                raise ERROR_KINDS["size"]("overflow in a subscript", span=v.span)
            return result[0]

        return exact

    def _read(self, v: Read) -> Run:
        parts = [_integer(s) if isinstance(s, Index) else self.value(s) for s in v.subscripts]
        checked = v.checked or (False,) * len(parts)
        unwritten = None if v.unwritten is None else _condition(v.unwritten)
        dtype = self.buffers[v.tensor].dtype

        def read(env: Env) -> Any:
            array = self.arrays[v.tensor]
            at = tuple(int(p(env)) for p in parts)
            if not any(checked):
                at = place_in(self.buffers[v.tensor], array.shape, at)
            for x, extent, c in zip(at, array.shape, checked):
                if not 0 <= x < extent:
                    if c:
                        raise ERROR_KINDS["bounds"](f"{v.tensor}{at} of {array.shape}", span=v.span)
                    raise AssertionError(f"{v.tensor}{at} outside {array.shape}")
            if unwritten is not None and unwritten(env):
                raise ERROR_KINDS["init"](f"{v.tensor}{at}", span=v.span)
            return np.asarray(array[at]).astype(held_in(dtype))

        return read

    def _of_lanes(self, v: HorizontalReduce | Shuffle) -> Run:
        if isinstance(v, Shuffle):
            raise not_on_a_cpu(v)
        lane = self.value(v.value)

        def reduce(env: Env) -> Any:
            values = [np.asarray(lane({**env, v.variable: k})) for k in range(v.width)]
            total = values[0]
            for x in values[1:]:
                total = arithmetic(v.op, total, x)
            return total

        return reduce


def _in_order(parts: list[Run]) -> Run:
    def run(env: Env) -> None:
        for part in parts:
            part(env)

    return run


def _garbage(shape: tuple[int, ...], dtype: DType) -> Any:
    if dtype.is_float:
        return np.full(shape, np.nan, dtype.numpy)
    return np.full(shape, 1 if dtype is DType.BOOL else 77, dtype.numpy)


# ---- index expressions, compiled to Python


def _integer(e: Index) -> Callable[[Env], int]:
    return eval(f"lambda e: {_sum(e)}", {"math": math})  # type: ignore[no-any-return]


def _condition(c: Condition) -> Callable[[Env], bool]:
    return eval(f"lambda e: {_test(c)}", {"math": math})  # type: ignore[no-any-return]


def _sum(e: Index) -> str:
    return "(" + " + ".join([*(f"{c}*{_atom(a)}" for a, c in e.terms), str(e.constant)]) + ")"


def _atom(a: Atom) -> str:
    match a:
        case str():
            return f"e[{a!r}]"
        case Product(factors):
            return "(" + "*".join(map(_atom, factors)) + ")"
        case FloorDiv(x, y):
            return f"({_sum(x)}//{_sum(y)} if {_sum(y)} else 0)"
        case Mod(x, y):
            return f"({_sum(x)}%{_sum(y)} if {_sum(y)} else 0)"
        case Min(args):
            return f"min({', '.join(map(_sum, args))})"
        case Max(args):
            return f"max({', '.join(map(_sum, args))})"
        case Choose(c, x, y):
            return f"({_sum(x)} if {_test(c)} else {_sum(y)})"
        case _:
            assert_never(a)


def _test(c: Condition) -> str:
    match c:
        case NonNegative(i):
            return f"({_sum(i)} >= 0)"
        case IsZero(i):
            return f"({_sum(i)} == 0)"
        case Not(inner):
            return f"(not {_test(inner)})"
        case All(cs):
            return "(" + " and ".join(["True", *map(_test, cs)]) + ")"
        case Any_(cs):
            return "(" + " or ".join(["False", *map(_test, cs)]) + ")"
        case _:
            assert_never(c)
