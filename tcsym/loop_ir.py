"""Loop IR: typed loops over buffers, the vocabulary between scheduling and code generation.

Values are the program's expressions (`tcsym.frontend.program`), where `Read` loads from the buffer
of that name, plus `Holds` and `HorizontalReduce`. Loop variable names are unique in a kernel, so
passes address loops by name; statement names survive every pass. Memory is transformed by rewriting
subscripts and giving the buffer another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Literal, assert_never

from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index import (
    ONE,
    TRUE,
    Condition,
    Index,
    Values,
    map_condition,
    substitute,
)
from tcsym.records import dataclass
from tcsym.types import DType

# ---- values


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition on indices as a bool value."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class HorizontalReduce:
    """`op` over the lanes 0 <= variable < width of `value`; gives a scalar."""

    op: ReduceOp
    variable: str
    width: int
    value: Value
    dtype: DType


Value = Expr | Holds | HorizontalReduce
ReduceOp = Literal["add", "mul", "min", "max"]

# ---- statements


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[subscripts] = value, of the buffer's type."""

    buffer: str
    subscripts: tuple[Index, ...]
    value: Value
    name: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """buffer[subscripts] = buffer[subscripts] op value; siblings may be reassociated."""

    buffer: str
    subscripts: tuple[Index, ...]
    op: ReduceOp
    value: Value
    name: str = ""


@dataclass(frozen=True, slots=True)
class Verify:
    """Only the run-time checks of the reads in `value` (and of their guards)."""

    value: Value
    name: str = ""


LoopKind = Literal["serial", "parallel", "vector", "unrolled"]
LoopOrder = Literal["parallel", "reduction", "sequential"]


@dataclass(frozen=True, slots=True)
class Loop:
    """lower <= variable < upper, step 1.

    kind: how it is executed. vector and unrolled loops run from 0 to a constant; with `mask` (an
        Index) the iterations variable >= mask do nothing. A parallel loop runs on threads if
        (upper - lower) * work is worth it.
    order: what was proved: `parallel` (no dependence carried), `reduction` (only updates of one
        reduction carried: any order, but not concurrently), `sequential`.
    unroll: the emitter repeats a serial body that often. work: scalar operations an iteration.
    """

    variable: str
    lower: Index
    upper: Index
    body: Node
    kind: LoopKind = "serial"
    order: LoopOrder = "sequential"
    mask: Index | None = None
    unroll: int = 1
    work: Index = ONE


@dataclass(frozen=True, slots=True)
class Branch:
    condition: Condition
    then: Node
    orelse: Node | None = None


@dataclass(frozen=True, slots=True)
class Block:
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Allocate:
    """`buffer` exists during `body`; inside a parallel loop each thread has its own."""

    buffer: str
    body: Node


@dataclass(frozen=True, slots=True)
class Prefetch:
    buffer: str
    subscripts: tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class TransposeBlock:
    """target[t.., c, r] = source[s.., r, c] for r < rows, c < columns.

    Elsewhere in the block a padded target gets zeros, any other stays as it is. The two last
    subscripts of each side move; `block` x `block` elements, done in registers.
    """

    target: str
    target_subscripts: tuple[Index, ...]
    source: str
    source_subscripts: tuple[Index, ...]
    rows: Index
    columns: Index
    block: int


Node = Store | Update | Verify | Loop | Branch | Block | Allocate | Prefetch | TransposeBlock

# ---- buffers and kernels

