"""State that each step of a row reads as the step before left it -> elements that threads keep.

    for t: for d: X[d] = f(S[t, d]);  for d: S[t + 1, d] = g(X[d])
->  for d: state[d] = S[first, d]
    for t: for d: X[d] = f(state[d]);  for d: state[d] = g(X[d]), S[t + 1, d] = state[d]

The state is one of the elements that are kept (`held`), through all steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import Index, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Loop, Node, Store, Value, block
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.device.held import ELEMENT, held_buffers
from tcsym.schedule.device.nest import Nest

Place = tuple[Index, ...]


class Carried(Struct, frozen=True):
    """The nest through steps, and what fills its states before the first step."""

    nest: Nest
    fills: tuple[Loop, ...] = ()


def carried(nest: Nest) -> Carried:
    """With a state for each buffer that has one; without steps there are none."""
    found = Carried(nest)
    if nest.steps is not None:
        for name in sorted({a.buffer for a in accesses(nest.body) if a.written}):
            first = _first(nest, nest.steps.variable, name)
            made = None if first is None else _with_state(found, name, first)
            found = made or found
    return found


def _first(nest: Nest, step: str, name: str) -> Place | None:
    """Where each step reads the buffer, if all it does there is behind that, and stores what the
    next step reads so; None otherwise."""
    read, stored = set[Place](), None
    for loop, n in _statements(nest):
        for a in sorted((a for a in accesses(n) if a.buffer == name), key=lambda a: a.written):
            places = [s for s in a.subscripts if isinstance(s, Index)]
            if loop is None or stored or any(a.checked) or len(places) < len(a.subscripts):
                return None
            place = tuple(substitute(s, {loop.variable: var(ELEMENT)}) for s in places)
            if not a.written:
                read.add(place)
            elif isinstance(n, Store):
                stored = tuple(substitute(s, {step: var(step) - 1}) for s in place)
            else:
                return None
    return stored if read == {stored} else None


def _statements(nest: Nest) -> Iterator[tuple[Loop | None, Node]]:
    """Of a step, in order, with the loop of the row that each is in."""
    for x in children(nest.body):
        loop = x if isinstance(x, Loop) else None
        yield from ((loop, n) for n in children(x if loop is None else loop.body))


def _with_state(found: Carried, name: str, first: Place) -> Carried | None:
    """None if threads cannot keep it."""
    nest, scan = found.nest, found.nest.steps
    assert scan is not None
    b, taken = nest.kernel.buffer(name), {b.name for b in nest.kernel.buffers}
    own = f"{name}_state"
    while own in taken:
        own += "_"
    parts = children(nest.body)
    shape = next((extent(x),) for x in parts if isinstance(x, Loop))
    private = frozenset(x.variable for x in nest.rows)
    state = Buffer(own, b.dtype, shape, "arena", private=private)

    def kept(x: Node) -> Node:
        if not isinstance(x, Loop):
            return x
        at = (var(x.variable) - x.lower,)
        mine = Read(own, at, b.dtype)

        def store(n: Node) -> Node:
            if not isinstance(n, Store) or n.buffer != name:
                return n
            return block(Store(own, at, n.value), replace(n, value=mine))

        def value(v: Value) -> Value:
            return mine if isinstance(v, Read) and v.tensor == name else v

        return replace(x, body=map_node(x.body, store, value))

    steps = replace(scan, body=block(*map(kept, parts)))
    made = Nest(nest.kernel.with_buffer(state), (*nest.rows, steps))
    if own not in held_buffers(made):
        return None
    row = next(x for x in parts if isinstance(x, Loop))
    here = {ELEMENT: var(row.variable), scan.variable: scan.lower}
    old = Read(name, tuple(substitute(e, here) for e in first), b.dtype, (False,) * len(first))
    fill = Store(own, (var(row.variable) - row.lower,), old)
    return Carried(made, (*found.fills, replace(row, body=fill, order="parallel")))
