# SPDX-License-Identifier: Apache-2.0
"""What `Auto` measured of the ways to serve a kernel's calls -> the options store, and back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from tcsym.dispatch.compare_entries import Weighed
from tcsym.dispatch.making import Making
from tcsym.index.text import condition_text
from tcsym.runtime.versions import compiler_version
from tcsym.tuning.machine import machine_key
from tcsym.tuning.rows import Chosen
from tcsym.tuning.stores import user_database


def recall(making: Making, bound: Mapping[str, int]) -> Weighed | None:
    """What an earlier process measured for these numbers, with the same compiler and options."""
    database = user_database()
    if database is None:
        return None
    key = (*_key(making), _question(making, bound))
    where = "program = ? AND machine = ? AND question = ?"
    rows = database.select(Chosen, where, key)
    try:
        return Weighed.from_json(json.loads(rows[-1].measured)) if rows else None
    except (ValueError, LookupError, TypeError):
        return None


def keep(making: Making, bound: Mapping[str, int], weighed: Weighed) -> None:
    """For later processes."""
    database = user_database()
    if database is not None:
        measured = json.dumps(weighed.to_json())
        created = time.strftime("%Y-%m-%dT%H:%M:%S")
        about = weighed.best(), created, making.plan.program.name
        database.put([Chosen(*_key(making), _question(making, bound), measured, *about)])


def _key(making: Making) -> tuple[str, str]:
    return making.plan.program.canonical, machine_key(making.target)


def _question(making: Making, bound: Mapping[str, int]) -> str:
    """All that the answer depends on, beside program and machine."""
    plan = making.plan
    declared = {plan.sizes[k]: str(d) for k, d in sorted(plan.promises.items())}
    options = [[r.options.to_json(), condition_text(r.context)] for r in making.regions]
    known = {**making.known, **bound}
    facts = {"declared": declared, "known": known, "options": options}
    return json.dumps({**facts, "compiler": compiler_version()}, sort_keys=True)
