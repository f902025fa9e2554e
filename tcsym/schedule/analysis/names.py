# SPDX-License-Identifier: Apache-2.0
"""Fresh names: loop variables and buffers stay unique in a kernel, deterministically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.index.expr import Index, var
from tcsym.ir.loops import Buffer, Kernel, Loop, Node
from tcsym.ir.traverse import map_node, substitute_node, walk

N = TypeVar("N", bound=Node)


class Names(Struct):
    """The names in use; `fresh` adds one."""

    used: set[str]
    _next: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Kernel) -> Names:
        loops = {n.variable for n, _ in walk(kernel.body) if isinstance(n, Loop)}
        return Names(loops | {b.name for b in kernel.buffers} | set(kernel.sizes))

    def fresh(self, like: str) -> str:
        """`like` without its number, with a new number: `i`, `i.1`, `i.2`, …"""
        stem = like.rpartition(".")[0] if like.rpartition(".")[2].isdigit() else like
        k = self._next.get(stem, 1)
        while f"{stem}.{k}" in self.used:
            k += 1
        self._next[stem] = k + 1
        self.used.add(f"{stem}.{k}")
        return f"{stem}.{k}"


def replace_private(kernel: Kernel, new: Mapping[str, Iterable[str]]) -> Kernel:
    """What is private to a loop of `new` is private to those that stand in its place."""

    def replaced(b: Buffer) -> Buffer:
        loops = (new.get(v, (v,)) for v in b.private)
        return replace(b, private=frozenset(chain.from_iterable(loops)))

    buffers = [b if b.private.isdisjoint(new) else replaced(b) for b in kernel.buffers]
    return replace(kernel, buffers=tuple(buffers))


def rename_loops(node: N, new: Mapping[str, str]) -> N:
    """Only loops: `versioning.duplicate` copies what is private to them, too."""
    if not new:
        return node
    values: dict[str, Index] = {old: var(name) for old, name in new.items()}

    def rename(x: Node) -> Node:
        if isinstance(x, Loop) and x.variable in new:
            return replace(x, variable=new[x.variable])
        return x

    return cast(N, map_node(substitute_node(node, values), rename))
