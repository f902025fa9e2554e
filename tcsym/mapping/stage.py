# SPDX-License-Identifier: Apache-2.0
"""An operand -> a copy of what is needed of it inside of a loop, laid out as it is used there.

What is read is copied at the start of the loop, what is written at its end. All accesses of the
operand inside of the loop that are of the same elements go to the copy, though in loops of other
names; what is written has no other ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec.structs import replace

from tcsym.frontend.program import IndexValue, Read
from tcsym.index.expr import ONE, ZERO, Index, ceildiv, condition_variables, maximum, minimum, var
from tcsym.index.values import substitute
from tcsym.ir.bounds import eliminate, extent
from tcsym.ir.loops import (
    Block,
    Branch,
    Buffer,
    Holds,
    Loop,
    Node,
    Store,
    Update,
    Value,
    allocated,
    block,
    value_dtype,
)
from tcsym.ir.traverse import (
    certain_values,
    loads,
    map_node,
    substitute_node,
    subvalues,
    value_variables,
    walk,
)
from tcsym.mapping.copies import Copy, Places
from tcsym.mapping.nest import lie, stride
from tcsym.mapping.pack import first_read, is_pack, packs_of
from tcsym.mapping.plan import Refused, Stage
from tcsym.mapping.tree import (
    Mapping_,
    accessed,
    as_row,
    found,
    redirected,
    replaced,
    unused,
    variables_of,
)


def stage(m: Mapping_, d: Stage) -> Mapping_:
    at = Loop("the nest", ZERO, ONE, m.node) if d.at is None else found(m.node, d.at)
    value = _held(at, d)
    source, dims, forms = _accesses(at, d, value, m.buffers)
    own = m.buffers[d.operand].dtype
    if d.operand in m.uncertain and not _is_certain(at, value):
        raise Refused(f"a condition decides whether {d.operand} is read")
    _check(at, d, source, dims, forms)
    dims = _repeated(m, at, source, dims)
    if d.as_ == "turned":
        source, dims, forms = _as_one(m, d, source, dims, forms)
    copy = Copy(m, d, source, tuple(dims), unused(d.operand, "copy", m.buffers), value)
    shape = [x.upper if x.kind != "serial" else _most(m, x) for x in dims]
    if d.as_ == "turned":
        k, size = copy.block()
        shape[k] = ceildiv(shape[k], size) * size
    dtype = own if value is None else value_dtype(value)
    # rows that are copied in vectors follow one another, as one that is merged of them needs
    made = Buffer(copy.name, dtype, tuple(shape), "arena", padded=copy.lanes == 1)
    m = m.with_buffer(made)

    def of_copy(v: Value) -> Value:
        return Read(copy.name, forms[source], dtype) if v == value else v

    def of_place(s: Places) -> tuple[str, Places]:
        return (copy.name, forms[s]) if s in forms else (d.operand, s)

    body = (
        redirected(at.body, {d.operand: of_place})
        if value is None
        else map_node(at.body, None, of_copy)
    )
    written = _is_written(at, d)
    store = _stored(at, d, source, dims) if value is None and not written else None
    moved = copy.stored(store) if store is not None else None
    if moved is not None:
        moved, ends = _named(m, d.operand, moved)
        node = replaced(m.node, at.variable, lambda x: replace(x, body=moved))
        return replace(m, node=node, ends=ends)
    if written and d.at is None:
        raise Refused(f"{d.operand} is written: it has no copy for all of the nest")
    if not written and any(x.mask is not None and x.kind == "unrolled" for x in dims):
        m = replace(m, counted=m.counted | {copy.name})
    moved, ends = _named(m, d.operand, copy.out() if written else copy.filled())
    body = block(body, moved) if written else block(moved, body)
    if d.at is not None and all(x.kind == "serial" for x in dims):
        body, m = as_row(body, m, copy.name)
    elif d.as_ != "turned" and (terms := _terms(dims)):
        body, m = as_row(body, m, copy.name, terms)
    body = allocated(copy.name, body)
    if d.at is None:
        return replace(m, node=body, ends=ends, once=(d.operand, *m.once))
    node = replaced(m.node, d.at, lambda x: replace(x, body=body))
    return replace(m, node=node, ends=ends)


def _stored(at: Loop, d: Stage, source: Places, dims: Sequence[Loop]) -> Store | None:
    """All that is done in the loop: what the copy has is stored as it is."""
    node, loops = at.body, list[Loop]()
    while isinstance(node, Loop):
        loops.append(node)
        node = node.body
    is_whole = (
        d.as_ == "turned"
        and d.at is not None
        and sorted(x.variable for x in loops) == sorted(x.variable for x in dims)
    )
    if not is_whole or not isinstance(node, Store) or not isinstance(node.value, Read):
        return None
    is_read = node.value.tensor == d.operand and node.value.subscripts == source
    return node if is_read and node.buffer != d.operand else None


def _terms(dims: Sequence[Loop]) -> slice | None:
    """Neighbouring dimensions of loops of a sum, if there are several."""
    places = [k for k, x in enumerate(dims) if x.kind == "serial" and x.order == "reduction"]
    if len(places) < 2 or places[-1] - places[0] >= len(places):
        return None
    return slice(places[0], places[-1] + 1)


def _named(m: Mapping_, operand: str, node: Node) -> tuple[Node, Mapping[str, str]]:
    """Loops that move elements have names of their own, and end as those whose names they had."""
    ends = dict(m.ends)

    def one(x: Node) -> Node:
        if not isinstance(x, Loop) or x.kind != "serial":
            return x
        name = f"{operand}.{x.variable}"
        if x.variable in ends:
            ends[name] = ends[x.variable]
        inside = {x.variable: var(name)}
        return replace(x, variable=name, body=substitute_node(x.body, inside))

    return map_node(node, one), ends


def _repeated(m: Mapping_, at: Loop, source: Places, dims: list[Loop]) -> list[Loop]:
    """The copy has an element for each iteration of a loop that does not move the operand, as many
    as there are anywhere inside of `at`."""
    inside, moving = _inside(at), variables_of(source)
    return [
        x
        if x.variable in moving or not x.end_variables & inside
        else replace(x, lower=ZERO, upper=_most(m, x))
        for x in dims
    ]


def _inside(at: Loop) -> frozenset[str]:
    return frozenset(x.variable for x, _ in walk(at.body) if isinstance(x, Loop))


def _is_written(at: Loop, d: Stage) -> bool:
    """Whether it is; `Refused` if what is written was needed before."""
    written = [w for b, _, w, _ in accessed(at.body) if b == d.operand]
    if any(written) and not written[0]:
        raise Refused(f"{d.operand} is read before it is written inside of {at.variable}")
    first = next(x for x, _ in walk(at.body) if isinstance(x, Store | Update) and _uses(x, d))
    if any(written) and not isinstance(first, Store):
        raise Refused(f"{d.operand} is added to inside of {at.variable}")
    return any(written)


def _uses(x: Node, d: Stage) -> bool:
    return any(b == d.operand for b, *_ in accessed(x))


def _accesses(
    at: Loop, d: Stage, value: Value | None, buffers: Mapping[str, Buffer]
) -> tuple[Places, list[Loop], dict[Places, Places]]:
    """An access in all loops of the order, those loops, and where in the copy each access is.
    Elements that are packed together have one place; those beside packs stay where they are, as do
    other elements of what is only read."""
    uses = [(s, around) for b, s, _, around in accessed(at.body) if b == d.operand]
    if value is not None and is_pack(value):
        first = first_read(value, d.operand).subscripts
        uses = [u for u in uses if u[0] == first]
    known = [u for u in uses if all(isinstance(i, Index) for i in u[0])]
    if len(known) < len(uses) and any(w for b, _, w, _ in accessed(at.body) if b == d.operand):
        raise Refused(f"{d.operand} is read at places that are found, too")
    uses = known
    whole = [u for u in uses if set(d.order) <= {x.variable for x in u[1]}]
    if not whole:
        raise Refused(
            f"{d.operand} is not used inside of {at.variable} in all of {' '.join(d.order)}"
        )

    def fits(u: tuple[Places, tuple[Loop, ...]]) -> tuple[int, bool]:
        is_turned = d.as_ == "turned" and d.order[-1] not in variables_of(u[0][-1:])
        return len(variables_of(u[0]) & {*d.order}), is_turned

    source, inside = max(whole, key=fits)
    dims = [x for v in d.order for x in inside if x.variable == v]
    b = buffers[d.operand]
    hulls = [_hull(x, source, inside[: inside.index(x)], b) for x in dims]
    forms = {s: _form(source, dims, hulls, s, around) for s, around in uses}
    if None in forms.values() and any(w for b, _, w, _ in accessed(at.body) if b == d.operand):
        raise Refused(f"{d.operand} is used at other places, too")
    return source, hulls, {s: form for s, form in forms.items() if form is not None}


def _hull(x: Loop, source: Places, around: Sequence[Loop], b: Buffer) -> Loop:
    """The terms of all sums, where these have ranges that move with loops inside: elements between
    two that are read are there, too."""
    moving = [y for y in around if y.variable in x.end_variables]
    if not moving or x.order != "reduction" or x.kind != "serial":
        return x
    low, high = eliminate(x.lower, moving, False), eliminate(x.upper, moving, True)
    last = [n for s, n in zip(source, b.shape, strict=True) if s == var(x.variable)]
    if low is None or high is None or not last:
        return x
    low = maximum(ZERO, low)
    return replace(x, lower=low, upper=maximum(low, minimum(high, *last)))


def _form(
    source: Places,
    dims: Sequence[Loop],
    hulls: Sequence[Loop],
    other: Places,
    around: Sequence[Loop],
) -> Places | None:
    """Where in the copy of all that the hulls reach the other access is: that of `source` in loops
    of other names. None if it is of other elements."""
    names = dict[str, Index]()
    for x in dims:
        same = [y for y in around if _alike(x, y)]
        wanted = [y for y in same if y.variable == x.variable] or [
            y for y in same if _names(source, x, y) & set(other)
        ]
        if not wanted:
            return None
        names[x.variable] = var(wanted[0].variable)
    if tuple(substitute(s, names) for s in source) != other:
        return None
    return tuple(names[x.variable] - substitute(x.lower, names) for x in hulls)


def _as_one(
    m: Mapping_, d: Stage, source: Places, dims: list[Loop], forms: dict[Places, Places]
) -> tuple[Places, list[Loop], dict[Places, Places]]:
    """Loops along which the operand and the copy run on are one: short rows make long blocks."""
    b = m.buffers[d.operand]
    first = last = next((k for k, x in enumerate(dims) if stride(b, source, x.variable) == ONE), 0)
    n, steps = extent(dims[last]), [ONE]
    lanes = dims[-1].upper.as_int() or 1
    while first and _go_on(m, b, source, dims[first - 1 : last + 1], n, lanes):
        outer, inner = dims[first - 1 : first + 1]
        steps.insert(0, n)
        n = n * extent(outer)
        first -= 1
        if inner.mask is not None:  # rows of a tile: those that are there
            n = inner.mask + var(outer.variable) * extent(inner)
            break
    joined = dims[first : last + 1]
    if len(joined) < 2:
        return source, dims, forms
    name = f"{joined[0].variable}.row"
    start = {x.variable: ZERO for x in joined} | {joined[-1].variable: var(name)}
    one = replace(joined[0], variable=name, lower=ZERO, upper=n)

    def place(at: Places) -> Places:
        inside = zip(at[first : last + 1], steps, strict=True)
        return (*at[:first], sum((i * step for i, step in inside), ZERO), *at[last + 1 :])

    moved = {s: place(at) for s, at in forms.items()}
    whole = tuple(substitute(s, start) for s in source)
    return whole, [*dims[:first], one, *dims[last + 1 :]], {**moved, whole: moved[source]}


def _go_on(
    m: Mapping_, b: Buffer, source: Places, loops: Sequence[Loop], n: Index, lanes: int
) -> bool:
    """What the first of the loops moves along goes on behind the `n` elements of the others. Rows
    of a ragged tile are made all: the copy has these, if they are a part of a block."""
    x, y, *more = loops
    is_tile = y.kind == "unrolled" and not more and lanes % (extent(y).as_int() or 1) == 0
    if x.kind != "serial" or not (y.kind == "serial" or is_tile):
        return False
    known = all(z.lower == ZERO and z.end_variables <= m.sizes for z in (x, y))
    goes_on = stride(b, source, x.variable) == n
    return known and goes_on and lie(b, source, *(z.variable for z in loops))


def _alike(x: Loop, y: Loop) -> bool:
    return (x.kind, x.lower, x.upper) == (y.kind, y.lower, y.upper)


def _names(source: Places, x: Loop, y: Loop) -> set[Index]:
    return {
        substitute(s, {x.variable: var(y.variable)}) for s in source if x.variable in s.variables()
    }


def _check(
    at: Loop, d: Stage, source: Places, dims: Sequence[Loop], copied: Container[Places]
) -> None:
    """The copy moves with all that moves the operand, and depends on nothing else inside."""
    guards = (x for x, _ in walk(at.body) if isinstance(x, Branch))
    if any(_decides(x, d.operand, copied) for x in guards):
        raise Refused(f"a guard inside of {at.variable} decides what is used of {d.operand}")
    inside, moving = _inside(at), variables_of(source)
    missing = moving & inside - set(d.order)
    if missing:
        raise Refused(f"{', '.join(sorted(missing))} moves {d.operand}, too")
    known = set[str]()
    for x in dims:
        if x.variable in moving and x.end_variables & inside - known:
            raise Refused(f"the range of {x.variable} moves inside of {at.variable}")
        known.add(x.variable)


def _is_certain(at: Loop, held: Value | None) -> bool:
    """What is held has the conditions of what it reads inside."""
    values = [x.value for x, _ in walk(at.body) if isinstance(x, Store | Update)]
    return held is not None and any(held in certain_values(v) for v in values)


def _decides(guard: Branch, operand: str, places: Container[Places]) -> bool:
    """Whether it does on which side of a guard one is whether elements are used."""
    arms = (guard.then, Block(()) if guard.orelse is None else guard.orelse)
    then, orelse = (any(b == operand and s in places for b, s, *_ in accessed(x)) for x in arms)
    return then != orelse


def _most(m: Mapping_, x: Loop) -> Index:
    """Iterations of a loop at most, by sizes alone."""
    n = m.most.get(x.variable, extent(x))
    if n.variables() - m.sizes:
        raise Refused(f"the range of {x.variable} moves with other loops")
    return n


def _held(at: Loop, d: Stage) -> Value | None:
    """The largest value that is computed of the operand and moves as it does; None if it is just
    what is read, or not the same for all that reads it."""
    nodes = [x for x, _ in walk(at.body) if isinstance(x, Store | Update)]
    packs = list(dict.fromkeys(v for x in nodes for v in packs_of(x.value, d.operand)))
    read_by = [x for x in nodes if any(_reads(v, d) for v in subvalues(x.value))]
    if d.as_ == "turned" or (len(read_by) != 1 and len(packs) != 1):
        return None
    changed = {x.buffer for x in nodes}
    loops = {x.variable for x, _ in walk(at.body) if isinstance(x, Loop)}
    if len(packs) == 1 and _moves_otherwise(packs[0], d, loops):
        raise Refused(f"{d.operand} is packed together with what moves otherwise")
    if len(packs) == 1:
        return None if {r.tensor for r in loads(packs[0])} & changed else packs[0]
    found = largest_part(read_by[0].value, d.operand, loops)
    if isinstance(found, Read) or any(r.tensor in changed for r in loads(found)):
        return None
    return found if sum(v == found for v in subvalues(read_by[0].value)) == 1 else None


def _moves_otherwise(v: Value, d: Stage, loops: Container[str]) -> bool:
    moved = variables_of(first_read(v, d.operand).subscripts)
    return any(x in loops for x in value_variables(v) - moved)


def largest_part(value: Value, operand: str, loops: Container[str]) -> Value:
    """Of a value that reads the operand: the largest part that these loops move as its reads."""
    parts = [v for v in subvalues(value) if any(r.tensor == operand for r in loads(v))]
    own = [v for v in parts if isinstance(v, Read)]
    moved = variables_of(own[0].subscripts)
    if any(variables_of(v.subscripts) != moved for v in own):
        return own[0]  # rows and columns of one tensor

    def moves_alike(v: Value) -> bool:
        reads = loads(v)
        all_ = sum(r.tensor == operand for r in reads) == len(own)
        return all_ and all(x in moved or x not in loops for x in moving(v))

    return next((v for v in parts if moves_alike(v)), own[0])


def moving(value: Value) -> Iterator[str]:
    """Variables that the value moves with."""
    for v in subvalues(value):
        match v:
            case Read(subscripts=subscripts):
                yield from variables_of(subscripts)
            case IndexValue(e):
                yield from e.variables()
            case Holds(condition):
                yield from condition_variables(condition)


def _reads(v: Value, d: Stage) -> bool:
    return isinstance(v, Read) and v.tensor == d.operand
