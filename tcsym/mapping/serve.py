# SPDX-License-Identifier: Apache-2.0
"""Where the compiler asks for mapped loops: by plans if all nests can be, else as before."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.errors import OptionError
from tcsym.ir.loops import Kernel
from tcsym.mapping.map_cpu import map_kernel
from tcsym.mapping.plan import Refused
from tcsym.options import Options
from tcsym.schedule.chosen import Note
from tcsym.schedule.map_cpu import Mapped, map_cpu
from tcsym.target.machine import Machine


def map_by_plans(kernel: Kernel, machine: Machine, options: Options, whole: bool) -> Mapped:
    """`Options.mapping` says how. A plan that was given and is refused is an error."""
    given = _given(options.mapping)
    try:
        mapped = map_kernel(kernel, machine, options, given)
    except Refused as reason:
        if given:
            raise OptionError(f"the plan cannot be carried out: {reason}") from None
        old = map_cpu(kernel, machine, replace(options, mapping=""), whole)
        note = Note(kernel.name, f"not mapped by plans: {reason}")
        return Mapped(old.kernel, (note, *old.choices))
    notes = (Note(*n.split(": ", 1)) for n in mapped.notes)
    return Mapped(mapped.kernel, tuple(notes))


def _given(text: str) -> dict[str, str]:
    """A plan for each nest, after the name of its outermost loop."""
    if text == "new":
        return {}
    parts = (x.partition(":") for x in text.splitlines() if x.strip())
    return {name.strip(): plan for name, _, plan in parts}
