# SPDX-License-Identifier: Apache-2.0
"""A nest, analysed once: its loops, its statements, how their accesses move, what is legal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Expr, IndexValue, Read
from tcsym.index.expr import ONE, ZERO, FloorDiv, Index, condition_variables, floordiv, index, var
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import substitute
from tcsym.ir.bounds import extent, least
from tcsym.ir.loops import Allocate, Block, Branch, Buffer, Holds, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import (
    certain_loads,
    loads,
    map_node,
    substitute_node,
    subvalues,
    value_variables,
    walk,
)
from tcsym.mapping.plan import Refused


class Access(Struct, frozen=True):
    buffer: str
    subscripts: tuple[Index, ...]
    written: bool


class Statement(Struct, frozen=True):
    """`around`: the loops of the nest around it, outermost first."""

    node: Store | Update
    around: tuple[Loop, ...]

    @property
    def accesses(self) -> tuple[Access, ...]:
        reads = (Access(r.tensor, places(r), False) for r in loads(self.node.value))
        return (Access(self.node.buffer, self.node.subscripts, True), *reads)

    def uses(self, variable: str) -> bool:
        return any(variable in s.variables() for a in self.accesses for s in a.subscripts)


class Nest(Struct, frozen=True):
    """band: parallel loops that nest perfectly, outermost first; `body` is what they are around.
    around: variables of loops around the nest. shared: buffers whose elements live on when an
    iteration of all of these is done. constants: those that are bound once for many calls, or that
    the loops around leave as they are."""

    top: Loop
    band: tuple[Loop, ...]
    body: Node
    statements: tuple[Statement, ...]
    buffers: Mapping[str, Buffer]
    sizes: frozenset[str]
    around: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()

    def with_sizes(self, facts: Mapping[str, int]) -> Nest:
        """The nest where these sizes are numbers; loops of one iteration inside are none."""
        if not facts:
            return self
        values = {v: index(n) for v, n in facts.items()}
        buffers = {name: _with_sizes(b, values) for name, b in self.buffers.items()}
        top = map_node(
            substitute_node(self.top, values), partial(_without_single, self.top.variable)
        )
        assert isinstance(top, Loop)
        nest = analyse(top, buffers, self.sizes, self.around)
        return replace(nest, shared=self.shared, constants=self.constants)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(x.variable for x in self.band)

    def stride(self, a: Access, variable: str) -> Index | None:
        return stride(self.buffers[a.buffer], a.subscripts, variable)

    def moves(self, a: Access, variable: str) -> bool:
        return any(variable in s.variables() for s in a.subscripts)

    def lasts(self, buffer: str) -> bool:
        """Who comes after the nest finds what it wrote there."""
        return self.buffers[buffer].space == "argument" or buffer in self.shared

    @property
    def is_found(self) -> bool:
        """Some places are found in tensors, or have to be checked."""
        return any(is_found(r) for s in self.statements for r in loads(s.node.value))

    @property
    def uncertain(self) -> frozenset[str]:
        """Buffers that are read behind conditions, of places that are not known to be in them."""
        return frozenset(
            r.tensor
            for s in self.statements
            for r in {*loads(s.node.value)} - {*certain_loads(s.node.value)}
            if r.tensor in self.buffers and not self._is_inside(r, s.around)
        )

    def _is_inside(self, r: Read, around: tuple[Loop, ...]) -> bool:
        shape = self.buffers[r.tensor].shape
        if len(shape) != len(r.subscripts):
            return False
        places = [(s, n) for s, n in zip(r.subscripts, shape, strict=True) if isinstance(s, Index)]
        lows = [least(e, around) for s, n in places for e in (s, n - 1 - s)]
        return len(places) == len(shape) and all(x is not None and x >= 0 for x in lows)

    def running_on(self, v: str) -> tuple[str, ...]:
        """The loop and those right around it, outermost first, that are one row of what they move
        and others see; values know nothing of them."""
        k = last = self.names.index(v)
        while k and self._go_on(*self.band[k - 1 : k + 1]):
            k -= 1
        return self.names[k : last + 1]

    def _go_on(self, x: Loop, y: Loop) -> bool:
        both = frozenset((x.variable, y.variable))
        used = {a for s in self.statements for a in s.accesses if self.lasts(a.buffer)}
        moved = [a for a in used if any(self.moves(a, v) for v in both)]
        known = (v for s in self.statements for v in subvalues(s.node.value))
        if y.lower != ZERO or sinks(x.body, both) or any(asks(v, both) for v in known):
            return False
        ends = (x.variable, y.variable, y.upper)
        return all(runs_on(self.buffers[a.buffer], a.subscripts, *ends) for a in moved)

    @property
    def result(self) -> Access:
        """What the last statement writes."""
        return self.statements[-1].accesses[0]

    @property
    def inner(self) -> tuple[Loop, ...]:
        """Loops inside of the band."""
        return tuple(x for x, _ in walk(self.body) if isinstance(x, Loop))


def _with_sizes(b: Buffer, values: Mapping[str, Index]) -> Buffer:
    shape = tuple(substitute(e, values) for e in b.shape)
    strides = None if b.strides is None else tuple(substitute(e, values) for e in b.strides)
    return replace(b, shape=shape, strides=strides)


def _without_single(top: str, x: Node) -> Node:
    if isinstance(x, Loop) and x.variable != top and extent(x) == ONE and x.order == "reduction":
        return substitute_node(x.body, {x.variable: x.lower})
    return x


def analyse(
    top: Loop,
    buffers: Mapping[str, Buffer],
    sizes: frozenset[str],
    around: frozenset[str] = frozenset(),
) -> Nest:
    """Raises `Refused` for what no directive can map."""
    band = band_at(top)
    if not band:
        raise Refused(f"{top.variable} runs in order, or is a sum by itself")
    found = tuple(_statements(top))
    nest = Nest(top, band, band[-1].body, found, buffers, sizes, around)
    for x in nest.inner:
        if x.at is not None or x.value is not None:
            raise Refused(f"{x.variable} runs in order")
        if x.kind != "serial":
            raise Refused(f"{x.variable} is no loop any more")
    return nest


def band_at(node: Node) -> tuple[Loop, ...]:
    """The parallel loops that nest perfectly there, outermost first."""
    band: list[Loop] = []
    while isinstance(node, Loop) and node.order == "parallel":
        band.append(node)
        node = node.body
    return tuple(band)


def _statements(top: Loop) -> Iterator[Statement]:
    for x, around in walk(top):
        match x:
            case Store() | Update():
                unsure = [r for r in loads(x.value) if r.unwritten is not None]
                if unsure:
                    raise Refused(f"{unsure[0].tensor} may not be written where it is read")
                yield Statement(x, around)
            case Loop() | Block() | Allocate() | Branch():
                pass
            case _:
                raise Refused(f"a {type(x).__name__}")


# ---- accesses


MANY = 1 << 62  # positions: more than memory has, so that the quotient stands for an unknown


def places(r: Read) -> tuple[Index, ...]:
    """The subscripts of a read; for one that is found in a tensor, what moves as unevenly."""
    return tuple(s if isinstance(s, Index) else _position(s) for s in r.subscripts)


def _position(s: Expr) -> Index:
    return floordiv(sum((var(v) for v in sorted(value_variables(s))), ZERO), MANY)


def is_position(i: Index) -> bool:
    """What stands for a place that is found in a tensor."""
    return any(isinstance(a, FloorDiv) and a.divisor == index(MANY) for a, _ in i.terms)


def is_found(r: Read) -> bool:
    """It is read at a place that a tensor holds, or that has to be checked."""
    return any(r.checked) or not all(isinstance(s, Index) for s in r.subscripts)


def stride(b: Buffer, subscripts: tuple[Index, ...], variable: str) -> Index | None:
    """Elements by which the address moves with the variable; None if not by a fixed number."""
    total = Index()
    for s, step in zip(subscripts, b.element_strides(), strict=True):
        c = linear_coefficient(s, variable)
        if c is None:
            return None
        total = total + c * step
    return total


def asks(v: Value, variables: frozenset[str]) -> bool:
    """The value is about the iteration itself, not about what is read there."""
    match v:
        case IndexValue(e):
            return not variables.isdisjoint(e.variables())
        case Holds(condition):
            return not variables.isdisjoint(condition_variables(condition))
    return False


def runs_on(b: Buffer, at: tuple[Index, ...], outer: str, inner: str, n: Index) -> bool:
    """The `n` elements that `inner` moves along are followed by those of the next `outer`."""
    far, near = stride(b, at, outer), stride(b, at, inner)
    return far is not None and near is not None and far == near * n and lie(b, at, outer, inner)


def joined(b: Buffer, at: tuple[Index, ...], loops: Sequence[Loop]) -> list[Loop]:
    """The last loops as one, as far as they begin at 0 and the elements at that place run on."""
    *outer, last = loops
    while outer and outer[-1].lower == ZERO == last.lower:
        x = outer[-1]
        if x.variable in extent(last).variables():
            break
        if not runs_on(b, at, x.variable, last.variable, last.upper):
            break
        last = replace(last, upper=x.upper * last.upper)
        outer.pop()
    return [*outer, last]


def lie(b: Buffer, at: tuple[Index, ...], *variables: str) -> bool:
    """What these move is where strides tell. Several dimensions of a temporary are not: it may be
    laid out otherwise in the end."""
    moved = [s for s in at if {*variables} & s.variables()]
    return b.space == "argument" or len(moved) < 2


# ---- legality: each says why not, or None


def sinks(node: Node, variables: frozenset[str]) -> str | None:
    """Points of these loops may run inside of the loops and branches of `node`."""
    for x, _ in walk(node):
        if isinstance(x, Loop) and x.end_variables & variables:
            return f"the range of {x.variable} moves with {', '.join(sorted(variables))}"
        if isinstance(x, Branch) and condition_variables(x.condition) & variables:
            return f"a guard moves with {', '.join(sorted(variables))}"
    return None


def in_lanes(statement: Statement, buffers: Mapping[str, Buffer], variable: str) -> str | None:
    """Many values of the variable may be at once what the statement runs for."""
    x = statement.node
    if stride(buffers[x.buffer], x.subscripts, variable) is None:
        return f"{x.buffer} does not move evenly with {variable}"
    return None
