# SPDX-License-Identifier: Apache-2.0
"""Where nests are offered to plans of directives: which are taken, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tcsym.index.expr import FALSE, TRUE
from tcsym.ir.loops import Kernel
from tcsym.mapping.ahead import check_packed, packed_ahead
from tcsym.mapping.choose import versions
from tcsym.mapping.given import given_for, place_of, versions_of
from tcsym.mapping.map_cpu import in_kernel, map_nest, map_nest_by_cost
from tcsym.mapping.nest import Nest, analyse
from tcsym.mapping.once import moved, still
from tcsym.mapping.plan import Directives, Refused, Version
from tcsym.mapping.signs import with_signs
from tcsym.mapping.text import GivenNest
from tcsym.options import told_of_plan
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import find_loop, loops_around
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Taken


def serve(kernel: Kernel, loop: str, setting: Setting) -> Kernel | None:
    """The kernel with the nest of that outermost loop mapped; None if it is left as it is.

    What was chosen, or why nothing is, goes to the record.
    """
    options = setting.options
    given = given_for(loop, options)
    if given is not None and not given.plan_name:
        mapped = _given(kernel, loop, setting, given)
        if mapped is not None:
            return mapped
    try:
        return _served(kernel, loop, setting)
    except Refused as reason:
        if str(reason):
            setting.note(loop, f"not mapped by directives: {reason}")
        return None


def _given(kernel: Kernel, loop: str, setting: Setting, given: GivenNest) -> Kernel | None:
    """By the plan that options have for it; None if it cannot be carried out, which is told."""
    try:
        nest, sums = _nest(kernel, loop), tuple[str, ...]()
        if given.packs:
            kernel, sums = with_signs(kernel, nest, setting.usable, setting.names)
            nest = _nest(kernel, loop)
        if given.packs_ahead:
            ahead = packed_ahead(kernel, nest, setting.usable, setting.names)
            check_packed(ahead, given)
            kernel, sums = ahead.kernel, (*sums, *ahead.tops)
            nest = _nest(kernel, loop)
        nest = _known(kernel, nest)
        found = list(versions_of(given, nest))
        if given.by_cost:
            kernel = _chosen(kernel, nest, setting, found, is_given=True)
        else:
            reached = _reached(kernel, found)
            kernel = map_nest(kernel, nest, reached, setting.usable, setting.names)
            kernel = _recorded(kernel, nest, setting, reached)
        return _with_sums(kernel, sums, setting)
    except Refused as reason:
        setting.unmet.append(told_of_plan(place_of(given, reason), str(reason), reason.hint))
        return None


def _nest(kernel: Kernel, loop: str) -> Nest:
    top = find_loop(kernel.body, loop)
    around = frozenset(x.variable for x in loops_around(kernel.body, loop))
    buffers = {b.name: b for b in kernel.buffers}
    nest = in_kernel(analyse(top, buffers, frozenset(kernel.sizes), around), kernel)
    return replace(nest, constants=still(kernel, nest) | {*kernel.constants} - moved(nest))


def _known(kernel: Kernel, nest: Nest) -> Nest:
    return nest.with_sizes({k.name: k.low for k in kernel.context if k.low == k.high})


def _served(kernel: Kernel, loop: str, setting: Setting) -> Kernel:
    nest = _nest(kernel, loop)
    kernel, sums = with_signs(kernel, nest, setting.usable, setting.names)
    ahead = packed_ahead(kernel, _nest(kernel, loop), setting.usable, setting.names)
    nest = _known(ahead.kernel, _nest(ahead.kernel, loop))
    offered = versions(nest, setting.usable)[-1 if setting.is_seldom else 0 :]
    offered = tuple(replace(v, plan=(*ahead.splits, *v.plan)) for v in offered)
    kernel = _chosen(ahead.kernel, nest, setting, offered)
    return _with_sums(kernel, (*sums, *ahead.tops), setting)


def _with_sums(kernel: Kernel, sums: Iterable[str], setting: Setting) -> Kernel:
    """Nests that were put in front of one, which no plan names or tells of, mapped too."""
    own = replace(setting.recording(), options=replace(setting.options, plan=""))
    for x in sums:
        kernel = serve(kernel, x, own) or kernel
    return kernel


def _chosen(
    kernel: Kernel, nest: Nest, setting: Setting, found: Sequence[Version], is_given: bool = False
) -> Kernel:
    able = [v for v in found if in_context(kernel, v.needs) != FALSE]
    has_all = is_given or setting.tells_all
    machine, names = setting.usable, setting.names
    asked = has_all, not is_given, setting.options.parallelize
    kernel, kept = map_nest_by_cost(kernel, nest, able, machine, names, *asked)
    return _recorded(kernel, nest, setting, kept)


def _recorded(kernel: Kernel, nest: Nest, setting: Setting, kept: Sequence[Version]) -> Kernel:
    taken = (Taken(v.when, Directives(v.name, v.plan)) for v in kept)
    setting.record.append(Choice(nest.top.variable, tuple(taken)))
    return kernel


def _reached(kernel: Kernel, found: Iterable[Version]) -> list[Version]:
    """Versions that sizes of the context may need, as far as it leaves their conditions open."""
    out = list[Version]()
    for v in found:
        when = in_context(kernel, v.when)
        if when != FALSE:
            out.append(replace(v, when=when))
        if when == TRUE:
            return out
    raise Refused("no plan is for all sizes")
