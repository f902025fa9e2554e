# SPDX-License-Identifier: Apache-2.0
"""Nests over the same steps -> pipelines: in which of them a step may begin early.

Two neighbouring loops are of one pipeline if they have the same range and no dependence between
them goes from a step to an earlier one. Then a step of the later loop may run as soon as the steps
up to it of the earlier one have: that is what makes fusion of the two with any shift legal, tiles
of their steps, and a wavefront over both (`schedule.order.wavefront`). Layers of a recurrent
network are so, and scans that have nothing to do with one another.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from tcsym.index.expr import Index
from tcsym.polyhedral.dependence import Dependence, Dependences
from tcsym.polyhedral.relations import IN, OUT
from tcsym.polyhedral.scop import Scop
from tcsym.polyhedral.tree import Sequence, Tree, TreeLoop, leaves

Ends = tuple[Index | None, Index | None]


def pipelines(tree: Tree, scop: Scop, dependences: Dependences) -> dict[str, int]:
    """By variable of outermost loops, a number that those of a pipeline share: from 1.

    A pipeline has two loops in order at least; other nests may be in one, or stand between.
    """
    tops = tree.children if isinstance(tree, Sequence) else (tree,)
    if sum(map(_is_scan, tops)) < 2:
        return {}
    finding = _Finding(scop, dependences)
    for k, x in enumerate(tops):
        finding.add(k, x)
    finding.close()
    found = [m for m in finding.found if sum(map(_is_scan, m)) > 1]
    return {x.variable: k for k, m in enumerate(found, 1) for x in m}


def _is_scan(x: Tree) -> bool:
    return isinstance(x, TreeLoop) and x.order == "sequential"


class _Finding(Struct):
    """Nests in their order, as far as they were added.

    members: of the pipeline that is open, by place. behind: statements of what needs members, all
    steps of them perhaps. at: the member that has a statement. ends: members by their ranges.
    """

    scop: Scop
    dependences: Dependences
    found: list[list[TreeLoop]] = field(default_factory=list)
    members: dict[int, TreeLoop] = field(default_factory=dict)
    behind: set[str] = field(default_factory=set)
    at: dict[str, int] = field(default_factory=dict)
    ends: dict[Ends, list[int]] = field(default_factory=dict)
    scans: set[int] = field(default_factory=set)

    def add(self, k: int, x: Tree) -> None:
        names = _names(x)
        sources = {n: None for name in names for n in self.dependences.sources(name)}
        needed = {self.at[n]: None for n in sources if n in self.at}
        late = not self.behind.isdisjoint(sources)
        if not isinstance(x, TreeLoop) or not self.has_steps(x):
            late = late or bool(needed)
        elif _is_scan(x):
            off = self.off(x, needed)
            if late or any(m in self.scans or self.needs_scan(m) for m in off):
                self.close()
                late = False
            for m in off:
                self.remove(m)
            self.join(k, x, names)
        elif not late:
            linked = [m for m in self.off(x, needed) if m in self.scans or m in needed]
            if not linked:
                self.join(k, x, names)
            else:
                late = bool(needed)
        if late:
            self.behind.update(names)

    def close(self) -> None:
        """The pipeline that is open is complete."""
        self.found.append(list(self.members.values()))
        for kept in (self.members, self.behind, self.at, self.ends, self.scans):
            kept.clear()

    def join(self, k: int, x: TreeLoop, names: list[str]) -> None:
        self.members[k] = x
        self.at.update(dict.fromkeys(names, k))
        self.ends.setdefault((x.lower, x.upper), []).append(k)
        if _is_scan(x):
            self.scans.add(k)

    def remove(self, k: int) -> None:
        x = self.members.pop(k, None)
        if x is not None:
            self.ends[x.lower, x.upper].remove(k)
            for name in _names(x):
                del self.at[name]

    def off(self, x: TreeLoop, needed: Iterable[int]) -> list[int]:
        """Members that do not fit it, in order."""
        others = [k for ends, at in self.ends.items() if not self.equal(ends, x) for k in at]
        late = [k for k in needed if not self.fits(self.members[k], x)]
        return sorted({*others, *late})

    def needs_scan(self, k: int) -> bool:
        """A member depends on a scan among them."""
        sources = (n for name in _names(self.members[k]) for n in self.dependences.sources(name))
        return any(self.at.get(n) in self.scans for n in sources)

    def equal(self, ends: Ends, x: TreeLoop) -> bool:
        same = self.dependences.relations.equal_for_all_sizes
        return all(a and b and same(a, b) for a, b in zip(ends, (x.lower, x.upper)))

    def has_steps(self, x: TreeLoop) -> bool:
        statements = [self.scop.statement(name) for name in _names(x)]
        bounded = x.lower is not None and x.upper is not None
        return bounded and not any(s.given or s.positions for s in statements)

    def fits(self, a: TreeLoop, b: TreeLoop) -> bool:
        """What `b` needs of `a`, of the same range, are no later steps."""
        mine = dict.fromkeys(_names(a))
        return all(
            self.keeps_steps(d, a, b)
            for y in _names(b)
            for x in self.dependences.sources(y)
            if x in mine
            for d in self.dependences.between(x, y)
        )

    def keeps_steps(self, d: Dependence, a: TreeLoop, b: TreeLoop) -> bool:
        """The source's iteration of `a` is not behind the sink's of `b`, for all sizes."""
        ends = ((d.source, a.value(d.source.name)), (d.sink, b.value(d.sink.name)))
        i, j = (s.position(value) for s, value in ends)
        if i < 0 or j < 0:
            return False
        return self.dependences.equal(d, i, j) or bool(
            self.dependences.relation(d).order_gt(IN, i, OUT, j).is_empty()
        )


def _names(x: Tree) -> list[str]:
    return [name for name, _ in leaves(x)]
