"""A loop -> the function it is an instance of, and the values of the function's parameters.

Loops are alike if they differ in names of variables and buffers, in strides, in bounds that do not
change inside and in parts of expressions that are known outside the kernel's loops. Those become
parameters, numbered in the order of their use, so that alike loops give equal functions. Offsets
are simplified first: parameters hide that a quotient times its divisor is the dividend again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import mul
from typing import Any, assert_never

from tcsym.frontend.program import Expr, IndexValue, Read
from tcsym.index import (
    ONE,
    ZERO,
    Atom,
    Choose,
    Condition,
    FloorDiv,
    Index,
    Max,
    Min,
    Mod,
    Product,
    choose,
    floordiv,
    maximum,
    minimum,
    mod,
    of_atom,
    var,
)
from tcsym.index_values import map_condition
from tcsym.loop_ir import (
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
    map_value,
    subvalues,
    walk,
)
from tcsym.records import dataclass

LOCAL = ("register", "stack")


@dataclass(frozen=True, slots=True)
class Function:
    """A loop as a kernel: `sizes` and `variables` are numbers that it is called with.

    Buffers are pointers with strides; their shapes mean nothing.
    """

    kernel: Kernel
    variables: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.kernel.name


@dataclass(frozen=True, slots=True)
class Call:
    """What stands for a loop: values of the function's sizes and variables, and its buffers."""

    function: str
    numbers: tuple[Index, ...]
    buffers: tuple[str, ...]


