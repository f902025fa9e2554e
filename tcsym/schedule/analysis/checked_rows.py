# SPDX-License-Identifier: Apache-2.0
"""Run-time checks of a row's position -> once in front of the loop over its columns."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Const, Expr, IndexValue, Read
from tcsym.index.expr import Condition, Index, all_of, ge, index
from tcsym.ir.loops import Buffer, Kernel, Node, Store, Update, Value, Verify
from tcsym.ir.traverse import loads, map_value
from tcsym.schedule.analysis.access import subscript_variables
from tcsym.schedule.analysis.band import Band
from tcsym.schedule.analysis.loops import statements_in
from tcsym.schedule.analysis.names import Names
from tcsym.types import DType


def checks_refusal(x: Update, columns: str) -> bool:
    """A check that may come out differently in two columns of a row."""
    for r in loads(x.value):
        if r.unwritten is not None:
            return True
        for s, checked in zip(r.subscripts, r.checked):
            if checked and columns in subscript_variables((s,)):
                return True
    return False


def gathered_rows(kernel: Kernel, band: Band) -> Condition:
    """Tensors with checked subscripts have an element at all: what is out of range reads that."""
    return all_of(
        ge(kernel.buffer(r.tensor).shape[d], 1)
        for x, _ in statements_in(band.body)
        for r in loads(x.value)
        for d, checked in enumerate(r.checked)
        if checked
    )


class Checked(Struct, frozen=True):
    """`before`: the check of a row, and stores of its positions. `value`: makes no more checks."""

    before: tuple[Node, ...]
    value: Value
    buffers: tuple[Buffer, ...]


def check_rows(
    kernel: Kernel, x: Update, row: Index, rows: int, private: frozenset[str], names: Names
) -> Checked:
    """The checked reads of `x` at positions found, and kept inside the tensor, beforehand.

    row: which of the `rows` rows of a pass it is. Contract: `checks_refusal` is False, and
    `gathered_rows` holds.
    """
    if not any(any(r.checked) for r in loads(x.value)):
        return Checked((), x.value, ())
    before: list[Node] = [Verify(x.value, x.name)]
    buffers: list[Buffer] = []

    def position(s: Index | Expr, extent: Index) -> Expr:
        kind = DType.INT64
        b = Buffer(names.fresh("position"), kind, (index(rows),), "arena", private=private)
        buffers.append(b)
        before.append(Store(b.name, (row,), kept_inside(s, extent), x.name))
        return Read(b.name, (row,), kind)

    def checked_before(v: Value) -> Value:
        if not isinstance(v, Read) or not any(v.checked):
            return v
        places = zip(v.subscripts, v.checked, kernel.buffer(v.tensor).shape)
        inside = tuple(position(s, n) if checked else s for s, checked, n in places)
        return replace(v, subscripts=inside, checked=())

    plain = map_value(x.value, checked_before, lambda i: i)
    return Checked(tuple(before), plain, tuple(buffers))


def kept_inside(subscript: Index | Expr, extent: Index) -> Expr:
    """The subscript, or the nearest one of an element that there is."""
    kind = DType.INT64
    least: Expr = IndexValue(subscript, kind) if isinstance(subscript, Index) else subscript
    least = Binary("max", least, Const(0, kind), kind)
    return Binary("min", least, IndexValue(extent - 1, kind), kind)
