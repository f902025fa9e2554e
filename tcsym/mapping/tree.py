# SPDX-License-Identifier: Apache-2.0
"""Trees of loops while a plan is carried out.

An `Allocate` stands where its buffer lives, from the start: it is the scope of the temporary, and
copies of a tree need nothing but names of their own in the end (`Close`). So loops and temporaries
of one tree may have the same names as those of another, or of a neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, Index, condition_variables, maximum, minimum, var
from tcsym.index.values import Values, map_condition, product_of, substitute
from tcsym.ir.bounds import eliminate
from tcsym.ir.loops import (
    Allocate,
    Block,
    Branch,
    Buffer,
    HorizontalReduce,
    Loop,
    Node,
    Space,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
    block,
)
from tcsym.ir.traverse import (
    loads,
    map_node,
    position_loads,
    substitute_node,
    value_variables,
    walk,
)
from tcsym.mapping.nest import is_found
from tcsym.mapping.plan import Refused
from tcsym.schedule.analysis.names import Names
from tcsym.target.machine import Machine

STACK_BYTES = 16 * 1024  # of a temporary: threads have small stacks, and the first cache holds it
REGISTER_ELEMENTS = 1024  # of a temporary, each a value of its own in the code
Place = Callable[[tuple[Index, ...]], tuple[str, tuple[Index, ...]]]


class Mapping_(Struct, frozen=True):
    """A nest on its way: its tree, all buffers by name.

    most: of a loop that was made, a bound of its iterations that moves with sizes only. ends: how
    the last tile of a loop ends. own: temporaries that live inside of the nest. once: copies that
    are made in front of all its loops, as many as its node is in allocations of them. uncertain:
    buffers that are read behind conditions, maybe outside of them where these do not hold. counted:
    copies that get the rows of a tile which are there, and no others.
    """

    node: Node
    buffers: Mapping[str, Buffer]
    sizes: frozenset[str]
    machine: Machine
    most: Mapping[str, Index] = {}
    ends: Mapping[str, str] = {}
    made: dict[str, Buffer] = {}
    own: frozenset[str] = frozenset()
    once: tuple[str, ...] = ()
    uncertain: frozenset[str] = frozenset()
    counted: frozenset[str] = frozenset()

    def buffer(self, name: str) -> Buffer:
        return self.made.get(name) or self.buffers[name]

    def with_buffer(self, b: Buffer) -> Mapping_:
        return replace(self, buffers={**self.buffers, b.name: b})


def unused(like: str, kind: str, buffers: Mapping[str, Buffer]) -> str:
    """A name for a temporary of that kind, which no buffer has."""
    names = (f"{like}.{kind}", *(f"{like}.{k}.{kind}" for k in range(2, len(buffers) + 3)))
    return next(n for n in names if n not in buffers)


def found(node: Node, variable: str) -> Loop:
    """The loop of that name; `Refused` if there is not just one."""
    loops = [x for x, _ in walk(node) if isinstance(x, Loop) and x.variable == variable]
    if not loops:
        names = dict.fromkeys(x.variable for x, _ in walk(node) if isinstance(x, Loop))
        raise Refused(f"there is no loop {variable}", f"loops are {', '.join(names)}")
    if len(loops) > 1:
        raise Refused(f"there are {len(loops)} loops {variable}")
    return loops[0]


def replaced(node: Node, variable: str, f: Callable[[Loop], Node]) -> Node:
    """`node` with `f` of the loop of that name, which there must be."""
    loop = found(node, variable)
    new = f(loop)
    return map_node(node, lambda x: new if isinstance(x, Loop) and x.variable == variable else x)


def chain(node: Node) -> Iterator[Loop]:
    """Loops that nest perfectly, from the outermost on."""
    while isinstance(node, Loop) and node.kind == "serial":
        yield node
        node = node.body


def redirected(node: Node, places: Mapping[str, Place]) -> Node:
    """Every access of these buffers goes to what is made of its subscripts."""

    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update) and x.buffer in places:
            name, at = places[x.buffer](x.subscripts)
            return replace(x, buffer=name, subscripts=at)
        return x

    def value(v: Value) -> Value:
        if isinstance(v, Read) and v.tensor in places:
            name, at = places[v.tensor](v.subscripts)  # type: ignore[arg-type]
            if (name, at) == (v.tensor, v.subscripts):
                return v
            if is_found(v):
                raise Refused(f"{v.tensor} is read at places that are found or checked")
            return replace(v, tensor=name, subscripts=at, checked=())
        return v

    return map_node(node, statement, value)


def as_row(body: Node, m: Mapping_, name: str, dims: slice = slice(None)) -> tuple[Node, Mapping_]:
    """The buffer with one dimension in the place of several, so that the loops of these may be
    merged."""
    b = m.buffers[name]
    first, last, _ = dims.indices(len(b.shape))
    steps = Buffer(name, b.dtype, b.shape[first:last]).element_strides()

    def row(at: tuple[Index, ...]) -> tuple[Index, ...]:
        one = sum((i * n for i, n in zip(at[first:last], steps, strict=True)), ZERO)
        return (*at[:first], one, *at[last:])

    shape = (*b.shape[:first], product_of(b.shape[first:last]), *b.shape[last:])
    body = redirected(body, {name: lambda at: (name, row(at))})
    return body, m.with_buffer(replace(b, shape=shape))


def accessed(node: Node) -> Iterator[tuple[str, tuple[Index, ...], bool, tuple[Loop, ...]]]:
    """Buffer, subscripts, whether it is written, and the loops around, of every access: of a
    statement what it reads first."""
    for x, around in walk(node):
        match x:
            case Store() | Update():
                for r in loads(x.value):
                    yield r.tensor, r.subscripts, False, around  # type: ignore[misc]
                yield x.buffer, x.subscripts, True, around
            case TransposeBlock():
                yield x.source, x.source_subscripts, False, around
                yield x.target, x.target_subscripts, True, around
            case Verify() | Loop():
                for r in _reads(x):
                    yield r.tensor, r.subscripts, False, around  # type: ignore[misc]


def _reads(x: Verify | Loop) -> tuple[Read, ...]:
    """Of what a loop looks up before it runs, or a check."""
    if isinstance(x, Loop) and x.value is None:
        return position_loads(x)
    return () if x.value is None else loads(x.value)


def variables_of(subscripts: Iterable[object]) -> frozenset[str]:
    parts = (s.variables() if isinstance(s, Index) else value_variables(s) for s in subscripts)  # type: ignore[arg-type]
    return frozenset[str]().union(*parts)


def moved(r: Read, values: Values) -> Read:
    """The read at other places, but for reads in its subscripts."""
    at = (substitute(s, values) if isinstance(s, Index) else s for s in r.subscripts)
    return replace(r, subscripts=tuple(at))


# ---- points


def sunk(points: tuple[Loop, ...], node: Node, buffers: dict[str, Buffer]) -> Node:
    """The points around every statement below, not around loops that run one after the other.

    Temporaries that live inside of the points get a dimension for each: `buffers` is changed.
    Contract: what has ranges or guards that move with points has no lanes of these.
    """
    moving = tuple(p for p in points if _runs_apart(node, p))
    if moving:
        inside = sunk(tuple(p for p in points if p not in moving), node, buffers)
        return _in_turn(moving, inside)
    match node:
        case Allocate(names, body):
            lanes = [p for p in points if p.kind == "vector"]
            first = [p for p in points if p.kind != "vector"]
            before, after = ([var(p.variable) for p in x] for x in (first, lanes))
            places = dict[str, Place]()
            for name in names:
                shape = (*(p.upper for p in first), *buffers[name].shape, *(p.upper for p in lanes))
                buffers[name] = replace(buffers[name], shape=shape)
                places[name] = lambda s, name=name: (name, (*before, *s, *after))  # type: ignore[misc]
            return Allocate(names, sunk(points, redirected(body, places), buffers))
        case Block(body):
            return block(*(sunk(points, x, buffers) for x in body))
        case Branch(c, a, b):
            return Branch(c, sunk(points, a, buffers), b and sunk(points, b, buffers))
        case Loop() if node.kind == "serial" or _is_terms(node):
            moving = tuple(p for p in points if p.variable in node.end_variables)
            if moving:
                return _separated(node, moving, points, buffers)
            return replace(node, body=sunk(points, node.body, buffers))
        case _:
            for p in reversed(points):
                node = replace(p, body=node)
            return node


def _runs_apart(node: Node, point: Loop) -> bool:
    """The code is not the same for all copies of the point, which run one after the other."""
    match node:
        case Allocate(_, body):
            inner = [x for x, _ in walk(body) if isinstance(x, Loop) and x.kind == "serial"]
            return bool(inner) and all(_runs_apart(x, point) for x in inner)
        case Branch(c, _, _):
            return point.variable in condition_variables(c)
        case Loop() if point.variable in node.end_variables:
            return not _is_separable(node, point)
        case _:
            return False


def _is_separable(terms: Loop, point: Loop) -> bool:
    body = terms.body
    while isinstance(body, Loop) and body.kind != "serial":
        if body.mask is not None and point.variable in body.mask.variables():
            return False
        body = body.body
    if terms.order != "reduction" or not isinstance(body, Update):
        return False
    least, most = eliminate(terms.upper, (point,), False), eliminate(terms.lower, (point,), True)
    return least is not None and most is not None


def _in_turn(points: tuple[Loop, ...], node: Node) -> Node:
    """Loops over the points that are there."""
    for p in reversed(points):
        upper = p.upper if p.mask is None else minimum(p.upper, p.mask)
        node = replace(p, kind="serial", upper=upper, mask=None, body=node)
    return node


def _separated(
    terms: Loop, moving: tuple[Loop, ...], points: tuple[Loop, ...], buffers: dict[str, Buffer]
) -> Node:
    """The terms that sums of all copies have, in a loop that these share; in front of it and behind
    it those that one of them has beyond (index set splitting)."""
    low, high = eliminate(terms.lower, moving, True), eliminate(terms.upper, moving, False)
    if low is None or high is None:
        raise Refused(f"the range of {terms.variable} moves with several loops unevenly")
    high = maximum(low, high)
    names = {p.variable for p in moving}
    body = sunk(points, terms.body, buffers)
    parts: list[Node] = [replace(terms, lower=low, upper=high, body=body)]
    others = tuple(p for p in points if p not in moving)

    def alone(part: str, lower: Index, upper: Index) -> Node:
        v = f"{terms.variable}.{part}"
        body = substitute_node(sunk(others, terms.body, buffers), {terms.variable: var(v)})
        upper = maximum(lower, upper)
        node: Node = replace(terms, variable=v, lower=lower, upper=upper, body=body, unroll=1)
        for p in reversed(moving):
            node = replace(p, body=node)
        return node

    if terms.lower.variables() & names:
        parts.insert(0, alone("first", terms.lower, minimum(low, terms.upper)))
    if terms.upper.variables() & names:
        parts.append(alone("last", high, terms.upper))
    return block(*parts)


def _is_terms(x: Loop) -> bool:
    """Copies of terms, which many sums have one of before any has the next."""
    inside = (y for y, _ in walk(x.body) if isinstance(y, Loop))
    return x.order == "reduction" and all(y.kind != "vector" for y in inside) and x.kind != "vector"


# ---- names of their own


class Close(Struct):
    """Gives every loop and every temporary of a tree a name and a place of its own.

    `buffers`: the table of the tree; `made`: the temporaries, as the kernel will have them.
    """

    names: Names
    buffers: Mapping[str, Buffer]
    made: list[Buffer] = field(default_factory=list)

    def __call__(self, n: Node, loops: Values, temporaries: Mapping[str, str]) -> Node:
        match n:
            case Loop():
                new = self.names.fresh(n.variable)
                body = self(n.body, {**loops, n.variable: var(new)}, temporaries)
                outer = substitute_node(replace(n, body=Block(())), loops)
                inner = {**loops, n.variable: var(new)}
                mask = None if n.mask is None else substitute(n.mask, inner)
                return replace(outer, variable=new, mask=mask, body=body)
            case Allocate(names, body):
                own = {name: self.names.fresh(name) for name in names}
                moving = _moving(body)
                for name in names:
                    b = self.buffers[name]
                    space = memory_for(b, name not in moving)
                    self.made.append(replace(b, name=own[name], space=space, private=frozenset()))
                return Allocate(tuple(own.values()), self(body, loops, {**temporaries, **own}))
            case Block(body):
                return block(*(self(x, loops, temporaries) for x in body))
            case Branch(c, a, b):
                c = map_condition(c, lambda i: substitute(i, loops))
                then = self(a, loops, temporaries)
                return Branch(c, then, b and self(b, loops, temporaries))
            case _:
                return self.statement(n, loops, temporaries)

    def statement(self, n: Node, loops: Values, temporaries: Mapping[str, str]) -> Node:
        def value(v: Value) -> Value:
            if isinstance(v, Read) and v.tensor in temporaries:
                return replace(v, tensor=temporaries[v.tensor])
            return v

        n = map_node(n, None, value, lambda i: substitute(i, loops))
        match n:
            case Store() | Update():
                return replace(n, buffer=temporaries.get(n.buffer, n.buffer))
            case TransposeBlock():
                target, source = (temporaries.get(b, b) for b in (n.target, n.source))
                return replace(n, target=target, source=source)
            case _:
                return n


def memory_for(b: Buffer, plain: bool) -> Space:
    """Registers, if all places are known where code is made; else the stack, or the arena."""
    extents = [e.as_int() for e in b.shape]
    if any(e is None for e in extents):
        return "arena"
    count = math.prod(e or 0 for e in extents)
    if plain and count <= REGISTER_ELEMENTS:
        return "register"
    return "stack" if count * b.dtype.bytes <= STACK_BYTES else "arena"


def _moving(body: Node) -> frozenset[str]:
    """Buffers with places that are not known where code is made."""
    found = {x.target for x, _ in walk(body) if isinstance(x, TransposeBlock)}
    for name, at, _, around in accessed(body):
        known = {"lanes", *(x.variable for x in around if x.kind != "serial")}
        if not variables_of(at) <= known:
            found.add(name)
    return frozenset(found)


def across(op: str, value: Value, lane: str, width: int, b: Buffer) -> HorizontalReduce:
    return HorizontalReduce(op, lane, width, value, b.dtype)  # type: ignore[arg-type]
