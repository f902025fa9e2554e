# SPDX-License-Identifier: Apache-2.0
"""Rows of a temporary that end in a ragged vector -> rows of whole vectors.

A masked store at the end of a row covers the first elements of the next one: whatever loads these
waits until the store has left the processor, so that rows follow each other instead of overlapping.
Where rows have room for whole vectors nothing overlaps, and no store needs a mask.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ONE, Index, maximum
from tcsym.index.linear import linear_coefficient
from tcsym.index.values import substitute
from tcsym.ir.bounds import eliminate, relax
from tcsym.ir.loops import Buffer, Kernel, Loop
from tcsym.schedule.analysis.access import Access, subscript_variables
from tcsym.schedule.analysis.touched import uses_in
from tcsym.schedule.storage.contract_storage import is_guarded


def pad_rows(kernel: Kernel) -> Kernel:
    """Temporaries of few rows get longer rows, and are `padded`.

    Contract: storage has its places.
    """
    for b in kernel.buffers:
        if b.space in ("arena", "stack") and not b.padded and b.dtype.is_float:
            length = _whole_length(kernel, b)
            if length is not None:
                shape = (*b.shape[:-1], length)
                kernel = kernel.with_buffer(replace(b, shape=shape, padded=True))
    return kernel


def _whole_length(kernel: Kernel, b: Buffer) -> Index | None:
    """Of rows in which masked lanes have a place; None if it is not known, or there are none."""
    if not b.shape or any(relax(n, frozenset(), True) is None for n in b.shape[:-1]):
        return None
    ends: list[Index | None] = []
    ragged = False
    for a, around in uses_in(kernel.body, b.name):
        if a.spans or any(a.checked) or not all(isinstance(s, Index) for s in a.subscripts):
            return None
        moving = subscript_variables(a.subscripts)
        for x in around:
            if x.kind == "vector" and x.mask is not None and x.variable in moving:
                ends.append(_end(kernel, a, around) if _ends_row(b, a, x, around) else None)
                ragged = ragged or a.written
    known = [n for n in ends if n is not None]
    if not ragged or len(known) < len(ends) or is_guarded(kernel.body, b.name):
        return None
    length = maximum(*known)
    return None if b.space == "stack" and length.as_int() is None else length


def _ends_row(b: Buffer, a: Access, lanes: Loop, around: tuple[Loop, ...]) -> bool:
    """Lanes go along the row; masked ones that would be written are beyond its end."""
    *rows, last = a.subscripts
    assert isinstance(last, Index) and lanes.mask is not None
    if lanes.variable in subscript_variables(tuple(rows)):
        return False
    if linear_coefficient(last, lanes.variable) != ONE:
        return False
    first = substitute(last, {lanes.variable: lanes.mask})
    return not a.written or eliminate(first, _unmasked(around), False) == b.shape[-1]


def _end(kernel: Kernel, a: Access, around: tuple[Loop, ...]) -> Index | None:
    """Elements of the row up to the last that the access touches, also by masked lanes."""
    last = a.subscripts[-1]
    assert isinstance(last, Index)
    most = eliminate(last, _unmasked(around), True)
    most = None if most is None else relax(most, frozenset(kernel.sizes), True)
    return None if most is None else most + 1


def _unmasked(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    return tuple(replace(x, mask=None) for x in loops)
