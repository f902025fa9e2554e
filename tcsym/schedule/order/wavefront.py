# SPDX-License-Identifier: Apache-2.0
"""Loops over the steps of a pipeline -> a loop over waves, in each of which they run side by side.

Layer 2 of a recurrent network needs step t of layer 1 and its own step t - 1: while layer 1 is at a
later step, layer 2 can be at an earlier one. So the steps are cut into tiles, each layer is shifted
by a tile against those it needs, and then all are fused: in wave w, layer l has tile w - l. These
are *sections* of one loop, proved independent (`polyhedral.pipelines`, `ir.sections`), so threads
share them, and meet once a wave. A section is a scan and the nests that feed it, as the product of
its inputs with its weights. Scans that need nothing of one another have no waves, only sections.

That pays where a step has too little work for threads of its own, as `Options.min_work_per_thread`
says, and there are several; the nests as they are stay beside it for all other calls.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Call
from tcsym.index.expr import (
    ONE,
    ZERO,
    Index,
    all_of,
    ceildiv,
    floordiv,
    ge,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent, trip_bound
from tcsym.ir.loops import (
    THREADS,
    Block,
    Branch,
    Kernel,
    Loop,
    Node,
    Value,
    Verify,
    block,
    conditional,
)
from tcsym.ir.sections import shared_by_sections, side_by_side
from tcsym.ir.traverse import map_node, substitute_node, subvalues
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.cost import PLAIN, function_cost
from tcsym.schedule.analysis.loops import find_loop, statements_in
from tcsym.schedule.analysis.names import replace_private
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Taken
from tcsym.schedule.order_plans import Waves
from tcsym.schedule.version.versioning import duplicate

MOST_TILES = 16  # of steps, for each wave that has not all sections
TILE_ROWS = 2  # register tiles of rows in a product: with fewer it takes longer than one of all
STEP_WORK, TILE_WORK = 1, 1  # most of a step, least of a tile, by `Options.min_work_per_thread`
MOST_SECTIONS = 64  # of one pipeline: more than threads, and each is a branch of a wave
GAIN = (5, 4)  # at least, in time on one thread by that on all: estimates are rough


class _Section(Struct, frozen=True):
    """A scan, last, and the nests that feed it. `lag`: waves by which it is behind the first."""

    members: tuple[Loop, ...]
    lag: int


class _Pipeline(Struct, frozen=True):
    """Sections, and what runs before and behind them all."""

    before: tuple[Node, ...]
    sections: tuple[_Section, ...]
    behind: tuple[Node, ...]

    @property
    def members(self) -> tuple[Loop, ...]:
        return tuple(x for s in self.sections for x in s.members)

    @property
    def depth(self) -> int:
        return max(s.lag for s in self.sections)

    @property
    def steps(self) -> Index:
        return extent(self.sections[0].members[-1])


def wavefronts(kernel: Kernel, setting: Setting) -> Kernel:
    """Every pipeline beside a version of it in waves.

    Contract: before any schedule; loops in order that go inside of others are there.
    """
    if setting.options.parallelize:
        waves = _Waves(kernel, setting)
        body = waves.node(kernel.body)
        kernel = replace(waves.kernel, body=body)

    def without_steps(x: Node) -> Node:
        return replace(x, steps=None) if isinstance(x, Loop) and x.steps is not None else x

    return replace(kernel, body=map_node(kernel.body, without_steps))


class _Waves(Struct):
    """One run of the pass. kernel: with the buffers of all copies."""

    kernel: Kernel
    setting: Setting

    def node(self, n: Node) -> Node:
        match n:
            case Block(body):
                return block(*self.sequence(tuple(map(self.node, body))))
            case Branch(c, a, b):
                return Branch(c, self.node(a), b and self.node(b))
            case _:
                return n

    def sequence(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        found = {x.steps.pipeline for x in nodes if isinstance(x, Loop) and x.steps is not None}
        for k in sorted(found):
            places = [i for i, x in enumerate(nodes) if _is_of(x, k)]
            first, end = places[0], places[-1] + 1
            p = _pipeline(nodes[first:end], k)
            version = None if p is None else self.version(p)
            if p is not None and version is not None:
                nodes = (*nodes[:first], *p.before, version, *p.behind, *nodes[end:])
        return nodes

    def version(self, p: _Pipeline) -> Node | None:
        """The sections one after the other, or in waves where that pays; None if it never may."""
        known = frozenset(self.kernel.sizes)
        work = [sum((self.work(m, known) for m in s.members), ZERO) for s in p.sections]
        scans = [self.work(s.members[-1], known) for s in p.sections]
        if not frozenset[str]().union(p.steps.variables(), *(w.variables() for w in work)) <= known:
            return None
        count, least, total = len(work), self.setting.options.min_work_per_thread, sum(work, ZERO)
        length = self.length(p, total)
        each = ceildiv(count, minimum(count, var(THREADS)))  # sections of a thread
        pays = all_of(
            (
                ge(var(THREADS), 2),
                *(ge(STEP_WORK * maximum(1, least), w + 1) for w in scans),
                ge(p.steps * total, 2 * TILE_WORK * least),
                ge(GAIN[1] * count * p.steps, GAIN[0] * each * (p.steps + p.depth * length)),
            )
        )
        before = self.kernel
        waves = self.waves(self.copy(p), length, ceildiv(total, count))
        if waves is None:
            self.kernel = before
            return None
        names = tuple(s.members[-1].variable for s in p.sections)
        taken = Taken(pays, Waves(names, not p.depth))
        self.setting.record.append(Choice(names[0], (taken,)))
        return Branch(pays, waves, block(*p.members))

    def length(self, p: _Pipeline, total: Index) -> Index:
        """Steps of a tile: worth a thread, with enough rows for products."""
        n, depth, least = p.steps, p.depth, self.setting.options.min_work_per_thread
        if not depth:
            return n
        worth = ceildiv(TILE_WORK * least * len(p.sections), maximum(1, total))
        each = [m.steps.each for m in p.members if m.steps is not None]
        rows = ceildiv(TILE_ROWS * self.setting.machine.tile.rows, maximum(1, *each))
        return maximum(1, worth, rows, ceildiv(n, MOST_TILES * depth))

    def copy(self, p: _Pipeline) -> _Pipeline:
        self.kernel, copy, new = duplicate(self.kernel, block(*p.members), self.setting.names)

        def own(s: _Section) -> _Section:
            return replace(s, members=tuple(find_loop(copy, new[x.variable]) for x in s.members))

        return replace(p, sections=tuple(map(own, p.sections)))

    def waves(self, p: _Pipeline, length: Index, work: Index) -> Node | None:
        """work: of a step of one section. None if sections may touch something of one another."""
        names, n = self.setting.names, p.steps
        section, wave, tile = (names.fresh(x) for x in ("section", "wave", "tile"))
        arms = []
        for s in p.sections:
            if not p.depth:
                arms.append(block(*s.members))
                self.private(s, {section})
                continue
            first, count = names.fresh("first"), names.fresh("count")
            at, left = (var(wave) - s.lag) * var(tile), minimum(var(tile), n - var(first))
            body = block(*(_tile(m, var(first), var(count)) for m in s.members))
            body = Loop(count, left, left + 1, body, below=n + 1)
            body = Loop(first, at, at + 1, body, below=n)
            arms.append(conditional(all_of((ge(at, 0), ge(n - 1, at))), body))
            self.private(s, {section, wave, first, count})
        own = frozenset(b.name for b in self.kernel.buffers if section in b.private)
        known = frozenset((*self.kernel.sizes, wave, tile))
        if shared_by_sections(tuple(arms), own, known) is not None:
            return None
        if not p.depth:
            return side_by_side(section, arms, maximum(1, n * work))
        body = side_by_side(section, arms, maximum(1, var(tile) * work))
        waves = Loop(wave, ZERO, ceildiv(n, var(tile)) + p.depth, body)
        return Loop(tile, length, length + 1, waves, below=length + 1)

    def private(self, s: _Section, around: set[str]) -> None:
        """What is private to the iterations of a member is so to the loops around its tile."""
        own = {x.variable: around | {x.variable} for x in s.members}
        self.kernel = replace_private(self.kernel, own)

    def work(self, nest: Loop, known: frozenset[str]) -> Index:
        """Estimated time of a step, in sixteenths of a cycle, as vectors have it."""
        total = ZERO
        for x, around in statements_in(nest.body):
            operations = PLAIN + sum(map(_cost, subvalues(x.value)))
            total += product_of(maximum(0, trip_bound(y)) for y in around) * operations
        each = ONE if nest.steps is None else nest.steps.each
        return floordiv(total * each, self.setting.lanes(self.kernel, nest))


def _cost(v: Value) -> int:
    if isinstance(v, Call):
        return function_cost(v.function)
    return PLAIN if isinstance(v, Binary) else 0


def _is_of(n: Node, pipeline: int) -> bool:
    return isinstance(n, Loop) and n.steps is not None and n.steps.pipeline == pipeline


def _tile(loop: Loop, first: Index, count: Index) -> Loop:
    """So many steps from the `first`, counted from 0; those of a nest in a loop from 0."""
    assert loop.steps is not None
    each = loop.steps.each
    if loop.is_steps:
        return replace(loop, lower=loop.lower + first, upper=loop.lower + first + count)
    at = {loop.variable: loop.lower + first * each + var(loop.variable)}
    body = substitute_node(loop.body, at)
    return replace(loop, lower=ZERO, upper=count * each, body=body)


# ---- what runs beside what


def _pipeline(nodes: tuple[Node, ...], pipeline: int) -> _Pipeline | None:
    """The nodes as sections, if there are several, and the others can stand around them."""
    loops = [x for x in nodes if isinstance(x, Loop) and _is_of(x, pipeline)]
    scans = [x for x in loops if x.is_steps]
    if not 2 <= len(scans) <= MOST_SECTIONS or sum(map(_may_fail, nodes)) > 1:
        return None
    shares = _Shares()
    steps = extent(scans[0])
    whole = [x for x in loops if x.steps is not None and extent(x) == steps * x.steps.each]
    if any(x not in whole for x in scans):
        return None
    sections: list[_Section] = []
    left = [x for x in whole if x.is_steps or x.order == "parallel"]
    for scan in scans:
        own = [scan]
        for x in reversed(left[: left.index(scan)]):
            if not x.is_steps and shares.any((x,), own):
                own.insert(0, x)
        left = [x for x in left if x not in own]
        lag = max((s.lag + 1 for s in sections if shares.any(s.members, own)), default=0)
        sections.append(_Section(tuple(own), lag))
    return _around(nodes, tuple(sections), shares)


def _around(
    nodes: tuple[Node, ...], sections: tuple[_Section, ...], shares: _Shares
) -> _Pipeline | None:
    """With every other node before all sections, or behind them, as what it shares allows."""
    before, behind, inside = list[Node](), list[Node](), list[Node]()
    for x in nodes:
        if any(x in s.members for s in sections):
            if shares.any(behind, (x,)):
                return None
            inside.append(x)
        elif shares.any((*inside, *behind), (x,)):
            behind.append(x)
        else:
            before.append(x)
    return _Pipeline(tuple(before), sections, tuple(behind))


class _Shares:
    """Which nodes of a sequence touch a buffer that another of them writes."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[set[str], set[str]]] = {}  # the sequence keeps the nodes

    def any(self, some: Iterable[Node], others: Iterable[Node]) -> bool:
        return any(self._shared(x, y) for x in some for y in others)

    def _shared(self, a: Node, b: Node) -> bool:
        """Both touch a buffer, and one of them writes it."""
        (mine, stored), (yours, written) = self._touched(a), self._touched(b)
        return bool((mine & written) | (stored & yours))

    def _touched(self, n: Node) -> tuple[set[str], set[str]]:
        if id(n) not in self._found:
            found = tuple(accesses(n))
            written = {a.buffer for a in found if a.written}
            self._found[id(n)] = {a.buffer for a in found}, written
        return self._found[id(n)]


def _may_fail(n: Node) -> bool:
    """It has checks at run time: of two nodes, the first one that fails is reported."""
    checks = any(isinstance(x, Verify) for x, _ in statements_in(n))
    return checks or any(any(a.checked) for a in accesses(n))
