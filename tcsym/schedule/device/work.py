# SPDX-License-Identifier: Apache-2.0
"""A nest -> what an iteration of its loops does: instructions, accesses, waits, over sizes.

What is counted is good within a factor of two or three: it ranks plans. Neighbouring threads of a
warp make one access together; how many lines and bytes that takes follows from how far apart they
are. What an iteration has for itself is in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Call, Cast, Expr, Read, Unary
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, floordiv, index, maximum, minimum, var
from tcsym.index.values import product_of
from tcsym.ir.bounds import relax, trip_bound
from tcsym.ir.device import WARP
from tcsym.ir.loops import Allocate, Block, Branch, Loop, Node, Store, Update, Value, Verify
from tcsym.ir.traverse import loads, subvalues
from tcsym.schedule.analysis.access import Subscripts, accesses, stride, subscript_variables
from tcsym.schedule.analysis.cost import PLAIN, function_cost
from tcsym.schedule.device.nest import Nest

SECTOR, LINE = 32, 128  # bytes: what memory moves at least, and what an access reaches at once
AHEAD = 4  # iterations of a loop whose loads wait together
_INSTRUCTIONS = {"division": 10, "integer division": 30, "step": 2}  # a step: of a loop


class Touch(Struct, frozen=True):
    """An access of a buffer that a warp makes `times` for each iteration of all its threads.

    lines: what it reaches, one after the other. fetched: bytes that it moves. elements: bytes that
    all of the nest touches there. is_vector: it is along threads' neighbours, which may share it.
    """

    buffer: str
    times: Index
    lines: int
    fetched: int
    elements: Index
    is_vector: bool


class Work(Struct, frozen=True):
    """Of an iteration. rounds: loads that wait for each other."""

    instructions: Index
    rounds: Index
    touches: tuple[Touch, ...] = ()

    def __add__(self, other: Work) -> Work:
        return Work(
            self.instructions + other.instructions,
            self.rounds + other.rounds,
            (*self.touches, *other.touches),
        )

    def again(self, times: Index) -> Work:
        """One after the other, each as if it were the first."""
        touches = tuple(replace(t, times=t.times * times) for t in self.touches)
        return Work(self.instructions * times, self.rounds * times, touches)

    def repeated(self, trips: Index) -> Work:
        """By a loop; iterations of an innermost one load ahead."""
        rounds = self.rounds * trips
        if self.rounds.is_constant:
            rounds = floordiv(rounds + AHEAD - 1, AHEAD)
        each = self.instructions + _INSTRUCTIONS["step"]
        return replace(self, instructions=each * trips, rounds=rounds)


NOTHING = Work(ZERO, ZERO)


class Sharing(Struct, frozen=True):
    """Which threads do what. lane: the loop of which a warp's threads are neighbours, where no loop
    of `shared` is around. shared: loops whose iterations so many threads divide."""

    lane: str
    shared: Mapping[str, int]


def work_of(nest: Nest, sharing: Sharing, node: Node | None = None) -> Work:
    """Of an iteration of the nest's loops, or of a part of it."""
    counted = _Counted(nest, sharing, nest.known)
    return counted.node(nest.body if node is None else node, ())


