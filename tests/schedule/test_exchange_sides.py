# SPDX-License-Identifier: Apache-2.0
"""Few columns beside loops that share the rows' operand: rows and columns change places."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.schedule.version import exchange_sides
from tests.processors import require
from tests.schedule.test_little_reuse import text_of

SPECS = ("abcd-ebad-ce", "abcde-efbad-cf")


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("spec", "target"),
    [(SPECS[0], "cpu:avx512"), (SPECS[1], "cpu:avx2"), (SPECS[0], "cpu:novector")],
)
def test_as_numpy_on_both_sides_of_the_choice(
    spec: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(target)
    monkeypatch.setenv("TCSYM_CACHE", "0")
    monkeypatch.setattr(exchange_sides, "LEAST_GAIN", 0)
    out, left, right = spec.split("-")
    kernel = tcsym.define(text_of(spec), target=target, strategy="symbolic").f
    rng = np.random.default_rng(7)
    for few in (1, 2, 3, 7, 15, 16):
        for rows, terms in ((3, 5), (4, 9), (9, 64), (37, 3), (33, 40)):
            sizes = dict(zip("abcdef", (2, 3, rows, few, 2, terms)))
            sizes |= {right[-1]: terms} | ({"e": 2} if right[-1] != "e" else {})
            x, y = (rng.standard_normal([sizes[v] for v in s], np.float32) for s in (left, right))
            expected = np.einsum(f"{left},{right}->{out}", x, y)
            np.testing.assert_allclose(kernel(x, y), expected, atol=1e-4)


def notes_after(spec: str, **few: int) -> list[str]:
    """Of the code that serves a call, where extents are 30 but for these."""
    require("cpu:avx512")
    _, left, right = spec.split("-")
    kernel = tcsym.define(text_of(spec), target="cpu:avx512", strategy="symbolic").f
    x, y = (np.ones([few.get(v, 30) for v in s], np.float32) for s in (left, right))
    kernel(x, y)
    return [note for v in kernel.stats.variants for note in v.notes]


@pytest.mark.parametrize("spec", SPECS)
def test_a_version_is_made_when_few_columns_come(spec: str) -> None:
    version = "contraction, columns c"
    text = tcsym.define(text_of(spec), target="cpu:avx512").f.explain("mapped")
    assert version not in text and "left to another: " in text
    assert any(version in x for x in notes_after(spec, d=2, e=4))


@pytest.mark.parametrize("spec", ("mn-mk-kn", "bmn-bmk-bkn"))
def test_panels_that_no_loop_shares_are_left(spec: str) -> None:
    assert not any("contraction, columns m" in x for x in notes_after(spec, n=2, k=9))


WEIGHTS = """def weights(float(N,C,H,W) I, float(N,O,P,Q) dY, float(O,C,KH,KW) like) -> (dW) {{
  dW(o,c,kh,kw) +=! I(n,c,{s}*h+kh,{s}*w+kw) * dY(n,o,h,w) where o in 0:O, kh in 0:KH, kw in 0:KW
}}"""


@pytest.mark.parametrize("stride", (1, 2))
def test_gradients_of_a_windows_weights_have_channels_in_lanes(
    stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("cpu:avx512")
    monkeypatch.setenv("TCSYM_CACHE", "0")
    monkeypatch.setattr(exchange_sides, "LEAST_GAIN", 0)
    text = WEIGHTS.format(s=stride)
    kernel = tcsym.define(text, target="cpu:avx512", strategy="symbolic").weights
    rng = np.random.default_rng(3)
    for n, c, o, kh, kw, p, q in (
        (1, 5, 40, 3, 3, 9, 11),
        (2, 1, 7, 2, 1, 3, 20),
        (2, 3, 5, 3, 5, 1, 2),
    ):
        h, w = (p - 1) * stride + kh, (q - 1) * stride + kw
        shapes = (n, c, h, w), (n, o, p, q), (o, c, kh, kw)
        given = [rng.integers(-3, 4, x).astype(np.float32) for x in shapes]
        np.testing.assert_array_equal(kernel(*given), kernel.reference(*given))
    notes = [note for x in kernel.stats.variants for note in x.notes]
    assert any("contraction, columns o" in x for x in notes)
