# SPDX-License-Identifier: Apache-2.0
"""The table of choices: what is measured, what it is called, and what is read from it."""

from __future__ import annotations

import json
import lzma
import random
from pathlib import Path
from typing import Any

import pytest

from tcsym.compiler import analyse
from tcsym.ir.loops import THREADS
from tools.choices import __main__ as command
from tools.choices.measure import alternatives_of, measure, plans_at
from tools.choices.programs import FAMILIES, Drawn, draw_sizes, programs
from tools.choices.regret import kind_of, lines_of, regret_lines

SUMS = "def f(float(N,M) X) -> (S) { S(m) +=! X(n,m) }"
TILES, PANELS, DOTS = (
    "register tile of 4 rows m x vectors of columns n, operands in place",
    "register tile of 6 rows m x 2 vectors of columns n, panels of Y [vectors; strips]",
    "dot products along the sum, for few rows",
)


def row(program: str, taken: str, times: dict[str, float], **about: Any) -> dict[str, Any]:
    options = ["", *(f"0.Wished{k}" for k in range(len(times)))]
    others = [p for p in times if p != taken]
    given = zip(options, [taken, *others], strict=False)
    found = [{"option": o, "plans": p, "ns": times[p]} for o, p in given]
    line = {"program": program, "family": "products", "target": "cpu", "sizes": {"M": 2}}
    return {**line, "alternatives": found, **about}


def table() -> list[dict[str, Any]]:
    """Regrets 1, 1, 1.2, 1.5 and 4 (the mean of their logarithms is that of 7.2, a fifth)."""
    return [
        row("a", TILES, {TILES: 100, PANELS: 100}),
        row("a", TILES, {TILES: 100, PANELS: 200, DOTS: 101}),
        row("b", PANELS, {TILES: 100, PANELS: 120}),
        row("b", PANELS, {TILES: 200, PANELS: 150, DOTS: 100}),
        row("c", DOTS, {DOTS: 400, TILES: 100}, family="rows", sizes={"M": 3, "N": 5}),
    ]


def written(path: Path, lines: list[Any]) -> Path:
    text = "".join(json.dumps(x) + "\n" for x in lines)
    if path.suffix == ".xz":
        path.write_bytes(lzma.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["table.jsonl", "table.jsonl.xz"])
def test_regret_of_a_table(name: str, tmp_path: Path) -> None:
    lines = regret_lines([written(tmp_path / name, [*table(), {"done": "c"}])])
    mean = 100 * ((1.2 * 1.5 * 4) ** (1 / 5) - 1)
    shares = "above 1.1: 60.0 %, above 1.3: 40.0 %, above 2: 20.0 %"
    assert lines[0] == f"cpu: 5 lines of 3 programs: lost {mean:.1f} %; {shares}"
    assert lines[2].startswith("  rows: 1 lines of 1 programs: lost 300.0 %")
    worst = lines[lines.index("worst:") + 1]
    assert worst.splitlines()[0] == "  4.00  c, cpu, M=3 N=5"
    assert "0.4 us dot products" in worst and "0.1 us register tile" in worst


def test_plans_earn_what_ran_not_what_was_wished(tmp_path: Path) -> None:
    lines = regret_lines([written(tmp_path / "table.jsonl", table())])
    earned = {x[22:].strip(): x.split()[:3] for x in lines[lines.index("") :] if x[:2] == "  "}
    assert earned[kind_of(DOTS)] == ["3", "1", f"{1.5 ** (1 / 3):.3f}"]
    assert earned[kind_of(PANELS)][:2] == ["4", "0"]
    assert not any("Wished" in x for x in lines)


def test_kinds_of_plans_have_no_names_and_numbers() -> None:
    assert kind_of(PANELS) == kind_of(PANELS.replace("6", "8").replace(" m ", " m_p "))
    assert "strips" not in kind_of(PANELS) and kind_of(PANELS) != kind_of(TILES)
    assert kind_of(f"{TILES} | {DOTS} | {TILES}") == f"{kind_of(TILES)} | {kind_of(DOTS)}"


