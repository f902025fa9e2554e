# SPDX-License-Identifier: Apache-2.0
"""Contraction -> its plans: panels, operands in place, products along the sum.

Packed panels in register tiles are for many rows and columns. Few columns change places with the
rows, or each element is a product of vectors. What pays may be known only at run time: then
versions lie side by side, chosen by a condition on sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsym.frontend.program import Call
from tcsym.index.expr import (
    FALSE,
    TRUE,
    Condition,
    all_of,
    negate,
)
from tcsym.ir.loops import Kernel
from tcsym.ir.packed import BFLOAT
from tcsym.schedule.analysis.assume import in_context, most_in_context
from tcsym.schedule.analysis.band import Roles, band_of, reductions, roles_at
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.plan import (
    InPlace,
    Panels,
    Plan,
    Products,
    Version,
    always,
)
from tcsym.schedule.stage.along_sum import along_sum
from tcsym.schedule.tile.contraction_schedule import tile_shape
from tcsym.schedule.version.choose import Proposal
from tcsym.schedule.version.contraction_versions import (
    FEW_ROWS,
    exchanged,
    has_windows,
    may_be_short,
    panels_pay,
    products_pay,
    row_count,
    short_pays,
    streams_in_place,
)

SLOW_ROWS = 2  # as many rows in flight where sums of pairs of bfloat16 wait for each other


def few_columns(
    kernel: Kernel, nest: str, setting: Setting
) -> Iterator[Version[Panels | InPlace | Products]]:
    """What wastes less of few columns than the register tile."""
    roles = _roles(kernel, nest)
    other = exchanged(kernel, nest, roles)
    along = along_sum(kernel, nest, roles, roles.columns, setting.names)
    if other is not None and may_be_short(kernel, nest, roles):
        short = in_context(kernel, short_pays(kernel, nest, roles, other, setting))
        if short != FALSE:
            yield _exchanged(kernel, nest, other, short, setting)
            return
    if along is not None and along.operands:  # else what has no panels is one of products
        few = products_pay(kernel, nest, roles, along)
        yield Version(few, Products(few_columns=True), "after", keeps_rest=True, needs=TRUE)


def _exchanged(
    kernel: Kernel, nest: str, other: Roles, few: Condition, setting: Setting
) -> Version[Panels | InPlace]:
    """Rows as columns, in place if they can be."""
    lies_well = streams_in_place(kernel, nest, other, setting)
    plan = (_in_place if lies_well else _in_panels)(kernel, nest, other, setting)
    return Version(few, plan, "after", keeps_rest=True, needs=TRUE)


def panels(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Panels]]:
    """The register tile on packed panels, where no product along the sum is quicker."""
    return _panels(kernel, nest, setting, not has_windows(kernel, nest))


def panels_of_terms(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Panels]]:
    """As `panels`, for products that are some of a sum's terms: leaves are the other choice."""
    return _panels(kernel, nest, setting, beside_products=False)


def _panels(
    kernel: Kernel, nest: str, setting: Setting, beside_products: bool
) -> Iterator[Version[Panels]]:
    roles = _roles(kernel, nest)
    pays = panels_pay(kernel, nest, roles, setting)
    along = along_sum(kernel, nest, roles, roles.columns, setting.names)
    if along is not None and not along.operands and beside_products:
        pays = all_of((pays, negate(products_pay(kernel, nest, roles, along))))
    yield Version(pays, _in_panels(kernel, nest, roles, setting), needs=TRUE)


def _in_panels(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> Panels:
    assert roles.rows is not None
    body = band_of(find_loop(kernel.body, nest)).body
    shape = tile_shape(kernel, body, roles, setting)
    stream = tuple(dict.fromkeys(r.tensor for r in roles.streamed))
    return Panels(roles.columns, roles.rows, (shape.rows, shape.vectors), stream)


def products(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[Products]]:
    """Operands that cannot be streamed in place."""
    roles = roles_at(kernel, nest)
    if roles is None or not streams_in_place(kernel, nest, roles, setting):
        yield always(Products(few_columns=False))


def in_place(kernel: Kernel, nest: str, setting: Setting) -> Iterator[Version[InPlace]]:
    """The register tile on operands as they lie, for too few rows to pay for panels."""
    yield always(_in_place(kernel, nest, _roles(kernel, nest), setting))


def _in_place(kernel: Kernel, nest: str, roles: Roles, setting: Setting) -> InPlace:
    assert roles.rows is not None
    most = FEW_ROWS * SLOW_ROWS if _adds_slowly(kernel, nest) else FEW_ROWS
    rows = min(most, setting.rows, most_in_context(kernel, row_count(kernel, nest, roles)))
    return InPlace(roles.columns, roles.rows, rows)


def _adds_slowly(kernel: Kernel, nest: str) -> bool:
    """A sum waits for its last term longer than those of other numbers do."""
    sums = reductions(band_of(find_loop(kernel.body, nest)).body)
    return any(isinstance(x.value, Call) and x.value.function == BFLOAT for x, _ in sums)


def _roles(kernel: Kernel, nest: str) -> Roles:
    """Contract: the nest is a contraction."""
    roles = roles_at(kernel, nest)
    assert roles is not None
    return roles


CONTRACTION: tuple[Proposal[Plan], ...] = (
    few_columns,
    panels,
    products,
    in_place,
)
