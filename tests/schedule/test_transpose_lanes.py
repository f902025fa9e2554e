# SPDX-License-Identifier: Apache-2.0
"""Which vectors of rows' lanes are loaded and stored as blocks of rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tcsym.compiler import analyse
from tcsym.frontend.program import Read
from tcsym.ir.loops import Kernel, TransposeBlock
from tcsym.ir.traverse import walk
from tcsym.options import Options
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.analysis.setting import Setting
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.storage.place_allocations import place_allocations
from tcsym.schedule.tile.transpose_lanes import transpose_lanes
from tests.schedule.compare import assert_same
from tests.schedule.naive import buf, kernel, op, par, rd, red, up, v
from tests.schedule.targets import AVX2, TARGETS

OLD = Options(mapping="old")

ROW_SUM = "def f(float(N,C) X) -> (O) { O(n) +=! X(n,c) }"
NORM = """def f(float(N,C) X, float(C) g) -> (O) {
  S(n) +=! X(n,c) * X(n,c)
  O(n,c) = X(n,c) * g(c) / sqrt(S(n) + 0.5)
}"""
LARGEST = """def f(double(N,C) X) -> (O) {
  m(n) max=! X(n,c)
  O(n,c) = exp(X(n,c) - m(n))
}"""
GUARDED = """def f(float(N,C) X, float(N) t) -> (O) {
  m(n) max=! t(n) > 0.0 ? exp(X(n,c)) : 1.0
  O(n,c) = X(n,c) - m(n)
}"""
BYTES = "def f(uint8(N,C) X) -> (O) { O(n) +=! float(X(n,c)) }"
MAP = "def f(float(N,C) X, float(C) g) -> (O) { O(n,c) = X(n,c) * g(c) }"
SOURCES = {"sum": ROW_SUM, "norm": NORM, "max": LARGEST, "guard": GUARDED, "bytes": BYTES}


def mapped(source: str, target: str = "avx2") -> tuple[Kernel, Kernel]:
    naive = schedule_program(analyse(source)["f"], Options(), {}).kernel
    return naive, map_cpu(naive, TARGETS[target], OLD).kernel


def blocks(kernel: Kernel) -> list[tuple[str, str]]:
    """Source and target of each, without the numbers of panels."""
    found = (x for x, _ in walk(kernel.body) if isinstance(x, TransposeBlock))
    return [(x.source.partition(".")[0], x.target.partition(".")[0]) for x in found]


def test_each_pass_over_the_rows_loads_blocks() -> None:
    assert blocks(mapped(ROW_SUM)[1]) == [("X", "X_block")]
    assert blocks(mapped(NORM)[1]) == [("X", "X_block"), ("X", "X_block"), ("O_block", "O")]


def test_blocks_are_as_wide_as_a_vector() -> None:
    found = [x for x, _ in walk(mapped(LARGEST)[1].body) if isinstance(x, TransposeBlock)]
    assert found and {x.block for x in found} == {AVX2.lanes(64)}


def test_a_load_under_a_condition_is_not_made_for_all() -> None:
    naive, kernel = mapped(GUARDED)
    sources = [source for source, _ in blocks(kernel)]
    assert sources.count("X") == 1  # of the second statement
    assert "O_block" in sources
    assert_same(naive, kernel, {"N": 9, "C": 17})


@pytest.mark.parametrize("source", [BYTES, MAP])
def test_what_has_no_blocks(source: str) -> None:
    """Elements that are no vector of the block, and rows of which a vector is enough."""
    assert not blocks(mapped(source)[1])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_results_at_every_border(name: str, target: str) -> None:
    naive, kernel = mapped(SOURCES[name], target)
    for rows in (0, 1, 8, 9, 17):
        for columns in (0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31):
            assert_same(naive, kernel, {"N": rows, "C": columns})


@pytest.mark.parametrize("other", [rd("X", v("n")[0] * 2, 0, *v("c")), rd("X", 0, *v("n c"))])
def test_lanes_that_begin_at_the_same_element_are_told_apart(other: Read) -> None:
    """By where they go on: at another step, or along another dimension."""
    n, c = v("n c")
    term = op("mul", rd("X", n, 0, c), other)
    lanes = replace(par("n", 8, up("S", (n,), "add", term)), kind="vector")
    buffers = [buf("X", (16, 8, *v("C"))), buf("S", (8,))]
    naive = kernel("k", "C", buffers, red("c", "C", lanes))
    setting = Setting(AVX2, Options(), Names.of(naive), [])
    blocked = transpose_lanes(naive, "c", 8, setting)
    assert blocks(blocked)
    for columns in (7, 8, 20):
        assert_same(naive, place_allocations(blocked), {"C": columns})
