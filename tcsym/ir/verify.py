# SPDX-License-Identifier: Apache-2.0
"""Checks that a kernel of the loop IR is well formed; run between passes in tests, and after the
last one always.

What is checked: names (loops unique, buffers declared, bounds over enclosing variables only), ranks
and types of accesses, allocation of everything that is not an argument, register buffers addressed
by unrolled and vector variables only, the shape of unrolled and vector loops, that iterations of a
parallel loop do not all write one element, that a temporary is used only inside of the loops that
it is private to, which two nests never are, that sections touch nothing of one another
(`sections`), and that there is nothing that the kind of target does not admit (ADMITTED). Of a
device's kernel, its grid, its threads and what they share is checked as well (`verify_device`,
`races`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Compare, Const, IndexValue, Read
from tcsym.index.expr import Condition, Index, condition_variables
from tcsym.ir.bounds import extent, trip_bound
from tcsym.ir.device import (
    BeginCopy,
    DeviceNode,
    GridBarrier,
    LoadMatrices,
    MatrixMultiply,
    OnDevice,
)
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
    LoopKind,
    Node,
    Shuffle,
    Space,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    value_dtype,
)
from tcsym.ir.sections import sections, shared_by_sections
from tcsym.ir.text import buffer_text, node_text
from tcsym.ir.traverse import map_node, subvalues, value_children, walk
from tcsym.sizes.context import Interval, Ranges, interval, ranges_of, simplified
from tcsym.trees import preorder
from tcsym.types import DType


class Admitted(Struct, frozen=True):
    """What kernels for a kind of target may have; values and nodes beside those that all may."""

    loops: frozenset[LoopKind]
    spaces: frozenset[Space]
    nodes: tuple[type, ...]
    values: tuple[type, ...]


TargetKind = Literal["cpu", "device"]
ADMITTED: Mapping[TargetKind, Admitted] = {
    "cpu": Admitted(
        frozenset(("serial", "parallel", "vector", "unrolled")),
        frozenset(("argument", "register", "stack", "arena")),
        (TransposeBlock,),
        (HorizontalReduce,),
    ),
    "device": Admitted(
        frozenset(("serial", "block", "thread", "grid", "vector", "unrolled")),
        frozenset(("argument", "register", "stack", "arena", "shared")),
        (DeviceNode,),
        (Shuffle,),
    ),
}
_OF_SOME_TARGETS = (
    tuple(x for a in ADMITTED.values() for x in a.nodes),
    tuple(x for a in ADMITTED.values() for x in a.values),
)


class InternalError(AssertionError):
    """A pass produced an ill-formed kernel."""


def _may_repeat(loop: Loop, ranges: Ranges) -> bool:
    length = simplified(extent(loop), ranges)
    first, end = interval(loop.lower, ranges).low, interval(loop.upper, ranges).high
    apart = None if first is None or end is None else end - first  # all that `assume` looks at
    bounds = trip_bound(loop).as_int(), interval(length, ranges).high, apart
    return all(most is None or most > 1 for most in bounds)


class _Scope(Struct, frozen=True):
    """What is visible at a node. `constants`: unrolled and vector variables.

    shared: buffers that the iterations of parallel loops around share. moving: variables that may
        differ between them. apart: a condition around may hold in one iteration only. sizes: their
        ranges. around: loops, the outermost first. private: of a buffer, loops that all its uses
        lie in.
    """

    buffers: dict[str, Buffer]
    visible: frozenset[str]
    variables: frozenset[str]
    constants: frozenset[str]
    lane: str | None = None
    shared: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()
    apart: bool = False
    sizes: Ranges = {}
    around: tuple[Loop, ...] = ()
    private: Mapping[str, frozenset[str]] = {}

    def inside(self, loop: Loop) -> _Scope:
        constant = loop.kind in ("unrolled", "vector")
        scope = replace(
            self,
            around=(*self.around, loop),
            variables=self.variables | {loop.variable},
            constants=self.constants | ({loop.variable} if constant else set()),
            lane=loop.variable if loop.kind == "vector" else self.lane,
        )
        if self.apart:  # no matter then what is shared
            return scope
        if loop.kind == "parallel" and _may_repeat(loop, self.ranges()):
            return replace(scope, shared=self.visible, moving=self.moving | {loop.variable})
        bounds = loop.end_variables
        if bounds & self.moving or loop.value is not None or loop.at is not None:
            return replace(scope, moving=self.moving | {loop.variable})
        return scope

    def ranges(self) -> Ranges:
        """Of sizes and variables. Few nodes need them, and they take longer than all else."""
        found = dict(self.sizes)
        for loop in self.around:
            low, last = interval(loop.lower, found).low, interval(loop.upper - 1, found).high
            found[loop.variable] = Interval(low, last)
        return found

    def where(self, condition: Condition) -> _Scope:
        apart = self.apart or not condition_variables(condition).isdisjoint(self.moving)
        return replace(self, apart=apart)

    def reducing(self, v: HorizontalReduce) -> _Scope:
        names = {v.variable}
        return replace(
            self,
            variables=self.variables | names,
            constants=self.constants | names,
            lane=v.variable,
        )


def verify(
    kernel: Kernel,
    kind: TargetKind = "cpu",
    checks_threads: bool = True,
    proves_races: bool = True,
) -> None:
    """Raise InternalError, with the text of the node, if the kernel is not well formed.

    checks_threads: that iterations of parallel loops write apart, which bounds of sizes may have to
    tell; of a device, its grid, its threads and what they do together, which takes a tenth of the
    time of compiling. proves_races: and if threads of a block may race, which isl may take minutes
    to say.
    """
    _verify_admitted(kernel, kind)
    buffers = {b.name: b for b in kernel.buffers}
    _require(len(buffers) == len(kernel.buffers), kernel.name, "a buffer is declared twice")
    for name in kernel.arguments:
        _require(name in buffers, name, "an argument without a buffer")
        _require(buffers[name].space == "argument", name, "an argument in another space")
    sizes = frozenset(kernel.sizes)
    for b in kernel.buffers:
        _verify_buffer(kernel, b, sizes)
    known = sizes | set(kernel.launched)
    _require(len(known) == len(sizes) + len(kernel.launched), kernel.name, "a phase is not unique")
    _verify_choices(kernel)
    seen: set[str] = set(known)
    visible, private = frozenset(kernel.arguments), _private(kernel)
    ranges = {**dict.fromkeys(sizes, Interval(0)), **ranges_of(kernel.context)}
    scope = _Scope(buffers, visible, known, frozenset(), sizes=ranges, private=private)
    scope = replace(scope, apart=not checks_threads)
    _verify_node(kernel.body, scope, seen)
    if kind == "device" and checks_threads:
        _verify_device(kernel, proves_races)


def _verify_choices(kernel: Kernel) -> None:
    known = {*kernel.sizes, THREADS}
    for c in kernel.choices:
        _require(c.versions > 0, kernel.name, f"{c.variable}: nothing to choose from")
        unknown = ", ".join(sorted({*c.costs.variables} - known))
        _require(not unknown, kernel.name, f"{c.variable}: no launch knows {unknown}")


def _private(kernel: Kernel) -> dict[str, frozenset[str]]:
    """Loops to whose iterations buffers are private. Threads and blocks hand on what is theirs from
    one of their loops to the next."""
    loops = (n for n, _ in walk(kernel.body) if isinstance(n, Loop))
    names = {n.variable for n in loops if n.kind not in ("thread", "block")}
    return {b.name: b.private & names for b in kernel.buffers if b.private & names}


def _verify_admitted(kernel: Kernel, kind: TargetKind) -> None:
    admitted = ADMITTED[kind]
    nodes, values = _OF_SOME_TARGETS
    for b in kernel.buffers:
        _require(b.space in admitted.spaces, b, f"{b.space} memory on a {kind}")
    for n, _ in walk(kernel.body):
        if isinstance(n, nodes):
            _require(isinstance(n, admitted.nodes), n, f"a {type(n).__name__} on a {kind}")
        if isinstance(n, Update):
            _require(kind == "device" or not n.atomic, n, f"an atomic update on a {kind}")
        if isinstance(n, Loop):
            _require(n.kind in admitted.loops, n, f"a {n.kind} loop on a {kind}")
        for v in subvalues(n.value) if isinstance(n, Store | Update | Verify) else ():
            if isinstance(v, values):
                _require(isinstance(v, admitted.values), n, f"a {type(v).__name__} on a {kind}")


def _verify_device(kernel: Kernel, proves_races: bool) -> None:
    from tcsym.ir.verify_device import verify_device  # processors have no use for it

    verify_device(kernel, _require)
    if not proves_races:
        return
    from tcsym.ir.races import races  # needs isl

    for race in races(kernel):
        raise InternalError(f"a race, {race}")


def _require(holds: bool, where: str | Buffer | Node, what: str) -> None:
    if not holds:
        match where:
            case str():
                text = where
            case Buffer():
                text = buffer_text(where)
            case _:
                text = node_text(where)
        raise InternalError(f"{what}:\n{text}")


def _verify_buffer(kernel: Kernel, b: Buffer, sizes: frozenset[str]) -> None:
    if b.strides is not None:
        _require(len(b.strides) == len(b.shape), b, "strides of another rank")
    for e in (*b.shape, *b.element_strides()):
        _require(e.variables() <= sizes, b, "a shape that varies")
    _require(not b.phase or b.space == "argument", b, "a phase of no argument")
    plain = b.space == "argument" and b.dtype.is_float and b.strides is None
    _require(not b.finite or plain, b, "no floats that lie side by side")
    if b.space == "argument":
        _require(b.name in kernel.arguments, b, "an argument buffer never passed")
    if b.space in ("register", "stack", "shared"):
        constant = all(e.is_constant for e in b.shape)
        _require(constant, b, f"a {b.space} buffer without a constant shape")


# ---- statements


def _verify_node(n: Node, scope: _Scope, seen: set[str]) -> None:
    match n:
        case Store() | Update():
            _verify_write(n, scope)
        case Verify(v, _):
            _verify_value(n, v, scope)
        case Loop():
            _verify_loop(n, scope, seen)
            _verify_node(n.body, scope.inside(n), seen)
        case Branch(c, then, orelse):
            _require(condition_variables(c) <= scope.variables, n, "an unknown variable")
            for arm in (then, *(() if orelse is None else (orelse,))):
                _verify_node(arm, scope.where(c), seen)
        case Block(body):
            for x in body:
                _verify_node(x, scope, seen)
        case Allocate(names, body):
            _verify_allocation(n, scope)
            _verify_node(body, replace(scope, visible=scope.visible | set(names)), seen)
        case TransposeBlock():
            _verify_transposition(n, scope)
        case DeviceNode():
            _verify_device_node(n, scope)
        case _:
            assert_never(n)


def _verify_allocation(n: Allocate, scope: _Scope) -> None:
    for name in n.buffers:
        _require(name in scope.buffers, n, f"unknown buffer {name}")
        _require(scope.buffers[name].space != "argument", n, "an argument is allocated")
        twice = name in scope.visible or n.buffers.count(name) > 1
        _require(not twice, n, f"{name} is allocated twice")


def _verify_write(n: Store | Update, scope: _Scope) -> None:
    _verify_access(n, n.buffer, n.subscripts, scope)
    moves = frozenset[str]().union(*(s.variables() for s in n.subscripts))
    _require(scope.lane in (None, *moves), n, "all lanes of a vector write one element")
    _verify_apart(n, n.buffer, n.subscripts, scope)
    _verify_value(n, n.value, scope)
    _verify_type(n, scope.buffers[n.buffer].dtype, value_dtype(n.value))
    streamed = isinstance(n, Store) and n.streamed
    fits = scope.lane is not None and scope.buffers[n.buffer].space == "argument"
    _require(not streamed or fits, n, "a streamed store that is no vector to an argument")


def _verify_apart(n: Node, buffer: str, subscripts: tuple[Index, ...], scope: _Scope) -> None:
    """Something tells the elements that iterations of a parallel loop write apart. That they are
    all different is proved by who makes the loop parallel."""
    moves = frozenset[str]().union(*(s.variables() for s in subscripts))
    apart = scope.apart or buffer not in scope.shared or not moves.isdisjoint(scope.moving)
    _require(apart, n, f"iterations of a parallel loop write one element of {buffer}")


def _verify_transposition(n: TransposeBlock, scope: _Scope) -> None:
    _verify_access(n, n.target, n.target_subscripts, scope)
    _verify_apart(n, n.target, n.target_subscripts, scope)
    _verify_access(n, n.source, n.source_subscripts, scope)
    same = scope.buffers[n.target].dtype is scope.buffers[n.source].dtype
    _require(same, n, "a transposition that changes the type")
    columns = range(-len(n.target_subscripts), -1)
    rows = range(-len(n.source_subscripts), -1)
    moved = n.target_column in columns and n.source_row in rows
    _require(moved, n, "a transposition along a dimension that is not there")
    used = n.rows.variables() | n.columns.variables()
    _require(used <= scope.variables, n, "an unknown variable")


def _verify_device_node(n: OnDevice, scope: _Scope) -> None:
    match n:
        case GridBarrier():
            _verify_access(n, n.counter, (), scope)
        case BeginCopy():
            _verify_access(n, n.target, n.target_subscripts, scope)
            _verify_access(n, n.source, n.source_subscripts, scope)
            known = condition_variables(n.condition) <= scope.variables
            _require(known, n, "an unknown variable")
        case LoadMatrices():
            _verify_access(n, n.target, n.target_subscripts, scope)
            _verify_access(n, n.source, n.source_subscripts, scope)
            _require(n.lane.variables() <= scope.variables, n, "an unknown variable")
        case MatrixMultiply():
            _verify_access(n, n.target, n.target_subscripts, scope)
            _verify_access(n, n.left, n.left_subscripts, scope)
            _verify_access(n, n.right, n.right_subscripts, scope)
        case _:
            pass


def _verify_loop(loop: Loop, scope: _Scope, seen: set[str]) -> None:
    _require(loop.variable not in seen, loop, "the loop's name is not unique")
    seen.add(loop.variable)
    used = loop.end_variables | loop.work.variables()
    if loop.mask is not None:
        used |= loop.mask.variables()
    _require(used <= scope.variables, loop, f"unknown {sorted(used - scope.variables)}")
    _require(scope.lane is None or scope.lane not in used, loop, "a bound varies with the lane")
    _require(loop.unroll >= 1, loop, "the unroll factor is not positive")
    if loop.independent and sections(loop):
        _verify_sections(loop, scope)
    if loop.at is not None:
        _require(loop.kind == "serial" and loop.order == "sequential", loop, "a position in a loop")
        _require(scope.lane is None, loop, "a position inside a vector loop")
        at = IndexValue(loop.at, DType.INT64) if isinstance(loop.at, Index) else loop.at
        _verify_value(loop, at, scope)
    if loop.value is not None:
        plain = (loop.kind, loop.order) == ("serial", "sequential")
        _require(plain, loop, "a loop over one value that does not run in order")
        _verify_value(loop, loop.value, scope)
        _verify_type(loop, DType.INT64, value_dtype(loop.value))
    if loop.kind in ("unrolled", "vector", "thread"):
        bounds = (loop.lower.as_int(), loop.upper.as_int())
        _require(bounds[0] == 0 and bounds[1] is not None, loop, "bounds are not constant from 0")
    else:
        _require(loop.mask is None, loop, f"a mask on a loop that is {loop.kind}")
    if loop.kind == "vector":
        width = loop.upper.as_int() or 0
        _require(width > 0 and width & (width - 1) == 0, loop, "the width is no power of two")
        _require(scope.lane is None, loop, "a vector loop inside a vector loop")


def _verify_sections(loop: Loop, scope: _Scope) -> None:
    """Before any schedule; those prove what they do of the loops inside."""
    if all(x.kind == "serial" for x, _ in walk(loop) if isinstance(x, Loop)):
        private = {b.name for b in scope.buffers.values() if loop.variable in b.private}
        natural = frozenset(
            v for v, x in scope.ranges().items() if x.low is not None and x.low >= 0
        )
        shared = shared_by_sections(sections(loop), frozenset(private), natural)
        _require(shared is None, loop, f"sections that are not apart in {shared}")


def _verify_type(n: Node, buffer: DType, value: DType) -> None:
    if buffer is not value:  # before there is a text
        _require(False, n, f"a {value} value for a {buffer} buffer")


def _verify_access(n: Node, name: str, subscripts: tuple[object, ...], scope: _Scope) -> None:
    _require(name in scope.buffers, n, f"unknown buffer {name}")
    _require(name in scope.visible, n, f"buffer {name} is not allocated here")
    buffer = scope.buffers[name]
    _require(len(subscripts) == len(buffer.shape), n, f"the rank of {name} differs")
    used: set[str] = set()
    for s in subscripts:
        if isinstance(s, Index):
            used |= s.variables()
    _require(used <= scope.variables, n, f"unknown {sorted(used - scope.variables)}")
    outside = scope.private.get(name, scope.variables) - scope.variables
    _require(not outside, n, f"{name} outside of {sorted(outside)}, which it is private to")
    if buffer.space == "register":
        indices = all(isinstance(s, Index) for s in subscripts)
        _require(indices and used <= scope.constants, n, f"{name} needs constant subscripts")


# ---- values


def _verify_value(n: Node, v: Value, scope: _Scope) -> None:
    for x, inner in _scoped(v, scope):
        used = _own_variables(x)
        _require(used <= inner.variables, n, f"unknown {sorted(used - inner.variables)}")
        if isinstance(x, Read):
            _verify_access(n, x.tensor, x.subscripts, inner)
            _verify_type(n, scope.buffers[x.tensor].dtype, x.dtype)
            _require(len(x.checked) in (0, len(x.subscripts)), n, "checks of another rank")
        elif isinstance(x, HorizontalReduce):
            _require(scope.lane is None, n, "a horizontal reduction inside a vector loop")
            _require(x.width & (x.width - 1) == 0, n, "the width is no power of two")


def verify_exact(naive: Kernel, mapped: Kernel) -> None:
    """Mapped loops compare no indices in fewer bits than naive ones do: proofs take them as
    integers of mathematics (LANGUAGE E4). Of data that are compared with an index a number for a
    size may leave an index, so where naive loops have such nothing is asked. Raises InternalError.
    """
    if not any(_narrow(x) for v in _comparisons(naive) for x in subvalues(v)):
        wrong = next((v for v in _comparisons(mapped) if _are_narrow_indices(v)), None)
        _require(
            wrong is None, str(wrong), "indices compared that may wrap, as no proof takes them"
        )


def _comparisons(kernel: Kernel) -> list[Compare]:
    found: list[Compare] = []

    def keep(v: Value) -> Value:
        found.extend((v,) if isinstance(v, Compare) else ())
        return v

    map_node(kernel.body, on_value=keep)
    return found


def _are_narrow_indices(v: Compare) -> bool:
    sides = v.left, v.right
    return all(isinstance(e, IndexValue | Const) for e in sides) and any(map(_narrow, sides))


def _narrow(v: Value) -> bool:
    return isinstance(v, IndexValue) and v.dtype is not DType.INT64


def _scoped(v: Value, scope: _Scope) -> Iterator[tuple[Value, _Scope]]:
    def below(at: tuple[Value, _Scope]) -> list[tuple[Value, _Scope]]:
        x, around = at
        inner = around.reducing(x) if isinstance(x, HorizontalReduce) else around
        return [(child, inner) for child in value_children(x)]

    return preorder((v, scope), below)


def _own_variables(v: Value) -> frozenset[str]:
    if isinstance(v, Holds):
        return condition_variables(v.condition)
    index = getattr(v, "index", None)
    return index.variables() if isinstance(index, Index) else frozenset()
