# SPDX-License-Identifier: Apache-2.0
"""Kernel of a device -> the same with loops in place of copies, for the host.

A device keeps in registers what copies of a body tell apart; on the host that is memory of a
thread's stack, and the code of a large tile a small part of what the copies would be.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.index.expr import ge, var
from tcsym.ir.loops import Branch, Kernel, Loop, Node
from tcsym.ir.traverse import map_node


def roll(kernel: Kernel) -> Kernel:
    """Of one kernel, which is verified as it was."""
    body = map_node(kernel.body, _rolled)
    buffers = (
        replace(b, space="stack") if b.space == "register" and b.shape else b
        for b in kernel.buffers
    )
    return replace(kernel, body=body, buffers=tuple(buffers))


def _rolled(n: Node) -> Node:
    if not isinstance(n, Loop):
        return n
    if n.kind != "unrolled":
        return replace(n, unroll=1)
    body = n.body if n.mask is None else Branch(ge(n.mask - 1, var(n.variable)), n.body)
    return replace(n, body=body, kind="serial", mask=None)
