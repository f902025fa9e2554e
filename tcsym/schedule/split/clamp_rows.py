# SPDX-License-Identifier: Apache-2.0
"""Ragged unrolled loops that only write registers -> no mask: extra rows repeat the last one."""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Cast, Read
from tcsym.index.expr import Index, minimum, var
from tcsym.index.values import substitute
from tcsym.ir.loops import Kernel, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import map_node, map_value, same, subvalues, walk
from tcsym.schedule.analysis.loops import loops_in


def clamp_rows(kernel: Kernel) -> Kernel:
    """No branch in a register tile's core.

    In an unrolled loop whose statements write only padded registers, every iteration runs; what it
    loads from other memory it takes from the last valid iteration. Contract: a masked loop has at
    least one active iteration (true of tiles).
    """

    def clamp(x: Node) -> Node:
        if not (isinstance(x, Loop) and x.kind == "unrolled" and x.mask is not None):
            return x
        if not _writes_only_padding(kernel, x.body, in_registers=True):
            return x
        last = minimum(var(x.variable), x.mask - 1)
        return replace(x, mask=None, body=_clamped(kernel, x.body, x.variable, last))

    return replace(kernel, body=map_node(kernel.body, clamp))


def drop_masks(kernel: Kernel) -> Kernel:
    """No mask where all lanes may be computed.

    These are vector loops that write padded buffers only, and in lanes read such only.
    What all lanes share must not depend on the mask: some lane reads it then. In a register tile,
    which has an active lane wherever it runs, it may move with the loops around.
    """
    around = frozenset(x.variable for x in loops_in(kernel.body) if x.kind == "serial")

    def drop(x: Node) -> Node:
        if not (isinstance(x, Loop) and x.kind == "vector" and x.mask is not None):
            return x
        in_tile = _writes_only_padding(kernel, x.body, in_registers=True)
        masked = x.mask.variables() - around if in_tile else x.mask.variables()
        masked |= {x.variable}
        if not _writes_only_padding(kernel, x.body):
            return x
        values = [
            v for n, _ in walk(x.body) if isinstance(n, Store | Update) for v in subvalues(n.value)
        ]
        return replace(x, mask=None) if all(_is_safe(kernel, v, masked) for v in values) else x

    return replace(kernel, body=map_node(kernel.body, drop))


def _is_safe(kernel: Kernel, v: Value, masked: frozenset[str]) -> bool:
    if isinstance(v, Binary | Cast):
        return not v.exact
    if not isinstance(v, Read) or kernel.buffer(v.tensor).padded:
        return True
    still = all(isinstance(s, Index) and not s.variables() & masked for s in v.subscripts)
    return still and not any(v.checked) and v.unwritten is None


def _writes_only_padding(kernel: Kernel, node: Node, in_registers: bool = False) -> bool:
    for x, _ in walk(node):
        match x:
            case Store() | Update():
                b = kernel.buffer(x.buffer)
                if not b.padded or (in_registers and b.space != "register"):
                    return False
            case Loop() if x.kind in ("unrolled", "vector"):
                pass
            case _:
                return False
    return True


def _clamped(kernel: Kernel, node: Node, variable: str, last: Index) -> Node:
    kept = f"{variable}#"

    def protect(v: Value) -> Value:
        """Subscripts of tiles keep the variable, under another name for the moment."""
        if not isinstance(v, Read) or not kernel.buffer(v.tensor).padded:
            return v
        subscripts = tuple(
            substitute(s, {variable: var(kept)}) if isinstance(s, Index) else s
            for s in v.subscripts
        )
        return replace(v, subscripts=subscripts)

    def value(v: Value) -> Value:
        v = map_value(v, protect, lambda i: i)
        v = map_value(v, same, lambda i: substitute(i, {variable: last}))
        return map_value(v, same, lambda i: substitute(i, {kept: var(variable)}))

    def statement(x: Node) -> Node:
        return replace(x, value=value(x.value)) if isinstance(x, Store | Update) else x

    return map_node(node, statement)
