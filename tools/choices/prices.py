# SPDX-License-Identifier: Apache-2.0
"""Tables of choices -> what choosing by counted instructions loses, and prices fitted to them.

Programs are mapped again by today's code; an alternative counts at sizes where the plans that run
are, as text, those that were measured. Prices are fitted to relative errors of times, near ones of
a line weighing more, by non-negative least squares above `LEAST`; each fifth of the programs is
judged by prices fitted to the others.
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
from tcsym.cost.terms import LEAST, TERMS, Counts, prices_of, row
from tcsym.plan_costs import counts_at
from tcsym.target.names import resolve_target
from tools.choices.measure import alternatives_of, plans_at
from tools.choices.regret import Line, line_of, summary

FOLDS = 5
ROUNDS = 400


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
    """Of each target what rules, today's prices and those of other programs lose; prices of all."""
    by_target: dict[str, list[Counted]] = defaultdict(list)
    for x in _counted(paths, most):
        by_target[x.line.target].append(x)
    report = []
    for target, found in by_target.items():
        today = prices_of(resolve_target(target).machine)
        rules = [x.by(x.line.taken) for x in found if x.line.taken in x.plans]
        report += [
            summary(f"{target}, rules", rules),
            summary(f"{target}, prices", [x.chosen(today) for x in found]),
            summary(f"{target}, prices fitted to others", in_folds(found)),
            ", ".join(f"{n}={p:.3g}" for n, p in zip(TERMS, fitted(found))),
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
            rows: dict[str, Counts] = {}
            for a in found:
                ran = " | ".join(plans_at(a.mapped, line.sizes))
                if ran in line.times and ran not in rows:
                    rows[ran] = counts_at(a.mapped.kernel, machine, line.sizes)
            if len(rows) > 1:
                yield Counted(line, tuple(rows), np.array(list(rows.values())))


def in_folds(found: Sequence[Counted]) -> list[Line]:
    """Each line chosen by prices fitted to the programs of other folds."""
    names = sorted({x.line.program for x in found})
    random.Random(0).shuffle(names)
    fold = {name: k % FOLDS for k, name in enumerate(names)}
    lines = []
    for k in range(min(FOLDS, len(names))):
        others = [x for x in found if fold[x.line.program] != k]
        prices = fitted(others) if others else row(LEAST)
        lines += [x.chosen(prices) for x in found if fold[x.line.program] == k]
    return lines


def fitted(found: Sequence[Counted]) -> Counts:
    """Nanoseconds by `TERMS`."""
    counts = np.concatenate([x.counts for x in found])
    times = np.concatenate([x.times() for x in found])
    best = np.concatenate([np.full(len(x.plans), x.times().min()) for x in found])
    weight, least = np.sqrt(best / times) / times, row(LEAST)
    return least + _non_negative(counts * weight[:, None], (times - counts @ least) * weight)


def _non_negative(a: Counts, b: Counts) -> Counts:
    """Least squares by coordinate descent (Franc, Hlavac and Navara, 2005)."""
    products, target = a.T @ a, a.T @ b
    found = np.zeros(len(target))
    for _ in range(ROUNDS):
        for j in np.flatnonzero(products.diagonal() > 0):
            step = (target[j] - products[j] @ found) / products[j, j]
            found[j] = max(0.0, found[j] + step)
    return found
