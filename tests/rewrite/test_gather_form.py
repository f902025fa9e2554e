# SPDX-License-Identifier: Apache-2.0
"""Which scattered subscripts are inverted, and into what."""

from __future__ import annotations

import pytest

from tcsym.compiler import analyse
from tcsym.frontend.program import statements
from tcsym.frontend.program_text import expr_text
from tcsym.rewrite.gather_form import gather_form


def inverted(text: str) -> tuple[str, str, int]:
    """The subscripts and the value of the statement, and how many of its positions are left."""
    (s,) = statements(gather_form(analyse(text)["f"]).body)
    return ", ".join(map(str, s.subscripts)), expr_text(s.value), len(s.scattered)


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("O(i+k) +=! X(i) * W(k)", "X(O.0 - k)"),
        ("O(2*i+k) +=! X(i) * W(k)", "X((O.0 - k)/2)"),
        ("O(i+2*k) +=! X(i) * W(k)", "W((O.0 - i)/2)"),
        ("O(N-1-i+k) +=! X(i) * W(k)", "X(N + k - O.0 - 1)"),
    ],
)
def test_affine_positions_are_solved_for_the_index_of_the_greatest_factor(
    statement: str, read: str
) -> None:
    text = f"def f(float(N) X, float(K) W) -> (float(2*N+2*K) O) {{ {statement} }}"
    subscripts, value, left = inverted(text)
    assert subscripts == "O.0" and left == 0 and read in value


@pytest.mark.parametrize(
    "text",
    [
        "def f(float(N) X) -> (float(N,N+1) O) { O(i,i+1) +=! X(i) }",
        "def f(int32(N) b, float(N) X) -> (float(B) O) { O(b(i)) +=! X(i) }",
        "def f(int32(N) b, float(N) X) -> (float(B,N) O) { O(b(i),N-1-i) +=! X(i) }",
    ],
)
def test_positions_of_left_indices_and_of_tensors_stay(text: str) -> None:
    assert inverted(text)[2] > 0
