# SPDX-License-Identifier: Apache-2.0
"""Reads of a statement -> its traps (LANGUAGE F9): extents that a guard makes longer than meant.

`Y(i) = i > 0 ? X(i-1) : 0.0` has N+1 elements: the guard takes one bound away, the other stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tcsym.frontend.affine import as_condition
from tcsym.frontend.infer_forms import sign, split
from tcsym.frontend.infer_paths import Path, guarded_reads
from tcsym.frontend.program import Expr, Read, Select, Trap, subexpressions
from tcsym.frontend.resolved import ResolvedStatement
from tcsym.index.expr import TRUE, Index, condition_variables

Shape = Callable[[Read], Iterable[Index]]


def range_trap(s: ResolvedStatement, d: int, variable: str, shape: Shape) -> list[Trap]:
    """Of the extent `d` of the target, which `variable` gives."""
    dropped, bounding = False, set[Path]()
    for read, path in guarded_reads((s.value, *s.exists)):
        for e, extent in zip(read.subscripts, shape(read)):
            if not isinstance(e, Index) or variable not in e.variables():
                continue
            for side in (e, extent - 1 - e):
                if path.implies(side):
                    dropped = True
                elif _bounds_above(side, variable):
                    bounding.add(path)
    if not dropped or Path() in bounding or _side_by_side(s.value, variable, bounding):
        return []
    if _in_both_arms(s.value, variable, shape):
        return []
    message = f"a guard takes a bound of `{variable}` away, and the extent is what the others leave"
    hint = f"say what is meant: `where {variable} in 0:…`, or a declared shape"
    return [Trap("range", message, hint, s.subscript_spans[d])]


def _bounds_above(side: Index, variable: str) -> bool:
    parts = split(side, variable)
    return parts is not None and sign(parts[0]) == -1


def _side_by_side(value: Expr, variable: str, bounding: set[Path]) -> bool:
    """True if all arms read along `variable`, and only the last is not bounded by its guard."""
    return len(bounding) == 1 and all(
        _reads_along(arm, variable) for x in _choices(value, variable) for arm in (x.then, x.orelse)
    )


def _in_both_arms(value: Expr, variable: str, shape: Shape) -> bool:
    """True if both sides of a choice bound `variable` in the same way, so that no guard matters."""
    for x in _choices(value, variable):
        then, orelse = ({*_sides_above(arm, variable, shape)} for arm in (x.then, x.orelse))
        if then & orelse:
            return True
    return False


def _sides_above(e: Expr, variable: str, shape: Shape) -> Iterable[Index]:
    for x in subexpressions(e):
        if isinstance(x, Read):
            for s, extent in zip(x.subscripts, shape(x)):
                if isinstance(s, Index) and variable in s.variables():
                    yield from (d for d in (s, extent - 1 - s) if _bounds_above(d, variable))


def _choices(value: Expr, variable: str) -> list[Select]:
    """The `?:` whose conditions compare `variable`."""
    found = [x for x in subexpressions(value) if isinstance(x, Select)]
    tests = [as_condition(x.condition) or TRUE for x in found]
    return [x for x, c in zip(found, tests) if variable in condition_variables(c)]


def _reads_along(e: Expr, variable: str) -> bool:
    return any(
        isinstance(s, Index) and variable in s.variables()
        for x in subexpressions(e)
        if isinstance(x, Read)
        for s in x.subscripts
    )
