# SPDX-License-Identifier: Apache-2.0
"""Loop IR: typed loops over buffers, the vocabulary between scheduling and code generation.

Values are the program's expressions (`tcsym.frontend.program`), where `Read` loads from the buffer
of that name, plus `Holds`, `HorizontalReduce` and `Shuffle`. Loop variable names are unique in a
kernel, so passes address loops by name; statement names survive every pass. Memory is transformed
by rewriting subscripts and giving the buffer another shape. What a kind of target admits of all
this is a table of `tcsym.ir.verify`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Compare, Expr
from tcsym.index.expr import FALSE, ONE, TRUE, Condition, Index, index
from tcsym.index.straight_line import StraightLine
from tcsym.ir.device import OnDevice
from tcsym.sizes.context import Context
from tcsym.types import DType

# ---- values


class Holds(Struct, frozen=True):
    """A condition on indices as a bool value."""

    condition: Condition


class HorizontalReduce(Struct, frozen=True, cache_hash=True):
    """`op` over the lanes 0 <= variable < width of `value`; gives a scalar."""

    op: ReduceOp
    variable: str
    width: int
    value: Value
    dtype: DType


class Shuffle(Struct, frozen=True, cache_hash=True):
    """The `value` of another thread of the warp, of which all threads compute it together.

    `across`: that of lane ^ lanes; `up`, `down`: of lane - lanes, lane + lanes, or its own where
    there is none.
    """

    direction: ShuffleDirection
    lanes: int
    value: Value
    dtype: DType


Value = Expr | Holds | HorizontalReduce | Shuffle
ShuffleDirection = Literal["across", "up", "down"]
ReduceOp = Literal["add", "mul", "min", "max"]

# ---- statements

Indices = tuple[Index, ...]


class Store(Struct, frozen=True):
    """buffer[subscripts] = value, of the buffer's type.

    `streamed`: whole vectors bypass the caches, at addresses that the machine takes for that.
    """

    buffer: str
    subscripts: tuple[Index, ...]
    value: Value
    name: str = ""
    streamed: bool = False


class Standing(Store, frozen=True):
    """In the place of nodes that a pass leaves as they are. It accesses what its value reads: the
    first `written` of these reads are of what the nodes write."""

    written: int = 0


class Update(Struct, frozen=True):
    """buffer[subscripts] = buffer[subscripts] op value; siblings may be reassociated.

    atomic: threads of a device may do it to one element at once, each as a whole, in any order.
    """

    buffer: str
    subscripts: tuple[Index, ...]
    op: ReduceOp
    value: Value
    name: str = ""
    atomic: bool = False


class Verify(Struct, frozen=True):
    """Only the run-time checks of the reads in `value` (and of their guards)."""

    value: Value
    name: str = ""


LoopKind = Literal["serial", "parallel", "vector", "unrolled", "block", "thread", "grid"]
LAUNCHED = ("parallel", "block", "grid")  # kinds: outermost such loops are launched (`regions`)
LoopOrder = Literal["parallel", "reduction", "sequential"]


class Steps(Struct, frozen=True):
    """Of a loop whose iterations, `each` for each, are the steps of a pipeline. In such loops of
    one body with equal numbers, no dependence goes from a step to an earlier one (proved)."""

    pipeline: int
    each: Index = ONE


class Loop(Struct, frozen=True):
    """lower <= variable < upper, step 1.

    kind: how it is executed. vector, unrolled and thread loops run from 0 to a constant; with
        `mask` (an Index) the iterations variable >= mask do nothing. A parallel loop runs on
        threads if (upper - lower) * work is worth it. block loops are a device's grid, thread loops
        the threads of one of its blocks, grid loops run in order in all blocks of one (`device`).
    order: what was proved: `parallel` (no dependence carried), `reduction` (only updates of one
        reduction carried: any order, but not concurrently), `sequential`.
    unroll: the emitter repeats a serial body that often. work: estimated time of an iteration, in
        sixteenths of a processor cycle.
    at: of a serial loop that runs in order: only the iteration variable == at does something, if
        there is one. Its reads are those of a `Verify` before the loop, too.
    independent: its iterations are proved independent, though its order is `sequential`: ranges
        inside vary with it, so schedules take what is inside for one iteration at a time.
    value: if given, an int64: of all iterations only the one for which the variable has this value
        does something. Such a loop runs in order; whoever writes code reads the value instead, and
        checks it against ends that are nearer to 0 than MOST_VALUE.
    below: of a single iteration whose place does not show it: the variable is not negative, and
        below that.
    steps: those of a pipeline, before any schedule.
    resident: of a block loop: blocks for which its code leaves room on a multiprocessor.
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
    at: Index | Expr | None = None
    independent: bool = False
    value: Value | None = None
    below: Index | None = None
    steps: Steps | None = None
    resident: int = 1

    @property
    def end_variables(self) -> frozenset[str]:
        """What its first and its last iteration move with."""
        return self.lower.variables() | self.upper.variables()

    @property
    def is_steps(self) -> bool:
        """Iterations that depend on those before, as far as is known."""
        return self.order == "sequential" and not self.independent and self.value is None


class Branch(Struct, frozen=True):
    condition: Condition
    then: Node
    orelse: Node | None = None


