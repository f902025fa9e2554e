# SPDX-License-Identifier: Apache-2.0
"""Program, sizes, budget -> tuned regions: search, race, learn, confirm, keep.

Everything that can go wrong with a candidate is its own result; Ctrl-C, a spent budget and a store
that cannot be written end in a report all the same.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, get_args

from msgspec.structs import replace

from tcsym.display.progress import Progress
from tcsym.errors import OptionError, TargetError, TCError
from tcsym.frontend.program import Program
from tcsym.index.expr import FALSE, Condition
from tcsym.options import Options
from tcsym.process.helper import HelperError
from tcsym.process.threads import get_num_threads
from tcsym.runtime.device import device_of
from tcsym.sizes.context import Interval, decided, ranges_of
from tcsym.sizes.dims import Dim
from tcsym.target.target import TWIN, Target
from tcsym.tuning.budget import Budget
from tcsym.tuning.confirm import Confirmation, answer, code_of, ready
from tcsym.tuning.declared import context_for
from tcsym.tuning.device_space import device_space
from tcsym.tuning.distribution import Values, distribution_of
from tcsym.tuning.estimates import Estimates
from tcsym.tuning.executors import Here, as_executor
from tcsym.tuning.genetic import Genetic
from tcsym.tuning.guided import Guided
from tcsym.tuning.learn import MANY, Between, Costs, learn_tree, prove_partition
from tcsym.tuning.least_time import least_seconds
from tcsym.tuning.race import Attempt, Race
from tcsym.tuning.rank import rank
from tcsym.tuning.refine import simplified
from tcsym.tuning.regret import certify
from tcsym.tuning.report import TuningReport
from tcsym.tuning.request import DEFAULT, Request, Search, baseline_job, template_job
from tcsym.tuning.select_regions import Conclusion, conclude, hull, if_all_wins
from tcsym.tuning.space import PRUNED_BEYOND, Space, space_of
from tcsym.tuning.start import known_options
from tcsym.tuning.survey import finalists, survey
from tcsym.tuning.times import Times
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Leaf, Split, Tree, contexts, joined, leaf_of, leaves_of
from tcsym.tuning.trials import Trials
from tcsym.tuning.workers import WorkerPool

BATCH = 8
LEAST_SECONDS = 0.04  # one candidate at one size
BETWEEN = 4000  # sizes that regions are predicted for
FEW_VISITED, MOST_VISITED = 8, 1500  # other sizes, for a budget of trials and of time
FETCHED = 2.0  # seconds to wait for code that a worker has
PATIENCE = 10.0
_MOST_SECONDS, _CALLS = 0.6, 30


def tune(request: Request, budget: Budget | None = None) -> TuningReport:
    """Tune, and keep what was found. TCError: the default itself cannot be run at these sizes.

    budget: that of the request, if it runs already.
    """
    budget = budget or Budget(request.budget, request.candidates)
    own = None if request.executor else WorkerPool(1, request.timeout, request.memory)
    judge = Confirmation(
        template_job(request), request.executor, request.memory, lambda: budget.left
    )
    try:
        return _Tuning(request, own or judge.executors[0], budget, judge).run()
    finally:
        judge.close()
        if own is not None:
            own.kill()


def tune_program(
    program: Program,
    target: Target,
    declared: Mapping[str, Dim | int],
    sizes: object = None,
    budget: str | float | None = None,
    *,
    candidates: int | None = None,
    weights: Sequence[float] | None = None,
    start: Options | Sequence[Options] | None = None,
    executor: Any = None,
    progress: bool | None = None,
    seed: int = 0,
    search: Search = "guided",
    began: float | None = None,
) -> TuningReport:
    """See `Kernel.tune`. began: `time.monotonic()` when the budget began to run.

    Errors: SizeError, OptionError for the arguments.
    """
    if search not in get_args(Search):
        raise OptionError(f"search is {search!r}, expected one of {', '.join(get_args(Search))}")
    given = (start,) if isinstance(start, Options) else tuple(start or ())
    if not all(isinstance(options, Options) for options in given):
        raise OptionError(f"`start` is {start!r}, expected tcsym.Options or a list of them")
    running = Budget(budget, candidates, began)
    distribution = distribution_of(program, sizes, declared, weights, seed)
    request = Request(
        program,
        target,
        distribution,
        budget,
        candidates,
        given,
        as_executor(executor),
        seed=seed,
        search=search,
        progress=progress,
        context=context_for(program, declared, distribution),
        memory=Request.memory_of(target),
    )
    why = _unmeasurable(target)
    return rank(request, why) if why else tune(request, running)


def _unmeasurable(target: Target) -> str:
    """Why nothing can be run for a device; "" where it can, and on a processor."""
    if target.machine.multiprocessor is None:
        return ""
    if target.name == TWIN:
        return "the twin of a device runs on the host"
    try:
        device_of(target).require(target)
    except TargetError as error:
        return error.message
    return ""


def _space_of(program: Program, target: Target) -> Space:
    if target.machine.multiprocessor is not None:
        return device_space(program, target)
    return space_of(program, target, DEFAULT, get_num_threads())


class _Late(Exception):
    """The time is up, and what was waited for is not there."""


class _Tuning:
    """One tune in progress. beside: where whatever is not timed runs meanwhile."""

    def __init__(
        self, request: Request, executor: Executor, budget: Budget, judge: Confirmation
    ) -> None:
        self.request = request
        self.executor = executor
        self.budget = budget
        self.judge = judge
        self.beside = Here() if request.executor else judge.executors[0]
        self.rng = random.Random(request.seed)
        self.weights = request.distribution.weights
        self.trials = Trials(request.program, request.target, request.context)
        self.candidates: tuple[Options, ...] = ()
        self.stopped = "budget"
        self.least = 0.0  # seconds for a first round, where there were less
        self.times = Times(budget)
        self.held_out: Mapping[Values, float] = {}

    def run(self) -> TuningReport:
        request = self.request
        with Progress(f"tune {request.program.name}", request.progress) as self.progress:
            try:
                self.race = self._race()
                space = self.beside.submit(_space_of, request.program, request.target)
                self.incumbent = self._baseline()
            except _Late:
                self.least = 2 * self.budget.elapsed
                return self._report(Leaf(DEFAULT), Conclusion(Leaf(DEFAULT), {}))
            except KeyboardInterrupt:
                self.stopped = "interrupted"
                return self._report(Leaf(DEFAULT), Conclusion(Leaf(DEFAULT), {}))
            self._show()
            try:
                self._search(self._space(space))
                self.incumbent = simplified(self.incumbent, self.race, self.weights, self._note)
                self._survey()
            except _Late:
                self.least = self._least(self.budget.elapsed, ())
            except KeyboardInterrupt:
                self.stopped = "interrupted"
            found = self._concluded()
        if found.is_interrupted:
            self.stopped = "interrupted"
        tree = self._with_earlier(found.tree)
        if not self._is_vain():
            self.trials.keep(tree, self.candidates, found.confirmed, self.weights)
        return self._report(tree, found)

    def _report(self, tree: Tree, found: Conclusion) -> TuningReport:
        request, trials = self.request, self.trials
        return TuningReport(
            request.program.name,
            request.program.sizes,
            tree,
            found.confirmed,
            self.weights,
            tuple(trials.attempts),
            self.budget.elapsed,
            self.stopped,
            trials.is_kept,
            lambda sizes: certify(
                request, lambda v: (leaf_of(tree, v).options,), trials.attempts, sizes
            ),
            lambda n, seed: request.distribution.draw(request.program, n, seed),
            len(self._others()),
            self.held_out,
            trials.n_resumed,
            self.least,
            found.notes,
            {o: code for o, code in self.judge.codes.items() if o in leaves_of(tree)},
        )

    # ---- before the search

    def _race(self) -> Race:
        seconds = dict.fromkeys(self.weights, LEAST_SECONDS)
        given = template_job(self.request), self.executor, self.request.timeout
        return Race(*given, seconds, self.times.left)

    def _baseline(self) -> Attempt:
        """The default against itself: its times, and that it runs at all. It may take its time."""
        default = Attempt(DEFAULT, "measured", "", dict.fromkeys(self.weights, Ratio(0, 0, 0)))
        template = self.race.template
        if self.request.executor is not None:  # whose workers may have another version
            self.race.template = baseline_job(self.request)
        if isinstance(self.executor, WorkerPool):
            self.executor.timeout = self.race.timeout = PATIENCE * self.request.timeout
            self.executor.submit(ready).add_done_callback(lambda _: self.times.begun())
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
        self.times.plan(default.ratios, self.request.distribution.n_places > len(self.weights))
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
        if not probe.ratios:
            raise _Late
        return probe

    def _space(self, future: Future[Space]) -> Space:
        try:
            return answer(future, self.times.left())
        except TimeoutError:
            raise _Late from None
        except HelperError:  # something killed it
            return _space_of(self.request.program, self.request.target)

    # ---- the search

    def _search(self, space: Space) -> None:
        space = space.without(self.request.kept_fields)
        resumed = self._resumed()
        start = self._start(space, {a.options for a in resumed})
        space = space.widened((*start, *(a.options for a in resumed)))
        kind = Genetic if self.request.search == "genetic" else Guided
        search = kind(space, start, self.rng)
        search.tell([(a.options, self._costs(a)) for a in (self.incumbent, *resumed)])
        measured = self.budget.elapsed
        self.least = self._least(measured, ())
        while self.times.may_search(len(self.trials.attempts)):
            batch = search.ask(self._batch())
            if not batch:
                self.stopped = "exhausted"
                return
            candidates = self._unpruned(batch, space)
            attempts = self.race.run(candidates, self.incumbent, self.weights)
            self._note(attempts)
            if self.least:
                self.least = self._least(measured, attempts) if self.race.is_over() else 0.0
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
        needed = least_seconds(measured, searched, first, self.weights, BATCH)
        return needed + self.times.closing

    def _survey(self) -> None:
        """Measure the best at other sizes, those of an earlier tune first."""
        if not self.times.visits:
            return
        request, weights = self.request, self.weights
        n = FEW_VISITED if self.budget.seconds is None else MOST_VISITED
        visited = request.distribution.visited(request.program, n, request.seed + 1)
        earlier = [v for v in self.trials.earlier_sizes() if v not in weights]
        sizes = tuple(dict.fromkeys((*earlier[: n // 2], *visited)))
        some = finalists(self.trials.attempts, self.incumbent, weights)
        self.times.survey()
        self.candidates = survey(self.race, some, sizes, lambda _: self._show())

    # ---- what is kept

    def _concluded(self) -> Conclusion:
        """Learn regions from all that was measured; keep what wins when measured again."""
        self.judge.begin(1)
        weights, extra, trials = self.weights, self._others(), self.trials
        everywhere = (*weights, *extra)
        usable = {
            a.options: a.ratios
            for a in (*trials.attempts, self.incumbent)
            if a.state == "measured" and all(v in a.ratios for v in everywhere)
        }
        times = {v: trials.default.ratios[v] for v in weights}
        try:
            tree = self._learned(usable, {**weights, **extra})
            self._fetch_code(leaves_of(tree))
        except KeyboardInterrupt:
            unconfirmed = {v: Ratio(0.0, 0.0, r.seconds) for v, r in times.items()}
            return Conclusion(Leaf(DEFAULT), unconfirmed, (), True)
        is_everywhere = self.request.deepest == 0
        self.judge.regions = self._regions(if_all_wins(tree, weights, extra, is_everywhere))
        found = conclude(tree, self.judge, times, usable, weights, extra, is_everywhere)
        prove_partition(found.tree, self.request.program.sizes)
        return found

    def _learned(self, usable: Costs, learned: Mapping[Values, float]) -> Tree:
        """The tree; what takes long of it is left out if there is no time."""
        request, deepest = self.request, self.request.deepest
        if len(learned) < MANY:
            return learn_tree(usable, learned, deepest).tree
        others = request.distribution.visited(request.program, BETWEEN, request.seed + 2)
        between = Between(others, Estimates(request.program, request.target, request.context))
        quick = self.beside.submit(learn_tree, usable, learned, deepest)
        whole = self.beside.submit(learn_tree, usable, learned, deepest, between)
        self.times.learn()
        for future in (whole, quick):
            with contextlib.suppress(TimeoutError, HelperError):
                found = answer(future, max(0.0, self.times.left()))
                self.held_out = found.held_out
                return found.tree
        return Leaf(DEFAULT)

    def _fetch_code(self, options: Sequence[Options]) -> None:
        """What was measured is what calls run, in this process and in later ones."""
        template = self.race.template
        for o in dict.fromkeys((DEFAULT, *options)):
            left = min(FETCHED, self.budget.left)
            if o in self.judge.codes or left <= 0:
                continue
            job = replace(template, candidate=o)
            with contextlib.suppress(Exception):  # else it is compiled anew where it is needed
                self.judge.codes[o] = answer(self.executor.submit(code_of, job), left)

    def _regions(self, tree: Tree) -> tuple[Condition, ...]:
        """What calls are told apart by where the tree is kept."""
        request = self.request
        ranges = dict.fromkeys(request.program.sizes, Interval(0, None))
        ranges |= ranges_of(request.context)
        found = contexts(self._with_earlier(tree), request.program.sizes)
        left = (decided(context, ranges) for context, _ in found)
        return tuple(context for context in left if context != FALSE)

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
        measured = list(self.trials.default.ratios)
        return joined(Split(hull(measured), tree, Leaf(DEFAULT)), earlier)

    def _is_vain(self) -> bool:
        """No time for any candidate: to keep this would say that the default was chosen."""
        is_cut = self.stopped in ("budget", "interrupted")
        return is_cut and len(self.trials.attempts) == 1 and self.trials.is_first

    def _others(self) -> dict[Values, float]:
        """Weights of the visited sizes: together as much as those that somebody asked for."""
        if not self.trials.attempts:
            return {}
        extra = [v for v in self.trials.default.ratios if v not in self.weights]
        alike = self.weights if self.request.distribution.is_drawn else extra
        return dict.fromkeys(extra, 1 / max(1, len(alike)))

    def _batch(self) -> int:
        made = len(self.trials.attempts)
        if self.budget.trials is not None:
            return min(BATCH, max(1, self.budget.trials - made))
        return self.times.batch(made, BATCH)

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
        """Given options, those of near sizes and like programs, each plan that is offered."""
        request, trials = self.request, self.trials
        near = known_options(trials.database, request.program, trials.machine, tuple(self.weights))
        listed = dict.fromkeys((*request.start, *near, *space.starts))
        return [o for o in listed if o != DEFAULT and o not in tried]

    def _unpruned(self, batch: Sequence[Options], space: Space) -> list[Options]:
        kept: list[Options] = []
        for options in batch:
            predicted = space.predicted(options, DEFAULT, tuple(self.weights))
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
            self._fetch_code([best.options])  # the worker is idle, and has it

    def _show(self) -> None:
        attempts = self.trials.attempts
        failed = sum(a.state == "failed" for a in attempts)
        share = min(1.0, self.budget.used(len(attempts)))
        gain = math.exp(-self.incumbent.cost(self.weights)[0])
        told = f"{len(attempts)} trials, {failed} failed, {gain:.2f}x: {self.incumbent.options}"
        self.progress.tell(told, share)

    def _note(self, attempts: Sequence[Attempt]) -> None:
        self.trials.note(attempts, self.budget.elapsed)
