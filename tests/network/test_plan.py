# SPDX-License-Identifier: Apache-2.0
"""Plans: steps, storages, bytes as formulas, JSON and pictures."""

from __future__ import annotations

import json
from itertools import combinations
from xml.etree import ElementTree

import pytest

import tcsym
from tcsym.errors import OptionError, SizeError
from tcsym.index.values import evaluate

CAT = """
def cat(float(N,A,B,C) X, float(M,A,B,C) Y) -> (float(N+M,A,B,C) Z) {
    Z(i,a,b,c) = i < N ? X(i,a,b,c) : Y(i-N,a,b,c)
}
def all(float(n1,4,2,3) x, float(n2,4,2,3) y, float(n3,4,2,3) a, float(27,4,2,3) b) -> (o) {
    p = cat(x, y)
    q = cat(a, b)
    o = cat(p, q)
}
"""
LAYERS = """
def layers(float(B,K) X, float(K,N) U, float(N,N) V, float(N,M) W) -> (Y) {
    H(b,n) +=! X(b,k) * U(k,n)
    H(b,n) = fmax(H(b,n), 0)
    G(b,m) +=! H(b,n) * V(n,m)
    F(b,m) +=! G(b,n) * V(n,m)
    E(b,m) +=! F(b,n) * V(n,m)
    Y(b,m) +=! E(b,n) * W(n,m)
}
"""


def test_tensors_have_their_bytes_at_the_bounds() -> None:
    plan = tcsym.define(CAT)["all"].plan(bounds={"n1": 128, "n2": 32, "n3": 12})
    most = {t.name: t.max_bytes for t in plan.tensors}
    assert most == {"x": 12288, "y": 3072, "a": 1152, "b": 2592, "o": 19104}
    assert plan.arena_bytes == 19104
    assert str(plan.tensor("o").bytes) == "96*n1 + 96*n2 + 96*n3 + 2592"


def test_steps_are_nests_and_take_turns_with_storages() -> None:
    plan = tcsym.define(LAYERS).plan()
    assert [(s.reads, s.writes) for s in plan.steps] == [
        (("X", "U"), ("H",)),
        (("V", "H"), ("G",)),
        (("V", "G"), ("F",)),
        (("V", "F"), ("E",)),
        (("W", "E"), ("Y",)),
    ]
    assert len(plan.storages) == 2  # what a step reads and what it writes
    for storage in plan.storages:
        alive = [plan.tensor(n) for n in storage.tensors]
        for a, b in combinations(alive, 2):
            assert a.last < b.first or b.last < a.first
            assert evaluate(storage.bytes, {"B": 3, "K": 5, "N": 7, "M": 2}) >= evaluate(
                a.bytes, {"B": 3, "K": 5, "N": 7, "M": 2}
            )


def test_what_is_declared_of_sizes_bounds_them() -> None:
    kernel = tcsym.define(LAYERS, sizes={"B": tcsym.Dim(1, 8), "K": 16})
    plan = kernel.plan(bounds={"N": 32, "M": 4})
    assert plan.bounds == {"B": 8, "K": 16, "N": 32, "M": 4}
    assert plan.tensor("H").max_bytes == 8 * 32 * 4


def test_bounds_of_what_is_no_size_are_refused() -> None:
    kernel = tcsym.define(LAYERS)
    with pytest.raises(SizeError, match="`Q`, which is no size"):
        kernel.plan(bounds={"Q": 3})
    with pytest.raises(SizeError, match="expected an integer >= 0"):
        kernel.plan(bounds={"B": -1})


def test_a_plan_is_readable_json() -> None:
    plan = tcsym.define(CAT)["all"].plan(bounds={"n1": 128, "n2": 32, "n3": 12})
    data = json.loads(plan.to_json())
    assert data["var_upper_bound"] == {"n1": 128, "n2": 32, "n3": 12}
    (result,) = [t for t in data["tensors"] if t["role"] == "output"]
    assert result["shape"] == ["n1 + n2 + n3 + 27", "4", "2", "3"]
    assert result["max_bytes"] == 19104 and result["storage"] == 0


def test_a_picture_shows_every_step_and_tensor() -> None:
    plan = tcsym.define(LAYERS).plan()
    picture = ElementTree.fromstring(plan.plot())
    words = {x.text for x in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert words >= {"X", "U", "V", "W", "Y", "H", "G", "F", *(s.name for s in plan.steps)}


def test_memory_is_a_formula() -> None:
    memory = tcsym.define(LAYERS).memory()
    at = {"B": 10, "K": 5, "N": 7, "M": 3}
    assert memory.at(threads=2, **at) == evaluate(memory.peak, {**at, "launch.threads": 2})
    assert evaluate(memory.inputs, at) == 4 * (10 * 5 + 5 * 7 + 7 * 7 + 7 * 3)
    largest = memory.largest("B", "1 MB", threads=1, K=64, N=64, M=64)
    at = {"K": 64, "N": 64, "M": 64}
    assert memory.at(1, B=largest, **at) <= 1_000_000 < memory.at(1, B=largest + 1, **at)


def test_memory_that_does_not_fit_or_limit_is_an_error() -> None:
    memory = tcsym.define(LAYERS).memory()
    with pytest.raises(SizeError, match="too few bytes"):
        memory.largest("B", "1 kB", K=64, N=64, M=64)
    with pytest.raises(OptionError, match="no number of bytes"):
        memory.largest("B", "much", K=64, N=64, M=64)
    with pytest.raises(SizeError, match="`M` is not given"):
        memory.at(B=1, K=1, N=1)
