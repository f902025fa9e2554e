# SPDX-License-Identifier: Apache-2.0
"""Ways to serve a kernel's sizes, run in turns on made-up inputs: what each costs at each of them.

Beside the symbolic versions: `bound` has those sizes as numbers that are the same in all calls, a
filter of 3 x 3 in images of any size; `bucket` and `padded` are the strategies of these names, for
declared ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tcsym.dispatch.buckets import Buckets
from tcsym.dispatch.made_up import MOST_ELEMENTS, made_up
from tcsym.dispatch.making import Making
from tcsym.dispatch.padded import PadOnDemand
from tcsym.dispatch.policy import Policy
from tcsym.dispatch.refine import recall
from tcsym.dispatch.table import Ranges, Table
from tcsym.dispatch.trial import median
from tcsym.dispatch.version import Values, Version
from tcsym.errors import OptionError
from tcsym.runtime.plan import CallPlan
from tcsym.runtime.view import View
from tcsym.sizes.work import n_elements
from tcsym.strategy import Bucket, Pad

Run = Callable[[], int]
SECONDS, LEAST_RUNS, MOST_RUNS = 0.05, 5, 200
MOST_PADDING = 4.0  # times as many elements
PYTHON_SECONDS = 20e-6  # what a call costs more that no native entry serves
LEAST_GAIN, MOST_LOSS = 1.02, 0.97


class Weighed(Struct, frozen=True):
    """`seconds`: of one call, by way and then by `sizes`; median, and minimum."""

    sizes: tuple[Values, ...]
    seconds: Mapping[str, tuple[tuple[float, float], ...]]

    def gain(self, way: str) -> tuple[float, float]:
        """How many times as fast as `symbolic`, by median and by minimum: in the mean, at worst."""
        ratios = [
            min(a / b for a, b in zip(old, new))
            for old, new in zip(self.seconds["symbolic"], self.seconds[way])
        ]
        return math.exp(sum(map(math.log, ratios)) / len(ratios)), min(ratios)

    def best(self) -> str:
        """The fastest way; `symbolic` unless another is faster by more than noise explains."""
        found = "symbolic", LEAST_GAIN
        for way in self.seconds:
            mean, worst = self.gain(way)
            if mean > found[1] and worst > MOST_LOSS:
                found = way, mean
        return found[0]

    def mean_seconds(self, way: str) -> float:
        """Geometric mean of the medians."""
        return math.exp(sum(math.log(m) for m, _ in self.seconds[way]) / len(self.sizes))

    def to_json(self) -> dict[str, Any]:
        return {"sizes": self.sizes, "seconds": {w: list(s) for w, s in self.seconds.items()}}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Weighed:
        seconds = {w: tuple((a, b) for a, b in s) for w, s in data["seconds"].items()}
        return Weighed(tuple(tuple(v) for v in data["sizes"]), seconds)


def weigh(
    making: Making, sizes: Sequence[Values], bound: Mapping[str, int], threads: int
) -> Weighed | None:
    """None if nothing can be compared. Compiles what it needs, in this process."""
    program = making.plan.program
    names = making.plan.sizes
    sizes = [v for v in sizes if 0 < n_elements(program, dict(zip(names, v))) <= MOST_ELEMENTS]
    ways = rivals(making, bound)
    if not sizes or len(ways) == 1:
        return None
    rows = [_seconds(making.plan, ways, values, threads) for values in sizes]
    if not all("symbolic" in row for row in rows):
        return None
    usable = [way for way in ways if all(way in row for row in rows)]
    return Weighed(tuple(sizes), {way: tuple(row[way] for row in rows) for way in usable})


Serving = Callable[[Values], Version]


def rivals(making: Making, bound: Mapping[str, int]) -> dict[str, Serving]:
    """What may serve sizes, by way."""
    found = {"symbolic": _symbolic(making)}
    if bound:
        found["bound"] = Table(Ranges.of(making.partly_bound(bound), making.plan.sizes))
    with suppress(OptionError):  # no bounds are declared
        found["bucket"], found["padded"] = buckets_of(making), padding_of(making)
    return {way: partial(_serving, table) for way, table in found.items()}


def _serving(table: Table, sizes: Values) -> Version:
    found = table.serving(sizes)
    assert found is not None
    return found


def _symbolic(making: Making) -> Table:
    """As calls are served: with the options measured for their sizes, else those of the region."""
    measured = recall(making) if len(making.candidates) > 1 else {}
    versions = {o: making.refined(o) for o in {found.options for found in measured.values()}}
    rows = {sizes: versions[found.options] for sizes, found in measured.items()}
    return replace(Policy(making).first(), measured=rows)


def buckets_of(making: Making) -> Table:
    """Versions for ranges of sizes. OptionError if none has an upper bound."""
    decisions = list(making.stats.decisions)
    table = Buckets(making, Bucket()).first()
    making.stats.decisions[:] = decisions
    return table


def padding_of(making: Making) -> Table:
    """A version for padded sizes. OptionError if none has an upper bound."""
    policy = PadOnDemand(making, Pad("max"))
    return policy.wanted(policy.first(), (0,) * len(making.plan.sizes))


def _seconds(
    plan: CallPlan, ways: Mapping[str, Serving], sizes: Values, threads: int
) -> dict[str, tuple[float, float]]:
    """Of single runs: median and minimum. Ways that fail, or pad too much, are left out."""
    views = made_up(plan, sizes)
    runs: dict[str, Run] = {}
    for way, serving in ways.items():
        version = serving(sizes)
        if version.padding is not None and not _pads_little(plan, version, sizes):
            continue
        run = run_of(version, views, sizes, threads)
        if not run():
            runs[way] = run
    spent = run_in_turns(list(runs.values()))
    more = {way: PYTHON_SECONDS if ways[way](sizes).padding else 0.0 for way in runs}
    return {
        way: (median(s) + more[way], min(s) + more[way]) for way, s in zip(runs, spent, strict=True)
    }


def run_both(
    plan: CallPlan, first: Version, second: Version, sizes: Values, threads: int
) -> tuple[list[float], list[float]] | None:
    """Seconds of single runs of two versions. None if a run fails."""
    views = made_up(plan, sizes)
    runs = [run_of(version, views, sizes, threads) for version in (first, second)]
    if any(run() for run in runs):
        return None
    old, new = run_in_turns(runs)
    return old, new


def _pads_little(plan: CallPlan, version: Version, sizes: Values) -> bool:
    assert version.padding is not None
    meant = dict(zip(plan.sizes, sizes))
    padded = {**meant, **version.padding.extents}
    few = n_elements(plan.program, meant)
    return n_elements(plan.program, padded) <= min(MOST_PADDING * few, MOST_ELEMENTS)


def run_of(version: Version, views: Sequence[View], sizes: Values, threads: int) -> Run:
    """A call of a version on these inputs and outputs, compiled; it returns 0 or 1 + its fault."""
    if version.padding is not None:
        return lambda: version.run(views, sizes, threads)[1]
    variant = version.variants.made_for(version.variants.dense)
    pointers = [views[k].pointer for k in variant.pointers]
    numbers = [sizes[s] for s in variant.slots if isinstance(s, int)]
    kernel = variant.kernel
    return lambda: kernel.run(pointers, numbers, threads)


def run_in_turns(runs: Sequence[Run]) -> list[list[float]]:
    """Seconds of single runs of each, forth and back, for a while."""
    spent: list[list[float]] = [[] for _ in runs]
    until = perf_counter() + SECONDS * len(runs)
    order = list(range(len(runs)))
    while len(spent[0]) <= LEAST_RUNS or (perf_counter() < until and len(spent[0]) < MOST_RUNS):
        for k in order:
            start = perf_counter()
            runs[k]()
            spent[k].append(perf_counter() - start)
        order.reverse()
    return [s[1:] for s in spent]