def test_lines_without_a_choice_and_cut_ones_are_passed_over(tmp_path: Path) -> None:
    whole = row("a", TILES, {TILES: 1, DOTS: 2})
    alone, unknown = row("a", TILES, {TILES: 1}), row("a", TILES, {TILES: 1, DOTS: 2})
    del unknown["alternatives"][0]
    path = written(tmp_path / "t.jsonl", [alone, unknown, whole])
    path.write_text(path.read_text() + json.dumps(whole)[:50])
    assert [x.taken for x in lines_of([path])] == [TILES]


@pytest.mark.parametrize("family", FAMILIES)
def test_random_texts_are_programs_with_sizes(family: str) -> None:
    for k in range(20):
        program = analyse(FAMILIES[family](random.Random(k)))["f"]
        sizes = draw_sizes(program, random.Random(k))
        assert sizes is not None and sizes.keys() == set(program.sizes)


def test_programs_have_each_family() -> None:
    names = [d.name for d, _ in zip(programs(0), range(300), strict=False)]
    assert len(set(names)) == 300
    families = {d.family for d, _ in zip(programs(0), range(300), strict=False)}
    assert {*FAMILIES, "fuzz", "library"} <= families


def test_each_alternative_forces_another_plan() -> None:
    found = alternatives_of(analyse(SUMS)["f"], "cpu:avx2")
    plans = {x.option: plans_at(x.mapped, {"N": 400, "M": 37}) for x in found}
    (parts,), (columns,) = plans["m.parts of columns"], plans["m.columns, 4 vectors"]
    assert parts.startswith("split n part ") and columns.startswith("split m tile reg:4 ")
    assert not any(x.mapped.warnings for x in found)


def test_what_the_cost_chooses_is_what_runs() -> None:
    default, *others = alternatives_of(analyse(SUMS)["f"], "cpu:avx2")
    (choice,) = default.mapped.kernel.choices
    (nest,) = default.mapped.choices
    taken = set()
    for sizes in ({"N": 400, "M": 1}, {"N": 1, "M": 1}, {"N": 3, "M": 400}):
        costs = choice.costs.at({**sizes, THREADS: 1})
        version = costs.index(min(costs))
        taken.add(version)
        assert plans_at(default.mapped, sizes) == [str(nest.versions[version].plan)]
    assert len(taken) > 1
    many = {"N": 1, "M": 1000}
    assert [plans_at(default.mapped, many)] == [
        plans_at(x.mapped, many) for x in others if x.option == "m.columns, 8 vectors"
    ]


def test_measuring_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new" / "table.jsonl"
    drawn = [Drawn(f"mm {k}", SUMS, "f", "products") for k in range(3)]
    monkeypatch.setattr(command, "programs", lambda seed: iter(drawn))
    asked = []
    monkeypatch.setattr(command, "_run", lambda d, given: asked.append(d.name))
    arguments = ["choices", "--out", str(out), "--programs", "2"]
    monkeypatch.setattr("sys.argv", arguments)
    command.main()
    assert asked == ["mm 0", "mm 1"]
    out.parent.mkdir()
    out.write_text(json.dumps({"done": "mm 0"}) + '\n{"program": "mm 1", "alter')
    command.main()
    assert asked == ["mm 0", "mm 1", "mm 1"]


def test_a_line_says_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.choices.measure.ROUNDS", 1)
    monkeypatch.setattr("tools.choices.measure.SAMPLE_NS", 100)
    (line,) = measure(Drawn("mm", SUMS, "f", "products"), "cpu:avx2", 1, 0)
    plans = [x["plans"] for x in line["alternatives"]]
    assert len(plans) == len(set(plans)) > 2 and line["alternatives"][0]["option"] == ""
    assert all(x["ns"] > 0 for x in line["alternatives"])
