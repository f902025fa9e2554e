# SPDX-License-Identifier: Apache-2.0
"""Operands whose memory runs along another loop of a contraction are copied in its order first."""

from __future__ import annotations

import pytest

from tcsym.ir.loops import Buffer, Kernel, Loop, Node, TransposeBlock
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.analysis.band import band_of, contraction_roles
from tcsym.schedule.analysis.loops import find_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.stage.permute_operands import permute_operands
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2


def contraction(a: str, b: str, out: str, *more: Node) -> Kernel:
    """O(out) = sum of A(a) * B(b)."""
    names, place = sorted({*a, *b}), v(" ".join(out))
    product = op("mul", rd("A", *v(" ".join(a))), rd("B", *v(" ".join(b))))
    body: Node = up("O", place, "add", product)
    for name in (n for n in names if n not in out):
        body = red(name, name.upper(), body)
    inside: tuple[Node, ...] = (st("O", place, con(0.0)), body, *more)
    for name in reversed(out):
        inside = (par(name, name.upper(), *inside),)
    shapes = [buf(x, " ".join(s.upper())) for x, s in (("A", a), ("B", b), ("O", out))]
    return kernel(f"{a}_{b}_{out}", " ".join(names).upper(), shapes, inside[0])


def copies(k: Kernel) -> dict[str, Buffer]:
    assert isinstance(k.body, Loop)
    top = k.body.variable
    roles = contraction_roles(k, band_of(find_loop(k.body, top)))
    assert roles is not None
    found = permute_operands(k, top, roles, Names.of(k)).kernel.buffers
    return {b.name[0]: b for b in found if "_copy" in b.name}


@pytest.mark.parametrize(
    ("a", "b", "out", "found"),
    [
        ("mkb", "knb", "bmn", {"A": "B M K", "B": "B K N"}),  # batches lie side by side
        ("efbad", "cf", "abcde", {"A": "A B F D E"}),  # d and e are columns together
        ("mk", "kn", "mn", {}),
        ("km", "nk", "mn", {}),  # rows, and steps, lie side by side
        ("bmk", "bnk", "bmn", {}),
    ],
)
def test_what_is_copied_and_in_which_order(a: str, b: str, out: str, found: dict[str, str]) -> None:
    got = copies(contraction(a, b, out))
    assert {n: x.shape for n, x in got.items()} == {n: v(s) for n, s in found.items()}


def test_what_the_nest_writes_is_not_copied() -> None:
    k = contraction("mkb", "knb", "bmn", st("A", v("m n b"), con(0.0)))
    assert list(copies(k)) == ["B"]


@pytest.mark.parametrize(("a", "b", "out"), [("mkb", "knb", "bmn"), ("efbad", "cf", "abcde")])
def test_copies_are_transposed_in_blocks_and_change_nothing(a: str, b: str, out: str) -> None:
    k = contraction(a, b, out)
    mapped = map_cpu(k, AVX2, Options()).kernel
    assert any(isinstance(x, TransposeBlock) and "A_copy" in x.target for x, _ in walk(mapped.body))
    for extents in ((9, 3, 4, 2, 10, 5), (2, 12, 1, 9, 8, 17), (16, 6, 3, 7, 5, 1)):
        assert_same(k, mapped, dict(zip(k.sizes, extents)))
