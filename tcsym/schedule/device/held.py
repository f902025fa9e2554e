# SPDX-License-Identifier: Apache-2.0
"""Rows in which a thread meets the same elements again and again -> those elements kept by it.

    m = max over d of X[d];  Y[d] = exp(X[d] - m);  s = sum over d of Y[d];  Y[d] = Y[d] / s

Each thread has some elements of the row, known when compiling how many at most: X is loaded once, Y
is stored once. They are in registers, or in memory that the block shares. State that each step of a
row reads as the step before left it is kept through all steps:

    for t: for d: X[d] = f(S[t, d]);  for d: S[t + 1, d] = g(X[d])
->  for d: state[d] = S[first, d]
    for t: for d: X[d] = f(state[d]);  for d: state[d] = g(X[d]), S[t + 1, d] = state[d]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, Index, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Loop, Node, Space, Store, Update, Value, block
from tcsym.ir.traverse import certain_loads, loads, map_node
from tcsym.schedule.analysis.access import Access, accesses
from tcsym.schedule.analysis.loops import children, is_leaf, writes_in
from tcsym.schedule.device.nest import Nest, new_name
from tcsym.types import DType

ELEMENT = "row.element"  # stands for the variable of each loop of a row
SUMS_BYTES = 1024  # shared by the warps of a row, at most
Place = tuple[Index, ...]


def held_buffers(nest: Nest) -> frozenset[str]:
    """Buffers of which each thread uses its own elements only, in several loops of the row, and
    all of them: what is loaded and stored for a whole loop is not behind conditions."""
    body = children(nest.body)
    loops = [x for x in body if isinstance(x, Loop)]
    same = {(x.lower, extent(x)) for x in loops}
    if len(loops) < 2 or len(same) != 1 or not all(map(is_leaf, loops)):
        return frozenset()
    at = [(x.variable, a) for x in loops for a in accesses(x.body)]
    certain = Counter(a.buffer for x in loops for a in _certain(x))
    elsewhere = {a.buffer for x in body if not isinstance(x, Loop) for a in accesses(x)}
    used = Counter(a.buffer for _, a in at)
    found = [b for b, n in used.items() if b not in elsewhere and certain[b] == n]
    return frozenset(b for b in found if _is_held(nest, b, [x for x in at if x[1].buffer == b]))


def _certain(x: Loop) -> Iterator[Access]:
    """Accesses of every iteration, whatever is computed."""
    for n in children(x.body):
        if isinstance(n, Store | Update):
            yield Access(n.buffer, n.subscripts, True)
            for r in certain_loads(n.value):
                yield Access(r.tensor, r.subscripts, False, r.checked)


def _is_held(nest: Nest, buffer: str, uses: list[tuple[str, Access]]) -> bool:
    if nest.kernel.buffer(buffer).dtype is DType.BOOL or len({v for v, _ in uses}) < 2:
        return False
    first, *others = {_place(a, v) for v, a in uses}
    return not others and first is not None and var(ELEMENT) in first


def _place(a: Access, variable: str) -> Place | None:
    """By the row's element; None where that is not known when compiling."""
    places = [s for s in a.subscripts if isinstance(s, Index)]
    if any(a.checked) or len(places) < len(a.subscripts):
        return None
    return tuple(substitute(s, {variable: var(ELEMENT)}) for s in places)


Use = tuple[int, int, bool]


def places_of(nest: Nest, held: frozenset[str]) -> dict[str, str]:
    """Buffers -> the one whose place each has: its own, or that of one that is of no use any more
    when it is first stored."""
    uses: dict[str, list[Use]] = {}
    for k, x in enumerate(children(nest.body)):
        for j, s in enumerate(children(x.body) if isinstance(x, Loop) else ()):
            if isinstance(s, Store | Update):
                read = {r.tensor for r in loads(s.value)}
                read |= {s.buffer} if isinstance(s, Update) else set()
                for b in sorted(read & held):
                    uses.setdefault(b, []).append((k, j, False))
                if s.buffer in held:
                    uses.setdefault(s.buffer, []).append((k, j, True))
    dtypes = {b: nest.kernel.buffer(b).dtype for b in uses}
    places, now = dict[str, str](), dict[str, str]()
    for b in sorted(uses, key=lambda b: (uses[b], b)):
        over = (p for p, x in now.items() if dtypes[x] is dtypes[b] and _is_over(uses[x], uses[b]))
        places[b] = next(over, b)
        now[places[b]] = b
    return places


