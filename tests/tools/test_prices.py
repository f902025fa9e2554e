# SPDX-License-Identifier: Apache-2.0
"""Prices from a table: those that made its times are found, and plans are chosen by them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from tcsym.compiler import analyse
from tcsym.cost.terms import TERMS
from tools.choices.measure import alternatives_of, plans_at
from tools.choices.prices import Counted, fitted, in_folds, prices_lines
from tools.choices.regret import Line

SUMS = "def f(float(N,M) A) -> (S) { S(m) +=! A(n,m) }"


def counted(program: str, counts: np.ndarray, prices: np.ndarray) -> Counted:
    plans = tuple("abcdefgh"[: len(counts)])
    times = {p: float(t) for p, t in zip(plans, counts @ prices)}
    return Counted(Line(program, "rows", "cpu", {}, plans[0], times), plans, counts)


def some(n: int, prices: np.ndarray) -> list[Counted]:
    rng = np.random.default_rng(0)
    return [counted(f"p{k}", rng.integers(0, 900, (4, len(TERMS))) * 1.0, prices) for k in range(n)]


TRUE = np.linspace(1, 3, len(TERMS))


def test_prices_rank_as_those_that_made_the_times() -> None:
    found = some(60, TRUE)
    prices = fitted(found, np.full(len(TERMS), 2.0))
    before, after = ([x.chosen(p).regret for x in found] for p in (np.ones(len(TERMS)), prices))
    assert np.mean(after) < 1.005 < np.mean(before)
    for x in found:
        np.testing.assert_allclose(x.counts @ prices, x.times(), rtol=0.2)


def test_what_nothing_has_keeps_its_price() -> None:
    found = [replace(x, counts=x.counts * (np.arange(len(TERMS)) != 3)) for x in some(20, TRUE)]
    assert fitted(found, TRUE)[3] == TRUE[3]


def test_folds_choose_the_fastest_by_prices_of_other_programs() -> None:
    found = some(40, TRUE)
    lines = in_folds(found, np.full(len(TERMS), 2.0))
    assert len(lines) == 40 and np.mean([x.regret for x in lines]) < 1.03
    assert np.mean([x.line.regret for x in found]) > 1.1


def test_a_table_is_mapped_again(tmp_path: Path) -> None:
    """Plans that today's code does not have are left out; the others are counted and chosen of."""
    lines = []
    found = {x.option: x.mapped for x in alternatives_of(analyse(SUMS)["f"], "cpu:avx2")}
    for n in (50, 400):
        at = {o: plans_at(x, {"N": n, "M": 37})[0] for o, x in found.items()}
        options = [o for o in at if o.startswith("m.columns") and at[o] != at[""]][:2]
        plans = [at[o] for o in options]
        given = [
            {"option": o, "plans": p, "ns": 10.0 * k + 5}
            for k, (o, p) in enumerate(zip(("", options[1], "0.Magic"), (*plans, "magic")))
        ]
        about = {"program": "sums", "family": "rows", "target": "cpu:avx2", "source": SUMS}
        sizes = {"N": n, "M": 37}
        lines.append({**about, "def": "f", "sizes": sizes, "alternatives": given})
    path = tmp_path / "table.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    lack, kept, prices, folds, fit = prices_lines([path])
    assert lack == "cpu:avx2: of 2 lines 2 lack what runs today"
    assert kept == "cpu:avx2, as versions are kept: no lines"
    assert prices.startswith("cpu:avx2, prices: 2 lines") and folds.startswith("cpu:avx2, prices f")
    assert fit.startswith("fma=0.")
