"""Dispatcher -> what `kernel.explain("variants")` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.version import Version
from tcsym.stats import VariantStats


def explain_versions(dispatcher: Dispatcher, given: Mapping[str, int]) -> str:
    """All versions; with sizes, those that may serve them, their options and measured costs."""
    making = dispatcher.making
    known = {**making.known, **given}
    versions = dispatcher.possible(known) if given else dispatcher.versions()
    lines = [line for v in versions for line in _version(v, bool(given))]
    for decision in making.stats.decisions:
        if all(known.get(name, value) == value for name, value in decision.sizes):
            lines.append(f"decided: {decision}")
    if not any(v.variants.made for v in versions):
        lines.append("no variant is compiled yet")
    return "\n".join(lines)


def _version(version: Version, in_full: bool) -> Iterator[str]:
    yield str(version)
    if in_full:
        yield f"  options {version.variants.options.to_json()}"
    if version.padding is not None:
        yield from (f"  {note}" for note in version.padding.notes)
    for variant in version.variants.made:
        yield f"  {VariantStats.of(variant.layouts, variant.compiled)}"
        yield from (f"    fall-back: {text}" for text in variant.compiled.fallbacks)
        yield from (f"    {note}" for note in variant.compiled.notes)
