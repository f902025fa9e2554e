# SPDX-License-Identifier: Apache-2.0
"""Operands of a contraction that are computed or gathered -> their values, as they lie in memory.

A panel takes its columns from far apart where the sum lies along memory, element by element: a
conversion from half or int8, or a scaling, then costs more than the products. Computed in vectors
first, the operand is one that is read in place or transposed in registers. Elements that are packed
just as they lie are so for rows; columns are transposed by 32 bits.

Gathered rows, `A(p(i),k) * B(k,j)`, are read once for each tile of columns, found and checked anew.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ONE, Index, all_of, ge
from tcsym.index.linear import linear_coefficient
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Value, conditional
from tcsym.ir.packed import elements_of, packed_run
from tcsym.ir.traverse import loads, walk
from tcsym.schedule.analysis.access import stride, value_variables
from tcsym.schedule.analysis.band import Band, Roles, band_of
from tcsym.schedule.analysis.loops import find_loop, loops_around, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.operands import Operand, row_operands, streamed_operands
from tcsym.schedule.stage.copy_operand import copy_operand, depend_on_sizes


class Evaluated(Struct, frozen=True):
    """`copies`: outermost loops of the nests that make them, not scheduled yet."""

    kernel: Kernel
    copies: tuple[str, ...]


def evaluate_operands(kernel: Kernel, nest: str, roles: Roles, names: Names) -> Evaluated:
    """Copies of such operands before the nest, which keeps its loops and its roles' names.

    Inside other loops they stay as they are: their panels may be filled before these.
    """
    copies: list[str] = []
    if loops_around(kernel.body, nest):
        return Evaluated(kernel, ())
    band, rows = band_of(find_loop(kernel.body, nest)), roles.rows or ""
    found = (
        *streamed_operands(kernel, band, roles, names),
        *row_operands(kernel, band, roles, names),
    )
    for x in found:
        loops = _loops(band, x)
        if _is_computed_along(kernel, x, loops, rows):
            kernel, copy = _copied(kernel, nest, x, loops, names)
            copies.append(copy)
    every = tuple(y for y, _ in walk(find_loop(kernel.body, nest)) if isinstance(y, Loop))
    for x in row_operands(kernel, band, roles, names, _is_gathered):
        loops = _loops(band, x)
        if depend_on_sizes(kernel, every) and _is_found_once(kernel, x, loops):
            kernel, copy = _copied(kernel, nest, x, loops, names)
            kernel = _where_used(kernel, every, loops, copy)
            copies.append(copy)
    return Evaluated(kernel, tuple(copies))


def _copied(
    kernel: Kernel, nest: str, x: Operand, loops: tuple[Loop, ...], names: Names
) -> tuple[Kernel, str]:
    name = names.fresh(f"{loads(x.value)[0].tensor}_values")
    return copy_operand(kernel, nest, x.value, loops, loops, name, names)


def _is_gathered(v: Value) -> bool:
    """Its subscripts are elements of tensors."""
    reads = loads(v)
    plain = all(isinstance(s, Index) for r in reads for s in r.subscripts)
    return not plain and all(r.unwritten is None for r in reads)


def _is_found_once(kernel: Kernel, x: Operand, loops: tuple[Loop, ...]) -> bool:
    """Each point of the loops has an element of its own, as no window slides."""
    names = {y.variable for y in loops}
    subscripts = [s for r in loads(x.value) for s in r.subscripts if isinstance(s, Index)]
    alone = all(len(s.variables() & names) <= 1 for s in subscripts)
    return alone and value_variables(x.value) - set(kernel.sizes) == names


def _where_used(
    kernel: Kernel, every: tuple[Loop, ...], loops: tuple[Loop, ...], copy: str
) -> Kernel:
    """The copy only where the nest reads all of it: what is out of range is an error.

    every: the nest's loops, also those of sums along which the operand stays the same.
    """
    moving = {y.variable for y in loops}
    used = all_of(ge(extent(y), 1) for y in every if y.variable not in moving)
    return replace(
        kernel, body=replace_loop(kernel.body, copy, lambda loop: conditional(used, loop))
    )


def _loops(band: Band, x: Operand) -> tuple[Loop, ...]:
    """All loops that move the operand, those of the sum last."""
    used = value_variables(x.value)
    return (*(y for y in band.loops if y.variable in used), *x.inner_by_memory)


def _is_computed_along(kernel: Kernel, x: Operand, loops: tuple[Loop, ...], rows: str) -> bool:
    """It is computed from elements each of which one point uses, neighbours along the sum, and
    from what stays the same along it."""
    reads, moving = loads(x.value), {y.variable for y in loops}
    at_hand = x.columns.variable == rows and packed_run(x.value) is not None
    if isinstance(x.value, Read) or at_hand or not depend_on_sizes(kernel, loops):
        return False
    last, steps = loops[-1].variable, elements_of(x.value)
    whole = any(moving <= value_variables(r) for r in reads)
    along = all(
        _is_read_once(r, loops, steps)
        and stride(kernel.buffer(r.tensor), r.subscripts, last) == ONE * steps
        for r in reads
        if last in value_variables(r)
    )
    plain = not any(any(r.checked) or r.unwritten is not None for r in reads)
    return whole and along and plain and value_variables(x.value) - set(kernel.sizes) == moving


def _is_read_once(r: Read, loops: tuple[Loop, ...], steps: int) -> bool:
    """Each point of the loops has an element of its own; the last loop has a dimension, too.

    Loops may share one if they count it through, as in `n*i + j`; the last loop goes by `steps`.
    """
    last, found = loops[-1].variable, 0
    for s in r.subscripts:
        if not isinstance(s, Index):
            return False
        left = [x for x in loops if x.variable in s.variables()]
        found += len(left)
        step = ONE * steps if last in s.variables() else ONE
        if len(left) > 1 and last in s.variables():
            return False
        while left:
            x = next((x for x in left if linear_coefficient(s, x.variable) == step), None)
            if x is None:
                return False
            left.remove(x)
            step = step * extent(x)
    return found == len({v for x in loops if (v := x.variable) in value_variables(r)})
