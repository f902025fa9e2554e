# SPDX-License-Identifier: Apache-2.0
"""What a tune found: the regions, how much faster they are, and every trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import indent
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tcsym.errors import TCError
from tcsym.ir.compiled import Compiled
from tcsym.options import Options
from tcsym.tuning.race import Attempt
from tcsym.tuning.timing import NORMAL_95, Ratio
from tcsym.tuning.tree import Tree, leaf_of, tree_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Values = tuple[int, ...]
_SHOWN = 8


class Regret(Struct, frozen=True):
    """Time lost against per-size tuning, as factors >= 1, on sizes that were not tuned for.

    mean: geometric.
    interval: of the mean, 95 %.
    worst: at one size.
    sizes: each with its factor.
    unknown: why nothing is known; all figures are then `nan`.
    """

    mean: float
    interval: tuple[float, float]
    worst: float
    sizes: tuple[tuple[Values, float], ...]
    unknown: str = ""

    @staticmethod
    def nothing(why: str) -> Regret:
        """Where nothing was compared."""
        return Regret(math.nan, (math.nan, math.nan), math.nan, (), why)

    @staticmethod
    def of(found: Sequence[tuple[Values, float]]) -> Regret:
        """From sizes with factors, at least one."""
        logs = [math.log(max(1.0, factor)) for _, factor in found]
        mean = sum(logs) / len(logs)
        spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / max(1, len(logs) - 1))
        half = NORMAL_95 * spread / math.sqrt(len(logs))
        interval = math.exp(max(0.0, mean - half)), math.exp(mean + half)
        return Regret(math.exp(mean), interval, math.exp(max(logs)), tuple(found))

    def __str__(self) -> str:
        if self.unknown:
            return f"nothing is known of what is lost: {self.unknown}"
        low, high = self.interval
        return (
            f"at {len(self.sizes)} other sizes {100 * (self.mean - 1):.1f} % slower than tuned for"
            f" each (95 %: {100 * (low - 1):.1f} to {100 * (high - 1):.1f} %),"
            f" worst {100 * (self.worst - 1):.1f} %"
        )


class Ranked(Struct, frozen=True):
    """A candidate that was not run. seconds: predicted, by size. gain: how many times as fast as
    the default that makes it, over the sizes. facts: what its largest grid holds."""

    options: Options
    seconds: Mapping[Values, float]
    gain: float
    facts: str

    def __str__(self) -> str:
        times = ", ".join(f"{1e6 * s:.1f}" for s in self.seconds.values())
        return f"{self.gain:.2f} times, {times} us: {self.options} ({self.facts})"


class TuningReport(Struct):
    """Returned by `kernel.tune`. Prints as a table; `options` is the tree as text.

    gain: how many times faster than the analytic default over the tuned sizes (geometric mean,
        weighted); of calls as programs make them (`kernel(A, B)`, results allocated), measured
        again after the search in other processes; 1.0 where the default serves.
    interval: of the gain, 95 %.
    stopped: "budget", "settled", "exhausted", "interrupted" or "unmeasured".
    notes: what to know of the result: that the machine was too noisy to believe some of it, or that
        no time was left to confirm it.
    trials: all candidates, failures with reasons.
    failures: those that failed.
    confirmed: sizes -> time by the default's, with its noise.
    n_visited: other sizes that regions were learned from.
    held_out: logarithms of what regions learned from the rest lose at some of these.
    n_resumed: trials of an earlier tune at the same sizes.
    least: seconds that a first round of candidates needs, if this tune had less; 0: it had enough.
    is_kept: the options store could be written.
    code: of the options that serve, as it was measured.
    ranked: candidates by what they are predicted to take, where no device was there to run them;
        then nothing was measured or kept, and `stopped` is "unmeasured".
    """

    name: str
    sizes: tuple[str, ...]
    tree: Tree
    confirmed: Mapping[Values, Ratio]
    weights: Mapping[Values, float]
    trials: tuple[Attempt, ...]
    seconds: float
    stopped: str
    is_kept: bool
    certify: Callable[[Sequence[Values]], Iterable[tuple[Values, tuple[float, ...]]]]
    draw: Callable[[int, int], Sequence[Values]]
    n_visited: int = 0
    held_out: Mapping[Values, float] = field(default_factory=dict)
    n_resumed: int = 0
    least: float = 0.0
    notes: tuple[str, ...] = ()
    code: Mapping[Options, Compiled] = field(default_factory=dict)
    ranked: tuple[Ranked, ...] = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from tcsym.tuning.report_html import report_html

        words = [*self._short(), *self.notes, *self._others(), self._counts(), *self._unkept()]
        return report_html(self, words)

    @property
    def is_short(self) -> bool:
        """True if there was no time for a first round of candidates."""
        return self.least > 0 and self.stopped == "budget"

    @property
    def options(self) -> str:
        return tree_text(self.tree, self.sizes)

    @property
    def gain(self) -> float:
        return math.exp(-self._log()[0])

    @property
    def interval(self) -> tuple[float, float]:
        log, error = self._log()
        return math.exp(-log - NORMAL_95 * error), math.exp(-log + NORMAL_95 * error)

    def _log(self) -> tuple[float, float]:
        log = sum(self.weights[v] * r.log for v, r in self.confirmed.items())
        squares = sum((self.weights[v] * r.noise) ** 2 for v, r in self.confirmed.items())
        return log, math.sqrt(squares)

    @property
    def failures(self) -> tuple[Attempt, ...]:
        return tuple(a for a in self.trials if a.state == "failed")

    def regret(self, n: int = 200, seed: int = 1) -> Regret:
        """What is lost against per-size tuning at `n` sizes drawn from the tuned ranges.

        The rivals at each size are the best candidates of this tune for the nearest tuned sizes;
        the quickest is measured again against the region's options before it counts. Calls of
        strategy `auto` lose less once their sizes were measured by themselves. Nothing is known
        (`Regret.unknown` says why) where no candidate was measured, or no other sizes can be drawn.
        """
        if not any(a.ratios for a in self.trials[1:]):
            return Regret.nothing("no candidate was measured beside the default")
        found = tuple((v, factor) for v, (factor,) in self.certify(self.draw(n, seed)))
        if not found:
            return Regret.nothing("no sizes other than the tuned ones lie in their ranges")
        return Regret.of(found)

    def convergence(self) -> list[tuple[float, float]]:
        """(seconds, gain of the best candidate until then), of candidates measured at all sizes."""
        curve: list[tuple[float, float]] = []
        best = 0.0
        for a in self.trials:
            if a.is_complete(self.weights) and a.cost(self.weights)[0] < best:
                best = a.cost(self.weights)[0]
            curve.append((a.elapsed, math.exp(-best)))
        return curve

    def plot(self, path: str | None = None) -> Figure:
        """How the search went, as a figure of matplotlib, which a notebook shows.

        path: of a file that it is written to, too (PNG, SVG, PDF by suffix).
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise TCError("matplotlib is missing", hint="pip install tcsym[plots]") from error
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.add_subplot()
        curve = self.convergence()
        axes.step([t for t, _ in curve], [g for _, g in curve], where="post", label="best")
        good = [a for a in self.trials if a.is_complete(self.weights)]
        gains = [math.exp(-a.cost(self.weights)[0]) for a in good]
        axes.plot([a.elapsed for a in good], gains, ".", label="candidates")
        axes.set_xlabel("seconds")
        axes.set_ylabel("times as fast as the default")
        axes.set_title(self.name)
        axes.legend()
        if path is not None:
            figure.savefig(path)
        return figure

    def __str__(self) -> str:
        if self.stopped == "unmeasured":
            best = [str(x) for x in self.ranked[: 2 * _SHOWN]]
            return "\n".join([f"{self.name}:", self._counts(), *self.notes, *best])
        lines = [
            f"{self.name}: {self.gained()}, {self.seconds:.1f} s, stopped: {self.stopped}",
            self._counts(),
            *self._short(),
            *self.notes,
            *self._table(),
            *self._others(),
            "options:",
            indent(self.options, "  "),
        ]
        failures = self.failures
        lines += [f"failed: {a.options}: {a.reason}" for a in failures[:_SHOWN]]
        if len(failures) > _SHOWN:
            lines.append(f"… and {len(failures) - _SHOWN} more failures in `trials`")
        return "\n".join([*lines, *self._unkept()])

    def gained(self) -> str:
        """The gain, in words."""
        if not self.trials:
            return "nothing was compared with the default, which stays"
        low, high = self.interval
        return f"{self.gain:.3f} times as fast as the default (95 %: {low:.3f} to {high:.3f})"

    def _counts(self) -> str:
        if self.stopped == "unmeasured":
            return f"candidates: {len(self.ranked)} ranked, {len(self.trials)} left out"
        if not self.trials:
            why = "interrupted" if self.stopped == "interrupted" else "there was no time"
            return f"trials: none, {why} before the default was measured"
        if len(self.trials) == 1 and self.stopped in ("budget", "interrupted"):
            return "trials: none, there was time for the default only"
        counts = {s: sum(a.state == s for a in self.trials) for s in _STATES}
        text = "trials: " + ", ".join(f"{n} {s}" for s, n in counts.items() if n)
        return text + (f"; {self.n_resumed} of these by an earlier tune" if self.n_resumed else "")

    def _unkept(self) -> list[str]:
        if self.is_kept or self.stopped == "unmeasured":
            return []
        return ["the options store could not be written: use `start=` to go on from here"]

    def _short(self) -> list[str]:
        if not self.is_short:
            return []
        had = f"too little time for {self.name}: {self.seconds:.1f} s"
        return [f"{had}; a first round of candidates needs at least {math.ceil(self.least)} s"]

    def _others(self) -> list[str]:
        if not self.n_visited:
            return []
        text = f"other sizes: {self.n_visited} visited"
        if self.held_out:
            logs = list(self.held_out.values())
            mean, worst = (100 * math.expm1(x) for x in (sum(logs) / len(logs), max(logs)))
            text += f"; with the tuned ones {len(logs)}, each held out: regions learned from the"
            text += f" rest lose {mean:.1f} % to its best option, worst {worst:.0f} %"
        return [text]

    def _table(self) -> list[str]:
        if not self.confirmed:
            return []
        rows = [(*self.sizes, "time", "gain", "+-", "options")]
        for values, ratio in self.confirmed.items():
            gain, error = ratio.gain
            options = leaf_of(self.tree, values).options
            figures = (f"{1e6 * ratio.seconds:.1f} us", f"{gain:.3f}", f"{error:.3f}")
            rows.append((*map(str, values), *figures, str(options)))
        widths = [max(map(len, column)) for column in zip(*rows)]
        return ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows]


_STATES = ("measured", "raced", "same", "pruned", "failed")
