# SPDX-License-Identifier: Apache-2.0
"""An operand -> a copy of what is needed of it inside of a loop, laid out as it is used there.

What is read is copied at the start of the loop, what is written at its end. All accesses of the
operand inside of the loop go to the copy, though in loops of other names; they have to be of the
same elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import (
    ONE,
    TRUE,
    ZERO,
    Atom,
    Condition,
    FloorDiv,
    Index,
    Mod,
    all_of,
    ceildiv,
    condition_variables,
    floordiv,
    ge,
    index,
    minimum,
    mod,
    var,
)
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import map_atoms, substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    allocated,
    block,
)
from tcsym.ir.traverse import map_node, substitute_node, walk
from tcsym.mapping.nest import stride
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

Places = tuple[Index, ...]


def stage(m: Mapping_, d: Stage) -> Mapping_:
    at = found(m.node, d.at)
    source, dims, forms = _accesses(at, d)
    _check(at, d, source, dims)
    dims = _repeated(m, at, source, dims)
    copy = _Copy(m, d, source, tuple(dims), unused(d.operand, "copy", m.buffers))
    shape = [x.upper if x.kind != "serial" else _most(m, x) for x in dims]
    if d.as_ == "turned":
        k, size = copy.block()
        shape[k] = ceildiv(shape[k], size) * size
    dtype = m.buffers[d.operand].dtype
    m = m.with_buffer(Buffer(copy.name, dtype, tuple(shape), "arena", padded=True))
    body = redirected(at.body, {d.operand: lambda s: (copy.name, forms[s])})
    written = _is_written(at, d)
    moved, ends = _named(m, d.operand, copy.out() if written else copy.filled())
    body = block(body, moved) if written else block(moved, body)
    if all(x.kind == "serial" for x in dims):
        body, m = as_row(body, m, copy.name)
    body = allocated(copy.name, body)
    node = replaced(m.node, d.at, lambda x: replace(x, body=body))
    return replace(m, node=node, ends=ends)


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
        if x.variable in moving or not _range(x) & inside
        else replace(x, lower=ZERO, upper=_most(m, x))
        for x in dims
    ]


def _inside(at: Loop) -> frozenset[str]:
    return frozenset(x.variable for x, _ in walk(at.body) if isinstance(x, Loop))


def _range(x: Loop) -> frozenset[str]:
    return x.lower.variables() | x.upper.variables()


def _is_written(at: Loop, d: Stage) -> bool:
    """Whether it is; `Refused` if what is written was needed before."""
    written = [w for b, _, w, _ in accessed(at.body) if b == d.operand]
    if any(written) and not written[0]:
        raise Refused(f"{d.operand} is read before it is written inside of {d.at}")
    first = next(x for x, _ in walk(at.body) if isinstance(x, Store | Update) and _uses(x, d))
    if any(written) and not isinstance(first, Store):
        raise Refused(f"{d.operand} is added to inside of {d.at}")
    return any(written)


def _uses(x: Node, d: Stage) -> bool:
    return any(b == d.operand for b, *_ in accessed(x))


def _accesses(at: Loop, d: Stage) -> tuple[Places, list[Loop], dict[Places, Places]]:
    """An access in all loops of the order, those loops, and where in the copy each access is."""
    uses = [(s, around) for b, s, _, around in accessed(at.body) if b == d.operand]
    whole = [u for u in uses if set(d.order) <= {x.variable for x in u[1]}]
    if not whole:
        raise Refused(f"{d.operand} is not used inside of {d.at} in all of {' '.join(d.order)}")
    source, inside = whole[0]
    dims = [x for v in d.order for x in inside if x.variable == v]
    return source, dims, {s: _form(source, dims, s, around, d) for s, around in uses}


def _form(
    source: Places, dims: Sequence[Loop], other: Places, around: Sequence[Loop], d: Stage
) -> Places:
    """Where in the copy the other access is: that of `source` in loops of other names."""
    names = dict[str, Index]()
    for x in dims:
        same = [y for y in around if _alike(x, y)]
        wanted = [y for y in same if y.variable == x.variable] or [
            y for y in same if _names(source, x, y) & set(other)
        ]
        if not wanted:
            raise Refused(f"{d.operand} is used in other loops than {x.variable}, too")
        names[x.variable] = var(wanted[0].variable)
    if tuple(substitute(s, names) for s in source) != other:
        raise Refused(f"{d.operand} is used at other places, too")
    return tuple(names[x.variable] - x.lower for x in dims)


def _alike(x: Loop, y: Loop) -> bool:
    return (x.kind, x.lower, x.upper) == (y.kind, y.lower, y.upper)


def _names(source: Places, x: Loop, y: Loop) -> set[Index]:
    return {
        substitute(s, {x.variable: var(y.variable)}) for s in source if x.variable in s.variables()
    }


def _check(at: Loop, d: Stage, source: Places, dims: Sequence[Loop]) -> None:
    """The copy moves with all that moves the operand, and depends on nothing else inside."""
    inside, moving = _inside(at), variables_of(source)
    missing = moving & inside - set(d.order)
    if missing:
        raise Refused(f"{', '.join(sorted(missing))} moves {d.operand}, too")
    for x in dims:
        if x.variable in moving and _range(x) & inside:
            raise Refused(f"the range of {x.variable} moves inside of {at.variable}")


def _most(m: Mapping_, x: Loop) -> Index:
    """Iterations of a loop at most, by sizes alone."""
    n = m.most.get(x.variable, extent(x))
    if n.variables() - m.sizes:
        raise Refused(f"the range of {x.variable} moves with other loops")
    return n


class _Copy(Struct, frozen=True):
    """source: the operand's place in the loops `dims`, which are the dimensions of the copy."""

    m: Mapping_
    d: Stage
    source: Places
    dims: tuple[Loop, ...]
    name: str

    @property
    def places(self) -> Places:
        return tuple(var(x.variable) - x.lower for x in self.dims)

    def filled(self) -> Node:
        """Beyond the ends of the operand are zeros: what a masked load has there."""
        if self.d.as_ == "turned":
            return self._turned(into_copy=True)
        dtype, places = self.m.buffers[self.d.operand].dtype, self.places

        def copied(source: Places) -> Node:
            return Store(self.name, places, Read(self.d.operand, source, dtype), self.name)

        lane = self.dims[-1]
        whole, together = _together(self.source, lane)
        if whole == TRUE or lane.kind != "vector":
            return self._around(copied(self.source), self.dims)
        moves = condition_variables(whole)
        outer = [x for x in self.dims if x.variable in moves]
        inner = tuple(x for x in self.dims[:-1] if x.variable not in moves)
        vector = replace(lane, order="parallel", mask=None, body=copied(together))
        single = replace(lane, order="parallel", body=copied(self.source))
        if lane.mask is not None:
            whole = all_of((whole, ge(lane.mask, lane.upper)))
        arms = self._around(vector, inner), self._around(single, inner)
        return _in_order(outer, Branch(whole, *arms))

    def out(self) -> Node:
        if self.d.as_ == "turned":
            return self._turned(into_copy=False)
        read = Read(self.name, self.places, self.m.buffers[self.d.operand].dtype)
        return self._around(Store(self.d.operand, self.source, read, self.d.operand), self.dims)

    def _around(self, store: Node, dims: tuple[Loop, ...]) -> Node:
        """Loops as the operand lies in memory, points inside."""
        serial = [x for x in dims if x.kind == "serial"]
        points = [x for x in dims if x.kind != "serial"]
        for x in sorted(points, key=lambda x: x.kind != "vector"):
            store = replace(x, order="parallel", body=store)
        return _in_order(sorted(serial, key=lambda x: self._dimension(x)), store)

    def _dimension(self, x: Loop) -> int:
        return next((d for d, s in enumerate(self.source) if x.variable in s.variables()), -1)

    def block(self) -> tuple[int, int]:
        """The copy's dimension that lies along memory in the operand, and the side of a block."""
        b, name = self.m.buffers[self.d.operand], self.d.operand
        along = [k for k, x in enumerate(self.dims) if stride(b, self.source, x.variable) == ONE]
        lane = self.dims[-1]
        if lane.kind != "vector" or len(along) != 1 or self.dims[along[0]].kind != "serial":
            raise Refused(f"{name} has no loop along memory that its copy could be turned from")
        steps = [linear_coefficient(s, lane.variable) for s in self.source]
        rows = [d for d, s in enumerate(self.source) if lane.variable in s.variables()]
        if len(rows) != 1 or rows[0] == len(steps) - 1 or steps[rows[0]] != ONE:
            raise Refused(f"lanes of {name} are no rows of a block")
        inner = linear_coefficient(self.source[-1], self.dims[along[0]].variable)
        if inner != ONE or b.element_strides()[-1] != ONE or b.dtype.bits not in (32, 64):
            raise Refused(f"{name} is not used element by element along its last dimension")
        return along[0], lane.upper.as_int() or 1

    def _turned(self, into_copy: bool) -> Node:
        """Blocks that are transposed in registers: lanes of the copy are rows of the operand."""
        k, size = self.block()
        x, lane = self.dims[k], self.dims[-1]
        blocks = f"{x.variable}.block"
        start = {x.variable: x.lower + var(blocks) * size, lane.variable: ZERO}
        operand = tuple(substitute(s, start) for s in self.source)
        copy = (*self.places[:k], var(blocks) * size, *self.places[k + 1 : -1], ZERO)
        row = self._dimension(lane) - len(operand)
        left = index(size) if lane.mask is None else lane.mask
        along = extent(x) - var(blocks) * size
        names, steps = (self.name, self.d.operand), k - len(self.dims)
        node: Node = (
            TransposeBlock(names[0], copy, names[1], operand, left, along, size, row, steps)
            if into_copy
            else TransposeBlock(names[1], operand, names[0], copy, along, left, size, steps, row)
        )
        others = [y for y in self.dims[:-1] if y is not x]
        node = _in_order([y for y in others if y.kind != "serial"], node)
        node = Loop(blocks, ZERO, ceildiv(extent(x), size), node, "serial", "parallel")
        return _in_order([y for y in others if y.kind == "serial"], node)


def _together(source: Places, lane: Loop) -> tuple[Condition, Places]:
    """When all lanes are in one row of loops that are merged (`Merge`), and where they are then."""
    conditions, v, n = list[Condition](), lane.variable, lane.upper

    def one(a: Atom) -> Index | None:
        if not isinstance(a, FloorDiv | Mod) or a.dividend.coefficient(v) != 1:
            return None
        first = a.dividend - var(v)
        conditions.append(ge(a.divisor, mod(first, a.divisor) + n))
        return (
            floordiv(first, a.divisor)
            if isinstance(a, FloorDiv)
            else mod(first, a.divisor) + var(v)
        )

    places = tuple(map_atoms(s, one) for s in source)
    return all_of(dict.fromkeys(conditions)), places


def _in_order(loops: Sequence[Loop], node: Node) -> Node:
    for x in reversed(loops):
        upper = x.upper if x.mask is None else minimum(x.upper, x.mask)
        node = Loop(x.variable, x.lower, upper, node, "serial", "parallel")
    return node
