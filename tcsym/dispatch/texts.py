# SPDX-License-Identifier: Apache-2.0
"""Dispatcher -> what `kernel.explain` prints: all versions, or a stage of the one that serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tcsym.dispatch.dispatcher import Dispatcher
from tcsym.dispatch.version import Version
from tcsym.display.explained import Explanation
from tcsym.options import plan_error
from tcsym.runtime.stats import VariantStats

_COMMENTS = {"llvm": ";", "cuda": "//", "ptx": "//", "sass": "//"}  # of what reads such text


def explain_versions(dispatcher: Dispatcher, given: Mapping[str, int]) -> Explanation:
    """All versions; with sizes, those that may serve them, their options and measured costs."""
    making, table, policy = dispatcher.making, dispatcher.table, dispatcher.policy
    known = {**making.known, **given}
    versions = dispatcher.possible(known) if given else table.versions
    lines = [line for v in versions for line in _version(v, bool(given))]
    if len(known) == len(making.plan.sizes) and given:
        sizes = tuple([known[name] for name in making.plan.sizes])
        lines += policy.others(table, sizes, dispatcher.calls_of(sizes))
    for decision in making.stats.decisions:
        if all(known.get(name, value) == value for name, value in decision.sizes):
            lines.append(f"decided: {decision}")
    if not any(v.variants.made for v in versions):
        lines.append("no variant is compiled yet")
    return Explanation("\n".join(lines), "variants")


def explain_version(dispatcher: Dispatcher, stage: str, given: Mapping[str, int]) -> Explanation:
    """A stage of the first version that may serve calls of these sizes, which is named first."""
    from tcsym.compiler import explain_stage, is_frontend

    making = dispatcher.making
    if is_frontend(stage):
        return explain_stage(making.plan.program, stage, making.target, making.options, {})
    versions = dispatcher.possible({**making.known, **given})
    shown = versions[0] if versions else making.symbolic(making.regions[0])
    variants = shown.variants
    if stage == "options":
        return Explanation(variants.options.to_json(), stage)
    program, options, fixed = variants.plan.program, variants.options, variants.fixed
    made = options, fixed, variants.context, variants.wide
    text = explain_stage(program, stage, making.target, *made, sizes={**making.known, **given})
    told = f"{_COMMENTS.get(stage, '#')} {shown}: {options}"
    if not versions:
        told += "; no version is made before its sizes are known"
    elif len(versions) > 1:
        told += f"; the first of {len(versions)} versions that may serve"
    return text.after(told)


def _version(version: Version, in_full: bool) -> Iterator[str]:
    yield str(version)
    if in_full:
        yield f"  options {version.variants.options}"
    if version.padding is not None:
        yield from (f"  {note}" for note in version.padding.notes)
    for variant in version.variants.made:
        yield f"  {VariantStats.of(variant.layouts, variant.compiled)}"
        told = (plan_error(x, version.variants.options) for x in variant.compiled.warnings)
        yield from (f"    warning: {str(x).splitlines()[0]}" for x in told)
        yield from (f"    fall-back: {text}" for text in variant.compiled.fallbacks)
        yield from (f"    {note}" for note in variant.compiled.notes)
