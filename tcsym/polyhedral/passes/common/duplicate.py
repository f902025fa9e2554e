"""A second copy of a nest, with its own loops and its own private temporaries."""

from __future__ import annotations

from dataclasses import replace

from tcsym.loop_ir import Kernel, Node
from tcsym.polyhedral.passes.common.access import rename_buffer
from tcsym.polyhedral.passes.common.loops import loops_in
from tcsym.polyhedral.passes.common.names import Names, rename_loops


def duplicate(kernel: Kernel, node: Node, names: Names) -> tuple[Kernel, Node, dict[str, str]]:
    """The kernel with the temporaries of the copy, the copy, and new loop names by old ones."""
    new = {x.variable: names.fresh(x.variable) for x in loops_in(node)}
    copy = rename_loops(node, new)
    for b in kernel.buffers:
        if b.private & new.keys():
            private = frozenset(new.get(v, v) for v in b.private)
            own = replace(b, name=names.fresh(b.name), private=private)
            kernel, copy = kernel.with_buffer(own), rename_buffer(copy, b.name, own.name)
    return kernel, copy, new
