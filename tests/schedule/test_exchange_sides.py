"""Few columns beside loops that share the rows' operand: rows and columns change places."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.schedule.version import exchange_sides
from tests.processors import require
from tests.schedule.test_strips_version import text_of

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
