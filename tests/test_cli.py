"""The command line: what is printed, JSON that parses, exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tcsym import cli_doctor, cli_output
from tcsym.cli import main
from tcsym.runtime import cache as cache_module
from tcsym.runtime.background import settle
from tcsym.runtime.cache import CodeCache

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }\n"
TWO = "def f(float(N) x) -> (y) { y(i) = x(i) + 1.0 }\ndef g(float(N) x) -> (y) { y(i) = -x(i) }\n"


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TCSYM_CACHE", raising=False)
    cache_module._cache_at.cache_clear()


@pytest.fixture
def mm(tmp_path: Path) -> str:
    path = tmp_path / "mm.tc"
    path.write_text(MM)
    return str(path)


@pytest.fixture
def two(tmp_path: Path) -> str:
    path = tmp_path / "two.tc"
    path.write_text(TWO)
    return str(path)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsym import cli_run

    monkeypatch.setattr(cli_run, "_SECONDS", 0.0)


def tcsym(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, args)
    assert result.exit_code == code, result.output
    return result


def tcsym_json(*args: str, code: int = 0) -> Any:
    return json.loads(tcsym(*args, "--json", code=code).stdout)


SIZES = ("--sizes", "M=4,N=5,K=6")


def test_run_and_check(mm: str) -> None:
    lines = tcsym("run", mm, *SIZES, "--check", "--threads", "1").output.splitlines()
    assert lines[0] == "mm(float32(M, K) A, float32(K, N) B) -> (float32(M, N) C)"
    assert lines[1] == "sizes   M=4, K=6, N=5" or lines[1] == "sizes   M=4, N=5, K=6"
    assert lines[-2].split() == ["C", "float32", "(4,", "5)"]
    assert lines[-1].startswith("C agrees with the interpreter: error ")


def test_run_json_and_warm_start(mm: str) -> None:
    first, second = (tcsym_json("run", mm, *SIZES, "--check") for _ in range(2))
    assert first["outputs"] == {"C": {"dtype": "float32", "shape": [4, 5]}}
    assert first["check"][0]["good"]
    assert (first["compilations"], first["cache_hits"]) == (1, 0)
    assert (second["compilations"], second["cache_hits"]) == (0, 1)


def test_run_chooses_a_def(two: str) -> None:
    assert tcsym_json("run", two, "--def", "g", "--sizes", "N=3")["def"] == "g"
    assert "choose one: --def f|g" in tcsym("run", two, code=2).stderr
    assert "no def `h`" in tcsym("run", two, "--def", "h", code=2).stderr


def test_integer_inputs_can_be_subscripts(tmp_path: Path) -> None:
    path = tmp_path / "gather.tc"
    path.write_text("def gather(float(N) x, int32(M) at) -> (y) { y(i) = x(at(i)) }")
    assert tcsym_json("run", str(path), "--sizes", "N=9,M=5", "--check")["check"][0]["good"]


def test_a_difference_is_exit_code_1(mm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsym.kernel import Kernel

    call = Kernel.reference
    monkeypatch.setattr(Kernel, "reference", lambda *a, **k: call(*a, **k) + 1)
    assert "C DIFFERS from the interpreter" in tcsym("run", mm, *SIZES, "--check", code=1).output


@pytest.mark.parametrize("text", ["N", "N=", "=3", "N=-3", "N=3.5", "N=3,N=4", "1=2"])
def test_malformed_sizes_are_wrong_usage(mm: str, text: str) -> None:
    assert "--sizes" in tcsym("run", mm, "--sizes", text, code=2).stderr


def test_missing_and_unknown_sizes(mm: str) -> None:
    assert "--sizes K=...,N=..." in tcsym("run", mm, "--sizes", "M=3", code=1).stderr
    assert "`Q`" in tcsym("run", mm, "--sizes", "M=3,K=3,N=3,Q=1", code=1).stderr


def test_errors_of_the_text_are_text(tmp_path: Path) -> None:
    path = tmp_path / "bad.tc"
    path.write_text("def f(float(N) x) -> (y) { y(i) = z(i) }")
    result = tcsym("run", str(path), code=1)
    assert f"{path}:1:" in result.stderr
    assert "^" in result.stderr
    assert result.stdout == ""
    path.write_bytes(b"\xff\xfe")
    assert "cannot read" in tcsym("run", str(path), code=1).stderr
    assert "does not exist" in tcsym("run", str(tmp_path / "none.tc"), code=2).stderr


@pytest.mark.parametrize("stage", ["program", "loops", "mapped", "llvm", "asm", "options"])
def test_show(mm: str, stage: str) -> None:
    assert tcsym("show", mm, stage).output.strip()
    shown = tcsym_json("show", mm, stage, *SIZES)
    assert (shown["def"], shown["stage"]) == ("mm", stage)


def test_show_refuses_unknown_stages(mm: str) -> None:
    refusal = tcsym("show", mm, "nonsense", code=1).stderr
    assert "unknown stage" in refusal and "variants" in refusal
    assert "CUDA" in tcsym("show", mm, "ptx", code=1).stderr


def test_cache_commands(mm: str) -> None:
    assert tcsym_json("cache", "list") == []
    tcsym("run", mm, *SIZES)
    settle()  # the call entry, too, is in the cache now
    entries = tcsym_json("cache", "list")
    (kernel,) = [e for e in entries if e["what"] == "mm"]
    assert kernel["target"] == "cpu"
    table = tcsym("cache", "list").output
    assert kernel["key"][:12] in table
    assert f"{len(entries)} entries" in table
    shown = tcsym_json("cache", "show", kernel["key"][:10])
    assert shown["manifest"]["compiled"]["arguments"] == ["A", "B", "C"]
    assert "A, B, C" in tcsym("cache", "show", kernel["key"]).output
    tcsym("cache", "show", "zzz", code=1)
    assert tcsym_json("cache", "prune", "--max-bytes", "1G") == {"removed": 0}
    tcsym("cache", "prune", "--max-bytes", "many", code=2)
    assert tcsym_json("cache", "clear") == {"removed": len(entries)}
    assert CodeCache.default().entries() == ()


def test_cache_commands_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "0")
    assert "off" in tcsym("cache", "list").output
    assert tcsym_json("cache", "clear") == {"removed": 0}


def test_doctor() -> None:
    found = {f["name"]: f for f in tcsym_json("doctor")}
    for name in ("python", "numpy", "llvmlite", "islpy", "LLVM", "code cache"):
        assert found[name]["good"] is True, name
    for name in ("features", "vectors", "threads", "OpenMP", "CUDA driver", "TCSYM_CACHE_DIR"):
        assert found[name]["value"], name
    assert (
        found["CUDA driver"]["value"] != "not found" or "nvidia.com" in found["CUDA driver"]["hint"]
    )
    assert "llvmlite" in tcsym("doctor").output


def test_doctor_tells_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = cli_doctor._version
    monkeypatch.setattr(cli_doctor, "_version", lambda n: None if n == "islpy" else versions(n))
    output = tcsym("doctor", code=1).output
    assert "MISSING" in output
    assert "pip install islpy" in output


def test_doctor_survives_bad_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "perhaps")
    assert "TCSYM_CACHE is 'perhaps'" in tcsym("doctor", code=1).output


@pytest.mark.parametrize(
    ("words", "hint"), [(("K=4", "N=5"), "sizes are one word"), (("mm",), "--def NAME")]
)
def test_a_word_too_many_tells_how_it_is_given(mm: str, words: tuple[str, ...], hint: str) -> None:
    error = tcsym("run", mm, "--sizes", "M=3", *words, code=2).stderr
    assert f"`{' '.join(words)}`" in error
    assert hint in error


def test_usage_and_version() -> None:
    assert "doctor" in tcsym("--help").output
    assert tcsym("--version").output.startswith("tcsym, version ")
    tcsym("no-such-command", code=2)


def test_module_entry_point() -> None:
    command = [sys.executable, "-m", "tcsym", "cache", "list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def on_terminal(**environment: str) -> bytes:
    """What `tcsym cache list` writes to a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", "from tcsym.cli_output import print_table as p; p('a', 'b')"]
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    subprocess.run(command, stdout=follower, env={**env, "TERM": "xterm-256color"} | environment)
    os.close(follower)
    written = os.read(leader, 10_000)
    os.close(leader)
    return written


def test_colour_on_a_terminal_only_and_no_color() -> None:
    assert b"\x1b[" in on_terminal()
    assert b"\x1b[3" not in on_terminal(NO_COLOR="1")
    assert b"\x1b" not in tcsym("cache", "list").stdout_bytes


def test_texts_of_amounts() -> None:
    assert [cli_output.byte_text(n) for n in (0, 1023, 1536, 2**30)] == [
        "0 bytes", "1023 bytes", "1.5 KiB", "1.0 GiB",
    ]  # fmt: skip
    assert [cli_output.seconds_text(s) for s in (5e-9, 1.5e-5, 0.25, 3.0)] == [
        "5 ns", "15 us", "250 ms", "3 s",
    ]  # fmt: skip
