"""A contraction of few points and a long sum -> a grid of sums of parts, and one that adds these.

    C(i,j) = sum over k < K of A(k,i) * B(k,j)
->  P(q,i,j) = sum over k of part q                 blocks for each part
    C(i,j) = sum over q of P(q,i,j)                 a thread for each point

How many parts there are follows from sizes alone, and they are added in order: so results are the
same in every call.
"""

from __future__ import annotations

from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, floordiv, minimum, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Buffer, Loop, Node, Store, block
from tcsym.schedule.analysis.access import rename_buffers
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.schedule.device.nest import Nest
from tcsym.schedule.device.panels import contraction
from tcsym.schedule.device.plan import SharedTiles, SplitSum, WarpTiles
from tcsym.schedule.device.propose import MOST_PARTS
from tcsym.schedule.plan import renamed


def split_sum(
    plan: SplitSum, nest: Nest, names: Names
) -> tuple[SharedTiles | WarpTiles, Nest, Nest]:
    """The plan of the tiles, the nest of all parts, and the one that adds them."""
    tiles = plan.tiles
    x = contraction(nest, tiles.rows, tiles.columns, tiles.sum)
    total, (term,) = x.roles.sum, x.terms
    part, again = names.fresh("part"), names.fresh("part")
    n_parts = minimum(MOST_PARTS, floordiv(extent(total) + plan.terms - 1, plan.terms))
    new = {y.variable: names.fresh(y.variable) for y in (*nest.chain, *x.around)}
    sums = nest.kernel.buffer(term.buffer)
    own = replace(
        sums,
        name=names.fresh(sums.name),
        private=frozenset((part, *(new.get(v, v) for v in sums.private))),
    )
    shape = (n_parts, *map(extent, nest.chain))
    parts = Buffer(names.fresh("parts"), sums.dtype, shape, "arena")
    kernel = nest.kernel.with_buffer(own).with_buffer(parts)

    first = total.lower + var(part) * plan.terms
    ranged = replace(total, lower=first, upper=minimum(total.upper, first + plan.terms))
    place = tuple(var(y.variable) - y.lower for y in nest.chain)
    zero = Store(sums.name, term.subscripts, identity(term.op, sums.dtype))
    kept = Store(parts.name, (var(part), *place), Read(sums.name, term.subscripts, sums.dtype))
    inner = block(zero, replace_loop(x.around[0], total.variable, lambda _: ranged), kept)
    inner = rename_loops(rename_buffers(inner, {sums.name: own.name}), new)
    outer = Loop(part, ZERO, n_parts, block(), "serial", "parallel")
    renamed_chain = (replace(y, variable=new[y.variable]) for y in nest.chain)
    sums_of_parts = Nest(kernel, _nested((outer, *renamed_chain), inner))
    each = replace(term, value=Read(parts.name, (var(again), *place), sums.dtype))
    adds = Loop(again, ZERO, n_parts, each, "serial", "reduction")
    total_of_parts = Nest(kernel, _nested(nest.chain, block(x.before, adds, x.behind)))
    return renamed(tiles, new), sums_of_parts, total_of_parts


def _nested(chain: tuple[Loop, ...], body: Node) -> tuple[Loop, ...]:
    """The loops around another body."""
    out: list[Loop] = []
    for x in reversed(chain):
        out.insert(0, replace(x, body=out[0] if out else body))
    return tuple(out)
