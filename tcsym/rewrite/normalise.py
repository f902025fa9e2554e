# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which every statement may run point by point, in any order of its points.

Three rewrites, each only where needed:
- a statement that reads its target at a point which it writes at another (LANGUAGE B10) computes
  into a fresh temporary `Y.new` (a reduction: `Y.sum`) and copies that back; or, where all that it
  so reads has fewer dimensions than it writes, `D(i,j) = min(D(i,j), D(i,k) + D(k,j))`, that is
  copied before, to `D.old`;
- a reduction into half or bfloat16 accumulates in a float32 temporary `Y.sum` and rounds once (B8);
- `op=` without reduction variables becomes `=`; a reduction's term is converted to the
  accumulator's type.
"""

from __future__ import annotations

from functools import partial
from typing import assert_never, cast

import islpy as isl
from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.program import (
    Binary,
    BinaryOp,
    Cast,
    Expr,
    For,
    If,
    Item,
    Program,
    Range,
    Read,
    Statement,
    Tensor,
    dtype_of,
    reads,
)
from tcsym.index.expr import (
    TRUE,
    Condition,
    Index,
    all_of,
    condition_variables,
    ge,
    lt,
    negate,
    var,
)
from tcsym.index.presburger import Presburger
from tcsym.ir.loops import Value
from tcsym.ir.traverse import map_value
from tcsym.polyhedral.scop import REDUCE_OPS, guarded_reads
from tcsym.types import DType

IN, OUT = isl.dim_type.in_, isl.dim_type.out
Guarded = tuple[Read, Condition]  # the affine part of what holds where it is read


class _Place(Struct, frozen=True):
    """Where a statement stands: enclosing loops and the conjunction of the enclosing conditions."""

    outer: tuple[Range, ...] = ()
    condition: Condition = TRUE


class _Rewriting(Struct):
    program: Program
    presburger: Presburger | None
    temporaries: list[Tensor] = field(default_factory=list)

    def fresh(self, name: str, dtype: DType, shape: tuple[Index, ...]) -> Tensor:
        taken = {t.name for t in (*self.program.tensors, *self.temporaries)}
        unique, n = name, 1
        while unique in taken:
            unique, n = f"{name}{n}", n + 1
        tensor = Tensor(unique, dtype, shape, "temporary")
        self.temporaries.append(tensor)
        return tensor


def normalise(program: Program, presburger: Presburger | None) -> Program:
    """presburger: what is asked; None: nothing is known."""
    rewriting = _Rewriting(program, presburger)
    body = _items(program.body, _Place(), rewriting)
    return replace(program, body=body, tensors=(*program.tensors, *rewriting.temporaries))


def _items(items: tuple[Item, ...], place: _Place, rw: _Rewriting) -> tuple[Item, ...]:
    out: list[Item] = []
    for item in items:
        match item:
            case Statement():
                out.extend(_statement(item, place, rw))
            case For(variable, lower, upper, body):
                r = Range(variable, lower, upper, reduced=False)
                inside = replace(place, outer=(*place.outer, r))
                out.append(replace(item, body=_items(body, inside, rw)))
            case If(condition, then, orelse):
                yes = replace(place, condition=all_of((place.condition, condition)))
                no = replace(place, condition=all_of((place.condition, negate(condition))))
                out.append(replace(item, then=_items(then, yes, rw), orelse=_items(orelse, no, rw)))
            case _:
                assert_never(item)
    return tuple(out)


def _statement(s: Statement, place: _Place, rw: _Rewriting) -> tuple[Statement, ...]:
    dtype = rw.program.tensor(s.target).dtype
    s = _as_assignment(s, dtype)
    narrow = s.op != "=" and dtype is not dtype.accumulator
    early = None if narrow or _gives_itself(s) else _read_before(s, place, rw)
    if early == ():
        return (s if s.op == "=" else replace(s, value=_converted(s.value, dtype)),)
    if early is not None and s.op == "=" and _may_be_copied(s, early, place, rw):
        return _with_copies(s, early, dtype, rw)
    return _through_temporary(s, dtype, rw)


def _gives_itself(s: Statement) -> bool:
    """Its ranges depend on what it writes."""
    return any(r.tensor == s.target for g in s.given for r in reads(g.value))


def _as_assignment(s: Statement, dtype: DType) -> Statement:
    """`op=` without reduction variables is `=` (LANGUAGE A14), unless it is scattered and sets
    whole dimensions first, or finds its positions in its target."""
    if s.op == "=" or any(r.reduced for r in s.domain):
        return s
    if s.scattered and (s.initialise or any(_reads_target(p, s) for p in s.read_positions)):
        return s
    if s.initialise:
        return replace(s, op="=", initialise=False, value=_converted(s.value, dtype))
    operator: BinaryOp = REDUCE_OPS[s.op]
    old = Read(s.target, s.subscripts, dtype, (False,) * len(s.subscripts), span=s.span)
    wide = dtype.accumulator
    value = Binary(operator, _converted(old, wide), _converted(s.value, wide), wide)
    return replace(s, op="=", value=_converted(value, dtype))


def _converted(e: Expr, dtype: DType) -> Expr:
    return e if dtype_of(e) is dtype else Cast(e, dtype)


def _through_temporary(s: Statement, dtype: DType, rw: _Rewriting) -> tuple[Statement, ...]:
    """[load the old value;] compute into a temporary; store it."""
    wide = dtype if s.op == "=" else dtype.accumulator
    kept = s.domain if s.op == "=" else s.image
    indices = {r.variable for r in kept}
    dims = [k for k, x in enumerate(s.subscripts) if _plain_variable(x) in indices]
    shape = rw.program.tensor(s.target).shape
    temporary = rw.fresh(
        f"{s.target}.{'new' if s.op == '=' else 'sum'}", wide, tuple(shape[k] for k in dims)
    )
    subscripts = tuple(s.subscripts[k] for k in dims)
    result = Read(temporary.name, subscripts, wide, (False,) * len(dims), span=s.span)
    main = replace(s, target=temporary.name, subscripts=subscripts, value=_converted(s.value, wide))
    plain = replace(s, op="=", initialise=False, domain=kept, exists=(), given=())
    store = replace(plain, name=f"{s.name}.store", value=_converted(result, dtype))
    if s.op == "=" or s.initialise:
        return main, store
    old = Read(s.target, s.subscripts, dtype, (False,) * len(s.subscripts), span=s.span)
    load = replace(
        plain,
        name=f"{s.name}.load",
        target=temporary.name,
        subscripts=subscripts,
        value=_converted(old, wide),
    )
    return load, main, store


def _reads_target(e: Expr, s: Statement) -> bool:
    return any(r.tensor == s.target for r in reads(e))


def _plain_variable(e: Index) -> str:
    atom = e.terms[0][0] if len(e.terms) == 1 and not e.constant else ""
    return atom if isinstance(atom, str) and e == var(atom) else ""


def _with_copies(
    s: Statement, early: tuple[Guarded, ...], dtype: DType, rw: _Rewriting
) -> tuple[Statement, ...]:
    """Copy the elements of the target that are `early`; then the statement, which reads these."""
    shape = rw.program.tensor(s.target).shape
    extents = {_plain_variable(x): n for x, n in zip(s.subscripts, shape)}
    copies: dict[Read, Statement] = {}
    values: dict[Read, Read] = {}
    for r, _ in early:
        if r in values:
            continue
        domain = tuple(x for x in s.domain if x.variable in _variables(r))
        at = tuple(var(x.variable) for x in domain)
        tensor = rw.fresh(f"{s.target}.old", dtype, tuple(extents[x.variable] for x in domain))
        values[r] = Read(tensor.name, at, dtype, (False,) * len(at), span=r.span)
        name = f"{s.name}.old{len(copies) or ''}"
        copies[r] = Statement(name, tensor.name, at, "=", False, domain, r, span=s.span)

    def value(v: Value) -> Value:
        return values.get(v, v) if isinstance(v, Read) else v

    return *copies.values(), replace(s, value=cast(Expr, map_value(s.value, value, _same)))


def _same(i: Index) -> Index:
    return i


def _variables(r: Read) -> frozenset[str]:
    return frozenset[str]().union(*(x.variables() for x in r.subscripts if isinstance(x, Index)))


def _may_be_copied(s: Statement, early: tuple[Guarded, ...], place: _Place, rw: _Rewriting) -> bool:
    """All move with fewer variables than the statement has, and lie inside the target in all of
    their ranges, even if those of the others are empty."""
    indices = {r.variable for r in s.domain}
    if not s.is_box or {_plain_variable(x) for x in s.subscripts} < indices:
        return False
    for r, guard in early:
        plain = guard == TRUE and r.unwritten is None and not any(r.checked)
        if not plain or indices <= _variables(r) or not _is_inside(r, s, place, rw):
            return False
    return True


def _is_inside(r: Read, s: Statement, place: _Place, rw: _Rewriting) -> bool:
    ranges = (*place.outer, *(x for x in s.domain if x.variable in _variables(r)))
    domain = all_of((*_bounds(ranges, s), place.condition))
    shape = rw.program.tensor(r.tensor).shape
    subscripts = tuple(x for x in r.subscripts if isinstance(x, Index))
    inside = all_of(c for x, n in zip(subscripts, shape) for c in (ge(x, 0), lt(x, n)))
    names = tuple(x.variable for x in ranges)
    if rw.presburger is None:
        return False
    try:
        context = rw.presburger.size_set(all_of(c.condition for c in rw.program.checks))
        outside = rw.presburger.set(s.name, names, all_of((domain, negate(inside))))
        return bool(outside.intersect_params(context).is_empty())
    except isl.Error:
        return False


# ---- does a statement read what it writes elsewhere?


def _read_before(s: Statement, place: _Place, rw: _Rewriting) -> tuple[Guarded, ...] | None:
    """Reads of the target, with their guards, of what another point ('=': any point) writes.

    None: not known. Reads of other iterations count for none, nor does the point's own ('=').
    """
    values = (s.value, *s.read_positions)
    own = [x for e in values for x in guarded_reads(e) if x[0].tensor == s.target]
    own = [x for x in own if s.op != "=" or x[0].subscripts != s.subscripts]
    if rw.presburger is None:
        return None if own else ()
    try:
        meets = partial(_meets, s, place, rw.presburger, rw.program)
        return tuple(x for x in own if meets(_known(x[0]), x[1]))
    except isl.Error:
        return None


def _known(r: Read) -> tuple[Index | None, ...]:
    return tuple(x if isinstance(x, Index) else None for x in r.subscripts)


def _bounds(ranges: tuple[Range, ...], s: Statement) -> tuple[Condition, ...]:
    """Without those that are given: what they move may be anywhere."""
    given = {g.name for g in s.given}
    return tuple(
        c
        for r in ranges
        for c in (ge(var(r.variable), r.lower), lt(var(r.variable), r.upper))
        if given.isdisjoint(condition_variables(c))
    )


def _meets(
    s: Statement,
    place: _Place,
    presburger: Presburger,
    program: Program,
    subscripts: tuple[Index | None, ...],
    guard: Condition,
) -> bool:
    """A point reads an element that (for '=': another) point of the same iteration writes."""
    ranges = (*place.outer, *s.domain)
    names = tuple(r.variable for r in ranges)
    domain = all_of((*_bounds(ranges, s), place.condition))
    relation = presburger.relation
    writes = relation(s.name, names, s.target, s.subscripts, domain)
    reads = relation(s.name, names, s.target, subscripts, all_of((domain, guard)))
    pairs = writes.apply_range(reads.reverse())
    for k in range(len(place.outer)):
        pairs = pairs.equate(IN, k, OUT, k)
    context = presburger.size_set(all_of(c.condition for c in program.checks))
    pairs = pairs.intersect_params(context)
    if s.op == "=":
        pairs = pairs.subtract(isl.Map.identity(pairs.get_space()))
    return not pairs.is_empty()
