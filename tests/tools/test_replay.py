# SPDX-License-Identifier: Apache-2.0
"""A replay tells one text from another."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tools.replay import TARGETS, all_cases, compare, texts_of


def written(path: Path, texts: list[dict[str, str]]) -> Path:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(t) + "\n" for t in texts)
    return path


def test_differences_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = all_cases(1)
    assert [c["settings"]["target"] for c in cases[: len(TARGETS)]] == list(TARGETS)
    texts = [texts_of(c) for c in cases]
    assert all(t.keys() == {"mapped", "llvm"} and "define" in t["llvm"] for t in texts)
    same = written(tmp_path / "same", texts)
    assert compare(cases, same, same, 1) == 0
    assert "all the same" in capsys.readouterr().out
    other = [*texts[:-1], {**texts[-1], "llvm": texts[-1]["llvm"].replace("define", "declare")}]
    assert compare(cases, same, written(tmp_path / "other", other), 1) == 1
    shown = capsys.readouterr().out
    assert "1 differ" in shown and "declare" in shown and cases[-1]["source"] in shown


def test_errors_are_texts() -> None:
    texts = texts_of({"source": "def f(float(N) A) -> (B) { B(i) = C(i) }", "settings": {}})
    assert texts.keys() == {"error"} and "`C`" in texts["error"]
