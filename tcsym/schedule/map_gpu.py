# SPDX-License-Identifier: Apache-2.0
"""Naive kernel -> kernel for a device: host code around loops over blocks and threads.

What runs in order, and around parallel loops, stays on the host; each nest that it comes to is a
region, one launch of a grid. Temporaries live in registers of a thread if they are private to it
and small, else in the device's memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Const
from tcsym.index.expr import FALSE, TRUE, ZERO, condition_variables, ge, index
from tcsym.ir.device import DeviceNode
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Verify,
    block,
)
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify, verify_exact
from tcsym.mapping.given import on_device, plan_asked, unknown_nests
from tcsym.options import Options
from tcsym.process.config import VERIFY
from tcsym.schedule.analysis.assume import assume, in_context
from tcsym.schedule.analysis.loops import loops_in, scatters
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.chosen import Choice, Taken, with_conditions
from tcsym.schedule.combine.accumulate import accumulate_privately
from tcsym.schedule.device.apply import apply
from tcsym.schedule.device.cost import cycles_of, with_room
from tcsym.schedule.device.nest import is_parallel, nest_of, parallel_outside
from tcsym.schedule.device.panels import phase_of
from tcsym.schedule.device.plan import (
    BLOCK_THREADS,
    BlockSteps,
    GridSteps,
    LaunchSteps,
    Stepped,
    Steps,
    ThreadSteps,
    Version,
)
from tcsym.schedule.device.propose import offered, offered_names, versions
from tcsym.schedule.device.scatter import at_once, in_copies, owned, scatter_of, sorted_terms
from tcsym.schedule.device.steps import alone, in_block, in_grid, separate_nests, together, ways
from tcsym.schedule.map_cpu import Mapped
from tcsym.schedule.multiples import condition_in_sizes, in_quotients, in_sizes
from tcsym.schedule.order.follow_steps import follow_steps
from tcsym.schedule.order.interchange_scans import rows_outside, scans_in_threads
from tcsym.schedule.plan import renamed
from tcsym.schedule.split.drop_empty import drop_empty, drop_single
from tcsym.schedule.split.share_conditions import share_conditions
from tcsym.schedule.split.unswitch import unswitch
from tcsym.schedule.storage.contract_storage import contract_storage
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.schedule.storage.privatise import privatise
from tcsym.schedule.storage.storage_folding import fold_storage
from tcsym.schedule.version.versioning import duplicate
from tcsym.schedule.wanted import asked_plans, unmet
from tcsym.target.machine import Machine

V = TypeVar("V", Version, Stepped)
THREAD_BYTES = 512  # of a temporary that each thread has for itself


def map_gpu(
    kernel: Kernel, machine: Machine, options: Options | None = None, tells_all: bool = False
) -> Mapped:
    """A correct kernel for every naive one, and all sizes.

    options: which plans are asked for. tells_all: choices say all that were offered.
    """
    small = drop_empty(in_quotients(kernel))
    names = Names.of(small)
    small = unswitch(replace(small, body=without_allocations(small.body)), names)
    small = share_conditions(small)
    small = follow_steps(accumulate_privately(small, names))
    small = fold_storage(drop_single(privatise(small)))
    small = separate_nests(scans_in_threads(small), names)
    small = replace(small, body=parallel_outside(small.body))
    host = _Host(small, machine, names, options or Options(), tells_all)
    body = host.node(small.body)
    small = _contracted(replace(host.kernel, body=body), frozenset(host.on_threads))
    small = place_allocations(drop_empty(assume(small)))
    verify(small, "device", VERIFY.read(), proves_races=False)  # the twin finds those that happen
    if VERIFY.read():
        verify_exact(kernel, small)
    return Mapped(
        in_sizes(small, kernel),
        with_conditions(host.choices, lambda c: condition_in_sizes(c, kernel)),
        warnings=tuple(dict.fromkeys(_in_vain(host))),
    )


class _Host(Struct):
    """Host code around grids. on_threads: the loops that threads stand for. stays: blocks that
    stay run the grids. offered: names of plans, by loop, where a plan is asked for; nests: loops of
    those that choose."""

    kernel: Kernel
    machine: Machine
    names: Names
    options: Options
    tells_all: bool
    on_threads: set[str] = field(default_factory=set)
    choices: list[Choice] = field(default_factory=list)
    stays: bool = False
    offered: dict[str, list[str]] = field(default_factory=dict)
    nests: dict[str, None] = field(default_factory=dict)

    def node(self, n: Node) -> Node:
        """Host code around the grids of `n`."""
        match n:
            case Loop():
                if is_parallel(n):
                    return self.grids(n)
                if _is_scattered(n):
                    return self.scatter(n)
                if n.value is None and _has_parallel(n.body):
                    return self.steps(n)
                return self.single(n)
            case Branch(c, a, b):
                return Branch(c, self.node(a), None if b is None else self.node(b))
            case Block(body):
                return block(*self.in_sequence(body))
            case Allocate(name, body):
                return Allocate(name, self.node(body))
            case Store() | Update() | Verify():
                return self.single(n)
            case TransposeBlock() | DeviceNode():
                raise AssertionError(f"not in a naive kernel: {n}")
            case _:
                assert_never(n)

    def scatter(self, n: Loop) -> Node:
        """Terms that find their positions."""
        nest = at_once(self.kernel, n)
        self.kernel, copy, _ = duplicate(self.kernel, n, self.names)
        if nest is not None:
            self.kernel, many = in_copies(self.kernel, copy, self.names)
            return self.cheaper(many, nest)
        found, nest = scatter_of(copy), owned(n, self.names)
        if found is None:
            return self.single(n) if nest is None else self.grids(nest)
        self.kernel, many = sorted_terms(found, self.kernel, self.names)
        return self.cheaper(many, n if nest is None else nest)

    def cheaper(self, many: Node, few: Loop) -> Node:
        """Several nests where they cost less than the loop."""
        costs = [cycles_of(self.kernel, x, self.machine) for x in (few, many)]
        known = [c for c in costs if c is not None]
        is_cheaper = ge(*known) if len(known) == len(costs) else TRUE
        rest = self.grids(few) if is_parallel(few) else self.single(few)
        return Branch(is_cheaper, self.node(many), rest)

    def in_sequence(self, nodes: tuple[Node, ...]) -> list[Node]:
        """Neighbours that one thread has to do are one grid."""
        out: list[Node] = []
        for is_wide, found in groupby(nodes, lambda x: _has_parallel(x) or _is_scattered(x)):
            run = tuple(found)
            out += map(self.node, run) if is_wide else [self.single(block(*run))]
        return out

    def single(self, n: Node) -> Node:
        """A grid of one thread."""
        thread, outer = self.names.fresh("thread"), self.names.fresh("block")
        inside = Loop(thread, ZERO, index(1), n, "thread", "parallel")
        if self.stays:
            inside = replace(inside, upper=index(BLOCK_THREADS), mask=index(1))
        return Loop(outer, ZERO, index(1), inside, "block", "parallel")

    def steps(self, n: Loop) -> Node:
        """The ways to take the steps of a loop, side by side."""
        if self.stays or not n.is_steps:
            return replace(n, body=self.node(n.body))
        found = ways(self.kernel, n, self.machine)
        wanted = plan_asked(n.variable, self.options)
        asked = (replace(x, when=TRUE) for x in found if x.plan.name == wanted)
        self.note_offered(n.variable, [x.plan.name for x in found], len(found) > 1)
        before, told = self.choices, list[Taken]()

        def way(copy: Loop, x: Stepped) -> Node:
            self.choices = []
            node = self.way(copy, x.plan)
            cost = "" if x.cycles is None else f"cycles: {x.cycles}"
            told.append(Taken(x.when, x.plan, tuple(self.choices), cost=cost))
            return node

        made = self.beside(n, [*asked, *found], way)
        inside = [Choice(n.variable, tuple(told))] if len(found) > 1 else told[0].inside
        self.choices = [*before, *inside]
        return made

    def beside(self, n: Loop, versions: Sequence[V], make: Callable[[Loop, V], Node]) -> Node:
        """Copies of the loop, one for each version up to the first that always runs, whose is the
        loop itself."""
        given = [x for x in versions if x.when != FALSE]
        last = next((k for k, x in enumerate(given) if x.when == TRUE), len(given) - 1)
        nodes: list[Node] = []
        for x in given[:last]:
            self.kernel, copy, new = duplicate(self.kernel, n, self.names)
            nodes.append(make(copy, replace(x, plan=renamed(x.plan, new))))
        made = make(n, given[last])
        for x, node in zip(reversed(given[:last]), reversed(nodes), strict=True):
            made = Branch(x.when, node, made)
        return made

    def way(self, n: Loop, plan: Steps) -> Node:
        match plan:
            case ThreadSteps():
                self.kernel, outside = rows_outside(self.kernel, n)
                return self.grids(outside)
            case BlockSteps():
                self.kernel, outside = rows_outside(self.kernel, n)
                nest, outer = nest_of(self.kernel, outside), self.names.fresh("block")
                assert isinstance(nest.body, Loop)
                scan = self.staying(nest.body, alone(self.machine))
                self.kernel, node = in_block(replace(nest, kernel=self.kernel), outer, scan)
                self.on_threads |= {outer, *nest.variables}
                return node
            case GridSteps():
                scan = self.staying(n, together(self.machine))
                self.kernel, counter, scan = in_grid(self.kernel, scan, self.names)
                return block(self.single(Store(counter.name, (), Const(0, counter.dtype))), scan)
            case LaunchSteps():
                return replace(n, body=self.node(n.body))
            case _:
                assert_never(plan)

    def staying(self, scan: Loop, machine: Machine) -> Loop:
        """Grids for blocks that stay, in the loop as it is."""
        inner = replace(self, machine=machine, stays=True)
        node = inner.node(scan)
        self.kernel = inner.kernel
        assert isinstance(node, Loop)
        return node

    def grids(self, top: Loop) -> Node:
        """The versions of the nest, side by side."""
        nest = nest_of(self.kernel, top)
        everything = offered(nest, self.machine) if self.tells_all else ()
        asks = bool(asked_plans(self.options))
        names = offered_names(nest, self.machine, self.stays) if asks else []
        taken: list[Taken] = []

        def grid(copy: Loop, v: Version) -> Node:
            nest = nest_of(self.kernel, copy)
            applied = apply(v.plan, nest, self.names)
            applied = replace(applied, node=with_room(applied.node, v.plan, nest, self.machine))
            self.kernel = applied.kernel
            self.on_threads |= {*nest.variables, *(x.variable for x in loops_in(applied.node))}
            taken.append(Taken(v.when, v.plan, cost="" if v.cost is None else str(v.cost)))
            return applied.node

        made = self.beside(top, self.versions(top), grid)
        of_nest = tuple((v.plan.name, v) for v in everything)
        self.choices.append(Choice(top.variable, tuple(taken), of_nest))
        self.note_offered(top.variable, names)
        return made

    def note_offered(self, loop: str, names: list[str], counts: bool = True) -> None:
        """counts: as a nest that chooses."""
        self.offered.setdefault(loop, []).extend(names)
        if counts:
            self.nests[loop] = None

    def versions(self, top: Loop) -> tuple[Version, ...]:
        wanted = plan_asked(top.variable, self.options)
        found = versions(nest_of(self.kernel, top), self.machine, wanted, self.stays)
        asked = frozenset[str]().union(*[condition_variables(v.when) for v in found])
        for b in self.kernel.buffers:
            if b.space == "argument" and phase_of(b) in asked:
                self.kernel = self.kernel.with_buffer(replace(b, phase=phase_of(b)))
        sizes = {*self.kernel.sizes, *self.kernel.launched}
        known = [v for v in found if condition_variables(v.when) <= sizes]
        return tuple(replace(v, when=in_context(self.kernel, v.when)) for v in known)


def _in_vain(host: _Host) -> Iterator[str]:
    """What options ask for in vain."""
    yield from on_device(host.options)
    yield from unknown_nests([*host.nests], host.options)
    yield from unmet(host.options, host.offered, {x: {x: host.offered[x]} for x in host.nests})


def _is_scattered(n: Node) -> bool:
    return isinstance(n, Loop) and (n.at is not None or scatters(n))


def _has_parallel(n: Node) -> bool:
    return any(is_parallel(x) for x, _ in walk(n))


def _contracted(kernel: Kernel, on_threads: frozenset[str]) -> Kernel:
    """Temporaries contracted to what one thread needs if that is little, else kept for them all."""
    small = contract_storage(kernel)
    for b in small.buffers:
        is_large = b.space in ("register", "stack") and _bytes(b) > THREAD_BYTES
        if is_large or b.space == "arena":
            kept = kernel.buffer(b.name)
            kept = replace(kept, private=kept.private - on_threads)
            kernel = kernel.with_buffer(kept)
    small = contract_storage(kernel)
    blocks = {x.variable for x, _ in walk(small.body) if isinstance(x, Loop) and x.kind == "block"}
    for b in small.buffers:
        if b.space in ("register", "stack") and not b.private & blocks:  # grids hand it on
            small = small.with_buffer(replace(b, space="arena", padded=False))
    return small


def _bytes(b: Buffer) -> int:
    """Of a temporary in registers or on the stack."""
    return math.prod(e.as_int() or 0 for e in b.shape) * b.dtype.bytes
