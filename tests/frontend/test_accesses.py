# SPDX-License-Identifier: Apache-2.0
"""What `accesses` says is read: against arrays that note it, and against changes of elements."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse
from tcsym.errors import SizeError, TCError
from tcsym.frontend import accesses
from tcsym.frontend.accesses import Run, deciding, watched
from tcsym.frontend.interpret import interpret
from tcsym.frontend.program import Program, statements
from tcsym.index.values import evaluate
from tests.frontend.touched import Edge, Touched
from tests.fuzz.generate import random_program

MOST = 3000  # points of the longest statement: the oracle runs them one by one
Inputs = Mapping[str, Any]

TEXTS: dict[str, tuple[str, dict[str, int], dict[str, list[Any]]]] = {
    "gather": (
        "def f(float(E,D) T, int32(B,L) id) -> (Y) { Y(b,d) +=! T(id(b,l),d) }",
        {"E": 6, "D": 2, "B": 3, "L": 2},
        {"id": [[0, 5], [3, 3], [1, 0]]},
    ),
    "ragged": (
        "def f(float(M) x, int32(P) off) -> (Y) { Y(b) +=! x(j) where j in off(b):off(b+1) }",
        {"M": 7, "P": 4},
        {"off": [0, 3, 3, 7]},
    ),
    "scatter": (
        "def f(float(N) w, int32(N) bin) -> (float(K) H) { H(bin(i)) +=! w(i) }",
        {"N": 6, "K": 4},
        {"bin": [3, 0, 3, 1, 3, 0]},
    ),
    "scatter if": (
        "def f(float(N) w, int32(N) bin, int32(N) on) -> (float(K) H) {\n"
        "  H(bin(i)) +=! on(i) > 0 ? w(i) : 0.0 }",
        {"N": 5, "K": 4},
        {"bin": [3, 9, 3, 1, -1], "on": [1, 0, 1, 1, 0]},
    ),
    "padded": (
        "def f(float(N) x, float(K) w) -> (Y) {\n"
        "  Y(i) +=! (i+k-1 >= 0 && i+k-1 < N ? x(i+k-1) : 0.0) * w(k) where i in 0:N }",
        {"N": 5, "K": 3},
        {},
    ),
    "or": (
        "def f(int32(N) c, int32(N) d) -> (Y) { Y(i) = c(i) > 0 || d(i) > 0 ? c(i) : 0 }",
        {"N": 4},
        {"c": [1, 0, 0, 2], "d": [0, 1, 0, 0]},
    ),
    "state": (
        "def f(float(T,N) x, float(N) h0) -> (S) { h(n) = h0(n)\n"
        "  for t in T { h(n) = h(n) + x(t,n)\n S(t,n) = h(n) } }",
        {"T": 3, "N": 2},
        {},
    ),
    "inout": (
        "def f(inout float(N) w, float(N) g) -> () { w(i) += 0.0 - g(i)\n w(i) = w(i) * w(0) }",
        {"N": 3},
        {},
    ),
}


def drawn(program: Program, sizes: Mapping[str, int], given: Mapping[str, Any]) -> dict[str, Any]:
    """Floats that make conditions on signs true, and integers that are subscripts everywhere."""
    rng, found = np.random.default_rng(0), {}
    for t in program.inputs:
        shape = tuple(evaluate(e, sizes) for e in t.shape)
        x = rng.uniform(0.5, 2, shape) if t.dtype.is_float else rng.integers(0, 2, shape)
        x = np.asarray(given.get(t.name, x))
        found[t.name] = x.astype(t.dtype.numpy).reshape(shape)
    return found


def by_hand() -> Iterator[Any]:
    for name, (text, sizes, given) in TEXTS.items():
        program = analyse(text)["f"]
        yield pytest.param(program, drawn(program, sizes, given), sizes, id=name)


def edges(run: Run) -> Counter[Edge]:
    found: Counter[Edge] = Counter()
    for k, event in enumerate(run.events):
        for u in event.uses:
            for into, of in zip(u.into.tolist(), u.of.tolist()):
                found[(k, event.statement.name, into, u.tensor, of)] += 1
    return found


@pytest.mark.parametrize(("program", "inputs", "sizes"), [*by_hand()])
def test_it_sees_what_arrays_are_touched(program: Program, inputs: Inputs, sizes: Any) -> None:
    found = edges(watched(program, inputs, sizes))
    assert found
    assert found == Touched(program, inputs, sizes).edges


def of_library(name: str) -> tuple[Program, Inputs, dict[str, int]]:
    """A kernel at the first small sizes that it takes."""
    program = analyse(tcsym.library.source(name))[name]
    for seed in range(200):
        rng = random.Random(seed)
        sizes = {n: rng.randint(2, 4) for n in program.sizes}
        inputs = drawn(program, sizes, {})
        try:
            results = interpret(program, inputs, sizes)
        except TCError:
            continue
        if all(x.size for x in results.values()):
            return program, inputs, sizes
    raise AssertionError(f"no sizes for {name}")


@pytest.mark.parametrize("name", tcsym.library.names())
def test_it_sees_what_kernels_of_the_library_touch(name: str) -> None:
    program, inputs, sizes = of_library(name)
    found = edges(watched(program, inputs, sizes))
    assert found and found == Touched(program, inputs, sizes).edges


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_it_sees_what_generated_programs_touch(level: int) -> None:
    looked_at = 0
    for seed in range(60):
        case = random_program(random.Random(f"accesses {seed}"), level)
        try:
            program = analyse(case.source)[case.name]
        except TCError:
            continue
        for sizes in case.sizes[:2]:
            if case.work(sizes) > MOST or max(sizes.values(), default=0) > 12:
                continue
            inputs = {n: np.asarray(x) for n, x in case.arrays(sizes).items()}
            try:
                want = Touched(program, inputs, sizes).edges
            except TCError:
                continue
            assert edges(watched(program, inputs, sizes)) == want, (seed, sizes)
            looked_at += bool(want)
    assert looked_at > 20


# ---- what elements are made of: those whose change changes them


def changed(x: Any, at: int) -> Any:
    other = np.array(x)
    flat = other.reshape(-1)
    if x.dtype.kind == "f":
        flat[at] = np.nan
    else:
        flat[at] = flat[at] == 0
    return other


def made_of(run: Run, target: str, element: int) -> dict[str, Any]:
    mask = np.zeros(run.shapes[target], np.bool_)
    mask.reshape(-1)[element] = True
    return dict(run.made_of(target, mask).reads)


def bits(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def effects(
    program: Program, inputs: Inputs, sizes: Mapping[str, int], rng: random.Random, both: bool
) -> int:
    """Changes elements of inputs and asserts that what is not made of them stays; both: and that
    what is made of them changes. Returns how many changes were seen."""
    run = watched(program, inputs, sizes)
    before = interpret(program, inputs, sizes)
    decide = deciding(program, statements(program.body))  # with them, what is read changes
    written: dict[str, set[int]] = {}
    for event in run.events:
        written.setdefault(event.statement.target, set()).update(event.written.tolist())
    found = [(n, sorted(written.get(n, ()))) for n in before]
    elements = [(n, k) for n, ks in found for k in rng.sample(ks, min(3, len(ks)))]
    made = {e: made_of(run, *e) for e in elements}
    seen = 0
    for name, x in inputs.items():
        for at in rng.sample(range(x.size), 0 if name in decide else min(5, x.size)):
            after = interpret(program, {**inputs, name: changed(x, at)}, sizes)
            for (target, k), reads in made.items():
                is_read = name in reads and reads[name].reshape(-1)[at] > 0
                old, new = before[target].reshape(-1)[k], after[target].reshape(-1)[k]
                if bits(old) != bits(new):
                    assert is_read, (name, at, target, k)
                    seen += 1
                elif both and x.dtype.kind == "f":
                    assert not is_read, (name, at, target, k)
    return seen


@pytest.mark.parametrize("name", tcsym.library.names())
def test_elements_of_the_library_are_made_of_what_changes_them(name: str) -> None:
    program, inputs, sizes = of_library(name)
    assert effects(program, inputs, sizes, random.Random(name), True) > 0


@pytest.mark.parametrize("level", [1, 2, 3])
def test_elements_of_generated_programs_change_with_what_they_are_made_of(level: int) -> None:
    seen = 0
    for seed in range(40):
        case = random_program(random.Random(f"made of {seed}"), level)
        try:
            program = analyse(case.source)[case.name]
        except TCError:
            continue
        for sizes in case.sizes[:2]:
            inputs = {n: np.asarray(x) for n, x in case.arrays(sizes).items()}
            if case.work(sizes) > MOST or max(sizes.values(), default=0) > 12:
                continue
            try:
                seen += effects(program, inputs, sizes, random.Random(seed), False)
            except TCError:
                continue
    assert seen > 50


# ---- places outside, and what decides


def test_arms_that_are_not_taken_read_outside() -> None:
    text, sizes, _ = TEXTS["padded"]
    program = analyse(text)["f"]
    mask = np.array([True, False, False, False, True])
    found = watched(program, drawn(program, sizes, {}), sizes, ("Y", mask)).read_for("Y", mask)
    assert found.outside == {"x": {(-1,): 1, (5,): 1}}
    assert found.reads["x"].tolist() == [1, 1, 0, 1, 1]


def test_only_some_statements_count() -> None:
    program = analyse("def f(float(N) x, float(N) b) -> (Y) { Y(i) = x(i)\n Y(i) = Y(i) * b(0) }")[
        "f"
    ]
    sizes, mask = {"N": 3}, np.array([False, True, False])
    run = watched(program, drawn(program, sizes, {}), sizes, ("Y", mask))
    assert {n: x.tolist() for n, x in run.read_for("Y", mask).reads.items()} == {
        "x": [0, 1, 0],
        "Y": [0, 1, 0],
        "b": [1, 0, 0],
    }
    assert list(run.read_for("Y", mask, {"S0"}).reads) == ["x"]
    assert [s.name for s in run.read_for("Y", mask, {"S1"}).statements] == ["S1"]


def test_what_is_overwritten_does_not_count() -> None:
    program = analyse(
        "def f(float(N) x, float(N) y) -> (Y) { t(i) = x(i)\n t(i) = y(i)\n Y(i) = t(i) }"
    )["f"]
    sizes, mask = {"N": 2}, np.array([True, False])
    run = watched(program, drawn(program, sizes, {}), sizes)
    assert {n: x.tolist() for n, x in run.made_of("Y", mask).reads.items()} == {"y": [1, 0]}


def test_of_what_is_updated_the_values_before_count() -> None:
    text, sizes, _ = TEXTS["inout"]
    program = analyse(text)["f"]
    mask = np.array([False, False, True])
    made = watched(program, drawn(program, sizes, {}), sizes).made_of("w", mask)
    assert {n: (x > 0).tolist() for n, x in made.reads.items()} == {
        "w": [True, False, True],
        "g": [True, False, True],
    }


def test_data_decide_in_subscripts_ranges_and_conditions_only() -> None:
    program = analyse("""
        def f(float(N) x, int32(N) id, int32(P) off, float(N) m, int32(N) base) -> (Y, Z) {
          at(i) = id(i) + base(i)
          Y(i) = x(at(i))
          Z(b) +=! m(j) > 0.0 ? x(j) : 0.0 where b in 0:P-1, j in off(b):off(b+1)
        }
        """)["f"]
    of = {t: [s for s in statements(program.body) if s.target == t] for t in ("Y", "Z")}
    assert deciding(program, of["Y"]) == {"id", "base"}
    assert deciding(program, of["Z"]) == {"off", "m"}


def test_long_runs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accesses, "MOST_POINTS", 8)
    program = analyse("def f(float(N) x) -> (y) { y +=! x(i) }")["f"]
    with pytest.raises(SizeError, match=r"`f` has more than 8 points.*\nhint: give smaller"):
        watched(program, {"x": np.ones(9, np.float32)}, {"N": 9})
