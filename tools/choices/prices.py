# SPDX-License-Identifier: Apache-2.0
"""Tables of choices -> what choosing by counted instructions loses, and prices fitted to them.

Programs are mapped again by today's code; an alternative counts at sizes where the plans that run
are, as text, those that were measured. Prices are fitted from today's on; each fifth of the
programs is judged by prices fitted to the others.
"""

from __future__ import annotations

import json
import lzma
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tcsym.compiler import analyse
from tcsym.cost.terms import TERMS, Counts, prices_of
from tcsym.plan_costs import counts_at
from tcsym.target.names import resolve_target
from tools.choices.measure import alternatives_of, plans_at
from tools.choices.regret import Line, by_family, line_of, summary

FOLDS = 5
STEPS, STEP = 800, 0.02  # of the descent, in logarithms
SHARPNESS = 10.0  # of what is taken: one of a tenth less cost is e times as likely
TRUTH = 0.1  # what errors of times weigh beside what is lost
STAYS = 0.01  # what the way from the first prices weighs
KEPT = [TERMS.index(name) for name in ("awaited", "again")]  # tables have few arrays so large


class Counted(Struct, frozen=True):
    """A line with counts by plan. plans: in the order of their rows."""

    line: Line
    plans: tuple[str, ...]
    counts: Counts

    def times(self) -> Counts:
        return np.array([self.line.times[p] for p in self.plans])

    def chosen(self, prices: Counts) -> Line:
        """The line as if the plan of the least price were taken."""
        return self.by(self.plans[int(np.argmin(self.counts @ prices))])

    def by(self, taken: str) -> Line:
        """The line as if this plan were taken, of those that are counted."""
        times = {p: self.line.times[p] for p in self.plans}
        return replace(self.line, taken=taken, times=times)


def prices_lines(paths: Sequence[Path], most: int | None = None) -> list[str]:
    """Of each target what today's versions, today's prices and those of other programs lose; prices
    of all."""
    by_target: dict[str, list[Counted]] = defaultdict(list)
    for x in _counted(paths, most):
        by_target[x.line.target].append(x)
    report = []
    for target, found in by_target.items():
        today = prices_of(resolve_target(target).machine)
        kept = [x.by(x.line.taken) for x in found if x.line.taken in x.plans]
        report += [
            f"{target}: of {len(found):,} lines {len(found) - len(kept)} lack what runs today",
            *by_family(f"{target}, as versions are kept", kept),
            summary(f"{target}, prices", [x.chosen(today) for x in found]),
            summary(f"{target}, prices fitted to others", in_folds(found, today)),
            ", ".join(f"{n}={p:.3g}" for n, p in zip(TERMS, fitted(found, today))),
        ]
    return report


def _counted(paths: Sequence[Path], most: int | None) -> Iterator[Counted]:
    programs: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        data = path.read_bytes()
        text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
        for part in filter(str.strip, text.splitlines()):
            x = json.loads(part)
            if line_of(x) is not None:
                programs[x["target"], x["program"], x["source"], x["def"]].append(x)
    keys = sorted(programs)
    random.Random(0).shuffle(keys)
    for key in keys[:most]:
        target, _, source, entry = key
        machine = resolve_target(target).machine
        found = alternatives_of(analyse(source)[entry], target)
        for data in programs[key]:
            line = line_of(data)
            assert line is not None
            taken = " | ".join(plans_at(found[0].mapped, line.sizes))
            line, rows = replace(line, taken=taken), dict[str, Counts]()
            for a in found:
                ran = " | ".join(plans_at(a.mapped, line.sizes))
                if ran in line.times and ran not in rows:
                    rows[ran] = counts_at(a.mapped.kernel, machine, line.sizes)
            if len(rows) > 1:
                yield Counted(line, tuple(rows), np.array(list(rows.values())))


def in_folds(found: Sequence[Counted], start: Counts) -> list[Line]:
    """Each line chosen by prices fitted to the programs of other folds."""
    names = sorted({x.line.program for x in found})
    random.Random(0).shuffle(names)
    fold = {name: k % FOLDS for k, name in enumerate(names)}
    lines = []
    for k in range(min(FOLDS, len(names))):
        others = [x for x in found if fold[x.line.program] != k]
        prices = fitted(others, start) if others else start
        lines += [x.chosen(prices) for x in found if fold[x.line.program] == k]
    return lines


def fitted(found: Sequence[Counted], start: Counts) -> Counts:
    """Nanoseconds by `TERMS`, by which little is lost: of each line the mean of the logarithms of
    its times, weighed by how likely each plan is (a soft minimum of costs, which has slopes; Sutton
    and Barto, Reinforcement Learning, 2.8), and of all the errors of costs as times. By Adam
    (Kingma and Ba, 2015) in the logarithms of prices."""
    counts = np.concatenate([x.counts for x in found])
    times = np.log(np.concatenate([x.times() for x in found]))
    sizes = [len(x.plans) for x in found]
    line = np.repeat(np.arange(len(found)), sizes)
    first = np.cumsum([0, *sizes[:-1]])
    at, mean, square = np.log(start), np.zeros(len(start)), np.zeros(len(start))
    for k in range(1, STEPS + 1):
        costs = counts @ np.exp(at)
        logs = np.log(costs)
        likely = np.exp(-SHARPNESS * (logs - np.minimum.reduceat(logs, first)[line]))
        likely /= np.add.reduceat(likely, first)[line]
        usual = np.add.reduceat(likely * times, first)[line]
        slopes = -SHARPNESS * likely * (times - usual) / len(found)
        slopes += 2 * TRUTH * (logs - times) / len(times)
        slope = (counts.T @ (slopes / costs)) * np.exp(at)
        slope += STAYS * (at - np.log(start)) / len(start)
        slope[KEPT] = 0
        mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
        at = at - STEP * (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-9)
    return np.asarray(np.exp(at))
