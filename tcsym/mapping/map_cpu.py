# SPDX-License-Identifier: Apache-2.0
"""Naive kernel -> mapped kernel, nest by nest: analyse, own, apply each version, close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tcsym.index.expr import TRUE
from tcsym.index.text import condition_text
from tcsym.ir.loops import Allocate, Block, Branch, Buffer, Kernel, Loop, Node, allocated, block
from tcsym.ir.traverse import map_node
from tcsym.mapping.apply import apply
from tcsym.mapping.choose import versions
from tcsym.mapping.nest import analyse
from tcsym.mapping.own import own
from tcsym.mapping.plan import Refused, Version, plan_text
from tcsym.mapping.tree import Close, Mapping_, Names, accessed
from tcsym.options import Options
from tcsym.process import config
from tcsym.schedule.multiples import in_quotients, in_sizes
from tcsym.schedule.order.parallelise import parallelise
from tcsym.target.machine import Machine


class MappedNests(Struct, frozen=True):
    """`notes`: the plans of all nests."""

    kernel: Kernel
    notes: tuple[str, ...]


def map_kernel(
    kernel: Kernel, machine: Machine, options: Options, given: Mapping[str, str] = {}
) -> MappedNests:
    """given: plans by the outermost loop of their nest. Raises `Refused` where one of the nests is
    none that directives serve."""
    original, kernel = kernel, in_quotients(kernel)
    body = map_node(kernel.body, lambda x: x.body if isinstance(x, Allocate) else x)
    tops = body.body if isinstance(body, Block) else (body,)
    unknown = given.keys() - {x.variable for x in tops if isinstance(x, Loop)}
    if unknown:
        raise Refused(f"there is no nest {', '.join(sorted(unknown))}")
    names = Names({b.name for b in kernel.buffers} | {*kernel.sizes, *kernel.launched})
    made, notes, out = list[Buffer](), list[str](), list[Node]()
    for k, top in enumerate(tops):
        if not isinstance(top, Loop):
            raise Refused("a statement outside of loops")
        others = {b for j, x in enumerate(tops) if j != k for b, *_ in accessed(x)}
        node, plans = _nest(kernel, top, machine, frozenset(others), given, names, made)
        out.append(node)
        notes += [f"{top.variable}: {_about(v)}{plan_text(v.plan)}" for v in plans]
    node = block(*out)
    used = {b for b, *_ in accessed(node)}
    kept = [b for b in kernel.buffers if b.space == "argument" or b.name in used]
    for b in kept:
        if b.space != "argument":
            node = allocated(b.name, node)
    own_ = {b.name for b in made}
    buffers = (*(replace(b, private=frozenset()) for b in kept if b.name not in own_), *made)
    kernel = replace(kernel, body=node, buffers=buffers)
    if options.parallelize:
        kernel = parallelise(kernel, machine)
    kernel = in_sizes(kernel, original)
    if config.VERIFY.read():
        from tcsym.ir.verify import verify

        verify(kernel)
    return MappedNests(kernel, tuple(notes))


def _nest(
    kernel: Kernel,
    top: Loop,
    machine: Machine,
    others: frozenset[str],
    given: Mapping[str, str],
    names: Names,
    made: list[Buffer],
) -> tuple[Node, Sequence[Version]]:
    """The nest in all its versions, each a tree of its own, the first that fits a size first."""
    whole = analyse(top, {b.name: b for b in kernel.buffers}, frozenset(kernel.sizes))
    plans = versions(whole, machine, given)
    node: Node | None = None
    for v in reversed(plans):
        nest = whole.with_sizes(v.facts)
        start = Mapping_(nest.top, nest.buffers, nest.sizes, machine)
        mapped = apply(own(start, nest, others), v.plan)
        close = Close(names, mapped.buffers)
        tree = close(mapped.node, {}, {})
        made += close.made
        node = tree if node is None or v.when == TRUE else Branch(v.when, tree, node)
    assert node is not None
    return node, plans


def _about(v: Version) -> str:
    return v.name + (f" if {condition_text(v.when)}: " if v.when != TRUE else ": ")
