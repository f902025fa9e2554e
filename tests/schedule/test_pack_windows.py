# SPDX-License-Identifier: Apache-2.0
"""Windows over short numbers run over copies with channels side by side where the target can."""

from __future__ import annotations

import pytest

from tcsym.frontend.program import Call, Cast
from tcsym.index.expr import index
from tcsym.ir.loops import Kernel, Node, Store, Update
from tcsym.ir.packed import BFLOAT, BYTES, PACK, SHORT
from tcsym.ir.traverse import subvalues, walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.stage.pack_windows import pack_windows
from tcsym.schedule.storage.place_allocations import place_allocations
from tcsym.target.machine import Machine
from tcsym.types import DType
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, seq, st, up, v
from tests.schedule.targets import AVX2, DOTS, SCALAR

t, o, x, y, c, i, j = v("t o x y c i j")
BF16, F32 = DType.BFLOAT16, DType.FLOAT32
INT8, UINT8, INT16, INT32 = DType.INT8, DType.UINT8, DType.INT16, DType.INT32


def windows(a: DType, b: DType, wide: DType, step: int = 1) -> Kernel:
    """Y(t,o,y,x) += wide(X(t,c,step*y+i,step*x+j)) * wide(F(o,c,i,j)), t in order."""
    image = rd("X", t, c, y * step + i, x * step + j, dtype=a)
    term = op("mul", Cast(image, wide), Cast(rd("F", o, c, i, j, dtype=b), wide), wide)
    update = up("Y", (t, o, y, x), "add", term)
    sums = red("c", "C", red("i", "P", red("j", "Q", update)))
    zero = st("Y", (t, o, y, x), con(0.0 if wide.is_float else 0, wide))
    body = seq("t", "T", par("o", "O", par("y", "H", par("x", "W", zero, sums))))
    whole = [n * step + k - 1 for n, k in (v("H P"), v("W Q"))]
    shapes = (*v("T C"), *whole), v("O C P Q"), v("T O H W")
    buffers = [buf(n, s, d) for n, s, d in zip("XFY", shapes, (a, b, wide))]
    return kernel("f", "T O C H W P Q", buffers, body)


def packed(naive: Kernel, target: Machine = DOTS) -> Kernel | None:
    found = pack_windows(naive, "o", Setting(target, Options(), Names.of(naive), []))
    if found is None:
        return None
    placed = place_allocations(found.kernel)
    verify(placed)
    return placed


def calls(node: Node) -> set[str]:
    nodes = [s for s, _ in walk(node) if isinstance(s, Store | Update)]
    return {z.function for s in nodes for z in subvalues(s.value) if isinstance(z, Call)}


SIZES = [
    (1, 9, 5, 3, 20, 3, 3),
    (1, 3, 4, 2, 33, 1, 1),
    (2, 8, 1, 2, 16, 2, 3),
    (1, 2, 0, 3, 3, 2, 2),
]
CASES = [
    (BF16, BF16, F32, BFLOAT),
    (INT8, INT8, INT32, BYTES),
    (UINT8, INT8, INT32, BYTES),
    (UINT8, UINT8, INT32, BYTES),
    (INT16, UINT8, INT32, SHORT),
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("a", "b", "wide", "function", "step"),
    [*((*case, 2) for case in CASES), *((*case, 1) for case in CASES[:2])],
)
def test_terms_are_dot_products_of_copies(
    a: DType, b: DType, wide: DType, function: str, step: int
) -> None:
    naive = windows(a, b, wide, step)
    new = packed(naive)
    mapped = map_cpu(naive, DOTS, Options()).kernel
    verify(mapped)
    assert new is not None
    assert calls(new.body) == calls(mapped.body) == {PACK, function}
    for sizes in SIZES:
        for found in (new, mapped):
            assert_same(naive, found, dict(zip("TOCHWPQ", sizes)))


def stores(p: Kernel) -> list[tuple[str, tuple[str, ...]]]:
    """What is stored or added to, and the orders of the loops around."""
    found = [(x, around) for x, around in walk(p.body) if isinstance(x, Store | Update)]
    return [(x.buffer.split(".")[0], tuple(y.order for y in around)) for x, around in found]


def test_copies_stand_before_loops_that_leave_them_as_they_are() -> None:
    new = packed(windows(INT8, INT8, INT32))
    assert new is not None
    inside = {name for name, orders in stores(new) if "sequential" in orders}
    assert inside == {"X_packed", "Y"}


def test_copies_and_sums_run_along_memory() -> None:
    """Full steps of channels, rows and columns are one loop; so are all that weights sum."""
    new = packed(windows(INT8, INT8, INT32))
    assert new is not None
    assert ("X_packed", ("sequential", "parallel")) in stores(new)
    assert ("F_packed", ("parallel", "parallel")) in stores(new)
    assert ("owed", ("parallel", "reduction")) in stores(new)


@pytest.mark.parametrize("target", [SCALAR, AVX2])
def test_targets_without_an_instruction_keep_their_windows(target: Machine) -> None:
    assert packed(windows(BF16, BF16, F32), target) is None


def test_a_sum_over_an_image_is_none_of_windows() -> None:
    """The gradient of weights: Y(o,c,i,j) += X(n,c,y+i,x+j) * G(n,o,y,x), windows of 3."""
    image, other = rd("X", t, c, y + i, x + j, dtype=BF16), rd("G", t, o, y, x, dtype=BF16)
    update = up("Y", (o, c, i, j), "add", op("mul", Cast(image, F32), Cast(other, F32)))
    sums = red("t", "T", red("y", "H", red("x", "W", update)))
    body = par(
        "o", "O", par("c", "C", par("i", 3, par("j", 3, st("Y", (o, c, i, j), con(0.0)), sums)))
    )
    height, width = v("H W")
    shapes = {
        "X": (*v("T C"), height + 2, width + 2),
        "G": v("T O H W"),
        "Y": (*v("O C"), index(3), index(3)),
    }
    buffers = [buf(n, s, F32 if n == "Y" else BF16) for n, s in shapes.items()]
    assert packed(kernel("f", "T O C H W", buffers, body)) is None
