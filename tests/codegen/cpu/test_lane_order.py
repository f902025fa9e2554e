# SPDX-License-Identifier: Apache-2.0
"""Which register buffers keep the order of lanes that one shuffle leaves, and that order."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import pytest

import tcsym
from tcsym.codegen.cpu.lane_order import LaneOrder, lane_order, restored, shuffled
from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_cpu import map_cpu
from tcsym.target.names import resolve_target
from tests.guarded import guarded

POOL = """def f(float(C,H,W) I) -> (O) {
  O(c,h,w) max=! I(c,2*h+p,2*w+q) where p in 0:3, q in 0:3
}"""
DILATED = """def f(float(C,H,W) I, float(3,3) F) -> (O) {
  O(c,h,w) max=! I(c,2*h+p,2*w+q) + F(p,q)
}"""


def order_of(source: str, target: str = "cpu:avx2") -> LaneOrder:
    described = resolve_target(target).machine
    scheduled = schedule_program(analyse(source)["f"], Options(), {}).kernel
    kernel = map_cpu(scheduled, described, Options()).kernel
    return lane_order(kernel.body, {b.name: b for b in kernel.buffers}, described)


@pytest.mark.parametrize("width", [4, 8])
def test_one_shuffle_within_halves_makes_the_order(width: int) -> None:
    """Each half takes from the same half of either vector."""
    per = width // 2  # elements of a vector in 128 bits
    for position, lane in enumerate(shuffled(width)):
        vector, place = divmod(2 * lane, width)
        assert place // per == position // per
        assert vector == position % per // (per // 2)
    assert [shuffled(width)[p] for p in restored(width)] == list(range(width))


def test_only_whole_tiles_of_every_second_element_are_shuffled() -> None:
    order = order_of(DILATED)
    assert order.buffers and all(name.startswith("O_acc") for name in order.buffers)
    assert {trips for _, trips in order.whole} == {3}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (DILATED, "cpu:avx512"),
        (DILATED, "cpu:novector"),
        (DILATED.replace("2*w", "w"), "cpu:avx2"),
        (DILATED.replace("2*w", "3*w"), "cpu:avx2"),
        (DILATED.replace(" + F(p,q)", " + F(p,q) + I(c,h,w)"), "cpu:avx2"),
        (DILATED.replace("F(p,q)", "F(p,q) * w"), "cpu:avx2"),
        (DILATED.replace("I(c,2*h+p,2*w+q)", "(I(c,h,w) > 0 ? I(c,2*h+p,2*w+q) : 0)"), "cpu:avx2"),
        (DILATED.replace("float", "half"), "cpu:avx2"),
    ],
    ids=["wide", "scalar", "step 1", "step 3", "another step", "the lane", "a choice", "half"],
)
def test_everything_else_keeps_its_order(source: str, target: str) -> None:
    assert order_of(source, target) == LaneOrder()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("window", [1, 2, 3, 4])
@pytest.mark.parametrize("edge", ["end", "start"])
def test_results_are_in_order_and_nothing_outside_is_read(
    dtype: type, window: int, edge: Literal["end", "start"]
) -> None:
    name = {np.float32: "float", np.float64: "double", np.int32: "int32"}[dtype]
    source = POOL.replace("float", name).replace("0:3", f"0:{window}")
    kernel = tcsym.define(source, target="cpu:avx2").f
    for height, width in ((window + 6, window + 30), (23, 41), (12, 18), (11, window + 14)):
        x = guarded((np.arange(2 * height * width) * 37 % 1009).astype(dtype), edge)
        x = x.reshape(2, height, width)
        np.testing.assert_array_equal(kernel(x), kernel.reference(x))


def test_not_a_number_stays_in_its_lane() -> None:
    kernel = tcsym.define(POOL, target="cpu:avx2").f
    for at in range(41):
        x = np.zeros((1, 11, 41), np.float32)
        x[0, at % 11, at] = np.nan
        np.testing.assert_array_equal(kernel(x), kernel.reference(x))


def test_a_vector_is_put_right_once() -> None:
    """Four rows of one vector; neighbours share what they load."""
    text = tcsym.define(DILATED, target="cpu:avx2").f.explain("asm")
    block = max(re.split(r"^\.LBB", text, flags=re.MULTILINE), key=lambda b: b.count("vmaxps"))
    assert block.count("vpermpd") + block.count("vpermps") == 4
    loads = re.findall(r"^\t\w+\s+(?:\$\d+, )?-?\d*\(%r.*%ymm\d+$", block, flags=re.MULTILINE)
    assert len(loads) <= 9 * 4 + 3 * 8


def test_a_value_of_every_second_element_is_put_right_once() -> None:
    """Four neighbours in one expression: four vectors, four shuffles, one more at the end."""
    source = """def f(float(H,W) I) -> (O) {
  O(h,w) = max(max(I(2*h,2*w), I(2*h,2*w+1)), max(I(2*h+1,2*w), I(2*h+1,2*w+1)))
}"""
    text = tcsym.define(source, target="cpu:avx2").f.explain("asm")
    block = max(re.split(r"^\.LBB", text, flags=re.MULTILINE), key=lambda b: b.count("vmaxps"))
    n = block.count("vmaxps") // 3  # vectors of results
    assert block.count("vmaxps") == 3 * n and block.count("vcmpunordps") == 2 * n
    assert block.count("vshufps") == 4 * n and block.count("vpermpd") == n
    kernel = tcsym.define(source, target="cpu:avx2").f
    for width in (2, 15, 16, 17, 31, 32, 33, 66):
        x = guarded((np.arange(6 * width) * 37 % 1009).astype(np.float32), "end").reshape(6, width)
        np.testing.assert_array_equal(kernel(x), kernel.reference(x))
