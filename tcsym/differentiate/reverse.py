# SPDX-License-Identifier: Apache-2.0
"""Single assignment -> statements that compute gradients, from the last one of the program back.

Every definition of a tensor is a place where its gradient must be complete: all terms that its
readers gave are summed there. Terms for tensors that a loop does not define are summed behind it,
over its iterations at once; a recurrence adds to the gradients of earlier steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.activity import Activity, certain_reads, is_open, smooth_reads
from tcsym.differentiate.algebra import (
    TRUTH,
    Substituting,
    both,
    converted,
    is_constant,
    positions,
    truth,
    wide,
)
from tcsym.differentiate.chain import contributions
from tcsym.differentiate.gradient import Place, added, definition
from tcsym.differentiate.names import Names
from tcsym.differentiate.needed import needed_items, with_all
from tcsym.differentiate.places import range_of
from tcsym.differentiate.segments import Segmented
from tcsym.differentiate.single import Single
from tcsym.differentiate.terms import Sum, Term, extents_of
from tcsym.differentiate.transpose import transposed
from tcsym.differentiate.vanishing import Forms
from tcsym.differentiate.winners import are_alone, can_go_on, through, won
from tcsym.differentiate.witness import Witness, shared, witness
from tcsym.frontend.program import (
    Cast,
    Expr,
    For,
    If,
    IndexValue,
    Item,
    Range,
    Read,
    Statement,
    Tensor,
    dtype_of,
    reads,
    statements,
    variables_of,
)
from tcsym.index.expr import ZERO, Atom, Condition, Index, Max, Min, negate, of_atom, var
from tcsym.index.quasi_affine import odd_atoms
from tcsym.index.values import map_atoms
from tcsym.types import DType


class _Frame(Struct):
    """A block that is being written: `later` goes behind what is being written into it now.

    guard: of an arm of `if`, which is said as in `Write`.
    """

    depth: int
    guard: Condition | None
    arm: tuple[int, bool] | None = None
    items: list[Item] = field(default_factory=list)
    later: list[Item] = field(default_factory=list)


class Reverse(Struct):
    """`run` gives the statements. `beside`: what belongs behind a statement of the program."""

    segmented: Segmented
    names: Names
    activity: Activity
    sizes: frozenset[str]
    given: dict[str, Tensor]  # output -> the argument that is its gradient
    forms: Forms
    wrt: dict[str, Tensor]  # input -> the result that is its gradient
    taken: frozenset[str]  # what segments do not compute again
    again: frozenset[str]  # results that terms are compared with only if computed beside them
    pending: dict[str, list[Term]] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    beside: dict[int, tuple[Statement, ...]] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)
    numbers: dict[Index, str] = field(default_factory=dict)  # extent -> tensor
    maps: dict[str, Statement] = field(default_factory=dict)  # what is assigned, and not given
    frames: list[_Frame] = field(default_factory=list)
    loops: tuple[For, ...] = ()

    @property
    def single(self) -> Single:
        return self.segmented.single

    def run(self) -> list[Item]:
        self.frames = [_Frame(0, None)]
        known = ((n, s) for n, s in self.forms.statements.items() if n not in self.taken)
        self.maps = {n: s for n, s in known if s.op == "=" and can_go_on(s)}
        self._block(self.single.items)
        for name, result in self.wrt.items():
            self._result(name, result)
        items = self.frames[0].items
        used = {r.tensor for s in statements(tuple(items)) for e in s.expressions for r in reads(e)}
        unused = {*self.numbers.values()} - used
        return [s for s in items if not (isinstance(s, Statement) and s.target in unused)]

    # ---- walking back

    def _block(self, items: tuple[Item, ...]) -> None:
        for item in reversed(items):
            self._open_all(item)
            match item:
                case Statement():
                    self._statement(item)
                case For():
                    self._for(item)
                case If():
                    self._if(item)
                case _:
                    assert_never(item)
            frame = self.frames[-1]
            frame.items += frame.later
            frame.later = []

    def _for(self, loop: For) -> None:
        self.loops = (*self.loops, loop)
        self.frames.append(_Frame(len(self.loops), None))
        self._block(loop.body)
        self.loops = self.loops[:-1]
        body = self.frames.pop().items
        if body and loop.variable in self.segmented.inner:
            forward = with_all(loop.body, self.beside)
            body = [*needed_items(forward, tuple(body), self.taken)[0], *body]
        if body:
            self.frames[-1].items.append(self._turned(loop, tuple(body)))

    def _turned(self, loop: For, body: tuple[Item, ...]) -> For:
        """The loop from its last iteration to its first. Positions on the left are affine in loop
        variables, so that of ends that are extrema of such one argument is what it turns about."""

        def plain(a: Atom) -> Index | None:
            return a.args[0] if isinstance(a, Min | Max) and not is_of_sizes(a) else None

        def is_of_sizes(a: Atom) -> bool:
            return of_atom(a).variables() <= self.sizes

        about = map_atoms(loop.lower, plain) + map_atoms(loop.upper, plain)
        back = {loop.variable: about - 1 - var(loop.variable)}
        ends = about - loop.upper, about - loop.lower
        return For(loop.variable, *ends, Substituting(back).items(body), loop.span)

    def _if(self, item: If) -> None:
        arms: list[tuple[Item, ...]] = []
        for condition, body, which in (
            (item.condition, item.then, True),
            (negate(item.condition), item.orelse, False),
        ):
            self.frames.append(_Frame(len(self.loops), condition, (id(item), which)))
            self._block(body)
            arms.append(tuple(self.frames.pop().items))
        then, orelse = arms
        if then:
            self.frames[-1].items.append(If(item.condition, then, orelse))
        elif orelse:
            self.frames[-1].items.append(If(negate(item.condition), orelse))

    def _statement(self, s: Statement) -> None:
        if s.target not in self.activity.active or self._goes_on(s):
            return
        if s.target not in self.opened:
            self._complete(s)
        stored = self.gradients.get(s.target)
        if stored is None:
            return
        dtype = self.single.tensors[s.target].dtype.accumulator
        gradient = converted(Read(stored.name, positions(s), stored.dtype), dtype)
        value = wide(s.value)
        result = value
        whole = gradient
        found: Witness | None = None
        if s.op in ("*=", "min=", "max="):
            again = s.target in self.again
            found = witness(s, self.single.tensors, self.names, again)
            self.beside[id(s)] = found.statements
            gradient = shared(gradient, wide(found.share))
        elif s.op == "=":
            result = wide(Read(s.target, s.subscripts, self.single.tensors[s.target].dtype))
        gradient = converted(gradient, value.dtype)  # type: ignore[union-attr]
        extents = self._extents(s)
        alone = contributions(value, converted(whole, dtype_of(value)), result, self._is_wanted)
        each = Counter(zip(contributions(value, gradient, result, self._is_wanted), alone))
        for (c, d), times in each.items():  # of X(i) * X(i), twice the same
            r, c, d = c.read, c.times(times), d.times(times)
            if is_constant(c.gradient, 0):
                continue
            known = extents | (self._subscripted((c.gradient,)) if s.given else {})
            term = Term(r.tensor, r.subscripts, c.gradient, c.guard, s.walked, s.given, known)
            if found is not None and found.winner:
                term = replace(term, won=won(term, d, found, self.maps, self.names))
            self._contribute(term)

    def _goes_on(self, s: Statement) -> bool:
        """Whether all that the target of `s` gets went on to what `s` reads, element by element."""
        terms = self.pending.get(s.target, [])
        private = len(self.activity.definitions.get(s.target, ())) == 1 and len(self.frames) == 1
        if not terms or not private or not can_go_on(s):
            return False
        if s.target in self.given or s.target in self.opened or s.target in self.wrt:
            return False
        if not are_alone(terms, self.single.tensors[s.target].shape):
            return False
        found = [through(s, t, self._is_wanted, self.names, self.maps) for t in terms]
        if None in found:
            return False
        del self.pending[s.target]
        for term in (t for each in found if each is not None for t in each):
            if not is_constant(term.value, 0):
                self._contribute(term)
        return True

    def _extents(self, s: Statement) -> dict[str, Index]:
        """Of index variables that subscript what is read at every point of `s`."""
        return self._subscripted((s.value, *s.read_positions)) if s.given else {}

    def _subscripted(self, evaluated: Sequence[Expr]) -> dict[str, Index]:
        """Extents of index variables that subscript what is read for all of these."""
        found: dict[str, Index] = {}
        for r in (r for e in evaluated for r in certain_reads(e)):
            tensor = self.single.tensors.get(r.tensor)
            found |= {} if tensor is None else extents_of(r.subscripts, tensor.shape)
        return found

    def _is_wanted(self, r: Read) -> bool:
        return r.tensor in self.activity.active

    # ---- terms

    def _contribute(self, term: Term) -> None:
        home = max(self.activity.home(term.tensor, self.loops), self._least_home(term))
        is_now = term.tensor in self.opened
        outside: Expr = TRUTH
        lengths = self.segmented.lengths
        whole = [lengths[f.variable][1] for f in self.loops[home:] if f.variable in lengths]
        made = self.activity.definitions.get(term.tensor, ())
        around = () if is_now or len(made) != 1 else made[0].arms  # of where it is defined, too
        for frame in self.frames:
            if frame.guard is None or frame.guard in whole or frame.arm in around:
                continue
            if frame.depth > home or not is_now:
                outside = both(truth(frame.guard), outside)
        summed = [
            Range(f.variable, f.lower, lengths.get(f.variable, (f.upper,))[0], True)
            for f in self.loops[home:]
        ]
        one = term.won
        if one is not None:  # known at all points, not in one segment only
            moved = replace(one, guard=both(outside, one.guard), domain=(*summed, *one.domain))
            one = None if self.loops and self.segmented.inner else moved
        guard = both(outside, term.guard)
        term = replace(term, guard=guard, domain=(*summed, *term.domain), won=one)
        term = self._scattered(term)
        if not is_now:
            self.pending.setdefault(term.tensor, []).append(term)
            return
        outer = [f for f in self.frames if f.depth <= home]
        frame = outer[-1]
        item = added(self._transposed(term, outer), self.gradients[term.tensor].name)
        where = frame.items if frame is self.frames[-1] else frame.later
        where.append(item)

    def _least_home(self, term: Term) -> int:
        """What a segment adds to a gradient is added there, before its states are overwritten; at
        a position that no index variables say, such as S*c + u, in the iteration that has it."""
        if not self.loops or self.loops[0].variable not in self.segmented.inner:
            return 0
        said = set[str]()
        for e in term.subscripts:
            if not isinstance(e, Index):
                said |= variables_of(e)
            elif any(of_atom(a).variables() - self.sizes for a in odd_atoms(e)):
                said |= e.variables()
        return max([1, *(k for k, f in enumerate(self.loops, 1) if f.variable in said)])

    def _scattered(self, term: Term) -> Term:
        """Segments, `X(j)` with j in at(b):at(b+1) and b summed, are added at positions that a
        tensor holds: then each element is met once, not asked for in every segment."""
        ends = {g.name: variables_of(g.value) for g in term.given}
        exact = {str(e) for e in term.subscripts if isinstance(e, Index)}
        summed = {r.variable for r in term.domain} - exact
        for d, e in enumerate(term.subscripts if ends else ()):
            r = range_of(e, term.domain) if isinstance(e, Index) else None
            used = frozenset() if r is None else r.lower.variables() | r.upper.variables()
            if r is None or not any(ends.get(v, frozenset()) & summed for v in used):
                continue
            extent = self.single.tensors[term.tensor].shape[d]
            number = Read(self._numbers(extent), (var(r.variable),), DType.INT32)
            at = Cast(number, DType.INT64)
            subscripts = (*term.subscripts[:d], at, *term.subscripts[d + 1 :])
            extents = {**term.extents, r.variable: extent}
            term = replace(term, subscripts=subscripts, extents=extents)
        return term

    def _numbers(self, extent: Index) -> str:
        """A tensor whose elements are their positions: what is read there may stand on the left."""
        if extent not in self.numbers:
            name = self.numbers[extent] = self.names.fresh("at")
            self.single.tensors[name] = Tensor(name, DType.INT32, (extent,), "temporary")
            (v,) = self.names.variables(1)
            domain, value = (Range(v, ZERO, extent, False),), IndexValue(var(v), DType.INT32)
            self.frames[0].items.append(Statement("", name, (var(v),), "=", False, domain, value))
        return self.numbers[extent]

    def _transposed(
        self, term: Term, frames: Sequence[_Frame], written: Mapping[int, Index] = {}
    ) -> Sum:
        """`frames`: those around the sum. `written` as `transposed` says."""
        shape = self.single.tensors[term.tensor].shape
        around = {f.variable: (f.lower, f.upper) for f in self.loops[: frames[-1].depth]}
        known = [f.guard for f in frames if f.guard is not None]
        whole = term, shape, self.names, self.sizes, around, self._numbers, known, written
        return transposed(*whole)

    # ---- gradients

    def _open_all(self, item: Item) -> None:
        """Gradients that `item` adds to while it uses them are defined in front of it."""
        inner = [self.segmented.inner.get(f.variable) for f in self.loops]
        if len(inner) > 1 or None in inner:
            return
        private = frozenset[str]().union(*self.segmented.inner.values())
        candidates = (inner[0] or frozenset()) if inner else self.activity.active - private
        is_cut = isinstance(item, For) and item.variable in self.segmented.inner
        used = {r.tensor for s in statements((item,)) for r in smooth_reads(s.value)}
        for name in self._in_order(candidates):
            if name in self.opened or name not in self.activity.active:
                continue
            if self._is_written(name, item):
                adds = is_open(name, self.single, self.activity, self.single.tensors)
            else:
                adds = is_cut and name in used
            if adds:
                self.opened.add(name)
                self._define(name, {}, force=True)

    def _in_order(self, names: frozenset[str]) -> list[str]:
        known = dict.fromkeys((*self.activity.definitions, *self.wrt))
        return [n for n in known if n in names]

    def _is_written(self, name: str, item: Item) -> bool:
        found = self.activity.definitions.get(name, ())
        return any(_contains(item, w.statement) for w in found)

    def _complete(self, s: Statement) -> None:
        """The gradient of what `s` defines, all terms of which are known."""
        ranges = {r.variable for r in s.domain}
        fixed = {d: e for d, e in enumerate(s.subscripts) if not e.variables() & ranges}
        self._define(s.target, fixed, force=False)

    def _define(self, name: str, fixed: dict[int, Index], force: bool) -> None:
        terms = self.pending.pop(name, [])
        given = self.given.get(name)
        if not terms and given is not None and not (force and self._is_read(name)):
            self.gradients[name] = given
            return
        if not terms and not force:
            return
        tensor = self.single.tensors[name]
        dtype = tensor.dtype.accumulator
        made = self.wrt.get(name)
        if made is None or made.dtype is not dtype:
            wanted = f"d{name}" if given is None and made is None else f"d{name}_sum"
            made = Tensor(self.names.fresh(wanted), dtype, tensor.shape, "temporary")
            self.single.tensors[made.name] = made
        base = None if given is None else Read(given.name, (), given.dtype)
        sums = [self._transposed(t, self.frames, fixed) for t in terms]
        if not self.loops and not fixed:
            sums = [s for s in sums if not self.forms.vanish([s])]
            nothing = not sums and base is None
            if not force and (nothing or self.forms.define(made.name, sums, base)):
                return
        place = Place(made.name, dtype, tensor.shape, fixed)
        found = definition(place, sums, base, self.names)
        alias = _copied(found)
        if alias is not None and not force:
            self.gradients[name] = replace(made, name=alias.tensor, dtype=alias.dtype)
            return
        self.gradients[name] = made
        self.frames[-1].items += found

    def _is_read(self, name: str) -> bool:
        """Whether what the program computes reads a tensor."""
        found = [s for s in statements(self.single.items) if s.target in self.activity.active]
        return any(r.tensor == name for s in found for r in smooth_reads(s.value))

    def _result(self, name: str, result: Tensor) -> None:
        tensor = self.single.tensors[name]
        sums = [self._transposed(t, self.frames) for t in self.pending.pop(name, [])]
        dtype = tensor.dtype.accumulator
        sums = [s for s in sums if not self.forms.vanish([s])]
        items = self.frames[0].items
        if name in self.opened:
            known = self.gradients[name]
            if known is not result:
                items.append(self._rounded(result, known))
            return
        if dtype is tensor.dtype:
            items += definition(Place(result.name, dtype, tensor.shape, {}), sums, None, self.names)
            return
        wide_name = self.names.fresh(f"{result.name}_sum")
        self.single.tensors[wide_name] = Tensor(wide_name, dtype, tensor.shape, "temporary")
        found = definition(Place(wide_name, dtype, tensor.shape, {}), sums, None, self.names)
        if len(found) == 1 and isinstance(s := found[0], Statement) and s.op == "=":
            items.append(replace(s, target=result.name, value=converted(s.value, tensor.dtype)))
            return
        items += [*found, self._rounded(result, self.single.tensors[wide_name])]

    def _rounded(self, result: Tensor, sums: Tensor) -> Statement:
        variables = self.names.variables(len(result.shape))
        left = tuple(map(var, variables))
        domain = tuple(Range(v, ZERO, e, False) for v, e in zip(variables, result.shape))
        value = converted(Read(sums.name, left, sums.dtype), result.dtype)
        return Statement("", result.name, left, "=", False, domain, value)


def _contains(item: Item, s: Statement) -> bool:
    match item:
        case Statement():
            return item is s
        case For(_, _, _, body):
            return any(_contains(x, s) for x in body)
        case If(_, then, orelse):
            return any(_contains(x, s) for x in (*then, *orelse))
        case _:
            assert_never(item)


def _copied(found: list[Item]) -> Read | None:
    """What a gradient is, element by element, if it is that of something else."""
    match found:
        case [Statement(op="=", value=(Read() as r) | Cast(Read() as r)) as s]:
            return r if r.subscripts == s.subscripts and r.dtype.is_float else None
    return None
