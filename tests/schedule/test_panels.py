# SPDX-License-Identifier: Apache-2.0
"""Panels and blocks of rows: what fits the cache, what the threads of a call share."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.index.expr import index, var
from tcsym.index.values import evaluate
from tcsym.ir.loops import THREADS, block
from tcsym.options import Options
from tcsym.schedule.analysis.loops import replace_loop
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.stage.panels import Room, panel_sizes, threads_left
from tests.schedule import naive
from tests.schedule.targets import AVX2


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("n_tiles", [0, 1, 7, 64])
@pytest.mark.parametrize("loops", [(), (1,), (200,), (3, 500), (1, 10000)])
def test_panels_fit_and_threads_get_a_share(
    n_tiles: int, loops: tuple[int, ...], threads: int
) -> None:
    room = Room(2**18, index(5), 6, index(threads))
    sizes = panel_sizes(index(n_tiles), tuple(map(index, loops)), room)
    panel, most, block_size = sizes.panel.as_int(), sizes.most.as_int(), sizes.block.as_int()
    assert panel is not None and most is not None and block_size is not None
    assert 1 <= panel <= most <= max(1, min(5, n_tiles)) and block_size >= 1
    n_panels, rows = -(-n_tiles // panel), (loops or (1,))[0]
    n_blocks = -(-rows // block_size)
    assert n_blocks == 1 or threads > 1
    assert n_panels * n_blocks >= min(n_tiles, threads)


def test_threads_share_rows_where_copying_all_columns_is_less_than_sharing_lines() -> None:
    """Rows of the result that two threads write cost each of them a transfer of a line."""

    def block_rows(rows: int, depth: int) -> int | None:
        fit = index(2**18 // (64 * depth))
        room = Room(2**18, fit, 6, index(2))
        return panel_sizes(index(16), (index(rows),), room).block.as_int()

    assert block_rows(100, 4) == 50
    assert block_rows(20, 4000) == 20


def test_threads_are_divided_among_loops_around() -> None:
    """A loop of batches with as many iterations leaves no thread to the loops in it."""
    kernel = naive.batched()
    setting = Setting(AVX2, Options(), Names.of(kernel), [])

    def left(batches: int) -> int:
        given = dict.fromkeys(kernel.sizes, 9) | {"B": batches, THREADS: 4}
        return evaluate(threads_left(kernel, "i", setting), given)

    assert [left(n) for n in (1, 2, 3, 4, 5)] == [4, 2, 2, 1, 1]
    alone = replace(setting, options=Options(parallelize=False))
    assert threads_left(kernel, "i", alone) == index(1)


def test_copies_in_front_leave_threads_to_the_loops_in_a_batch() -> None:
    kernel = naive.batched()
    copy = naive.par("c", "M", naive.st("Y", (0, var("c"), 0), naive.con(0.0)))
    body = replace_loop(kernel.body, "i", lambda x: block(copy, x))
    setting = Setting(AVX2, Options(), Names.of(kernel), [])
    left = threads_left(replace(kernel, body=body), "i", setting)
    given = dict.fromkeys(kernel.sizes, 9) | {"B": 1, THREADS: 4}
    assert evaluate(left, given) == 4
