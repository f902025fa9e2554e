# SPDX-License-Identifier: Apache-2.0
"""`Kernel.picture`: elements as they are named, what must be given, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsym as tc

CONV = """def conv(float(H,W) I, float(KH,KW) F, float b) -> (Y) {
  # a border of zeros
  Y(h,w) +=! (h + i - 1 >= 0 && h + i - 1 < H && w + j - 1 >= 0 && w + j - 1 < W
              ? I(h+i-1,w+j-1) : 0.0) * F(i,j) where h in 0:H, w in 0:W
  for t in 2 { if t > 4 { big(h) +=! Y(h,w) } else { big(h) = Y(h,0) } }
  Y(h,w) = max(Y(h,w) + b, 0)
}"""
BAGS = """def bags(float(V,D) table, int32(M) index, int32(P) offset) -> (Y) {
  Y(b,d) +=! table(index(j),d) where j in offset(b):offset(b+1)
}"""


def conv() -> tc.Kernel:
    return tc.define(CONV)["conv"]


SIZES = {"H": 4, "W": 5, "KH": 3, "KW": 3}


def counts(x: Any) -> dict[tuple[int, ...], int]:
    return {tuple(map(int, at)): int(x[tuple(at)]) for at in np.argwhere(x)}


def test_sizes_are_enough_where_data_decide_nothing() -> None:
    p = conv().picture("Y(0, 4)", **SIZES)
    assert counts(p.reads["I"]) == {(0, 3): 1, (0, 4): 1, (1, 3): 1, (1, 4): 1}
    assert p.reads["F"].sum() == 9  # zeros are multiplied, too
    assert counts(p.reads["b"]) == {(): 1} and counts(p.reads["Y"]) == {(0, 4): 1}
    assert counts(p.writes["Y"]) == {(0, 4): 1}
    assert "5 places outside" in repr(p)
    assert p.title == "What Y(0, 4) of conv reads"
    assert [s[:9] for s in p.statements] == ["Y(h,w) +=", "Y(h,w) = "]
    assert p.statements[0].endswith("F(i,j) where h in 0:H, w in 0:W")
    assert p.statements[1] == "Y(h,w) = max(Y(h,w) + b, 0)"


def test_shapes_and_arrays_do_as_well() -> None:
    image, F = np.ones((4, 5), np.float32), np.ones((3, 3), np.float32)
    want = conv().picture("Y(0, 4)", **SIZES).svg
    assert conv().picture("Y(0, 4)", image, F, np.float32(1)).svg == want
    assert conv().picture("Y(0,4)", (4, 5), F=F, b=()).svg == want


def test_several_elements() -> None:
    p = conv().picture("Y(1:3, :)", statement="S0", **SIZES)
    assert p.writes["Y"].sum() == 10 and set(p.reads) == {"I", "F"}
    assert conv().picture("big(2)", **SIZES).statements == ("big(h) = Y(h,0)",)


def test_through_temporaries_only_arguments_count() -> None:
    kernel = tc.define("def f(float(N) x, float(N) y) -> (Z) { t(i) = x(i) * y(0)\n Z(i) = t(i) }")[
        "f"
    ]
    direct, made = (kernel.picture("Z(1)", N=3, through=x) for x in (False, True))
    assert {n: counts(x) for n, x in direct.reads.items()} == {"t": {(1,): 1}}
    assert {n: counts(x) for n, x in made.reads.items()} == {"x": {(1,): 1}, "y": {(0,): 1}}
    assert made.title == "What Z(1) of f is made of, through temporaries"
    assert made.statements == ("t(i) = x(i) * y(0)", "Z(i) = t(i)")


def test_gathers_and_ragged_rows_are_as_the_data_say() -> None:
    index, offset = np.array([3, 1, 3, 0], np.int32), np.array([0, 3, 3, 4], np.int32)
    kernel = tc.define(BAGS)["bags"]
    p = kernel.picture("Y(0, 1)", (5, 2), index, offset)
    assert counts(p.reads["table"]) == {(3, 1): 2, (1, 1): 1}
    assert counts(p.reads["index"]) == {(0,): 1, (1,): 1, (2,): 1}
    assert counts(p.reads["offset"]) == {(0,): 1, (1,): 1}
    empty = kernel.picture("Y(1, 0)", (5, 2), index, offset)
    assert not empty.reads and empty.writes["Y"].sum() == 1


def test_what_is_updated_stays_as_it_is() -> None:
    kernel = tc.define("def f(inout float(N) w, float(N) g) -> () { w(i) += 0.0 - g(i) }")["f"]
    w, g = np.ones(3, np.float32), np.ones(3, np.float32)
    p = kernel.picture("w(2)", w, g)
    assert (w == 1).all()
    assert counts(p.reads["w"]) == counts(p.reads["g"]) == counts(p.writes["w"]) == {(2,): 1}


def test_texts_of_called_defs_and_texts_without_a_place() -> None:
    text = "def g(float(N) x) -> (y) { y(i) = x(i) }\ndef f(float(N) x) -> (z) { z = g(x) }"
    assert tc.define(text)["f"].picture("z(0)", N=2).statements == ("y(i) = x(i)",)
    grad = tc.define("def f(float(N) x) -> (y) { y(i) = x(i) * x(i) }")["f"].grad()
    assert grad.picture("dx(1)", N=3).reads["x"].sum() == 1


REFUSED = [
    ("Y[0, 1]", tc.TCSyntaxError, "element:1:1: `Y[0, 1]` names no element", "Y(0, 2, 3)"),
    ("Y(0, h)", tc.TCSyntaxError, "element:1:5: `h` is no subscript", "ranges of them"),
    ("Z(0, 1)", tc.TCNameError, "element:1:1: `conv` has no tensor `Z`", "writes `Y`, `big`"),
    ("F(0, 1)", tc.TCNameError, "`F` is an argument, which nothing writes", "it writes `Y`"),
    (
        "Y(0)",
        tc.RankError,
        "element:1:1: `Y` has rank 2, and the number of subscripts given is 1",
        "Y(0, 1:3",
    ),
    (
        "Y(0, 5)",
        tc.BoundsError,
        "element:1:6: `5` is no element of `Y`, whose size is 5 on axis 1",
        "hint: say 0 to 4",
    ),
    ("Y(-1, 0)", tc.BoundsError, "element:1:3: `-1` is no element of `Y`", "say 0 to 3"),
    ("Y(2:9, 0)", tc.BoundsError, "element:1:3: `2:9` is no element", "say 0 to 3"),
]


@pytest.mark.parametrize(("element", "error", "message", "hint"), REFUSED)
def test_elements_that_are_none(element: str, error: Any, message: str, hint: str) -> None:
    with pytest.raises(error) as caught:
        conv().picture(element, **SIZES)
    assert message in str(caught.value) and hint in str(caught.value)
    assert f"    {element}\n    " in str(caught.value) and "^" in str(caught.value)


def test_an_element_is_a_text() -> None:
    with pytest.raises(tc.CallError, match=r"an element is a text, not ndarray(?s:.*)behind it"):
        conv().picture(np.ones(3))  # type: ignore[arg-type]


def test_other_statements_may_need_data() -> None:
    text = "def f(float(N) x, int32(N) id) -> (Y, Z) { Y(i) = x(i)\n Z(i) = x(id(i)-1) }"
    with pytest.raises(tc.BoundsError, match="hint: what is given as a shape is zeros here: x, id"):
        tc.define(text)["f"].picture("Y(0)", N=3)
    assert tc.define(text)["f"].picture("Y(0)", (3,), np.array([1, 2, 3], np.int32)).reads["x"][0]


def test_statements_that_are_none() -> None:
    with pytest.raises(
        tc.TCNameError, match=r"no statement `S9`(?s:.*)`S0` .line 3., `S3` .line 6."
    ):
        conv().picture("Y(0, 0)", statement="S9", **SIZES)
    with pytest.raises(tc.TCNameError, match="`S2` writes `big`, not `Y`"):
        conv().picture("Y(0, 0)", statement="S2", **SIZES)
    with pytest.raises(tc.OptionError, match=r"`through` follows all(?s:.*)leave out one"):
        conv().picture("Y(0, 0)", statement="S0", through=True, **SIZES)
    with pytest.raises(tc.CallError, match=r"nothing writes `big\(0\)`(?s:.*)another element"):
        conv().picture("big(0)", statement="S1", **SIZES)


def test_missing_data() -> None:
    with pytest.raises(tc.errors.MissingError) as caught:
        tc.define(BAGS)["bags"].picture("Y(0, 0)", V=3, D=2, M=4, P=3)
    text = str(caught.value)
    assert "<tc>:1:37: bags: what is read for `Y(0, 0)` depends on the values of `index`" in text
    assert "hint: give an array for `index`" in text and caught.value.kind == "size"
    with pytest.raises(tc.SizeError, match="`F` is missing"):
        conv().picture("Y(0, 0)", H=4, W=5, KH=3)
    with pytest.raises(tc.SizeError, match=r"more than(?s:.*)smaller arrays"):
        tc.define("def f(float(N,N) x) -> (y) { y +=! x(i,j) }")["f"].picture("y", N=4000)
