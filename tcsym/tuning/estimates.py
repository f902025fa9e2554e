# SPDX-License-Identifier: Apache-2.0
"""Options, sizes -> logarithms of the times that the mapped loops say a call takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from tcsym.compiler import Lowering
from tcsym.cost.counting import nanoseconds
from tcsym.frontend.program import Program
from tcsym.ir.compiled import Layout
from tcsym.options import Options
from tcsym.process.recursion import depth_checked
from tcsym.proved import Scheduled
from tcsym.sizes.context import Context
from tcsym.target.target import Target
from tcsym.tuning.device_space import device_space
from tcsym.tuning.grow_tree import Figures, Matrix, Sizes


class Estimates(Struct):
    """Of a program on a target. Schedules, which take longest, are made once for all options."""

    program: Program
    target: Target
    context: Context = ()
    scheduled: dict[tuple[str, ...], Scheduled] = field(default_factory=dict)
    known: dict[tuple[Options, bytes], Figures] = field(default_factory=dict)

    def __call__(self, options: Sequence[Options], sizes: Sizes) -> Matrix:
        """Sizes by options."""
        key = sizes.tobytes()
        for o in options:
            if (o, key) not in self.known:
                self.known[o, key] = self._of(o, sizes)
        return np.stack([self.known[o, key] for o in options], axis=1)

    @depth_checked
    def _of(self, options: Options, sizes: Sizes) -> Figures:
        program = self.program
        if self.target.machine.multiprocessor is not None:
            space = device_space(program, self.target)
            return np.log([float(space.cycles(options, tuple(map(int, v)))) for v in sizes])
        dense: Layout = "dense"
        layouts = (dense,) * (len(program.inputs) + len(program.outputs))
        stages = Lowering(program, self.target, options, {}, layouts, self.context, {})
        key = options.fusion, options.inner_fusion, options.scheduler, str(options.chains)
        if key not in self.scheduled:
            self.scheduled[key] = stages.scheduled()
        kernel = stages.mapped(self.scheduled[key]).kernel
        columns = {name: sizes[:, k] for k, name in enumerate(program.sizes)}
        return np.asarray(np.log(nanoseconds(kernel, self.target.machine, columns)))
