# SPDX-License-Identifier: Apache-2.0
"""The best of a search -> the same with fewer fields changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from tcsym.tuning.distribution import Values
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.request import DEFAULT

SIMPLER = 0.004  # logarithm of the time that a changed field must save to stay


def simplified(
    incumbent: Attempt,
    race: Race,
    weights: Mapping[Values, float],
    note: Callable[[list[Attempt]], None],
) -> Attempt:
    """The incumbent, with every field that saves nothing back at its default."""
    for name in incumbent.options.changed():
        if race.is_over():
            break
        simpler = replace(incumbent.options, **{name: getattr(DEFAULT, name)})
        if simpler == DEFAULT:
            continue
        (attempt,) = race.run([simpler], incumbent, weights)
        note([attempt])
        is_same = attempt.state == "same" and bool(attempt.ratios)
        is_good = is_same or attempt.is_complete(weights)
        saved = attempt.cost(weights)[0] - incumbent.cost(weights)[0]
        if is_good and saved < SIMPLER:
            attempt.state = "measured"
            incumbent = attempt
    return incumbent
