# SPDX-License-Identifier: Apache-2.0
"""Stores that bypass the caches: what makes them visible at the end of a function."""

from __future__ import annotations

from tcsym.codegen.scalar.context import Context
from tcsym.ir.loops import Node, Store
from tcsym.ir.traverse import walk


def end_streams(context: Context, node: Node) -> None:
    """Streamed stores of `node` become visible in order with all that this thread stores later."""
    if any(isinstance(n, Store) and n.streamed for n, _ in walk(node)):
        fence = context.machine.stream_fence
        if fence:
            context.module.declare("void", fence, "")
        context.function.do(f"call void @{fence}()" if fence else "fence seq_cst")
