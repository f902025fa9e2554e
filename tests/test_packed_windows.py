# SPDX-License-Identifier: Apache-2.0
"""Convolutions of short numbers with channels far apart: values, instructions, what stays."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tcsym
from tcsym.ir.packed import available
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target
from tests.test_packed_code import integers

BEFORE = tcsym.Options(bind="before")
TARGETS = [t for t in ("cpu", "cpu:avx2") if runs_here(resolve_target(t))]
PLAIN = """def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F) -> (Y) {{
  Y(n,o,y,x) +=! {t}(I(n,c,y+p,x+q)) * {t}(F(o,c,p,q))
}}"""
TYPES = [
    ("bfloat16", "bfloat16", "float"),
    ("int8", "int8", "int32"),
    ("uint8", "int8", "int32"),
    ("int8", "uint8", "int32"),
    ("uint8", "uint8", "int32"),
    ("int16", "int16", "int32"),
    ("int16", "uint8", "int32"),
]
FORMS = {  # all are packed
    "plain": PLAIN,
    "stride": """def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F) -> (Y) {{
  Y(n,o,y,x) +=! {t}(I(n,c,2*y+p,3*x+q)) * {t}(F(o,c,p,q))
}}""",
    "dilation": """def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F) -> (Y) {{
  Y(n,o,y,x) +=! {t}(I(n,c,y+2*p,x+3*q)) * {t}(F(o,c,p,q))
}}""",
    "flipped": """def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F) -> (Y) {{
  Y(n,o,y,x) +=! {t}(I(n,c,y+p,x+q)) * {t}(F(o,c,P-1-p,Q-1-q))
}}""",
    "padding": """def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F) -> (Y) {{
  Y(n,o,y,x) +=! {t}(y+p-1 >= 0 && y+p-1 < H && x+q-1 >= 0 && x+q-1 < W
    ? I(n,c,y+p-1,x+q-1) : {a}(0)) * {t}(F(o,c,p,q)) where y in 0:H, x in 0:W
}}""",
    "groups": """def f({a}(N,G,C,H,W) I, {b}(G,O,C,P,Q) F) -> (Y) {{
  Y(n,g,o,y,x) +=! {t}(I(n,g,c,y+p,x+q)) * {t}(F(g,o,c,p,q))
}}""",
    "1-D": """def f({a}(N,C,W) I, {b}(O,C,Q) F) -> (Y) {{
  Y(n,o,x) +=! {t}(I(n,c,x+q)) * {t}(F(o,c,q))
}}""",
    "3-D": """def f({a}(N,C,G,H,W) I, {b}(O,C,P,P,Q) F) -> (Y) {{
  Y(n,o,z,y,x) +=! {t}(I(n,c,z+r,y+p,x+q)) * {t}(F(o,c,r,p,q))
}}""",
    "images last": """def f({a}(C,H,W,N) I, {b}(P,Q,C,O) F) -> (Y) {{
  Y(o,y,x,n) +=! {t}(I(c,y+p,x+q,n)) * {t}(F(p,q,c,o))
}}""",
    "input's gradient": """def f({a}(N,O,H,W) I, {b}(O,C,P,Q) F) -> (Y) {{
  Y(n,c,y,x) +=! {t}(y-p >= 0 && y-p < H && x-q >= 0 && x-q < W ? I(n,o,y-p,x-q) : {a}(0))
    * {t}(F(o,c,p,q)) where y in 0:H+P-1, x in 0:W+Q-1
}}""",
    "epilogue": """def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F, {t}(O) b) -> (Y) {{
  Y(n,o,y,x) +=! {t}(I(n,c,y+p,x+q)) * {t}(F(o,c,p,q))
  Y(n,o,y,x) = Y(n,o,y,x) > b(o) ? Y(n,o,y,x) - b(o) : {t}(0)
}}""",
    "three channels": """def f({a}(N,3,H,W) I, {b}(O,3,P,Q) F) -> (Y) {{
  Y(n,o,y,x) +=! {t}(I(n,c,y+p,x+q)) * {t}(F(o,c,p,q)) where c in 0:3
}}""",
    "known window": """def f({a}(N,C,H,W) I, {b}(O,C,3,3) F) -> (Y) {{
  Y(n,o,y,x) +=! {t}(I(n,c,y+p,x+q)) * {t}(F(o,c,p,q)) where p in 0:3, q in 0:3
}}""",
    "two sums": """def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F, {b}(O,C,P,Q) D) -> (Y, Z) {{
  Y(n,o,y,x) +=! {t}(I(n,c,y+p,x+q)) * {t}(F(o,c,p,q))
  Z(n,o,y,x) +=! {t}(I(n,c,y+p,x+q)) * {t}(D(o,c,p,q))
}}""",
}
SIZES = [
    {"N": 1, "C": 3, "O": 9, "H": 9, "W": 37, "P": 3, "Q": 3, "G": 4},
    {"N": 2, "C": 8, "O": 65, "H": 6, "W": 9, "P": 1, "Q": 1, "G": 1},
    {"N": 1, "C": 5, "O": 34, "H": 11, "W": 11, "P": 2, "Q": 3, "G": 2},
    {"N": 3, "C": 1, "O": 2, "H": 12, "W": 40, "P": 3, "Q": 3, "G": 3},
    {"N": 1, "C": 0, "O": 3, "H": 7, "W": 8, "P": 3, "Q": 2, "G": 2},
    {"N": 1, "C": 6, "O": 0, "H": 7, "W": 8, "P": 3, "Q": 2, "G": 2},
]


def arguments(text: str, sizes: dict[str, int]) -> list[np.ndarray]:
    rng, found = np.random.default_rng(0), []
    for dtype, shape in re.findall(r"(\w+)(?:\(([\w,]+)\))? \w+(?=[,)])", text.split("->")[0]):
        extents = tuple(sizes.get(s) or int(s.isdigit() and s) for s in shape.split(",") if shape)
        if "int" in dtype:
            found.append(integers(dtype, extents, len(found))[()])
        else:
            kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32
            found.append(rng.standard_normal(extents).astype(kind))
    return found


def assert_as_reference(kernel: tcsym.Kernel, arrays: list[np.ndarray]) -> None:
    got, expected = kernel(*arrays), kernel.reference(*arrays)
    pairs = zip(got, expected) if isinstance(got, tuple) else [(got, expected)]
    for x, y in pairs:
        if x.dtype.kind == "i":
            np.testing.assert_array_equal(x, y)
        else:
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def is_noted(kernel: tcsym.Kernel) -> bool:
    """By the old stage, or by a plan."""
    side_by_side = "channels side by side" in kernel.explain("mapped")
    return side_by_side or " pack:" in kernel.explain("plan")


def has_products(text: str, target: str) -> bool:
    """The target has instructions for sums of products of these types."""
    return "bfloat16" not in text or "dot_bfloat16" in available(resolve_target(target).machine)


def assert_packed(text: str, target: str, sizes: list[dict[str, int]]) -> None:
    kernel = tcsym.define(text, target=target, strategy="symbolic").f
    assert is_noted(kernel) == has_products(text, target)
    for each in sizes:
        assert_as_reference(kernel, arguments(text, each))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("a", "b", "t"), TYPES)
def test_all_types_agree_with_the_reference(a: str, b: str, t: str, target: str) -> None:
    assert_packed(PLAIN.format(a=a, b=b, t=t), target, SIZES)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("name", "target"),
    [(x, TARGETS[k // 2 % len(TARGETS)]) for k, x in enumerate(FORMS) if x != "plain"],
)
def test_forms_are_packed_and_agree_with_the_reference(name: str, target: str) -> None:
    """bfloat16 and int8 in turn, where both are packed."""
    types = TYPES[list(FORMS).index(name) % 2 if target == "cpu" else 1]
    assert_packed(FORMS[name].format(**dict(zip("abt", types))), target, SIZES)


ZEROS = [  # what is subtracted from images and weights
    ("- 3", ""),
    ("- z", ""),
    ("", "- z"),
    ("- z", "- int32(w(o))"),
    ("- 7", "- 200"),
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("a", "b", "target"), [("uint8", "int8", TARGETS[0]), ("int8", "int8", TARGETS[-1])]
)
@pytest.mark.parametrize("zeros", ZEROS, ids=" ".join)
def test_zero_points_are_exact(a: str, b: str, zeros: tuple[str, str], target: str) -> None:
    text = f"""def f({a}(N,C,H,W) I, {b}(O,C,P,Q) F, int32 z, uint8(O) w) -> (Y) {{
  Y(n,o,y,x) +=! (int32(I(n,c,y+p,x+q)) {zeros[0]}) * (int32(F(o,c,p,q)) {zeros[1]})
}}"""
    kernel = tcsym.define(text, target=target, strategy="symbolic").f
    assert is_noted(kernel)
    for sizes in SIZES:
        assert_as_reference(kernel, arguments(text, sizes))


PLAIN_ONES = {  # these stay as they are
    "depthwise": """def f(bfloat16(N,C,H,W) I, bfloat16(C,P,Q) F) -> (Y) {
  Y(n,c,y,x) +=! float(I(n,c,y+p,x+q)) * float(F(c,p,q))
}""",
    "channels last": """def f(bfloat16(N,H,W,C) I, bfloat16(P,Q,C,O) F) -> (Y) {
  Y(n,y,x,o) +=! float(I(n,y+p,x+q,c)) * float(F(p,q,c,o))
}""",
    "weights' gradient": """def f(bfloat16(N,C,H,W) I, bfloat16(N,O,H,W) G) -> (F) {
  F(o,c,p,q) +=! float(I(n,c,y+p,x+q)) * float(G(n,o,y,x))
    where y in 0:H-2, x in 0:W-2, p in 0:3, q in 0:3
}""",
    "long numbers": PLAIN.format(a="float", b="bfloat16", t="float"),
    "places in the image decide": """def f(int8(N,C,H,W) I, int8(O,C,P,Q) F) -> (Y) {
  Y(n,o,y,x) +=! (3*x + 2*q < H ? int32(I(n,c,y+p,3*x+2*q)) : 1) * int32(F(o,c,p,q))
    where x in 0:W/3-2, q in 0:2
}""",
    "one channel": """def f(int8(N,1,H,W) I, int8(O,1,P,Q) F) -> (Y) {
  Y(n,o,y,x) +=! int32(I(n,c,y+p,x+q)) * int32(F(o,c,p,q)) where c in 0:1
}""",
}


@pytest.mark.parametrize("name", PLAIN_ONES)
def test_other_windows_stay_as_they_are(name: str) -> None:
    kernel = tcsym.define(PLAIN_ONES[name], strategy="symbolic").f
    assert "channels side by side" not in kernel.explain("mapped")
    assert_as_reference(kernel, arguments(PLAIN_ONES[name], SIZES[0]))


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_what_fills_the_last_step_adds_nothing(channels: int) -> None:
    """Infinities and NaN of an odd number of channels stay where they are."""
    kernel = tcsym.define(
        PLAIN.format(a="bfloat16", b="bfloat16", t="float"), strategy="symbolic"
    ).f
    image, weights = np.ones((1, channels, 20, 40)), np.ones((9, channels, 3, 3))
    image[0, -1, 5, 7], image[0, 0, 10, 10], weights[2, -1, 1, 1] = np.inf, np.nan, -np.inf
    arrays = [x.astype(ml_dtypes.bfloat16) for x in (image, weights)]
    np.testing.assert_array_equal(kernel(*arrays), kernel.reference(*arrays))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("a", "b", "t"), TYPES)
def test_any_number_of_known_channels_may_be_left(a: str, b: str, t: str, target: str) -> None:
    """One of four: its step holds an element for each lane and three zeros for all."""
    text = FORMS["1-D"].format(a=a, b=b, t=t).replace("x+q", "3*x+q")
    for channels in (4, 5, 7):
        sizes = {"N": 2, "C": channels, "W": 20, "O": 3, "Q": 2}
        kernel = tcsym.define(text, target=target, sizes=sizes, options=BEFORE).f
        assert is_noted(kernel) == has_products(text, target)
        assert_as_reference(kernel, arguments(text, sizes))


def blocks(listing: str) -> list[str]:
    return re.split(r"^\.LBB", listing, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("a", "b", "t", "target", "instruction", "tile"),
    [
        ("bfloat16", "bfloat16", "float", "cpu:avx512bf16", "vdpbf16ps", 16),
        ("int8", "int8", "int32", "cpu:avx512bf16", "vpdpbusd", 16),
        ("uint8", "int8", "int32", "cpu:avx512bf16", "vpdpbusd", 16),
        ("int16", "int16", "int32", "cpu:avx512bf16", "vp(?:maddwd|dpwssd)", 12),
        ("int8", "int8", "int32", "cpu:avx2", "vpmaddwd", 6),
    ],
)
def test_the_inner_loop_is_dot_products_of_whole_registers(
    a: str, b: str, t: str, target: str, instruction: str, tile: int
) -> None:
    text, register = PLAIN.format(a=a, b=b, t=t), "ymm" if "avx2" in target else "zmm"
    listing = tcsym.define(text, target=target, strategy="symbolic").f.explain("asm")
    product = rf"{instruction}\s.*%{register}"
    hot = [x for x in blocks(listing) if len(re.findall(product, x)) == 4 * tile]
    assert hot  # four steps of a tile
    for block in hot:
        loop = block[: [m.start() for m in re.finditer(instruction, block)][-1]]
        stored = re.findall(rf"%{register}.*\(%rsp\)", loop)
        assert len(stored) < 2  # sums of integers are taken in any order
        assert not re.search(r"vpmul|vcvt|vpmovsx|vpmovzx|vgather|vpunpck|vperm|call", loop)
    assert not re.search(r"vfmadd\d+ps\s.*%[yz]mm|vpmulld\s.*%[yz]mm", listing)
