# SPDX-License-Identifier: Apache-2.0
"""Scop and dependences -> schedule tree, by aligning iterators through dependences.

Runs of statements share a loop while every dependence between them has equal iterators there, past
others that they do not depend on; inside, the same again. Parallel columns come first. The
program's `for` loops stay where they are; maps of what a scan stores join it. Nothing here is
trusted: `prove` checks the tree.

Rules beyond legality: never share a contraction's reduction loop; no lane reduction in a
contraction's row loop; no loops over rows of others inside a contraction's columns; a contraction
joins a run only to add to the same tensor, or after a reduction of an earlier contraction
(attention); a loop that is parallel for one statement and a reduction for another is shared only
below a parallel loop; single terms of a sum and rows of them do not share its loop, nor arms of a
condition on sizes any. The init of a reduction stands just outside its outermost reduction loop.
Scattered statements share no loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from tcsym.index.expr import var
from tcsym.options import Fusion
from tcsym.polyhedral.classify import loop_order
from tcsym.polyhedral.dependence import Dependences
from tcsym.polyhedral.follow_scans import following_maps, statement_names
from tcsym.polyhedral.join import Fusing, Level, Unit
from tcsym.polyhedral.scop import Scop, ScopItem, ScopLoop, ScopStatement
from tcsym.polyhedral.tree import Leaf, Member, Tree, TreeLoop, sequence, unique_name


def fuse(
    scop: Scop, dependences: Dependences, strategy: Fusion, inner: Fusion, notes: list[str]
) -> Tree:
    """A tree with all loops `sequential`; orders come from the proof.

    inner: the strategy inside of loops that statements got. notes: learns where a bound fell.
    """
    fusing = Fusing(scop, dependences, strategy, inner, notes)
    fusing.taken.update(scop.sizes, _program_variables(scop.items))
    return sequence(_items(scop.items, (), fusing))


def _program_variables(items: tuple[ScopItem, ...]) -> Iterator[str]:
    for item in items:
        if isinstance(item, ScopLoop):
            yield item.range.variable
            yield from _program_variables(item.items)


def _items(
    items: tuple[ScopItem, ...], outer: tuple[str, ...], fu: Fusing, last: tuple[Unit, ...] = ()
) -> list[Tree]:
    """`last`: units that joined the loop which has the items, behind them."""
    out: list[Tree] = []
    run: list[ScopStatement] = []
    joined: set[str] = set()
    for k, item in enumerate(items):
        if isinstance(item, ScopLoop):
            out.extend(_nest(_units(run), 0, fu))
            run = []
            maps = dict[str, str]()
            if fu.strategy != "min":  # it asks isl for nothing, as it is what is left then
                maps = following_maps(item, items[k + 1 :], fu.scop, fu.dependences)
            joined.update(maps)
            out.append(_program_loop(item, outer, fu, maps))
        elif item not in joined:
            run.append(fu.scop.statement(item))
    out.extend(_nest([*_units(run), *last], 0, fu))
    return out


def _program_loop(
    item: ScopLoop, outer: tuple[str, ...], fu: Fusing, maps: Mapping[str, str]
) -> TreeLoop:
    """`maps`: statements after the loop that join it, with their iterators for it."""
    r = item.range
    last = tuple(
        u.without(maps[u.statement.name], r.variable)
        for u in _units(list(map(fu.scop.statement, maps)))
    )
    body = sequence(_items(item.items, (*outer, r.variable), fu, last))
    own = ((n, r.variable) for n in statement_names(item.items))
    members = tuple(Member(n, var(v)) for n, v in (*own, *maps.items()))
    return TreeLoop(r.variable, r.lower, r.upper, members, body)


def _units(statements: list[ScopStatement]) -> list[Unit]:
    """Each init glued to its update, which follows it."""
    inits = {s.partner: s for s in statements if s.role == "init"}
    return [Unit(s, inits.get(s.name), loop_order(s)) for s in statements if s.role != "init"]


# ---- one level of loops


def _nest(units: list[Unit], depth: int, fu: Fusing) -> list[Tree]:
    """Trees for `units` in order, sharing loops; `depth`: parallel loops around."""
    out: list[Tree] = []
    level, taken = Level(units, fu), set[str]()
    for k, first in enumerate(units):
        if first.statement.name in taken:
            continue
        if not first.left:
            level.take(k)
            out.extend(Leaf(s.name, s.condition) for s in first.parts)
        elif first.statement.positions:
            level.take(k)
            out.extend(_shared([first], (first.left[0],), depth, fu))
        else:
            run = level.run(k, depth)
            taken.update(u.statement.name for u in run.units)
            out.extend(_shared(run.units, run.best(), depth, fu))
    return out


def _shared(run: list[Unit], column: tuple[str, ...], depth: int, fu: Fusing) -> list[Tree]:
    """One loop over `column` around `run`, behind the inits of what it reduces."""
    out: list[Tree] = []
    units: list[Unit] = []
    members: list[Member] = []
    reducing = False
    for u, iterator in zip(run, column):
        reduced = iterator in u.statement.reduced
        reducing |= reduced
        if u.init is not None and (reduced or iterator in u.statement.positions):
            kept = tuple(v for v in u.left if v not in u.statement.reduced)
            out.extend(_nest([Unit(u.init, None, kept, u.loops)], depth, fu))
            u = replace(u, init=None)
        if u.init is not None:
            members.append(Member(u.init.name, var(iterator)))
        members.append(Member(u.statement.name, var(iterator)))
        units.append(u)
    lower, upper = run[0].ends(column[0])
    name = unique_name(column[0], fu.taken)
    inside = [u.without(iterator, name) for u, iterator in zip(units, column)]
    body = sequence(_nest(inside, depth + (not reducing), fu.below()))
    out.append(TreeLoop(name, lower, upper, tuple(members), body))
    return out
