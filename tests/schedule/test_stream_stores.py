# SPDX-License-Identifier: Apache-2.0
"""Nests larger than the cache bypass it: which ones, under which condition, with equal results."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.frontend.program import Call
from tcsym.index.values import holds
from tcsym.ir.loops import THREADS, Branch, Kernel, Node, Store, block
from tcsym.ir.traverse import walk
from tcsym.ir.verify import InternalError, verify
from tcsym.options import Options
from tcsym.schedule.analysis.names import rename_loops
from tcsym.schedule.map_cpu import map_cpu
from tcsym.types import DType
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, con, kernel, op, par, rd, red, st, up, v
from tests.schedule.targets import AVX2
from tests.targets import with_level

ROW, COLUMN, K = v("i j k")
SMALL_CACHE = with_level(AVX2, "l3", 1024)
SUM = op("add", rd("X", ROW, COLUMN), rd("B", COLUMN))


def rows(*body: Node, shape: str = "M N") -> Kernel:
    nest = par("i", "M", par("j", "N", *body))
    return kernel("rows", "M N", [buf("X", "M N"), buf("B", "N"), buf("O", shape)], nest)


def streamed(k: Kernel | Branch) -> list[Store]:
    body = k.body if isinstance(k, Kernel) else k
    return [x for x, _ in walk(body) if isinstance(x, Store) and x.streamed]


def inner(x: Branch) -> list[Branch]:
    return [y for y, _ in walk(x) if isinstance(y, Branch) and y is not x]


def mapped(k: Kernel) -> Kernel:
    out = map_cpu(k, SMALL_CACHE, Options()).kernel
    verify(out)
    return out


@pytest.mark.parametrize("phase", [0, 1, 2, 4, 12])
@pytest.mark.parametrize("m, n", [(0, 16), (3, 0), (1, 7), (3, 64), (5, 66), (2, 1028), (2, 1030)])
def test_results_are_the_same(phase: int, m: int, n: int) -> None:
    k = rows(st("O", (ROW, COLUMN), SUM))
    out = mapped(k)
    assert streamed(out)
    assert_same(k, out, {"M": m, "N": n, "O.phase": phase})


def runs_streamed(k: Kernel, m: int, n: int, phase: int = 0, threads: int = 1) -> bool:
    """Whether the streamed version is the one that runs."""
    (condition,) = [
        x.condition
        for x, _ in walk(k.body)
        if isinstance(x, Branch) and streamed(x) and not any(map(streamed, inner(x)))
    ]
    return holds(condition, {"M": m, "N": n, "O.phase": phase, THREADS: threads})


def test_only_what_exceeds_the_cache_at_aligned_places_in_long_rows() -> None:
    out = mapped(rows(st("O", (ROW, COLUMN), SUM)))
    assert runs_streamed(out, 2, 64)
    assert not runs_streamed(out, 1, 64)  # 3 * 256 bytes are in the cache
    assert runs_streamed(out, 2, 64, phase=4) and runs_streamed(out, 2, 64, phase=12)
    assert not runs_streamed(out, 2, 64, phase=1)
    assert not runs_streamed(out, 40, 68)  # short rows that do not end with a vector
    assert runs_streamed(out, 40, 516)
    assert not runs_streamed(out, 40, 518)  # the second row would not be aligned


def test_several_threads_use_the_cache_for_a_quarter_more() -> None:
    out = mapped(rows(st("O", (ROW, COLUMN), SUM)))
    assert not runs_streamed(out, 2, 64, threads=2)  # 5 * 256 bytes, of 1024
    assert runs_streamed(out, 3, 64, threads=2) and runs_streamed(out, 3, 64, threads=5)


def test_one_long_row_needs_no_aligned_length() -> None:
    nest = par("i", "M", st("O", (ROW,), op("add", rd("X", ROW), con(1.0))))
    k = kernel("row", "M", [buf("X", "M"), buf("O", "M")], nest)
    out = mapped(k)
    assert runs_streamed(out, 1000, 0) and not runs_streamed(out, 1000, 0, phase=2)
    for m in (0, 1, 127, 128, 1003):
        assert_same(k, out, {"M": m})


def test_nests_that_compute_or_read_what_they_write_keep_their_stores() -> None:
    call = rows(st("O", (ROW, COLUMN), Call("exp", (rd("X", ROW, COLUMN),), DType.FLOAT32)))
    sums = rows(
        st("O", (ROW, COLUMN), con(0.0)),
        red("k", "N", up("O", (ROW, COLUMN), "add", rd("X", ROW, K))),
    )
    assert not any(streamed(mapped(k)) for k in (call, sums))
    again = par("i", "M", par("j", "N", st("P", (ROW, COLUMN), rd("O", ROW, COLUMN))))
    first = rows(st("O", (ROW, COLUMN), SUM))
    both = replace(
        first,
        arguments=(*first.arguments, "P"),
        buffers=(*first.buffers, buf("P", "M N")),
        body=block(first.body, rename_loops(again, {"i": "a", "j": "b"})),
    )
    assert {x.buffer for x in streamed(mapped(both))} == {"P"}


def test_a_streamed_store_outside_a_vector_is_refused() -> None:
    k = rows(replace(st("O", (ROW, COLUMN), SUM), streamed=True))
    with pytest.raises(InternalError, match="streamed"):
        verify(k)
