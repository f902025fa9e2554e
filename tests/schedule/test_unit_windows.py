# SPDX-License-Identifier: Apache-2.0
"""Windows of one point: which sizes a call may take as one, and what the code then leaves out."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym
from tcsym.compiler import analyse
from tcsym.index.values import evaluate
from tcsym.ir.loops import Loop, View
from tcsym.ir.traverse import walk
from tcsym.ir.views import viewed_values
from tcsym.options import Options
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tcsym.sizes.context import Known
from tests.schedule.targets import AVX2

CONVOLUTION = """def f(float(N,C,H,W) I, float(M,C,KH,KW) F) -> (O) {
  O(n,m,h,w) +=! I(n,c,h+kh,w+kw) * F(m,c,kh,kw)
}"""
VOLUMES = """def f(float(N,C,D,H,W) I, float(M,C,KD,KH,KW) F) -> (O) {
  O(n,m,d,h,w) +=! I(n,c,d+kd,h+kh,w+kw) * F(m,c,kd,kh,kw)
}"""


def view(source: str) -> View | None:
    kernel = schedule_program(analyse(source)["f"], Options(), {}).kernel
    return map_cpu(kernel, AVX2, Options()).kernel.view


def test_planes_are_rows() -> None:
    assert view(CONVOLUTION) == View(("KH", "KW"), (("H", "W"),))
    assert view(VOLUMES) == View(("KD", "KH", "KW"), (("D", "H", "W"),))


@pytest.mark.parametrize(
    "source",
    [
        CONVOLUTION.replace("w+kw", "2*w+kw"),  # every second point
        CONVOLUTION.replace("}", "  O(n,m,h,w) = O(n,m,h,w) + float(w)\n}"),  # asks where it is
        CONVOLUTION.replace("}", "  P(n,m,w,h) = O(n,m,h,w)\n}").replace("(O)", "(O, P)"),
        CONVOLUTION.replace("}", "  P(n,m,h) max=! O(n,m,h,x)\n}").replace("(O)", "(O, P)"),
        CONVOLUTION.replace("}", "  O(n,m,h,w) = O(n,m,h,w) / W\n}"),
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    ],
)
def test_other_programs_keep_their_sizes(source: str) -> None:
    assert view(source) is None


def test_ranges_are_kept() -> None:
    """Code for a range of sizes may rely on it; a row of all points is not in that of rows."""
    kernel = schedule_program(analyse(CONVOLUTION)["f"], Options(), {}).kernel
    for name, low, high in (("W", 0, 64), ("H", 2, None)):
        narrow = replace(kernel, context=(Known(name, low, high),))
        assert map_cpu(narrow, AVX2, Options()).kernel.view is None
    for name, low, high in (("W", 1, None), ("N", 2, 64), ("C", 16, 16)):
        other = replace(kernel, context=(Known(name, low, high),))
        assert map_cpu(other, AVX2, Options()).kernel.view is not None


def test_sizes_change_for_one_point_only() -> None:
    values = viewed_values(View(("P", "Q"), (("H", "W"),)))
    for p, q, h, w in ((1, 1, 1, 35), (1, 2, 5, 7), (0, 1, 5, 7)):
        given = {"P": p, "Q": q, "H": 5, "W": 7}
        assert (evaluate(values["H"], given), evaluate(values["W"], given)) == (h, w)


def test_a_window_known_to_be_one_point_is_no_loop() -> None:
    source = CONVOLUTION.replace("KH,KW)", "1,1)")
    kernel = schedule_program(analyse(source)["f"], Options(), {}).kernel
    names = [
        x.variable
        for x, _ in walk(map_cpu(kernel, AVX2, Options()).kernel.body)
        if isinstance(x, Loop)
    ]
    assert not any(name.startswith(("kh", "kw")) for name in names)
    assert any(name.startswith("h_w") for name in names)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_plane_of_any_shape_gives_the_same(threads: int) -> None:
    """Also with panels, whose place in the arena follows from the sizes that the body sees."""
    kernel, rng = tcsym.define(CONVOLUTION).f, np.random.default_rng(0)
    for m, c in ((5, 3), (40, 33)):
        f = rng.integers(-4, 5, (m, c, 1, 1)).astype(np.float32)
        plane = rng.integers(-4, 5, (2, c, 60)).astype(np.float32)
        want = np.einsum("mc,ncx->nmx", f[:, :, 0, 0], plane)
        for h in (1, 2, 3, 4, 5, 6, 10, 12, 60):
            got = kernel(plane.reshape(2, c, h, 60 // h), f, threads=threads)
            np.testing.assert_array_equal(got.reshape(2, m, 60), want)
