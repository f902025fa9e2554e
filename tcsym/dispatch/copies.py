"""Arguments of any layout -> a run of the dense variant, while a better one is being compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tcsym.runtime.arrays import View, empty, numpy_array, private_copy
from tcsym.variants import Variant

Values = tuple[int, ...]


def run_on_copies(
    dense: Variant, views: Sequence[View], n_inputs: int, sizes: Values, threads: int
) -> int:
    """Run on dense copies of what is not dense; 0, or 1 + the index of a fault."""
    passed = [v if v.dense else private_copy(v) for v in views[:n_inputs]]
    for view in views[n_inputs:]:
        assert view.dtype is not None
        passed.append(view if view.dense else empty("numpy", view.shape, view.dtype))
    fault = dense.run(passed, sizes, threads)
    if not fault:
        for given, used in zip(views[n_inputs:], passed[n_inputs:]):
            if used is not given:
                np.copyto(numpy_array(given), numpy_array(used))
    return fault
