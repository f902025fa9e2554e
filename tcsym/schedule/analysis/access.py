# SPDX-License-Identifier: Apache-2.0
"""Memory accesses of a node and how they move with a loop variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Expr, Read
from tcsym.index.expr import ONE, ZERO, FloorDiv, Index, of_atom, var
from tcsym.index.linear import linear_coefficient
from tcsym.ir.device import BeginCopy, GridBarrier, LoadMatrices, MatrixMultiply, buffers_of
from tcsym.ir.loops import (
    Buffer,
    Loop,
    Node,
    Standing,
    Store,
    TransposeBlock,
    Update,
    Value,
    Verify,
)
from tcsym.ir.traverse import loads, map_node, position_loads, walk
from tcsym.ir.traverse import value_variables as value_variables

Subscripts = tuple[Index | Expr, ...]


class Access(Struct, frozen=True):
    """`buffer[subscripts]`, written or read (an update does both and counts as written).

    spans: dimensions along which a block goes on from there; the subscripts do not say how far.
    """

    buffer: str
    subscripts: Subscripts
    written: bool
    checked: tuple[bool, ...] = ()
    spans: range = range(0)

    def checks(self, dimension: int) -> bool:
        """The running kernel verifies this subscript."""
        return bool(self.checked) and self.checked[dimension]


def accesses(node: Node) -> Iterator[Access]:
    """Every access in `node`, in no particular order."""
    for x, _ in walk(node):
        match x:
            case Store() | Update():
                yield Access(x.buffer, x.subscripts, True)
                found, written = (
                    value_accesses(x.value),
                    x.written if isinstance(x, Standing) else 0,
                )
                yield from (replace(a, written=k < written) for k, a in enumerate(found))
            case Verify():
                yield from value_accesses(x.value)
            case Loop() if x.value is not None:
                yield from value_accesses(x.value)
            case Loop():
                yield from (Access(r.tensor, r.subscripts, False) for r in position_loads(x))
            case TransposeBlock():
                target, source = x.spans
                yield Access(x.target, x.target_subscripts, True, spans=target)
                yield Access(x.source, x.source_subscripts, False, spans=source)
            case GridBarrier(counter):
                yield Access(counter, (), True)
            case BeginCopy():
                yield _along_last(x.target, x.target_subscripts, True)
                yield _along_last(x.source, x.source_subscripts, False)
            case LoadMatrices():
                rank = len(x.source_subscripts)
                yield _along_last(x.target, x.target_subscripts, True)
                yield Access(x.source, x.source_subscripts, False, spans=range(rank - 2, rank))
            case MatrixMultiply():
                yield from (_along_last(b, at, b == x.target) for b, at, _ in x.operands)
            case _:
                pass


def _along_last(buffer: str, subscripts: tuple[Index, ...], written: bool) -> Access:
    rank = len(subscripts)
    return Access(buffer, subscripts, written, spans=range(rank - 1, rank))


def value_accesses(v: Value) -> Iterator[Access]:
    for r in loads(v):
        yield Access(r.tensor, r.subscripts, False, r.checked)


def subscript_variables(subscripts: Subscripts) -> frozenset[str]:
    parts = (s.variables() if isinstance(s, Index) else value_variables(s) for s in subscripts)
    return frozenset[str]().union(*parts)


def stride(buffer: Buffer, subscripts: Subscripts, variable: str) -> Index | None:
    """Elements by which the address moves with `variable`; None if not by a fixed number."""
    total = ZERO
    for s, step in zip(subscripts, buffer.element_strides()):
        if not isinstance(s, Index):
            if variable in value_variables(s):
                return None
            continue
        c = linear_coefficient(s, variable)
        if c is None:
            return None
        total = total + c * step
    return total


def is_shared(buffer: Buffer, subscripts: Subscripts, variable: str, lanes: int) -> bool:
    """Only quotients of `variable` move the address: by neighbours, or seldom, once in `lanes`."""
    moving = [s for s in subscripts if variable in subscript_variables((s,))]
    parts = [_by_quotient(s, variable) if isinstance(s, Index) else None for s in moving]
    if None in parts or not moving:
        return False
    divisors = [n for p in parts if p is not None for n in p.divisors]
    if min(divisors) >= lanes:
        return True
    replaced = {s: p.plain for s, p in zip(moving, parts) if p is not None}
    return stride(buffer, tuple(replaced.get(s, s) for s in subscripts), variable) == ONE


class _ByQuotient(Struct, frozen=True):
    """A subscript with a variable in place of its quotients by `divisors`."""

    plain: Index
    divisors: tuple[int, ...]


def _by_quotient(e: Index, variable: str) -> _ByQuotient | None:
    """None if the variable is found outside of quotients by numbers, too."""
    divisors: list[int] = []
    for atom, c in e.terms:
        if variable not in of_atom(atom).variables():
            continue
        n = atom.divisor.as_int() if isinstance(atom, FloorDiv) else None
        if not isinstance(atom, FloorDiv) or not n or n < 2:
            return None
        if atom.dividend.coefficient(variable) != 1:
            return None
        e, divisors = e + (var(variable) - of_atom(atom)) * c, [*divisors, n]
    return _ByQuotient(e, tuple(divisors))


def are_apart(a: Subscripts, b: Subscripts) -> bool:
    """Two elements of one buffer that differ for equal values of all variables, as is known."""
    return any(differ(x, y) for x, y in zip(a, b) if isinstance(x, Index) and isinstance(y, Index))


def differ(a: Index, b: Index) -> bool:
    """No values of variables, the same in both, make them equal: neither i and i + 1, nor i % 2
    and (i + 1) % 2, whose difference is a multiple of 2 and 1 more."""
    d = a - b
    if not d.terms:
        return d.constant != 0
    return d.constant % gcd(*(c for _, c in d.terms)) != 0


def rename_buffers(node: Node, new: Mapping[str, str]) -> Node:
    """`node` with every access of a buffer that `new` has on what it says."""

    def statement(x: Node) -> Node:
        match x:
            case Store() | Update() if x.buffer in new:
                return replace(x, buffer=new[x.buffer])
            case TransposeBlock() | BeginCopy() | LoadMatrices():
                target, source = (new.get(b, b) for b in (x.target, x.source))
                return replace(x, target=target, source=source)
            case MatrixMultiply():
                target, left, right = (new.get(b, b) for b in buffers_of(x))
                return replace(x, target=target, left=left, right=right)
            case _:
                return x

    def value(v: Value) -> Value:
        return replace(v, tensor=new[v.tensor]) if isinstance(v, Read) and v.tensor in new else v

    return map_node(node, statement, value)
