"""A band of sums with maps of each -> a band of the sums, then one of the maps.

Where a sum runs in vectors along its terms, what follows it has one element only. Maps are better
evaluated for several elements at once, from a row of sums.
"""

from __future__ import annotations

from dataclasses import replace

from tcsym.frontend.program import Read
from tcsym.index import Index
from tcsym.loop_ir import Buffer, Kernel, Node, Store, block
from tcsym.polyhedral.passes.common.access import accesses, rename_buffer
from tcsym.polyhedral.passes.common.band import band_of
from tcsym.polyhedral.passes.common.distribute import distribute
from tcsym.polyhedral.passes.common.loops import children, find_loop, loops_in
from tcsym.polyhedral.passes.common.names import Names


def split_maps(kernel: Kernel, nest: str, names: Names) -> tuple[Kernel, tuple[str, ...]]:
    """The nests that `nest` becomes: itself if sums are stored as they are."""
    band = band_of(find_loop(kernel.body, nest))
    nodes = children(band.body)
    sums = [k for k, x in enumerate(nodes) if loops_in(x)]
    rest = nodes[sums[-1] + 1 :] if sums else ()
    if not rest or not all(isinstance(x, Store) for x in rest) or all(map(_is_copy, rest)):
        return kernel, (nest,)
    first, last = block(*nodes[: sums[-1] + 1]), block(*rest)
    loops = frozenset(band.variables)
    for b in kernel.buffers:
        if loops <= b.private:
            kernel, first, last = _passed_on(kernel, b, (first, last), names)
    distributed = distribute(kernel, nest, (first, last), names)
    return distributed.kernel, distributed.nests


def _passed_on(
    kernel: Kernel, b: Buffer, nodes: tuple[Node, Node], names: Names
) -> tuple[Kernel, Node, Node]:
    """The sum stays private to the first node, which stores it for the second one."""
    first, last = nodes
    places = [{a.subscripts for a in accesses(x) if a.buffer == b.name} for x in nodes]
    if not all(places) or len(places[0] | places[1]) != 1:
        return kernel, first, last
    place = tuple(s for s in places[0].pop() if isinstance(s, Index))
    if len(place) != len(b.shape):
        return kernel, first, last
    name = names.fresh(b.name)
    kernel = kernel.with_buffer(replace(b, name=name))
    store = Store(name, place, Read(b.name, place, b.dtype))
    return kernel, block(first, store), rename_buffer(last, b.name, name)


def _is_copy(x: Node) -> bool:
    return isinstance(x, Store) and isinstance(x.value, Read)
