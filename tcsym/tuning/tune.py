"""Program, sizes, budget -> tuned regions: search, race, learn, confirm, keep.

Everything that can go wrong with a candidate is its own result; Ctrl-C, a spent budget and a store
that cannot be written end in a report all the same.
"""

from __future__ import annotations

import datetime
import json
import math
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import get_args

from tcsym.digest import hexdigest
from tcsym.errors import OptionError, TCError
from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.runtime.cache import compiler_version
from tcsym.sizes import Dim
from tcsym.target import Target
from tcsym.threads import get_num_threads
from tcsym.tuning.budget import Budget
from tcsym.tuning.certify import certify
from tcsym.tuning.distribution import Values, distribution_of
from tcsym.tuning.genetic import Genetic
from tcsym.tuning.guided import Guided
from tcsym.tuning.learn import learn_tree, prove_partition
from tcsym.tuning.machine import machine_key
from tcsym.tuning.progress import Progress, Snapshot
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.report import TuningReport
from tcsym.tuning.request import DEFAULT, Request, Search, template_job
from tcsym.tuning.rows import Trial, Tuned
from tcsym.tuning.space import PRUNED_BEYOND, Space, space_of
from tcsym.tuning.start import known_options, structure_of
from tcsym.tuning.stores import user_database
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Split, Tree, leaf_of, tree_to_json
from tcsym.tuning.workers import WorkerPool

BATCH, SEARCH_SHARE = 8, 0.65
PATIENCE = 10.0
EXTRA_SIZES, EXTRA_WEIGHT, GENERAL = 8, 0.4, 5
SIMPLER = 0.004  # logarithm of the time that a changed field must save to stay
_LEAST_SECONDS, _MOST_SECONDS, _CALLS = 0.04, 0.6, 30


def tune(request: Request) -> TuningReport:
    """Tune, and keep what was found. TCError: the default itself cannot be run at these sizes."""
    pool = request.executor or WorkerPool(1, request.timeout, request.memory)
    try:
        return _Tuning(request, pool).run()
    finally:
        if request.executor is None:
            pool.shutdown(wait=True, cancel_futures=True)


def tune_program(
    program: Program,
    target: Target,
    declared: Mapping[str, Dim | int],
    sizes: object = None,
    budget: str | int = "60s",
    *,
    weights: Sequence[float] | None = None,
    start: Options | Sequence[Options] | None = None,
    executor: Executor | None = None,
    progress: bool | None = None,
    seed: int = 0,
    search: Search = "guided",
) -> TuningReport:
    """See `Kernel.tune`. Errors: SizeError, OptionError for the arguments."""
    if search not in get_args(Search):
        raise OptionError(f"search is {search!r}, expected one of {', '.join(get_args(Search))}")
    given = (start,) if isinstance(start, Options) else tuple(start or ())
    if not all(isinstance(options, Options) for options in given):
        raise OptionError(f"`start` is {start!r}, expected tcsym.Options or a list of them")
    distribution = distribution_of(program, sizes, declared, weights, seed)
    request = Request(
        program,
        target,
        distribution,
        budget,
        given,
        executor,
        seed=seed,
        search=search,
        progress=progress,
    )
    return tune(request)


