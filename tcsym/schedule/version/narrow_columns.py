# SPDX-License-Identifier: Apache-2.0
"""Few columns, many rows, functions of sums -> these apart from the sums.

A register tile has columns in its lanes. With up to half a vector of them most lanes are idle,
which matters where a function of each sum follows: apart from the sums, it is a map by itself.
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
    condition_variables,
    ge,
)
from tcsym.index.values import product_of
from tcsym.ir.bounds import extent
from tcsym.ir.loops import Kernel, Store
from tcsym.ir.traverse import subvalues
from tcsym.schedule.analysis.assume import in_context
from tcsym.schedule.analysis.band import Roles, band_of, roles_at
from tcsym.schedule.analysis.cost import is_light
from tcsym.schedule.analysis.loops import find_loop, loops_around, statements_in
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import FunctionsApart, Version
from tcsym.schedule.version.contraction_versions import column_count, has_windows

FULL_LANES = 3, 4  # part from which on lanes of a tile are well used
LEAST_RESULTS = 1024  # of functions: fewer are not worth code of their own


def narrow_columns(
    kernel: Kernel, nest: str, setting: Setting
) -> Iterator[Version[FunctionsApart]]:
    """For few columns and many rows: functions of the sums apart."""
    roles = roles_at(kernel, nest)
    if roles is None or not setting.long_sums or loops_around(kernel.body, nest):
        return
    pays = _functions_pay(kernel, nest, roles, setting)
    if pays != FALSE:
        seldom = in_context(kernel, pays) != TRUE
        yield Version(pays, FunctionsApart(), "after", seldom, keeps_rest=True, needs=TRUE)


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