class Block(Struct, frozen=True, dict=True):
    """`__dict__`: what `schedule.analysis.loops` finds out about it, which is no part of it."""

    body: tuple[Node, ...]


class Allocate(Struct, frozen=True):
    """`buffers` exist during `body`; inside a parallel loop each thread has its own, and so has
    each thread of a device's block, unless they are `shared`. (One node for all of them: as many
    as a program has statements would nest too deep to walk.)"""

    buffers: tuple[str, ...]
    body: Node


class TransposeBlock(Struct, frozen=True):
    """target[t.., c.., r] = source[s.., r.., c] for r < rows, c < columns.

    Elsewhere in the block a padded target gets zeros, any other stays as it is. The last subscript
    of each side moves and one more: the source's `source_row`, the target's `target_column`, both
    counted from the end. Dimensions inside of that count as one if the last subscript runs on into
    them. `block` x `block` elements, done in registers.
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


Node = Store | Update | Verify | Loop | Branch | Block | Allocate | TransposeBlock | OnDevice

# ---- buffers and kernels

Space = Literal["argument", "register", "stack", "arena", "shared"]


class Buffer(Struct, frozen=True):
    """Storage. `strides` in elements; None: row-major by `shape`.

    space: `argument` (caller's memory), `register` (every subscript consists of unrolled and vector
        variables), `stack` (constant shape), `arena` (sized at launch), `shared` (by the threads of
        a device's block, constant shape). Only arguments are not allocated by an `Allocate`.
    padded: lanes and rows of a tile beyond the extent may be read and written.
    private: variables of loops to each of whose iterations the contents are private (proved).
    phase: an argument's variable, known at launch: its address in elements, modulo a cache line's.
    finite: another one: 1 if all elements are finite, 0 if not or if `scanned` does not hold.
    Subscripts are inside the shape, but rows of a row-major argument may run on from one to the
    next: if rows of a dimension have n elements, [.., r, t, ..] is [.., r + t / n, t % n, ..].
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


class Choice(Struct, frozen=True):
    """A variable of which a launch gives the value, 0 <= it < `versions`: a kernel does the same
    whichever it is. It is the one of the least cost, by `costs` of the body's sizes and THREADS."""

    variable: str
    costs: StraightLine

    @property
    def versions(self) -> int:
        return len(self.costs.results)


class Kernel(Struct, frozen=True, dict=True):
    """`arguments`: buffer names in calling order (inputs, then outputs). `sizes`: 64-bit run-time
    arguments in calling order: the program's sizes, then the symbolic strides of arguments.
    `context`: the sizes it is for; others need not be served. `left_out`: sizes of the body with
    which it returns at once and says so, as another kernel has code for them. `narrow`: numbers in
    a device's grids have 32 bits, which hold all but what is left out. `constants`: arguments that
    are the same for many calls. `held`: further arguments behind the others, which a run with
    BINDING (then a size, the last) 1 makes of the constants, and one with 0 reads. `choices`: what
    a launch chooses.
    """

    name: str
    sizes: tuple[str, ...]
    arguments: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: Node
    context: Context = ()
    left_out: Condition = FALSE
    narrow: bool = False
    constants: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()

    @property
    def launched(self) -> tuple[str, ...]:
        """Variables beside the sizes that a launch knows: of arguments, threads, choices."""
        of_arguments = (v for b in self.buffers for v in (b.phase, b.finite) if v)
        return (THREADS, *of_arguments, *(c.variable for c in self.choices))

    def buffer(self, name: str) -> Buffer:
        return self._named()[name]

    def with_buffer(self, buffer: Buffer) -> Kernel:
        """The kernel with that buffer added or replaced, as the last one."""
        named = dict(self._named())
        named.pop(buffer.name, None)
        named[buffer.name] = buffer
        kernel = replace(self, buffers=tuple(named.values()))
        kernel.__dict__["named"] = named
        return kernel

    def _named(self) -> dict[str, Buffer]:
        """The buffers by name, in order; found once."""
        named: dict[str, Buffer] | None = self.__dict__.get("named")
        if named is None:
            named = self.__dict__["named"] = {b.name: b for b in self.buffers}
        return named


def block(*nodes: Node | None) -> Node:
    """A sequence without nested blocks or gaps; a single node stands for itself."""
    flat: list[Node] = []
    for n in nodes:
        if n is not None:
            flat.extend(n.body if isinstance(n, Block) else (n,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def allocated(buffer: str, body: Node) -> Allocate:
    """`body` with that buffer allocated around it, and around what else is allocated there."""
    if isinstance(body, Allocate):
        return Allocate((buffer, *body.buffers), body.body)
    return Allocate((buffer,), body)


MOST_VALUE = 1 << 62  # of what kernels count


def given(variable: str, value: Value, body: Node, most: int = MOST_VALUE) -> Loop:
    """`body` with a variable that has that value, an int64 of at most the magnitude `most`."""
    return Loop(variable, index(-most), index(most + 1), body, value=value)


def value_dtype(v: Value) -> DType:
    return DType.BOOL if isinstance(v, Compare | Holds) else v.dtype


def conditional(condition: Condition, node: Node) -> Node:
    return node if condition == TRUE else Branch(condition, node)
