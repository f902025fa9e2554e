# SPDX-License-Identifier: Apache-2.0
"""Windows by plans of directives: convolutions, depthwise, pooling, against the reference."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import tcsym
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target
from tests.mapping.proposals import proposed

CONV = tcsym.library.source("conv2d").replace("def conv2d", "def f")
DEPTHWISE = tcsym.library.source("conv2d_depthwise").replace("def conv2d_depthwise", "def f")
STRIDED = """def f(float(N,C,H,W) I, float(O,C,KH,KW) F, float(O) b) -> (Y) {
  Y(n,o,h,w) +=! I(n,c,2*h+kh,3*w+2*kw) * F(o,c,kh,kw)
  Y(n,o,h,w) = fmax(Y(n,o,h,w) + b(o), 0)
}"""
VOLUME = tcsym.library.source("conv3d").replace("def conv3d", "def f")
POOLING = """def f(float(C,H,W) I) -> (Y) {
  Y(c,h,w) max=! I(c,2*h+kh,2*w+kw) where kh in 0:3, kw in 0:3
}"""
CHANNELS_LAST = """def f(float(N,H,W,C) I, float(KH,KW,C) F) -> (Y) {
  Y(n,h,w,c) +=! I(n,h+kh,w+kw,c) * F(kh,kw,c)
}"""
SAME = """def f(float(C,H,W) I, float(O,C,KH,KW) F) -> (Y) {
  Y(o,h,w) +=! (h + kh - KH/2 >= 0 && h + kh - KH/2 < H && w + kw - KW/2 >= 0 && w + kw - KW/2 < W
                ? I(c,h+kh-KH/2,w+kw-KW/2) : 0.0) * F(o,c,kh,kw) where h in 0:H, w in 0:W
}"""
ALL = {
    "conv": CONV,
    "depthwise": DEPTHWISE,
    "strided": STRIDED,
    "volume": VOLUME,
    "pooling": POOLING,
    "channels last": CHANNELS_LAST,
}
ALL |= {
    "pooling 5x5": POOLING.replace("2*", "").replace(":3", ":5"),
    "box": """def f(float(H,W) I, float(KH,KW) F) -> (Y) {
  Y(h,w) +=! I(h+kh,3*w+2*kw) where kh in 0:KH, kw in 0:KW, exists F(kh,kw)
}""",
    "pooling of channels last": """def f(float(H,W,C) I) -> (Y) {
  Y(h,w,c) min=! I(2*h+kh,w+kw,c) where kh in 0:4, kw in 0:3
}""",
    "results apart": """def f(float(C,H,W) I, float(O,C,KH,KW) F) -> (Y) {
  Y(o,h,w,1) +=! I(c,h+kh,w+kw) * F(o,c,kh,kw)
  Y(o,h,w,0) = Y(o,h,w,1)
}""",
}
NEW = tcsym.Options()
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 21, 35)


def sizes(source: str, r: random.Random) -> dict[str, int]:
    """Ragged ones; windows of one size, often the common one, inside of what they read."""
    names = sorted({x for dims in re.findall(r"float\(([^)]*)\)", source) for x in dims.split(",")})
    window = r.choice((1, 2, 3, 3, 5))
    found = {n: window if n in ("KD", "KH", "KW") else r.choice(EXTENTS) for n in names}
    for n in ("D", "H", "W"):
        if n in found:
            found[n] += 2 * window
    if "D" in found:
        found.update(D=found["D"] % 7 + window, H=found["H"] % 9 + window, C=2)
    return found


def arguments(source: str, at: dict[str, int], r: random.Random) -> list[np.ndarray]:
    numbers = np.random.default_rng(r.randrange(1 << 30))
    shapes = (dims.split(",") for dims in re.findall(r"float\(([^)]*)\)", source))
    return [numbers.uniform(-1, 1, [at[d] for d in dims]).astype(np.float32) for dims in shapes]


def assert_right(f: tcsym.Kernel, source: str, r: random.Random, count: int = 4) -> None:
    for _ in range(count):
        at = sizes(source, r)
        given = arguments(source, at, r)
        np.testing.assert_allclose(f(*given), f.reference(*given), atol=1e-3, err_msg=str(at))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("name", [*ALL, "same"])
def test_results(name: str, target: str) -> None:
    source = ALL.get(name, SAME)
    f = tcsym.define(source, target=target, options=NEW).f
    assert "split" in str(f.explain("plan"))
    assert_right(f, source, random.Random(name), 12)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("name", ALL)
def test_each_proposal(name: str, target: str) -> None:
    """What is proposed for all sizes is right at all of them, though another may be cheaper; what
    cannot be done is no version."""
    done = 0
    for plan in dict.fromkeys(proposed(ALL[name], target)):
        f = tcsym.define(ALL[name], target=target, options=tcsym.Options(plan=plan)).f
        try:
            assert_right(f, ALL[name], random.Random(plan))
            done += 1
        except tcsym.OptionError as refused:
            assert "no loop along memory" in str(refused)
    assert done >= 3


def test_common_windows_have_versions() -> None:
    plan = str(tcsym.define(DEPTHWISE, options=NEW).f.explain("plan"))
    assert "KH == 3 && KW == 3" in plan and "split kw tile reg:3" in plan


def test_windows_share_sums_along_one_side() -> None:
    """Maxima of columns are made once for all windows of a row."""
    f = tcsym.define(ALL["pooling 5x5"], target="cpu:avx2", options=NEW).f
    assert "combine kw at h.row" in f.explain("plan")
    plan = "split h tile row:4; combine kw at h.row; split w.parts tile lane:8; "
    plan += "split w tile lane:8; split kh tile reg:5; split kw tile reg:5; "
    plan += "order h.row.parts w.parts.tile; order h.row w.tile"
    g = tcsym.define(ALL["pooling 5x5"], target="cpu:avx2", options=tcsym.Options(plan=plan)).f
    assert ".places." in str(g.explain("mapped"))
    assert_right(g, ALL["pooling 5x5"], random.Random(3), 12)
    for kernel in (f, g):  # parts begin at what is below all numbers
        x = -1 - np.random.default_rng(0).random((2, 12, 24), np.float32)
        np.testing.assert_array_equal(kernel(x), kernel.reference(x))


def test_terms_of_a_panel_are_one_loop() -> None:
    plan = str(tcsym.define(CONV, options=NEW).f.explain("plan"))
    assert "merge c kh kw" in plan


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("rows", ["", "end=half", "end=overlap"])
def test_tiles_overlap(rows: str, target: str) -> None:
    plan = (
        f"split h tile reg:3 {rows}; split w tile reg:2 lane:8 end=overlap; order n c h.tile w.tile"
    )
    f = tcsym.define(DEPTHWISE, target=target, options=tcsym.Options(plan=plan)).f
    assert_right(f, DEPTHWISE, random.Random(rows), 12)


def test_whole_tiles_have_no_masks() -> None:
    plan = (
        "split h tile reg:3 end=overlap; split w tile lane:8 end=overlap; order n c h.tile w.tile"
    )
    text = str(tcsym.define(DEPTHWISE, options=tcsym.Options(plan=plan)).f.explain("mapped"))
    whole = text.split("else")[0]
    assert "min(8*w.tile" in whole and "mask" not in whole


@pytest.mark.parametrize(
    ("source", "plan", "reason"),
    [
        (
            "def f(float(N) X) -> (Y, Z) { Y(n) = X(n) Z(n) = Y(n) * 2 }",
            "split n tile lane:8 end=overlap; order n.tile",
            "would be changed twice",
        ),
        (
            "def f(float(N,M) X) -> (Y) { Y(n) +=! X(n,m) }",
            "split m tile lane:8 end=overlap; combine m",
            "terms twice",
        ),
    ],
)
def test_refusals(source: str, plan: str, reason: str) -> None:
    f = tcsym.define(source, options=tcsym.Options(plan=plan)).f
    with pytest.raises(tcsym.OptionError, match=reason):
        f(np.ones((9,) * (1 + source[: source.index(")")].count(",")), np.float32))


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_rows_of_merged_images(target: str) -> None:
    """Vectors of a panel whose lanes are in several rows of an image, or of a volume."""
    plan = """merge d h w; split o tile reg:2; split d tile reg:2 lane:8 end=half
        order n d.tile o.tile
        stage I at d.tile order c kd kh kw d.reg d.lane; merge c kd kh kw"""
    f = tcsym.define(VOLUME, target=target, options=tcsym.Options(plan=plan)).f
    lines = str(f.explain("mapped")).splitlines()
    filled = [x.split("? I[")[1] for x in lines if "I.copy" in x and "? I[" in x]
    assert filled  # no lane is found by a division
    assert not any(re.search(r"\([^()]*d\.lane\.\d[^()]*\)", x) for x in filled)
    assert_right(f, VOLUME, random.Random(0), 10)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_rows_of_known_images_start_at_vectors(target: str) -> None:
    """So which row lanes are in does not move with the vector, but where they end does."""
    if not runs_here(resolve_target(target)):
        pytest.skip(f"{target} does not run here")
    text = """def f(float(N,C,H,W) X, float(M,C,KH,KW) F, size S) -> (Y) {
      Y(n,m,h,w) +=! X(n,c,S*h+kh,S*w+kw) * F(m,c,kh,kw)
    }"""
    sizes = {"N": 2, "C": 3, "M": 5, "KH": 1, "KW": 1, "H": 7, "W": 30, "S": 4}
    options = tcsym.Options(bind="before")
    f = tcsym.define(text, sizes=sizes, options=options, strategy="symbolic", target=target).f
    x, w = np.arange(1260, dtype="f4").reshape(2, 3, 7, 30) % 7, np.ones((5, 3, 1, 1), "f4")
    np.testing.assert_array_equal(f(x, w), f.reference(x, w))


@pytest.mark.parametrize("name", ALL)
def test_without_vectors(name: str) -> None:
    f = tcsym.define(ALL[name], target="cpu:novector").f
    assert_right(f, ALL[name], random.Random(name), 3)
