"""Rows in which a thread meets the same elements again and again -> those elements kept by it.

    m = max over d of X[d];  Y[d] = exp(X[d] - m);  s = sum over d of Y[d];  Y[d] = Y[d] / s

Each thread has some elements of the row, known when compiling how many at most: X is loaded once, Y
is stored once. They are in registers, or in memory that the block shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, Index, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Loop, Node, Space, Store, Update, Value, block
from tcsym.ir.traverse import certain_loads, loads, map_node, walk
from tcsym.schedule.analysis.access import Access, accesses
from tcsym.schedule.analysis.loops import children
from tcsym.schedule.device.nest import Nest
from tcsym.types import DType

ELEMENT = "row.element"  # stands for the variable of each loop of a row
SUMS_BYTES = 1024  # shared by the warps of a row, at most


def held_buffers(nest: Nest) -> frozenset[str]:
    """Buffers of which each thread uses its own elements only, in several loops of the row, and
    all of them: what is loaded and stored for a whole loop is not behind conditions."""
    body = children(nest.body)
    loops = [x for x in body if isinstance(x, Loop)]
    same = {(x.lower, extent(x)) for x in loops}
    if len(loops) < 2 or len(same) != 1 or any(isinstance(y, Loop) for y, _ in _inside(loops)):
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


def _inside(loops: list[Loop]) -> list[tuple[Node, Any]]:
    return [y for x in loops for y in walk(x.body)]


def _is_held(nest: Nest, buffer: str, uses: list[tuple[str, Access]]) -> bool:
    b = nest.kernel.buffer(buffer)
    if b.dtype is DType.BOOL or len({v for v, _ in uses}) < 2:
        return False
    places = set[tuple[Index, ...]]()
    for v, a in uses:
        if any(a.checked) or not all(isinstance(s, Index) for s in a.subscripts):
            return False
        names = {v: var(ELEMENT)}
        places.add(tuple(substitute(s, names) for s in a.subscripts if isinstance(s, Index)))
    return len(places) == 1 and var(ELEMENT) in next(iter(places))


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
    *chain, last = nest.chain
    return Nest(kernel, (*chain, replace(last, body=block(*out))))


class Held:
    """Places of those buffers, while loops of the row are taken one after the other."""

    def __init__(self, nest: Nest, registers: Mapping[str, Buffer]) -> None:
        self.registers, self.known = registers, set[str]()
        stores = [(x, k) for k, n in enumerate(children(nest.body)) for x in _writes(n)]
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
                first.setdefault(x.buffer, Store(register.name, place, _read(x, register)))
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


def _read(x: Update, register: Buffer) -> Read:
    return Read(x.buffer, x.subscripts, register.dtype)


def _writes(n: Node) -> list[Store | Update]:
    return [x for x, _ in walk(n) if isinstance(x, Store | Update)]
