"""Options: validation, JSON, presets, and that every rule changes code and never a result."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcsym import define
from tcsym.errors import OptionError
from tcsym.options import _RANGES, SCHEMA, Options

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
COLUMN_SUM = "def f(float(M,N) A) -> (S) { S(n) +=! A(m,n) }"
ROW_SUM = "def f(float(M,N) A) -> (S) { S(m) +=! A(m,n) }"
ATTENTION = """
def attention(float(B,S,D) Q, float(B,T,D) K, float(B,T,D) V) -> (O, P, R) {
  P(b,s,t) +=! Q(b,s,d) * K(b,t,d)
  R(b,s) max=! P(b,s,t)
  O(b,s,d) +=! P(b,s,t) * V(b,t,d)
}"""
PRESETS = ("naive", "pointwise", "contraction", "convolution", "reduction")

_values = {
    "bind": st.sampled_from(["never", "before", "after"]),
    "scheduler": st.sampled_from(["align", "isl"]),
    "fusion": st.sampled_from(["max", "preserve-coincident", "min"]),
    "pack_columns": st.sampled_from(["auto", "never"]),
    "pack_rows": st.sampled_from(["auto", "always", "never"]),
    **{name: st.booleans() for name in ("pack", "vectorize", "parallelize")},
    **{name: st.integers(*bounds) for name, bounds in _RANGES.items()},
    "time_limit": st.floats(1e-3, 1e3),
}


@given(st.builds(Options, **_values))
def test_json_gives_equal_options_back(options: Options) -> None:
    assert Options.from_json(options.to_json()) == options
    partial = json.dumps(options.changed())
    assert Options.from_json(partial) == options


def test_every_field_is_documented_and_drawn_above() -> None:
    names = [f.name for f in dataclasses.fields(Options)]
    assert sorted(names) == sorted(_values)
    assert all(name in (Options.__doc__ or "") for name in names)


def test_text_says_what_differs_from_the_defaults() -> None:
    assert str(Options()) == "defaults"
    assert str(Options(pack=False, register_rows=4)) == "register_rows=4 pack=False"
    assert json.loads(Options().to_json())["schema"] == SCHEMA


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"tile": 3}',
        '{"register_rows": -1}',
        '{"register_rows": 1e3}',
        '{"register_rows": true}',
        '{"pack": 1}',
        '{"fusion": "most"}',
        '{"time_limit": 0}',
        '{"time_limit": "x"}',
        f'{{"schema": {SCHEMA + 1}}}',
    ],
)
def test_wrong_json_is_an_option_error(text: str) -> None:
    with pytest.raises(OptionError):
        Options.from_json(text)


def test_presets_are_options_and_an_unknown_one_is_an_error() -> None:
    assert len({Options.preset(name) for name in PRESETS}) >= 4
    with pytest.raises(OptionError, match="naive"):
        Options.preset("fast")


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


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (MM, {"register_rows": 3}),
        (MM, {"register_vectors": 3}),
        (MM, {"reduction_unroll": 2}),
        (MM, {"pack": False}),
        (MM, {"pack_columns": "never"}),
        (MM, {"pack_rows": "always"}),
        (MM, {"pack_reuse": 3}),
        (MM, {"panel_percent": 25}),
        (MM, {"panel_parts": 3}),
        (MM, {"block_tiles": 2}),
        (MM, {"parallelize": False}),
        (MM, {"min_work_per_thread": 1000}),
        (ATTENTION, {"row_block": 2}),
        (ATTENTION, {"fusion": "min"}),
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
        (COLUMN_SUM, {"strip_vectors": 4}),
        (ROW_SUM, {"row_unroll": 2}),
        (ROW_SUM, {"vectorize": False}),
    ],
    ids=str,
)
def test_a_vector_rule_changes_code(source: str, changes: dict[str, Any]) -> None:
    def code(options: Options) -> str:
        return define(source, options=options, target="cpu:avx2").explain("llvm")

    assert code(Options(**changes)) != code(Options())
