# SPDX-License-Identifier: Apache-2.0
"""Canonical text and canonical hash: parses back to an equal tree; names do not matter."""

import pytest

from tcsym.frontend.canonical import canonical_hash
from tcsym.frontend.check import resolve
from tcsym.frontend.format import format_program
from tcsym.frontend.parser import parse

ALL = """# every construct
def g(float(N,3) A, int32 k) -> (float(N,3) B, C) { B(i,j)=A(i,j)*k C(i)max=!A(i,j) }
def f(float(N,3) A,bool b)->(O,int64((N+2*3)/2,max(N,3)) P,double S){
  x,y=g(A,-2) z = h(y)
  P((i),j) = i*100+j where i in 0:(N + 6)/2 , u=3.5e-1,exists A( 0,0 )
  S  +=! b?double(A(i,j)): - INFINITY <=> gemm(A,i)
  for t in N{for s in t : N { if t%2==0&&!(s!=3){O(t,s)=x(t,0)} else if t >3||s<2 {} else {
    O(t,s) = z(t) O(t,s)*=min(1.,x(t,1)) } } }
}
def h(float(N) a) -> (r) { r(i) = a(i) }
"""
TEXT = """def g(float32(N,3) A, int32 k) -> (float32(N, 3) B, C) {
  B(i, j) = A(i, j) * k
  C(i) max=! A(i, j)
}

def f(float32(N,3) A, bool b) -> (O, int64((N + 2 * 3) / 2, max(N, 3)) P, float64 S) {
  x, y = g(A, -2)
  z = h(y)
  P((i), j) = i * 100 + j where i in 0:(N + 6) / 2, u = 3.5e-1, exists A(0, 0)
  S +=! b ? float64(A(i, j)) : -INFINITY <=> gemm(A, i)
  for t in N {
    for s in t:N {
      if t % 2 == 0 && !(s != 3) {
        O(t, s) = x(t, 0)
      } else if t > 3 || s < 2 {
      } else {
        O(t, s) = z(t)
        O(t, s) *= min(1., x(t, 1))
      }
    }
  }
}

def h(float32(N) a) -> (r) {
  r(i) = a(i)
}
"""


def test_canonical_text() -> None:
    assert format_program(parse(ALL)) == TEXT
    assert format_program(parse(ALL).defs[2]) == TEXT[TEXT.index("def h") :]


def test_parses_back_to_an_equal_tree() -> None:
    tree = parse(ALL)
    assert parse(format_program(tree)) == tree
    assert format_program(parse(TEXT)) == TEXT


def test_long_headers_are_broken() -> None:
    params = ", ".join(f"float32(N) parameter{k}" for k in range(5))
    text = format_program(parse(f"def f({params}) -> (C) {{ C(i) = parameter0(i) }}"))
    assert text.splitlines()[1] == "    -> (C) {"
    assert format_program(parse(text)) == text


def test_long_chains_need_no_recursion() -> None:
    text = f"def f(float(N) A) -> (C) {{ C(i) = A(i){' + A(i)' * 1000} }}"
    tree = parse(text)
    assert format_program(parse(format_program(tree))) == format_program(tree)
    assert len(canonical_hash(resolve(tree)["f"])) == 64


# ---- hashes

BASE = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def digest(text: str) -> str:
    return canonical_hash(next(iter(resolve(parse(text)).values())))


@pytest.mark.parametrize(
    "same",
    [
        "def g(float32(M,K) A, float(K,N) B) -> (C) {\n # sum\n C(m,n) +=! A(m,(k)) * B(k,n) }",
        "def mm(float(Z,Y) p, float(Y,A) q) -> (r) { r(z,b) +=! p(z,a) * q(a,b) }",
        "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! x * B(k,n) where x = A(m,k) }",
        f"{BASE} def other(float a) -> (b) {{ b = a }}",
    ],
)
def test_equal_up_to_names(same: str) -> None:
    assert digest(same) == digest(BASE)


@pytest.mark.parametrize(
    "old, new",
    [
        ("float(M,K) A", "double(M,K) A"),
        ("float(K,N) B", "float(J,N) B"),
        ("C(m,n)", "C(n,m)"),
        ("+=!", "max=!"),
        (" * ", " + "),
        ("A(m,k) * B(k,n)", "B(k,n) * A(m,k)"),
        ("B(k,n) }", "B(k,n) where k in 0:K }"),
        ("(C)", "(float(M,N) C)"),
    ],
)
def test_different(old: str, new: str) -> None:
    assert old in BASE
    assert digest(BASE.replace(old, new)) != digest(BASE)


def test_variables_are_numbered_within_a_statement() -> None:
    one = "def f(float(N) A) -> (B, C) { for t in N { B(t) = A(t) } C(i) = A(i) B(i) += A(i) }"
    two = "def f(float(N) A) -> (B, C) { for u in N { B(u) = A(u) } C(a) = A(a) B(z) += A(z) }"
    assert digest(one) == digest(two)
    loops = one.replace("B(t) = A(t)", "B(t) +=! A(t) * A(j)")
    renamed = loops.replace("A(j)", "A(x)")
    assert digest(loops) == digest(renamed) != digest(one)


def test_calls_count_by_what_they_do() -> None:
    call = "def f(float(N) A) -> (C) { C = g(A) } def g(float(M) x) -> (y) { y(i) = x(i) * %s }"
    assert digest(call % 2) == digest(call.replace("g(", "twice(") % 2) != digest(call % 3)
