# SPDX-License-Identifier: Apache-2.0
"""What a first result takes grows with a text as n log n: calls of Python functions are counted.

A count is the same on every machine. Of three texts, each twice as long as the one before, the
third may take little more than twice as much beyond the second as that beyond the first: a part
that is quadratic takes four times as much.
"""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import pytest

import tcsym
from tcsym.compiler import analyse, begin_program
from tcsym.options import Options
from tcsym.polyhedral.join import MOST_UNITS
from tcsym.target.names import resolve_target

MOST_RATIO = 2.5  # of n log n, near 20
MOST_OF_DIMENSIONS = 3.0  # each of n loops is compared with n subscripts; there are 32 at most
TARGET = resolve_target("cpu:avx2")


def calls(source: str) -> int:
    """Of Python functions on the way from a text to machine code, of what its last def needs."""
    counter = cProfile.Profile(builtins=False)
    with counter:
        *_, program = analyse(source).values()
        layouts = ("dense",) * (len(program.inputs) + len(program.outputs))
        begun = begin_program(program, TARGET, Options(), {}, layouts)
        begun.make(begun.missing())
    return sum(entry.callcount for entry in counter.getstats())


def definition(inputs: str, outputs: str, *lines: str) -> str:
    return "\n".join([f"def f({inputs}) -> ({outputs}) {{", *lines, "}"])


def chained(n: int, line: Callable[[str, str, int], str], last: str = "Y") -> list[str]:
    """Lines that each read what the one before wrote."""
    names = ["X", *(f"T{k}" for k in range(n - 1)), last]
    return [line(a, b, k) for k, (a, b) in enumerate(pairwise(names))]


def many(n: int, text: str, between: str = ", ") -> str:
    return between.join(text.replace("#", str(k)) for k in range(n))


def row_sums(n: int) -> str:
    lines = chained(n, lambda a, b, k: f"s{k}(i) +=! {a}(i,j)\n{b}(i,j) = {a}(i,j) - 0.5*s{k}(i)")
    return definition("float(N,M) X", "Y", *lines)


def maps(n: int) -> str:
    return definition("float(N) X", "Y", *chained(n, lambda a, b, _: f"{b}(i) = 0.5*{a}(i) + X(i)"))


def products(n: int) -> str:
    lines = chained(
        n, lambda a, b, k: f"p{k}(i,j) +=! {a}(i,k)*W(k,j)\n{b}(i,j) = fmax(p{k}(i,j), 0)"
    )
    return definition("float(N,M) X, float(M,M) W", "Y", *lines)


def results(n: int) -> str:
    return definition("float(N,M) X", many(n, "Y#"), many(n, "Y#(i) +=! #.5*X(i,j)", "\n"))


def triangles(n: int) -> str:
    line = "Y#(i) +=! #.5*X(j) where i in 0:N, j in 0:i+1"
    return definition("float(N) X", many(n, "Y#"), many(n, line, "\n"))


def in_place(n: int) -> str:
    return definition("float(N) X", "Y", "Y(i) = X(i)", many(n, "Y(i) = 0.5*Y(i) + X(i)", "\n"))


def steps(n: int) -> str:
    lines = chained(
        n, lambda a, b, k: f"{b.lower()}(t,i) = 0.5*{a}(t,i) + h(t,i)".replace("T", "t")
    )
    body = [x.replace(" = 0.5*X(t,i)", " = X(t,i)") for x in lines]
    body[-1] = body[-1].replace("y(t,i)", "h(t+1,i)")
    start = "h(t,i) = 0.0 where t in 0:S+1, i in 0:N"
    return definition("float(S,N) X", "h", start, "for t in S {", *body, "}")


def loops(n: int) -> str:
    line = (
        "h#(t,i) = 0.0 where t in 0:S+1, i in 0:N\nfor t in S { h#(t+1,i) = 0.5*h#(t,i) + X(t,i) }"
    )
    return definition("float(S,N) X", many(n, "h#"), many(n, line, "\n"))