def _is_over(earlier: list[Use], later: list[Use]) -> bool:
    """What was stored goes to memory at the end of a loop."""
    last, (*first, stores) = earlier[-1], later[0]
    is_read = not any(is_stored for *_, is_stored in earlier)
    return stores and (last[0] < first[0] or (is_read and [*last[:2]] <= first))


def kept_bytes(nest: Nest, held: frozenset[str]) -> int:
    """Of what is kept of an element of the row."""
    places = {*places_of(nest, held).values()}
    return sum(nest.kernel.buffer(b).dtype.bytes for b in places)


def held_form(nest: Nest, held: frozenset[str], space: Space) -> Nest:
    """As if all of a row were kept: for what that costs."""
    kernel, private = nest.kernel, frozenset(nest.variables)
    kept = {
        b: Buffer(f"{b}.held", kernel.buffer(b).dtype, (ONE,), space, private=private) for b in held
    }
    for b in kept.values():
        kernel = kernel.with_buffer(b)
    taken, out = Held(nest, kept), list[Node]()
    for k, x in enumerate(children(nest.body)):
        if isinstance(x, Loop):
            x = replace(x, body=taken.body(x.body, k, var(x.variable)))
        out.append(x)
    return nest.doing(block(*out), kernel)


class Held:
    """Places of those buffers, while loops of the row are taken one after the other."""

    def __init__(self, nest: Nest, registers: Mapping[str, Buffer]) -> None:
        self.registers, self.known = registers, set[str]()
        stores = [(x, k) for k, n in enumerate(children(nest.body)) for x in writes_in(n)]
        self.last = {x.buffer: k for x, k in stores}
        self.outside = {b.name for b in nest.kernel.buffers if not b.private & {*nest.variables}}

    def body(self, n: Node, number: int, at: Index) -> Node:
        """The body of the loop of that number, of the element whose place is `at`."""
        place, first, kept = (at,), dict[str, Store](), dict[str, Store]()

        def value(v: Value) -> Value:
            if not isinstance(v, Read) or v.tensor not in self.registers:
                return v
            register = self.registers[v.tensor].name
            if v.tensor not in self.known:
                first[v.tensor] = Store(register, place, v)
            return Read(register, place, v.dtype)

        def node(x: Node) -> Node:
            if not isinstance(x, Store | Update) or x.buffer not in self.registers:
                return x
            register = self.registers[x.buffer]
            if isinstance(x, Update) and x.buffer not in self.known:
                old = Read(x.buffer, x.subscripts, register.dtype)
                first.setdefault(x.buffer, Store(register.name, place, old))
            if self.last[x.buffer] == number and x.buffer in self.outside:
                mine = Read(register.name, place, register.dtype)
                kept[x.buffer] = Store(x.buffer, x.subscripts, mine, x.name)
            self.known.add(x.buffer)
            return replace(x, buffer=register.name, subscripts=place)

        out: list[Node] = []
        for x in children(n):
            done = map_node(x, node, value)
            self.known |= first.keys()
            out += [*first.values(), done]
            first.clear()
        return block(*out, *kept.values())


# ---- from step to step


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
            place = None if loop is None or stored else _place(a, loop.variable)
            if place is None or (a.written and not isinstance(n, Store)):
                return None
            if a.written:
                stored = tuple(substitute(s, {step: var(step) - 1}) for s in place)
            else:
                read.add(place)
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
    b, parts = nest.kernel.buffer(name), children(nest.body)
    own = new_name(nest.kernel, f"{name}_state")
    row = next(x for x in parts if isinstance(x, Loop))
    private = frozenset(x.variable for x in nest.rows)
    state = Buffer(own, b.dtype, (extent(row),), "arena", private=private)

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

    made = nest.doing(block(*map(kept, parts)), nest.kernel.with_buffer(state))
    if own not in held_buffers(made):
        return None
    here = {ELEMENT: var(row.variable), scan.variable: scan.lower}
    old = Read(name, tuple(substitute(e, here) for e in first), b.dtype, (False,) * len(first))
    fill = Store(own, (var(row.variable) - row.lower,), old)
    return Carried(made, (*found.fills, replace(row, body=fill, order="parallel")))
