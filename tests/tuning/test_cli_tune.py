# SPDX-License-Identifier: Apache-2.0
"""`tcsym tune` and the options of `tcsym cache`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tcsym as tc
from tcsym.cli.main import main
from tcsym.tuning.database import SIZES_FILE, Database
from tcsym.tuning.rows import Fastest
from tests.tuning.faults import MM

SIZES = ("--sizes", "M=8,N=8,K=8", "--sizes", "M=9,N=20,K=5")


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "cache"))


def tcsym(*args: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, args)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def tcsym_json(*args: str) -> Any:
    return json.loads(tcsym(*args, "--json"))


def users() -> list[Any]:
    """The tuned programs of the user's store: others are shipped."""
    return [x for x in tcsym_json("cache", "list", "--options") if x["origin"] == "user"]


def test_tune_keeps_exports_imports_and_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mm.tc"
    file.write_text(MM)
    command = ("tune", str(file), *SIZES, "--candidates", "2", "--target", "cpu:novector")
    report = tcsym_json(*command)
    assert report["def"] == "mm"
    assert len(report["sizes"]) == 2
    assert report["kept"]
    (kept,) = users()
    assert (kept["name"], kept["origin"]) == ("mm", "user")
    assert "mm" in tcsym("cache", "list", "--options")
    assert MM in tcsym("cache", "show", "mm")
    exported = str(tmp_path / "exported")
    assert tcsym_json("cache", "export", exported) == {"exported": 1}
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "other"))
    assert users() == []
    assert tcsym_json("cache", "import", exported) == {"imported": 1}
    (imported,) = users()
    assert imported["tree"] == kept["tree"]
    older, newer = (
        Fastest("p", "m", "q", "[1]", "{}", 1.0, seconds, created, "mm")
        for seconds, created in ((1.0, "2025"), (0.5, "2026"))
    )
    Database.at(str(tmp_path / "cache"), SIZES_FILE).put([newer])  # type: ignore[union-attr]
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "third"))
    measured = Database.at(str(tmp_path / "third"), SIZES_FILE)
    assert measured is not None and measured.put([older])
    assert tcsym_json("cache", "merge", str(tmp_path / "cache")) == {"merged": 1}
    assert tcsym_json("cache", "merge", str(tmp_path / "cache")) == {"merged": 0}
    assert measured.select(Fastest) == [newer]
    assert tcsym_json("cache", "prune", "--max-trials", "0")["removed"] > 0
    assert tcsym_json("cache", "clear", "--options") == {"removed": 1}
    assert measured.select(Fastest) == []
    assert "no options store" in tcsym("cache", "merge", exported, code=1)
    assert "cannot read" in tcsym("cache", "import", str(file), code=1)


def test_a_trace_is_tuned_for_what_was_called(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    kernel = tc.define(MM, target="cpu:novector").mm
    with tc.record(trace):
        for m in (4, 9):
            kernel(np.ones((m, 3), np.float32), np.ones((3, 5), np.float32))
    (report,) = tcsym_json("tune", str(trace), "--candidates", "4")
    assert sorted(size["M"] for size in report["sizes"]) == [4, 9]
    assert kernel.program.canonical == users()[0]["program"]
    assert "--target" in tcsym("tune", str(trace), "--target", "cpu", code=2)


def test_start_is_tried_first(tmp_path: Path) -> None:
    file = tmp_path / "mm.tc"
    file.write_text(MM)
    start = ("--start", "chains=2", "--start", "parallelize=false")
    sizes = ("--sizes", "M=9,N=8,K=7")
    (report,) = [tcsym_json("tune", str(file), *sizes, *start, "--candidates", "2")]
    tried = [trial["options"] for trial in report["trials"]]
    assert tried[0] == "defaults" and {"chains=2", "parallelize=False"} & set(tried[1:])
    assert "--start" in tcsym("tune", str(file), "--start", "rows=2", code=2)
    trace = tmp_path / "t.jsonl"
    trace.write_text("")
    assert "--start" in tcsym("tune", str(trace), *start, code=2)


@pytest.mark.parametrize("sizes", ["M", "M=", "M=1..2..3", "M=a", "M=1,M=2"])
def test_malformed_sizes_are_wrong_usage(tmp_path: Path, sizes: str) -> None:
    file = tmp_path / "mm.tc"
    file.write_text(MM)
    assert "--sizes" in tcsym("tune", str(file), "--sizes", sizes, code=2)


def test_ranges_do_not_mix_with_points(tmp_path: Path) -> None:
    file = tmp_path / "mm.tc"
    file.write_text(MM)
    mixed = ("--sizes", "M=1..9,N=3,K=4", "--sizes", "M=1,N=3,K=4")
    assert "ranges" in tcsym("tune", str(file), *mixed, code=2)
