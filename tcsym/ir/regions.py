# SPDX-License-Identifier: Apache-2.0
"""Kernel -> its host half and its regions: what each loop that is launched is a function of.

The host half evaluates sizes and versions, and launches a region wherever it comes to the loop of
one: an outermost parallel loop, or an outermost block loop of a device. A region is told what its
body needs and cannot compute: variables from around it, formulas in these, bases of buffers. Where
and by what it runs is a target's business.

tcsym_task0  parallel i in 0:N  work 8*D
  numbers D
  formulas (D + 7)/8
  pointers X, O
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import Atom, Condition, Index, IsZero, of_atom
from tcsym.index.values import conjuncts, substitute
from tcsym.ir.archive import TASK
from tcsym.ir.device import DeviceNode, buffers_of
from tcsym.ir.formulas import shared_formulas
from tcsym.ir.loops import (
    LAUNCHED,
    Allocate,
    Block,
    Branch,
    Buffer,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Verify,
)
from tcsym.ir.text import loop_text, node_text
from tcsym.ir.traverse import loads, map_node, position_loads, walk


class Region(Struct, frozen=True):
    """A function `name` of a range of iterations of `loop`, and of what it receives.

    `numbers`: variables from outside, sizes first. `known`: those that have one value wherever it
    is launched. `formulas`: of the numbers, each an integer. `pointers`: buffers that exist
    outside, arguments first.
    """

    name: str
    loop: Loop
    numbers: tuple[str, ...]
    known: tuple[tuple[str, int], ...]
    formulas: tuple[Atom, ...]
    pointers: tuple[str, ...]

    @property
    def work(self) -> Index:
        """Of an iteration (`Loop.work`)."""
        return self.loop.work

    def __str__(self) -> str:
        received = {
            "numbers": self.numbers,
            "known": tuple(f"{name} = {value}" for name, value in self.known),
            "formulas": tuple(str(of_atom(a)) for a in self.formulas),
            "pointers": self.pointers,
        }
        lines = [f"  {kind} {', '.join(names)}" for kind, names in received.items() if names]
        return "\n".join([f"{self.name}  {loop_text(self.loop)}", *lines])


class Host(Struct, frozen=True):
    """`body`: of the kernel; its outermost loops to launch stand for launches of their regions."""

    body: Node
    regions: tuple[Region, ...]

    def region(self, loop: Loop) -> Region:
        """That of an outermost loop to launch."""
        return next(r for r in self.regions if r.loop is loop)

    def __str__(self) -> str:
        """Heads alone of the loops that are launched."""
        launches = node_text(map_node(self.body, _without_body))
        return "\n".join([launches, *map(str, self.regions)]) + "\n"


def _without_body(n: Node) -> Node:
    if isinstance(n, Loop) and n.kind in LAUNCHED:
        return replace(n, body=Block(()))
    return n


def outline(kernel: Kernel) -> Host:
    """A region for every parallel or block loop that is in no other, in the order of the text."""
    variables = dict.fromkeys((*kernel.sizes, *kernel.launched))
    around = _Around(kernel.sizes, variables, dict.fromkeys(kernel.arguments))
    buffers = {b.name: b for b in kernel.buffers}
    found = enumerate(_launches(kernel.body, around))
    return Host(
        kernel.body,
        tuple([_region(f"{TASK}{k}", loop, at, buffers) for k, (loop, at) in found]),
    )


class _Around(Struct, frozen=True):
    """What exists at a place, from the outside in: variables, with their values if known, and
    buffers."""

    sizes: tuple[str, ...]
    variables: Mapping[str, int | None]
    buffers: Mapping[str, None]

    def where(self, values: Mapping[str, int | None]) -> _Around:
        return replace(self, variables={**self.variables, **values})

    def with_buffers(self, names: tuple[str, ...]) -> _Around:
        return replace(self, buffers={**self.buffers, **dict.fromkeys(names)})

    def value(self, e: Index) -> int | None:
        known = {name: Index((), v) for name, v in self.variables.items() if v is not None}
        return substitute(e, known).as_int()


def _launches(n: Node, around: _Around) -> Iterator[tuple[Loop, _Around]]:
    """The outermost loops to launch below, and what is around each."""
    match n:
        case Loop() if n.kind in LAUNCHED:
            yield n, around
        case Loop():
            once = n.kind == "serial" and (n.upper - n.lower).as_int() == 1
            value = around.value(n.lower) if once else None
            yield from _launches(n.body, around.where({n.variable: value}))
        case Branch(c, then, orelse):
            yield from _launches(then, around.where(sizes_in(c, around.sizes)))
            if orelse is not None:
                yield from _launches(orelse, around)
        case Allocate(names, body):
            yield from _launches(body, around.with_buffers(names))
        case Block(body):
            for x in body:
                yield from _launches(x, around)
        case Store() | Update() | Verify() | TransposeBlock() | DeviceNode():
            pass
        case _:
            assert_never(n)


def _region(name: str, loop: Loop, around: _Around, buffers: Mapping[str, Buffer]) -> Region:
    used = buffers_used(loop.body)
    expressions = _expressions_used(loop, [buffers[b] for b in sorted(used)])
    names = frozenset[str]().union(*[e.variables() for e in expressions])
    outside = [(v, value) for v, value in around.variables.items() if v in names]
    numbers = tuple([v for v, value in outside if value is None])
    return Region(
        name,
        loop,
        numbers,
        tuple([(v, value) for v, value in outside if value is not None]),
        shared_formulas(expressions, frozenset(numbers)),
        tuple([b for b in around.buffers if b in used]),
    )


def _expressions_used(loop: Loop, buffers: list[Buffer]) -> list[Index]:
    """All of the body, ends of the loop where they are not the launch's business, and sizes and
    strides of the buffers."""
    found: dict[Index, None] = {}

    def index(e: Index) -> Index:
        found[e] = None
        return e

    map_node(loop.body, on_index=index)
    match loop.kind:
        case "grid":  # its threads run all iterations
            found |= dict.fromkeys((loop.lower, loop.upper))
        case "block":  # they count from its start
            found[loop.lower] = None
    for b in buffers:
        for e in (*b.shape, *b.element_strides()):
            index(e)
    return list(found)


def buffers_used(body: Node) -> frozenset[str]:
    """Names of all buffers that the statements below touch."""
    used: set[str] = set()
    for n, _ in walk(body):
        match n:
            case Store() | Update():
                used |= {n.buffer, *(r.tensor for r in loads(n.value))}
            case Verify(v, _):
                used.update(r.tensor for r in loads(v))
            case TransposeBlock():
                used |= {n.target, n.source}
            case DeviceNode():
                used.update(buffers_of(n))
            case Loop():
                used.update(r.tensor for r in position_loads(n))
                used.update(r.tensor for r in (loads(n.value) if n.value is not None else ()))
            case Branch() | Block() | Allocate():
                pass
            case _:
                assert_never(n)
    return frozenset(used)


def sizes_in(c: Condition, sizes: tuple[str, ...]) -> dict[str, int]:
    """Those of `sizes` that have one value where `c` holds."""
    found: dict[str, int] = {}
    for part in conjuncts(c):
        if isinstance(part, IsZero) and len(part.index.terms) == 1:
            ((atom, k),) = part.index.terms
            if isinstance(atom, str) and atom in sizes and abs(k) == 1:
                found[atom] = -part.index.constant * k
    return found
