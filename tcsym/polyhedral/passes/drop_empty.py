"""Loops that never run, whatever the sizes -> nothing (substituted sizes leave such main loops)."""

from __future__ import annotations

from dataclasses import replace

from tcsym.loop_ir import Kernel, Loop, Node, map_node


def drop_empty(kernel: Kernel) -> Kernel:
    """Without the loops whose extent is a constant <= 0; nothing else changes."""
    return replace(kernel, body=map_node(kernel.body, _kept))


def _kept(n: Node) -> Node | None:
    if isinstance(n, Loop):
        extent = (n.upper - n.lower).as_int()
        if extent is not None and extent <= 0:
            return None
    return n
