# SPDX-License-Identifier: Apache-2.0
"""A few seconds that say whether anything works at all: `./dev smoke`.

One program of each kind, compared with the reference interpreter at sizes with and without
ragged ends, in every way of compiling; an error of a text and one of a call; the command line.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.process.system import processors
from tcsym.strategy import Pad

LAYER = """
def layer(float(B,K) X, float(K,N) W, float(N) b) -> (Y) {
  Y(i,j) +=! X(i,k) * W(k,j)
  Y(i,j) = fmax(Y(i,j) + b(j), 0)
}"""
SOFTMAX = """
def softmax(float(N,D) X) -> (O) {
  m(n) max=! X(n,d)
  e(n,d) = exp(X(n,d) - m(n))
  s(n) +=! e(n,d)
  O(n,d) = e(n,d) / s(n)
}"""
SCAN = """
def scan(float(T,N) X) -> (float(T,N) S) {
  for t in 0:T { S(t,n) = X(t,n) + (t > 0 ? 0.5 * S(t-1,n) : 0.0) }
}"""
LOOKUP = "def lookup(float(V,D) table, int32(N) index) -> (O) { O(n,d) = table(index(n),d) }"
SETTINGS: dict[str, dict[str, Any]] = {
    "symbolic": {"strategy": "symbolic"},
    "auto": {},
    "pad": {"strategy": Pad(8)},
    "named": {"target": "cpu:avx2" if processors() == "x86_64" else "cpu:neon"},
    "novector": {"target": "cpu:novector"},
    "after": {"options": tcsym.Options(bind="after"), "sizes": {"K": 17}},
}


def check(kernel: Any, *inputs: np.ndarray) -> None:
    got, want = kernel(*inputs), kernel.reference(*inputs)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("way", SETTINGS)
def test_a_layer(way: str) -> None:
    kernel = tcsym.define(LAYER, **SETTINGS[way])
    rng = np.random.default_rng(0)
    for rows, columns in ((1, 1), (7, 33), (0, 5)):
        x, w = rng.standard_normal((rows, 17)), rng.standard_normal((17, columns))
        b = rng.standard_normal(columns)
        check(kernel.layer, *(a.astype(np.float32) for a in (x, w, b)))


@pytest.mark.parametrize("text", [SOFTMAX, SCAN], ids=["softmax", "scan"])
def test_rows(text: str) -> None:
    module = tcsym.define(text)
    for shape in ((1, 1), (3, 40), (17, 5)):
        x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32) - 3
        check(module[next(iter(module))], x)


def test_a_lookup_and_its_error() -> None:
    lookup = tcsym.define(LOOKUP).lookup
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    check(lookup, table, np.array([3, 0, 3], np.int32))
    with pytest.raises(tcsym.BoundsError):
        lookup(table, np.array([0, 4], np.int32))


def test_an_error_of_the_text() -> None:
    with pytest.raises(tcsym.RankError, match="2 dimensions but is read with 1") as caught:
        tcsym.define("def f(float(N,M) A) -> (C) { C(i) = A(i) }")
    assert (caught.value.line, caught.value.column) == (1, 37)


def test_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "layer.tc"
    file.write_text(LAYER)
    command = [sys.executable, "-m", "tcsym", "run", str(file), "--sizes", "B=7,K=5,N=9", "--check"]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
