# SPDX-License-Identifier: Apache-2.0
"""Contractions with little reuse, of tensors with more dimensions than matrices have."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import tcsym
from tests.processors import require

SPECS = ("abcd-dbea-ec", "abcde-efbad-cf", "abcdef-dega-gfbc")


def text_of(spec: str) -> str:
    out, left, right = spec.split("-")
    x, y, z = (",".join(s) for s in (left, right, out))
    header = f"def f(float({x.upper()}) X, float({y.upper()}) Y) -> (Z)"
    return f"{header} {{ Z({z}) +=! X({x}) * Y({y}) }}"


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("spec", "target"), [*((spec, "cpu:avx512") for spec in SPECS), (SPECS[0], "cpu:avx2")]
)
def test_as_numpy_where_extents_are_one_or_ragged(spec: str, target: str) -> None:
    require(target)
    out, left, right = spec.split("-")
    kernel = tcsym.define(text_of(spec), target=target, strategy="symbolic").f
    rng = np.random.default_rng(5)
    letters = sorted(set(left + right))
    for small, k in product((1, 2, 3), range(len(letters))):
        extents = dict.fromkeys(letters, 5) | {letters[k]: small, letters[k - 2]: 19}
        x, y = (rng.standard_normal([extents[v] for v in s], np.float32) for s in (left, right))
        expected = np.einsum(f"{left},{right}->{out}", x, y)
        np.testing.assert_allclose(kernel(x, y), expected, atol=1e-4)


@pytest.mark.parametrize("target", ("cpu:avx512", "cpu:avx2", "cpu:novector"))
def test_few_rows_and_columns_that_panels_would_gather(target: str) -> None:
    """Y lies along e, X along f."""
    require(target)
    kernel = tcsym.define(text_of("abcd-aebf-dfce"), target=target, strategy="symbolic").f
    rng = np.random.default_rng(6)
    for a, b, c, d, e, f in ((1, 1, 20, 5, 18, 15), (2, 1, 3, 17, 1, 6), (1, 3, 9, 4, 33, 1)):
        x = rng.standard_normal((a, e, b, f), np.float32)
        y = rng.standard_normal((d, f, c, e), np.float32)
        np.testing.assert_allclose(kernel(x, y), np.einsum("aebf,dfce->abcd", x, y), atol=1e-4)
