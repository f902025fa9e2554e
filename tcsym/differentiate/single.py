# SPDX-License-Identifier: Apache-2.0
"""Program -> the same in single assignment: each element of each tensor is written at most once.

Then every value that the derivative needs is still there when it needs it. A tensor that a loop
replaces in every iteration gets a dimension for the iterations; one that straight code replaces,
another name. What is so already stays as it is, names and all: steps of a state, for instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.differentiate.accumulate import (
    Tensors,
    own_subscripts,
    reduces,
    without_accumulation,
)
from tcsym.differentiate.algebra import reads_replaced, select, truth, with_indices
from tcsym.differentiate.halves import in_float
from tcsym.differentiate.kept_once import kept_once
from tcsym.differentiate.names import Names, Renamed
from tcsym.differentiate.places import Bounds, are_single, is_at_least, least, range_of, writes
from tcsym.frontend.program import (
    Expr,
    For,
    If,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    Trap,
    reads,
    statements,
)
from tcsym.index.expr import ZERO, Index, all_of, eq, ge, lt, maximum, var


class Single(Struct, frozen=True):
    """`items` write each element once; inputs and outputs have the names they had.

    copied: names of tensors that hold a copy of one for each step of a loop, although the steps
    write parts of it only, with what there is to say of that.
    """

    items: tuple[Item, ...]
    tensors: Tensors
    copied: Mapping[str, Trap] = {}


class _At(Struct, frozen=True):
    """Where the values of a tensor are now: `name(prefix, subscripts)`."""

    name: str
    prefix: tuple[Index, ...] = ()


Places = dict[str, _At]


def single_assignment(program: Program, names: Names) -> Single:
    tensors = {t.name: t for t in program.tensors}
    items = without_accumulation(program.body, tensors, names)
    written = list(writes(items))
    several = [
        t for t in tensors if not are_single([w for w in written if w.statement.target == t])
    ]
    items, once = kept_once(items, several, tensors, program.sizes, names)
    moved = {t for t in several if t not in once}
    made = _Versions(items, tensors, names, frozenset(moved))
    places: Places = {}
    found = made.items(items, places, ())
    last: dict[str, str] = {}
    for t in program.outputs:
        if t.name in moved and not places[t.name].prefix:
            last[places[t.name].name] = t.name
        elif t.name in moved:
            found.append(made.copy(places[t.name], _At(t.name), t))
    kept = {n: t for n, t in tensors.items() if n not in moved or t.role == "output"}
    kept = {n: t for n, t in kept.items() if n not in last}
    arguments = {t.name for t in (*program.inputs, *program.outputs)}
    single = in_float(Renamed(last).items(tuple(found)), kept, arguments)
    return Single(single, kept, made.copied())


def step_of(loop: For, outer: tuple[For, ...]) -> tuple[Index, Index, Index]:
    """Of a loop: the number of an iteration from 0, its first value over all, how many there are.

    Bounds that use outer loop variables count with their hull.
    """
    bounds = _bounds(outer)
    lower = least(loop.lower, bounds)
    upper = least(-loop.upper, bounds)
    lower = loop.lower if lower is None else lower
    upper = loop.upper if upper is None else -upper
    return (
        var(loop.variable) - lower,
        lower,
        maximum(upper - lower, 0) if lower.terms else upper - lower,
    )


def _bounds(loops: tuple[For, ...]) -> Bounds:
    return {f.variable: (f.lower, f.upper) for f in loops}


class _Versions(Struct, frozen=True):
    body: tuple[Item, ...]
    tensors: Tensors
    names: Names
    moved: frozenset[str]
    versions: dict[str, str] = field(default_factory=dict)  # those that loops have: of what
    partial: dict[str, tuple[Statement, tuple[For, ...]]] = field(default_factory=dict)

    def copied(self) -> dict[str, Trap]:
        said = {name: _copied(name, *x) for name, x in self.partial.items()}
        return {v: said[name] for v, name in self.versions.items() if name in said}

    def items(self, items: tuple[Item, ...], places: Places, loops: tuple[For, ...]) -> list[Item]:
        """`items` with versions for tensors; `places` are then those behind them."""
        found: list[Item] = []
        for item in items:
            match item:
                case Statement():
                    found += self._statement(item, places, loops)
                case For():
                    found += self._for(item, places, loops)
                case If():
                    found.append(self._if(item, places, loops))
                case _:
                    assert_never(item)
        return found

    def version(self, t: Tensor, loops: tuple[For, ...], more: int = 0) -> _At:
        """A new tensor for values of `t`, with a dimension for each loop; the last has `more`."""
        steps = [step_of(f, loops[:k]) for k, f in enumerate(loops)]
        extents = [n for _, _, n in steps]
        if more:
            extents[-1] = extents[-1] + more
        name = self.names.version(t.name)
        self.tensors[name] = Tensor(name, t.dtype, (*extents, *t.shape), "temporary")
        if loops:
            self.versions[name] = t.name
        return _At(name, tuple(e for e, _, _ in steps))

    def copy(self, source: _At, target: _At, t: Tensor) -> Statement:
        variables = [var(v) for v in self.names.variables(len(t.shape))]
        domain = tuple(
            Range(next(iter(v.variables())), ZERO, extent, False)
            for v, extent in zip(variables, t.shape)
        )
        value = Read(source.name, (*source.prefix, *variables), t.dtype)
        left = (*target.prefix, *variables)
        return Statement("", target.name, left, "=", False, domain, value)

    # ---- statements

    def _statement(self, s: Statement, places: Places, loops: tuple[For, ...]) -> list[Item]:
        def read(r: Read) -> Expr:
            at = places.get(r.tensor)
            if at is None:
                return r
            return replace(r, tensor=at.name, subscripts=at.prefix + r.subscripts)

        s = reads_replaced(s, read)
        if s.target not in self.moved:
            return [s]
        t = self.tensors[s.target]
        if _is_whole(s, t):
            at = places[t.name] = self.version(t, loops)
            return [replace(s, target=at.name, subscripts=at.prefix + s.subscripts)]
        found: list[Item] = []
        if reduces(s):
            own = tuple(r for r, _ in own_subscripts(s))
            part = Tensor(t.name, t.dtype, tuple(r.upper for r in own), "temporary")
            at = self.version(part, loops)
            left = at.prefix + tuple(var(r.variable) for r in own)
            found.append(replace(s, target=at.name, subscripts=left))
            domain = tuple(replace(r, at=None) for r in s.domain if not r.reduced)
            s = replace(
                s,
                op="=",
                initialise=False,
                domain=domain,
                value=Read(at.name, left, t.dtype),
                given=(),
            )
        old = places.get(t.name)
        at = places[t.name] = self.version(t, loops)
        if any(f.variable in e.variables() for f in loops for e in s.subscripts):
            self.partial.setdefault(t.name, (s, loops))
        return [*found, self._merged(s, t, old, at)]

    def _merged(self, s: Statement, t: Tensor, old: _At | None, at: _At) -> Statement:
        """All of a tensor, of which `s` writes a part: the new value there, else the old one."""
        variables = [var(v) for v in self.names.variables(len(t.shape))]
        conditions, values, domain = [], {}, []
        for v, e, extent in zip(variables, s.subscripts, t.shape):
            r = range_of(e, s.domain)
            domain.append(Range(next(iter(v.variables())), ZERO, extent, False))
            if r is None:
                conditions.append(eq(v, e))
                continue
            values[r.variable] = v
            if r.lower != ZERO:
                conditions.append(ge(v, r.lower))
            if r.upper != extent:
                conditions.append(lt(v, r.upper))
        value = with_indices(s.value, values)
        if old is not None:
            before = Read(old.name, (*old.prefix, *variables), t.dtype)
            guard = truth(all_of(conditions))
            value = select(guard, value, before)
        left = (*at.prefix, *variables)
        return replace(s, target=at.name, subscripts=left, domain=tuple(domain), value=value)

    # ---- loops and branches

    def _for(self, loop: For, places: Places, loops: tuple[For, ...]) -> list[Item]:
        before: list[Item] = []
        inside = (*loops, loop)
        step, first, _ = step_of(loop, loops)
        prefix = tuple(step_of(f, loops[:k])[0] for k, f in enumerate(loops))
        assigned = list(dict.fromkeys(s.target for s in statements(loop.body)))
        carried: dict[str, _At] = {}
        inner = dict(places)
        for name in assigned:
            if name not in self.moved or self._is_local(name, loop):
                continue
            t = self.tensors[name]
            at = carried[name] = self.version(t, inside, more=1)
            if name in places:
                start = _At(at.name, (*prefix, loop.lower - first))
                before.append(self.copy(places[name], start, t))
            inner[name] = at
        body = self.items(loop.body, inner, inside)
        for name, at in carried.items():
            target = _At(at.name, (*prefix, step + 1))
            body = self._ended(body, inner[name], target, self.tensors[name])
            runs = is_at_least(loop.upper - loop.lower, 0, _bounds(loops))
            end = loop.upper if runs or loop.lower == ZERO else maximum(loop.upper, loop.lower)
            places[name] = _At(at.name, (*prefix, end - first))
        return [*before, replace(loop, body=tuple(body))]

    def _ended(self, body: list[Item], last: _At, target: _At, t: Tensor) -> list[Item]:
        """At the end of an iteration, `last` is in `target`: by its name, or by a copy."""
        n = len(target.prefix)
        is_own = len(last.prefix) == n  # no loop in it made the value
        if not is_own or not any(isinstance(s, Statement) and s.target == last.name for s in body):
            return [*body, self.copy(last, target, t)]

        def read(r: Read) -> Expr:
            if r.tensor != last.name:
                return r
            return replace(r, tensor=target.name, subscripts=target.prefix + r.subscripts[n:])

        found: list[Item] = []
        for item in body:
            made = reads_replaced(item, read)
            if isinstance(made, Statement) and made.target == last.name:
                left = target.prefix + made.subscripts[n:]
                made = replace(made, target=target.name, subscripts=left)
            found.append(made)
        del self.tensors[last.name]
        return found

    def _is_local(self, name: str, loop: For) -> bool:
        """True if each iteration writes all of the tensor first, and only it reads that."""
        if self.tensors[name].role == "output":
            return False
        inside = sum(r.tensor == name for s in statements(loop.body) for r in reads(s.value))
        everywhere = sum(r.tensor == name for s in statements(self.body) for r in reads(s.value))
        if inside != everywhere:
            return False
        return self._begins_anew(name, loop.body) is True

    def _begins_anew(self, name: str, items: tuple[Item, ...]) -> bool | None:
        """Whether all of a tensor is written before it is read; None if it is neither."""
        for item in items:
            if isinstance(item, Statement) and item.target == name:
                read = any(r.tensor == name for r in reads(item.value))
                return not read and _is_whole(item, self.tensors[name])
            if isinstance(item, If):
                arms = [self._begins_anew(name, arm) for arm in (item.then, item.orelse)]
                if arms != [None, None]:
                    return arms == [True, True]
            elif any(
                s.target == name or any(r.tensor == name for r in reads(s.value))
                for s in statements((item,))
            ):
                return False
        return None

    def _if(self, item: If, places: Places, loops: tuple[For, ...]) -> If:
        then, orelse = dict(places), dict(places)
        yes, no = self.items(item.then, then, loops), self.items(item.orelse, orelse, loops)
        for name in dict.fromkeys((*then, *orelse)):
            if then.get(name) == orelse.get(name):
                continue
            t = self.tensors[name]
            places[name] = self.version(t, loops)
            for arm, ended in ((yes, then), (no, orelse)):
                if name in ended:
                    arm[:] = self._ended(arm, ended[name], places[name], t)
        return replace(item, then=tuple(yes), orelse=tuple(no))


def _copied(name: str, s: Statement, loops: tuple[For, ...]) -> Trap:
    """loops: around it; the variables of some are in its left subscripts."""
    used = frozenset[str]().union(*(e.variables() for e in s.subscripts))
    steps = next(f.variable for f in reversed(loops) if f.variable in used)
    again = next((f.variable for f in loops if f.variable not in used), None)
    hint = "write it at positions that are affine in loop variables: then elements are kept once"
    if again is not None:
        hint = (
            f"each step of `{again}` writes the same elements again; with a dimension for it, as "
            f"`{name}({again} + 1, …)` from `{name}({again}, …)`, they are kept once"
        )
    message = f"a derivative keeps all of `{name}` for each step of `{steps}`, which writes a part"
    return Trap("copies", message, hint, s.span)


def _is_whole(s: Statement, t: Tensor) -> bool:
    for e, extent in zip(s.subscripts, t.shape, strict=True):
        r = range_of(e, s.domain)
        if r is None or r.lower != ZERO or r.upper != extent:
            return False
    return True
