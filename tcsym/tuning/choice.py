# SPDX-License-Identifier: Apache-2.0
"""Sizes -> which options serve them and why: for people."""

from __future__ import annotations

import json

from msgspec import Struct

from tcsym.options import Options
from tcsym.process.threads import get_num_threads
from tcsym.sizes.region import Origin, Region
from tcsym.target.target import Target
from tcsym.tuning.distribution import distance
from tcsym.tuning.machine import machine_key
from tcsym.tuning.stores import machines_tuned_on, tuned_for

Values = tuple[int, ...]


class Choice(Struct, frozen=True):
    """The answer of `kernel.options_for`: which options serve some sizes, and why. Prints well.

    options: what the code is made with.
    origin: where they come from: "analytic" (the defaults), "user", "shipped", "measured", "given".
    region: the condition on sizes under which they serve, as text.
    distance: to the nearest measured sizes, in factors of two (Euclidean over the sizes); None
        where nothing was measured.
    nearest: these measured sizes.
    machine: where it was measured.
    unused: machines and numbers of threads that options were tuned for which do not serve here.
    """

    options: Options
    origin: Origin
    region: str
    distance: float | None = None
    nearest: Values | None = None
    machine: str = ""
    unused: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.options}", f"  from  {self.origin}", f"  for   {self.region}"]
        if self.nearest is not None:
            lines.append(f"  measured at {self.nearest}, {self.distance:.1f} doublings away")
        if self.machine:
            lines.append(f"  on    {self.machine}")
        lines += [f"  tuned for {machine}, which does not serve here" for machine in self.unused]
        return "\n".join(lines)


def choice_of(program_hash: str, target: Target, region: Region, values: Values) -> Choice:
    """What serves these sizes, with how far they are from what was measured."""
    where = region.where
    if region.origin == "measured":
        machine = machine_key(target, get_num_threads())
        return Choice(region.options, region.origin, where, 0.0, values, machine)
    if region.origin == "analytic":
        unused = machines_tuned_on(program_hash)
        return Choice(region.options, region.origin, where, unused=unused)
    if region.origin not in ("user", "shipped"):
        return Choice(region.options, region.origin, where)
    found = tuned_for(program_hash, machine_key(target, get_num_threads()))
    if found is None:
        return Choice(region.options, region.origin, where)
    measured = [tuple(v) for v in json.loads(found[1].measured)]
    nearest = min(measured, key=lambda v: distance(v, values))
    away = distance(nearest, values)
    return Choice(region.options, region.origin, where, away, nearest, found[1].machine)
