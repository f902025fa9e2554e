# SPDX-License-Identifier: Apache-2.0
"""Fused reduction loops: results kept, no division left in addresses, and where it is refused."""

from __future__ import annotations

import pytest

from tcsym.index.expr import FloorDiv, index, var
from tcsym.ir.loops import Kernel, Loop
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.schedule.analysis.access import accesses, offset_stride
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.order.fuse_reductions import fuse_reductions
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, kernel, op, par, rd, red, up, v

LOOPS = frozenset("cpq")


def windows(weights: str = "K C P Q", subscripts: str = "k c p q") -> Kernel:
    """O[k, x] += X[x, c, p, q] * F[k, c, p, q], with F stored in another order perhaps."""
    k, x, c, p, q = v("k x c p q")
    term = op("mul", rd("X", x, c, p, q), rd("F", *v(subscripts)))
    body = red("c", "C", red("p", "P", red("q", "Q", up("O", (k, x), "add", term))))
    buffers = [buf("X", "N C P Q"), buf("F", weights), buf("O", "K N")]
    return kernel("f", "K N C P Q", buffers, par("k", "K", par("x", "N", body)))


def loops_of(k: Kernel) -> list[str]:
    return [str(x.upper) for x, _ in walk(k.body) if isinstance(x, Loop)]


@pytest.mark.parametrize(
    ("weights", "subscripts", "left"),
    [
        ("K C P Q", "k c p q", ["C*P*Q"]),
        ("P Q C K", "p q c k", ["C", "P*Q"]),
        ("K Q P C", "k q p c", ["C", "P", "Q"]),
    ],
)
def test_as_far_as_strides_compose(weights: str, subscripts: str, left: list[str]) -> None:
    before = windows(weights, subscripts)
    after, names = fuse_reductions(before, LOOPS, Names.of(before))
    verify(after)
    assert loops_of(after) == ["K", "N", *left] and len(names) == len(left)
    for sizes in ((2, 3, 4, 3, 2), (1, 2, 1, 2, 3), (2, 2, 0, 3, 3), (2, 2, 3, 0, 2)):
        assert_same(before, after, dict(zip(before.sizes, sizes)))


def test_addresses_move_by_one_element() -> None:
    before = windows()
    after, (name,) = fuse_reductions(before, LOOPS, Names.of(before))
    for a in accesses(after.body):
        if a.buffer != "O":
            assert offset_stride(after.buffer(a.buffer), a.subscripts, name) == index(1)
    assert any(
        isinstance(atom, FloorDiv)
        for a in accesses(after.body)
        for s in a.subscripts
        for atom, _ in s.terms  # type: ignore[union-attr]
    )


def test_moving_bounds_are_kept() -> None:
    i, c, p = v("i c p")
    body = red("c", "N", red("p", var("c") + 1, up("O", (i,), "add", rd("X", c, p))))
    before = kernel("f", "M N", [buf("X", "N N"), buf("O", "M")], par("i", "M", body))
    after, left = fuse_reductions(before, frozenset("cp"), Names.of(before))
    assert after == before and left == {"c", "p"}
