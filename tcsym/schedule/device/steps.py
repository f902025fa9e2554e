# SPDX-License-Identifier: Apache-2.0
"""A loop in order around nests -> the ways in which a device can take its steps, and their costs.

ThreadSteps  rows that no value crosses are outside, and threads take theirs through all steps
BlockSteps   a block for each such row: its threads share the nests of a step, barriers between
GridSteps    all steps are one grid: its blocks share each nest of a step and wait for each other
LaunchSteps  a launch for each nest of each step; of calls that are repeated, the run time keeps a
             graph of all launches, which it launches at once
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import add

from msgspec.structs import replace

from tcsym.index.expr import ZERO, Condition, Index, all_of, ceildiv, ge, maximum, minimum, var
from tcsym.ir.bounds import relax, trip_bound
from tcsym.ir.device import STAYING, Barrier, GridBarrier
from tcsym.ir.loops import Block, Branch, Buffer, Kernel, Loop, Node, block
from tcsym.ir.traverse import grids, map_node, walk
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import children, loops_in, outermost_loops
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.device.cost import EXCHANGE
from tcsym.schedule.device.nest import Nest, at_iteration, is_parallel, nest_of
from tcsym.schedule.device.plan import (
    BlockSteps,
    GridSteps,
    LaunchSteps,
    Stepped,
    ThreadSteps,
)
from tcsym.schedule.device.propose import unconditional
from tcsym.schedule.order.distribute import distribute
from tcsym.schedule.order.interchange_scans import rows_outside
from tcsym.target.machine import Machine
from tcsym.types import DType


def separate_nests(kernel: Kernel, names: Names) -> Kernel:
    """Nests that a step does on the same rows -> each with rows of its own, if points in them have
    loops of their own: a grid then has threads for all points, not for rows alone."""
    for scan, around in tuple(walk(kernel.body)):
        if not isinstance(scan, Loop) or not scan.is_steps or around:
            continue
        for top in outermost_loops(scan.body):
            if is_parallel(top) and top.kind == "serial":
                groups = _groups(nest_of(kernel, top).body)
                if len(groups) > 1 and any(_has_deep_points(x) for x in groups):
                    kernel = distribute(kernel, top.variable, groups, names).kernel
    return kernel


def _groups(body: Node) -> tuple[Node, ...]:
    """Parallel loops, and what is between them."""
    out: list[Node] = []
    for is_nest, run in groupby(children(body), key=is_parallel):
        nodes = tuple(run)
        out += nodes if is_nest else [block(*nodes)]
    return tuple(out)


def _has_deep_points(n: Node) -> bool:
    return is_parallel(n) and bool(loops_in(n.body))


def ways(kernel: Kernel, scan: Loop, machine: Machine) -> tuple[Stepped, ...]:
    """Each for the sizes at which none behind it is cheaper; the last one is for all."""
    launched = _launched(kernel, scan, machine)
    found = [*_of_rows(kernel, scan, machine), _of_grid(kernel, scan, machine)]
    known = [x for x in found if x.cycles is not None and launched is not None]
    known.append(Stepped(LaunchSteps(scan.variable), launched))
    return tuple(
        replace(x, when=in_context(kernel, _is_cheaper(x, known[k + 1 :])))
        for k, x in enumerate(known)
    )


def _is_cheaper(x: Stepped, others: Sequence[Stepped]) -> Condition:
    costs = [y.cycles for y in others if y.cycles is not None]
    return all_of([ge(c, x.cycles) for c in costs if x.cycles is not None])


def _launched(kernel: Kernel, scan: Loop, machine: Machine) -> Index | None:
    """One by one, or as a graph, whichever is quicker."""
    in_graph = _with(machine, launch=machine.unit.node)
    each, nodes = (_cycles(kernel, scan, m, False) for m in (machine, in_graph))
    return None if each is None or nodes is None else minimum(each, nodes + machine.unit.launch)


def _of_rows(kernel: Kernel, scan: Loop, machine: Machine) -> Iterator[Stepped]:
    kernel, outside = rows_outside(kernel, scan)
    if outside is scan:
        return
    nest = nest_of(kernel, outside)
    yield Stepped(ThreadSteps(scan.variable, nest.variables), _least(nest, machine, False))
    step = _cycles(kernel, nest.body, alone(machine), True)
    if step is not None:
        step = ceildiv(nest.points, machine.workers) * step + machine.unit.launch
    yield Stepped(BlockSteps(scan.variable, nest.variables), step)


def _of_grid(kernel: Kernel, scan: Loop, machine: Machine) -> Stepped:
    steps = _cycles(kernel, scan, together(machine), True)
    whole = None if steps is None else steps + 2 * machine.unit.launch
    return Stepped(GridSteps(scan.variable), whole)


def _with(machine: Machine, **facts: int) -> Machine:
    """With other facts of its multiprocessors."""
    return replace(machine, multiprocessor=replace(machine.unit, **facts))


def together(machine: Machine) -> Machine:
    """What blocks that stay have: room for few, and barriers in place of launches."""
    return _with(machine, blocks=STAYING, launch=machine.unit.barrier)


def alone(machine: Machine) -> Machine:
    """What a block has that takes all blocks of a nest one after the other: a multiprocessor, whose
    memory is the cache that holds what the step before has read, and barriers in place of launches.
    What nests share is alive in all of them, so there is none for tiles.
    """
    own = _with(machine, blocks=1, memory_bytes=machine.unit.l2_bytes, launch=EXCHANGE)
    levels = tuple(replace(x, bytes=x.bytes * (x.name != "shared")) for x in machine.levels)
    return replace(own, workers=1, levels=levels)


def _cycles(kernel: Kernel, n: Node, machine: Machine, stays: bool) -> Index | None:
    """Of host code; None: they are not known. stays: its grids are run by blocks that stay."""
    match n:
        case Loop() if is_parallel(n):
            return _least(nest_of(kernel, n), machine, stays)
        case Loop() if n.is_steps and n.at is None:
            trips = relax(trip_bound(n), frozenset(kernel.sizes), True)
            step = _cycles(kernel, n.body, machine, stays)
            return None if trips is None or step is None else maximum(trips, 1) * step
        case Block(body):
            found = [_cycles(kernel, x, machine, stays) for x in body]
            known = [x for x in found if x is not None]
            return reduce(add, known) if known and len(known) == len(found) else None
        case Branch(_, a, b):
            arms = [_cycles(kernel, x, machine, stays) for x in (a, b) if x is not None]
            known = [x for x in arms if x is not None]
            return maximum(*known) if len(known) == len(arms) else None
        case _:
            return None


def _least(nest: Nest, machine: Machine, stays: bool) -> Index | None:
    found = [v.cost for v in unconditional(nest, machine, stays)]
    known = [c.cycles for c in found if c is not None]
    return minimum(*known) if known else None


def in_grid(kernel: Kernel, scan: Loop, names: Names) -> tuple[Kernel, Buffer, Loop]:
    """One grid of the scan, whose nests are grids; the counter that has to be 0 before."""
    counter = Buffer(names.fresh("arrived"), DType.INT32, (), "arena")
    outermost = {id(x) for x, _ in grids(scan)}
    body = map_node(
        scan.body, lambda n: block(n, GridBarrier(counter.name)) if id(n) in outermost else n
    )
    return kernel.with_buffer(counter), counter, replace(scan, kind="grid", body=body)


def in_block(nest: Nest, outer: str, scan: Node) -> tuple[Kernel, Loop]:
    """A block for each row, which runs all blocks of the grids in `scan`, one after the other.

    What threads do not have for themselves has an element for each row.
    """
    kernel, rows = nest.kernel, {*nest.variables}
    threads = {x.variable for x in loops_in(scan) if x.kind == "thread"}
    for b in kernel.buffers:
        own = b.space == "shared" or b.private & threads
        private = b.private | {outer} if own and b.private else b.private - rows
        kernel = kernel.with_buffer(replace(b, private=private))
    body = at_iteration(nest.chain, var(outer), map_node(scan, _in_order))
    return kernel, Loop(outer, ZERO, nest.points, body, "block", "parallel")


def _in_order(n: Node) -> Node:
    """Blocks of a grid one after the other."""
    if not isinstance(n, Loop) or n.kind != "block":
        return n
    return replace(n, kind="serial", body=block(n.body, Barrier()))
