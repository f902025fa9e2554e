# SPDX-License-Identifier: Apache-2.0
"""A kernel -> one that does it for each element of a batch, or gives back what it would update.

Settings stay.
"""

from __future__ import annotations

from collections.abc import Collection

from tcsym.errors import OptionError
from tcsym.kernel.kernel import Kernel
from tcsym.kernel.of_program import module_of_programs
from tcsym.process.recursion import depth_checked


def batched_kernel(kernel: Kernel, inputs: Collection[str]) -> Kernel:
    """`kernel` with another dimension in front of `inputs`.

    Errors: OptionError for what is no input, or if there is none.
    """
    from tcsym.batch.batched import batched_program

    known = [t.name for t in kernel.program.inputs]
    for name in sorted(inputs):
        if name not in known:
            hint = f"inputs are {', '.join(known)}"
            raise OptionError(f"{kernel.name} has no input `{name}` to batch", hint=hint)
    if not inputs:
        raise OptionError(f"{kernel.name}: no input is batched")
    made = depth_checked(batched_program)(kernel.program, inputs)
    filename = f"<{kernel.name} for a batch>"
    return module_of_programs([made], kernel.settings, filename)[made.name]


def functional_kernel(kernel: Kernel) -> Kernel:
    """`kernel` with results in place of updates."""
    from tcsym.batch.functional import functional_program

    made = depth_checked(functional_program)(kernel.program)
    filename = f"<{kernel.name} without updates>"
    return module_of_programs([made], kernel.settings, filename)[made.name]
