# SPDX-License-Identifier: Apache-2.0
"""Tables that a program sets and then fills: right gradients, and each element kept once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tcsym
from tcsym.differentiate import last_writes
from tcsym.differentiate.names import names_of
from tcsym.differentiate.single import single_assignment
from tcsym.frontend.program import Program, statements
from tcsym.index.values import evaluate

from .differences import disagreement, gradient_of, only, run

SOFT = "-log(exp(-D(i,j) - C(i,j)) + exp(-D(i+1,j) - 0.3) + exp(-D(i,j+1) - 0.7))"
FILLS = f"for i in N {{ for j in M {{ D(i+1,j+1) = {SOFT} }} }}"
TABLES = {
    "set to a number": (
        "double(N,M) X, double a) -> (double(N+1,M) h) { h(t,n) = 0.0 where t in 0:N+1, n in "
        "0:M for t in N { h(t+1,n) = a * h(t,n) + X(t,n) * X(t,n) } }"
    ),
    "set to inputs": (
        "double(N) X, double a) -> (double y) { h(t) = X(t) * X(t) where t in 0:N for t in N-1 "
        "{ h(t+1) = a * h(t) + sin(h(t)) } y +=! h(t) * h(t) where t in 0:N }"
    ),
    "set to inputs that are read": (
        "double(N) X, double a) -> (double(N) h) { h(t) = X(t) * X(t) for t in N-1 { h(t+1) = a "
        "* h(t) * h(t+1) } }"
    ),
    "accumulated": (
        "double(N) X, double a) -> (double(N+1) h) { h(t) = 0.5 where t in 0:N+1 for t in N { "
        "h(t+1) += a * h(t) * X(t) } }"
    ),
    "backwards": (
        "double(N) X, double a) -> (double(N) h) { h(t) = X(t) for t in N-1 { h(N-2-t) = a * "
        "h(N-1-t) + h(N-2-t) * h(N-2-t) } }"
    ),
    "changed behind the loop": (
        "double(N) X, double a) -> (double(N+1) h) { h(t) = 0.0 where t in 0:N+1 for t in N { "
        "h(t+1) = a * h(t) + X(t) } h(t) = h(t) * h(t) where t in 0:N+1 h(0) = X(0) }"
    ),
    "borders": (
        "double(N,M) C, double(N) E) -> (double y) { D(i,j) = double(9.0) where i in 0:N+1, j "
        "in 0:M+1 D(0,j) = 0.1*double(j) where j in 0:M+1 D(i,0) = i > 0 ? E(i-1) : 0.0 where i "
        f"in 0:N+1 {FILLS} y = D(N,M) }}"
    ),
    "a corner": (
        "double(N,M) C) -> (double(N+1,M+1) D) { D(i,j) = 3.0 where i in 0:N+1, j in 0:M+1 "
        f"D(0,0) = 0.0 {FILLS} }}"
    ),
    "rows in the loop": (
        "double(N,M) C) -> (double y) { D(0,j) = double(0.5) where j in 0:M+1 for i in N { "
        "D(i+1,j) = 2.0 where j in 0:M+1 D(i+1,0) = D(i,0) * C(i,0) for j in M { D(i+1,j+1) = "
        f"{SOFT} }} }} y = D(N,M) }}"
    ),
    "a band": (
        "double(N,N) C) -> (double y) { D(i,j) = double(3.0) where i in 0:N+1, j in 0:N+1 "
        f"D(0,0) = 0.0 for i in N {{ for j in max(i-1,0):min(i+2,N) {{ D(i+1,j+1) = {SOFT} }} }} "
        "y = D(N,N) }"
    ),
    "intervals": (
        "double(N) X) -> (double y) { D(i,j) = X(i) * X(j) where i in 0:N, j in 0:N for l in "
        "1:N { for i in N-l { s +=! D(i,i+k) * D(i+k+1,i+l) where k in 0:l D(i,i+l) = sin(s) } "
        "} y = N > 0 ? D(0,N-1) : 0.0 }"
    ),
    "in arms": (
        "double(N) X) -> (double(N) h) { h(t) = X(t) for t in N { if t % 2 == 1 { h(t) = h(t-1) "
        "* 0.5 + X(t) } else { if t > 0 { h(t) = h(t-1) * h(t) } } } }"
    ),
    "two tables": (
        "double(N) X, double a) -> (double(N+1) h, double(N+1) g) { h(t) = 0.1 where t in 0:N+1 "
        "g(t) = h(t) where t in 0:N+1 for t in N { h(t+1) = a * g(t) + X(t) g(t+1) = "
        "sin(h(t+1)) * g(t) } }"
    ),
    "at positions": (
        "double(N) X, int32(N) p) -> (double(N) h) { h(t) = X(t) * X(t) for t in N { h(t) = 0.5 "
        "* h(p(t)) + sin(X(t)) } }"
    ),
    "at earlier positions": (
        "double(N) X, int32(N) p) -> (double(N+1) h) { h(t) = 1.0 where t in 0:N+1 for t in N { "
        "h(t+1) = h(p(t) % (t+1)) * X(t) } }"
    ),
    "at computed positions": (
        "double(N) X, int32(N) p) -> (double(N) h) { h(t) = X(t) * X(t) for t in N { h(t) = 0.5 "
        "* h((p(t) + t) % N) + sin(X(t)) } }"
    ),
}
COPIED = {
    "a state": "double(N) X, double(M) w) -> (double(M) h) { h(n) = 0.0 where n in 0:M "
    "for t in N { h(n) = tanh(w(n) * h(n) + X(t)) } }",
    "all pairs": "double(N,N) X) -> (double(N,N) D) { D(i,j) = X(i,j) "
    "for k in N { D(i,j) = D(i,j) + 0.1 * D(i,k) * D(k,j) } }",
}


def _sizes(program: Program, n: int, m: int) -> dict[str, int]:
    known = {"N": n, "M": m, "S": 2}
    return {x: known[x] for x in program.sizes}


def _most_elements(program: Program, sizes: dict[str, int]) -> int:
    """Of the tensors that a gradient would keep."""
    single = single_assignment(program, names_of(program))
    made = {s.target for s in statements(single.items)}
    counts = [np.prod([evaluate(e, sizes) for e in single.tensors[n].shape]) for n in made]
    return int(max(counts))


@pytest.mark.parametrize("name", TABLES)
def test_elements_of_tables_are_kept_once(name: str) -> None:
    text = f"def f({TABLES[name]}"
    program = only(text)
    sizes = _sizes(program, 7, 6)
    assert _most_elements(program, sizes) <= 8 * 8
    for n, m in ((1, 2), (4, 3), (5, 5)):
        for recompute in ("auto", "all", "none", "cheap"):
            assert disagreement(text, _sizes(program, n, m), recompute=recompute) == ""


@pytest.mark.parametrize("name", ["set to a number", "borders", "rows in the loop"])
def test_gradients_of_tables_have_gradients(name: str) -> None:
    text = f"def f({TABLES[name]}"
    program = only(text)
    back = gradient_of(program, recompute="all")
    sizes = _sizes(program, 3, 2)
    shapes = {str(e): evaluate(e, sizes) for t in program.outputs for e in t.shape}
    named = {"P": shapes.get("N + 1", 0), "Q": shapes.get("M + 1", 0), **sizes}
    known = {x: named[x] for x in back.sizes}
    assert disagreement(back.source, known, recompute="all") == ""


@pytest.mark.parametrize("name", COPIED)
def test_what_steps_overwrite_is_kept_for_each(name: str) -> None:
    text = f"def f({COPIED[name]}"
    program = only(text)
    assert _most_elements(program, _sizes(program, 7, 6)) >= 7 * 6
    assert disagreement(text, _sizes(program, 4, 3)) == ""


def test_a_table_is_computed_again_as_it_was_written() -> None:
    text = f"def f({TABLES['a corner']}"
    source = gradient_of(only(text), recompute="all").source
    assert "D(i, j) = double(3.0) where i in 0:P, j in 0:Q" in source
    assert "D(0, 0) = 0.0" in source


def test_what_was_set_has_its_gradient_where_nothing_replaced_it() -> None:
    program = only(f"def f({TABLES['set to inputs']}")
    X = np.array([0.5, 1.0, 1.5])
    back = gradient_of(program, recompute="all")
    dX = run(back, {"X": X, "a": np.array(0.5), "dy": np.array(1.0)}, {})["dX"]
    assert dX[0] != 0 and not dX[1:].any()


KNAPSACK = """def f(double(N,M) v) -> (double y) {
  best(c) = double(0) where c in 0:M
  for t in N { for c in M-1 { best(c+1) = log(exp(best(c) + v(t,c)) + exp(best(c+1))) } }
  y = best(M-1)
}"""


STRIDED = (
    "def f(double(N) X, size S) -> (double(N) h) { h(t) = X(t) "
    "for t in 1:(N-1)/S+1 { h(S*t) = h(S*t-1) * h(S*t) } }"
)


def test_what_isl_cannot_express_is_copied_and_said() -> None:
    assert disagreement(STRIDED, {"N": 7, "S": 2}) == ""
    with pytest.warns(tcsym.TCWarning, match="all of `h`") as caught:
        tcsym.define(STRIDED).f.grad(recompute="all")
    assert "affine in loop variables" in caught[0].message.hint


def test_copies_that_are_kept_are_said() -> None:
    kernel = tcsym.define(KNAPSACK).f
    for make in (kernel.grad, lambda: tcsym.derivative(kernel)):
        with pytest.warns(tcsym.TCWarning, match="keeps all of `best` for each step") as caught:
            make()
        (found,) = [w for w in caught if isinstance(w.message, tcsym.TCWarning)]
        assert found.filename == __file__
        assert (found.message.kind, found.message.line, found.message.column) == ("copies", 3, 31)
        assert "as `best(t + 1, …)`" in found.message.hint


def test_as_the_hint_says_elements_are_kept_once() -> None:
    start = "best(t,c) = double(0) where t in 0:N+1, c in 0:M"
    text = KNAPSACK.replace("best(c) = double(0) where c in 0:M", start)
    text = text.replace("best(c+1) =", "best(t+1,c+1) =").replace("best(M-1)", "best(N,M-1)")
    text = text.replace("(best(c) +", "(best(t+1,c) +").replace("(best(c+1))", "(best(t,c+1))")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tcsym.define(text).f.grad()
    assert _most_elements(only(text), {"N": 7, "M": 6}) <= 8 * 6
    assert disagreement(text, {"N": 3, "M": 4}) == ""


@pytest.mark.parametrize("name", [*TABLES, *COPIED])
def test_what_is_kept_once_or_whole_is_not_warned_of(name: str) -> None:
    kernel = tcsym.define(f"def f({(TABLES | COPIED)[name]}").f
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel.grad(recompute="all")


def test_an_analysis_that_takes_too_much_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_writes, "MOST_OPERATIONS", 100)
    text = f"def f({TABLES['a corner']}"
    with pytest.warns(tcsym.TCWarning, match="keeps all of `D`"):
        tcsym.define(text).f.grad(recompute="all")
    assert disagreement(text, {"N": 3, "M": 2}) == ""
