# SPDX-License-Identifier: Apache-2.0
"""Options: validation, JSON, and that every rule changes code and never a result."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcsym import define
from tcsym.errors import OptionError
from tcsym.options import _CHOICES, _RANGES, SCHEMA, Options

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
COLUMN_SUM = "def f(float(M,N) A) -> (S) { S(n) +=! A(m,n) }"
ROW_SUM = "def f(float(M,N) A) -> (S) { S(m) +=! A(m,n) }"
ATTENTION = """
def attention(float(B,S,D) Q, float(B,T,D) K, float(B,T,D) V) -> (O, P, R) {
  P(b,s,t) +=! Q(b,s,d) * K(b,t,d)
  R(b,s) max=! P(b,s,t)
  O(b,s,d) +=! P(b,s,t) * V(b,t,d)
}"""
BATCHED = """
def bmm(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }"""
TWICE = """
def twice(float(M,K) A, float(K,N) B, float(N,P) C) -> (E) {
  D(m,n) +=! A(m,k) * B(k,n)
  E(m,p) +=! D(m,n) * C(n,p)
}"""

_binds = st.sampled_from(("never", "before", "after"))
_values = {
    "bind": _binds | st.dictionaries(st.sampled_from("MNK"), _binds),
    **{name: st.sampled_from(choices) for name, choices in _CHOICES.items()},
    **{name: st.booleans() for name in ("vectorize", "parallelize", "tf32")},
    **{name: st.integers(*bounds) for name, bounds in _RANGES.items()},
    "plan": st.sampled_from(("", "GroupedRows", "m: ScatterCopies:2")),
}


@given(st.builds(Options, **_values))
def test_json_gives_equal_options_back(options: Options) -> None:
    assert Options.from_json(options.to_json()) == options
    partial = json.dumps(options.changed())
    assert Options.from_json(partial) == options


def test_every_field_is_documented_and_drawn_above() -> None:
    names = Options.__struct_fields__
    assert sorted(names) == sorted(_values)
    assert all(name in (Options.__doc__ or "") for name in names)


def test_what_was_kept_before_a_field_was_added_is_read() -> None:
    older = json.loads(Options(chains=4).to_json())
    for name in ("inner_fusion", "parallel_loops"):
        del older[name]
    assert Options.from_json(json.dumps(older)) == Options(chains=4)


def test_text_says_what_differs_from_the_defaults() -> None:
    assert str(Options()) == "defaults"
    assert str(Options(vectorize=False, chains=4)) == "chains=4 vectorize=False"
    assert json.loads(Options().to_json())["schema"] == SCHEMA


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"tile": 3}',
        '{"chains": -1}',
        '{"chains": 1e3}',
        '{"chains": true}',
        '{"vectorize": 1}',
        '{"fusion": "most"}',
        '{"max_operations": 0}',
        '{"parallel_loops": 0}',
        '{"inner_fusion": "most"}',
        '{"max_operations": "x"}',
        '{"bind": "early"}',
        '{"bind": {"K": "early"}}',
        '{"bind": {"2K": "after"}}',
        '{"bind": [["K", "after"], ["K", "before"]]}',
        '{"bind": ["K", "after"]}',
        '{"bind": 3}',
        f'{{"schema": {SCHEMA + 1}}}',
    ],
)
def test_wrong_json_is_an_option_error(text: str) -> None:
    with pytest.raises(OptionError):
        Options.from_json(text)


def test_an_unknown_option_is_our_error_with_the_nearest_name() -> None:
    wrong: Any = {"vectorise": False}
    with pytest.raises(OptionError, match="unknown option `vectorise`") as error:
        Options(**wrong)
    assert error.value.hint == "did you mean `vectorize`?"
    with pytest.raises(OptionError) as error:
        Options(speed=11)  # type: ignore[call-arg]
    assert error.value.hint.startswith("options are bind, scheduler")


def test_options_tell_their_fields_and_travel() -> None:
    assert tuple(inspect.signature(Options).parameters) == Options.__struct_fields__
    given = Options(bind={"N": "after", "K": "before"}, vectorize=False)
    assert pickle.loads(pickle.dumps(given)) == copy.copy(given) == given
    assert given == Options(bind={"K": "before", "N": "after"}, vectorize=False)
    assert str(given) == "bind[K]=before bind[N]=after vectorize=False"
    assert Options(bind={}) == Options()


def _run(source: str, options: Options) -> tuple[str, Any, Any]:
    module = define(source, options=options, target="cpu:novector")
    kernel = module[next(iter(module))]
    random = np.random.default_rng(0)
    sizes = {name: 5 + 4 * k for k, name in enumerate(kernel.sizes)}
    inputs = [
        random.integers(-3, 4, [sizes[str(d)] for d in t.shape]).astype(np.float32)
        for t in kernel.signature.inputs.values()
    ]
    pair = kernel(*inputs), kernel.reference(*inputs)
    found, expected = (r if isinstance(r, tuple) else (r,) for r in pair)
    return kernel.explain("llvm"), found, expected


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (MM, {"vectorize": False}),
        (MM, {"parallelize": False}),
        (MM, {"min_work_per_thread": 1000}),
        (ATTENTION, {"fusion": "min"}),
        (ATTENTION, {"inner_fusion": "min"}),
        (BATCHED, {"parallel_loops": 1}),
        (BATCHED, {"parallel_loops": 2}),
    ],
    ids=str,
)
def test_a_rule_changes_code_and_no_result(source: str, changes: dict[str, Any]) -> None:
    default, *_ = _run(source, Options())
    text, results, expected = _run(source, Options(**changes))
    assert text != default
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (COLUMN_SUM, {"vectorize": False}),
        (ROW_SUM, {"vectorize": False}),
    ],
    ids=str,
)
def test_a_vector_rule_changes_code(source: str, changes: dict[str, Any]) -> None:
    def code(options: Options) -> str:
        return define(source, options=options, target="cpu:avx2").explain("llvm")

    assert code(Options(**changes)) != code(Options())


def test_options_are_changed_by_a_method() -> None:
    given = Options(chains=2, bind={"K": "before"})
    changed = given.replace(vectorize=False, chains=4)
    assert changed == Options(chains=4, bind={"K": "before"}, vectorize=False)
    assert given == Options(chains=2, bind={"K": "before"})  # as it was
    assert given.replace() == given
    for wrong, message in (
        ({"chanis": 1}, "unknown option `chanis`"),
        ({"vectorize": 3}, "`vectorize` is 3"),
    ):
        with pytest.raises(OptionError, match=message):
            given.replace(**wrong)
