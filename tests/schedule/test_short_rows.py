# SPDX-License-Identifier: Apache-2.0
"""Which loops run in lanes where rows are short, and that results stay what they are."""

from __future__ import annotations

import itertools

import pytest

from tcsym.compiler import analyse
from tcsym.index.values import holds
from tcsym.ir.loops import THREADS, Branch, Kernel, Loop, Node, TransposeBlock
from tcsym.ir.traverse import walk
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.schedule.analysis.access import accesses
from tcsym.schedule.map_cpu import map_cpu
from tcsym.schedule.proved import schedule_program
from tests.schedule.compare import assert_same
from tests.schedule.targets import AVX2, AVX512, TARGETS

OLD = Options(mapping="old")

BIAS = "def f(float(N,C) X, float(C) b) -> (O) { O(n,c) = X(n,c) + b(c) }"
ROW_SUM = "def f(float(N,C) X) -> (O) { O(n) +=! X(n,c) }"
TRANSPOSE = "def f(float(N,C) X) -> (O) { O(c,n) = X(n,c) }"
TRIANGLE = "def f(float(N,N) X) -> (O) { O(i,j) = j <= i ? X(i,j) : 0.0 }"
CENTRED = """def f(float(N,C) X) -> (O) {
  m(n) +=! X(n,c)
  O(n,c) = X(n,c) - m(n)
}"""
CHANNELS = """def f(float(N,C,W) X) -> (O) {
  m(n,w) max=! X(n,c,w)
  O(n,c,w) = X(n,c,w) - m(n,w)
}"""
ATTENTION = """def f(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
  P(l,s) +=! Q(l,d) * K(s,d)
  m(l) max=! P(l,s)
  O(l,e) +=! (P(l,s) - m(l)) * V(s,e)
}"""
IN_STEPS = """def f(float(N,C) X) -> (O) {
  m(n) max=! X(n,c)
  O(n,c) = X(n,c) - m(n)
  s(n) +=! O(n,c)
  O(n,c) = O(n,c) * s(n)
}"""
CHANNELWISE = """def f(float(N,C,H,W) X, float(C,KH,KW) F) -> (O) {
  O(n,c,y,x) +=! X(n,c,y+i,x+j) * F(c,i,j)
}"""
SOURCES = {
    "bias": BIAS,
    "row sum": ROW_SUM,
    "transpose": TRANSPOSE,
    "triangle": TRIANGLE,
    "centred": CENTRED,
    "in steps": IN_STEPS,
    "channelwise": CHANNELWISE,
    "channels": CHANNELS,
    "attention": ATTENTION,
}


def naive(source: str) -> Kernel:
    return schedule_program(analyse(source)["f"], Options(), {}).kernel


def branches(kernel: Kernel) -> list[Branch]:
    return [x for x, _ in walk(kernel.body) if isinstance(x, Branch)]


def branches_apart(kernel: Kernel) -> list[Branch]:
    """Those one reaches by way of the others' second arms."""
    found, node = list[Branch](), kernel.body
    while (x := next((y for y, _ in walk(node) if isinstance(y, Branch)), None)) and x.orelse:
        found.append(x)
        node = x.orelse
    return found


def lanes_of(node: Branch | Loop) -> set[str]:
    vectors = [x for x, _ in walk(node) if isinstance(x, Loop) and x.kind == "vector"]
    return {x.variable.partition(".")[0] for x in vectors}


@pytest.mark.parametrize("source", [ROW_SUM, CENTRED])
def test_short_rows_have_another_loop_in_their_lanes(source: str) -> None:
    branch = branches(map_cpu(naive(source), AVX2, OLD).kernel)[0]
    assert lanes_of(branch.then) == {"n"}  # type: ignore[arg-type]
    assert branch.orelse and "n" not in lanes_of(branch.orelse)  # type: ignore[arg-type]
    served = {
        (n, c)
        for n, c in itertools.product((0, 1, 7, 8, 100), (0, 1, 2, 3, 25, 50))
        if holds(branch.condition, {"N": n, "C": c})
    }
    assert {(8, 1), (100, 3)} <= served
    assert all(n >= 8 and c < 25 for n, c in served)


def test_a_transposition_has_a_version_for_each_short_side() -> None:
    _, outer, _, inner, *_ = branches(map_cpu(naive(TRANSPOSE), AVX2, OLD).kernel)
    first, second = ({"N": 3, "C": 99}, {"N": 99, "C": 3})
    for sizes, branch, lanes in ((first, outer, {"c"}), (second, inner, {"n"})):
        assert holds(branch.condition, sizes)
        assert lanes_of(branch.then) == lanes  # type: ignore[arg-type]
    assert not holds(outer.condition, second)
    square = {"N": 64, "C": 64}
    assert not any(holds(b.condition, square) for b in (outer, inner))


def test_rows_whose_length_moves_have_no_such_version() -> None:
    kernel = map_cpu(naive(TRIANGLE), AVX2, OLD).kernel
    assert not any("i" in lanes_of(x) for x in branches(kernel))


