# SPDX-License-Identifier: Apache-2.0
"""HTML of kernels, modules, statistics, options, memory and reports of tunes: their values."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import tcsym
from tcsym import Dim, Options
from tcsym.display.regions import COLUMNS, ROWS, Axis, Dot, colour_of, region_map
from tcsym.runtime.stats import Counters, Decision, Stats, VariantStats
from tcsym.tuning.race import Attempt
from tcsym.tuning.rank import Ranked
from tcsym.tuning.report import TuningReport
from tcsym.tuning.report_html import fixed_sizes, regions_of, shown_sizes
from tcsym.tuning.timing import Ratio
from tcsym.tuning.tree import Box, Leaf, Predicate, Split, leaf_of
from tests.display.parsed import Page

MOST_BYTES = 20_000
MM = """
def mm(float(M,K) A, float(K,N) B, size S) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n) * (m < S ? 1.0 : 2.0)  # <b>&amp;
}
"""
FIRST, SECOND = Options(chains=4, parallelize=False), Options(plan="GroupedRows")
TREE = Split(
    Box(((1, 4096), (784, 784), (1, 1024))),
    Split(Predicate((0, 2), 20000), Leaf(FIRST), Leaf(SECOND)),
    Leaf(Options()),
)
POINTS = {
    (4, 784, 512): Ratio(-0.3, 0.02, 3.1e-6),
    (64, 784, 512): Ratio(-0.1, 0.01, 31e-6),
    (512, 700, 1024): Ratio(-0.02, 0.02, 310e-6),
}


def report(tree: Any = TREE, points: Any = POINTS, **fields: Any) -> TuningReport:
    given: dict[str, Any] = {
        "name": "m<m",
        "sizes": ("B", "K", "N"),
        "tree": tree,
        "confirmed": points,
        "weights": {v: 1 / len(points) for v in points},
        "trials": (
            Attempt(Options(), "measured", ratios=dict(points)),
            Attempt(FIRST, "failed", "<died>"),
        ),
        "seconds": 20.1,
        "stopped": "settled",
        "is_kept": True,
        "certify": lambda sizes: (),
        "draw": lambda n, seed: (),
    }
    return TuningReport(**{**given, **fields})


def page_of(value: Any) -> Page:
    html = value._repr_html_()
    assert len(html.encode()) < MOST_BYTES and "<script" not in html
    return Page.of(html)


def rows_of(page: Page, heading: str) -> list[list[str]]:
    """Of the table whose first heading that is, or whose first two are, without the headings."""
    return next(t[1:] for t in page.tables if " ".join(t[0]).strip().startswith(heading))


def test_a_kernel_shows_its_text_arguments_and_sizes() -> None:
    mm = tcsym.define(MM, sizes={"K": 4, "N": Dim(2, 64)}).mm
    page = page_of(mm)
    assert page.headers == ["mmkernel"]
    assert page.lines == MM.strip("\n").split("\n")
    signature = mm.signature
    assert rows_of(page, "name") == [
        *(
            ["input", n, str(t.dtype), ", ".join(map(str, t.shape))]
            for n, t in signature.inputs.items()
        ),
        ["size", "S", "", ""],
        ["output", "C", "float32", "M, N"],
    ]
    assert rows_of(page, "size") == [["M", "0.."], ["K", "= 4"], ["N", "2..64"], ["S", "0.."]]
    assert page.paragraphs == ["calls: 0, compilations: 0, from the cache: 0"]
    assert mm.stats.compilations == 0
    mm(np.ones((3, 4), "f4"), np.ones((4, 2), "f4"), 1)
    counts = f"compilations: {mm.stats.compilations}, from the cache: {mm.stats.cache_hits}"
    assert page_of(mm).paragraphs == [f"calls: 1, {counts}"]


def test_a_module_shows_its_defs() -> None:
    two = tcsym.define(MM + "def f(float(N) X) -> (Y) { Y(i) = X(i) }")
    page = page_of(two)
    assert rows_of(page, "def") == [["mm", repr(two.mm.signature)], ["f", repr(two.f.signature)]]
    assert page.lines[-1] == "def f(float(N) X) -> (Y) { Y(i) = X(i) }"
    one = tcsym.define(MM)
    assert one._repr_html_() == one.mm._repr_html_()


def test_long_texts_and_many_arguments_are_cut() -> None:
    inputs = ", ".join(f"float(N{k}) X{k}" for k in range(60))
    terms = "\n".join(f"  Y{k}(i) = X{k}(i) * {k}.5" for k in range(400))
    body = terms.replace("X", "X").splitlines()[:60]
    text = f"def f({inputs}) -> ({', '.join(f'Y{k}' for k in range(60))}) {{\n" + "\n".join(
        line + " + 0.0" * 30 for line in body
    )
    kernel = tcsym.define(text + "\n}").f
    page = page_of(kernel)
    left = re.fullmatch(r"(\d+) more lines in source", page.paragraphs[0])
    assert left and len(page.lines) + int(left[1]) == kernel.source.strip("\n").count("\n") + 1
    assert len(rows_of(page, "name")) == 24
    assert (
        "and 96 more in signature" in page.paragraphs and "and 36 more in sizes" in page.paragraphs
    )


def test_stats_are_those_of_the_object() -> None:
    made = [VariantStats(("dense", "rows"), False, (("map", 1.5), ("emit", 2.25)), ("<isl>",), ())]
    made.append(VariantStats(("any",), True, (), (), ()))
    part = Counters(3, 1, 2, made, failures=["no <memory>"], counter=lambda: {"a": 5, "b": 0})
    for k in range(25):
        part.decide(Decision((("N", k),), "a", "quicker", (("a", 1e-6 * k),)))
    stats = Stats(lambda: [part])
    page = page_of(stats)
    assert page.headers == ["Statscompilations: 3, cache hits: 1, evictions: 2"]
    assert rows_of(page, "compiled") == [["dense, rows", "4"], ["any", "cache"]]
    assert rows_of(page, "calls") == [["5", "a"]]
    assert rows_of(page, "stage") == [["map", "1.5"], ["emit", "2.2"]]
    decided = rows_of(page, "sizes")
    assert [row[0] for row in decided] == [f"N = {k}" for k in range(5, 25)]
    assert decided[0][1:] == ["a", "quicker", "a 5.00"]
    assert "and 5 before in decisions" in page.paragraphs
    assert rows_of(page, "failed") == [["no <memory>"]] and rows_of(page, "fall-back") == [
        ["<isl>"]
    ]
    assert page_of(Stats(list)).headers == ["Statscompilations: 0, cache hits: 0"]


def test_options_show_what_differs() -> None:
    options = Options(chains=4, bind={"K": "before"}, parallelize=False)
    changed, rest = page_of(options).tables
    assert changed[1:] == [
        ["bind", "(('K', 'before'),)", "'never'"],
        ["chains", "4", "0"],
        ["parallelize", "False", "True"],
    ]
    others = dict(map(tuple, rest[1:]))  # type: ignore[arg-type]
    fields = set(Options.__struct_fields__) - {"bind", "chains", "parallelize"}
    assert others == {name: repr(getattr(Options(), name)) for name in fields}
    assert page_of(Options()).headers == ["Optionsdefaults"]


def test_memory_shows_its_formulas() -> None:
    memory = tcsym.define(MM).mm.memory()
    page = page_of(memory)
    told = dict(line.removesuffix(" bytes").split(": ", 1) for line in str(memory).splitlines())
    shown = dict(map(tuple, rows_of(page, "of")))  # type: ignore[arg-type]
    assert shown.keys() == told.keys()
    for name, text in shown.items():
        assert told[name].startswith(text.removesuffix(" …"))
    is_cut = any(text.endswith(" …") for text in shown.values())
    assert ("print shows" in page.paragraphs[0]) == is_cut and "peak" in page.paragraphs[0]


# ---- reports of tunes


def test_a_report_has_the_figures() -> None:
    told = report(notes=("a <note>",))
    page = page_of(told)
    low, high = told.interval
    gain = f"{told.gain:.3f} times as fast as the default (95 %: {low:.3f} to {high:.3f})"
    assert page.headers == [f"m<m{gain} · 20.1 s, stopped: settled"]
    regions = regions_of(TREE)
    assert rows_of(page, "options") == [[str(k), str(o)] for o, k in regions.items()]
    for row, (values, ratio) in zip(rows_of(page, "B K N"), POINTS.items(), strict=True):
        assert row[:4] == [*map(str, values), f"{1e6 * ratio.seconds:.1f} us"]
        assert (
            row[4]
            == f"{math.exp(-ratio.log):.3f} ± {math.exp(-ratio.log) * 1.96 * ratio.noise:.3f}"
        )
        assert row[5] == str(regions[leaf_of(TREE, values).options])
    assert "a <note>" in page.paragraphs and "trials: 1 measured, 1 failed" in page.paragraphs
    assert rows_of(page, "options why") == [[str(FIRST), "<died>"]]


def test_the_map_names_what_it_holds_fixed() -> None:
    page = page_of(report())
    assert "Which options serve at K = 784; dots: measured, hollow at another K." in page.paragraphs
    dots = [attrs for tag, attrs in page.shapes if attrs.get("class") == "dot"]
    assert [dot["fill"] for dot in dots] == ["#111", "#111", "none"]
    assert [t for t in page.svg_texts if t in ("B", "N", "K")] == ["B", "N"]


def test_no_map_where_one_option_serves() -> None:
    page = page_of(report(Leaf(FIRST)))
    assert not page.svg_texts and f"At all sizes: {FIRST}" in page.paragraphs
    single = {(8,): Ratio(-0.3, 0.02, 3e-6)}
    tree = Split(Predicate((0,), 16), Leaf(FIRST), Leaf(SECOND))
    page = page_of(report(tree, single, sizes=("N",)))
    assert not page.svg_texts and len(rows_of(page, "options")) == 2


def test_sizes_of_the_map_are_those_that_regions_test() -> None:
    points = [(1, 1, 1), (2, 64, 4096)]
    assert shown_sizes(TREE, points, 3) == (0, 2)
    by_one = Split(Predicate((0,), 4), Leaf(FIRST), Leaf(SECOND))
    assert shown_sizes(by_one, points, 3) == (0, 2)
    assert shown_sizes(by_one, [(1, 9, 5), (1, 1, 5)], 3) == (0, 1)
    ratio = Split(Predicate((1,), 1, other=(0,)), Leaf(FIRST), Leaf(SECOND))
    assert shown_sizes(ratio, points, 3) == (0, 1)
    assert fixed_sizes(points, {(1, 1, 1): 0.2, (2, 64, 4096): 0.8}) == (2, 64, 4096)


def test_cells_of_the_map_are_the_regions_of_their_sizes() -> None:
    x, y = Axis("A", 1, 4096), Axis("B", 3, 700)

    def which(a: int, b: int) -> int:
        return 0 if a * b < 500 else 1 if a % 3 else 2

    svg = region_map(x, y, which, [Dot(64, 30, True, "A = 64, B = 30")])
    drawn = {}
    for path in re.finditer(r'<path d="([^"]*)" fill="([^"]*)"/>', svg):
        for run in re.finditer(r"M(\d+) (\d+)h(\d+)v1h-(\d+)z", path[1]):
            i, j, n, back = map(int, run.groups())
            assert n == back
            for cell in range(i, i + n):
                assert (cell, ROWS - 1 - j) not in drawn
                drawn[cell, ROWS - 1 - j] = path[2]
    assert len(drawn) == COLUMNS * ROWS
    for (i, j), colour in drawn.items():
        sizes = x.at((i + 0.5) / COLUMNS), y.at((j + 0.5) / ROWS)
        assert colour == colour_of(which(*sizes)), sizes
    assert 1 <= x.at(0.5 / COLUMNS) < x.at(1 - 0.5 / COLUMNS) <= 4096


def test_labels_of_the_map_are_inside_of_it() -> None:
    svg = region_map(Axis("A", 4096, 65536), Axis("B", 1, 9), lambda a, b: 0, ())
    (width,) = re.findall(r'viewBox="0 0 (\d+) ', svg)
    labels = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">(\d+)<', svg)
    assert "65536" in dict(map(reversed, labels))
    assert all(float(x) + 3.5 * len(text) <= float(width) for x, text in labels)


def test_axes_are_logarithmic() -> None:
    axis = Axis("N", 1, 1024)
    assert axis.at(0) == 1 and axis.at(0.5) == 32 and axis.at(1) == 1024
    assert axis.share(32) == pytest.approx(0.5)
    assert axis.ticks() == [1, 4, 16, 64, 256, 1024]
    assert Axis("N", 5, 7).ticks() == [5, 7]


def test_a_map_of_many_pieces_is_small() -> None:
    tree = Split(
        Predicate((0,), 0, 2),
        Leaf(FIRST),
        Split(Predicate((2,), 1, 3), Leaf(SECOND), Leaf(Options())),
    )
    many = {(8 + k, 784, 9 * k + 1): Ratio(-0.1, 0.01, 1e-6) for k in range(60)}
    page = page_of(report(tree, many))
    assert len(rows_of(page, "B K N")) == 12
    assert "and 48 more sizes in confirmed" in page.paragraphs


def test_what_was_not_measured_is_ranked() -> None:
    ranked = tuple(Ranked(FIRST, {(1, 2, 3): 1e-6 * k}, 1 + k, "") for k in range(20))
    page = page_of(
        report(
            Leaf(Options()),
            {},
            stopped="unmeasured",
            ranked=ranked,
            notes=("no device",),
            weights={},
        )
    )
    assert rows_of(page, "gain")[1] == ["2.00", "1.0", str(FIRST)]
    assert "and 8 more in ranked" in page.paragraphs and "no device" in page.paragraphs


@pytest.mark.parametrize("stopped", ("budget", "interrupted"))
def test_a_report_of_nothing(stopped: str) -> None:
    nothing = report(Leaf(Options()), {}, trials=(), stopped=stopped, weights={})
    page = page_of(nothing)
    assert any(text.startswith("trials: none") for text in page.paragraphs)
    assert page.headers[0].startswith("m<mnothing was compared") and nothing.gain == 1.0
