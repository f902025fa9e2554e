"""A second copy of a nest, with its own loops and its own private temporaries; a version of it."""

from __future__ import annotations

from dataclasses import replace

from tcsym.index.expr import Condition
from tcsym.ir.loops import Branch, Kernel, Node
from tcsym.schedule.analysis.access import rename_buffer
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops


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


def add_version(
    kernel: Kernel, nest: str, condition: Condition, names: Names
) -> tuple[Kernel, str]:
    """The nest under a condition, and the name of its copy for the other case."""
    kernel, copy, new = duplicate(kernel, find_loop(kernel.body, nest), names)
    body = replace_loop(kernel.body, nest, lambda x: Branch(condition, x, copy))
    return replace(kernel, body=body), new[nest]
