# SPDX-License-Identifier: Apache-2.0
"""Shuffles: what a thread of a device gets is what `ir.loops.Shuffle` says, as in the twin."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import numpy as np
import pytest

from tcsym.index.expr import ONE, floordiv, var
from tcsym.ir.loops import Kernel, Shuffle, ShuffleDirection, Store
from tcsym.ir.verify import verify
from tcsym.runtime.native import HAS_ENTRIES
from tcsym.types import DType
from tests.codegen.device.test_ptx import ptx_of
from tests.codegen.device.test_twin import run
from tests.ir.device_kernels import allocated, argument, loop, made, temporary
from tests.schedule.naive import rd, st

pytestmark = pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")
LANES = {  # of numbers of threads 0 to 63 -> whose value each gets
    ("across", 5): [t ^ 5 for t in range(64)],
    ("up", 1): [t if t % 32 < 1 else t - 1 for t in range(64)],
    ("up", 31): [t if t % 32 < 31 else t - 31 for t in range(64)],
    ("down", 3): [t if t % 32 > 28 else t + 3 for t in range(64)],
    ("down", 16): [t if t % 32 > 15 else t + 16 for t in range(64)],
}


def shuffled_threads(direction: ShuffleDirection, lanes: int) -> Kernel:
    """Of a block of two warps, each thread stores what it gets."""
    place = (64 * var("b") + var("t"),)
    value = Shuffle(direction, lanes, rd("R", 0), DType.FLOAT32)
    work = [st("R", (0,), rd("X", *place)), Store("R", (ONE,), value), st("O", place, rd("R", 1))]
    grid = loop(
        "block", "b", floordiv(var("N"), 64), loop("thread", "t", 64, allocated("R", *work))
    )
    buffers = [*(argument(x, "N") for x in "XO"), temporary("R", "register", 2)]
    return made("shuffled", "N", buffers, grid)


COMPUTED: dict[str, Callable[..., int]] = {  # of whole numbers, by PTX's names
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "selp": lambda a, b, p: a if p else b,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "max": max,
    "min": min,
    "add": operator.add,
    "sub": operator.sub,
    "shl": operator.lshift,
    "shr": operator.rshift,
    **{f"setp.{x}": getattr(operator, x) for x in ("eq", "ne", "lt", "le", "gt", "ge")},
}


def lane_given(ptx: str, thread: int) -> int:
    """To `shfl.idx`, which counts it modulo 32: by the PTX, which is straight up to there."""
    known = {"%tid.x": thread}
    for instruction, given in re.findall(r"^\t(\w\S+)\s+(.*);$", ptx, re.MULTILINE):
        name, to, *of = (*instruction.split(".")[:1], *given.split(", "))
        if instruction == "shfl.sync.idx.b32":
            return known[of[1]] % 32
        values = [known.get(x) if x[0] == "%" else int(x) for x in of if x[0] != "["]
        if values and None not in values:
            name = ".".join(instruction.split(".")[:2]) if name == "setp" else name
            known[to] = COMPUTED[name](*values) % 2 ** (64 if to[:3] == "%rd" else 32)
    raise AssertionError(f"no shuffle in {ptx}")


@pytest.mark.parametrize(("direction", "lanes"), LANES)
def test_shuffles_take_from_no_lane_beyond_the_warp(
    direction: ShuffleDirection, lanes: int
) -> None:
    """As PTX means it, and in the twin, which does not count lanes modulo 32."""
    kernel = shuffled_threads(direction, lanes)
    verify(kernel, "device")
    ptx = ptx_of(kernel)
    taken = LANES[direction, lanes]
    assert ptx.count("shfl.sync.idx.b32") == 1
    assert [t // 32 * 32 + lane_given(ptx, t) for t in range(64)] == taken
    x = np.arange(128, dtype=np.float32)
    arrays = {"X": x, "O": np.zeros_like(x)}
    assert run(kernel, arrays, {"N": 128}) == 0
    np.testing.assert_array_equal(arrays["O"], [*taken, *(64 + t for t in taken)])
