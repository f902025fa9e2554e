# SPDX-License-Identifier: Apache-2.0
"""Which statements share loops: the shape of the fused tree."""

from __future__ import annotations

from tcsym.compiler import analyse
from tcsym.options import Options
from tcsym.polyhedral.tree import leaves
from tcsym.proved import schedule_program


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


def loops_of(source: str) -> dict[str, tuple[str, ...]]:
    """Variables of the loops around each statement."""
    (program,) = analyse(source).values()
    scheduled = schedule_program(program, Options(), {})
    return {n: tuple(x.variable for x in loops) for n, loops in leaves(scheduled.tree)}


def test_rows_of_a_map_are_not_inside_the_columns_of_a_contraction() -> None:
    found = loops_of("""def gate(float(N,R) A, float(C,R) W, float(N,C,H) X) -> (Y) {
      e(n,c) +=! A(n,r) * W(c,r)
      Y(n,c,h) = X(n,c,h) * e(n,c)
    }""")
    assert found["S0"][0] == found["S1"][0]
    assert found["S0"][1] != found["S1"][1]


def test_single_terms_and_rows_of_terms_do_not_share_a_sum() -> None:
    found = loops_of("""def weighted(float(B,S) X, float(B,S,D) V) -> (O) {
      e(b,s) = exp(X(b,s))
      z(b) +=! e(b,s)
      O(b,d) +=! e(b,s) * V(b,s,d)
    }""")
    assert found["S0"] == found["S1"]
    assert found["S2"][0] == found["S1"][0] and found["S1"][1] not in found["S2"]


SCAN = """def scan(float(T,B) X, float(T,B) F, float(B,K) W) -> ({outs}) {{
  for t in 0:T {{ if t == 0 {{ C(t,b) = X(t,b) }} else {{ C(t,b) = F(t,b)*C(t-1,b) + X(t,b) }} }}
  {after}
}}"""


def after_scan(outs: str, after: str) -> list[list[str]]:
    return nests(SCAN.format(outs=outs, after=after))


def test_maps_of_what_a_scan_stores_join_it() -> None:
    after = "A(t,b) = C(t,b) * 2.0   D(t,b) = A(t,b) - X(t,b)"
    assert after_scan("A, D", after) == [["S0", "S1", "S2", "S3"]]


def test_a_map_of_other_steps_stays_behind_the_scan() -> None:
    later = "A(t,b) = C(t+1,b) * 2.0 where t in 0:T-1"
    turned = "A(t,b) = C(T-1-t,b) * 2.0 where t in 0:T"
    for after in (later, turned):
        assert after_scan("A", after) == [["S0", "S1"], ["S2"]]


def test_what_computes_much_stays_behind_the_scan() -> None:
    assert after_scan("A", "A(t,b) = exp(C(t,b))") == [["S0", "S1"], ["S2"]]
    assert after_scan("A", "A(t,k) +=! C(t,b) * W(b,k)") == [["S0", "S1"], ["S2.init", "S2"]]


def test_a_map_with_vectors_along_the_scan_stays_behind_it() -> None:
    assert after_scan("A", "A(b,t) = C(t,b) * 2.0") == [["S0", "S1"], ["S2"]]


def test_a_map_does_not_pass_what_it_depends_on_into_a_scan() -> None:
    after = "m(b) max=! C(t,b)   A(t,b) = C(t,b) - m(b)   D(t,b) = C(t,b) + 1.0"
    assert after_scan("A, D", after) == [["S0", "S1", "S4"], ["S2.init", "S2"], ["S3"]]
