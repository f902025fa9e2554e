# SPDX-License-Identifier: Apache-2.0
"""What a random program consists of so far, and the pieces that statement forms share.

Extents are known symbolically, so that later reads fit.
"""

from __future__ import annotations

import random

from msgspec import Struct, field

from tcsym.index.expr import Index, var
from tcsym.types import DType, holds
from tests.fuzz.expressions import Scope, Value, condition, number
from tests.fuzz.model import TensorModel


class Writer(Struct):
    rng: random.Random
    level: int
    sizes: list[str]
    inputs: list[TensorModel] = field(default_factory=list)
    made: list[TensorModel] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)  # size parameters
    far: list[str] = field(default_factory=list)  # those that may be far from sizes of arrays
    declared: set[str] = field(default_factory=set)
    points: list[tuple[Index, ...]] = field(default_factory=list)  # of statements: their extents
    may_fail: bool = False  # some accesses may be errors

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def fresh(self) -> str:
        return f"T{len(self.made)}"

    def scope(self, extents: dict[str, Index], *also: TensorModel) -> Scope:
        tensors = [*self.inputs, *self.made, *also]
        self.points.append(tuple(extents.values()))
        return Scope(
            self.rng,
            tensors,
            dict(extents),
            self.level,
            [*self.sizes, *(n for n in self.given if n not in self.far)],
        )

    def shape(self, max_rank: int = 3) -> tuple[Index, ...]:
        """Dimensions of some tensor, or sizes at random."""
        if self.chance(0.6):
            return self.rng.choice([*self.inputs, *self.made]).shape[:max_rank]
        rank = self.rng.choice([r for r in (0, 1, 1, 2, 2, 3) if r <= max_rank])
        return tuple(var(self.rng.choice(self.sizes)) for _ in range(rank))

    def add(self, name: str, v: Value, shape: tuple[Index, ...], magnitude: float) -> None:
        self.made.append(TensorModel(name, v.dtype, shape, max(magnitude, 1.0)))


# ---- pieces of statements


def variables(shape: tuple[Index, ...], letters: str = "ijlm") -> dict[str, Index]:
    names = [*letters, *(f"{letters[-1]}{n}" for n in range(len(letters), len(shape)))]
    return dict(zip(names, shape))


def left_side(name: str, subscripts: list[str] | dict[str, Index]) -> str:
    return f"{name}({', '.join(subscripts)})" if subscripts else name


def where(w: Writer, s: Scope, extra: str = "", loop: str = "") -> str:
    """Ranges for what no read determines (and sometimes for what one does), then `extra`."""
    clauses = [
        f"{v} in 0:{e}"
        for v, e in s.extents.items()
        if v != loop and (v not in s.anchored or w.chance(0.15))
    ]
    clauses += [extra] if extra else []
    return f" where {', '.join(clauses)}" if clauses else ""


def right_side(w: Writer, s: Scope, depth: int | None = None) -> Value:
    """A right-hand side; mostly numbers, sometimes bool."""
    if w.chance(0.06):
        return Value(condition(s, 1), DType.BOOL, 1.0)
    return number(s, w.rng.choice([0, 1, 2, 2, 3]) if depth is None else depth)


def converted(v: Value, dtype: DType) -> Value:
    """`v` so that it may be stored into `dtype`."""
    return v if holds(dtype, v.dtype) else Value(f"{dtype}({v.text})", dtype, v.magnitude)


def operator(w: Writer, v: Value) -> tuple[str, Value, float]:
    """A reduction operator, the term made fit for it, and the magnitude of the result."""
    op = w.rng.choices(["+=", "max=", "min=", "*="], [6, 2, 2, 1])[0]
    if op == "*=" and v.dtype.is_float:
        return op, Value(f"cos({v.text})", v.dtype, 1.0), 1.0
    small = v.dtype in (DType.FLOAT16, DType.BFLOAT16)
    if op == "+=" and v.dtype.is_float and v.magnitude > (10 if small else 1e4):
        v = Value(f"tanh({v.text})", v.dtype, 1.0)
    return op, v, v.magnitude * (40 if op == "+=" else 1)
