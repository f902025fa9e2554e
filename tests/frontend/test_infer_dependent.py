# SPDX-License-Identifier: Apache-2.0
"""Ranges that use other indices or read tensors: what they say, and what is checked."""

from __future__ import annotations

import pytest

from tcsym.errors import RangeError
from tcsym.frontend.canonical import canonical_hash
from tcsym.frontend.check import resolve
from tcsym.frontend.parser import parse
from tcsym.frontend.program import reads, statements
from tcsym.frontend.program_json import programs_from_json, programs_to_json
from tests.frontend.test_infer_ranges import checks, inferred, ranges, shapes


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        ("float(N) X", "O(i) +=! X(k) where k in 0:i+1", "O(N)"),
        ("float(N) X", "O(i) +=! X(k) where k in 0:2*i", "O(N/2 + 1)"),
        ("float(N) X", "O(i) +=! X(k + 3) where k in max(i-2,0):i+1", "O(N - 3)"),
        (
            "float(N) X, float(M) Y",
            "O(i) +=! X(k) * Y(k) where k in 0:max(i,3)",
            "O(min(M + 1, N + 1))",
        ),
        ("float(N) X", "O(i) +=! X(l) where i in 0:N, k in 0:i+1, l in k:i+1", "O(N)"),
        ("float(N) X", "O(i) +=! X(l) where k in 0:i+1, l in 0:k+1", "O(N)"),
        ("float(N) X", "O(i) +=! X(i + k) where k in 0:i+1", "O((N + 1)/2)"),
        ("float(N,M) X", "O(i) +=! X(i,k) where k in 0:min(i+1,M)", "O(N)"),
        ("int32(P) n, float(N) X", "O(i) +=! X(k) where k in n(i):n(i+1)", "O(P - 1)"),
        ("int32(P) n, float(P,N) X", "O(i) +=! X(i,k) where k in 0:n(i)", "O(P)"),
    ],
)
def test_a_dependent_index_counts_with_its_worst_end(header: str, body: str, expected: str) -> None:
    assert shapes(inferred(f"def f({header}) -> (O) {{ {body} }}")) == expected


@pytest.mark.parametrize("ends", ["0:min(i+1,N)", "i:N", "m:N", "0:i/2"])
def test_an_end_that_is_not_affine_bounds_nothing(ends: str) -> None:
    with pytest.raises(RangeError, match="range of the index variable `i`"):
        inferred(f"def f(float(N) X, int32 m) -> (O) {{ O(i) +=! X(k) where k in {ends} }}")


def test_ranges_are_kept_as_written_and_stand_behind_what_they_use() -> None:
    program = inferred(
        "def f(float(N) X) -> (s) { s +=! X(k) where exists X(k), j in 0:N, k in j/2:j+1 }"
    )
    assert ranges(program) == "j in 0:N, k in j/2:j + 1"
    assert not checks(program)


def test_bounds_inside_a_triangle_are_proved_and_outside_are_checked() -> None:
    inside = "def f(float(N,N) X) -> (O) { O(i) +=! X(i-k,k) where i in 0:N, k in 0:i+1 }"
    assert not checks(inferred(inside))
    outside = "def f(float(N) X) -> (O) { O(i) +=! X(k) where i in 0:N, k in 0:i+2 }"
    assert checks(inferred(outside)) == ["bounds 1:37 N == 0"]


def test_what_a_ragged_index_subscripts_is_left_to_the_kernel() -> None:
    source = "def f(int32(P) n, float(N,D) X) -> (O) { O(b,d) +=! X(j,d) where j in n(b):n(b+1) }"
    program = inferred(source)
    (s,) = statements(program.body)
    assert [r.checked for r in reads(s.value)] == [(True, False)]
    assert [any(r.checked) for g in s.given for r in reads(g.value)] == [False, False]
    assert programs_from_json(programs_to_json([program])) == (program,)


def test_names_of_scalars_are_no_part_of_the_meaning() -> None:
    texts = [
        f"def f(int32(P) n, float(N) X) -> (O) {{ O({b}) +=! X({j}) where {j} in n({b}):n({b}+1) }}"
        for b, j in (("b", "j"), ("row", "k"))
    ]
    one, other = (canonical_hash(resolve(parse(t))["f"]) for t in texts)
    assert one == other
    assert one != canonical_hash(resolve(parse(texts[0].replace("n(b):", "n(b)+1:")))["f"])