class _Tuning:
    """One tune in progress."""

    def __init__(self, request: Request, executor: Executor) -> None:
        self.request = request
        self.executor = executor
        self.budget = Budget(request.budget)
        self.rng = random.Random(request.seed)
        self.weights = request.distribution.weights
        self.machine = machine_key(request.target)
        self.compiler = hexdigest(compiler_version().encode())
        self.database = user_database()
        self.trials: list[Attempt] = []
        self.extra: tuple[Values, ...] = ()
        self.is_kept = True
        self.stopped = "budget"

    def run(self) -> TuningReport:
        with Progress(self.request.program.name, self.request.progress) as self.progress:
            self.race = self._race()
            self.incumbent = self._baseline()
            try:
                self._search()
                self._simplify()
                self._generalise()
            except KeyboardInterrupt:
                self.stopped = "interrupted"
            tree, confirmed = self._conclude()
        self._keep_tree(tree, confirmed)
        return TuningReport(
            self.request.program.name,
            self.request.program.sizes,
            tree,
            confirmed,
            self.weights,
            tuple(self.trials),
            self.budget.elapsed,
            self.stopped,
            self.is_kept,
            lambda n, seed: certify(self.request, tree, self.trials, n, seed),
        )

    # ---- before the search

    def _race(self) -> Race:
        seconds = dict.fromkeys(self.weights, _LEAST_SECONDS)
        return Race(
            template_job(self.request), self.executor, self.request.timeout, seconds, self._is_over
        )

    def _is_over(self) -> bool:
        return self.budget.seconds is not None and self.budget.used(0) >= 1

    def _baseline(self) -> Attempt:
        """The default against itself: its times, and that it runs at all. It may take its time."""
        default = Attempt(DEFAULT, "measured", "", dict.fromkeys(self.weights, Ratio(0, 0, 0)))
        probe = Attempt(DEFAULT, "raced")
        template = self.race.template
        self.race.template = template_job(self.request, honest=True)
        if isinstance(self.executor, WorkerPool):
            self.executor.timeout = self.race.timeout = PATIENCE * self.request.timeout
        self.race.measure([probe], default, tuple(self.weights))
        self.race.template, self.race.timeout = template, self.request.timeout
        if isinstance(self.executor, WorkerPool):
            self.executor.timeout = self.request.timeout
        if probe.state == "failed":
            raise TCError(f"cannot tune {self.request.program.name}: {probe.reason}")
        default.ratios = {v: Ratio(0.0, 0.0, r.seconds) for v, r in probe.ratios.items()}
        self.race.seconds = {
            v: min(_MOST_SECONDS, max(_LEAST_SECONDS, _CALLS * r.seconds))
            for v, r in default.ratios.items()
        }
        self._note([default])
        return default

    # ---- the search

    def _search(self) -> None:
        space = space_of(self.request.program, self.request.target, DEFAULT, get_num_threads())
        resumed = self._resumed()
        start = self._start(space, {a.options for a in resumed})
        kind = Genetic if self.request.search == "genetic" else Guided
        search = kind(space, start, self.rng)
        search.tell([(a.options, self._costs(a)) for a in (self.incumbent, *resumed)])
        while self.budget.used(len(self.trials)) < SEARCH_SHARE:
            batch = search.ask(self._batch())
            if not batch:
                self.stopped = "exhausted"
                return
            candidates = self._unpruned(batch, space)
            attempts = self.race.run(candidates, self.incumbent, self.weights)
            self._note(attempts)
            search.tell([(a.options, self._costs(a)) for a in attempts])
            self._promote(attempts)
            self._show()
            if search.is_settled():
                self.stopped = "settled"
                return

    def _batch(self) -> int:
        trials = self.request.budget
        return min(BATCH, max(1, trials - len(self.trials))) if isinstance(trials, int) else BATCH

    def _resumed(self) -> list[Attempt]:
        """Trials of an earlier tune at these sizes with this compiler: measured once is enough."""
        if self.database is None:
            return []
        program = self.request.program.canonical
        where = "program = ? AND machine = ? AND compiler = ?"
        rows = self.database.select(Trial, where, (program, self.machine, self.compiler))
        found: dict[Options, Attempt] = {}
        for row in rows:
            values = tuple(json.loads(row.sizes)) if row.sizes else None
            options = Options.from_json(row.options)
            attempt = found.setdefault(options, Attempt(options, row.state, row.reason))
            if values in self.weights and values is not None:
                attempt.ratios[values] = Ratio(math.log(row.ratio), row.noise, row.seconds)
            attempt.state = row.state
        known = [a for o, a in found.items() if o != DEFAULT and (a.ratios or a.state == "failed")]
        for a in known:
            if a.state == "measured" and not a.is_complete(self.weights):
                a.state = "raced"
        self.trials += known
        for a in known:
            if a.is_complete(self.weights) and a.cost(self.weights) < self.incumbent.cost(
                self.weights
            ):
                self.incumbent = a
        return known

    def _start(self, space: Space, tried: set[Options]) -> list[Options]:
        """Given options, then those of near sizes and like programs, then presets in the space."""
        request = self.request
        near = known_options(self.database, request.program, self.machine, tuple(self.weights))
        presets = [Options.preset(p) for p in ("pointwise", "convolution", "reduction")]
        axes = [name for name, _ in space.axes]
        projected = [space.at({name: getattr(p, name) for name in axes}) for p in presets]
        listed = dict.fromkeys((*request.start, *near, *projected))
        return [o for o in listed if o != DEFAULT and o not in tried]

    def _unpruned(self, batch: Sequence[Options], space: Space) -> list[Options]:
        kept: list[Options] = []
        for options in batch:
            predicted = space.predicted(options, DEFAULT, self.request.target)
            if predicted > PRUNED_BEYOND:
                reason = f"the model predicts {predicted:.1f} times the default's time"
                self._note([Attempt(options, "pruned", reason)])
            else:
                kept.append(options)
        return kept

    def _costs(self, a: Attempt) -> list[float]:
        """Ratios at the sizes measured; for those not reached, the worst measured one."""
        if a.state == "failed" or not a.ratios:
            return []
        logs = [r.log for v, r in a.ratios.items() if v in self.weights]
        logs += [max(logs)] * (len(self.weights) - len(logs))
        return [math.exp(x) for x in logs]

    def _promote(self, attempts: Sequence[Attempt]) -> None:
        """The best of them replaces the incumbent if it wins again, measured longer."""
        complete = [a for a in attempts if a.is_complete(self.weights)]
        if not complete:
            return
        best = min(complete, key=lambda a: a.cost(self.weights)[0])
        if best.cost(self.weights)[0] >= self.incumbent.cost(self.weights)[0]:
            return
        self.race.confirm(best, self.incumbent, tuple(self.weights))
        ours, theirs = best.cost(self.weights), self.incumbent.cost(self.weights)
        if best.is_complete(self.weights) and ours[0] + ours[1] < theirs[0]:
            self.incumbent = best

    def _simplify(self) -> None:
        """Fields of the incumbent that save nothing go back to their defaults."""
        for name in self.incumbent.options.changed():
            if self.budget.used(0) >= 1:
                return
            simpler = replace(self.incumbent.options, **{name: getattr(DEFAULT, name)})
            if simpler == DEFAULT:
                continue
            (attempt,) = self.race.run([simpler], self.incumbent, self.weights)
            self._note([attempt])
            is_same = attempt.state == "same" and bool(attempt.ratios)
            is_good = is_same or attempt.is_complete(self.weights)
            saved = attempt.cost(self.weights)[0] - self.incumbent.cost(self.weights)[0]
            if is_good and saved < SIMPLER:
                attempt.state = "measured"
                self.incumbent = attempt

    def _generalise(self) -> None:
        """The best also at other sizes of the ranges: regions should hold between what is tuned."""
        complete = [a for a in self.trials if a.is_complete(self.weights)]
        complete.sort(key=lambda a: a.cost(self.weights)[0])
        chosen = {a.options: a for a in (self.incumbent, *complete[:GENERAL])}
        for v in self.weights:
            best = min(complete, key=lambda a: a.ratios[v].log)
            chosen[best.options] = best
        default = self.trials[0]
        chosen.pop(DEFAULT, None)
        program, seed = self.request.program, self.request.seed
        drawn = self.request.distribution.draw(program, EXTRA_SIZES, seed + 1)
        earlier = [v for v in self._earlier() if v not in self.weights]
        for values in dict.fromkeys((*earlier[: EXTRA_SIZES // 2], *drawn)):
            if self.budget.used(0) >= 1 or not chosen:
                return
            default.ratios[values] = Ratio(0.0, 0.0, 0.0)
            self.race.seconds[values] = _LEAST_SECONDS
            self.race.measure(list(chosen.values()), default, (values,))
            self.extra = (*self.extra, values)

    def _earlier(self) -> list[Values]:
        """Sizes of an earlier tune, which this one's tree will serve, too."""
        where = "program = ? AND machine = ?"
        key = (self.request.program.canonical, self.machine)
        rows = self.database.select(Tuned, where, key) if self.database else []
        return [tuple(v) for row in rows for v in json.loads(row.measured)]

    def _show(self) -> None:
        failed = sum(a.state == "failed" for a in self.trials)
        share = min(1.0, self.budget.used(len(self.trials)))
        gain = math.exp(-self.incumbent.cost(self.weights)[0])
        text = str(self.incumbent.options)
        n = len(self.trials)
        self.progress.show(Snapshot(share, n, failed, gain, self.budget.elapsed, text))

    # ---- after it

    def _conclude(self) -> tuple[Tree, dict[Values, Ratio]]:
        """The tree, with every leaf measured again against the default: a loser is replaced."""
        default = self.trials[0]
        usable = {a.options: a.ratios for a in self.trials if a.state == "measured"}
        usable[self.incumbent.options] = self.incumbent.ratios
        weights = self._learned_weights()
        tree = learn_tree(usable, weights)
        prove_partition(tree, self.request.program.sizes)
        confirmed: dict[Values, Ratio] = {}
        while True:
            try:
                loser = self._confirm(tree, default, confirmed)
            except KeyboardInterrupt:
                self.stopped = "interrupted"
                known = {v: usable[leaf_of(tree, v).options].get(v) for v in self.weights}
                return tree, {v: confirmed.get(v) or r or Ratio(0, 0, 0) for v, r in known.items()}
            if loser is None:
                return tree, {v: confirmed[v] for v in self.weights}
            usable.pop(loser)
            tree = learn_tree(usable, weights)
            prove_partition(tree, self.request.program.sizes)
            confirmed.clear()

    def _learned_weights(self) -> dict[Values, float]:
        """Tuned sizes and the others."""
        if not self.extra:
            return dict(self.weights)
        learned = {v: w * (1 - EXTRA_WEIGHT) for v, w in self.weights.items()}
        return learned | dict.fromkeys(self.extra, EXTRA_WEIGHT / len(self.extra))

    def _confirm(
        self, tree: Tree, default: Attempt, confirmed: dict[Values, Ratio]
    ) -> Options | None:
        """Fill `confirmed`; the options of a leaf that is no faster than the default, if any."""
        for options in dict.fromkeys(_leaves(tree)):
            sizes = tuple(v for v in self.weights if leaf_of(tree, v).options == options)
            if options == DEFAULT:
                confirmed |= {v: default.ratios[v] for v in sizes}
                continue
            again = Attempt(options, "raced")
            self.race.confirm(again, default, sizes)
            share = {v: self.weights[v] for v in sizes}
            if again.state == "failed" or (sizes and again.cost(share)[0] >= 0):
                return options
            confirmed |= again.ratios
        return None

    # ---- what is kept

    def _note(self, attempts: Sequence[Attempt]) -> None:
        for a in attempts:
            a.elapsed = self.budget.elapsed
        self.trials += attempts
        rows = [row for a in attempts for row in self._rows(a)]
        if self.database is not None and rows:
            self.is_kept = self.database.put(rows) and self.is_kept

    def _rows(self, a: Attempt) -> list[Trial]:
        key = (self.request.program.canonical, self.machine, self.compiler, a.options.to_json())
        now = _now()
        if a.state in ("failed", "pruned", "same"):
            return [Trial(*key, "", a.state, a.reason, 0.0, 0.0, 0.0, now)]
        return [
            Trial(*key, json.dumps(v), a.state, "", math.exp(r.log), r.seconds, r.noise, now)
            for v, r in a.ratios.items()
        ]

    def _keep_tree(self, tree: Tree, confirmed: Mapping[Values, Ratio]) -> None:
        program = self.request.program
        log = sum(self.weights[v] * r.log for v, r in confirmed.items())
        row = Tuned(
            program.canonical,
            self.machine,
            structure_of(program),
            json.dumps(tree_to_json(tree)),
            json.dumps([list(v) for v in self.weights]),
            math.exp(-log),
            _now(),
            program.name,
            program.source,
        )
        kept = self.database is not None and self.database.put([row])
        self.is_kept = kept and self.is_kept


def _leaves(tree: Tree) -> list[Options]:
    if isinstance(tree, Leaf):
        return [tree.options]
    assert isinstance(tree, Split)
    return [*_leaves(tree.then), *_leaves(tree.orelse)]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
