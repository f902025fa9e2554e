"""Temporaries of which a loop in order reads the last step only -> storage for one step.

C(t,b) = F(t,b)*C(t-1,b) + X(t,b), with C read in the same loop alone, needs C(b): each point reads
its old value, then stores the new one. Steps that never leave the cache cost nothing.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Read
from tcsym.index import ONE, ZERO, Index, var
from tcsym.loop_ir import (
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    Update,
    Value,
    loads,
    map_node,
    walk,
)
from tcsym.polyhedral.passes.common.access import accesses
from tcsym.polyhedral.passes.common.loops import chain_of, children

Place = tuple[Index, ...]


def roll_state(kernel: Kernel) -> Kernel:
    """Every temporary loses the dimension that an outermost loop in order moves, where it may.

    Contract: temporaries are in the arena and have plain subscripts, as before any schedule.
    """
    for loop, around in tuple(walk(kernel.body)):
        if isinstance(loop, Loop) and loop.order == "sequential" and not around:
            for b in kernel.buffers:
                d = _rolled_dimension(kernel, b, loop) if b.space == "arena" else None
                if d is not None:
                    kernel = _without_dimension(kernel, b, d)
    return kernel


def _rolled_dimension(kernel: Kernel, b: Buffer, scan: Loop) -> int | None:
    """The dimension along which only the last step's elements are read, each by its own point."""
    chains = [c for x in children(scan.body) if isinstance(x, Loop) for c in [chain_of(x)]]
    using = [c for c in chains if any(a.buffer == b.name for a in accesses(c[0]))]
    uses = sum(a.buffer == b.name for a in accesses(kernel.body))
    if len(using) != 1 or b.private & {scan.variable}:
        return None
    (chain,) = using
    if uses != sum(a.buffer == b.name for a in accesses(chain[-1].body)):
        return None
    store = next((x for x, _ in walk(chain[-1].body) if _stores(x, b)), None)
    if not isinstance(store, Store):
        return None
    rows = [var(x.variable) for x in chain]
    moved = [k for k, s in enumerate(store.subscripts) if s == var(scan.variable)]
    others = [s for k, s in enumerate(store.subscripts) if k not in moved]
    if len(moved) != 1 or sorted(map(str, others)) != sorted(map(str, rows)):
        return None  # several points of a step might share an element
    now = store.subscripts
    last = tuple(s - 1 if k in moved else s for k, s in enumerate(now))
    return moved[0] if _is_stored_once(chain[-1].body, b, now, last) == ONE else None


def _stores(x: Node, b: Buffer) -> bool:
    return isinstance(x, Store | Update) and x.buffer == b.name


def _is_stored_once(node: Node, b: Buffer, now: Place, last: Place) -> Index | None:
    """ONE if each way stores `now`, reads `last` before and `now` after; ZERO if none uses `b`.

    None: anything else.
    """
    stored = ZERO
    for x in node.body if isinstance(node, Block) else (node,):
        if isinstance(x, Branch) and x.orelse is not None:
            arms = {_is_stored_once(y, b, now, last) for y in (x.then, x.orelse)}
            inside = arms.pop() if len(arms) == 1 else None
            if inside is None or (inside == ONE and stored == ONE):
                return None
            read = [a for a in accesses(x) if a.buffer == b.name]
            if stored == ONE and any(a.subscripts != now for a in read):
                return None
            stored = ONE if inside == ONE else stored
        elif isinstance(x, Store | Update):
            if not all(_reads(r, now if stored == ONE else last) for r in _own(x, b)):
                return None
            if x.buffer == b.name:
                if isinstance(x, Update) or x.subscripts != now or stored == ONE:
                    return None
                stored = ONE
        elif any(a.buffer == b.name for a in accesses(x)):
            return None
    return stored


def _own(x: Store | Update, b: Buffer) -> list[Read]:
    return [r for r in loads(x.value) if r.tensor == b.name]


def _reads(r: Read, place: Place) -> bool:
    return r.subscripts == place and r.unwritten is None and not any(r.checked)


def _without_dimension(kernel: Kernel, b: Buffer, d: int) -> Kernel:
    def statement(x: Node) -> Node:
        if isinstance(x, Store) and x.buffer == b.name:
            return replace(x, subscripts=x.subscripts[:d] + x.subscripts[d + 1 :])
        return x

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor != b.name:
            return v
        checked = v.checked[:d] + v.checked[d + 1 :] if v.checked else ()
        return replace(v, subscripts=v.subscripts[:d] + v.subscripts[d + 1 :], checked=checked)

    shape = b.shape[:d] + b.shape[d + 1 :]
    kernel = kernel.with_buffer(replace(b, shape=shape, strides=None))
    return replace(kernel, body=map_node(kernel.body, statement, value))
