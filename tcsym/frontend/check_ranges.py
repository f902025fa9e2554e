# SPDX-License-Identifier: Apache-2.0
"""`where k in lower:upper` as written -> the ends of the range, and the scalars that they read.

An end is an `Index` over sizes, loop variables and, for a reduction variable, left index variables
and reduction variables with ranges given before (LANGUAGE F2). An end that reads tensors (F3) is a
variable of its own, which has the value of the whole end.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from tcsym.builtins import ARITY
from tcsym.errors import AffineError, RangeError, Span
from tcsym.frontend import ast
from tcsym.frontend.affine import as_index
from tcsym.frontend.check_expressions import integer_expression, is_pure
from tcsym.frontend.check_index import is_range_affine, loop_names, named
from tcsym.frontend.idioms import RAGGED
from tcsym.frontend.program import Cast, Given, Read, dtype_of, subexpressions
from tcsym.frontend.scope import Context, a_kind, kind_in
from tcsym.index.expr import Index, var
from tcsym.types import DType

_LEFT_HINT = "it may use sizes, integers and enclosing loop variables"
_HINT = (
    "it may use sizes, integers, loop variables, left index variables and variables whose "
    "range is given before, and read integer tensors at sizes, loop and left index variables"
)


class GivenRanges(Struct):
    """Ranges of one statement in the order of its text, and the scalars that their ends read."""

    ends: dict[str, tuple[tuple[Index, Index], Span, tuple[Span, ...]]] = field(
        default_factory=dict
    )
    given: list[Given] = field(default_factory=list)

    def read(self, clause: ast.RangeClause, c: Context) -> None:
        """Note the range of a clause; RangeError or AffineError if an end is none."""
        name = clause.variable.name
        lower = self._end(clause.lower, name, "lower", c)
        upper = self._end(clause.upper, name, "upper", c)
        places = clause.lower.span, clause.upper.span
        self.ends[name] = ((lower, upper), clause.span, places)

    def _end(self, e: ast.Expr, variable: str, end: str, c: Context) -> Index:
        for x in named_through_lets(e, c):
            self._check_name(x, variable, c)
        value = integer_expression(e, c, "the end of a range")
        found = [x for x in subexpressions(value) if isinstance(x, Read)]
        bound = as_index(value, {r: var(_stand_in(r)) for r in found})
        moving = loop_names(c) | c.names.left.keys() | self.ends.keys()
        moving |= {_stand_in(r) for r in found}
        pure = bool(found) or is_pure(value)
        if bound is None or not pure or not is_range_affine(bound, moving, c.scope):
            what = "in the loop variables" if variable in c.names.left else "in the variables"
            raise AffineError(f"the end of a range must be affine {what} it uses", span=e.span)
        if not found:
            return bound
        exact = value if dtype_of(value) is DType.INT64 else Cast(value, DType.INT64)
        self.given.append(Given(f"{variable}.{end}", exact))
        return var(f"{variable}.{end}")

    def _check_name(self, x: ast.Name | ast.Apply, variable: str, c: Context) -> None:
        kind = kind_in(c, x.name)
        is_left = variable in c.names.left
        reads = kind == "tensor" or (isinstance(x, ast.Apply) and x.name in c.scope.assigned)
        if reads and not is_left:
            self._check_subscripts(x, variable, c)
        elif reads:
            message = f"the range of left index variable `{variable}` reads the tensor `{x.name}`"
            raise RangeError(message, span=x.span, hint=RAGGED)
        elif kind == "loop variable" and is_left:
            message = f"the range of left index variable `{variable}` uses a loop variable"
            raise RangeError(f"{message}, `{x.name}`", span=x.span, hint=_LEFT_HINT)
        elif not (
            kind in ("size", "loop variable")
            or (isinstance(x, ast.Apply) and x.name in ARITY)
            or (kind == "index variable" and not is_left and self._is_known(x.name, variable, c))
        ):
            what = "which is no size" if is_left else "which is no size and has no range before"
            what = f"{what} ({kind or 'unknown name'})"
            message = f"the range of `{variable}` uses `{x.name}`, {what}"
            hint = RAGGED if is_left and kind == "index variable" else _LEFT_HINT
            raise RangeError(message, span=x.span, hint=hint if is_left else _HINT)

    def _is_known(self, name: str, variable: str, c: Context) -> bool:
        return name in c.names.left or (name in self.ends and name != variable)

    def _check_subscripts(self, x: ast.Name | ast.Apply, variable: str, c: Context) -> None:
        """What an end reads, it reads at left index variables, loop variables and sizes."""
        for a in x.args if isinstance(x, ast.Apply) else ():
            for y in named_through_lets(a, c):
                kind = kind_in(c, y.name)
                plain = isinstance(y, ast.Name)
                if plain and (kind in ("size", "loop variable") or y.name in c.names.left):
                    continue
                what = a_kind(kind) if kind is not None else "an unknown name"
                message = f"the range of `{variable}` reads `{x.name}` at `{y.name}`, {what}"
                raise RangeError(message, span=y.span, hint=_HINT)


def _stand_in(r: Read) -> str:
    return f"{r.tensor}({', '.join(map(str, r.subscripts))})"


def named_through_lets(e: ast.Expr, c: Context) -> Iterable[ast.Name | ast.Apply]:
    """Names in `e`; those in the value of a let stand at the let's use."""
    for x in named(e):
        value = c.names.lets.get(x.name) if isinstance(x, ast.Name) else None
        if value is None:
            yield x
            continue
        for y in named_through_lets(value, c):
            if isinstance(y, ast.Name):
                yield ast.Name(y.name, span=x.span)
            else:
                yield ast.Apply(y.name, y.args, span=x.span)
