# SPDX-License-Identifier: Apache-2.0
"""Random typed expressions, valid in their scope by construction and of tame magnitude."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import Index
from tcsym.types import DType, promote
from tests.fuzz.model import TensorModel

LITERALS = ("0.5", "1.0", "2.0", "0.25", "1.5", "3.0", "1", "2", "3", "0", "-1.5", "7")
# built-ins that take anything finite: name -> (arguments, magnitude of the result from theirs)
FUNCTIONS: dict[str, tuple[int, Callable[[float], float]]] = {
    **{n: (1, lambda m: 1.0) for n in ("sin", "cos", "tanh", "erf", "normcdf", "sinpi", "cospi")},
    **{n: (1, lambda m: m + 1) for n in ("fabs", "floor", "ceil", "round", "trunc", "cbrt")},
    **{n: (1, lambda m: 3.2) for n in ("atan", "asinh", "erfc", "acos", "asin", "j0", "j1")},
    **{n: (2, lambda m: m) for n in ("fmin", "fmax", "copysign", "nextafter")},
    **{n: (2, lambda m: 2 * m) for n in ("hypot", "fdim")},
    **{n: (1, lambda m: 40.0) for n in ("logb", "log", "log2", "log10", "rsqrt", "rcbrt")},
    "sqrt": (1, lambda m: m + 1),
    "atan2": (2, lambda m: 3.2),
    "fmod": (2, lambda m: m),
    "remainder": (2, lambda m: m),
    "fdivide": (2, lambda m: 1e3),
    "fma": (3, lambda m: m * m + m),
    "norm3d": (3, lambda m: 2 * m),
}


class Value(Struct, frozen=True):
    text: str
    dtype: DType
    magnitude: float
    literal: bool = False


class Scope(Struct):
    """Index and loop variables with their extents, and the tensors that may be read.

    `anchored` collects variables that some unguarded read gives exactly their extent.
    """

    rng: random.Random
    tensors: list[TensorModel]
    extents: dict[str, Index]
    level: int
    sizes: list[str]
    anchored: set[str] = field(default_factory=set)
    guards: int = 0

    def chance(self, p: float) -> bool:
        return self.rng.random() < p


def common_type(a: Value, b: Value) -> DType:
    """Type of `a op b` by the language's rules, literals adapting (LANGUAGE B7)."""
    for x, y in ((a, b), (b, a)):
        if x.literal and x.dtype.is_float:
            return y.dtype if y.dtype.is_float else DType.FLOAT32
        if x.literal and (y.dtype.is_float or y.dtype.bits >= 32):
            return y.dtype
    return promote(a.dtype, b.dtype)


def tame(v: Value) -> Value:
    limit = 100.0 if v.dtype in (DType.FLOAT16, DType.BFLOAT16) else 1e5
    if not v.dtype.is_float or v.magnitude <= limit:
        return v
    return Value(f"tanh({v.text})", v.dtype, 1.0)


def number(s: Scope, depth: int) -> Value:
    """A numeric expression that is not a literal."""
    if depth <= 0:
        return leaf(s)
    kinds: list[tuple[int, Callable[[Scope, int], Value]]] = [
        (6, _arithmetic),
        (2, _function),
        (2, _select),
        (2, _cast),
        (1, _negated),
        (1, _bits),
        (2, lambda s, _: leaf(s)),
    ]
    weights = [w for w, _ in kinds]
    (_, make), *_ = s.rng.choices(kinds, weights)
    return tame(make(s, depth - 1))


def literal(s: Scope, unsigned: bool = False) -> Value:
    text = s.rng.choice([x for x in LITERALS if not (unsigned and x.startswith("-"))])
    return Value(text, DType.FLOAT32 if "." in text else DType.INT32, abs(float(text)), True)


def leaf(s: Scope) -> Value:
    if s.extents and s.chance(0.12):
        return Value(s.rng.choice(sorted(s.extents)), DType.INT32, 33.0)
    if s.sizes and s.chance(0.06):
        return Value(s.rng.choice(s.sizes), DType.INT32, 33.0)
    v = read(s)
    return Value(f"int32({v.text})", DType.INT32, 1.0) if v.dtype is DType.BOOL else v


