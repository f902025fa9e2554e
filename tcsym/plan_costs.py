# SPDX-License-Identifier: Apache-2.0
"""Naive loops -> what each plan that nests are offered makes of them, and what that would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tcsym.cost.counting import counted
from tcsym.cost.terms import TERMS, Counts, prices_of
from tcsym.index.expr import condition_variables
from tcsym.ir.loops import THREADS, Kernel
from tcsym.ir.text import kernel_text
from tcsym.mapping.plan import Directives
from tcsym.mapping.text import with_nest
from tcsym.options import Options
from tcsym.process.threads import get_num_threads
from tcsym.schedule.chosen import Choice, Note, Taken
from tcsym.schedule.map_cpu import Mapped, map_cpu
from tcsym.schedule.wanted import offered_in
from tcsym.target.machine import Machine

MOST_TERMS = 3  # that are told of each plan
LEAST_TOLD = 1.0  # nanoseconds


class Alternative(Struct, frozen=True):
    """nest, plan: what was asked for beside the options, empty: none."""

    nest: str
    plan: str
    options: Options
    mapped: Mapped

    @property
    def option(self) -> str:
        return f"{self.nest}.{self.plan}" if self.nest else ""


def alternatives(
    kernel: Kernel,
    machine: Machine,
    options: Options,
    most_nests: int | None = None,
    most_plans: int | None = None,
) -> Iterator[Alternative]:
    """Those options first, then with each plan by name of each nest that makes other loops of them.

    All have the code for sizes that few calls have, too.
    """
    default = map_cpu(kernel, machine, options, True)
    yield Alternative("", "", options, default)
    seen, n = {kernel_text(default.kernel)}, 1
    by_name = map_cpu(kernel, machine, options, True, True)
    for nest, choices in islice(by_name.nests.items(), most_nests):
        for name in dict.fromkeys(chain.from_iterable(offered_in(choices).values())):
            asked = options.replace(plan=with_nest(options.plan, nest, name))
            made = map_cpu(kernel, machine, asked, True)
            text = kernel_text(made.kernel)
            if made.warnings or text in seen or n == most_plans:
                continue
            seen.add(text)
            n += 1
            yield Alternative(nest, name, asked, made)


def costs_text(kernel: Kernel, machine: Machine, options: Options, sizes: Mapping[str, int]) -> str:
    """What runs at these sizes and what takes it; then plans that could, with what takes more."""
    found = list(alternatives(kernel, machine, options))
    given = {THREADS: get_num_threads(), **sizes}  # by which versions are chosen
    counts = [counts_at(x.mapped.kernel, machine, given) for x in found]
    prices = prices_of(machine)
    at = ", ".join(f"{name}={value}" for name, value in sizes.items())
    by = "cost" if found[0].mapped.kernel.choices else "rules"
    how = "asked for" if options.plan else f"chosen by {by}"
    lines = [
        f"{at}: counted instructions of one thread, at their prices" if at else "of one thread",
        f"{_time(float(counts[0] @ prices)):>9}  {how}: {_terms(counts[0] * prices, '')}",
    ]
    seen = {counts[0].tobytes()}
    for v, told in versions_text(found[0].mapped.kernel, machine, sizes).items():
        names = _names(found[0].mapped, v)
        lines += [f"{'':9}  with {v} = {k}, {x}: {y}" for k, (x, y) in enumerate(zip(names, told))]
    for x, c in sorted(zip(found[1:], counts[1:]), key=lambda y: float(y[1] @ prices)):
        if c.tobytes() not in seen:  # else the same runs at these sizes
            seen.add(c.tobytes())
            more = _terms((c - counts[0]) * prices, "+")
            lines.append(f"{_time(float(c @ prices)):>9}  nest {x.nest} by {x.plan}: {more}")
    return "\n".join(lines) + "\n"


def counts_at(kernel: Kernel, machine: Machine, sizes: Mapping[str, int]) -> Counts:
    """By `TERMS`, of a call of the mapped kernel."""
    columns = {name: np.array([n], np.int64) for name, n in sizes.items()}
    return np.asarray(counted(kernel, machine, columns)[0])


def told_by_cost(mapped: Mapped, machine: Machine, sizes: Mapping[str, int]) -> Mapped:
    """With what a call of these sizes takes by each version that the cost chooses among, if they
    are all sizes."""
    if not sizes.keys() >= {*mapped.kernel.sizes}:
        return mapped
    told = versions_text(mapped.kernel, machine, sizes)

    def of_nest(x: Choice | Note) -> Choice | Note:
        texts = next((t for v, t in told.items() if _taken_by(x, v)), ())
        if not isinstance(x, Choice) or not texts:
            return x
        taken = [v for v in x.versions if isinstance(v, Taken)]
        priced = (replace(v, cost=t) for v, t in zip(taken, texts, strict=True))
        return replace(x, versions=tuple(priced))

    return replace(mapped, choices=tuple(map(of_nest, mapped.choices)))


def versions_text(
    kernel: Kernel, machine: Machine, sizes: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Of each variable that the kernel chooses: the costs by which it does, and the terms of a call
    with each of its values."""
    found, prices = dict[str, tuple[str, ...]](), prices_of(machine)
    for c in kernel.choices:
        columns = {name: np.full(c.versions, n) for name, n in sizes.items()}
        rows = counted(kernel, machine, {**columns, c.variable: np.arange(c.versions)})
        costs = c.costs.at({THREADS: get_num_threads(), **sizes})
        told = (f"{_time(x)}: {_terms(row * prices, '')}" for x, row in zip(costs, rows))
        found[c.variable] = tuple(told)
    return found


def _taken_by(x: Choice | Note, variable: str) -> list[Taken]:
    """The nest's versions, if that variable chooses among them."""
    taken = [v for v in x.versions if isinstance(v, Taken)] if isinstance(x, Choice) else []
    return taken if taken and variable in condition_variables(taken[0].when) else []


def _names(mapped: Mapped, variable: str) -> list[str]:
    """Those of the plans that it chooses among."""
    found = next(filter(None, (_taken_by(x, variable) for x in mapped.choices)))
    return [x.plan.name for x in found if isinstance(x.plan, Directives)]


def _time(nanoseconds: float) -> str:
    size = abs(nanoseconds)
    unit, scale = ("ms", 1e6) if size >= 1e6 else ("us", 1e3) if size >= 1e3 else ("ns", 1.0)
    return f"{nanoseconds / scale:.3g} {unit}"


def _terms(parts: Counts, sign: str) -> str:
    """The largest; with signs, of a difference."""
    largest = np.argsort(-np.abs(parts))[:MOST_TERMS]
    told = [
        f"{TERMS[k]} {sign if parts[k] > 0 else ''}{_time(float(parts[k]))}"
        for k in largest
        if abs(parts[k]) >= LEAST_TOLD
    ]
    return ", ".join(told) or "nothing more"