class Alike:
    """Names for what a loop uses, in the order in which it does: alike loops become equal."""

    def __init__(self, kernel: Kernel, buffers: dict[str, Buffer], loop: Loop) -> None:
        self.known = frozenset(kernel.sizes)
        self.given = buffers
        self.bound: dict[str, str] = {}
        self.outer: dict[str, str] = {}
        self.buffers: dict[str, Buffer] = {}
        self.numbers: dict[object, str] = {}
        self.values: list[Index] = []
        self.role = ""  # the buffer or mask whose indices are being looked at
        self.with_rows = _needing_rows(loop)
        for name in _defined(loop):
            self.bound[name] = f"v{len(self.bound)}"

    def function(self, name: str, body: Node) -> Function:
        buffers = tuple(self.buffers.values())
        for b in buffers:
            body = Allocate(b.name, body) if b.space in LOCAL else body
        arguments = tuple(b.name for b in buffers if b.space not in LOCAL)
        sizes = tuple(self.numbers.values())
        return Function(Kernel(name, sizes, arguments, buffers, body), tuple(self.outer.values()))

    def call(self, function: str) -> Call:
        passed = [n for n, b in self.buffers.items() if b.space not in LOCAL]
        numbers = (*self.values, *map(var, self.outer))
        return Call(function, numbers, tuple(passed))

    # ---- parameters

    def number(self, value: Index, position: object = None) -> Index:
        """A parameter for `value`: the same one for equal values of one buffer, or one position."""
        key = (self.role, value) if position is None else position
        if key not in self.numbers:
            self.numbers[key] = f"s{len(self.numbers)}"
            self.values.append(value)
        return var(self.numbers[key])

    def buffer(self, name: str) -> Buffer:
        if name not in self.buffers:
            b, new = self.given[name], f"b{len(self.buffers)}"
            if b.space in LOCAL:
                self.buffers[name] = replace(b, name=new, private=frozenset())
            else:
                strides = self.strides(b, new) if name in self.with_rows else (ONE,)
                shape = tuple(ONE for _ in strides)
                self.buffers[name] = Buffer(new, b.dtype, shape, "argument", strides, b.padded)
        return self.buffers[name]

    def strides(self, b: Buffer, new: str) -> tuple[Index, ...]:
        return tuple(
            s if s.is_constant else self.number(s, (new, d))
            for d, s in enumerate(b.element_strides())
        )

    def subscripts(self, name: str, subscripts: tuple[Index | Expr, ...]) -> tuple[Any, ...]:
        """Of one dimension, where that is possible: offsets simplify, and constants are alike."""
        b = self.given[name]
        if b.space in LOCAL:
            return tuple([self.index(s) if isinstance(s, Index) else s for s in subscripts])
        self.role = self.buffer(name).name
        places = [s if isinstance(s, Index) else None for s in subscripts]
        if name in self.with_rows:
            at: tuple[Any, ...] = tuple(
                [s if p is None else self.row(p) for s, p in zip(subscripts, places)]
            )
        else:
            steps = zip(places, b.element_strides())
            at = (self.place(sum((p * step for p, step in steps if p is not None), ZERO)),)
        self.role = ""
        return at

    def place(self, e: Index) -> Index:
        """As `index`, always with a parameter: element 0 of a row is like element k."""
        fixed = Index(tuple(t for t in e.terms if _names(t[0]) <= self.known))
        return self.number(fixed) + self.index(e - fixed)

    def row(self, e: Index) -> Index:
        return self.number(e, ("row", self.role, e)) if e.is_constant else self.index(e)

    # ---- indices

    def index(self, e: Index) -> Index:
        """`e` with the parts that are known outside the kernel's loops as parameters."""
        names = e.variables()
        if not names:
            return e
        if names <= self.known:
            return self.number(e)
        fixed = tuple(t for t in e.terms if _names(t[0]) <= self.known)
        total = Index((), e.constant)
        if fixed:
            sizes = Index(fixed)
            total = total + self.number(sizes)
        moving = [t for t in e.terms if not _names(t[0]) <= self.known]
        if len(moving) > 1:
            moving.sort(key=lambda t: (self.shape_of(t[0]), t[1]))
        for atom, coefficient in moving:
            total = total + self.atom(atom) * coefficient
        return total

    def atom(self, atom: Atom) -> Index:
        match atom:
            case str():
                return var(self.variable(atom))
            case Product(factors):
                fixed = [of_atom(f) for f in factors if _names(f) <= self.known]
                moving = [f for f in factors if not _names(f) <= self.known]
                total = ONE
                if fixed:
                    sizes = reduce(mul, fixed)
                    total = self.number(sizes)
                return reduce(mul, map(self.atom, sorted(moving, key=self.shape_of)), total)
            case FloorDiv(a, b):
                return floordiv(self.index(a), self.index(b))
            case Mod(a, b):
                return mod(self.index(a), self.index(b))
            case Min(args):
                return minimum(*map(self.index, sorted(args, key=self.sum_shape)))
            case Max(args):
                return maximum(*map(self.index, sorted(args, key=self.sum_shape)))
            case Choose(c, a, b):
                return choose(self.condition(c), self.index(a), self.index(b))
            case _:
                assert_never(atom)

    def variable(self, name: str) -> str:
        if name in self.bound:
            return self.bound[name]
        if name not in self.outer:
            self.outer[name] = f"o{len(self.outer)}"
        return self.outer[name]

    def condition(self, c: Condition) -> Condition:
        return map_condition(c, self.index)

    def shape_of(self, atom: Atom) -> str:
        """The text of an atom without the names that alike loops may differ in."""
        match atom:
            case str():
                return "?" if atom in self.known else self.bound.get(atom, "!")
            case Product(factors):
                return "*".join(sorted(map(self.shape_of, factors)))
            case FloorDiv(a, b) | Mod(a, b):
                return f"{type(atom).__name__}({self.sum_shape(a)},{self.sum_shape(b)})"
            case Min(args) | Max(args):
                parts = ",".join(sorted(map(self.sum_shape, args)))
                return f"{type(atom).__name__}({parts})"
            case Choose(_, a, b):
                return f"Choose({self.sum_shape(a)},{self.sum_shape(b)})"
            case _:
                assert_never(atom)

    def sum_shape(self, e: Index) -> str:
        parts = sorted(f"{c}{self.shape_of(a)}" for a, c in e.terms if not _names(a) <= self.known)
        return f"{'+'.join(parts)}+{e.constant}"

    def apart(self, e: Index, role: str) -> Index:
        """As `index`, with parameters of its own: what is equal here may not be in a like loop."""
        self.role = role
        new = self.index(e)
        self.role = ""
        return new

    def limit(self, e: Index) -> Index:
        """A bound of a loop: a parameter of its own if it is the same in every iteration."""
        if e.is_constant or e.variables() & self.bound.keys():
            return self.index(e)
        return self.number(e, ("limit", len(self.numbers)))

    # ---- statements

    def value(self, v: Value) -> Value:
        return map_value(v, self.one_value, lambda i: i)

    def one_value(self, v: Value) -> Value:
        match v:
            case Read():
                at = self.subscripts(v.tensor, v.subscripts)
                return Read(self.buffer(v.tensor).name, at, v.dtype)
            case IndexValue():
                return replace(v, index=self.index(v.index))
            case Holds(c):
                return Holds(self.condition(c))
            case HorizontalReduce():
                return replace(v, variable=self.bound[v.variable])
            case _:
                return v

    def node(self, n: Node) -> Node:
        match n:
            case Loop():
                kind = "serial" if n.kind == "parallel" else n.kind
                return Loop(
                    self.bound[n.variable],
                    self.limit(n.lower),
                    self.limit(n.upper),
                    self.node(n.body),
                    kind,
                    n.order,
                    n.mask and self.apart(n.mask, self.bound[n.variable]),
                    n.unroll,
                )
            case Block(body):
                return Block(tuple(map(self.node, body)))
            case Branch(c, a, b):
                return Branch(self.condition(c), self.node(a), None if b is None else self.node(b))
            case Store() | Update():
                v, at = self.value(n.value), self.subscripts(n.buffer, n.subscripts)
                name = self.buffer(n.buffer).name
                return replace(n, buffer=name, subscripts=at, value=v, name="")
            case Prefetch():
                at = self.subscripts(n.buffer, n.subscripts)
                return Prefetch(self.buffer(n.buffer).name, at)
            case TransposeBlock():
                return replace(
                    n,
                    target=self.buffer(n.target).name,
                    target_subscripts=self.subscripts(n.target, n.target_subscripts),
                    source=self.buffer(n.source).name,
                    source_subscripts=self.subscripts(n.source, n.source_subscripts),
                    rows=self.apart(n.rows, "rows"),
                    columns=self.apart(n.columns, "columns"),
                )
            case Verify() | Allocate():
                raise AssertionError(f"not to be outlined: {n}")
            case _:
                assert_never(n)


def _names(atom: Atom) -> frozenset[str]:
    return of_atom(atom).variables()


def _defined(loop: Loop) -> Iterator[str]:
    """Variables of all loops and horizontal sums."""
    for n, _ in walk(loop):
        if isinstance(n, Loop):
            yield n.variable
        elif isinstance(n, Store | Update):
            for x in subvalues(n.value):
                if isinstance(x, HorizontalReduce):
                    yield x.variable


def _needing_rows(loop: Loop) -> frozenset[str]:
    """Buffers that are transposed or gathered from: their dimensions stay apart."""
    found: set[str] = set()
    for n, _ in walk(loop):
        if isinstance(n, TransposeBlock):
            found |= {n.target, n.source}
        elif isinstance(n, Store | Update):
            for x in subvalues(n.value):
                if isinstance(x, Read) and not all(isinstance(s, Index) for s in x.subscripts):
                    found.add(x.tensor)
    return frozenset(found)
