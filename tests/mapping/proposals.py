# SPDX-License-Identifier: Apache-2.0
"""All plans that are proposed for a program, as texts that make it take them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unittest.mock import patch

import tcsym
from tcsym.mapping import serve
from tcsym.mapping.nest import Nest
from tcsym.mapping.plan import Version, plan_text
from tcsym.target.machine import Machine


def proposed(source: str, target: str) -> Iterator[str]:
    """The first of every nest, the second, and so on; of a nest that has fewer, the last."""
    seen: dict[str, Sequence[Version]] = {}
    versions = serve.versions

    def kept(nest: Nest, machine: Machine) -> tuple[Version, ...]:
        found = seen[nest.top.variable] = versions(nest, machine)
        return found

    with patch.object(serve, "versions", kept):
        options = tcsym.Options()
        tcsym.define(source, target=target, options=options).f.explain("mapped")
    for k in range(max(map(len, seen.values()))):
        lines = (f"{v}: {_text(x[min(k, len(x) - 1)], x[-1])}" for v, x in seen.items())
        yield "\n".join(lines)


def _text(v: Version, last: Version) -> str:
    """The plan; where it needs numbers of sizes, with the last one for all others."""
    if not v.facts:
        return plan_text(v.plan)
    needs = " && ".join(f"{name} == {n}" for name, n in v.facts.items())
    return f"if {needs}:\n{plan_text(v.plan)}\nelse:\n{plan_text(last.plan)}"