def test_a_norm_across_rows_runs_along_them() -> None:
    """The loop over columns is inside a band of its own, around the reduction."""
    notes = map_cpu(naive(CHANNELS), AVX2, OLD).notes
    assert "w: strips along w" in notes


def test_a_row_or_two_are_no_register_tile() -> None:
    """The products of few rows run along the sum, and along the columns of the values."""
    mapped = map_cpu(naive(ATTENTION), AVX2, OLD)
    sizes = {"S": 1000, "D": 64, "E": 64}
    few_terms, blocks, *_ = branches_apart(mapped.kernel)
    assert not holds(few_terms.condition, {"L": 100, **sizes})
    assert blocks.orelse and not holds(blocks.condition, {"L": 100, **sizes})
    few = next(x for x, _ in walk(blocks.orelse) if isinstance(x, Branch))
    panels = {b.name for b in mapped.kernel.buffers if "panel" in b.name}
    assert not holds(few.condition, {"L": 4, **sizes}) and holds(few.condition, {"L": 5, **sizes})
    assert panels & {a.buffer for a in accesses(few.then)}
    assert few.orelse and not panels & {a.buffer for a in accesses(few.orelse)}
    assert "d" in lanes_of(few.orelse)  # type: ignore[arg-type]
    assert {"d", "s_1", "e"} <= lanes_of(blocks.orelse)  # type: ignore[arg-type]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SOURCES)
def test_results_at_every_border(name: str, target: str) -> None:
    kernel = naive(SOURCES[name])
    mapped = map_cpu(kernel, TARGETS[target], OLD).kernel
    verify(mapped)
    values = (
        (0, 1, 3, 7, 8, 9, 17) if len(kernel.sizes) < 3 else (1, 3, 8, 9)[len(kernel.sizes) - 3 :]
    )
    for row in itertools.product(values, repeat=len(kernel.sizes)):
        assert_same(kernel, mapped, dict(zip(kernel.sizes, row)))


COUNTED = """def f(float(N,C) X) -> (O) {
  O(n,c) = X(n,c) * 2
  O(n,c) = O(n,c) + X(n,c)
}"""
CALLED = "def f(float(N,C) X) -> (O) { O(n,c) = exp(X(n,c)) + c }"


def overlapping(kernel: Kernel) -> list[Loop]:
    """Vectors along rows without a mask, as far on as there is a whole one: a minimum."""
    found = [x for x, _ in walk(kernel.body) if isinstance(x, Loop) and x.kind == "vector"]
    rows = [x for x in found if x.mask is None and x.variable.startswith("c")]
    return [x for x in rows if any("min(" in str(a.subscripts[-1]) for a in accesses(x.body))]


def test_a_ragged_row_ends_with_a_vector_that_overlaps() -> None:
    """Only without masks, where nothing is read that is written, and nothing dear is computed."""
    assert overlapping(map_cpu(naive(BIAS), AVX2, OLD).kernel)
    assert not overlapping(map_cpu(naive(BIAS), AVX512, OLD).kernel)
    for other in (ROW_SUM, CALLED):
        assert not overlapping(map_cpu(naive(other), AVX2, OLD).kernel), other


def test_elements_that_are_read_again_are_made_once() -> None:
    kernel = map_cpu(naive(COUNTED), AVX2, OLD).kernel
    read = {a.buffer for a in accesses(kernel.body) if not a.written}
    assert "O" not in read or not overlapping(kernel)


def test_functions_of_a_rows_sum_do_not_count_for_each_element() -> None:
    """Rows of seven vectors wait for the sum, its logarithm, and both kinds of loops."""
    text = """def f(float(M,N) X) -> (O) {
      m(i) max=! X(i,j)
      s(i) +=! exp(X(i,j) - m(i))
      O(i,j) = X(i,j) - m(i) - log(s(i))
    }"""
    (outer, *_) = branches(map_cpu(naive(text), AVX2, OLD).kernel)
    assert holds(outer.condition, {"M": 8, "N": 56})
    assert not holds(outer.condition, {"M": 8, "N": 64})


SWAPPED = "def f(float(A,B,C) X, float(C) g, float(A) s) -> (O) { O(a,c,b) = X(a,b,c)*g(c)-s(a) }"


def interleaved(source: str, target: str = "avx2") -> list[Branch]:
    """Versions of which each lane has a copy."""
    kernel = map_cpu(naive(source), TARGETS[target], OLD).kernel
    copied = (x for x in branches(kernel) if moved_to(x.then))
    return [x for x in copied if not any(map(moved_to, inner_arms(x.then)))]


def inner_arms(node: Node) -> list[Node]:
    return [x.then for x, _ in walk(node) if isinstance(x, Branch)]


def moved_to(node: Node) -> set[str]:
    found = (x for x, _ in walk(node) if isinstance(x, TransposeBlock))
    return {x.target for x in found if "_lanes" in x.target or "_lanes" in x.source}


