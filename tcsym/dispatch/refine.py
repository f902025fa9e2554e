# SPDX-License-Identifier: Apache-2.0
"""Tuned options at single sizes: all candidates run in turns -> the fastest, for later processes.

The tree of regions is for sizes that nobody measured. At some of them it chooses wrongly, and
factors may be lost; what is measured at the sizes themselves does not.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from tcsym.dispatch.made_up import MOST_ELEMENTS, made_up
from tcsym.dispatch.making import Making
from tcsym.dispatch.trial import NEEDED_GAIN
from tcsym.dispatch.version import Values, Version
from tcsym.errors import TCError
from tcsym.frontend.sample import Array
from tcsym.options import Options
from tcsym.process.threads import get_num_threads
from tcsym.runtime.arrays import numpy_array
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.jit import load
from tcsym.runtime.versions import compiler_version
from tcsym.sizes.work import n_elements
from tcsym.tuning.called import call_of
from tcsym.tuning.confirm import MOST_ROUNDS
from tcsym.tuning.evidence import Sample, Verdict, verdict_of
from tcsym.tuning.machine import machine_key
from tcsym.tuning.rows import Fastest
from tcsym.tuning.stores import sizes_database
from tcsym.tuning.timing import compare_all, rounds_of

SECONDS, PRECISION = 0.05, 0.01  # for all candidates at one size; of the logarithm of a ratio
MOST_RECALLED = 4096
Call = Callable[[], object]


class Refined(Struct, frozen=True):
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
        inputs = [numpy_array(v) for v in made_up(making.plan, sizes)[: len(making.plan.inputs)]]
        given = sizes, inputs, threads
        calls: dict[Options, Call] = {}
        for options in dict.fromkeys((own, *making.candidates)):
            with suppress(TCError):  # a check of the program does not hold of made-up inputs
                calls[options] = self._call(options, *given)
        if own not in calls or len(calls) < 2:
            return None
        first, *others = compare_all(list(calls.values()), SECONDS, PRECISION)
        log, best = min(zip((r.log for r in others), list(calls)[1:]), key=lambda pair: pair[0])
        if log > math.log(1 - NEEDED_GAIN):
            return Refined(own, first.seconds, first.seconds)
        found = self._confirmed(calls[own], self._call(own, *given, is_copy=True), calls[best])
        if not found.is_won or found.log > math.log(1 - NEEDED_GAIN):
            return Refined(own, first.seconds, first.seconds)
        return Refined(best, first.seconds, first.seconds * math.exp(found.log))

    def _confirmed(self, own: Call, copy: Call, best: Call) -> Verdict:
        """The least of many was lucky, too: it must win again, beside two copies of the other."""
        there = rounds_of((own, copy, best), SECONDS, MOST_ROUNDS)
        back = rounds_of((best, copy, own), SECONDS, MOST_ROUNDS)
        samples = tuple((a, b, c) for a, b, c in there), tuple((a, b, c) for c, b, a in back)
        return verdict_of([Sample(rounds) for rounds in samples])

    def _call(
        self,
        options: Options,
        sizes: Values,
        inputs: Sequence[Array],
        threads: int,
        is_copy: bool = False,
    ) -> Call:
        """A call of the code for these options, or of a copy of it elsewhere in memory; it ran."""
        making, variants = self.making, self._version(options).variants
        kernel = variants.made_for(variants.dense).whole().kernel.whole()
        kernel = load(kernel.compiled) if is_copy else kernel
        where = making.target, kernel, variants.context
        call = call_of(making.plan.program, *where, sizes, inputs, threads)
        call()
        return call

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
