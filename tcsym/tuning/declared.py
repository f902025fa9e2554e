# SPDX-License-Identifier: Apache-2.0
"""What is declared of sizes -> the context that tuned code is made for, as a kernel's own code is.

Code for a context need not be right outside of it: sizes that are measured or checked lie inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcsym.frontend.program import Program
from tcsym.sizes.context import Context, Known
from tcsym.sizes.dims import Dim
from tcsym.tuning.distribution import Distribution, Values


def context_for(
    program: Program, declared: Mapping[str, Dim | int], distribution: Distribution
) -> Context:
    """Declared ranges; () where it was asked to tune for sizes beyond them."""
    context = tuple(
        sorted(
            Known(name, dim.lo, dim.hi, dim.multiple_of)
            for name, dim in declared.items()
            if name in program.sizes and isinstance(dim, Dim) and dim != Dim()
        )
    )
    inside = all(lies_in(context, program.sizes, v) for v in distribution.weights)
    by_name = dict(zip(program.sizes, distribution.ranges, strict=True))
    drawn = all(_is_within(by_name[known.name], known) for known in context)
    return context if inside and drawn else ()


def lies_in(context: Context, names: Sequence[str], values: Values) -> bool:
    """True if code for the context serves these sizes."""
    return moved_into(context, names, values) == tuple(values)


def moved_into(context: Context, names: Sequence[str], values: Values) -> Values:
    """Each size raised or lowered as little as it takes, to a multiple where it must be one."""
    known = {k.name: k for k in context}
    return tuple(_moved(known[n], v) if n in known else v for n, v in zip(names, values))


def _moved(known: Known, value: int) -> int:
    _, low, high, step = known
    least = -(-low // step) * step
    rounded = max(least, round(value / step) * step)
    return rounded if high is None else min(rounded, max(least, high // step * step))


def _is_within(drawn: tuple[int, int, int], known: Known) -> bool:
    low, high, step = drawn
    if not (known.low <= low and (known.high is None or high <= known.high)):
        return False
    return step % known.step == 0 or (low == high and low % known.step == 0)
