"""Program, sizes, budget -> tuned regions: search, race, learn, confirm, keep.

Everything that can go wrong with a candidate is its own result; Ctrl-C, a spent budget and a store
that cannot be written end in a report all the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, get_args

from tcsym.errors import OptionError, TCError
from tcsym.frontend.program import Program
from tcsym.options import Options
from tcsym.sizes import Dim
from tcsym.target import Target
from tcsym.threads import get_num_threads
from tcsym.tuning.budget import Budget
from tcsym.tuning.certify import certify
from tcsym.tuning.conclude import conclude
from tcsym.tuning.declared import context_for
from tcsym.tuning.distribution import Values, distribution_of
from tcsym.tuning.estimates import Estimates
from tcsym.tuning.executors import as_executor
from tcsym.tuning.genetic import Genetic
from tcsym.tuning.guided import Guided
from tcsym.tuning.learn import Between, bounded
from tcsym.tuning.least import least_seconds
from tcsym.tuning.progress import Progress, Snapshot
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.refine import simplified
from tcsym.tuning.report import TuningReport
from tcsym.tuning.request import DEFAULT, Request, Search, baseline_job, template_job
from tcsym.tuning.space import PRUNED_BEYOND, Space, space_of
from tcsym.tuning.start import known_options
from tcsym.tuning.survey import finalists, survey
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Tree, joined, leaf_of
from tcsym.tuning.trials import Trials
from tcsym.tuning.workers import WorkerPool

BATCH = 8
LEAST_SECONDS = 0.04  # one candidate at one size
MEASURED = 0.9  # share of a budget of time until regions are learned
BETWEEN = 4000  # sizes that regions are predicted for
FEW_VISITED, MOST_VISITED = 8, 1500  # other sizes, for a budget of trials and of time
SEARCH_TRIALS, SEARCH_TIME = 0.65, 0.4  # share of a budget; the rest goes to other sizes
PATIENCE = 10.0
_MOST_SECONDS, _CALLS = 0.6, 30


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
    executor: Any = None,
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
        as_executor(executor),
        seed=seed,
        search=search,
        progress=progress,
        context=context_for(program, declared, distribution),
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
        self.trials = Trials(request.program, request.target, request.context)
        self.candidates: tuple[Options, ...] = ()
        self.stopped = "budget"
        self.least = 0.0  # seconds for a first round, where there were less

    def run(self) -> TuningReport:
        request, weights, trials = self.request, self.weights, self.trials
        with Progress(request.program.name, request.progress) as self.progress:
            self.race = self._race()
            self.incumbent = self._baseline()
            self._show()
            try:
                self._search()
                self.incumbent = simplified(self.incumbent, self.race, weights, self._note)
                self._survey()
            except KeyboardInterrupt:
                self.stopped = "interrupted"
            between = Between(
                request.distribution.visited(request.program, BETWEEN, request.seed + 2),
                Estimates(request.program, request.target, request.context),
            )
            found = conclude(
                self.race,
                trials,
                self.incumbent,
                weights,
                self._others(),
                between,
                request.deepest,
            )
        if found.is_interrupted:
            self.stopped = "interrupted"
        tree = self._with_earlier(found.tree)
        if not self._is_vain():
            trials.keep(tree, self.candidates, found.confirmed, weights)
        return TuningReport(
            request.program.name,
            request.program.sizes,
            tree,
            found.confirmed,
            weights,
            tuple(trials.attempts),
            self.budget.elapsed,
            self.stopped,
            trials.is_kept,
            lambda sizes: certify(
                request, lambda v: (leaf_of(tree, v).options,), trials.attempts, sizes
            ),
            lambda n, seed: request.distribution.draw(request.program, n, seed),
            len(self._others()),
            found.held_out,
            trials.n_resumed,
            self.least,
        )

    # ---- before the search

    def _race(self) -> Race:
        seconds = dict.fromkeys(self.weights, LEAST_SECONDS)
        return Race(
            template_job(self.request), self.executor, self.request.timeout, seconds, self._is_over
        )

    def _is_over(self) -> bool:
        return self.budget.seconds is not None and self.budget.used(0) >= MEASURED

    def _baseline(self) -> Attempt:
        """The default against itself: its times, and that it runs at all. It may take its time."""
        default = Attempt(DEFAULT, "measured", "", dict.fromkeys(self.weights, Ratio(0, 0, 0)))
        template = self.race.template
        self.race.template = baseline_job(self.request)
        if isinstance(self.executor, WorkerPool):
            self.executor.timeout = self.race.timeout = PATIENCE * self.request.timeout
        probe = self._probed(default)
        self.race.template, self.race.timeout = template, self.request.timeout
        if isinstance(self.executor, WorkerPool):
            self.executor.timeout = self.request.timeout
        default.ratios = {v: Ratio(0.0, 0.0, r.seconds) for v, r in probe.ratios.items()}
        self.race.seconds = {
            v: min(_MOST_SECONDS, max(LEAST_SECONDS, _CALLS * r.seconds))
            for v, r in default.ratios.items()
        }
        self._note([default])
        return default

    def _probed(self, default: Attempt) -> Attempt:
        """Measured once more if its worker dies: something else may have killed that."""
        for _ in range(2):
            probe = Attempt(DEFAULT, "raced")
            self.race.measure([probe], default, tuple(self.weights))
            if not probe.is_lost:
                break
        if probe.state == "failed":
            failed = "two workers that measured the default were lost: " * probe.is_lost
            raise TCError(
                f"cannot tune {self.request.program.name}: {failed}{probe.reason}",
                hint="is there memory enough for these sizes?" if probe.is_lost else "",
            )
        return probe

    # ---- the search

    def _search(self) -> None:
        program, target = self.request.program, self.request.target
        space = space_of(program, target, DEFAULT, get_num_threads())
        space = space.without(self.request.kept_fields)
        resumed = self._resumed()
        start = self._start(space, {a.options for a in resumed})
        space = space.widened((*start, *(a.options for a in resumed)))
        kind = Genetic if self.request.search == "genetic" else Guided
        search = kind(space, start, self.rng)
        search.tell([(a.options, self._costs(a)) for a in (self.incumbent, *resumed)])
        share = SEARCH_TRIALS if self.budget.seconds is None else SEARCH_TIME
        begun = self.budget.used(0)  # measuring the default may take a good part of little time
        until = begun + share * (1 - begun)
        measured = self.budget.elapsed
        self.least = self._least(measured, ())
        while self.budget.used(len(self.trials.attempts)) < until:
            batch = search.ask(self._batch())
            if not batch:
                self.stopped = "exhausted"
                return
            candidates = self._unpruned(batch, space)
            attempts = self.race.run(candidates, self.incumbent, self.weights)
            self._note(attempts)
            if self.least:
                self.least = self._least(measured, attempts) if self._is_over() else 0.0
            search.tell([(a.options, self._costs(a)) for a in attempts])
            self._promote(attempts)
            self._show()
            if search.is_settled():
                self.stopped = "settled"
                return

    def _least(self, measured: float, first: Sequence[Attempt]) -> float:
        """Seconds that a first round needs, of which some candidates were measured, if any."""
        if self.budget.seconds is None:
            return 0.0
        searched = self.budget.elapsed - measured if first else 0.0
        return least_seconds(measured, searched, first, self.weights, BATCH) / MEASURED

    def _survey(self) -> None:
        """Measure the best at other sizes, those of an earlier tune first."""
        request, weights = self.request, self.weights
        n = FEW_VISITED if self.budget.seconds is None else MOST_VISITED
        visited = request.distribution.visited(request.program, n, request.seed + 1)
        earlier = [v for v in self.trials.earlier_sizes() if v not in weights]
        sizes = tuple(dict.fromkeys((*earlier[: n // 2], *visited)))
        some = finalists(self.trials.attempts, self.incumbent, weights)
        self.candidates = survey(self.race, some, sizes, lambda _: self._show())

    def _with_earlier(self, tree: Tree) -> Tree:
        """Far from what was measured now, what an earlier tune found; everywhere, if this one
        found nothing and had no time to try that again."""
        earlier = self.trials.earlier_tree()
        if earlier is None or self.request.deepest == 0:
            return tree
        if tree == Leaf(DEFAULT):
            known = {a.options: a.ratios for a in self.trials.attempts}
            chosen = {v: leaf_of(earlier, v).options for v in self.weights}
            if not all(v in known.get(options, {}) for v, options in chosen.items()):
                return earlier
            tree = bounded(tree, tuple(self.weights))
        return joined(tree, earlier)

    def _is_vain(self) -> bool:
        """No time for any candidate: to keep this would say that the default was chosen."""
        is_cut = self.stopped in ("budget", "interrupted")
        return is_cut and len(self.trials.attempts) == 1 and self.trials.is_first

    def _others(self) -> dict[Values, float]:
        """Weights of the visited sizes: together as much as those that somebody asked for."""
        extra = [v for v in self.trials.default.ratios if v not in self.weights]
        alike = self.weights if self.request.distribution.is_drawn else extra
        return dict.fromkeys(extra, 1 / max(1, len(alike)))

    def _batch(self) -> int:
        trials, made = self.request.budget, len(self.trials.attempts)
        return min(BATCH, max(1, trials - made)) if isinstance(trials, int) else BATCH

    def _resumed(self) -> list[Attempt]:
        """Trials of an earlier tune at these sizes; the best of them is the incumbent."""
        known = self.trials.resume(self.weights)
        for a in known:
            if a.is_complete(self.weights) and self._cost(a) < self._cost(self.incumbent):
                self.incumbent = a
        return known

    def _cost(self, a: Attempt) -> float:
        return a.cost(self.weights)[0]

    def _start(self, space: Space, tried: set[Options]) -> list[Options]:
        """Given options, then those of near sizes and like programs, then presets in the space."""
        request, trials = self.request, self.trials
        near = known_options(trials.database, request.program, trials.machine, tuple(self.weights))
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

    def _show(self) -> None:
        attempts = self.trials.attempts
        failed = sum(a.state == "failed" for a in attempts)
        share = min(1.0, self.budget.used(len(attempts)))
        gain = math.exp(-self.incumbent.cost(self.weights)[0])
        text = str(self.incumbent.options)
        n = len(attempts)
        self.progress.show(Snapshot(share, n, failed, gain, self.budget.elapsed, text))

    def _note(self, attempts: Sequence[Attempt]) -> None:
        self.trials.note(attempts, self.budget.elapsed)
