# SPDX-License-Identifier: Apache-2.0
"""Guarded products whose weights turn out finite -> guards around the image alone, or around all.

0 times an infinity is no 0. So `c ? I*F : 0` must keep F out where c fails, which costs more than
the products, and `(c ? I : 0) * F` must let it in, also where c leaves nothing of I. Where all of
F is finite, as integers are, or as the call finds out in one pass over F, both are the same: then
guards on residues go around the product (`split_residues`), all others around the image
(`pad_reads`). Where that was asked, the nest as it was stands beside the new one. The image is what
a window slides over, or what the rows of a product of matrices load: a mask, or a triangle, then
costs what filling a panel costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.affine import as_condition
from tcsym.frontend.program import Binary, Const, Expr, Read, dtype_of
from tcsym.index.expr import ONE, Condition, all_of, any_of, condition_variables, eq, ge, var
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Branch, Kernel, Loop, Node, Update
from tcsym.ir.traverse import loads, map_node, walk
from tcsym.schedule.analysis.access import accesses, subscript_variables, value_variables
from tcsym.schedule.analysis.casts import (
    guard_outside,
    is_finite,
    keeps_finite,
    rebuilt,
    under_casts,
)
from tcsym.schedule.analysis.identities import identity
from tcsym.schedule.analysis.loops import find_loop, replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.sliding import slides
from tcsym.schedule.split.guarded_products import is_inside
from tcsym.schedule.split.residue_guards import Guarded, guarded
from tcsym.schedule.version.versioning import duplicate
from tcsym.trees import preorder
from tcsym.types import DType

LEAST_USES = 16  # of a weight: else asking for it costs too much


class _Product(Struct, frozen=True):
    """`image` where all of `guards` hold, times `weight`: inside of `term`, which converts it."""

    guards: Guarded
    image: Expr
    weight: Expr
    term: Expr

    @property
    def read(self) -> Read:
        """The weight before it is converted."""
        read = under_casts(self.weight)
        assert isinstance(read, Read)
        return read

    @property
    def is_asked(self) -> bool:
        """Whether the weight is finite depends on its values."""
        return not is_finite(self.weight)

    def value(self) -> Expr:
        """As if the weight were finite."""
        residues = set(self.guards.residues)
        outside = tuple(g for g in self.guards.guards if residues & set(_alone(g).residues))
        inside = tuple(g for g in self.guards.guards if g not in outside)
        dtype = dtype_of(self.weight)
        element = under_casts(self.image)
        kept = Guarded(inside, element, Const(0, dtype_of(element))).value()
        product = Binary("mul", rebuilt(self.image, kept), self.weight, dtype)
        return Guarded(outside, rebuilt(self.term, product), self.guards.neutral).value()


def _alone(guard: tuple[Expr, bool]) -> Guarded:
    return Guarded((guard,), Const(0, DType.BOOL), None)


def assume_finite(kernel: Kernel, nests: tuple[str, ...], names: Names) -> Kernel:
    """Each of the nests with guarded products that are worth it in two versions."""
    for nest in nests:
        loop = find_loop(kernel.body, nest)
        found = {
            x: p
            for x, around in walk(loop)
            if isinstance(x, Update) and (p := _product(kernel, x, around)) is not None
        }
        if found:
            kernel = _with_version(kernel, loop, found, names)
    return kernel


def exceptional_nests(kernel: Kernel) -> tuple[Node, ...]:
    """The versions of nests for weights that are not finite."""
    flags = {b.finite for b in kernel.buffers if b.finite}
    branches = (x for x, _ in walk(kernel.body) if isinstance(x, Branch))
    return tuple(
        x.orelse
        for x in branches
        if x.orelse is not None and flags & condition_variables(x.condition)
    )


def _with_version(
    kernel: Kernel, loop: Loop, found: dict[Update, _Product], names: Names
) -> Kernel:
    flags: dict[str, None] = {}
    for p in (p for p in found.values() if p.is_asked):
        b = kernel.buffer(p.read.tensor)
        flag = b.finite or f"{b.name}.finite"
        flags[flag] = None
        uses = _uses(loop, p.read)
        scanned = any_of((b.scanned, uses)) if b.finite else uses
        kernel = kernel.with_buffer(replace(b, finite=flag, scanned=scanned))
    copy: Node = loop
    if flags:
        kernel, copy, _ = duplicate(kernel, loop, names)

    def change(x: Node) -> Node:
        product = found.get(x) if isinstance(x, Update) else None
        return x if product is None else replace(x, value=product.value())

    new = map_node(loop, change)
    condition = all_of(eq(var(flag), 1) for flag in flags)
    versions = Branch(condition, new, copy) if flags else new
    body = replace_loop(kernel.body, loop.variable, lambda _: versions)
    return replace(kernel, body=body)


def _uses(loop: Loop, weight: Read) -> Condition:
    """Every element of the weight is used often, as far as extents do not depend on loops."""
    used, total = subscript_variables(weight.subscripts), ONE
    around = [x for x, _ in walk(loop) if isinstance(x, Loop)]
    names = {x.variable for x in around}
    for x in around:
        if x.variable not in used and not extent(x).variables() & names:
            total = total * extent(x)
    return ge(total, LEAST_USES)


def _product(kernel: Kernel, x: Update, around: tuple[Loop, ...]) -> _Product | None:
    """The term of a sum, if a version for finite weights would be another."""
    dtype = kernel.buffer(x.buffer).dtype
    neutral = identity("add", dtype)
    outer = guarded(guard_outside(x.value), neutral)  # type: ignore[arg-type]
    term = under_casts(outer.term)
    if x.op != "add":
        return None
    for a, b in _splits(term):
        inner = guarded(a, Const(0, dtype_of(term)))
        guards = Guarded((*outer.guards, *inner.guards), a, neutral)
        changes = inner.residues or len(outer.residues) < len(outer.guards)
        weight = under_casts(b)
        if not changes or not isinstance(weight, Read) or not _is_weight(kernel, b, around):
            continue
        image = under_casts(inner.term)
        if _slides(image, guards, around) or _are_rows(image, guards, weight, around):
            return _Product(guards, inner.term, b, outer.term)
    return None


def _splits(e: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Image and weight whose product it may be. docs/decisions/0017: factors are free."""
    if isinstance(under_casts(e), Read):  # under a guard: a product with 1 or 0
        yield Const(1, dtype_of(e)), e
    for x in preorder(_Split(None, e), _Split.inside):
        if x.image is not None:
            yield x.image, x.weight


