# SPDX-License-Identifier: Apache-2.0
"""A second copy of a nest, with its own loops and its own private temporaries; a version of it."""

from __future__ import annotations

from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from tcsym.ir.loops import Kernel
from tcsym.schedule.analysis.access import rename_buffers
from tcsym.schedule.analysis.loops import loops_in
from tcsym.schedule.analysis.names import N, Names, rename_loops


def duplicate(kernel: Kernel, node: N, names: Names) -> tuple[Kernel, N, dict[str, str]]:
    """The kernel with the temporaries of the copy, the copy, and new loop names by old ones.

    What is private to loops around the node only, the copy shares with it."""
    new = {x.variable: names.fresh(x.variable) for x in loops_in(node)}
    own: dict[str, str] = {}
    for b in kernel.buffers:
        if b.private & new.keys():
            own[b.name] = names.fresh(b.name)
            private = frozenset(new.get(v, v) for v in b.private)
            kernel = kernel.with_buffer(replace(b, name=own[b.name], private=private))
    copy = rename_loops(node, new)
    return kernel, cast(N, rename_buffers(copy, own)) if own else copy, new


class Copies(Struct):
    """`kernel`: with the temporaries of all copies made so far; its body is as it was."""

    kernel: Kernel
    names: Names

    def of(self, node: N) -> N:
        self.kernel, copy, _ = duplicate(self.kernel, node, self.names)
        return copy
