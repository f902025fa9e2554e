# SPDX-License-Identifier: Apache-2.0
"""Windows of one point to one or two output channels: vectors of a row instead of tiles of rows."""

from __future__ import annotations

import itertools

import pytest

import tcsym
from tests.differential.inputs import LAYOUTS
from tests.differential.test_few import check

CONVOLUTION = """def f(float(N,C,H,W) I, float(O,C,KH,KW) F) -> (Y) {
  Y(n,o,y,x) +=! I(n,c,y+i,x+j) * F(o,c,i,j)
}"""
GROUPED = """def f(float(N,G,C,H,W) I, float(G,O,C,KH,KW) F, float(G,O) B) -> (Y) {
  Y(n,g,o,y,x) +=! I(n,g,c,y+i,x+j) * F(g,o,c,i,j)
  Y(n,g,o,y,x) = fmax(Y(n,g,o,y,x) + B(g,o), 0)
}"""
LINE = """def f(float(N,C,W) I, float(O,C,KW) F) -> (Y) {
  Y(n,o,x) +=! I(n,c,x+j) * F(o,c,j)
}"""
TEXTS = {
    "convolution": CONVOLUTION,
    "double": CONVOLUTION.replace("float", "double"),
    "int32": CONVOLUTION.replace("float", "int32"),
    "grouped": GROUPED,
    "line": LINE,
}
IMAGES = ((4, 8), (3, 11), (9, 57), (1, 31), (2, 70), (5, 3), (0, 9))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", TEXTS)
def test_one_or_two_channels_of_single_points(name: str) -> None:
    kernel = tcsym.define(TEXTS[name], strategy="symbolic").f
    for (h, w), o, c in itertools.product(IMAGES, (1, 2, 3), (1, 5, 0)):
        sizes = {"N": 2, "G": 3, "C": c, "O": o, "H": h, "W": w, "KH": 1, "KW": 1}
        check(kernel, {n: sizes[n] for n in kernel.sizes}, "dense")


@pytest.mark.parametrize("layout", LAYOUTS[3:])
def test_single_points_in_other_layouts(layout: str) -> None:
    kernel = tcsym.define(CONVOLUTION, strategy="symbolic").f
    for (h, w), o in itertools.product(IMAGES[:4], (1, 2)):
        sizes = {"N": 2, "C": 4, "O": o, "H": h, "W": w, "KH": 1, "KW": 1}
        check(kernel, sizes, layout)
