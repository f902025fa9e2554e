# SPDX-License-Identifier: Apache-2.0
"""Reductions under a guard on a residue -> loops over the residue's classes, without the guard.

A transposed convolution by stride 2, `O(y) += (y-k) % 2 == 0 ? I((y-k)/2) * F(k) : 0`, adds
something at every other k only. With y = 2*Y + r, only k = 2*K + r do: for each r, a dense
convolution `I(Y-K) * F(2*K + r)`. The classes r are iterations of a loop outside the band, which
runs in order: one code serves all of them, and what is inside shares its work among threads. What k
leaves as a remainder is a formula in r and sizes.
"""

from __future__ import annotations

from math import gcd

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Read
from tcsym.index.expr import ZERO, Index, ceildiv, index, mod, of_atom, var
from tcsym.index.values import evaluate, substitute
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Loop, Node, Store, Update, Value
from tcsym.ir.traverse import loads, map_node, substitute_node
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import (
    find_loop,
    loops_around,
    replace_loop,
    statements_in,
)
from tcsym.schedule.analysis.names import Names, replace_private
from tcsym.schedule.split.residue_guards import Residue, guarded, simplified

MOST_SPLITS = 6  # of a kernel: each is a copy of its sums for each class


class _Classes(Struct, frozen=True):
    """The guard of all updates in the loop `reduced`. `parallel`: the other loop that it is about,
    if there is one."""

    residue: Residue
    reduced: Loop
    parallel: Loop | None

    @property
    def period(self) -> int:
        """Points of the parallel loop that far apart have the same guard."""
        assert self.parallel is not None
        n = self.residue.n
        return n // gcd(n, self.residue.e.coefficient(self.parallel.variable))


def split_residues(kernel: Kernel, names: Names) -> Kernel:
    """Every reduction runs over the points alone that its guard on a residue leaves."""
    for _ in range(MOST_SPLITS):
        classes = _find(kernel)
        if classes is None:
            break
        kernel = _split(kernel, classes, names)
    return kernel


def _find(kernel: Kernel) -> _Classes | None:
    for x, around in statements_in(kernel.body):
        if isinstance(x, Update) and around:
            for residue in _residues(kernel, x):
                classes = _classes(kernel, residue, around)
                if classes is not None:
                    return classes
    return None


def _residues(kernel: Kernel, x: Update) -> tuple[Residue, ...]:
    """Those in the guards of an update; none if a guard has a check of its own."""
    found = guarded(x.value, identity(x.op, kernel.buffer(x.buffer).dtype))
    asked = (r for e, _ in found.guards for r in loads(e))
    return () if any(any(r.checked) or r.unwritten for r in asked) else found.residues


def _classes(kernel: Kernel, residue: Residue, around: tuple[Loop, ...]) -> _Classes | None:
    moving = [y for y in around if residue.e.coefficient(y.variable) % residue.n]
    reduced = [y for y in moving if y.order == "reduction"]
    others = [y for y in moving if y.order != "reduction"]
    sizes = frozenset(kernel.sizes)
    if len(reduced) != 1 or len(others) > 1 or any(not _is_plain(y, sizes) for y in moving):
        return None
    if any(y.order != "parallel" for y in others):
        return None
    if gcd(residue.e.coefficient(reduced[0].variable), residue.n) != 1:
        return None
    for x, _ in statements_in(reduced[0].body):
        if not isinstance(x, Update) or residue not in _residues(kernel, x):
            return None
    return _Classes(residue, reduced[0], others[0] if others else None)


def _is_plain(loop: Loop, sizes: frozenset[str]) -> bool:
    return loop.kind == "serial" and loop.end_variables <= sizes


