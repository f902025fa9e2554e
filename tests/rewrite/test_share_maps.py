# SPDX-License-Identifier: Apache-2.0
"""Sums of what a map stores: which read it, and that results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

import tcsym
from tcsym.frontend.program import Program, Statement, reads
from tcsym.rewrite.share_maps import share_maps

TEXT = """def f({io}float(M,N) X, float(N) B, float(M,N) dY) -> (float(M,N) dX, dB{more}) {{
  dX(m,n) = {value}
  {between}dB(n) +=! {term}
}}"""
VALUE = "X(m,n) + B(n) >= 0 ? dY(m,n) : 0"


def text(value: str, term: str, between: str = "", more: str = "", io: str = "") -> str:
    return TEXT.format(value=value, term=term, between=between, more=more, io=io)


def read_by_sum(program: Program) -> set[str]:
    s = share_maps(program).body[-1]
    assert isinstance(s, Statement)
    return {r.tensor for r in reads(s.value)}


@pytest.mark.parametrize("term", [VALUE, f"2.0 * ({VALUE}) + B(n)"])
def test_a_sum_reads_what_a_map_stored(term: str) -> None:
    kernel = tcsym.define(text(VALUE, term), target="cpu:avx2").f
    assert "dX" in read_by_sum(kernel.program) and "dY" not in read_by_sum(kernel.program)
    rng = np.random.default_rng(2)
    for m, n in ((0, 3), (3, 0), (1, 1), (40, 17), (300, 5)):
        given = [rng.integers(-3, 4, s).astype(np.float32) for s in ((m, n), (n,), (m, n))]
        for got, want in zip(kernel(*given), kernel.reference(*given)):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "program",
    [
        text("2.0 * X(m,n)", "2.0 * X(m,n)"),  # no less to read
        text(VALUE, "X(m,n) * dY(m,n)"),  # another value
        text(VALUE, VALUE.replace("m,", "m+1,") + " where m in 0:M-1"),  # other points
        text(VALUE, VALUE, "dX(m,n) = 0.0\n  "),  # written again
        text(VALUE, VALUE, "X(m,n) = 1.0\n  ", io="inout "),  # of what is written since
        text(f"half({VALUE})", VALUE).replace("float(M,N) dX", "half(M,N) dX"),  # rounded
    ],
)
def test_others_compute_their_terms(program: str) -> None:
    assert "dX" not in read_by_sum(tcsym.define(program).f.program)
