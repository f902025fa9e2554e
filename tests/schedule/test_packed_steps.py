# SPDX-License-Identifier: Apache-2.0
"""Sums of products of short numbers run two or four steps at a time where the target can."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Call, Cast
from tcsym.index.values import holds
from tcsym.ir.loops import Kernel, Store, Update
from tcsym.ir.packed import BFLOAT, BYTES, PACK, SHORT, packed_run
from tcsym.ir.traverse import subvalues, walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.band import roles_at
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.version.contraction_versions import panels_pay
from tcsym.types import DType
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, seq, st, up, v
from tests.schedule.targets import AVX2, AVX512, DOTS, SCALAR

i, j, k, h = v("i j k h")
BF16, F32 = DType.BFLOAT16, DType.FLOAT32
INT8, UINT8, INT16, INT32 = DType.INT8, DType.UINT8, DType.INT16, DType.INT32


def product(a: DType, b: DType, wide: DType, transposed: bool = False) -> Kernel:
    """C(i,j) += wide(A(i,k)) * wide(B(k,j))"""
    right = rd("B", j, k, dtype=b) if transposed else rd("B", k, j, dtype=b)
    term = op("mul", Cast(rd("A", i, k, dtype=a), wide), Cast(right, wide), wide)
    zero = con(0.0 if wide.is_float else 0, wide)
    update = up("C", (i, j), "add", term)
    body = par("i", "M", par("j", "N", st("C", (i, j), zero), red("k", "K", update)))
    shape = "N K" if transposed else "K N"
    buffers = [buf("A", "M K", a), buf("B", shape, b), buf("C", "M N", wide)]
    return kernel("f", "M N K", buffers, body)


def calls(p: Kernel) -> set[str]:
    nodes = [x for x, _ in walk(p.body) if isinstance(x, Store | Update)]
    return {y.function for x in nodes for y in subvalues(x.value) if isinstance(y, Call)}


SIZES = [(9, 33, 5), (17, 40, 8), (8, 32, 1), (3, 35, 2), (16, 70, 7), (9, 1, 11), (0, 3, 4)]
CASES = [
    (BF16, BF16, F32, BFLOAT),
    (INT16, INT8, INT32, SHORT),
    (UINT8, INT8, INT32, BYTES),
    (INT8, UINT8, INT32, BYTES),
    (INT8, INT8, INT32, BYTES),
    (UINT8, UINT8, INT32, BYTES),
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("a", "b", "wide", "function"), CASES)
def test_short_factors_are_multiplied_packed(
    a: DType, b: DType, wide: DType, function: str, transposed: bool
) -> None:
    naive = product(a, b, wide, transposed)
    mapped = map_cpu(naive, DOTS, Options()).kernel
    verify(mapped)
    assert calls(mapped) == {PACK, function}
    for m, n, steps in SIZES:
        assert_same(naive, mapped, {"M": m, "N": n, "K": steps})


def test_signed_bytes_below_other_loops_are_packed_in_pairs() -> None:
    """What bytes owe is summed before a nest, which would be done in every iteration there."""
    naive = product(INT8, INT8, INT32)
    naive = replace(naive, sizes=("T", *naive.sizes), body=seq("t", "T", naive.body))
    mapped = map_cpu(naive, DOTS, Options()).kernel
    verify(mapped)
    assert calls(mapped) == {PACK, SHORT}
    assert_same(naive, mapped, {"T": 2, "M": 9, "N": 33, "K": 7})


@pytest.mark.parametrize(("a", "b", "wide", "function"), CASES)
def test_targets_without_an_instruction_multiply_as_before(
    a: DType, b: DType, wide: DType, function: str
) -> None:
    naive = product(a, b, wide)
    expected = set() if wide is F32 else {PACK, SHORT}
    assert calls(map_cpu(naive, AVX2, Options()).kernel) == expected
    assert calls(map_cpu(naive, AVX512, Options()).kernel) == expected
    assert calls(map_cpu(naive, SCALAR, Options()).kernel) == set()
    assert calls(map_cpu(naive, DOTS, Options(vectorize=False)).kernel) == set()


def test_the_loop_that_is_packed_is_one_along_which_rows_lie() -> None:
    """C(i,j) += A(i,h,k) * B(k,h,j): elements of k are neighbours, those of h are not."""
    a, b = rd("A", i, h, k, dtype=BF16), rd("B", k, h, j, dtype=BF16)
    update = up("C", (i, j), "add", op("mul", Cast(a, F32), Cast(b, F32)))
    inner = red("k", "K", red("h", "H", update))
    body = par("i", "M", par("j", "N", st("C", (i, j), con(0.0)), inner))
    buffers = [buf("A", "M H K", BF16), buf("B", "K H N", BF16), buf("C", "M N")]
    naive = kernel("f", "M N K H", buffers, body)
    mapped = map_cpu(naive, DOTS, Options()).kernel
    packs = [
        y
        for x, _ in walk(mapped.body)
        if isinstance(x, Update)
        for y in subvalues(x.value)
        if isinstance(y, Call) and y.function == PACK
    ]
    assert any(r is not None and r.tensor == "A" for r in map(packed_run, packs))
    for sizes in ((9, 33, 5, 3), (8, 40, 1, 4), (10, 35, 6, 2)):
        assert_same(naive, mapped, dict(zip("MNKH", sizes)))


def test_panels_of_several_steps_pay_from_a_few_rows_on() -> None:
    """Rows in place take one step at a time: bytes in panels four, pairs two."""

    def pays(a: DType, wide_type: DType, rows: int, steps: int) -> bool:
        p = product(a, a, wide_type)
        found = roles_at(p, "i")
        assert found is not None
        condition = panels_pay(p, "i", found, Setting(DOTS, Options(), Names.of(p), []))
        return holds(condition, {"M": rows, "N": 99, "K": steps})

    far = 2 * DOTS.level("l1").bytes // 64
    for dtype, wide_type, few in (
        (INT8, INT32, 2),
        (BF16, F32, 4),
        (INT16, INT32, 4),
        (F32, F32, 11),
    ):
        assert pays(dtype, wide_type, few + 1, 64) == (dtype is not F32)
        assert not pays(dtype, wide_type, few, 64)
        assert pays(dtype, wide_type, 3, far) == (dtype is not F32)
        assert not pays(dtype, wide_type, 2, far)
