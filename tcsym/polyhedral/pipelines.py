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

from tcsym.index.expr import var
from tcsym.polyhedral.dependence import Dependence, Dependences
from tcsym.polyhedral.relations import IN, OUT
from tcsym.polyhedral.scop import Scop
from tcsym.polyhedral.tree import Sequence, Tree, TreeLoop, leaves


def pipelines(tree: Tree, scop: Scop, dependences: Dependences) -> dict[str, int]:
    """By variable of outermost loops, a number that those of a pipeline share: from 1.

    A pipeline has two loops in order at least; other nests may be in one, or stand between.
    """
    tops = tree.children if isinstance(tree, Sequence) else (tree,)
    if sum(map(_is_scan, tops)) < 2:
        return {}
    finding = _Finding(scop, dependences)
    for x in tops:
        finding.add(x)
    found = [m for m in (*finding.found, finding.members) if sum(map(_is_scan, m)) > 1]
    return {x.variable: k for k, m in enumerate(found, 1) for x in m}


def _is_scan(x: Tree) -> bool:
    return isinstance(x, TreeLoop) and x.order == "sequential"


class _Finding(Struct):
    """Nests in their order, as far as they were added.

    members: of the pipeline that is open. behind: what needs members, all steps of them perhaps.
    """

    scop: Scop
    dependences: Dependences
    found: list[list[TreeLoop]] = field(default_factory=list)
    members: list[TreeLoop] = field(default_factory=list)
    behind: list[Tree] = field(default_factory=list)

    def add(self, x: Tree) -> None:
        late = self.depends(x, self.behind)
        if not isinstance(x, TreeLoop) or not self.has_steps(x):
            late = late or self.depends(x, self.members)
        elif _is_scan(x):
            off = [m for m in self.members if not self.fits(m, x)]
            scans = [m for m in self.members if _is_scan(m)]
            if late or any(_is_scan(m) or self.depends(m, scans) for m in off):
                self.found.append(self.members)
                self.members, self.behind, late = [x], [], False
            else:
                self.members = [*(m for m in self.members if m not in off), x]
        elif not late:
            linked = [m for m in self.members if _is_scan(m) or self.depends(x, [m])]
            if all(self.fits(m, x) for m in linked):
                self.members.append(x)
            else:
                late = self.depends(x, linked)
        if late:
            self.behind.append(x)

    def has_steps(self, x: TreeLoop) -> bool:
        statements = [self.scop.statement(name) for name in _names(x)]
        bounded = x.lower is not None and x.upper is not None
        return bounded and not any(s.given or s.positions for s in statements)

    def depends(self, x: Tree, earlier: Iterable[Tree]) -> bool:
        before = {name for y in earlier for name in _names(y)}
        return any(not self.dependences.sources(n).isdisjoint(before) for n in _names(x))

    def fits(self, a: TreeLoop, b: TreeLoop) -> bool:
        """They have the same range, and what `b` needs of `a` are no later steps."""
        same = self.dependences.relations.equal_for_all_sizes
        ends = ((a.lower, b.lower), (a.upper, b.upper))
        return all(x and y and same(x, y) for x, y in ends) and all(
            self.keeps_steps(d, a, b)
            for x in _names(a)
            for y in _names(b)
            for d in self.dependences.between(x, y)
        )

    def keeps_steps(self, d: Dependence, a: TreeLoop, b: TreeLoop) -> bool:
        """The source's iteration of `a` is not behind the sink's of `b`, for all sizes."""
        ends = ((d.source, a.value(d.source.name)), (d.sink, b.value(d.sink.name)))
        i, j = (
            next((k for k, v in enumerate(s.iterators) if value == var(v)), None)
            for s, value in ends
        )
        if i is None or j is None:
            return False
        return self.dependences.equal(d, i, j) or bool(
            self.dependences.relation(d).order_gt(IN, i, OUT, j).is_empty()
        )


def _names(x: Tree) -> list[str]:
    return [name for name, _ in leaves(x)]
