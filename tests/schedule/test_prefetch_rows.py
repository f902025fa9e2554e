# SPDX-License-Identifier: Apache-2.0
"""Sums along rows fetch what comes next; other loops and written buffers are left alone."""

from __future__ import annotations

from tcsym.ir.loops import Kernel, Loop, Prefetch
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.types import DType
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2

I8 = DType.INT8


def fetched(k: Kernel) -> list[tuple[str, str]]:
    """(variable of the innermost loop around, text of the last subscript) of each prefetch."""
    out = map_cpu(k, AVX2, Options()).kernel
    for sizes in ((1, 1), (9, 70), (17, 33)):
        assert_same(k, out, dict(zip(k.sizes, sizes)))
    found = []
    for x, around in walk(out.body):
        if isinstance(x, Prefetch):
            loops = [y for y in around if isinstance(y, Loop)]
            found.append((loops[-1].order, str(x.read.subscripts[-1])))
    return found


def centred(total: str = "S") -> Kernel:
    """O(m,n) = X(m,n) - sum of X(m,.)"""
    value = rd("X", *v("m n"))
    nest = par(
        "m",
        "M",
        st(total, v("m"), con(0.0)),
        red("n", "N", up(total, v("m"), "add", value)),
        par("k", "N", st("O", v("m k"), op("sub", rd("X", *v("m k")), rd(total, *v("m"))))),
    )
    sums = buf(total, "M", private="m")
    return kernel("centred", "M N", [buf("X", "M N"), buf("O", "M N"), sums], nest)


def test_the_only_loop_over_a_row_fetches_ahead_of_itself() -> None:
    nest = par(
        "m",
        "M",
        st("O", v("m"), con(0.0)),
        red("n", "N", up("O", v("m"), "add", rd("X", *v("m n")))),
    )
    sums = kernel("rowsum", "M N", [buf("X", "M N"), buf("O", "M")], nest)
    lines = fetched(sums)
    assert [order for order, _ in lines] == ["reduction", "reduction"]
    assert [text.endswith(end) for (_, text), end in zip(lines, ("+ 512", "+ 528"))] == [True] * 2


def test_what_is_left_of_a_row_fetches_nothing() -> None:
    nest = par(
        "m",
        "M",
        st("O", v("m"), con(0, I8)),
        red("n", "N", up("O", v("m"), "add", rd("X", *v("m n"), dtype=I8))),
    )
    k = kernel("bytes", "M N", [buf("X", "M N", I8), buf("O", "M", I8)], nest)
    assert [text.endswith(end) for (_, text), end in zip(fetched(k), ("2048", "2112"))] == [
        True
    ] * 2
    whole = [x for x, _ in walk(map_cpu(k, AVX2, Options()).kernel.body) if isinstance(x, Loop)]
    assert "4*(N/128)" in {str(x.lower) for x in whole}  # vectors first, then elements


def test_the_last_loop_over_a_row_fetches_the_next_row() -> None:
    *pair, (order, place) = fetched(centred())
    assert order == "parallel" and "min(2048, N)" in place
    assert ["min(2*N, 2048)" in text for _, text in pair] == [True] * 2  # two rows at a time


def test_nothing_is_fetched_for_maps() -> None:
    nest = par("m", "M", par("n", "N", st("O", v("m n"), rd("X", *v("m n")))))
    assert not fetched(kernel("copy", "M N", [buf("X", "M N"), buf("O", "M N")], nest))


def test_written_rows_are_not_fetched() -> None:
    """X(m,n) -= sum of X(m,.), in place."""
    nest = par(
        "m",
        "M",
        st("S", v("m"), con(0.0)),
        red("n", "N", up("S", v("m"), "add", rd("X", *v("m n")))),
        par("k", "N", st("X", v("m k"), op("sub", rd("X", *v("m k")), rd("S", *v("m"))))),
    )
    buffers = [buf("X", "M N"), buf("S", "M", private="m")]
    assert not fetched(kernel("in_place", "M N", buffers, nest))