def inlined(n: int) -> str:
    g = "def g(float(N,M) A) -> (B) { s(i) +=! A(i,j)  B(i,j) = A(i,j) - s(i) }"
    lines = chained(n, lambda a, b, _: f"{b} = g({a})")
    return f"{g}\n{definition('float(N,M) X', 'Y', *lines)}"


def terms(n: int) -> str:
    return definition("float(N) X", "Y", f"Y(i) = {many(n, '#.5*X(i)', ' + ')}")


def window(n: int) -> str:
    return definition("float(N) X", "Y", f"Y(i) = {many(n, 'X(i+#)', ' + ')}")


def tensors(n: int) -> str:
    return definition(many(n, "float(N) X#"), "Y", f"Y(i) = {many(n, 'X#(i)', ' + ')}")


def sizes(n: int) -> str:
    return definition(many(n, "float(N#) X#"), many(n, "Y#"), many(n, "Y#(i) = 2.0*X#(i)", "\n"))


def sums(n: int) -> str:
    """Of tensors with sizes of their own: nests, each with versions to choose among."""
    inputs = many(n, "float(N#,M#) X#")
    return definition(inputs, many(n, "Y#"), many(n, "Y#(i) +=! X#(i,j)", "\n"))


def dimensions(n: int) -> str:
    at = many(n, "i#", ",")
    return definition(f"float({many(n, 'N#', ',')}) X", "Y", f"Y({at}) = 2.0*X({at})")


def parentheses(n: int) -> str:
    return definition("float(N) X", "Y", f"Y(i) = {'(' * n}X(i){' + 1.0)' * n}")


def choices(n: int) -> str:
    return definition(
        "float(N) X", "Y", f"Y(i) = {many(n, 'X(i) > #.0 ? #.5 : (', '')}X(i){')' * n}"
    )


def guards(n: int) -> str:
    return definition("float(N) X", "Y", f"Y(i) = {many(n, 'i > # ? #.5 : (', '')}X(i){')' * n}")


GROWING: dict[Callable[[int], str], tuple[int, ...]] = {  # of 64 statements on loops are cut
    row_sums: (24,),
    maps: (15, 100),
    products: (3,),
    results: (15, 80),
    triangles: (15,),
    in_place: (40,),
    steps: (15, 100),
    loops: (8,),
    inlined: (12,),
    terms: (60,),
    window: (60,),
    tensors: (60,),
    sizes: (20,),
    sums: (6,),
    dimensions: (8,),
    parentheses: (40,),
    choices: (20,),
    guards: (20,),
}
LONG = ((results, 80), (steps, 100))


@contextmanager
def deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("text", "n"),
    [
        pytest.param(text, n, marks=[pytest.mark.slow] if (text, n) in LONG else [])
        for text, starts in GROWING.items()
        for n in starts
    ],
    ids=lambda x: x if isinstance(x, int) else x.__name__,
)
def test_first_results_grow_as_n_log_n(text: Callable[[int], str], n: int) -> None:
    calls(text(2))  # what is found once in a process
    with deep():
        first, second, third = (calls(text(k)) for k in (n, 2 * n, 4 * n))
    most = MOST_OF_DIMENSIONS if text is dimensions else MOST_RATIO
    assert third - second <= most * (second - first), (first, second, third)


def test_a_thousand_statements_have_code_within_the_default_recursion_limit() -> None:
    assert sys.getrecursionlimit() == 1000
    text = maps(1000)
    (program,) = analyse(text).values()
    begun = begin_program(program, TARGET, Options(), {}, ("dense", "dense"))
    begun.make(begun.missing())
    assert not begun.missing()
    assert not [x for x in begun.compiled().notes if x.startswith("scheduler")]


@pytest.mark.parametrize(("text", "shape"), [(maps, 7), (in_place, 7), (results, (7, 3))])
def test_statements_that_one_loop_has_no_room_for_are_right(
    text: Callable[[int], str], shape: int | tuple[int, ...]
) -> None:
    kernel = tcsym.define(text(MOST_UNITS + 6), strategy="symbolic").f
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.testing.assert_allclose(kernel(x), kernel.reference(x), rtol=1e-5)
    assert f"{MOST_UNITS} statements at most" in kernel.explain("mapped")
