# SPDX-License-Identifier: Apache-2.0
"""Where windows run in tiles of a row's points with another loop in the lanes; results stay."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.index.expr import Condition
from tcsym.index.values import holds
from tcsym.ir.loops import THREADS, Branch, Kernel, Loop, TransposeBlock
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.schedule.tile.lane_windows import POINTS
from tests.schedule.compare import assert_same
from tests.schedule.targets import AVX512

CHANNELWISE = """def f(float(N,C,H,W) X, float(C,KH,KW) F) -> (O) {
  O(n,c,y,x) +=! X(n,c,y+i,x+j) * F(c,i,j)
}"""
SHORT = CHANNELWISE.replace("F(c,i,j)", "F(c,i,j) where i in 0:2, j in 0:2")
LARGEST = """def f(float(C,W) X, float(C,K) F) -> (O) { O(c,x) max=! X(c,x+j) + F(c,j) }"""
SIZES = {"N": 1, "C": 64, "H": 30, "W": 21, "KH": 5, "KW": 5, THREADS: 1}


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def tiled(kernel: Kernel) -> Branch | None:
    """The version that stores as many points of a row as a tile has from copies."""
    for x, _ in walk(kernel.body):
        if isinstance(x, Branch) and not any(isinstance(y, Branch) for y, _ in walk(x.then)):
            inside = [y for y, _ in walk(x.then)]
            copied = any(isinstance(y, TransposeBlock) for y in inside)
            points = any(isinstance(y, Loop) and y.upper.as_int() == POINTS for y in inside)
            if copied and points:
                return x
    return None


def condition(source: str) -> Condition:
    version = tiled(map_cpu(naive(source), AVX512, Options()).kernel)
    assert version is not None
    return version.condition


def test_large_windows_and_narrow_images_have_channels_in_lanes() -> None:
    pays = condition(CHANNELWISE)
    assert holds(pays, SIZES)
    assert holds(pays, SIZES | {"W": 45, "KH": 7, "KW": 7})
    assert holds(pays, SIZES | {"W": 13, "KH": 3, "KW": 3})


@pytest.mark.parametrize(
    "others",
    [
        {"C": 15},  # fewer than lanes
        {"W": POINTS + 3},  # rows shorter than a tile
        {"W": 30, "KH": 3, "KW": 3},  # straight code in place
        {"KH": 2, "KW": 2, "W": 30},  # windows that take less time than copies
        {"H": 3000, "W": 3000},  # copies that leave the cache
        {THREADS: 64},
    ],
)
def test_others_stay_in_place(others: dict[str, int]) -> None:
    assert not holds(condition(CHANNELWISE), SIZES | others)


def test_windows_of_few_known_points_stay_in_place() -> None:
    version = tiled(map_cpu(naive(SHORT), AVX512, Options()).kernel)
    assert version is None or not holds(version.condition, SIZES)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("c", "w"), [(16, 12), (31, 13), (31, 19)])
def test_results_are_kept(c: int, w: int) -> None:
    """Tiles overlap at the end of a row, and groups of lanes at the end of the channels."""
    k = naive(CHANNELWISE)
    mapped = map_cpu(k, AVX512, Options()).kernel
    verify(mapped)
    sizes = {"N": 1, "C": c, "H": 15, "W": w, "KH": 7, "KW": 7}
    assert holds(condition(CHANNELWISE), sizes | {THREADS: 1})
    assert_same(k, mapped, sizes | {THREADS: 1})


def test_any_sum_over_windows_counts() -> None:
    k = naive(LARGEST)
    mapped = map_cpu(k, AVX512, Options()).kernel
    sizes = {"C": 30, "W": 47, "K": 30, THREADS: 1}
    version = tiled(mapped)
    assert version is not None and holds(version.condition, sizes)
    assert_same(k, mapped, sizes)
