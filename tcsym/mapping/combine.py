# SPDX-License-Identifier: Apache-2.0
"""A sum -> sums of parts of it, and the sum of these: for each point of a loop, or for a loop's
iterations, whose parts are then elements like any others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Expr, Read
from tcsym.index.expr import (
    ONE,
    TRUE,
    ZERO,
    Index,
    Min,
    all_of,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    var,
)
from tcsym.index.values import product_of, substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Block,
    Branch,
    Buffer,
    Loop,
    Node,
    Store,
    Update,
    Value,
    allocated,
    block,
)
from tcsym.ir.traverse import (
    allocated_in,
    loads,
    map_node,
    map_value,
    same,
    substitute_node,
    walk,
)
from tcsym.mapping.plan import Combine, Refused
from tcsym.mapping.tree import (
    Mapping_,
    accessed,
    across,
    as_row,
    found,
    redirected,
    replaced,
    unused,
    variables_of,
)
from tcsym.schedule.analysis.identities import identity


def combine(m: Mapping_, d: Combine) -> Mapping_:
    if d.at is None:
        return _points(m, d)
    at = found(m.node, d.at)
    shared = _shared(at, found(at, d.axis))
    return _iterations(m, d, at) if shared is None else _places(m, shared, at)


# ---- parts for points


def _points(m: Mapping_, d: Combine) -> Mapping_:
    """Updates that the points of a loop do not move get parts, one for each point."""
    made = [(x, y) for x, y in walk(m.node) if isinstance(x, Loop) and _is_part(x, d.axis)]
    points = [x for x, _ in made if x.kind != "serial"]
    outer = [x for x, around in made if not any(_is_part(y, d.axis) for y in around)]
    if len(outer) != 1 or not points:
        raise Refused(f"{d.axis} is not split")
    top, buffers = _whole_sum(m.node, outer[0]), dict(m.buffers)
    names = {x.variable for x in points}
    body: Node = top
    before, after = list[Node](), list[Node]()
    parts = list[str]()
    for u in [x for x, _ in walk(top) if isinstance(x, Update)]:
        if names & frozenset[str]().union(*(s.variables() for s in u.subscripts)):
            continue
        b = buffers[u.buffer]
        if b.space == "argument" or b.dtype is not b.dtype.accumulator:
            raise Refused(f"sums of {u.buffer} in memory")
        name = unused(u.buffer, "parts", buffers)
        at = tuple(var(x.variable) for x in points)
        buffers[name] = Buffer(name, b.dtype, tuple(x.upper for x in points), "arena")
        body = redirected(body, {u.buffer: lambda _, n=name, at=at: (n, at)})  # type: ignore[misc]
        before.append(_in(points, Store(name, at, identity(u.op, b.dtype), name)))
        after.append(replace(u, value=_total(u, buffers[name], points)))
        parts.append(name)
    new = block(*before, body, *after)
    for name in parts:
        new = allocated(name, new)
    return replace(m, node=replaced(m.node, top.variable, lambda _: new), buffers=buffers)


def _whole_sum(node: Node, loop: Loop) -> Loop:
    """The outermost of the loops of a sum that are around nothing but this one."""
    around = next(y for x, y in walk(node) if x is loop)
    moving = variables_of(i for x, _ in walk(loop) if isinstance(x, Update) for i in x.subscripts)
    found = loop
    for x in reversed(around):
        if x.body is not found or x.order != "reduction" or x.variable in moving:
            break
        found = x
    return found


def _is_part(x: Loop, axis: str) -> bool:
    """One of the loops that a split made of the axis; others may have a number behind its name."""
    name, dot, part = x.variable.rpartition(".")
    return bool(dot) and name == axis and not part.isdigit()


def _in(points: list[Loop], node: Node) -> Node:
    for x in reversed(points):
        node = replace(x, mask=None, order="parallel", body=node)
    return node


def _total(u: Update, parts: Buffer, points: list[Loop]) -> Expr:
    """All parts of an element: registers are added as vectors, then lanes across."""
    lanes = [x for x in points if x.kind == "vector"]
    registers = [x for x in points if x.kind != "vector"]
    if len(lanes) != 1 or len(registers) > 1:
        raise Refused("parts that are no vectors")
    width = lanes[0].upper.as_int() or 1
    n = prod(x.upper.as_int() or 1 for x in registers)
    places: Callable[[int], tuple[Index, ...]] = lambda k: (  # noqa: E731
        *(index(k) for _ in registers),
        var("lanes"),
    )
    terms: list[Expr] = [Read(parts.name, places(k), parts.dtype) for k in range(n)]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [*(Binary(u.op, a, b, parts.dtype) for a, b in pairs), *odd]
    return across(u.op, terms[0], "lanes", width, parts)  # type: ignore[return-value]


# ---- parts for iterations


def _iterations(m: Mapping_, d: Combine, at: Loop) -> Mapping_:
    """Sums for each iteration of the axis, made in front of `at` for all that loops in it move, and
    added where the sum was. The axis is one of the two loops that another was split into; if it is
    the inner one, terms of the last, ragged iteration of the outer one are added as they were."""
    at = _outermost(at, *_two(at, d.axis))
    outer, inner = _two(at, d.axis)
    band = tuple(_band(at))
    _check(at, band, outer)
    buffers, by = dict(m.buffers), outer if d.axis == outer.variable else inner
    whole = _whole(outer, inner)
    n = m.most.get(by.variable, extent(by)) if by is outer else extent(_uniform(outer, inner))
    shape = (n, *(extent(x) for x in band))
    if product_of(shape).variables() - m.sizes:
        raise Refused(f"how many iterations {d.axis} has moves with more than sizes")
    names = {x.variable: var(f"{x.variable}.parts") for x in band}
    row = tuple(var(x.variable) - x.lower for x in band)
    start, kept, added = list[Node](), list[Node](), list[Node]()
    terms: Node = inner if by is outer else _terms(outer, inner, whole)
    sums = {u.buffer: u for u, _ in walk(inner.body) if isinstance(u, Update)}
    made = [(unused(name, "part", buffers), unused(name, "rows", buffers)) for name in sums]
    for (name, u), (part, parts) in zip(sums.items(), made, strict=True):
        b = buffers[name]
        buffers[part] = replace(b, name=part)
        buffers[parts] = Buffer(parts, b.dtype, shape, "arena")
        terms = redirected(terms, {name: lambda _, part=part: (part, ())})  # type: ignore[misc]
        start.append(Store(part, (), identity(u.op, b.dtype), part))
        kept.append(Store(parts, (var(by.variable), *row), Read(part, (), b.dtype), parts))
        total = Read(parts, (var(f"{by.variable}.sum"), *row), b.dtype)
        added.append(replace(u, value=total))
    node = block(*start, terms, *kept)
    for part, _ in made:
        node = allocated(part, node)
    inside: Node = node
    for x in reversed(band):
        inside = replace(x, body=inside)
    before = Loop(by.variable, ZERO, n, _renamed(inside, names), "serial", "parallel")
    after: Node = Loop(f"{by.variable}.sum", ZERO, n, block(*added), "serial", "reduction")
    if by is inner:
        rest = {x.variable: var(f"{x.variable}.rest") for x in (outer, inner)}
        after = block(after, _renamed(replace(outer, lower=whole), rest))
    new: Node = block(before, replaced(at, outer.variable, lambda _: after))
    m = replace(m, buffers=buffers)
    for _, parts in made:
        new, m = as_row(new, m, parts)
        new = allocated(parts, new)
    return replace(m, node=replaced(m.node, at.variable, lambda _: new))


# ---- parts for places, which windows share


class _Shared(Struct, frozen=True):
    """Terms of `update`, in the loops `around`, that are at the same `place` for several iterations
    of `row`, a loop of the band, and of `axis`, one of the sum."""

    update: Update
    around: tuple[Loop, ...]
    row: Loop
    axis: Loop
    place: Index


def _shared(at: Loop, axis: Loop) -> _Shared | None:
    around = next(y for x, y in walk(at) if x is axis.body)
    sums = [x for x in around if x.order == "reduction"]
    inside = axis.body
    while isinstance(inside, Loop) and inside.order == "reduction":
        sums.append(inside)
        inside = inside.body
    if not isinstance(inside, Update):
        return None
    if any(x.body is not y for x, y in zip(sums, (*sums[1:], inside), strict=True)):
        return None
    used = _indices(inside.value)
    for row in reversed([x for x in around if x.order == "parallel"]):
        both = {row.variable, axis.variable}
        places = {_moved_by(i, both) for i in used if i.variables() & both}
        if len(places) == 1 and both <= (place := places.pop()).variables():
            return _Shared(inside, tuple(sums), row, axis, place)
    return None


def _indices(v: Value) -> tuple[Index, ...]:
    found = dict[Index, None]()

    def seen(i: Index) -> Index:
        found[i] = None
        return i

    map_value(v, same, seen)
    return tuple(found)


def _moved_by(i: Index, variables: set[str]) -> Index:
    """What these loops add to an index."""
    return i - substitute(i, dict.fromkeys(variables, ZERO))


def _places(m: Mapping_, s: _Shared, at: Loop) -> Mapping_:
    """Sums along all but the axis for each place, made in front of `at` for all that its loops
    move: windows that share a place find it there."""
    band, u, name = tuple(_band(at)), s.update, s.update.buffer
    _check(at, band, s.around[0])
    steps = [s.place.coefficient(x.variable) for x in (s.row, s.axis)]
    others = [x for x in s.around if x is not s.axis]
    even = s.place == var(s.row.variable) * steps[0] + var(s.axis.variable) * steps[1]
    if not others or s.row not in band or not even or min(steps) < 1 or any(_moving_ends(s)):
        raise Refused(f"windows share no sums for places of {s.row.variable} and {s.axis.variable}")
    counts = [extent(s.row), extent(s.axis)]
    n = sum((step * (count - 1) for step, count in zip(steps, counts, strict=True)), ONE)
    shape = tuple(maximum(0, n) if x is s.row else m.most.get(x.variable, extent(x)) for x in band)
    if product_of(shape).variables() - m.sizes:
        raise Refused(f"how many places {s.row.variable} has moves with more than sizes")
    buffers = dict(m.buffers)
    b, part, parts = buffers[name], unused(name, "part", buffers), unused(name, "places", buffers)
    buffers[part] = replace(b, name=part)
    buffers[parts] = Buffer(parts, b.dtype, shape, "arena")
    place = f"{s.row.variable}.parts"
    names = {x.variable: var(f"{x.variable}.parts") for x in band}
    here = dict.fromkeys((s.row.variable, s.axis.variable), ZERO)

    def of_place(i: Index) -> Index:
        return substitute(i, here) + (var(place) if i.variables() & here.keys() else ZERO)

    rows = [ZERO if x is s.row else x.lower for x in band]
    own = tuple(var(x.variable) - low for x, low in zip(band, rows, strict=True))
    terms: Node = replace(u, buffer=part, value=map_value(u.value, same, of_place))
    for x in reversed(others):
        terms = replace(x, body=terms)
    start = Store(part, (), identity(u.op, b.dtype), part)
    kept = Store(parts, own, Read(part, (), b.dtype), parts)
    node: Node = allocated(part, block(start, terms, kept))
    for x in reversed(band):
        node = replace(x, body=node, **({"lower": ZERO, "upper": n} if x is s.row else {}))
    there = tuple(s.place if x is s.row else o for x, o in zip(band, own, strict=True))
    total = replace(u, value=Read(parts, there, b.dtype))
    after = replaced(at, s.around[0].variable, lambda _: replace(s.axis, body=total))
    some = all_of(ge(count, 1) for count in counts)
    before = _renamed(node, names)
    new = block(before if some == TRUE else Branch(some, before, None), after)
    most = {**m.most, place: maximum(0, n)}
    node = replaced(m.node, at.variable, lambda _: allocated(parts, new))
    return replace(m, node=node, buffers=buffers, most=most)


def _moving_ends(s: _Shared) -> Iterator[bool]:
    """Whether a range moves, or does not begin at zero where places are counted from there."""
    inside = {x.variable for x in s.around} | {s.row.variable}
    yield from (bool(x.end_variables & inside) for x in (*s.around, s.row))
    yield s.row.lower != ZERO or s.axis.lower != ZERO


def _two(at: Loop, axis: str) -> tuple[Loop, Loop]:
    for x, _ in walk(at):
        y = x.body if isinstance(x, Loop) else None
        if not isinstance(x, Loop) or not isinstance(y, Loop) or x.order != "reduction":
            continue
        if axis in (x.variable, y.variable) and x.variable in y.lower.variables():
            return x, y
    raise Refused(f"{axis} is none of two loops that a sum was split into")


def _outermost(at: Loop, outer: Loop, inner: Loop) -> Loop:
    """The nest whose other loops of the sum are inside of these two."""
    sums = [x for x in next(y for x, y in walk(at) if x is outer) if x.order == "reduction"]
    if not sums:
        return at
    moving = {v for x in (outer, inner) for e in (x.lower, x.upper) for v in e.variables()}
    for x, y in zip(sums, (*sums[1:], outer), strict=True):
        if x.body is not y or x.variable in moving:
            raise Refused(f"{outer.variable} is inside of {x.variable}")
    body = inner.body
    for x in reversed(sums):
        body = replace(x, body=body)
    new = replace(outer, body=replace(inner, body=body))
    return found(replaced(at, sums[0].variable, lambda _: new), at.variable)


def _band(at: Loop) -> Iterator[Loop]:
    node: Node = at
    while isinstance(node, Loop) and node.order == "parallel" and node.kind == "serial":
        yield node
        node = node.body


def _check(at: Loop, band: tuple[Loop, ...], outer: Loop) -> None:
    """All in the sum are terms of elements that only loops of the band move."""
    own = allocated_in(at)
    changed = own.union(b for b, _, is_written, _ in accessed(at) if is_written)
    inside = {x.variable for x, _ in walk(at) if isinstance(x, Loop)}
    for loop in (*band, outer):
        if loop.end_variables & inside:
            raise Refused(f"the range of {loop.variable} moves inside of {at.variable}")
    for x, _ in walk(outer):
        match x:
            case Update(buffer=name, subscripts=()) if name in own:
                if any(r.tensor in changed for r in loads(x.value)):
                    raise Refused(f"terms of {name} need what was made before")
            case Store() | Update():
                raise Refused(f"{x.buffer} is no sum of a point's own")
            case Loop() | Block():
                pass
            case _:
                raise Refused(f"a {type(x).__name__} in the sum")


def _total_of(outer: Loop, inner: Loop) -> Index:
    """Iterations of the inner loop in all of the outer one."""
    for atom, _ in inner.upper.terms:
        if isinstance(atom, Min):
            return minimum(*(a for a in atom.args if outer.variable not in a.variables()))
    return substitute(inner.upper, {outer.variable: outer.upper - 1})


def _uniform(outer: Loop, inner: Loop) -> Loop:
    """The inner loop in a whole iteration of the outer one, from the first on."""
    each = inner.lower.coefficient(outer.variable)
    return replace(inner, lower=ZERO, upper=index(each))


def _whole(outer: Loop, inner: Loop) -> Index:
    return floordiv(_total_of(outer, inner), inner.lower.coefficient(outer.variable))


def _terms(outer: Loop, inner: Loop, whole: Index) -> Loop:
    """The sum over whole iterations of the outer loop, for one of the inner one."""
    here = {inner.variable: inner.lower + var(inner.variable)}
    return replace(outer, upper=whole, body=substitute_node(inner.body, here))


def _renamed(node: Node, names: Mapping[str, Index]) -> Node:
    def one(x: Node) -> Node:
        if isinstance(x, Loop) and x.variable in names:
            return replace(x, variable=str(names[x.variable]))
        return x

    return map_node(substitute_node(node, names), one)