Space = Literal["argument", "register", "stack", "arena"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage. `strides` in elements; None: row-major by `shape`.

    space: `argument` (caller's memory), `register` (every subscript consists of unrolled and vector
        variables), `stack` (constant shape), `arena` (sized at launch). Only arguments are not
        allocated by an `Allocate`.
    padded: lanes and rows of a tile beyond the extent may be read and written.
    private: variables of loops to each of whose iterations the contents are private (proved).
    """

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    space: Space = "argument"
    strides: tuple[Index, ...] | None = None
    padded: bool = False
    private: frozenset[str] = field(default_factory=frozenset)

    def element_strides(self) -> tuple[Index, ...]:
        if self.strides is not None:
            return self.strides
        out = [ONE]
        for extent in reversed(self.shape[1:]):
            out.insert(0, out[0] * extent)
        return tuple(out) if self.shape else ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """`arguments`: buffer names in calling order (inputs, then outputs). `sizes`: 64-bit run-time
    arguments in calling order: the program's sizes, then the symbolic strides of arguments.
    """

    name: str
    sizes: tuple[str, ...]
    arguments: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: Node

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)

    def with_buffer(self, buffer: Buffer) -> Kernel:
        """The kernel with that buffer added or replaced."""
        others = tuple(b for b in self.buffers if b.name != buffer.name)
        return replace(self, buffers=(*others, buffer))


def block(*nodes: Node | None) -> Node:
    """A sequence without nested blocks or gaps; a single node stands for itself."""
    flat: list[Node] = []
    for n in nodes:
        if n is not None:
            flat.extend(n.body if isinstance(n, Block) else (n,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


# ---- traversal


def map_value(v: Value, f: Callable[[Value], Value], on_index: Callable[[Index], Index]) -> Value:
    """Rebuild bottom-up: `on_index` on every index expression, then `f` on every value."""

    def go(x: Value) -> Value:
        return map_value(x, f, on_index)

    match v:
        case Const():
            return f(v)
        case IndexValue(i, _):
            return f(replace(v, index=on_index(i)))
        case Read():
            subs = tuple(on_index(s) if isinstance(s, Index) else go(s) for s in v.subscripts)
            unwritten = v.unwritten and map_condition(v.unwritten, on_index)
            return f(replace(v, subscripts=subs, unwritten=unwritten))  # type: ignore[arg-type]
        case Cast(x, _) | Unary(_, x, _):
            return f(replace(v, operand=go(x)))  # type: ignore[arg-type]
        case Binary(_, a, b) | Compare(_, a, b):
            return f(replace(v, left=go(a), right=go(b)))  # type: ignore[arg-type]
        case Select(c, a, b):
            return f(replace(v, condition=go(c), then=go(a), orelse=go(b)))  # type: ignore[arg-type]
        case Call(_, args):
            return f(replace(v, args=tuple(map(go, args))))  # type: ignore[arg-type]
        case Holds(c):
            return f(Holds(map_condition(c, on_index)))
        case HorizontalReduce():
            return f(replace(v, value=go(v.value)))
        case _:
            assert_never(v)


def same(x: Value) -> Value:
    return x


def substitute_value(v: Value, values: Values) -> Value:
    return map_value(v, same, lambda i: substitute(i, values))


def map_node(
    n: Node,
    on_node: Callable[[Node], Node | None] | None = None,
    on_value: Callable[[Value], Value] = same,
    on_index: Callable[[Index], Index] | None = None,
) -> Node:
    """Rebuild bottom-up; a node for which `on_node` gives None becomes an empty block."""
    ix = on_index or (lambda i: i)

    def value(v: Value) -> Value:
        return map_value(v, on_value, ix)

    def go(x: Node) -> Node:
        y = _with_parts(x, go, value, ix)
        if on_node is None:
            return y
        z = on_node(y)
        return Block(()) if z is None else z

    return go(n)


def _with_parts(
    n: Node,
    go: Callable[[Node], Node],
    value: Callable[[Value], Value],
    ix: Callable[[Index], Index],
) -> Node:
    """`n` with its child nodes, values and indices replaced."""

    def subs(s: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(map(ix, s))

    match n:
        case Store() | Update():
            return replace(n, subscripts=subs(n.subscripts), value=value(n.value))
        case Verify():
            return replace(n, value=value(n.value))
        case Loop():
            mask = None if n.mask is None else ix(n.mask)
            bounds = {"lower": ix(n.lower), "upper": ix(n.upper), "mask": mask}
            return replace(n, **bounds, work=ix(n.work), body=go(n.body))  # type: ignore[arg-type]
        case Branch(c, a, b):
            return Branch(map_condition(c, ix), go(a), None if b is None else go(b))
        case Block(body):
            return block(*map(go, body)) if body else n
        case Allocate(b, body):
            return Allocate(b, go(body))
        case Prefetch():
            return replace(n, subscripts=subs(n.subscripts))
        case TransposeBlock():
            target, source = subs(n.target_subscripts), subs(n.source_subscripts)
            moved = replace(n, target_subscripts=target, source_subscripts=source)
            return replace(moved, rows=ix(n.rows), columns=ix(n.columns))
        case _:
            assert_never(n)


def substitute_node(n: Node, values: Values) -> Node:
    return map_node(n, on_index=lambda i: substitute(i, values)) if values else n


def walk(n: Node, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Node, tuple[Loop, ...]]]:
    """Every node with its enclosing loops, outermost first; parents before children."""
    yield n, loops
    match n:
        case Loop():
            yield from walk(n.body, (*loops, n))
        case Branch(_, a, b):
            yield from walk(a, loops)
            if b is not None:
                yield from walk(b, loops)
        case Block(body):
            for x in body:
                yield from walk(x, loops)
        case Allocate(_, body):
            yield from walk(body, loops)
        case Store() | Update() | Verify() | Prefetch() | TransposeBlock():
            pass
        case _:
            assert_never(n)


def value_children(v: Value) -> tuple[Value, ...]:
    match v:
        case Const() | IndexValue() | Holds():
            return ()
        case Read(_, subscripts):
            return tuple(s for s in subscripts if not isinstance(s, Index))
        case Cast(x, _) | Unary(_, x, _):
            return (x,)
        case Binary(_, a, b) | Compare(_, a, b):
            return (a, b)
        case Select(c, a, b):
            return (c, a, b)
        case Call(_, args):
            return args
        case HorizontalReduce():
            return (v.value,)
        case _:
            assert_never(v)


def subvalues(v: Value) -> Iterator[Value]:
    yield v
    for c in value_children(v):
        yield from subvalues(c)


def loads(v: Value) -> tuple[Read, ...]:
    """All loads in `v`, also those inside subscripts."""
    return tuple(x for x in subvalues(v) if isinstance(x, Read))


def value_dtype(v: Value) -> DType:
    return DType.BOOL if isinstance(v, Compare | Holds) else v.dtype


def conditional(condition: Condition, node: Node) -> Node:
    return node if condition == TRUE else Branch(condition, node)
