# SPDX-License-Identifier: Apache-2.0
"""Typed programs that were made of a kernel's -> kernels with the settings of that one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tcsym.frontend.program import Program
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.module import Module, module_of
from tcsym.kernel.serving import Serving
from tcsym.kernel.settings import Settings
from tcsym.process.recursion import depth_checked
from tcsym.runtime.plan import plan_call
from tcsym.runtime.stats import Counters


def kernel_of_program(program: Program, settings: Settings) -> Kernel:
    """What is declared of sizes holds for those that the program has."""
    own = {n: d for n, d in settings.sizes.items() if n in program.sizes}
    options = settings.options
    if options is not None and options.bind_of:
        bound = tuple((n, when) for n, when in options.bind_of.items() if n in program.sizes)
        options = replace(options, bind=bound or "never")
    given = replace(settings, sizes=own, options=options)

    @depth_checked
    def serving(kernel: Kernel) -> Serving:
        plan = plan_call(program, own, frozenset(program.sizes), given.target)
        made = Serving(program, given, plan, Counters())
        made.dispatch(kernel._checked_call, kernel._install)
        return made

    return Kernel(program.name, serving)


def module_of_programs(programs: Sequence[Program], settings: Settings, filename: str) -> Module:
    """Of programs as their texts are read back; `filename` is shown in messages."""
    own = {n: d for n, d in settings.sizes.items() if any(n in p.sizes for p in programs)}
    source = "\n".join(p.source for p in programs)
    given = replace(settings, source=source, filename=filename, sizes=own)
    return module_of(given, {p.name: replace(p, filename=filename) for p in programs})