class _Split(Struct, frozen=True):
    """`weight` times `image`, or nothing."""

    image: Expr | None
    weight: Expr

    def inside(self) -> list[_Split]:
        """With a factor of the weight taken to the image."""
        e = self.weight
        if not isinstance(e, Binary) or e.op != "mul" or e.exact:
            return []
        if self.image is not None and not e.dtype.is_float:
            return []
        sides = ((e.left, e.right), (e.right, e.left))
        return [_Split(self._times(a, e), b) for a, b in sides]

    def _times(self, a: Expr, e: Binary) -> Expr:
        return a if self.image is None else replace(e, left=self.image, right=a)


def _is_affine(guard: tuple[Expr, bool]) -> bool:
    return as_condition(guard[0]) is not None


def _is_weight(kernel: Kernel, e: Expr, around: tuple[Loop, ...]) -> bool:
    """An argument that is only read, finite or of a type that is scanned, inside at every point."""
    r = under_casts(e)
    assert isinstance(r, Read)
    b = kernel.buffer(r.tensor)
    argument = b.space == "argument" and b.strides is None
    read_only = not any(a.written and a.buffer == b.name for a in accesses(kernel.body))
    scanned = b.dtype.is_float and keeps_finite(e)
    return argument and read_only and (scanned or is_finite(e)) and is_inside(kernel, r, around)


def _slides(image: Expr, guards: Guarded, around: tuple[Loop, ...]) -> bool:
    """The image is an element that a window moves over, and what else moves with its subscripts;
    its guards are known to all passes."""
    reads = loads(image)
    if any(any(r.checked) for r in reads):
        return False
    window = [x for x in around if x.order == "reduction"]
    moving = [x.variable for x in around if x.order == "parallel"]
    affine = all(_is_affine(g) for g in guards.guards)
    sliding = [r for r in reads if any(slides(s, v, window) for s in r.subscripts for v in moving)]
    moved = value_variables(image)
    return affine and any(subscript_variables(r.subscripts) >= moved for r in sliding)


def _both(a: Expr, b: Expr) -> Expr:
    return Binary("and", a, b, DType.BOOL)


def _are_rows(image: Expr, guards: Guarded, weight: Read, around: tuple[Loop, ...]) -> bool:
    """Image and weight have a loop each that the other lacks; a panel can hold image and guards.

    Of an image of ones, the guards are all.
    """
    parallel = frozenset(x.variable for x in around if x.order == "parallel")
    sums = frozenset(x.variable for x in around if x.order == "reduction")
    conditions = [e for e, _ in guards.guards]
    masks = image if loads(image) else reduce(_both, conditions)
    rows, columns = value_variables(masks), subscript_variables(weight.subscripts)
    own = (rows - columns) & parallel and (columns - rows) & parallel
    held = all(value_variables(e) & (parallel | sums) <= rows for e in conditions)
    reads = [r for e in (image, *conditions) for r in loads(e)]
    return bool(own and rows & columns & sums) and held and not any(any(r.checked) for r in reads)
