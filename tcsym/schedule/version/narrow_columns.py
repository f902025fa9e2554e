# SPDX-License-Identifier: Apache-2.0
"""Few columns, many rows -> where code of its own takes less time than a register tile.

A tile has columns in its lanes. With up to half a vector of them most lanes are idle, which matters
where a function of each sum follows: apart from the sums, vectors run across the rows. A single
column of short sums is a row of them, with a lane for each.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.frontend.program import Call
from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    Index,
    all_of,
    any_of,
    condition_variables,
    eq,
    ge,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Store
from tcsym.ir.traverse import subvalues
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Roles, band_of, reductions, roles_at
from tcsym.schedule.analysis.cost import is_light
from tcsym.schedule.analysis.loops import find_loop, loops_around, statements_in
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import FunctionsApart, SingleColumn, Version
from tcsym.schedule.version.contraction_versions import column_count, has_windows
from tcsym.schedule.version.unit_columns import can_be_row, size_of

FULL_LANES = 3, 4  # part from which on lanes of a tile are well used
FEW_TERMS = 7  # with more, products along the sum are as fast as lanes of single columns
LEAST_SUMS = 8192  # of single columns: fewer are not worth code of their own,
LEAST_RESULTS = 1024  # nor are fewer results of functions


def narrow_columns(
    kernel: Kernel, nest: str, setting: Setting
) -> Iterator[Version[SingleColumn | FunctionsApart]]:
    """For few columns and many rows: a row, or functions of the sums apart."""
    roles = roles_at(kernel, nest)
    if roles is None or not setting.long_sums or loops_around(kernel.body, nest):
        return
    size = size_of(band_of(find_loop(kernel.body, nest)).loop(roles.columns))
    single = FALSE if size is None else _single_pays(kernel, nest, roles)
    functions = _functions_pay(kernel, nest, roles, setting)
    seldom = in_context(kernel, any_of((single, functions))) != TRUE
    is_left_out = seldom and not setting.whole  # whether it may be made is of no matter then
    if size is not None and (is_left_out or can_be_row(kernel, nest, size)):
        plan = SingleColumn(size, may_be_short=True)
        some = FALSE if in_context(kernel, single) == TRUE else single
        yield Version(some, plan, "before", seldom, keeps_rest=True)
    if functions != FALSE:
        yield Version(functions, FunctionsApart(), "after", seldom, keeps_rest=True, needs=TRUE)


def _single_pays(kernel: Kernel, nest: str, roles: Roles) -> Condition:
    """A column of short sums; FALSE if sizes do not tell."""
    band = band_of(find_loop(kernel.body, nest))
    terms = [product_of(map(extent, around)) for _, around in reductions(band.body)]
    if roles.rows is None or has_windows(kernel, nest):
        return FALSE
    short = (ge(FEW_TERMS, n) for n in terms)
    single = all_of((*short, eq(column_count(kernel, nest, roles), 1)))
    least = LEAST_RESULTS if _has_functions(kernel, nest) else LEAST_SUMS
    return _known(kernel, all_of((single, ge(_elements(kernel, nest), least))))


def _functions_pay(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Condition:
    """Few columns, with a function of each sum; FALSE if there is none or sizes do not tell."""
    if not _has_functions(kernel, nest):
        return FALSE
    band = band_of(find_loop(kernel.body, nest))
    columns = column_count(kernel, nest, roles)
    most = FULL_LANES[0] * setting.lanes(kernel, band.body) // FULL_LANES[1]
    if most == 0 or roles.rows is None or has_windows(kernel, nest):
        return FALSE
    return _known(kernel, all_of((ge(most, columns), ge(_elements(kernel, nest), LEAST_RESULTS))))


def _has_functions(kernel: Kernel, nest: str) -> bool:
    """Of the sums, in what follows them."""
    inside = statements_in(band_of(find_loop(kernel.body, nest)).body)
    after = [x for x, around in inside if isinstance(x, Store) and not around]
    calls = [v for x in after for v in subvalues(x.value) if isinstance(v, Call)]
    return any(not is_light(v.function) for v in calls)


def _elements(kernel: Kernel, nest: str) -> Index:
    return product_of(map(extent, band_of(find_loop(kernel.body, nest)).loops))


def _known(kernel: Kernel, c: Condition) -> Condition:
    return c if condition_variables(c) <= frozenset(kernel.sizes) else FALSE
