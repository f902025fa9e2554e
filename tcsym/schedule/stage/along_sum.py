# SPDX-License-Identifier: Apache-2.0
"""The operand of few columns (or rows) of a contraction -> a copy that lies along the sum.

Each element of the contraction then is a product of two vectors that are read as they lie
(`rows.row_schedule`). The copy is made before the nest, once for all that uses it.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.ir.loops import Kernel, Loop
from tcsym.ir.traverse import loads
from tcsym.schedule.analysis.access import lies_along, value_variables
from tcsym.schedule.analysis.band import Band, Roles, band_of, factors, reductions
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.operands import Operand, own_operands, streamed_operands
from tcsym.schedule.stage.copy_operand import copy_operand, depend_on_sizes


class Along(Struct, frozen=True):
    """Products can run along `variable` once `operands` (maybe none) are copied."""

    variable: str
    operands: tuple[Operand, ...]


def along_sum(kernel: Kernel, nest: str, roles: Roles, few: str, names: Names) -> Along | None:
    """A reduction along which everything but the side `few` lies in memory, and the rest of it.

    few: the columns' or the rows' loop. None: no such reduction, or what would be copied depends on
    more than sizes.
    """
    band = band_of(find_loop(kernel.body, nest))
    many = roles.rows if few == roles.columns else roles.columns
    for v in _innermost(band):
        if _lies_along(kernel, band, v, many):
            if _lies_along(kernel, band, v, few):
                return Along(v, ())
            found = streamed_operands if few == roles.columns else own_operands
            operands = tuple(found(kernel, band, roles, names))
            if operands and all(_can_copy(kernel, band, x, v) for x in operands):
                return Along(v, operands)
    return None


def _innermost(band: Band) -> tuple[str, ...]:
    """Reduction loops of every term, the innermost first."""
    chains = [[x.variable for x in reversed(around)] for _, around in reductions(band.body)]
    first = chains[0] if chains else []
    return tuple(v for v in first if all(v in chain for chain in chains))


def _lies_along(kernel: Kernel, band: Band, variable: str, side: str | None) -> bool:
    """Every factor that moves with the side has its elements of the loop side by side."""
    reads = [r for x, _ in reductions(band.body) for r in factors(x) if side in value_variables(r)]
    return bool(reads) and all(
        lies_along(kernel.buffer(r.tensor), r.subscripts, variable) for r in reads
    )


def _can_copy(kernel: Kernel, band: Band, x: Operand, variable: str) -> bool:
    loops = _dimensions(band, x, variable)
    return loops[-1].variable == variable and depend_on_sizes(kernel, loops)


def _dimensions(band: Band, x: Operand, variable: str) -> tuple[Loop, ...]:
    """The loops that move the operand, the one of the sum last."""
    used = value_variables(x.value)
    outer = tuple(y for y in band.loops if y.variable in used)
    inner = tuple(sorted(x.inner, key=lambda y: y.variable == variable))
    return (*outer, *inner)


def copy_along_sum(kernel: Kernel, nest: str, along: Along, names: Names) -> Kernel:
    """The nest reads copies, made before it.

    Element by element: the few columns lie side by side, so that blocks would be mostly empty.
    """
    band = band_of(find_loop(kernel.body, nest))
    for x in along.operands:
        loops = _dimensions(band, x, along.variable)
        name = names.fresh(f"{loads(x.value)[0].tensor}_along")
        order = (loops[-1], *loops[:-1])
        kernel, _ = copy_operand(kernel, nest, x.value, loops, order, name, names)
    return kernel