def _split(kernel: Kernel, classes: _Classes, names: Names) -> Kernel:
    """The loops by class, the guard gone, and each buffer private to what its loops became."""
    reduced, parallel = classes.reduced, classes.parallel
    first, sizes = ZERO, frozenset(kernel.sizes)
    new = {reduced.variable: frozenset((names.fresh(reduced.variable),))}
    r, tile = "", ""
    if parallel is not None:
        r, tile = names.fresh(parallel.variable), names.fresh(parallel.variable)
        new[parallel.variable] = frozenset((r, tile))
        first = parallel.lower + var(r)
    (step,) = new[reduced.variable]
    remainder = _remainder(classes, first, r)
    n = classes.residue.n

    def steps(x: Loop) -> Node:
        body = map_node(x.body, lambda y: _unguarded(kernel, y, classes.residue))
        body = substitute_node(body, {x.variable: x.lower + var(step) * n + remainder})
        upper = ceildiv(extent(x) - remainder, n)
        return replace(x, variable=step, lower=ZERO, upper=upper, body=body)

    body = replace_loop(kernel.body, reduced.variable, steps)
    if parallel is not None:
        own = frozenset(b.name for b in kernel.buffers if parallel.variable in b.private)
        body = _in_classes(body, parallel, classes.period, r, tile, own)
    kernel = replace_private(replace(kernel, body=body), new)

    def value(v: Value) -> Value:
        return simplified(v, sizes)

    body = replace_loop(kernel.body, r or step, lambda x: map_node(x, None, value))
    return replace(kernel, body=body)


def _unguarded(kernel: Kernel, x: Node, residue: Residue) -> Node:
    if not isinstance(x, Update):
        return x
    found = guarded(x.value, identity(x.op, kernel.buffer(x.buffer).dtype))
    return replace(x, value=found.without(residue).value())


def _in_classes(
    node: Node, loop: Loop, period: int, r: str, tile: str, own: frozenset[str]
) -> Node:
    """`loop` by points that are `period` apart, from point r on; all r around its perfect nest.

    `own`: buffers of which each point has its own elements; those of a class lie side by side.
    """

    def points(x: Loop) -> Node:
        at = x.lower + var(r) + var(tile) * period
        body = _with_own(x.body, own, {x.variable: var(tile)})
        body = substitute_node(body, {x.variable: at})
        upper = ceildiv(extent(x) - var(r), period)
        return replace(x, variable=tile, lower=ZERO, upper=upper, body=body)

    node = replace_loop(node, loop.variable, points)
    top = find_loop(node, tile)
    for x in reversed(loops_around(node, tile)):
        if x.body != top or x.order != "parallel" or x.kind != "serial":
            break
        top = x
    return replace_loop(
        node, top.variable, lambda x: Loop(r, ZERO, index(period), x, "serial", "sequential")
    )


def _with_own(node: Node, buffers: frozenset[str], values: dict[str, Index]) -> Node:
    """`values` substituted in the subscripts of `buffers`."""

    def moved(subscripts: tuple[Index, ...]) -> tuple[Index, ...]:
        return tuple(substitute(s, values) for s in subscripts)

    def statement(x: Node) -> Node:
        if isinstance(x, Store | Update) and x.buffer in buffers:
            return replace(x, subscripts=moved(x.subscripts))
        return x

    def value(v: Value) -> Value:
        if not isinstance(v, Read) or v.tensor not in buffers:
            return v
        subscripts = (substitute(s, values) if isinstance(s, Index) else s for s in v.subscripts)
        return replace(v, subscripts=tuple(subscripts))

    return map_node(node, statement, value)


def _remainder(classes: _Classes, first: Index, r: str) -> Index:
    """What the reduced loop's points, counted from its first, leave when divided by the modulus.

    `first`: the parallel loop's first point of the class r.
    """
    residue, reduced = classes.residue, classes.reduced
    own = {reduced.variable: reduced.lower}
    if classes.parallel is not None:
        own[classes.parallel.variable] = first
    n, step = residue.n, residue.e.coefficient(reduced.variable)
    e = index(residue.e.constant)
    for atom, c in residue.e.terms:
        if c % n:
            e = e + substitute(of_atom(atom), own) * c
    return _by_class(mod((residue.value - e) * pow(step, -1, n), n), r, n)


def _by_class(e: Index, r: str, n: int) -> Index:
    """`e` without floors if it is a line in r, 0 <= r < n, and depends on nothing else."""
    if e.variables() != {r}:
        return e
    values = [evaluate(e, {r: k}) for k in range(n)]
    step = values[1] - values[0]
    line = all(v == values[0] + step * k for k, v in enumerate(values))
    return var(r) * step + values[0] if line else e
