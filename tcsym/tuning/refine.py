"""The best of a search -> the same with fewer fields changed, and measured at other sizes, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tcsym.tuning.distribution import Values
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.request import DEFAULT
from tcsym.tuning.timing import Ratio
from tcsym.tuning.trials import Trials

EXTRA_SIZES, MOST_EXTRA_SIZES, GENERAL = 8, 128, 5
LEAST_SECONDS, EXTRA_SECONDS, EXTRA_PRECISION = 0.04, 0.02, 0.02  # one candidate at one size
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


def generalise(
    incumbent: Attempt,
    race: Race,
    trials: Trials,
    weights: Mapping[Values, float],
    drawn: tuple[Values, ...],
) -> tuple[Values, ...]:
    """Measure the best also at sizes that are `drawn`: regions should hold between what is tuned.

    Returns the sizes that time allowed, those of an earlier tune first.
    """
    complete = trials.complete(weights)
    chosen = {a.options: a for a in (incumbent, *complete[:GENERAL])}
    for v in weights:
        best = min(complete, key=lambda a: a.ratios[v].log)
        chosen[best.options] = best
    chosen.pop(DEFAULT, None)
    earlier = [v for v in trials.earlier_sizes() if v not in weights]
    done: list[Values] = []
    for values in dict.fromkeys((*earlier[: EXTRA_SIZES // 2], *drawn)):
        if race.is_over() or not chosen:
            break
        trials.default.ratios[values] = Ratio(0.0, 0.0, 0.0)
        race.seconds[values] = EXTRA_SECONDS
        race.measure(list(chosen.values()), trials.default, (values,), EXTRA_PRECISION)
        done.append(values)
    return tuple(done)
