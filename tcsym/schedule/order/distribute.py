# SPDX-License-Identifier: Apache-2.0
"""A band over several nodes -> one band for each of them.

Points of parallel loops are independent, so each node may run over all of them before the next one
starts, if what passes between the nodes has a place for every point (`privatise` gave it the
subscripts).
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from tcsym.ir.loops import Buffer, Kernel, Loop, Node, block
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import Band, band_of
from tcsym.schedule.analysis.loops import find_loop, in_loops, replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops


class Distributed(Struct, frozen=True):
    """`nests`: one band for each of the nests, in order."""

    kernel: Kernel
    nests: tuple[str, ...]


def distribute(kernel: Kernel, nest: str, groups: tuple[Node, ...], names: Names) -> Distributed:
    """A band for each of `groups`, which together are the body of the band at `nest`."""
    band = band_of(find_loop(kernel.body, nest))
    bands = [_around(band, group, names) for group in groups]
    body = block(*(node for node, _ in bands))
    kernel = replace(kernel, body=replace_loop(kernel.body, nest, lambda _: body))
    for b in kernel.buffers:
        if b.private & frozenset(band.variables):
            kernel = _shared(kernel, b, band, bands)
    return Distributed(kernel, tuple(new[nest] for _, new in bands))


Renamed = tuple[Loop, dict[str, str]]


def _around(band: Band, body: Node, names: Names) -> Renamed:
    """The band with this body, under new names."""
    new = {v: names.fresh(v) for v in band.variables}
    loop = rename_loops(in_loops(band.loops, body), new)
    assert isinstance(loop, Loop)
    return loop, new


def _shared(kernel: Kernel, b: Buffer, band: Band, bands: list[Renamed]) -> Kernel:
    """The buffer, private to the band of its only user, or with a place for every point."""
    loops = frozenset(band.variables)
    users = [new for node, new in bands if any(a.buffer == b.name for a in accesses(node))]
    if len(users) == 1:
        private = frozenset(users[0].get(v, v) for v in b.private)
        return kernel.with_buffer(replace(b, private=private))
    return kernel.with_buffer(replace(b, private=b.private - loops))
