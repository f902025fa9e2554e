# SPDX-License-Identifier: Apache-2.0
"""Guards of rows become ranges: no guard is left where it is a range, and results are kept."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Binary, Compare, Expr, IndexValue, Select
from tcsym.index.expr import Index, floordiv, index, var
from tcsym.index.values import evaluate
from tcsym.ir.loops import Kernel, Loop, Store, Update, Verify
from tcsym.ir.traverse import subvalues, walk
from tcsym.ir.verify import verify
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.split import guards as module
from tcsym.schedule.split.guards import split_guards, without_quotient
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.types import DType
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.naive import F32, buf, con, kernel, par, rd, st, up, v
from tests.schedule.targets import some_sizes

H, W = v("h w")


def split(k: Kernel) -> Kernel:
    bare = replace(k, body=without_allocations(k.body))
    out = place_allocations(split_guards(bare, Names.of(bare)))
    verify(out)
    return out


def selects(k: Kernel) -> int:
    statements = [x for x, _ in walk(k.body) if isinstance(x, Store | Update | Verify)]
    return sum(isinstance(y, Select) for x in statements for y in subvalues(x.value))


def leaves(k: Kernel) -> list[str]:
    return [
        f"{x.lower}:{x.upper}"
        for x, _ in walk(k.body)
        if isinstance(x, Loop) and x.variable.startswith("w")
    ]


def below(a: Index | int, b: Index | int) -> Compare:
    """a < b, in int32 as programs say it."""
    return Compare("lt", IndexValue(index(a), DType.INT64), IndexValue(index(b), DType.INT64))


def both(*conditions: Expr) -> Expr:
    whole, *rest = conditions
    for c in rest:
        whole = Binary("and", whole, c, DType.BOOL)
    return whole


def rows(value: Expr, upper: Index | int | str = "W") -> Kernel:
    body = par("h", "H", par("w", upper, st("O", (H, W), value)))
    shape = (var("H"), var(upper) if isinstance(upper, str) else index(upper))
    buffers = [buf("X", "H W"), buf("Y", "H W"), buf("O", shape)]
    return kernel("rows", "H W", buffers, body)


def same(k: Kernel, out: Kernel) -> None:
    for sizes in [{"H": h, "W": w} for h in (1, 2, 5) for w in (1, 2, 3, 9)]:
        assert_same(k, out, sizes)


@pytest.mark.parametrize("name", naive.ALL)
def test_results_are_kept(name: str) -> None:
    k = naive.ALL[name]()
    out = split(k)
    for sizes in some_sizes(k)[-2:]:
        if all(sizes.values()):
            assert_same(k, out, sizes)


def test_padding_on_both_sides_is_three_ranges() -> None:
    inside = both(below(0, W), below(W, var("W") + 1))
    k = rows(Select(inside, rd("X", H, W - 1), con(0.0), F32), var("W") + 2)
    out = split(k)
    assert leaves(out) == ["0:1", "1:W + 1", "W + 1:W + 2"]
    assert selects(out) == 0
    same(k, out)


def test_what_does_not_depend_on_the_row_is_asked_once_a_row() -> None:
    inside = both(below(0, H), below(W, var("W") - 1))
    k = rows(Select(inside, rd("X", H - 1, W), rd("Y", H, W), F32))
    out = split(k)
    assert selects(out) == 0 and len(leaves(out)) == 3
    same(k, out)


def test_a_disjunction_decides_by_its_negation() -> None:
    edge = Binary("or", below(W, 2), below(var("W") - 2, W), DType.BOOL)
    k = rows(Select(edge, rd("X", H, W), rd("Y", H, W), F32))
    out = split(k)
    assert selects(out) == 0 and len(leaves(out)) == 3
    same(k, out)


def test_ranges_may_move_with_outer_loops() -> None:
    k = rows(Select(below(W, H + 1), rd("X", H, W), con(7.0), F32))
    out = split(k)
    assert selects(out) == 0
    same(k, out)


def test_guards_inside_guards_up_to_a_limit() -> None:
    value: Expr = con(1.0)
    for n in range(module.MOST_GUARDS + 1):
        value = Select(below(W, n + 1), rd("X", H, W), value, F32)
    k = rows(value)
    out = split(k)
    assert selects(out) == 1
    same(k, out)


def test_data_and_remainders_stay_guards() -> None:
    data = Compare("lt", rd("Y", H, W), con(2.0))
    k = rows(Select(data, rd("X", H, W), con(0.0), F32))
    assert split(k) == place_allocations(k)
    cheap = rows(Select(below(W, 3), con(1.0), con(0.0), F32))
    assert split(cheap) == place_allocations(cheap)


def test_reductions_and_strided_rows_stay_whole() -> None:
    guarded = Select(below(W, H), rd("X", H, W), con(0.0), F32)
    reduced = par("h", "H", par("w", "W", up("O", (H, W), "add", guarded)))
    k = kernel("k", "H W", [buf("X", "H W"), buf("O", "H W")], reduced)
    assert split(k) == place_allocations(k)
    across = par("h", "H", par("w", "W", st("O", (W, H), guarded)))
    k = kernel("k", "H W", [buf("X", "H W"), buf("O", "W H")], across)
    assert split(k) == place_allocations(k)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("k", [1, -1])
def test_bounds_by_a_quotient_are_without_it(n: int, k: int) -> None:
    """x/n >= y where x >= n*y, and -x/n >= y where -x >= n*y, whatever the signs."""
    x, y = var("x"), var("y")
    for offset in (-3, 0, 5):
        quotient = floordiv(x + offset, n) * k - y * 2 + 1
        without = without_quotient(quotient)
        assert "/" not in str(without)
        for a in range(-9, 10):
            for b in range(-4, 5):
                place = {"x": a, "y": b}
                assert (evaluate(without, place) >= 0) == (evaluate(quotient, place) >= 0), place
    assert "/" in str(without_quotient(floordiv(x, y)))  # by 0, a quotient is 0
