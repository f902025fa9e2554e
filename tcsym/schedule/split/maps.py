# SPDX-License-Identifier: Apache-2.0
"""A band of sums with maps of each -> a band of the sums, then one of the maps.

Where a sum runs in vectors along its terms, what follows it has one element only. Maps that take
long are better evaluated for several elements at once, from a row of sums; a few instructions take
less time than to store and load the sums, for which threads wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tcsym.frontend.program import Binary, Call, Compare, Const, Read, Select, Unary
from tcsym.index.expr import Index
from tcsym.ir.loops import Buffer, Kernel, Node, Store, Value, block
from tcsym.ir.traverse import subvalues
from tcsym.schedule.analysis.access import accesses, rename_buffers
from tcsym.schedule.analysis.band import band_of
from tcsym.schedule.analysis.cost import is_light
from tcsym.schedule.analysis.loops import children, find_loop, loops_in
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.distribute import distribute
from tcsym.schedule.tile.forward_values import forward_values

LIGHT_VALUES = 8


def split_maps(kernel: Kernel, nest: str, names: Names) -> tuple[Kernel, tuple[str, ...]]:
    """The nests that `nest` becomes: itself if sums are stored as they are."""
    band = band_of(find_loop(kernel.body, nest))
    nodes = children(band.body)
    sums = [k for k, x in enumerate(nodes) if loops_in(x)]
    rest = nodes[sums[-1] + 1 :] if sums else ()
    if not rest or not all(isinstance(x, Store) for x in rest) or _are_light(rest):
        return kernel, (nest,)
    loops = frozenset(band.variables)
    own = {b.name for b in kernel.buffers if loops <= b.private}
    kept = all(isinstance(x, Store) and x.buffer in own for x in rest[:-1])
    first, last = block(*nodes[: sums[-1] + 1]), (kept and forward_values(rest)) or block(*rest)
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
    return kernel, block(first, store), rename_buffers(last, {b.name: name})


def _are_light(stores: Iterable[Node]) -> bool:
    """A few instructions, which need no vectors."""
    values = [v for x in stores if isinstance(x, Store) for v in subvalues(x.value)]
    done = [v for v in values if not isinstance(v, Read | Const)]
    return len(done) <= LIGHT_VALUES and all(map(_is_light, done))


def _is_light(v: Value) -> bool:
    if isinstance(v, Binary):
        return v.op in ("add", "sub", "mul")
    return isinstance(v, Unary | Compare | Select) or (isinstance(v, Call) and is_light(v.function))
