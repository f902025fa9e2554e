"""Which statements share loops: the shape of the fused tree."""

from __future__ import annotations

from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.polyhedral.schedule import schedule_program
from tcsym.polyhedral.tree import leaves


def nests(source: str) -> list[list[str]]:
    """Statement names by outermost loop, in order."""
    (program,) = analyse(source).values()
    scheduled = schedule_program(program, Options(), {})
    assert not scheduled.notes
    found: dict[str, list[str]] = {}
    for name, loops in leaves(scheduled.tree):
        found.setdefault(loops[0].variable if loops else name, []).append(name)
    return list(found.values())


def test_independent_gates_share_the_loops_of_what_needs_them() -> None:
    gates = """def gates(float(B,H) X, float(B,H) Y, float(B,H) Z, float(B,H) C0) -> (H1, C) {
      i(b,k) = tanh(X(b,k))
      f(b,k) = exp(Y(b,k))
      o(b,k) = tanh(Z(b,k))
      C(b,k) = f(b,k) * C0(b,k) + i(b,k)
      H1(b,k) = o(b,k) * C(b,k)
    }"""
    assert nests(gates) == [["S0", "S1", "S2", "S3", "S4"]]


def test_a_statement_joins_past_those_it_does_not_depend_on() -> None:
    two = """def two(float(N,M) X, float(K) Y) -> (A, B) {
      s(n) +=! X(n,m)
      t(k) = Y(k) * 2.0
      A(n,m) = X(n,m) / s(n)
      B(k) = t(k) + 1.0
    }"""
    assert nests(two) == [["S0.init", "S0", "S2"], ["S1", "S3"]]


def test_a_statement_does_not_pass_what_it_depends_on() -> None:
    chain = """def chain(float(N,M) X) -> (A, B) {
      A(n,m) = X(n,m) * 2.0
      c(m) +=! A(n,m)
      B(n,m) = A(n,m) * c(m)
    }"""
    order = [name for nest in nests(chain) for name in nest]
    assert order == ["S0", "S1.init", "S1", "S2"]


def test_contractions_stay_apart_from_what_only_feeds_alike() -> None:
    gates = """def gates(float(B,I) X, float(H,I) U, float(H,I) W) -> (O) {
      p(b,h) +=! X(b,i) * U(h,i)
      q(b,h) +=! X(b,i) * W(h,i)
      O(b,h) = p(b,h) * q(b,h)
    }"""
    assert nests(gates) == [["S0.init", "S0"], ["S1.init", "S1", "S2"]]