class _Counted(Struct, frozen=True):
    nest: Nest
    sharing: Sharing
    known: frozenset[str]

    def node(self, n: Node, around: tuple[Loop, ...]) -> Work:
        match n:
            case Store() | Update() | Verify():
                return self.statement(n, around)
            case Loop():
                return self.node(n.body, (*around, n)).repeated(self.trips(n))
            case Branch(_, a, b):
                then = self.node(a, around) + Work(ONE, ZERO)
                return then if b is None else then + self.node(b, around)
            case Block(body):
                return reduce(Work.__add__, (self.node(x, around) for x in body), NOTHING)
            case Allocate(_, body):
                return self.node(body, around)
            case _:
                return Work(ONE, ZERO)

    def trips(self, loop: Loop) -> Index:
        """Of a thread."""
        n = self.extent(loop)
        width = self.sharing.shared.get(loop.variable, 1)
        return n if width == 1 else ceildiv(n, width)

    def extent(self, loop: Loop) -> Index:
        """A bound in sizes; of ranges that differ from row to row, how long they are on average."""
        if loop.at is not None or loop.value is not None:
            return ONE
        bound = relax(trip_bound(loop), self.known, True)
        if bound is not None:
            return bound
        ragged = ragged_extent(self.nest, loop)
        return ONE if ragged is None else floordiv(ragged[0], maximum(1, ragged[1])) + 1

    def statement(self, n: Store | Update | Verify, around: tuple[Loop, ...]) -> Work:
        count = sum(_instructions(v) for v in subvalues(n.value))
        reads = [(r.tensor, r.subscripts) for r in loads(n.value)]
        written = [] if isinstance(n, Verify) else [(n.buffer, n.subscripts)]
        touches = [t for b, s in (*reads, *written) for t in self.touched(b, s, around)]
        waits = any(True for b, s in reads for _ in self.touched(b, s, around))
        count += 1 + 2 * len(touches)
        count += sum(self.nest.kernel.buffer(b).space == "shared" for b, _ in (*reads, *written))
        return Work(index(count), index(int(waits)), tuple(touches))

    def touched(
        self, name: str, subscripts: Subscripts, around: tuple[Loop, ...]
    ) -> Iterator[Touch]:
        """Nothing where an iteration has it for itself."""
        nest, b = self.nest, self.nest.kernel.buffer(name)
        if not b.shape or (b.space != "argument" and b.private >= {*nest.variables}):
            return
        used = subscript_variables(subscripts)
        moving = [x for x in around if x.variable in used]
        times = product_of(map(self.trips, moving))
        shared = [x.variable for x in around if x.variable in self.sharing.shared]
        lane = shared[0] if shared else self.sharing.lane
        size = b.dtype.bytes
        apart = stride(b, subscripts, lane)
        step = WARP if apart is None else apart.as_int()
        bytes_apart = size * abs(WARP if step is None else step)
        lines = max(1, min(WARP, -(-WARP * bytes_apart // LINE)))
        fetched = SECTOR * max(1, min(WARP, -(-WARP * bytes_apart // SECTOR)))
        walked = moving and moving[-1].variable != lane
        if walked and stride(b, subscripts, moving[-1].variable) == ONE:
            fetched = max(size, fetched * size // SECTOR)  # the rest of a sector comes next
        inside = [*nest.chain, *around]
        reached = [self.extent(x) for x in inside if x.variable in used]
        whole = [relax(e, self.known, True) for e in b.shape]
        elements = product_of(reached)
        if None not in whole:
            elements = minimum(elements, product_of([e for e in whole if e is not None]))
        yield Touch(name, times, lines, fetched, elements * size, step == 1)


def ragged_extent(nest: Nest, loop: Loop) -> tuple[Index, Index] | None:
    """What sizes tell of ranges that differ from row to row: they are parts of a dimension, one of
    each row if something else in the subscripts moves with it, else of all rows together."""
    for a in accesses(loop.body):
        shape = nest.kernel.buffer(a.buffer).shape
        for s, n in zip(a.subscripts, shape, strict=True):
            if s == var(loop.variable) and n.variables() <= {*nest.kernel.sizes}:
                own = subscript_variables(a.subscripts) & {*nest.variables}
                return n, ONE if own else nest.points
    return None


def _instructions(v: Value) -> int:
    """Of one operation, without its operands."""
    match v:
        case Binary("div" | "mod"):
            return _INSTRUCTIONS["division" if v.dtype.is_float else "integer division"]
        case Call(function):
            return max(1, function_cost(function) // PLAIN)
        case Binary() | Unary() | Cast():
            return 1
        case Read():
            return sum(v.checked)
        case _:
            return int(not isinstance(v, Expr))
