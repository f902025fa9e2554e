# SPDX-License-Identifier: Apache-2.0
"""Plans of a device's kernel, ranked by their predicted cost: what a tune says without the device.

Nothing is run, and nothing is kept: what is predicted ranks candidates for a machine that has one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from tcsym.codegen.device.ptxas import assembled, assembler
from tcsym.errors import TCError
from tcsym.options import Options
from tcsym.tuning.budget import Budget
from tcsym.tuning.device_space import DeviceSpace, device_space
from tcsym.tuning.distribution import Values
from tcsym.tuning.evaluate import Dense
from tcsym.tuning.race import Attempt
from tcsym.tuning.report import Ranked, TuningReport
from tcsym.tuning.request import DEFAULT, Request
from tcsym.tuning.space import PRUNED_BEYOND, with_values
from tcsym.tuning.tree import Leaf

MOST_CONFLICTS = 4  # accesses of banks for one load
ASSEMBLED = 4  # candidates that NVIDIA's assembler is asked about


def rank(request: Request, why: str) -> TuningReport:
    """The candidates by their cost, the best first; those that are left out are `pruned`. why: no
    device runs them."""
    budget = Budget(request.budget, request.candidates)
    space = device_space(request.program, request.target)
    weights = request.distribution.weights
    found, attempts = list[Ranked](), list[Attempt]()
    default = space.nests and _ranked(space, DEFAULT, weights)
    for options in (DEFAULT, *_candidates(space, weights)):
        reason = _pruned(space, options, tuple(weights))
        if reason:
            attempts.append(Attempt(options, "pruned", reason))
        else:
            found.append(_ranked(space, options, weights))
    found.sort(key=lambda x: -x.gain)
    if default and assembler() is not None:
        found[:ASSEMBLED] = _assembled(request, found[:ASSEMBLED], attempts, budget)
    return TuningReport(
        request.program.name,
        request.program.sizes,
        Leaf(DEFAULT),
        {},
        weights,
        tuple(attempts),
        budget.elapsed,
        "unmeasured",
        False,
        lambda sizes: (),
        lambda n, seed: (),
        notes=(f"nothing was measured: {why}", "predicted, and not kept:"),
        ranked=tuple(found),
    )


def _candidates(space: DeviceSpace, weights: Mapping[Values, float]) -> Iterator[Options]:
    """Each plan of each nest, and the best of all nests together."""
    best: dict[str, str] = {}
    for name, plans in space.axes:
        single = {p: with_values(Options(), {name: p}) for p in plans if p}
        yield from single.values()
        best[name] = min(single, key=lambda p: _log(space, single[p], weights))
    if len(best) > 1:
        yield with_values(Options(), best)


def _log(space: DeviceSpace, options: Options, weights: Mapping[Values, float]) -> float:
    return sum(w * math.log(space.cycles(options, v)) for v, w in weights.items())


def _pruned(space: DeviceSpace, options: Options, sizes: tuple[Values, ...]) -> str:
    """Why a candidate is not worth running; "" if it is."""
    conflicts = max(c.conflicts for v in sizes for c in space.costs(options, v) if c is not None)
    if conflicts >= MOST_CONFLICTS:
        return f"loads of shared memory conflict, {conflicts} in one bank"
    slower = min(space.predicted(options, DEFAULT, (v,)) for v in sizes)
    if slower > PRUNED_BEYOND:
        return f"{slower:.1f} times the default's cycles are predicted"
    return ""


def _ranked(space: DeviceSpace, options: Options, weights: Mapping[Values, float]) -> Ranked:
    hertz = space.target.machine.unit.mhz * 1e6
    seconds = {v: space.cycles(options, v) / hertz for v in weights}
    gain = math.exp(_log(space, DEFAULT, weights) - _log(space, options, weights))
    costs = [c for c in space.costs(options, next(iter(weights))) if c is not None]
    if not costs:
        return Ranked(options, seconds, gain, "of no known cost")
    c = max(costs, key=lambda c: (c.shared_bytes, c.registers))
    busy = 100 * c.resident * c.threads // space.target.machine.unit.threads
    lines = f", {c.lines} lines an access" if c.lines > 1 else ""
    facts = f"{c.registers} registers, {c.shared_bytes} bytes shared, {busy} % of threads{lines}"
    return Ranked(options, seconds, gain, facts)


def _assembled(
    request: Request, best: Sequence[Ranked], attempts: list[Attempt], budget: Budget
) -> list[Ranked]:
    """With the registers that the assembler says; what spills goes behind what does not."""
    compile = request.compile or Dense(request.context)
    good, spilling = list[Ranked](), list[Ranked]()
    for x in best:
        if budget.left <= 0:
            good.append(x)
            continue
        with contextlib.suppress(TCError):
            made = compile(request.program, request.target, x.options)
            used = assembled(made.device_code.decode(), request.target.cpu).used.values()
            registers, spills = max(u.registers for u in used), max(u.spills for u in used)
            told = f"{x.facts}; assembled: {registers} registers, {spills} bytes spilled"
            (spilling if spills else good).append(replace(x, facts=told))
            continue
        attempts.append(Attempt(x.options, "failed", "it does not assemble"))
    return [*good, *spilling]
