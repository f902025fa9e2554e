# SPDX-License-Identifier: Apache-2.0
"""docs/notes/reuse.md from figures."""

from __future__ import annotations

from benchmarks.reuse import stream_lines, tuned_lines
from benchmarks.searches import lines

DONE = {"calls": 9, "is_complete": True, "total": 12.3, "until_first": 5.0}
DONE |= {"longest_later": 2.0, "wait": 0.5, "undisturbed": 0.2, "compilations": 1, "import": 3.0}


def test_stream_rows_compare_with_ours_and_say_what_failed() -> None:
    slow = {**DONE, "total": 24.6, "is_complete": False}
    found = {"tcsym": DONE, "jax": slow, "compile": {"failure": "no compiler"}}
    text = "\n".join(stream_lines([{"kernel": "softmax", "contestants": found}], "./dev bench"))
    assert "| softmax | tcsym | 3 | 12 | 5 | 0.5 | 0.2 | 2 | 1 | 1.00 |" in text
    assert "| softmax | jax | 3 | > 25 (9 calls) | 5 | 0.5 | 0.2 | 2 | 1 | 2.00 |" in text
    assert "| softmax | compile | no compiler |  |" in text
    columns = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert columns == {11}


def test_tuned_rows_have_intervals() -> None:
    row = {"kernel": "mm", "gain": 1.1, "gain_interval": [1.0, 1.2], "seconds": 60.2}
    row |= {"trials": 50, "failed": 1, "others": 200, "lost": 1.02}
    row |= {"lost_interval": [1.01, 1.03], "worst": 1.15, "noise": {"lost": 1.004, "worst": 1.03}}
    row |= {"first": {"lost": 1.03, "worst": 1.5, "beyond": 4}}
    text = "\n".join(tuned_lines([row], "./dev bench tuned"))
    expected = "| mm | 1.100 (1.000 to 1.200) | 50 | 60 | 200 | 1.020 (1.010 to 1.030) | 1.15 |"
    assert f"{expected} 1.030 | 1.50 | 4 | 1.004 | 1.03 |" in text


def test_searches_are_compared_by_kernel_and_in_the_mean() -> None:
    found = [
        {"kernel": name, "search": search, "gain": gain}
        for name, search, gain in (
            ("mm", "guided", 1.2),
            ("mm", "guided", 1.1),
            ("mm", "genetic", 1.1),
            ("conv", "guided", 1.0),
            ("conv", "genetic", 1.21),
        )
    ]
    rows = lines(found)
    assert "| mm | 1.200, 1.100; 1.149 | 1.100; 1.100 |" in rows
    assert rows[-1] == "| all | 1.097 | 1.154 |"
