# SPDX-License-Identifier: Apache-2.0
"""`tcsym bench`: what it prints, what it counts, when numpy's einsum stands beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tcsym
from tcsym.cli import bench as cli_bench
from tcsym.cli.bench import contraction, count_operations
from tcsym.cli.main import main
from tcsym.cli.run import free_sizes

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SCAN = """def scan(float(N) X) -> (Y) {
  for i in N {
    if i == 0 { Y(i) = X(i) } else { Y(i) = Y(i-1) + X(i) }
  }
}"""


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_bench, "_ROUND_SECONDS", 0.0)


def bench(tmp_path: Path, text: str, *args: str, code: int = 0) -> Any:
    path = tmp_path / "kernel.tc"
    path.write_text(text)
    result = CliRunner().invoke(main, ["bench", str(path), *args])
    assert result.exit_code == code, result.output
    return result


def test_several_sizes_make_several_rows(tmp_path: Path) -> None:
    sizes = ("--sizes", "M=4,N=5,K=6", "--sizes", "M=7,N=8,K=9", "--threads", "1")
    lines = bench(tmp_path, MM, *sizes).stdout.splitlines()
    assert lines[0].split()[:2] == ["sizes", "best"]
    assert [line.split()[0] for line in lines[1:]] == ["M=4,N=5,K=6", "M=7,N=8,K=9"]


def test_json(tmp_path: Path) -> None:
    found = json.loads(bench(tmp_path, MM, "--sizes", "M=4,N=5,K=6", "--json").stdout)
    (speed,) = found["speeds"]
    assert (found["def"], speed["sizes"]) == ("mm", {"M": 4, "N": 5, "K": 6})
    assert 0 < speed["best"] <= speed["median"]
    assert speed["gflops"] == pytest.approx(2 * 4 * 5 * 6 / speed["best"] / 1e9)
    n_bytes = 4 * (4 * 6 + 6 * 5 + 4 * 5)
    assert speed["gbytes"] == pytest.approx(n_bytes / speed["best"] / 1e9)
    assert speed["einsum"] > 0


def test_no_einsum_and_no_rate_where_there_is_none(tmp_path: Path) -> None:
    found = json.loads(bench(tmp_path, SCAN, "--sizes", "N=5", "--json").stdout)
    assert (found["speeds"][0]["gflops"], found["speeds"][0]["einsum"]) == (None, None)
    assert bench(tmp_path, SCAN, "--sizes", "N=5").exit_code == 0


def test_missing_sizes_are_an_error(tmp_path: Path) -> None:
    assert "--sizes M=...,K=...,N=..." in bench(tmp_path, MM, code=1).stderr


@pytest.mark.parametrize(
    "body, spec",
    [
        ("C(m,n) +=! A(m,k) * B(k,n)", "ac,cb->ab"),
        ("C(k) +=! A(m,k) * B(k,n)", "ba,ac->a"),
        ("C(m,n) +=! A(m,k) * B(k,n) where k in 1:K", None),
        ("C(m,n) +=! A(m,k) * B(k,n) * A(m,k)", None),
        ("C(m,n) +=! A(m,k) + B(k,n)", None),
        ("C(m,n) max=! A(m,k) * B(k,n)", None),
        ("C(m,n) +=! A(m,k) * B(k,n+1)", None),
        ("C(m,n) +=! A(m,k) * B(k,n)  C(m,n) = C(m,n) + 1.0", None),
    ],
)
def test_what_is_one_contraction(body: str, spec: str | None) -> None:
    kernel = tcsym.define(f"def f(float(M,K) A, float(K,N) B) -> (C) {{ {body} }}")
    found = contraction(kernel.program)
    assert (found is None) == (spec is None)
    if spec is not None and found is not None:
        letters = dict(zip(found, spec))
        assert "".join(letters[x] for x in found) == spec
        assert len(set(letters.values())) == len(letters)


@pytest.mark.parametrize(
    "text, count",
    [
        (MM, 2 * 3 * 4 * 5),
        ("def f(float(N) X) -> (Y) { Y(i) = exp(-X(i)) * 2.0 }", 3 * 4),
        ("def f(float(N) X) -> (Y) { Y(i) = X(i) }", 0),
        ("def f(int32(N) X) -> (Y) { Y(i) = X(i) + X(i) }", 0),
        ("def f(float(M,N) X) -> (float(M,N) Y) { for t in M { Y(t,i) = X(t,i) + 1.0 } }", 3 * 4),
        (SCAN, None),
    ],
)
def test_operations(text: str, count: int | None) -> None:
    assert count_operations(tcsym.define(text).program, {"M": 3, "N": 4, "K": 5}) == count


def test_only_sizes_that_no_input_has_are_given_at_the_calls() -> None:
    kernel = tcsym.define("def f(float(M,3) A) -> (float(M,P) C) { C(i,j) = A(i,0) * j }")["f"]
    assert free_sizes(kernel, {"M": 2, "P": 4}) == {"P": 4}
    with pytest.raises(tcsym.SizeError, match="`P` of f is not given"):
        free_sizes(kernel, {"M": 2})
