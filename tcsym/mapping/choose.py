# SPDX-License-Identifier: Apache-2.0
"""Plans for nests: a few that are proposed, of which the cost chooses.

A proposal is a text: what prints is what a user may give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tcsym.index.values import substitute
from tcsym.mapping.contraction import contraction
from tcsym.mapping.contractions import Contractions
from tcsym.mapping.first import made_first
from tcsym.mapping.fused import fused, is_fused
from tcsym.mapping.nest import Nest
from tcsym.mapping.plan import Refused, Version, with_sizes
from tcsym.mapping.proposal import Proposal, lanes
from tcsym.mapping.rows import rows
from tcsym.mapping.scans import is_scan, scans
from tcsym.mapping.text import parse
from tcsym.mapping.windows import hang_over_edges, has_windows, window_facts, windows
from tcsym.schedule.multiples import quotients
from tcsym.target.machine import Machine


def versions(nest: Nest, machine: Machine) -> tuple[Version, ...]:
    """Plans that a nest may have, each with the sizes for which it may run."""
    out, values = list[Version](), quotients(nest.sizes)
    is_plain = is_scan(nest) or (contraction(nest) is None and is_fused(nest))
    known = () if nest.is_found or is_plain else window_facts(nest)
    for facts in (*known, dict[str, int]()):
        for name, when, text in _offered(nest.with_sizes(facts), machine, not facts):
            plan = with_sizes(parse(text), lambda e: substitute(e, values))
            out.append(Version(name, when, plan, facts, only=when))
    return tuple(out)


def _offered(nest: Nest, machine: Machine, is_for_all: bool) -> Iterator[Proposal]:
    """Nothing for a few sizes at which the nest is what is mapped by no directives."""
    try:
        yield from _proposals(nest, machine)
    except Refused:
        if is_for_all:
            raise


def _proposals(nest: Nest, machine: Machine) -> Iterator[Proposal]:
    """For the nest as it is, and for what is left of it behind operands that are made first."""
    yield from _of_family(nest, machine)
    found = None if nest.is_found else contraction(nest)
    is_plain = is_scan(nest) or nest.is_found or (found is None and is_fused(nest))
    for text, left in () if is_plain else made_first(nest, found, machine):
        for name, when, x in _of_family(left, machine):
            yield f"{name}, operands first", when, f"{text}\n{x}"


def _of_family(nest: Nest, machine: Machine) -> Iterable[Proposal]:
    if is_scan(nest):
        return scans(nest, lanes(nest, machine))
    found = None if nest.is_found else contraction(nest)
    if found is None and is_fused(nest):
        return fused(nest, machine, lanes(nest, machine), lambda x: _proposals(x, machine))
    if not nest.is_found and has_windows(nest, found):
        if hang_over_edges(nest):
            raise Refused("windows hang over an edge")
        return _or_rows(windows(nest, found, machine, lanes(nest, machine)), nest, machine)
    if found is None:
        return rows(nest, machine)
    products = Contractions(nest, found, machine, lanes(nest, machine))
    return _or_rows(products.proposals(), nest, machine)


def _or_rows(found: Iterable[Proposal], nest: Nest, machine: Machine) -> Iterable[Proposal]:
    """What its family has for the nest; else plans of rows, which all can have, and why."""
    try:
        return tuple(found)
    except Refused as reason:
        told = f", as {reason}"
        return [(name + told, when, text) for name, when, text in rows(nest, machine)]
