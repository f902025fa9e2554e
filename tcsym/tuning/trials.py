# SPDX-License-Identifier: Apache-2.0
"""All attempts of one tune, each kept in the user's store at once; what earlier tunes left there.

A tune that is killed goes on from here: its trials are measured once.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Container, Mapping, Sequence

from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.process.threads import get_num_threads
from tcsym.runtime.digest import hexdigest
from tcsym.runtime.versions import compiler_version
from tcsym.sizes.context import Context
from tcsym.target.target import Target
from tcsym.tuning.declared import lies_in
from tcsym.tuning.distribution import Values
from tcsym.tuning.machine import machine_key
from tcsym.tuning.race import Attempt
from tcsym.tuning.request import DEFAULT
from tcsym.tuning.rows import Trial, Tuned
from tcsym.tuning.start import structure_of
from tcsym.tuning.stores import tree_of, tuned_for, user_database
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Tree, kept_json

Weights = Mapping[Values, float]


class Trials:
    """`attempts` in the order they were made, the default first. is_kept: nothing was lost.

    context: of the code that is measured; times of code for another one are not taken for its own.
    """

    def __init__(self, program: Program, target: Target, context: Context = ()) -> None:
        self.program = program
        self.context = context
        self.machine = machine_key(target, get_num_threads())
        made_by = f"{compiler_version()} {context}" if context else compiler_version()
        self.compiler = hexdigest(made_by.encode())
        self.database = user_database()
        self.attempts: list[Attempt] = []
        self.n_resumed = 0
        self.is_kept = True

    @property
    def default(self) -> Attempt:
        return self.attempts[0]

    def complete(self, weights: Weights) -> list[Attempt]:
        """Those measured at all sizes, the best first."""
        found = [a for a in self.attempts if a.is_complete(weights)]
        return sorted(found, key=lambda a: a.cost(weights)[0])

    def note(self, attempts: Sequence[Attempt], elapsed: float) -> None:
        """Add attempts; to the store, too."""
        for a in attempts:
            a.elapsed = elapsed
        self.attempts += attempts
        rows = [row for a in attempts for row in self._rows(a)]
        if self.database is not None and rows:
            self.is_kept = self.database.put(rows) and self.is_kept

    def resume(self, weights: Weights) -> list[Attempt]:
        """Add the trials of an earlier tune at these sizes with this compiler."""
        known = [a for a in self.stored(weights) if a.options != DEFAULT]
        for a in known:
            if a.state == "measured" and not a.is_complete(weights):
                a.state = "raced"
        self.attempts += known
        self.n_resumed = len(known)
        return known

    def stored(self, sizes: Container[Values] | None = None) -> list[Attempt]:
        """Attempts in the store: failures, and what is known at these sizes, or at all."""
        if self.database is None:
            return []
        where = "program = ? AND machine = ? AND compiler = ?"
        key = (self.program.canonical, self.machine, self.compiler)
        found: dict[Options, Attempt] = {}
        for row in self.database.select(Trial, where, key):
            values = tuple(json.loads(row.sizes)) if row.sizes else None
            options = Options.from_json(row.options)
            attempt = found.setdefault(options, Attempt(options, row.state, row.reason))
            if values is not None and (sizes is None or values in sizes):
                attempt.ratios[values] = Ratio(math.log(row.ratio), row.noise, row.seconds)
            attempt.state = row.state
        return [a for a in found.values() if a.ratios or a.state == "failed"]

    def earlier_sizes(self) -> list[Values]:
        """Sizes of an earlier tune, which this one's tree will serve, too, and this one's code."""
        names = self.program.sizes
        return [v for v in self._measured_earlier() if lies_in(self.context, names, v)]

    def _measured_earlier(self) -> list[Values]:
        return [tuple(v) for row in self._tuned() for v in json.loads(row.measured)]

    def earlier_tree(self) -> Tree | None:
        """What serves until now: what an earlier tune found, or what is shipped; None if nothing.

        What this tune keeps takes its place.
        """
        if self.database is None:
            return None
        found = tuned_for(self.program.canonical, self.machine)
        return None if found is None else tree_of(found[1], len(self.program.sizes))

    @property
    def is_first(self) -> bool:
        """True if no tune of this program was kept on this machine yet."""
        return not self._tuned()

    def _tuned(self) -> list[Tuned]:
        where = "program = ? AND machine = ?"
        key = (self.program.canonical, self.machine)
        return self.database.select(Tuned, where, key) if self.database else []

    def keep(
        self,
        tree: Tree,
        candidates: Sequence[Options],
        confirmed: Mapping[Values, Ratio],
        weights: Weights,
    ) -> None:
        """Write the tree to the store; it serves from now on, and what it has of earlier ones.

        candidates: what else is worth measuring at single sizes.
        """
        log = sum(weights[v] * r.log for v, r in confirmed.items())
        row = Tuned(
            self.program.canonical,
            self.machine,
            structure_of(self.program),
            json.dumps(kept_json(tree, candidates)),
            json.dumps([list(v) for v in dict.fromkeys((*weights, *self._measured_earlier()))]),
            math.exp(-log),
            _now(),
            self.program.name,
            self.program.source,
        )
        kept = self.database is not None and self.database.put([row])
        self.is_kept = kept and self.is_kept

    def _rows(self, a: Attempt) -> list[Trial]:
        key = (self.program.canonical, self.machine, self.compiler, a.options.to_json())
        now = _now()
        if a.state in ("failed", "pruned", "same"):
            return [Trial(*key, "", a.state, a.reason, 0.0, 0.0, 0.0, now)]
        return [
            Trial(*key, json.dumps(v), a.state, "", math.exp(r.log), r.seconds, r.noise, now)
            for v, r in a.ratios.items()
        ]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
