"""A second copy of a nest, with its own loops and its own private temporaries; a version of it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import Condition, negate
from tcsym.ir.loops import Branch, Kernel, Loop, Node
from tcsym.schedule.analysis.access import rename_buffer
from tcsym.schedule.analysis.loops import find_loop, loops_in, replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.schedule.plan import Side

Loops = Mapping[str, str]  # of a copy, by those of what was copied


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


class Beside(Struct, frozen=True):
    """`version`, `rest`: the loops of both, by those of the nest that they were."""

    kernel: Kernel
    version: Loops
    rest: Loops


def beside(kernel: Kernel, nest: str, when: Condition, side: Side, names: Names) -> Beside:
    """The nest and a copy of it, one of which runs where the condition holds."""
    kernel, copy, new = duplicate(kernel, find_loop(kernel.body, nest), names)

    def branch(x: Loop) -> Node:
        match side:
            case "instead":
                return Branch(when, x, copy)
            case "before":
                return Branch(when, copy, x)
            case "after":
                return Branch(negate(when), x, copy)

    kernel = replace(kernel, body=replace_loop(kernel.body, nest, branch))
    same = {v: v for v in new}
    return Beside(kernel, same, new) if side == "instead" else Beside(kernel, new, same)
