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
from tcsym.ir.loops import Buffer, Loop, Node, Store, Update, block
from tcsym.ir.traverse import map_node
from tcsym.schedule.analysis.access import rename_buffer
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import chain_of, children
from tcsym.schedule.analysis.names import Names, rename_loops
from tcsym.schedule.device.nest import Nest
from tcsym.schedule.device.plan import SharedTiles, SplitSum, WarpTiles
from tcsym.schedule.device.propose import MOST_PARTS


def split_sum(
    plan: SplitSum, nest: Nest, names: Names
) -> tuple[SharedTiles | WarpTiles, Nest, Nest]:
    """The plan of the tiles, the nest of all parts, and the one that adds them."""
    body = children(nest.body)
    at = next(k for k, x in enumerate(body) if isinstance(x, Loop))
    (term,) = children(chain_of(body[at])[-1].body)
    assert isinstance(term, Update)
    total = next(x for x in chain_of(body[at]) if x.variable == plan.tiles.sum)
    part, again = names.fresh("part"), names.fresh("part")
    n_parts = minimum(MOST_PARTS, floordiv(extent(total) + plan.terms - 1, plan.terms))
    new = {x.variable: names.fresh(x.variable) for x in (*nest.chain, *chain_of(body[at]))}
    sums = nest.kernel.buffer(term.buffer)
    own = replace(
        sums,
        name=names.fresh(sums.name),
        private=frozenset((part, *(new.get(v, v) for v in sums.private))),
    )
    shape = (n_parts, *(extent(x) for x in nest.chain))
    parts = Buffer(names.fresh("parts"), sums.dtype, shape, "arena")
    kernel = nest.kernel.with_buffer(own).with_buffer(parts)

    def ranged(x: Node) -> Node:
        if not isinstance(x, Loop) or x.variable != total.variable:
            return x
        first = x.lower + var(part) * plan.terms
        return replace(x, lower=first, upper=minimum(x.upper, first + plan.terms))

    place = tuple(var(x.variable) - x.lower for x in nest.chain)
    zero = Store(sums.name, term.subscripts, identity(term.op, sums.dtype))
    kept = Store(parts.name, (var(part), *place), Read(sums.name, term.subscripts, sums.dtype))
    inner = block(zero, map_node(body[at], ranged), kept)
    inner = rename_loops(rename_buffer(inner, sums.name, own.name), new)
    outer = Loop(part, ZERO, n_parts, block(), "serial", "parallel")
    renamed = (replace(x, variable=new[x.variable]) for x in nest.chain)
    first = Nest(kernel, _nested((outer, *renamed), inner))
    each = replace(term, value=Read(parts.name, (var(again), *place), sums.dtype))
    adds = Loop(again, ZERO, n_parts, each, "serial", "reduction")
    second = Nest(kernel, _nested(nest.chain, block(*body[:at], adds, *body[at + 1 :])))
    tiles = plan.tiles
    rows, columns, terms = new[tiles.rows], new[tiles.columns], new[tiles.sum]
    return replace(tiles, rows=rows, columns=columns, sum=terms), first, second


def _nested(chain: tuple[Loop, ...], body: Node) -> tuple[Loop, ...]:
    """The loops around another body."""
    out: list[Loop] = []
    for x in reversed(chain):
        out.insert(0, replace(x, body=out[0] if out else body))
    return tuple(out)
