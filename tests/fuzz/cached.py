# SPDX-License-Identifier: Apache-2.0
"""One program in several settings that share the code cache, each compiled for itself.

What a key of the cache leaves out gives one setting the code of another: with other numbers in it,
for other layouts or ranges, or, where results would be the same, simply not what was asked for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from msgspec import Struct

from tcsym.kernel.definition import define
from tcsym.options import Options
from tcsym.runtime.background import settle
from tcsym.sizes.dims import Dim
from tcsym.target.names import resolve_target
from tests.fuzz.layouts import relaid
from tests.fuzz.model import Case, Sizes, has_far
from tests.fuzz.plans import options_of


class Stale(Exception):
    """Code came from the cache that was made for other settings."""


class Setting(Struct, frozen=True):
    """What `define` is given, the layout of all arrays, and what the key must tell."""

    given: Mapping[str, Any]
    layout: str = "dense"

    @property
    def is_plain(self) -> bool:
        """Its code is what any machine makes without settings, for some layouts."""
        same_target = resolve_target(self.given.get("target")) == resolve_target(None)
        known = self.given.keys() - {"target", "options"}
        return same_target and not known and self.given.get("options", Options()) == Options()


def _settings(case: Case, sizes: Sizes) -> tuple[Setting, Setting]:
    """The plain one, and one that differs from it in one thing, the same one for all sizes."""
    rng, at = random.Random(case.seed + 4), dict(sizes)
    around = {n: Dim(max(0, v - 1), v + 1) for n, v in at.items()}
    every = [
        Setting({}, rng.choice(("rows", "transposed", "reversed"))),
        Setting({"target": "cpu:avx2"}),
        Setting({"options": options_of(case, rng, "cpu", "never", {})}),
    ]
    if at:
        every += [
            Setting({"sizes": at, "options": Options(bind="after")}),
            Setting({"sizes": at, "options": Options(bind="before")}),
            Setting({"sizes": {n: Dim(v, v) for n, v in at.items()}}),
            Setting({"sizes": around}),
        ]
    return Setting({}), rng.choice(every)


def cached_kernels(case: Case) -> Iterator[tuple[Sizes, Mapping[str, Any], Any]]:
    """Sizes, inputs and kernel, one setting after another. Raises Stale.

    The text has a mark of its own: the cache has nothing of it.
    """
    source = f"# {uuid4()}\n{case.source}"
    seen: list[Setting] = []
    for sizes in case.sizes[:2]:
        inputs = case.arrays(sizes)
        for setting in _settings(case, sizes):
            if setting in seen:
                continue
            kernel = define(source, strategy="symbolic", **setting.given)[case.name]
            arrays = inputs
            if setting.layout != "dense":
                arrays = {name: relaid(x, setting.layout) for name, x in inputs.items()}
            yield sizes, arrays, kernel
            settle()
            was_plain = setting.is_plain and any(x.is_plain for x in seen)
            if kernel.stats.cache_hits and not was_plain and not has_far(sizes):
                raise Stale(f"{dict(setting.given)} got code of other settings")
            seen.append(setting)
