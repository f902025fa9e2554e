# SPDX-License-Identifier: Apache-2.0
"""Where a tune had too little time: how much a first round of candidates takes at least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcsym.tuning.distribution import Values
from tcsym.tuning.race import Attempt


def least_seconds(
    baseline: float,
    searched: float,
    attempts: Sequence[Attempt],
    weights: Mapping[Values, float],
    batch: int,
) -> float:
    """Seconds until `batch` candidates went through their race, of which half stay to the end.

    baseline: seconds until the default was compiled, checked and timed at all sizes. searched:
    those for `attempts`, as far as they got; without any, a round takes as long as the default.
    """
    jobs = sum(max(1, len(a.ratios)) for a in attempts)
    whole = batch * (1 + len(weights)) / 2
    return baseline + (max(searched, searched * whole / jobs) if jobs else baseline)
