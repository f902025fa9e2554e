"""Typed expression -> its reads, each with the guards under which it happens (LANGUAGE C7, E5).

One traversal, `visit_reads`, both finds the reads and rebuilds the expression with what the
visitor returns, so that analysis and annotation cannot disagree about guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.affine import as_condition, implied_condition
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    IndexValue,
    Read,
    Select,
    Unary,
    rebuilt,
)
from tcsym.index.expr import TRUE, Condition, Index, IsZero, NonNegative, all_of, ge
from tcsym.index.values import Values, conjuncts, substitute


class Path(Struct, frozen=True):
    """`condition` holds wherever the read happens; `by_data`: only some such points read."""

    condition: Condition = TRUE
    by_data: bool = False

    def where(self, guard: Expr, holds: bool) -> Path:
        """The path into the arm that is taken where `guard` is `holds`."""
        whole = as_condition(guard)
        known = implied_condition(guard, holds)
        return Path(all_of((self.condition, known)), self.by_data or whole is None)

    def implies(self, e: Index) -> bool:
        """True if a comparison among the guards differs from `e >= 0` by a constant >= 0."""
        for c in conjuncts(self.condition):
            match c:
                case NonNegative(known):
                    sides = [known]
                case IsZero(known):
                    sides = [known, -known]
                case _:
                    continue
            if any((d := (e - k).as_int()) is not None and d >= 0 for k in sides):
                return True
        return False


Visit = Callable[[Read, Path], Read]
Note = Callable[[Binary | IndexValue, Path], None]


def visit_reads(e: Expr, path: Path, visit: Visit, note: Note = lambda e, path: None) -> Expr:
    """`e` with each read, outer ones first, replaced by what `visit` makes of it. note: is told of
    arithmetic, inner operations first."""

    def visited(x: Expr, path: Path = path) -> Expr:
        return visit_reads(x, path, visit, note)

    match e:
        case Const():
            return e
        case IndexValue():
            note(e, path)
            return e
        case Read():
            seen = visit(e, path)
            inner = tuple(s if isinstance(s, Index) else visited(s) for s in seen.subscripts)
            return replace(seen, subscripts=inner)
        case Cast(x, _) | Unary(_, x, _):
            return replace(e, operand=visited(x))
        case Binary(op, a, b, _):
            left = visited(a)
            beyond = path.where(a, op == "and") if op in ("and", "or") else path
            right = visited(b, beyond)
            note(e, path)
            return replace(e, left=left, right=right)
        case Compare(_, a, b):
            return replace(e, left=visited(a), right=visited(b))
        case Select(c, a, b, _):
            condition, then = visited(c), visited(a, path.where(c, True))
            orelse = visited(b, path.where(c, False))
            return replace(e, condition=condition, then=then, orelse=orelse)
        case Call(_, args):
            return replace(e, args=tuple(visited(x) for x in args))
        case _:
            assert_never(e)


def guarded_reads(exprs: tuple[Expr, ...]) -> Iterator[tuple[Read, Path]]:
    """All reads in `exprs` with their guards, outer ones first."""
    found: list[tuple[Read, Path]] = []

    def note(read: Read, path: Path) -> Read:
        found.append((read, path))
        return read

    for e in exprs:
        visit_reads(e, Path(), note)
    return iter(found)


def substitute_expr(e: Expr, values: Values) -> Expr:
    """`e` with variables replaced in all subscripts and index values."""
    return rebuilt(e, lambda x: substitute_expr(x, values), lambda i: substitute(i, values))


def nonempty(lower: Index, upper: Index) -> Condition:
    """lower < upper"""
    return ge(upper - 1, lower)