def _arithmetic(s: Scope, depth: int) -> Value:
    a = number(s, depth)
    b = literal(s, unsigned=not a.dtype.is_float) if s.chance(0.3) else number(s, depth)
    dtype = common_type(a, b)
    op = s.rng.choices(["+", "-", "*", "/", "%", "min", "max"], [5, 4, 4, 1, 1, 2, 2])[0]
    magnitude = {"*": a.magnitude * b.magnitude, "/": 50 * a.magnitude + 1}.get(
        op, a.magnitude + b.magnitude
    )
    if op == "/" and dtype.is_float and s.chance(0.8):
        b = replace(b, dtype=b.dtype if b.dtype.is_float else DType.FLOAT32, literal=False)
        text = f"({a.text} / (fabs({b.text}) + 0.5))"
        return Value(text, common_type(a, b), 2 * a.magnitude)
    if not b.literal and s.chance(0.5):
        a, b = b, a
    text = f"{op}({a.text}, {b.text})" if op in ("min", "max") else f"({a.text} {op} {b.text})"
    return Value(text, dtype, magnitude)


def _function(s: Scope, depth: int) -> Value:
    if s.chance(0.15):
        x = number(s, depth)
        dtype = x.dtype if x.dtype.is_float else DType.FLOAT32
        return Value(f"{s.rng.choice(['exp', 'expm1', 'exp2'])}(min({x.text}, 3))", dtype, 21.0)
    name = s.rng.choice(sorted(FUNCTIONS))
    arity, magnitude = FUNCTIONS[name]
    args = [number(s, depth if n == 0 else 0) for n in range(arity)]
    dtype = args[0].dtype
    for a in args[1:]:
        dtype = promote(dtype, a.dtype)
    if not dtype.is_float:
        dtype = DType.FLOAT32
    largest = max(a.magnitude for a in args)
    return Value(f"{name}({', '.join(a.text for a in args)})", dtype, magnitude(largest))


def _select(s: Scope, depth: int) -> Value:
    if s.chance(0.4):
        return shifted_read(s)
    c = condition(s, depth)
    s.guards += 1
    a = number(s, depth)
    b = literal(s, unsigned=not a.dtype.is_float) if s.chance(0.3) else number(s, depth)
    s.guards -= 1
    magnitude = max(a.magnitude, b.magnitude)
    return Value(f"({c} ? {a.text} : {b.text})", common_type(a, b), magnitude)


def _cast(s: Scope, depth: int) -> Value:
    v = number(s, depth)
    dtype = s.rng.choice([t for t in DType if t is not DType.BOOL] + [DType.FLOAT32] * 4)
    magnitude = v.magnitude if dtype.is_float and v.dtype.is_float else 300.0
    return Value(f"{dtype}({v.text})", dtype, magnitude)


def _negated(s: Scope, depth: int) -> Value:
    v = number(s, depth)
    return Value(f"(-{v.text})", v.dtype, v.magnitude)


def _bits(s: Scope, depth: int) -> Value:
    """Masks, shifts by any count, complements: of integers, and of floats that become ones."""
    left = number(s, depth)
    without = set(s.anchored)
    a, b = (x if x.dtype.is_integer else _as_integer(s, x) for x in (left, leaf(s)))
    op = s.rng.choice(["&", "|", "^", "<<", ">>", "~"])
    count = ""
    if op in ("<<", ">>"):
        count = s.rng.choice([b.text, "1", "3", "40"])
    elif op != "~" and s.chance(0.4):
        count = str(s.rng.randint(0, 127))
    if op == "~" or count not in ("", b.text):
        s.anchored = without  # the other operand is left out
    if op == "~":
        return Value(f"(~{a.text})", a.dtype, 300.0)
    dtype = a.dtype if count else common_type(a, b)
    return Value(f"({a.text} {op} {count or b.text})", dtype, 300.0)


def _as_integer(s: Scope, v: Value) -> Value:
    dtype = s.rng.choice([t for t in DType if t.is_integer])
    return Value(f"{dtype}({v.text})", dtype, 300.0)


def condition(s: Scope, depth: int) -> str:
    """A bool expression."""
    flags = [t for t in s.tensors if t.dtype is DType.BOOL]
    if flags and s.chance(0.15):
        return read(s, s.rng.choice(flags)).text
    if depth > 0 and s.chance(0.3):
        left = condition(s, depth - 1)
        s.guards += 1
        right = condition(s, depth - 1)
        s.guards -= 1
        op = s.rng.choice(["&&", "||", "&", "|", "^"])
        return s.rng.choice([f"({left} {op} {right})", f"({left} {op} {right})", f"(!({left}))"])
    op = s.rng.choice(["<", "<=", ">", ">=", "==", "!="])
    if s.extents and s.chance(0.4):
        v = s.rng.choice(sorted(s.extents))
        return s.rng.choice([f"({v} {op} {s.rng.randint(0, 5)})", f"({v} % 2 == 0)"])
    a = number(s, 0)
    b = literal(s, unsigned=True) if s.chance(0.4) else number(s, 0)
    return f"({a.text} {op} {b.text})"


