# SPDX-License-Identifier: Apache-2.0
"""Bounds, initialisation, sizes: what is proved, checked at the call, or raised at once."""

from __future__ import annotations

import pytest

from tcsym.errors import BoundsError, InitError, SizeError, TCError
from tcsym.frontend.program import Read, reads, statements
from tcsym.index.text import condition_text
from tcsym.index.values import holds
from tests.frontend.test_infer_ranges import checks, inferred

STATE = "float(N) O"


def f(body: str, header: str = "float(N) X", outputs: str = "O") -> str:
    return f"def f({header}) -> ({outputs})\n{{ {body} }}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f("O(i) = X(i)"), []),
        (f("O(i) = X(i) where i in 0:N+1"), ["bounds 2:10 false"]),
        (
            f("O(i) = X(i) where i in 0:M", "float(N) X, float(M) Y"),
            ["bounds 2:10 0 >= M || N >= M"],
        ),
        (f("O(i) = X(i - 1)"), ["init 1:23 false"]),
        (f("O(i) = X(i) where i in 1:N"), ["init 1:23 N == 0", "size 2:3 N >= 1"]),
        (f("O(i) = X(i + 2)"), ["size 2:3 N >= 2"]),
        (f("O(i) = X(i / 2) where i in 0:2*N"), []),
        (f("O(i) = X(i % N) where i in 0:3*N"), []),
        (
            f("O(i) = X(i / (M / N)) where i in 0:M", "float(N) X, float(M) Y"),
            ["bounds 2:10 0 >= M || N >= (M - 1)/(M/N) + 1"],
        ),
        (f("O(i) = X(max(0, min(i - 2, N - 1))) where i in 0:N+4"), ["bounds 2:10 N >= 1"]),
        (f("for t in N { O(t) = t > 0 ? X(t - 1) : 0.0 }"), []),
        (f("for t in N { O(t) = X(t + 1) }"), ["bounds 2:23 0 >= N"]),
        (
            f("for t in N { if t > 0 { O(t) = O(t - 1) } else { O(t) = X(t) } }"),
            ["init 2:34 false"],  # read in the text before it is written, and not declared
        ),
        (
            f("for t in N { if t > 0 { O(t) = O(t - 1) } else { O(t) = X(t) } }", outputs=STATE),
            [],
        ),
        (f("for t in N { O(t) = X(t) O(t) += 1.0 }"), []),
    ],
)
def test_checks(source: str, expected: list[str]) -> None:
    try:
        found = checks(inferred(source))
    except TCError as e:
        found = [f"{e.kind} {e.line}:{e.column} false"]
    assert found == expected


def test_symbolic_quotient_and_remainder_are_proved() -> None:
    program = inferred("def f(float(A,B) X) -> (O) { O(i) = X(i / B, i % B) where i in 0:A*B }")
    assert not program.checks
    assert not any(_only_read(program).checked)


def test_unflatten_checks_the_last_element() -> None:
    program = inferred(
        "def f(float(P) X, float(N,M) L) -> (O) { O(i,j) = X(M*i + j) where exists L(i,j) }"
    )
    (check,) = program.checks
    assert holds(check.condition, {"N": 3, "M": 4, "P": 12})
    assert not holds(check.condition, {"N": 3, "M": 4, "P": 11})
    assert holds(check.condition, {"N": 0, "M": 4, "P": 0})


def test_what_depends_on_data_is_left_to_the_kernel() -> None:
    gather = inferred("def f(float(N) X, int32(M) P) -> (O) { O(i) = X(P(i)) }")
    outer, inner = reads(next(statements(gather.body)).value)
    assert (outer.checked, inner.checked) == ((True,), (False,))
    guarded = inferred(
        "def f(float(N) X) -> (O) { O(i) = X(i) > 0.0 ? X(i + 1) : 0.0 where i in 0:N }"
    )
    assert not guarded.checks
    assert [r.checked for r in reads(next(statements(guarded.body)).value)] == [(False,), (True,)]


def test_unwritten_under_a_data_dependent_guard() -> None:
    program = inferred(
        """def f(float(N) X) -> (float(N) O) {
  for t in N { O(t) = X(t) > 0.0 ? O(N - 1 - t) : 1.0 }
}"""
    )
    read = next(r for r in reads(next(statements(program.body)).value) if r.tensor == "O")
    assert read.unwritten is not None and not program.checks
    for t in range(5):
        written = 5 - 1 - t < t
        assert holds(read.unwritten, {"N": 5, "t": t}) == (not written)


def _only_read(program: object) -> Read:
    (read,) = reads(next(statements(program.body)).value)  # type: ignore[attr-defined]
    return read


@pytest.mark.parametrize(
    ("source", "kind", "place", "contains"),
    [
        ("def f(float(M,K) A) -> (C) { C(m) max= A(m,k) }", InitError, (1, 30), "max=!"),
        ("def f(float(N) A) -> (C) { C(i) = C(i) + A(i) }", InitError, (1, 35), "before"),
        ("def f(float(N) X) -> (O) { T(0) = X(0) S +=! T(k) T(i) = X(i) O(i) = T(i) + S }",
         InitError, (1, 46), "before"),
        ("def f() -> (Y) { Y(i,j) = 3 where i in 8:4, j in 3:20 }", SizeError, (1, 18), "negative"),
        ("def f(float(5) X) -> (Y) { Y(i) = X(i) where i in 0:6 }", BoundsError, (1, 35), "range"),
    ],
)  # fmt: skip
def test_certain_errors(
    source: str, kind: type[TCError], place: tuple[int, int], contains: str
) -> None:
    with pytest.raises(kind, match=contains) as caught:
        inferred(source)
    assert (caught.value.line, caught.value.column) == place


def test_a_call_whose_sizes_cannot_agree() -> None:
    source = """
def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }
def f(float(N) A, float(N+1) B) -> (C) { D(i) = A(i) where i in 0:N C = add(A, D) }
def g(float(N) A) -> (C) { D(i) = 1.0 where i in 0:N+1 C = add(A, D) }"""
    with pytest.raises(SizeError) as caught:
        inferred(source.replace("float(N+1) B", "float(N) B"), "g")
    assert (caught.value.line, caught.value.column) == (4, 60)


def test_messages_name_things_as_written() -> None:
    source = """
def conv(float(N) X, float(K) F) -> (Y) { Y(i) +=! X(i + k) * F(k) }
def f(float(N) X, float(K) F) -> (Y) { t = conv(X, F) Y = conv(t, F) }"""
    program = inferred(source)
    assert all("conv1." not in c.message for c in program.checks)
    assert [condition_text(c.condition) for c in program.checks] == [
        "N + 1 >= K",
        "N + 2 >= 2*K",
    ]


def test_what_reads_leave_unwritten_says_how_to_give_a_range() -> None:
    """Arms bound `d` by `d < E`, but their reads do, too: by half of it."""
    source = """
def f(float(S,D) X, float(S,E) c) -> (float(S,D) Y) {
  Y(t,d) = d < E ? X(t,d) * c(t,d) + X(t,d+E) : X(t,d) * c(t,d-E) }"""
    (check,) = (c for c in inferred(source).checks if "not fully written" in c.message)
    assert check.hint == (
        "reads bound `d` to 0:min(2*E, D - E) in line 3; if guards keep them inside, "
        "give its range: `where d in 0:D`"
    )
    whole = inferred(source.replace("c(t,d-E) }", "c(t,d-E) where d in 0:D }"))
    assert not any("not fully written" in c.message for c in whole.checks)
