"""Tuned options at single sizes: all candidates run in turns -> the fastest, for later processes.

The tree of regions is for sizes that nobody measured. At some of them it chooses wrongly, and
factors may be lost; what is measured at the sizes themselves does not.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace

from tcsym.digest import hexdigest
from tcsym.dispatch.making import Making
from tcsym.dispatch.trial import NEEDED_GAIN
from tcsym.dispatch.version import Values, Version
from tcsym.dispatch.weigh import MOST_ELEMENTS, Run, made_up, run_of
from tcsym.options import Options
from tcsym.records import dataclass
from tcsym.runtime.cache import compiler_version
from tcsym.threads import get_num_threads
from tcsym.tuning.machine import machine_key
from tcsym.tuning.rows import Fastest
from tcsym.tuning.stores import sizes_database
from tcsym.tuning.timing import compare_all
from tcsym.work import n_elements

SECONDS, PRECISION = 0.05, 0.01  # for all candidates at one size; of the logarithm of a ratio
MOST_RECALLED = 4096


@dataclass(frozen=True, slots=True)
class Refined:
    """The fastest options at some sizes. Seconds of a call with them; `before`: the region's."""

    options: Options
    before: float
    seconds: float

    def __str__(self) -> str:
        before, now = (f"{1e6 * s:.2f} us" for s in (self.before, self.seconds))
        return f"measured at these sizes: {before} with the region's options, {now} with the best"


class Contest:
    """The candidates of one kernel, with their code."""

    def __init__(self, making: Making) -> None:
        self.making = making
        self._versions: dict[Options, Version] = {}

    def fastest(self, sizes: Values, threads: int) -> Refined | None:
        """The region's options, unless others are faster by more than noise explains.

        None where nothing can be compared. Compiles what it needs, in this process.
        """
        making = self.making
        named = dict(zip(making.plan.sizes, sizes))
        if not 0 < n_elements(making.plan.program, named) <= MOST_ELEMENTS:
            return None
        own = making.region_of(sizes).options
        views = made_up(making.plan, sizes)
        runs: dict[Options, Run] = {}
        for options in dict.fromkeys((own, *making.candidates)):
            run = run_of(self._version(options), views, sizes, threads)
            if not run():
                runs[options] = run
        if own not in runs or len(runs) < 2:
            return None
        first, *others = compare_all(list(runs.values()), SECONDS, PRECISION)
        log, best = min(zip((r.log for r in others), list(runs)[1:]), key=lambda pair: pair[0])
        if log > math.log(1 - NEEDED_GAIN):
            return Refined(own, first.seconds, first.seconds)
        return Refined(best, first.seconds, first.seconds * math.exp(log))

    def _version(self, options: Options) -> Version:
        if options not in self._versions:
            region = replace(self.making.regions[0], options=options)
            self._versions[options] = self.making.symbolic(region)
        return self._versions[options]


def recall(making: Making) -> dict[Values, Refined]:
    """What earlier processes measured, with the same compiler and candidates."""
    database = sizes_database()
    if database is None or not database.exists():
        return {}
    where = "program = ? AND machine = ? AND question = ?"
    rows = database.select(Fastest, where, _key(making))[-MOST_RECALLED:]
    return {
        tuple(json.loads(row.sizes)): Refined(options, row.before, row.seconds)
        for row in rows
        if (options := Options.from_json(row.options)) in making.candidates
    }


def keep(making: Making, sizes: Values, found: Refined) -> None:
    """For later processes."""
    database = sizes_database()
    if database is not None:
        chosen = json.dumps(sizes), found.options.to_json()
        about = time.strftime("%Y-%m-%dT%H:%M:%S"), making.plan.program.name
        database.put([Fastest(*_key(making), *chosen, found.before, found.seconds, *about)])


def _key(making: Making) -> tuple[str, str, str]:
    """Program, machine, and a digest of all else that the answer depends on."""
    plan = making.plan
    facts = {
        "declared": {plan.sizes[k]: str(d) for k, d in sorted(plan.promises.items())},
        "known": making.known,
        "candidates": [o.to_json() for o in making.candidates],
        "compiler": compiler_version(),
    }
    question = hexdigest(json.dumps(facts, sort_keys=True).encode())
    return plan.program.canonical, machine_key(making.target, get_num_threads()), question
