"""Operands of a contraction that are computed along the sum -> their values, as they lie in memory.

A panel takes its columns from far apart where the sum lies along memory, element by element: a
conversion from half or int8, or a scaling, then costs more than the products. Computed in vectors
first, the operand is one that is read in place or transposed in registers. Elements that are packed
just as they lie are so for rows; columns are transposed by 32 bits.
"""

from __future__ import annotations

from tcsym.frontend.program import Read
from tcsym.index import ONE
from tcsym.loop_ir import Kernel, Loop, loads
from tcsym.packed import elements_of, packed_run
from tcsym.polyhedral.passes.common.access import stride, value_variables
from tcsym.polyhedral.passes.common.band import Band, Roles, band_of
from tcsym.polyhedral.passes.common.loops import find_loop, loops_around
from tcsym.polyhedral.passes.common.names import Names
from tcsym.polyhedral.passes.contraction.copy_operand import copy_operand, depend_on_sizes
from tcsym.polyhedral.passes.contraction.operands import Operand, row_operands, streamed_operands
from tcsym.polyhedral.passes.contraction.permute_operands import Permuted, is_permutation


def evaluate_operands(kernel: Kernel, nest: str, roles: Roles, names: Names) -> Permuted:
    """Copies of such operands before the nest, which keeps its loops and its roles' names.

    Inside other loops they stay as they are: their panels may be filled before these.
    """
    copies: list[str] = []
    if loops_around(kernel.body, nest):
        return Permuted(kernel, ())
    band, rows = band_of(find_loop(kernel.body, nest)), roles.rows or ""
    found = (
        *streamed_operands(kernel, band, roles, names),
        *row_operands(kernel, band, roles, names),
    )
    for x in found:
        loops = _loops(band, x)
        if _is_computed_along(kernel, x, loops, rows):
            name = names.fresh(f"{loads(x.value)[0].tensor}_values")
            kernel, copy = copy_operand(kernel, nest, x.value, loops, loops, name, names)
            copies.append(copy)
    return Permuted(kernel, tuple(copies))


def _loops(band: Band, x: Operand) -> tuple[Loop, ...]:
    """All loops that move the operand, those of the sum last."""
    used = value_variables(x.value)
    return (*(y for y in band.loops if y.variable in used), *x.inner_by_memory)


def _is_computed_along(kernel: Kernel, x: Operand, loops: tuple[Loop, ...], rows: str) -> bool:
    """It is computed from elements each of which one point uses, neighbours along the sum."""
    reads, moving = loads(x.value), {y.variable for y in loops}
    at_hand = x.columns.variable == rows and packed_run(x.value) is not None
    if isinstance(x.value, Read) or at_hand or not depend_on_sizes(kernel, loops):
        return False
    whole = any(value_variables(r) == moving for r in reads)
    last, steps = loops[-1].variable, elements_of(x.value)
    along = all(
        is_permutation(r, last, steps)
        and stride(kernel.buffer(r.tensor), r.subscripts, last) == ONE * steps
        for r in reads
    )
    return whole and along and value_variables(x.value) == moving
