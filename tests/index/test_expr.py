# SPDX-License-Identifier: Apache-2.0
"""Index expressions: normal form, substitution, text, JSON."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import subprocess
import sys
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tcsym.compiler import analyse
from tcsym.index.expr import (
    Condition,
    FloorDiv,
    Index,
    all_of,
    any_of,
    atom_text,
    choose,
    eq,
    floordiv,
    ge,
    index,
    maximum,
    minimum,
    mod,
    negate,
    of_atom,
    var,
)
from tcsym.index.json_data import condition_from_json, condition_to_json, from_json, to_json
from tcsym.index.text import condition_text
from tcsym.index.values import evaluate, holds, substitute

NAMES = ("M", "N", "i")
small = st.integers(-7, 7)


def joined(inner: st.SearchStrategy[Index]) -> st.SearchStrategy[Index]:
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, n: a * n, inner, small),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(floordiv, inner, st.one_of(small, inner)),
        st.builds(mod, inner, st.one_of(small, inner)),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner, inner),
        st.builds(lambda a, b, c: choose(ge(a, b), c, a), inner, inner, inner),
    )


indices = st.recursive(
    st.one_of(small.map(index), st.sampled_from(NAMES).map(var)), joined, max_leaves=6
)
values = st.fixed_dictionaries({n: st.integers(-9, 9) for n in NAMES})


def conditions() -> st.SearchStrategy[Condition]:
    basic = st.one_of(st.builds(ge, indices, indices), st.builds(eq, indices, indices))
    both = st.tuples(basic, basic)
    return st.one_of(basic, basic.map(negate), both.map(all_of), both.map(any_of))


@given(indices, indices, values)
def test_arithmetic_is_exact(a: Index, b: Index, at: dict[str, int]) -> None:
    x, y = evaluate(a, at), evaluate(b, at)
    assert evaluate(a + b, at) == x + y
    assert evaluate(a - b, at) == x - y
    assert evaluate(a * b, at) == x * y
    assert evaluate(floordiv(a, b), at) == (x // y if y else 0)
    assert evaluate(mod(a, b), at) == (x % y if y else 0)
    assert evaluate(minimum(a, b), at) == min(x, y)
    assert evaluate(maximum(a, b), at) == max(x, y)


def test_quotients_with_common_factors_are_exact() -> None:
    for c, n, r in product((2, 3, 4, 6), (4, 6, 9, 12), range(-7, 8)):
        e = floordiv(var("i") * c + r, n)
        assert all(evaluate(e, {"i": i}) == (c * i + r) // n for i in range(-8, 9)), str(e)


def test_extrema_of_shifted_extrema_are_exact() -> None:
    for build, pick in ((minimum, min), (maximum, max)):
        for shift, m, n, i in product((-2, 0, 3), (0, 5), (1, 4), range(-3, 9)):
            e = build(build(var("M"), var("N")) + shift, var("i"))
            assert evaluate(e, {"M": m, "N": n, "i": i}) == pick(pick(m, n) + shift, i), str(e)


@given(indices, values)
def test_substitution_agrees_with_evaluation(a: Index, at: dict[str, int]) -> None:
    assert substitute(a, {n: index(v) for n, v in at.items()}) == index(evaluate(a, at))


@given(conditions(), values)
def test_negation(c: Condition, at: dict[str, int]) -> None:
    assert holds(negate(c), at) is not holds(c, at)


@given(indices, conditions())
@settings(max_examples=50)
def test_json_round_trip(a: Index, c: Condition) -> None:
    assert from_json(to_json(a)) == a
    assert condition_from_json(condition_to_json(c)) == c


def test_text_is_as_a_person_writes() -> None:
    n, k, i = var("N"), var("K"), var("i")
    assert str(n - k + 1) == "N - K + 1"
    assert str(floordiv(n - k, 2) + 1) == "(N - K)/2 + 1"
    assert str(mod(i, 3)) == "i - 3*(i/3)"
    assert str(minimum(n, k, n - 1)) == "min(K, N - 1)"
    assert str(1 - floordiv(i, 2)) == "-(i/2) + 1"  # -i/2 is (-i)/2
    assert str(-mod(i, n)) == "-(i%N)" and str(n - mod(i, n)) == "N - i%N"
    assert condition_text(all_of((ge(i, n), negate(eq(i, 3))))) == "i >= N && i != 3"


def test_what_another_process_pickled_is_equal() -> None:
    """Hashes of names differ between processes: kept ones made equal shapes differ in the workers
    of the tuner, which measured other code than calls run.
    """
    text = "def f(float(N,M) A, float(M,K) B) -> (C) { C(i,k) +=! A(i,j)*B(j,k) }"
    code = (
        "import base64, pickle\n"
        "from tcsym.compiler import analyse; from tcsym.index.expr import var\n"
        f"f = analyse({text!r})['f']\n"
        "print(base64.b64encode(pickle.dumps((var('N') * var('M') + 3, f))).decode())"
    )
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    ran = [sys.executable, "-c", code]
    out = subprocess.run(ran, capture_output=True, text=True, check=True, env=environment)
    product, program = pickle.loads(base64.b64decode(out.stdout))
    mine = var("N") * var("M") + 3
    assert product == mine and hash(product) == hash(mine) and {mine: 1}[product] == 1
    here = analyse(text)["f"]
    assert program == here and hash(program) == hash(here)


def test_texts_and_variables_nest_deeper_than_calls_may() -> None:
    """As after loading, when inner expressions have none that were kept."""
    e = var("N")
    for _ in range(sys.getrecursionlimit()):
        e = of_atom(FloorDiv(e, index(2))) + 1
    assert str(e).count("/2 + 1") == sys.getrecursionlimit()
    assert e.variables() == {"N"}


def test_copied_and_pickled_atoms_have_hash_and_text_of_their_own() -> None:
    n, m = var("N"), var("M")
    for e in (
        n * m,
        floordiv(n, m),
        mod(n, m),
        minimum(n, m),
        maximum(n, m),
        choose(ge(n, m), n, m),
    ):
        ((atom, _),) = e.terms
        texts = atom_text(atom), hash(atom)  # kept now
        for other in (copy.copy(atom), copy.deepcopy(atom), pickle.loads(pickle.dumps(atom))):
            assert (atom_text(other), hash(other)) == texts
            assert other == atom and str(other) == str(atom)
        assert b"_text" not in pickle.dumps(atom)
        assert b"_hash" not in pickle.dumps(atom)
