# SPDX-License-Identifier: Apache-2.0
"""The best of a search at many other sizes: what a tree of regions is learned from.

All are measured side by side at sizes that cover the ranges (`distribution.cover`). The first of
these tell which options may be the best somewhere: candidates for sizes that are measured by
themselves. A tree distinguishes fewer. So only the most useful ones go on, to more sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tcsym.options import Options
from tcsym.tuning.distribution import Values
from tcsym.tuning.learn import lost
from tcsym.tuning.race import Attempt, Race, outcome_of
from tcsym.tuning.side_by_side import Entrant, FieldJob, evaluate_field, template_field
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import MOST_CANDIDATES

FIRST, LEAST = 24, 8  # options at the first sizes, and at the last
SECONDS, PRECISION = 0.03, 0.01  # for all options at one size
SETTLED = 48  # sizes that say which options are worth having
AT_ONCE = 8  # sizes between two looks at the clock
# what an option must save, of the mean logarithm of time, to be in the tree, or a candidate
WORTH, RARELY_WORTH = 0.0005, 0.0001


def survey(
    race: Race,
    attempts: Sequence[Attempt],
    sizes: Sequence[Values],
    seen: Callable[[int], None] = lambda _: None,
) -> tuple[Options, ...]:
    """Measure attempts, the default first, at the sizes while time lasts; the candidates.

    `seen` is told how many after each step. Results are in the attempts' `ratios`.
    """
    done: list[Values] = []
    alive, candidates = list(attempts), list(attempts)
    for start in range(0, len(sizes), AT_ONCE):
        if race.is_over() or len(alive) < 2:
            break
        some = sizes[start : start + AT_ONCE]
        measure_field(race, alive, some, SECONDS, PRECISION)
        done += [v for v in some if v in alive[0].ratios]
        alive = [a for a in alive if a.state != "failed"]
        if len(done) <= SETTLED:  # fewer say little
            candidates = worth_having(alive, done, MOST_CANDIDATES, RARELY_WORTH)
        if len(done) >= SETTLED:
            alive = worth_having(alive, done, LEAST)
        seen(len(done))
    return tuple(a.options for a in candidates if a.state != "failed")


def measure_field(
    race: Race,
    attempts: Sequence[Attempt],
    sizes: Iterable[Values],
    seconds: float,
    precision: float,
) -> None:
    """All attempts, the default first, side by side at each of the sizes.

    A size at which a candidate takes the worker down is measured again one by one.
    """
    template = replace(
        template_field(race.template),
        candidates=tuple(a.options for a in attempts),
        seconds=seconds,
        precision=precision,
    )
    for values, entrants in zip(sizes, ask(race, template, sizes)):
        if race.is_over() and isinstance(entrants, str):
            continue
        if isinstance(entrants, str):
            _one_by_one(race, attempts, values, seconds)
        else:
            _record(attempts, values, entrants)


def ask(race: Race, template: FieldJob, sizes: Iterable[Values]) -> list[tuple[Entrant, ...] | str]:
    """The answers for each size, or why there is none."""
    submit = race.executor.submit
    futures = [submit(evaluate_field, replace(template, values=v)) for v in sizes]
    race.wait_for(futures)
    answers: list[tuple[Entrant, ...] | str] = []
    for future in futures:
        answer = outcome_of(future)
        answers.append(answer)
    return answers


def _record(attempts: Sequence[Attempt], values: Values, entrants: Sequence[Entrant]) -> None:
    for a, entrant in zip(attempts, entrants):
        if entrant.ratio is not None:
            a.ratios[values] = entrant.ratio
        else:
            a.state, a.reason = "failed", entrant.reason


def _one_by_one(race: Race, attempts: Sequence[Attempt], values: Values, seconds: float) -> None:
    default, *others = attempts
    default.ratios[values] = Ratio(0.0, 0.0, 0.0)
    race.seconds[values] = seconds
    race.measure(others, default, (values,), 2 * PRECISION)


def worth_having(
    attempts: Sequence[Attempt], sizes: Sequence[Values], most: int, worth: float = WORTH
) -> list[Attempt]:
    """The default, and what together leaves least to be had at these sizes; up to `most`.

    Greedy, as for the placing of facilities (Cornuejols, Fisher and Nemhauser 1977).
    """
    default, *rest = attempts
    known = [a for a in rest if all(v in a.ratios for v in sizes)]
    best = {v: min(a.ratios[v].log for a in (default, *known)) for v in sizes}

    def left(logs: Mapping[Values, float]) -> float:
        return float(sum(lost(logs[v] - best[v]) for v in sizes)) / max(1, len(sizes))

    chosen, logs = [default], {v: default.ratios[v].log for v in sizes}
    while known and len(chosen) < most:
        added = {id(a): left({v: min(logs[v], a.ratios[v].log) for v in sizes}) for a in known}
        a = min(known, key=lambda a: added[id(a)])
        if left(logs) - added[id(a)] < worth:
            break
        chosen.append(a)
        known.remove(a)
        logs = {v: min(logs[v], a.ratios[v].log) for v in sizes}
    return chosen


def finalists(
    attempts: Sequence[Attempt], incumbent: Attempt, weights: Mapping[Values, float]
) -> list[Attempt]:
    """Of those measured at all tuned sizes: the default, the incumbent, the best at each size."""
    complete = [a for a in attempts if a.is_complete(weights)]
    complete.sort(key=lambda a: a.cost(weights)[0])
    by_size = [sorted(complete, key=lambda a: a.ratios[v].log) for v in weights]
    ranked = [a for rank in zip(complete, *by_size) for a in rank]
    found: dict[int, Attempt] = {}
    for a in (attempts[0], incumbent, *ranked):
        if len(found) < FIRST:
            found.setdefault(id(a.ratios), a)  # twins, which are the same code, share theirs
    return list(found.values())
