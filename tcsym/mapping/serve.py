# SPDX-License-Identifier: Apache-2.0
"""Where nests are offered to plans of directives: which are taken, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tcsym.index.expr import FALSE, TRUE, any_of
from tcsym.ir.loops import Kernel
from tcsym.mapping.choose import versions
from tcsym.mapping.map_cpu import map_nest
from tcsym.mapping.nest import Nest, analyse, family
from tcsym.mapping.plan import Directives, Refused, Version
from tcsym.options import NEST_FIELDS, Options
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.loops import find_loop, loops_around
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.chosen import Choice, Taken

SWITCHED: frozenset[str] = frozenset()  # families that are mapped by directives


def serve(kernel: Kernel, loop: str, setting: Setting) -> Kernel | None:
    """The kernel with the nest of that outermost loop mapped; None if it is left as it is.

    What was chosen, or why nothing is, goes to the record.
    """
    wanted = setting.options.mapping
    if wanted == "old" or not (wanted or SWITCHED):
        return None
    try:
        return _served(kernel, loop, setting)
    except Refused as reason:
        if str(reason):
            setting.note(loop, f"not mapped by directives: {reason}")
        return None


def _served(kernel: Kernel, loop: str, setting: Setting) -> Kernel:
    top = find_loop(kernel.body, loop)
    around = frozenset(x.variable for x in loops_around(kernel.body, loop))
    nest = analyse(top, {b.name: b for b in kernel.buffers}, frozenset(kernel.sizes), around)
    if not setting.options.mapping and family(nest) not in SWITCHED:
        raise Refused
    reason = _reason(nest, kernel, setting.options)
    if reason:
        raise Refused(reason)
    found = _reached(kernel, versions(nest, setting.machine))
    kept = [v for v in found if setting.whole or not _is_left_out(v)]
    left = [v.when for v in found if v not in kept]
    kernel = map_nest(kernel, nest, kept, setting.machine, setting.names)
    taken = (
        Taken(v.when, Directives(v.name, v.plan), is_left_out=v not in kept) for v in found
    )
    setting.record.append(Choice(loop, tuple(taken)))
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
