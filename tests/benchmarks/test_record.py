# SPDX-License-Identifier: Apache-2.0
"""From samples to the record: JSON's form, ratios, best peer, goals; the worker; the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import arguments_of, chosen_peers, chosen_rows
from benchmarks.machine import Guard, Level, Machine, lanes_of
from benchmarks.merge import merged
from benchmarks.picture import draw
from benchmarks.record import SCHEMA, row_record, summary
from benchmarks.report import (
    MARKER,
    TRAINING_MARKER,
    read_record,
    write_report,
    write_training,
)
from benchmarks.sizes import Row, suite_rows
from benchmarks.suite import BY_NAME, SUITE
from benchmarks.surroundings import environment_for
from benchmarks.tables import call_cells
from benchmarks.worker import Worker

MACHINE = Machine("test", "Linux", 1, 8, 100.0, (Level("L1", 32768, 200.0), Level("memory", 0, 20)))
ROOT = Path(__file__).parents[2]
ROW_KEYS = {
    *("kernel", "label", "part", "class", "sizes", "threads", "flops", "bytes", "contestants"),
    *("failures", "ratios", "substituted", "best_peer", "roofline"),
}


def entry(*samples: float, quiet: tuple[bool, ...] = ()) -> dict[str, Any]:
    marks = list(quiet or [True] * len(samples))
    extra = {"first_ms": 9.0, "error": 0.0, "repeats": 1, "call_ms": 1.0}
    return {"samples": list(samples), "quiet": marks, **extra}


def measured(**contestants: dict[str, Any]) -> dict[str, Any]:
    named = {k.replace("_out", " out=").replace("_", " "): v for k, v in contestants.items()}
    return {"contestants": named, "failures": {"halide": "not here"}, "flops": 1e6, "bytes": 1e6}


def record_of(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "date": "2026-01-01T00:00:00+00:00",
        "command": "./dev bench",
        "sizes": "suite",
        "seed": 0,
        "target": "cpu",
        "peers": ["tcsym", "torch"],
        "machines": {"1": MACHINE.as_json()},
        "versions": {"torch": "2"},
        "rows": list(rows),
        "startup": {"rows": [], "call": rows[0]},
        "summary": summary(rows, False),
    }


@pytest.fixture
def row() -> Row:
    return next(iter(suite_rows(BY_NAME["softmax"])))


@pytest.fixture
def made(row: Row) -> dict[str, Any]:
    found = measured(
        tcsym=entry(2.0, 2.1, 2.2),
        tcsym_out=entry(1.0, 1.1, 1.2),
        tcsym_after=entry(1.9, 2.0, 2.1),
        torch=entry(3.0, 3.1, 3.2),
        torch_out=entry(2.5, 2.6, 2.7),
    )
    return row_record(row, found, MACHINE, 1)


def test_row_holds_json_of_the_stated_form(made: dict[str, Any]) -> None:
    assert set(made) == ROW_KEYS
    assert json.loads(json.dumps(made)) == made


def test_out_is_compared_with_out_and_the_nearest_peer_counts(made: dict[str, Any]) -> None:
    assert {n: r["value"] for n, r in made["ratios"].items()} == {"torch": 1.5, "torch out=": 2.5}
    assert made["best_peer"] == "torch"
    assert made["substituted"]["tcsym after"]["value"] == pytest.approx(0.95)


def test_roofline_takes_the_slower_of_operations_and_bytes(made: dict[str, Any]) -> None:
    assert MACHINE.bound_ms(1e8, 1000) == pytest.approx(1.0)  # operations
    assert MACHINE.bound_ms(0, 1e6) == pytest.approx(0.05)  # from memory
    assert MACHINE.bound_ms(0, 20000) == pytest.approx(0.0001)  # from the first cache
    assert made["roofline"] == pytest.approx(0.05 / 2.0)


def test_disturbed_rounds_do_not_count_unless_nothing_else_is_there(row: Row) -> None:
    quiet = (False, True, True, True)
    found = measured(tcsym=entry(0.1, 2.0, 2.0, 2.0, quiet=quiet), torch=entry(9.0, 3.0, 3.0, 3.0))
    ratio = row_record(row, found, MACHINE, 1)["ratios"]["torch"]
    assert (ratio["value"], ratio["rounds"], ratio["disturbed"]) == (1.5, 3, False)
    found = measured(tcsym=entry(2.0, 2.0, 2.0, quiet=(False,) * 3), torch=entry(3.0, 3.0, 3.0))
    ratio = row_record(row, found, MACHINE, 1)["ratios"]["torch"]
    assert (ratio["value"], ratio["rounds"], ratio["disturbed"]) == (1.5, 3, True)


def test_a_row_without_us_is_kept_with_its_reason(row: Row) -> None:
    made = row_record(row, measured(torch=entry(1.0, 1.0, 1.0)), MACHINE, 1)
    assert (made["best_peer"], made["roofline"], made["ratios"]) == (None, None, {})
    assert made["failures"] == {"halide": "not here"}


def test_summary_by_class_with_goals(made: dict[str, Any]) -> None:
    slower = {**made, "ratios": {"torch": {"value": 0.5}}, "label": "slow", "substituted": {}}
    found = {g["class"]: g for g in summary([made, slower], False)}
    assert found["others"]["mean"] == pytest.approx((1.5 * 0.5) ** 0.5)
    assert (found["others"]["worst"], found["others"]["worst_at"]) == (0.5, "slow")
    assert (found["others"]["goal_mean"], found["others"]["goal_each"]) == (1.5, 1.0)
    assert found["others"]["below"] == 1
    assert found["substituted: after"]["rows"] == 1
    assert {g["goal_mean"] for g in summary([made], True)} == {1.0, 0.97}


def test_worker_checks_results_and_each_contestant_fails_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opt_einsum", None)
    worker = Worker(["tcsym", "numpy"])
    found = worker.prepare("tmm", {"M": 3, "N": 4, "K": 5}, 1, None)
    assert list(found["contestants"]) == ["tcsym", "tcsym out=", "numpy"]
    assert "opt_einsum" in found["failures"]
    assert (found["flops"], found["bytes"]) == (120.0, 4 * (15 + 20 + 12))
    assert worker.time("tcsym", 3) > 0


def test_worker_refuses_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.peers import with_numpy

    monkeypatch.setattr(with_numpy, "as_tuple", lambda x: (x + 1,))
    found = Worker(["numpy"]).prepare("call", {"N": 4}, 1, None)
    assert found["contestants"] == {}
    assert "wrong result: error" in found["failures"]["numpy"]


def test_an_absent_library_is_a_line_not_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks.peers.with_halide", None)
    found = Worker(["numpy", "halide"]).prepare("call", {"N": 4}, 1, None)
    assert found["failures"]["halide"].startswith("not available")
    assert list(found["contestants"]) == ["numpy"]


def test_rows_and_peers_asked_for() -> None:
    assert len(chosen_rows(arguments_of(["--part", "suite"]))) == 31
    assert [r.label for r in chosen_rows(arguments_of(["--only", "c3_"]))] == ["c3_128x1000x1024"]
    random = chosen_rows(arguments_of(["--only", "rowsum", "--sizes", "random"]))
    assert len(random) == 50
    quick = chosen_rows(arguments_of(["--quick"]))
    assert {r.case.name for r in quick} == {c.name for c in SUITE}
    with pytest.raises(SystemExit, match="no kernel"):
        chosen_rows(arguments_of(["--only", "nothing"]))
    with pytest.raises(SystemExit, match="unknown peer `x`"):
        chosen_peers(arguments_of(["--peers", "x"]))
    assert "compile" not in chosen_peers(arguments_of(["--sizes", "random"]))


def test_environment_limits_threads_and_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    found = environment_for(2, "cpu:avx2", "/nowhere")
    assert found["OMP_NUM_THREADS"] == found["TCSYM_NUM_THREADS"] == "2"
    assert found["ATEN_CPU_CAPABILITY"] == "avx2"
    assert "ATEN_CPU_CAPABILITY" not in environment_for(2, None, "/nowhere")


def test_picture_and_report(made: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws: matplotlib is not installed")
    record, page = tmp_path / "r.json", tmp_path / "performance.md"
    record.write_text(json.dumps(record_of(made)))
    page.write_text("by hand\n" + MARKER + "old figures\n")
    write_report([record], page)
    text = page.read_text()
    assert text.startswith("by hand\n" + MARKER)
    assert "old figures" not in text
    assert "| softmax_1024x1000 | 1 | 2 | 0.5 GB/s | 2% |" in text
    assert "torch 1.50 (" in text
    assert (tmp_path / "performance-suite-cpu.svg").read_text().startswith("<?xml")
    with pytest.raises(SystemExit, match="nothing to draw"):
        draw({**record_of(made), "rows": []}, tmp_path / "x.svg")


def test_table_of_backward_passes(made: dict[str, Any], tmp_path: Path) -> None:
    record, page = tmp_path / "r.json", tmp_path / "performance.md"
    record.write_text(json.dumps(record_of({**made, "substituted": {}})))
    page.write_text("by hand\n" + TRAINING_MARKER + "\n\nby hand, too\n")
    for _ in range(2):
        write_training([record], page)
        text = page.read_text()
        assert text.startswith("by hand\n") and text.endswith("|\n\nby hand, too\n")
        assert text.count("| others | suite | 1 | 1 | 1.50 (1.50) |") == 1


def test_random_sizes_are_reported_by_kernel(made: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws: matplotlib is not installed")
    record, page = tmp_path / "r.json", tmp_path / "performance.md"
    quicker = json.loads(json.dumps(made))
    quicker["ratios"][made["best_peer"]]["value"] = 0.5
    rows = [{**made, "label": "softmax[N=3]"}, {**quicker, "label": "softmax[N=4]"}]
    record.write_text(json.dumps({**record_of(*rows), "sizes": "random"}))
    page.write_text(MARKER)
    write_report([record], page)
    text = page.read_text()
    assert "| `softmax` | 1 | 2 | 0.87 | 0.50 | 1 | 1 |" in text
    _, _, below = text.partition("### Rows below the goal")
    below, _, _ = below.partition("###")
    assert "softmax[N=4]" in below and "softmax[N=3]" not in below


def test_parts_of_a_run_become_one_record(made: dict[str, Any]) -> None:
    first, other = record_of(made), record_of({**made, "label": "other", "threads": 2})
    newer = record_of({**made, "best_peer": "torch out="})
    ragged = {**first, "sizes": "ragged"}
    both, alone = merged([first, other, ragged, newer])
    assert [(r["label"], r["best_peer"]) for r in both["rows"]] == [
        ("softmax_1024x1000", "torch out="), ("other", "torch")
    ]  # fmt: skip
    assert {g["threads"]: g["rows"] for g in both["summary"] if g["class"] == "others"} == {
        1: 1, 2: 1
    }  # fmt: skip
    assert alone["sizes"] == "ragged"


def test_first_results_are_medians_over_rows(made: dict[str, Any]) -> None:
    slow = json.loads(json.dumps(made))
    slow["contestants"]["torch"]["first_ms"] = 99.0
    cells = {c[0]: c[1:] for c in call_cells(record_of(made, made, slow))}
    assert cells["torch"] == ["3000.00", "9"]
    assert cells["torch out="] == ["2500.00", ""]


def test_report_refuses_other_files(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for content in ("{", "[]", '{"schema": 0}'):
        path.write_text(content)
        with pytest.raises(SystemExit):
            read_record(path)


def test_the_guard_leaves_the_process_on_all_its_cores() -> None:
    """Workers inherit the driver's cores: pinned to one, two threads would share it."""
    allowed = os.sched_getaffinity(0)
    guard = Guard(sorted(allowed)[-2:], lanes_of(None))
    assert guard.speed() > 0
    assert os.sched_getaffinity(0) == allowed


def test_whole_run(tmp_path: Path) -> None:
    """As a user runs it, smallest: a kernel, one peer, one thread."""
    record = tmp_path / "r.json"
    command = [sys.executable, "-m", "benchmarks", "--only", "mlp3", "--peers", "numpy"]
    command += ["--threads", "1", "--quick", "--json", str(record)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = read_record(record)
    (row,) = found["rows"]
    assert set(row) >= ROW_KEYS
    assert set(row["contestants"]) == {"tcsym", "tcsym out=", "numpy"}
    assert row["best_peer"] == "numpy"
    assert 0 < row["roofline"] < 1.5
    assert found["startup"]["rows"][0]["kernel"] == "mlp3"
    assert found["startup"]["call"]["contestants"]["tcsym"]["min_ms"] > 0
    assert "mlp3_128x128x64x32x2" in done.stdout
