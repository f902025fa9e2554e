# SPDX-License-Identifier: Apache-2.0
"""Rows under quotients by sizes: in pieces, at the right places, and left alone where not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym
from tcsym.compiler import analyse
from tcsym.index.expr import FloorDiv, Mod, ge, var
from tcsym.index.values import map_atoms
from tcsym.ir.loops import Branch, Kernel, Loop
from tcsym.ir.traverse import map_node, walk
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.analysis.names import Names
from tcsym.schedule.split.quotients import split_quotients

ROLL = "def f(float(N,M) X) -> (float(N,M) Y) { Y(n,m) = X(n,(m+3)%M) }"
TORUS = """def f(float(H,W) X) -> (float(H,W) Y) {
  Y(h,w) = X((h+1)%H,w) + X((h+H-1)%H,w) + X(h,(w+1)%W) * 2 + X(h,(w+W-1)%W) * 3
}"""
FLAT = "def f(float(N,H,W) X) -> (float(N,H*W) Y) { Y(n,m) = X(n,m/W,m%W) * float(m/W) }"
REPEAT = (
    "def f(float(M) X) -> (float(5*M) Y, float(5*M) Z) { Y(m) = X(m%M) \n Z(m) = Y(m) + X(m/5) }"
)
PLANES = "def f(float(N,H,W) X) -> (float(N*H*W) Y) { Y(m) = X(m/(H*W),m/W%H,m%W) }"


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def split(source: str) -> Kernel:
    kernel = naive(source)
    return split_quotients(kernel, Names.of(kernel))


def divisions_in_rows(k: Kernel) -> int:
    """Quotients and remainders of the variables of innermost loops."""
    found: list[str] = []
    for loop, _ in walk(k.body):
        if isinstance(loop, Loop) and not any(isinstance(x, Loop) for x, _ in walk(loop.body)):
            variable = loop.variable

            def see(atom: Any, variable: str = variable) -> None:
                if isinstance(atom, FloorDiv | Mod) and variable in atom.dividend.variables():
                    found.append(variable)

            map_node(loop.body, on_index=lambda e: map_atoms(e, see))
    return len(found)


@pytest.mark.parametrize(
    ("source", "loops"), [(ROLL, 3), (TORUS, 4), (FLAT, 3)], ids=["roll", "torus", "flat"]
)
def test_no_row_divides(source: str, loops: int) -> None:
    assert divisions_in_rows(naive(source)) > 0
    k = split(source)
    assert isinstance(k.body, Branch)  # short rows stay as they were
    assert divisions_in_rows(replace(k, body=k.body.then)) == 0
    assert sum(isinstance(x, Loop) for x, _ in walk(k.body.then)) == loops
    assert k.body.orelse is not None
    assert divisions_in_rows(replace(k, body=k.body.orelse)) == divisions_in_rows(naive(source))


def test_rows_that_a_divisor_of_zero_does_not_empty_divide_where_it_is_zero() -> None:
    """A remainder by 0 is 0."""
    source = "def f(float(M) X, float(K) Z, float(P) W) -> (Y) { Y(k) = Z(k) * W(k%M) }"
    k = split(source)
    assert isinstance(k.body, Branch) and k.body.condition == ge(var("M"), 3)
    kernel = tcsym.define(source, strategy="symbolic").f
    for m in (0, 1, 2, 7, 40):
        x, z = np.ones(m, "f4"), np.arange(100, dtype="f4")
        w = np.arange(50, dtype="f4")
        np.testing.assert_array_equal(kernel(x, z, w), kernel.reference(x, z, w))


@pytest.mark.parametrize(
    "source",
    [
        "def f(float(N,M) X) -> (float(N,3*M) Y) { Y(n,m) = X(n,m/3) }",  # pieces of three
        "def f(float(N,M) X) -> (float(N,M) Y) { Y(n,m) = X(n,(2*m)%M) }",
        "def f(float(N,M) X, float(K) W) -> (float(N,M) Y) { Y(n,m) +=! X(n,(m+k)%M) * W(k) }",
    ],
)
def test_what_stays(source: str) -> None:
    kernel = naive(source)
    assert split_quotients(kernel, Names.of(kernel)) is kernel


def test_a_row_alone_keeps_its_threads() -> None:
    """The loop over quotients has two values; the row inside is work for threads."""
    k = split("def f(float(M) X) -> (float(M) Y) { Y(m) = X((m+3)%M) }")
    assert isinstance(k.body, Loop) and k.body.order == "sequential"
    assert isinstance(k.body.body, Loop) and k.body.body.order == "parallel"


PROGRAMS = {
    "roll": (ROLL, "NM"),
    "torus": (TORUS, "HW"),
    "flat": (FLAT, "NHW"),
    "repeat": (REPEAT, "M"),
    "planes": (PLANES, "NHW"),
}
SIZES = ((2, 70, 67), (3, 40, 5), (0, 3, 2), (2, 3, 4), (1, 1, 1), (3, 2, 1), (2, 0, 3), (2, 3, 0))


@pytest.mark.parametrize("bind", ["before", "after", "never"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_pieces_cover_every_element_once(name: str, bind: str) -> None:
    source, names = PROGRAMS[name]
    rng = np.random.default_rng(0)
    kernel = tcsym.define(source, strategy="symbolic").f
    for extents in SIZES if bind == "never" else SIZES[:3]:
        x = rng.standard_normal(extents[: len(names)]).astype("f4")
        if bind != "never":
            options = tcsym.Options(bind=bind)  # type: ignore[arg-type]
            kernel = tcsym.define(source, sizes=dict(zip(names, extents)), options=options).f
        for a, b in zip(results(kernel(x)), results(kernel.reference(x))):
            np.testing.assert_array_equal(a, b)


def results(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)
