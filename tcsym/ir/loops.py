"""Loop IR: typed loops over buffers, the vocabulary between scheduling and code generation.

Values are the program's expressions (`tcsym.frontend.program`), where `Read` loads from the buffer
of that name, plus `Holds` and `HorizontalReduce`. Loop variable names are unique in a kernel, so
passes address loops by name; statement names survive every pass. Memory is transformed by rewriting
subscripts and giving the buffer another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Any, Literal, assert_never

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
from tcsym.index.expr import FALSE, ONE, TRUE, ZERO, Condition, Index
from tcsym.index.values import Values, map_condition, substitute
from tcsym.sizes.context import Context
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

LINE_BYTES, STREAM_BYTES = 64, 16
Indices = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[subscripts] = value, of the buffer's type.

    `streamed`: whole vectors bypass the caches. Their addresses are multiples of STREAM_BYTES.
    """

    buffer: str
    subscripts: tuple[Index, ...]
    value: Value
    name: str = ""
    streamed: bool = False


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
    unroll: the emitter repeats a serial body that often. work: estimated time of an iteration, in
        sixteenths of a processor cycle.
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
    """The line of memory that a load will read. It may lie beyond the end: nothing is fetched."""

    read: Read


@dataclass(frozen=True, slots=True)
class TransposeBlock:
    """target[t.., c.., r] = source[s.., r.., c] for r < rows, c < columns.

    Elsewhere in the block a padded target gets zeros, any other stays as it is. The last subscript
    of each side moves and one more: the source's `source_row`, the target's `target_column`, both
    counted from the end. Dimensions inside of that count as one if the last subscript runs on into
    them. `block` x `block` elements, done in registers; or `blocks` of them side by side along the
    rows, each of which starts `block` rows after the one before, or early enough to be whole.
    `streamed`: if not 0, whole blocks bypass the caches; their columns are lines of the target.
    """

    target: str
    target_subscripts: tuple[Index, ...]
    source: str
    source_subscripts: tuple[Index, ...]
    rows: Index
    columns: Index
    block: int
    source_row: int = -2
    target_column: int = -2
    blocks: int = 1
    streamed: Index = ZERO

    @property
    def height(self) -> int:
        """Rows that are moved, where there are as many."""
        return self.block * self.blocks

    @property
    def spans(self) -> tuple[range, range]:
        """Dimensions of the target and of the source that it goes along, or may run on into."""
        target, source = len(self.target_subscripts), len(self.source_subscripts)
        return range(target + self.target_column, target), range(source + self.source_row, source)

    def element(self, row: Index | int, column: Index | int) -> tuple[Indices, Indices]:
        """Subscripts of one element, in the target and in the source."""
        t, s = list(self.target_subscripts), list(self.source_subscripts)
        t[self.target_column], t[-1] = t[self.target_column] + column, t[-1] + row
        s[self.source_row], s[-1] = s[self.source_row] + row, s[-1] + column
        return tuple(t), tuple(s)


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
    phase: an argument's variable, known at launch: its address in elements, modulo a cache line's.
    finite: another one: 1 if all elements are finite, 0 if not or if `scanned` does not hold.
    Subscripts are inside the shape, but a row-major argument whose last dimension is 1 may be read
    and written as a row: [.., 0, t] is where [.., t, 0] is.
    """

    name: str
    dtype: DType
    shape: tuple[Index, ...]
    space: Space = "argument"
    strides: tuple[Index, ...] | None = None
    padded: bool = False
    private: frozenset[str] = field(default_factory=frozenset)
    phase: str = ""
    finite: str = ""
    scanned: Condition = TRUE

    def element_strides(self) -> tuple[Index, ...]:
        if self.strides is not None:
            return self.strides
        out = [ONE]
        for extent in reversed(self.shape[1:]):
            out.insert(0, out[0] * extent)
        return tuple(out) if self.shape else ()


THREADS = "launch.threads"  # as many threads as the call may use, at least 1


@dataclass(frozen=True, slots=True)
class View:
    """If all of `units` are 1 in a call, the body runs with other sizes, for which it does the same
    to the same memory: in each group the last size is the product of all, the others are 1."""

    units: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """`arguments`: buffer names in calling order (inputs, then outputs). `sizes`: 64-bit run-time
    arguments in calling order: the program's sizes, then the symbolic strides of arguments.
    `context`: the sizes it is for; others need not be served. `left_out`: sizes of the body with
    which it returns at once and says so, as another kernel has code for them.
    """

    name: str
    sizes: tuple[str, ...]
    arguments: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: Node
    context: Context = ()
    view: View | None = None
    left_out: Condition = FALSE

    @property
    def launched(self) -> tuple[str, ...]:
        """Variables beside the sizes that a launch knows: of arguments, and its threads."""
        return (THREADS, *(v for b in self.buffers for v in (b.phase, b.finite) if v))

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


# What does not change is returned as it is: most of a kernel stays the same in most passes.


def map_value(v: Value, f: Callable[[Value], Value], on_index: Callable[[Index], Index]) -> Value:
    """Rebuild bottom-up: `on_index` on every index expression, then `f` on every value."""

    def go(x: Any) -> Any:
        return map_value(x, f, on_index)

    match v:
        case Const():
            return f(v)
        case IndexValue(i, _):
            new = on_index(i)
            return f(v if new is i else replace(v, index=new))
        case Read():
            return f(_map_read(v, go, on_index))
        case Cast(x, _) | Unary(_, x, _):
            inner = go(x)
            return f(v if inner is x else replace(v, operand=inner))
        case Binary(_, a, b) | Compare(_, a, b):
            left, right = go(a), go(b)
            same_ = left is a and right is b
            return f(v if same_ else replace(v, left=left, right=right))
        case Select(c, a, b):
            condition, then, orelse = go(c), go(a), go(b)
            if condition is c and then is a and orelse is b:
                return f(v)
            return f(replace(v, condition=condition, then=then, orelse=orelse))
        case Call(_, args):
            mapped = tuple(map(go, args))
            return f(v if all(map(is_, mapped, args)) else replace(v, args=mapped))
        case Holds(c):
            return f(Holds(map_condition(c, on_index)))
        case HorizontalReduce():
            inner = go(v.value)
            return f(v if inner is v.value else replace(v, value=inner))
        case _:
            assert_never(v)


def _map_read(r: Read, go: Callable[[Any], Any], on_index: Callable[[Index], Index]) -> Read:
    subs = tuple([on_index(s) if isinstance(s, Index) else go(s) for s in r.subscripts])
    unwritten = r.unwritten and map_condition(r.unwritten, on_index)
    if unwritten == r.unwritten and all(map(is_, subs, r.subscripts)):
        return r
    return replace(r, subscripts=subs, unwritten=unwritten)


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
    ix = on_index or _same_index
    leaves_values = on_value is same and on_index is None

    def value(v: Value) -> Value:
        return v if leaves_values else map_value(v, on_value, ix)

    def go(x: Node) -> Node:
        y = _with_parts(x, go, value, ix)
        if on_node is None:
            return y
        z = on_node(y)
        return Block(()) if z is None else z

    return go(n)


def _same_index(i: Index) -> Index:
    return i


def _with_parts(
    n: Node,
    go: Callable[[Node], Node],
    value: Callable[[Value], Value],
    ix: Callable[[Index], Index],
) -> Node:
    """`n` with its child nodes, values and indices replaced."""

    def subs(s: tuple[Index, ...]) -> tuple[Index, ...]:
        new = s if ix is _same_index else tuple(map(ix, s))
        return s if all(map(is_, new, s)) else new

    match n:
        case Block(body):
            parts = tuple(map(go, body))
            flat = len(parts) != 1 and not any(isinstance(x, Block) for x in parts)
            return n if flat and all(map(is_, parts, body)) else block(*parts)
        case Store() | Update():
            places, v = subs(n.subscripts), value(n.value)
            if places is n.subscripts and v is n.value:
                return n
            return replace(n, subscripts=places, value=v)
        case Verify():
            v = value(n.value)
            return n if v is n.value else replace(n, value=v)
        case Loop():
            return _with_loop_parts(n, go(n.body), ix)
        case Branch():
            return _with_branch_parts(n, go, ix)
        case Allocate(b, body):
            inner = go(body)
            return n if inner is body else Allocate(b, inner)
        case Prefetch():
            read = value(n.read)
            return n if read is n.read else Prefetch(read) if isinstance(read, Read) else block()
        case TransposeBlock():
            target, source = subs(n.target_subscripts), subs(n.source_subscripts)
            moved = replace(n, target_subscripts=target, source_subscripts=source)
            rows, columns, streamed = ix(n.rows), ix(n.columns), ix(n.streamed)
            return replace(moved, rows=rows, columns=columns, streamed=streamed)
        case _:
            assert_never(n)


def _with_branch_parts(n: Branch, go: Callable[[Node], Node], ix: Callable[[Index], Index]) -> Node:
    condition = n.condition if ix is _same_index else map_condition(n.condition, ix)
    then, orelse = go(n.then), None if n.orelse is None else go(n.orelse)
    unchanged = condition == n.condition and then is n.then and orelse is n.orelse
    return n if unchanged else Branch(condition, then, orelse)


def _with_loop_parts(n: Loop, body: Node, ix: Callable[[Index], Index]) -> Loop:
    if ix is _same_index:
        return n if body is n.body else replace(n, body=body)
    lower, upper, work = ix(n.lower), ix(n.upper), ix(n.work)
    mask = None if n.mask is None else ix(n.mask)
    before = (n.body, n.lower, n.upper, n.work, n.mask)
    if all(map(is_, (body, lower, upper, work, mask), before)):
        return n
    return replace(n, lower=lower, upper=upper, mask=mask, work=work, body=body)


def substitute_node(n: Node, values: Values) -> Node:
    return map_node(n, on_index=lambda i: substitute(i, values)) if values else n


def walk(n: Node, loops: tuple[Loop, ...] = ()) -> Iterator[tuple[Node, tuple[Loop, ...]]]:
    """Every node with its enclosing loops, outermost first; parents before children."""
    todo = [(n, loops)]
    while todo:
        item = todo.pop()
        yield item
        n, loops = item
        match n:
            case Block(body):
                todo += [(x, loops) for x in reversed(body)]
            case Store() | Update():
                pass
            case Loop():
                todo.append((n.body, (*loops, n)))
            case Branch(_, a, b):
                todo += [(a, loops)] if b is None else [(b, loops), (a, loops)]
            case Allocate(_, body):
                todo.append((body, loops))
            case Verify() | Prefetch() | TransposeBlock():
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
    """`v` and every value inside it, parents before children."""
    todo = [v]
    while todo:
        v = todo.pop()
        yield v
        todo += reversed(value_children(v))


def loads(v: Value) -> tuple[Read, ...]:
    """All loads in `v`, also those inside subscripts."""
    return tuple([x for x in subvalues(v) if isinstance(x, Read)])


def value_dtype(v: Value) -> DType:
    return DType.BOOL if isinstance(v, Compare | Holds) else v.dtype


def conditional(condition: Condition, node: Node) -> Node:
    return node if condition == TRUE else Branch(condition, node)
