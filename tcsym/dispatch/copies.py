# SPDX-License-Identifier: Apache-2.0
"""Arguments of any layout -> a run of the dense variant, while a better one is being compiled."""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.runtime.variants import Variant, Variants
from tcsym.runtime.view import View

Values = tuple[int, ...]


def run_on_copies(
    variants: Variants, dense: Variant, views: Sequence[View], sizes: Values, threads: int
) -> tuple[Variant, int]:
    """As `Variants.run`, on dense copies of what is not dense."""
    n_inputs, device = len(variants.plan.inputs), variants.plan.device
    passed = [v if v.dense else device.private_copy(v) for v in views[:n_inputs]]
    for view in views[n_inputs:]:
        assert view.dtype is not None
        passed.append(view if view.dense else device.temporary(view.shape, view.dtype, view.place))
    dense, fault = variants.run(dense, passed, sizes, threads)
    if not fault:
        for k in variants.plan.written:
            if passed[k] is not views[k]:
                device.copy(views[k], passed[k])
    return dense, fault