def test_records_of_short_rows_are_interleaved() -> None:
    """What moves with the lanes by whole records is copied, and goes back; `g` and `s` stay."""
    (version,) = interleaved(SWAPPED)
    assert {x.partition(".")[0] for x in moved_to(version.then)} == {"X_lanes", "O"}
    assert lanes_of(version.then) == {"a"}  # type: ignore[arg-type]


def test_when_records_are_interleaved() -> None:
    """There are lanes of them, half as many groups as threads, and they stay in the cache."""
    (version,) = interleaved(SWAPPED)

    def holds_at(a: int, b: int, c: int, threads: int = 1) -> bool:
        return holds(version.condition, {"A": a, "B": b, "C": c, THREADS: threads})

    assert holds_at(8, 3, 3) and holds_at(100, 3, 500) and holds_at(8, 3, 500, threads=2)
    assert not holds_at(7, 3, 3)
    assert not holds_at(8, 1, 7)  # no block of elements
    assert not holds_at(8, 64, 64)  # long rows on both sides
    assert not holds_at(100, 3, 5000)
    assert holds_at(32, 3, 3, threads=8) and not holds_at(31, 3, 3, threads=8)


@pytest.mark.parametrize(
    "source",
    [
        BIAS,  # a row each
        "def f(half(A,B,C) X) -> (O) { O(a,c,b) = X(a,b,c) }",
        "def f(float(A,B,C) X) -> (O) { O(a,c,b) = X(a,b,c) where a in 0:A, c in 0:C, b in 1:B }",
        "def f(float(2,A,B,C) X) -> (O) { O(a,t,c,b) = X(t,a,b,c) }",
        "def f(float(A,B,C) X, int32(B) I) -> (O) { O(a,c,b) = X(a,I(b),c) }",
    ],
)
def test_what_is_not_interleaved(source: str) -> None:
    """Rows that blocks serve, other elements, results stored in part, and gathers."""
    assert not interleaved(source)


@pytest.mark.parametrize("target", TARGETS)
def test_interleaved_results_at_every_border(target: str) -> None:
    kernel = naive(SWAPPED)
    mapped = map_cpu(kernel, TARGETS[target], OLD).kernel
    verify(mapped)
    for a, b, c in itertools.product((0, 1, 8, 9, 17), (1, 2, 3, 9), (1, 3, 5, 8)):
        assert_same(kernel, mapped, {"A": a, "B": b, "C": c})


@pytest.mark.parametrize("source", [CENTRED, IN_STEPS])
def test_sums_of_short_rows_run_in_copies_with_mask_registers(source: str) -> None:
    """Each argument is moved once, whatever the number of statements; nothing is gathered."""
    (version,) = interleaved(source, "avx512")
    assert {x.partition(".")[0] for x in moved_to(version.then)} == {"X_lanes", "O"}
    used = {a.buffer for a in accesses(version.then)}
    moves = [x for x, _ in walk(version.then) if isinstance(x, TransposeBlock)]
    assert len(moves) == 2 and used & {"X", "O"} == {"X", "O"}
    assert not any(a.buffer in ("X", "O") for x in vectors(version.then) for a in accesses(x))
    at = [{"N": n, "C": c, THREADS: 1} for n, c in ((16, 1), (99, 20), (15, 1), (99, 64))]
    assert [holds(version.condition, x) for x in at] == [True, True, False, False]


def test_sums_of_a_few_elements_stay_in_place_with_mask_registers() -> None:
    tiny, copied, *_ = branches_apart(map_cpu(naive(ROW_SUM), AVX512, OLD).kernel)
    assert not moved_to(tiny.then) and moved_to(copied.then)
    at = [{"N": 16, "C": c, THREADS: 1} for c in (3, 6)]
    assert [holds(tiny.condition, x) for x in at] == [True, False]
    assert all(holds(copied.condition, x) for x in at)


def test_rows_without_sums_are_stored_in_place_with_mask_registers() -> None:
    assert not interleaved(BIAS, "avx512")


def test_inner_loops_are_copied_first_with_mask_registers() -> None:
    """Channels, of which there are many, and not images."""
    mapped = map_cpu(naive(CHANNELWISE), AVX512, OLD)
    assert any(x.endswith("interleaved along c") for x in mapped.notes)
    *_, version = interleaved(CHANNELWISE, "avx512")  # behind that of windows in tiles
    sizes = {"N": 1, "C": 16, "H": 9, "KH": 3, THREADS: 1}
    widths = [(14, 3), (15, 3), (14, 7), (15, 7)]  # of images, which windows read, and of windows
    assert [holds(version.condition, sizes | {"W": w, "KW": k}) for w, k in widths] == [1, 0, 1, 0]


def vectors(node: Node) -> list[Loop]:
    return [x for x, _ in walk(node) if isinstance(x, Loop) and x.kind == "vector"]
