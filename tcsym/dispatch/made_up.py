# SPDX-License-Identifier: Apache-2.0
"""Sizes -> arguments of a call that nobody made, to measure versions with."""

from __future__ import annotations

import numpy as np

from tcsym.dispatch.version import Values
from tcsym.runtime.arrays import numpy_view
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.view import View

MOST_ELEMENTS = 1 << 25  # of a call that is made up


def made_up(plan: CallPlan, sizes: Values) -> tuple[View, ...]:
    """Inputs and outputs: zeros, valid as positions of gathers wherever there is something.

    Written, not `np.zeros`: untouched, all its pages would be the same one, which lies in a cache.
    """
    extents = dict(zip(plan.sizes, sizes))
    shapes = [
        (p.dtype, tuple(d if isinstance(d, int) else extents[d] for d in p.dimensions))
        for p in plan.inputs
    ]
    shapes += [(o.dtype, shape) for o, shape in zip(plan.outputs, plan.shapes(*sizes))]
    return tuple(numpy_view(np.full(shape, 0, dtype.numpy)) for dtype, shape in shapes)
