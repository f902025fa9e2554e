# SPDX-License-Identifier: Apache-2.0
"""Where nests are offered to plans of directives: which are taken, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tcsym.errors import OptionError
from tcsym.index.expr import FALSE, TRUE, any_of
from tcsym.ir.loops import Kernel
from tcsym.mapping.choose import versions
from tcsym.mapping.map_cpu import map_nest, map_nest_by_cost
from tcsym.mapping.nest import Nest, analyse, family
from tcsym.mapping.plan import Directives, Refused, Version, parse
from tcsym.options import NEST_FIELDS, Options
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import find_loop, loops_around
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Taken

BY_COST = frozenset(("contractions", "rows"))  # of these, the cost chooses versions
SWITCHED: frozenset[str] = frozenset({"rows"})  # families that are mapped by directives


def serve(kernel: Kernel, loop: str, setting: Setting) -> Kernel | None:
    """The kernel with the nest of that outermost loop mapped; None if it is left as it is.

    What was chosen, or why nothing is, goes to the record.
    """
    options = setting.options
    given = given_plans(options)
    if loop in given:
        return _given(kernel, loop, setting, given[loop])
    if options.mapping == "old" or not (options.mapping or SWITCHED):
        return None
    try:
        return _served(kernel, loop, setting)
    except Refused as reason:
        if str(reason):
            setting.note(loop, f"not mapped by directives: {reason}")
        return None


def given_plans(options: Options) -> dict[str, str]:
    """A text for each nest, after the name of its outermost loop."""
    text = "" if options.plan_name else options.plan
    parts = (x.partition(":") for x in text.splitlines() if x.strip())
    return {name.strip(): plan for name, _, plan in parts}


def require_nests(nests: Sequence[str], options: Options) -> None:
    """OptionError for a plan of a nest that there is not."""
    unknown = given_plans(options).keys() - {*nests}
    if unknown:
        raise OptionError(f"there is no nest {', '.join(sorted(unknown))}")


def _given(kernel: Kernel, loop: str, setting: Setting, text: str) -> Kernel:
    try:
        version = Version("given", TRUE, parse(text))
        return _mapped(kernel, _nest(kernel, loop), setting, [version])
    except Refused as reason:
        raise OptionError(f"the plan cannot be carried out: {reason}") from None


def _nest(kernel: Kernel, loop: str) -> Nest:
    top = find_loop(kernel.body, loop)
    around = frozenset(x.variable for x in loops_around(kernel.body, loop))
    return analyse(top, {b.name: b for b in kernel.buffers}, frozenset(kernel.sizes), around)


def _served(kernel: Kernel, loop: str, setting: Setting) -> Kernel:
    nest = _nest(kernel, loop)
    if not setting.options.mapping and family(nest) not in SWITCHED:
        raise Refused
    reason = _reason(nest, kernel, setting.options)
    if reason:
        raise Refused(reason)
    found = versions(nest, setting.machine)
    if family(nest) in BY_COST:
        return _chosen(kernel, nest, setting, found)
    return _mapped(kernel, nest, setting, _reached(kernel, found))


def _chosen(kernel: Kernel, nest: Nest, setting: Setting, found: Sequence[Version]) -> Kernel:
    able = [v for v in found if in_context(kernel, v.needs) != FALSE]
    kernel, kept = map_nest_by_cost(kernel, nest, able, setting.machine, setting.names)
    taken = (Taken(v.when, Directives(v.name, v.plan)) for v in kept)
    setting.record.append(Choice(nest.top.variable, tuple(taken)))
    return kernel


def _mapped(kernel: Kernel, nest: Nest, setting: Setting, found: Sequence[Version]) -> Kernel:
    kept = [v for v in found if setting.whole or not _is_left_out(v)]
    left = [v.when for v in found if v not in kept]
    kernel = map_nest(kernel, nest, kept, setting.machine, setting.names)
    taken = (Taken(v.when, Directives(v.name, v.plan), is_left_out=v not in kept) for v in found)
    setting.record.append(Choice(nest.top.variable, tuple(taken)))
    return replace(kernel, left_out=any_of((kernel.left_out, *left)))


def _reason(nest: Nest, kernel: Kernel, options: Options) -> str:
    """Why not, for reasons beside the nest; or nothing."""
    changed = options.changed().keys() & {*NEST_FIELDS, "vectorize"}
    if changed:
        return f"the options {', '.join(sorted(changed))} ask for another way"
    constant = set(kernel.constants) & {a.buffer for s in nest.statements for a in s.accesses}
    if constant:
        return f"{', '.join(sorted(constant))} may be laid out once for all calls"
    return ""


def _reached(kernel: Kernel, found: Sequence[Version]) -> list[Version]:
    """Versions that sizes of the context may need, as far as it leaves their conditions open."""
    out = list[Version]()
    for v in found:
        when = in_context(kernel, v.when)
        if when != FALSE:
            out.append(replace(v, when=when))
        if when == TRUE:
            return out
    raise Refused("no plan is for all sizes")


def _is_left_out(v: Version) -> bool:
    return v.is_seldom and v.when != TRUE
