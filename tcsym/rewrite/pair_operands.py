# SPDX-License-Identifier: Apache-2.0
"""Program -> program in which sums of products of several operands are taken two at a time.

`Y(i,j) +=! A(i,k) * B(k,l) * C(l,j)` has i*k*l*j points; `T(i,l) +=! A(i,k) * B(k,l)` and then
`Y(i,j) +=! T(i,l) * C(l,j)` have i*k*l + i*l*j, of products of two matrices. Which order has the
fewest (`operand_orders`) may depend on the sizes: then there are two, chosen at run time.
docs/decisions/0019 says why this may be done.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from tcsym.frontend.einsum_order import Order, take
from tcsym.frontend.program import (
    BinaryOp,
    Const,
    Expr,
    If,
    IndexValue,
    Item,
    Program,
    Read,
    Statement,
    Tensor,
    dtype_of,
    reads,
    subexpressions,
)
from tcsym.index.expr import FALSE, TRUE, ZERO, Condition, Index, all_of, ge, var
from tcsym.rewrite.factors import flattened, product
from tcsym.rewrite.fresh import fresh_name
from tcsym.rewrite.operand_orders import Found, Operands, best_orders
from tcsym.rewrite.share_parts import is_inside
from tcsym.sizes.context import Context, Ranges, decided, ranges_of
from tcsym.types import DType


class Operand(Struct, frozen=True):
    """Factors of a term that move with the same loops, or with fewer.

    variables: of these loops, as they stand in subscripts. places: of the factors in the term.
    """

    factors: tuple[tuple[BinaryOp, Expr], ...]
    variables: tuple[str, ...]
    places: tuple[int, ...] = ()


def pair_operands(program: Program, context: Context = ()) -> Program:
    """Statements in loops stay as they are."""
    pairing = Pairing(program, ranges_of(context))
    body: list[Item] = []
    for item in program.body:
        body.extend(pairing.items(item) if isinstance(item, Statement) else (item,))
    if not pairing.temporaries:
        return program
    tensors = (*program.tensors, *pairing.temporaries)
    return replace(program, body=tuple(body), tensors=tensors)


class Pairing(Struct):
    """Statements of a program to steps; `ranges`: of its sizes."""

    program: Program
    ranges: Ranges = field(default_factory=dict)
    temporaries: list[Tensor] = field(default_factory=list)

    def items(self, s: Statement) -> tuple[Item, ...]:
        """The statement in pairs, if it is a sum of products that gains by it."""
        operands = summed_operands(s, self.program)
        if not operands:
            return (s,)
        output = [r.variable for r in s.domain if not r.reduced]
        found = best_pairs(s, operands)
        if not found:
            return (s,)
        items: tuple[Item, ...] = self.steps(s, operands, found[0].order, output)
        if found[1:]:
            first = decided(ge(found[1].points, found[0].points), self.ranges)
            other = replace(s, name=f"{s.name}.else")
            items = _either(first, items, self.steps(other, operands, found[1].order, output))
        inner = {x for f in found for x in f.inner}
        some = all_of(decided(ge(x, 1), self.ranges) for x in sorted(inner, key=str))
        return _either(some, items, _without_terms(s))

    def steps(
        self, s: Statement, operands: tuple[Operand, ...], order: Order, output: list[str]
    ) -> tuple[Item, ...]:
        """A statement for each step; what lies between two of them is a temporary. The last one is
        also summed over what moves no operand."""
        left = list(operands)
        moved = {v for x in operands for v in x.variables}
        names = [list(x.variables) for x in operands]
        out: list[Statement] = []
        for step in order:
            _, labels = take(names, step, output)
            names.append(labels)
            used = [left[m] for m in sorted(step)]
            left = [x for m, x in enumerate(left) if m not in step]
            value = product([f for x in used for f in x.factors])
            moving = {v for x in used for v in x.variables}
            if left:
                out.append(self.partial(s, value, labels, moving))
                checked = (False,) * len(labels)
                read = Read(out[-1].target, out[-1].subscripts, dtype_of(value), checked)
                left.append(Operand((("mul", read),), tuple(labels)))
            else:
                gone = moved - moving
                domain = tuple(r for r in s.domain if r.variable not in gone or not r.reduced)
                out.append(replace(s, domain=domain, value=value))
        return tuple(out)

    def partial(self, s: Statement, value: Expr, labels: list[str], moving: set[str]) -> Statement:
        """`value` summed into a temporary that has these labels."""
        taken = {t.name for t in (*self.program.tensors, *self.temporaries)}
        name = fresh_name(f"{s.target}.pair", taken)
        ranges = {r.variable: r for r in s.domain}
        kept = tuple(replace(ranges[v], reduced=False) for v in labels)
        summed = tuple(
            replace(r, reduced=True) for r in s.domain if r.variable in moving - set(labels)
        )
        shape = tuple(r.upper for r in kept)
        self.temporaries.append(Tensor(name, dtype_of(value), shape, "temporary"))
        return replace(
            s,
            name=f"{s.name}.{name}",
            target=name,
            subscripts=tuple(map(var, labels)),
            op="+=" if summed else "=",
            initialise=bool(summed),
            domain=(*kept, *summed),
            value=value,
        )


def _either(c: Condition, then: tuple[Item, ...], orelse: tuple[Item, ...]) -> tuple[Item, ...]:
    if c in (TRUE, FALSE):
        return then if c == TRUE else orelse
    return (If(c, then, orelse),)


def _without_terms(s: Statement) -> tuple[Item, ...]:
    """What is stored where nothing is summed; an inner sum of no terms may be 0 times infinity."""
    if not s.initialise:
        return ()
    kept = tuple(r for r in s.domain if not r.reduced)
    zero = Const(0.0, dtype_of(s.value))
    return (replace(s, name=f"{s.name}.none", op="=", initialise=False, domain=kept, value=zero),)


# ---- operands


def best_pairs(s: Statement, operands: tuple[Operand, ...]) -> tuple[Found, ...]:
    """One or two orders, or none if the sum as it is is as good."""
    output = tuple(r.variable for r in s.domain if not r.reduced)
    extents = {r.variable: r.upper for r in s.domain}
    return best_orders(Operands(tuple(x.variables for x in operands), output, extents))


def summed_operands(s: Statement, program: Program) -> tuple[Operand, ...]:
    """Those of a sum of floating products over whole tensors; else none."""
    dtype = dtype_of(s.value)
    if s.op != "+=" or s.exists or s.scattered or not s.is_box:
        return ()
    if dtype is not program.tensor(s.target).dtype:
        return ()
    if dtype not in (DType.FLOAT32, DType.FLOAT64) or any(r.lower != ZERO for r in s.domain):
        return ()
    if any(x != var(v) for x in s.subscripts for v in x.variables()):
        return ()
    found = flattened(s.value)
    if not all(dtype_of(x) is dtype for _, x in found):
        return ()
    if not all(is_inside(r, s, program) for _, x in found for r in reads(x)):
        return ()
    own = frozenset(r.variable for r in s.domain)
    return _absorbed(
        [Operand(((op, x),), _variables(x, own), (k,)) for k, (op, x) in enumerate(found)]
    )


def _variables(e: Expr, own: frozenset[str]) -> tuple[str, ...]:
    """The index variables that `e` moves with, in the order of its subscripts."""
    indices: list[Index] = []
    for x in subexpressions(e):
        if isinstance(x, Read):
            indices += [i for i in x.subscripts if isinstance(i, Index)]
        elif isinstance(x, IndexValue):
            indices.append(x.index)
    return tuple(dict.fromkeys(v for i in indices for v in sorted(i.variables() & own)))


def _absorbed(operands: list[Operand]) -> tuple[Operand, ...]:
    """Factors are multiplied with the smallest other that moves with all their loops."""
    left = sorted(operands, key=lambda x: len(x.variables))
    out: list[Operand] = []
    while left:
        x, *left = left
        into = next((y for y in left if set(x.variables) <= set(y.variables)), None)
        if into is None:
            out.append(x)
        else:
            left[left.index(into)] = _multiplied(x, into)
    return tuple(sorted(out, key=lambda x: x.places))


def _multiplied(x: Operand, into: Operand) -> Operand:
    first, second = sorted((x, into), key=lambda y: y.places)
    factors, places = first.factors + second.factors, first.places + second.places
    if any(op == "mul" for op, _ in factors):
        factors = (("mul", product(factors)),)
    return Operand(factors, into.variables, places)