# ---- reads


def read(s: Scope, tensor: TensorModel | None = None) -> Value:
    """A read of an element that exists wherever no size is zero (and mostly where one is)."""
    t = tensor or _preferred(s)
    guards: list[str] = []
    subscripts = [_subscript(s, extent, guards) for extent in t.shape]
    text = t.name + (f"({', '.join(subscripts)})" if subscripts else "")
    v = Value(text, t.dtype, t.magnitude)
    if not guards:
        return v
    zero = Value("false", v.dtype, 0) if t.dtype is DType.BOOL else Value("0", DType.INT32, 0, True)
    text = f"({' && '.join(guards)} ? {text} : {zero.text})"
    return Value(text, t.dtype if t.dtype is DType.BOOL else common_type(v, zero), t.magnitude)


def _preferred(s: Scope) -> TensorModel:
    """Tensors all of whose dimensions some variable runs over are taken three times as often."""
    known = set(s.extents.values())
    weights = [3 if all(e in known for e in t.shape) else 1 for t in s.tensors]
    return s.rng.choices(s.tensors, weights)[0]


def _subscript(s: Scope, extent: Index, guards: list[str]) -> str:
    matching = [v for v, e in s.extents.items() if e == extent]
    pointers = [
        t
        for t in s.tensors
        if t.bound == extent and len(t.shape) == 1 and t.shape[0] in s.extents.values()
    ]
    if pointers and s.level > 0 and s.chance(0.3):
        p = s.rng.choice(pointers)
        v = s.rng.choice([v for v, e in s.extents.items() if e == p.shape[0]])
        return f"{p.name}({v})"
    if matching:
        v = s.rng.choice(matching)
        if s.level > 0 and s.chance(0.1):
            return f"{extent} - 1 - {v}"
        if s.level > 0 and s.chance(0.05):
            return f"({v} + 1) % ({extent})"
        if s.level > 0 and s.chance(0.05):  # none is larger than the variable
            return s.rng.choice([f"{v} / 2", f"(2 * {v} + 1) / 4", f"(6 * {v} + 3) / 9"])
        if not s.guards:
            s.anchored.add(v)
        return v
    n = extent.as_int()
    if n is not None and n > 0:
        return str(s.rng.randrange(n))
    if s.extents and s.chance(0.3):
        v = s.rng.choice(sorted(s.extents))
        return s.rng.choice([f"{v} % ({extent})", f"min({v}, {extent} - 1)"])
    guards.append(f"{extent} > 0")
    return s.rng.choice(["0", f"{extent} - 1"])


def shifted_read(s: Scope) -> Value:
    """A neighbour, guarded: `(i >= 1 ? A(i - 1) : e)`, or `(i >= 1 && A(i - 1) > 0 ? x : e)`."""
    fitting = [
        (t, d, v)
        for t in s.tensors
        for d, e in enumerate(t.shape)
        for v, extent in s.extents.items()
        if e == extent and t.dtype is not DType.BOOL
    ]
    if not fitting:
        return leaf(s)
    t, d, v = s.rng.choice(fitting)
    n = s.rng.randint(1, 2)
    shift, guard = s.rng.choice(
        [(f"{v} - {n}", f"{v} >= {n}"), (f"{v} + {n}", f"{v} + {n} < {t.shape[d]}")]
    )
    s.guards += 1
    guards = [guard]
    subscripts = [
        shift if axis == d else _subscript(s, e, guards) for axis, e in enumerate(t.shape)
    ]
    a = Value(f"{t.name}({', '.join(subscripts)})", t.dtype, t.magnitude)
    if s.chance(0.25):
        guards.append(f"{a.text} > 0")
        a = leaf(s)
    s.guards -= 1
    b = literal(s, True)
    text = f"({' && '.join(guards)} ? {a.text} : {b.text})"
    return Value(text, common_type(a, b), max(a.magnitude, b.magnitude))
