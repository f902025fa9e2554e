# SPDX-License-Identifier: Apache-2.0
"""Versions of a contraction for few rows and few columns: which there are, and when they run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.compiler import analyse
from tcsym.index.values import holds
from tcsym.ir.loops import Branch, Kernel, Loop
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.analysis.band import Roles, band_of, contraction_roles
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.stage.along_sum import along_sum, copy_along_sum
from tcsym.schedule.storage.place_allocations import place_allocations, without_allocations
from tcsym.schedule.version.contraction_versions import (
    column_count,
    exchanged,
    may_be_short,
    products_pay,
    short_pays,
    streams_in_place,
)
from tests.schedule import naive
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2, some_sizes

LAYOUTS = {"nn": ("MK", "KN"), "nt": ("MK", "NK"), "tn": ("KM", "KN"), "tt": ("KM", "NK")}


def product(name: str) -> tuple[Kernel, Roles]:
    k = naive.matmul(*LAYOUTS[name])
    k = replace(k, body=without_allocations(k.body))
    roles = contraction_roles(k, band_of(find_loop(k.body, "i")))
    assert roles is not None and (roles.columns, roles.rows) == ("j", "i")
    return k, roles


def setting(k: Kernel) -> Setting:
    return Setting(AVX2, Options(), Names.of(k), [])


@pytest.mark.parametrize(("name", "in_place"), [("nn", 0), ("nt", 0), ("tn", 1), ("tt", 1)])
def test_exchanged_rows_are_columns_that_may_lie_side_by_side(name: str, in_place: int) -> None:
    k, roles = product(name)
    other = exchanged(k, "i", roles)
    assert other is not None and (other.columns, other.rows) == ("i", "j")
    assert {r.tensor for r in other.streamed} == {"A"}
    assert streams_in_place(k, "i", other, setting(k)) == bool(in_place)


@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [("nn", ["B"], None), ("nt", [], []), ("tn", None, None), ("tt", None, ["A"])],
)
def test_the_smaller_operand_is_copied_where_the_other_lies_along_the_sum(
    name: str, columns: list[str] | None, rows: list[str] | None
) -> None:
    k, roles = product(name)
    for few, expected in ((roles.columns, columns), (roles.rows, rows)):
        assert few is not None
        along = along_sum(k, "i", roles, few, Names.of(k))
        found = None if along is None else [t for x in along.operands for t in x.tensors]
        assert found == expected


@pytest.mark.parametrize(("name", "few"), [("nn", "j"), ("tt", "i")])
def test_copies_along_the_sum_keep_the_results(name: str, few: str) -> None:
    k, roles = product(name)
    names = Names.of(k)
    along = along_sum(k, "i", roles, few, names)
    assert along is not None and along.variable == "k"
    copied = copy_along_sum(k, "i", along, names)
    (copy,) = (b for b in copied.buffers if b.name.endswith("_along.1"))
    assert [str(n) for n in copy.shape] == (["N", "K"] if few == "j" else ["M", "K"])
    for sizes in some_sizes(k):
        assert_same(place_allocations(k), place_allocations(copied), sizes)


def test_products_pay_for_few_columns_of_long_sums() -> None:
    k, roles = product("nn")
    along = along_sum(k, "i", roles, "j", Names.of(k))
    assert along is not None
    pays = products_pay(k, "i", roles, along)
    assert holds(pays, {"M": 99, "N": 1, "K": 64}) and holds(pays, {"M": 99, "N": 3, "K": 999})
    assert not holds(pays, {"M": 99, "N": 1, "K": 3})
    assert not holds(pays, {"M": 99, "N": 3, "K": 12})
    assert not holds(pays, {"M": 99, "N": 5, "K": 9999})
    assert not holds(pays, {"M": 3, "N": 3, "K": 9999})  # the copy costs more


def test_columns_of_a_loop_that_follows_evenly_count_too() -> None:
    """C[m,b,n] = sum over k of A[m,k] * B[n,b,k]: columns are all (b, n)."""
    m, b, n, k = v("m b n k")
    term = up("C", (m, b, n), "add", op("mul", rd("A", m, k), rd("B", n, b, k)))
    body = par(
        "m", "M", par("b", "P", par("n", "N", st("C", (m, b, n), con(0.0)), red("k", "K", term)))
    )
    made = kernel("even", "M P N K", [buf("A", "M K"), buf("B", "N P K"), buf("C", "M P N")], body)
    roles = contraction_roles(made, band_of(find_loop(made.body, "m")))
    assert roles is not None and roles.columns == "n"
    assert str(column_count(made, "m", roles)) == "N*P"


@pytest.mark.parametrize(("name", "versions"), [("nn", 4), ("nt", 3), ("tn", 2), ("tt", 3)])
def test_each_product_has_few_versions(name: str, versions: int) -> None:
    notes = map_cpu(naive.matmul(*LAYOUTS[name]), AVX2, Options()).notes
    others = [x for x in notes if ": vectors along" not in x and "blocks of 1 by" not in x]
    assert len(others) == versions


CONVOLUTION = """def f(float(N,C,H,W) I, float(M,C,3,3) F) -> (O) {
  O(n,m,y,x) +=! I(n,c,y+kh,x+kw) * F(m,c,kh,kw)
}"""


@pytest.mark.parametrize(
    ("m", "h", "w", "packed"),
    [
        (4, 54, 1, True),
        (4, 54, 3, False),  # too few channels use a copied element
        (4, 5, 1, False),  # rows of the image do not fill a vector
        (12, 54, 6, True),
        (12, 54, 7, False),
        (16, 54, 8, True),
        (12, 54, 8, False),
        (12, 54, 17, True),  # three vectors in place, of which one has a single column
        (12, 54, 24, False),
    ],
)
def test_narrow_images_are_packed_for_fewer_channels(m: int, h: int, w: int, packed: bool) -> None:
    convolution = schedule_program(analyse(CONVOLUTION)["f"], Options(), {}).kernel
    mapped = map_cpu(convolution, AVX2, Options()).kernel
    branch = next(
        x
        for x, _ in walk(mapped.body)
        if isinstance(x, Branch) and any(a.buffer.startswith("I_panel") for a in accesses(x.then))
    )
    sizes = {"N": 2, "C": 8, "M": m, "H": h + 2, "W": w + 2}
    assert holds(branch.condition, sizes) == packed


WEIGHTS = """def f(float(N,C,H,W) X, float(N,O,P,Q) G, float(M) E) -> (K) {{
  K(o,c,a,b) +=! X(n,c,p+a,q+b) * G(n,o,p,q) where a in 0:{0}, b in 0:{0}
}}"""
IMAGE = """def f(float(N,C,H,W) X, float(O,C,M,M) K) -> (Y) {
  Y(n,o,h,w) +=! X(n,c,h+a,w+b) * K(o,c,a,b)
}"""


def scheduled(source: str) -> tuple[Kernel, str, Roles]:
    """The kernel before mapping, its nest, and the nest's roles."""
    k = schedule_program(analyse(source)["f"], Options(), {}).kernel
    k = replace(k, body=without_allocations(k.body))
    assert isinstance(k.body, Loop)
    roles = contraction_roles(k, band_of(k.body))
    assert roles is not None
    return k, k.body.variable, roles


@pytest.mark.parametrize(
    ("source", "short"),
    [
        (WEIGHTS.format(3), True),
        (WEIGHTS.format(9), False),
        (WEIGHTS.format("M"), True),  # a window, slid over an image
        (IMAGE, False),  # an image, over which a window slides
    ],
)
def test_columns_are_short_if_they_are_a_window(source: str, short: bool) -> None:
    assert may_be_short(*scheduled(source)) == short


def test_short_columns_change_places_with_rows_that_fill_vectors() -> None:
    k, nest, roles = scheduled(WEIGHTS.format("M"))
    other = exchanged(k, nest, roles)
    assert other is not None and (roles.columns, roles.rows) == ("b", "o")
    assert (other.columns, other.rows) == ("o", "c")
    pays = short_pays(k, nest, roles, other, setting(k))
    sizes = dict(N=2, C=16, H=30, W=30, O=24, P=28, Q=28, M=3)
    assert holds(pays, sizes)
    for changed in (dict(O=7), dict(C=1, O=64), dict(M=8)):
        assert not holds(pays, {**sizes, **changed}), changed
