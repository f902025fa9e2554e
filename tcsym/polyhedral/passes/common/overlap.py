"""Where tiles may overlap: whole vectors everywhere, some elements computed twice, no masks."""

from __future__ import annotations

from collections.abc import Set

from tcsym.index import Condition, all_of, ge
from tcsym.loop_ir import Kernel, Node, Store
from tcsym.polyhedral.passes.common.access import accesses
from tcsym.polyhedral.passes.common.band import Band
from tcsym.polyhedral.passes.common.bounds import extent
from tcsym.polyhedral.passes.common.loops import statements_in
from tcsym.polyhedral.passes.contraction.register_tile import TileShape


def fits_tiles(band: Band, columns: str, rows: str, shape: TileShape) -> Condition:
    """Both loops fill a tile."""
    wide = ge(extent(band.loop(columns)), shape.columns)
    return all_of((wide, ge(extent(band.loop(rows)), shape.rows)))


def is_repeatable(
    kernel: Kernel, body: Node, variables: frozenset[str], own: Set[str] = frozenset()
) -> bool:
    """An iteration of the loops may be made twice: it reads nothing that they leave behind.

    own: buffers of which each iteration has a copy that it makes anew.
    """
    read = {a.buffer for a in accesses(body) if not a.written}
    for x, _ in statements_in(body):
        buffer = getattr(x, "buffer", None)
        if buffer is None or buffer in own or variables <= kernel.buffer(buffer).private:
            continue
        if not isinstance(x, Store) or buffer in read:
            return False
    return True
