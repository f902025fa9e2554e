# SPDX-License-Identifier: Apache-2.0
"""The command line: what is printed, JSON that parses, exit codes."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tcsym import __version__
from tcsym.artifact.load import load
from tcsym.cli import doctor as cli_doctor
from tcsym.cli import output as cli_output
from tcsym.cli.kernel import options_of
from tcsym.cli.main import main
from tcsym.options import Options
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
    from tcsym.cli import run as cli_run

    monkeypatch.setattr(cli_run, "_SECONDS", 0.0)


def tcsym(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, args)
    assert result.exit_code == code, result.output
    return result


def tcsym_json(*args: str, code: int = 0) -> Any:
    return json.loads(tcsym(*args, "--json", code=code).stdout)


def one_line(text: str) -> str:
    """Without line ends, which click puts where the terminal's width says."""
    return " ".join(text.split())


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
    assert tcsym_json("run", f"{two}:g", "--sizes", "N=3")["def"] == "g"
    assert f"choose one: {two}:f|g" in one_line(tcsym("run", two, code=2).stderr)
    assert "no def `h`; it has f, g" in one_line(tcsym("run", f"{two}:h", code=2).stderr)


def test_integer_inputs_can_be_subscripts(tmp_path: Path) -> None:
    path = tmp_path / "gather.tc"
    path.write_text("def gather(float(N) x, int32(M) at) -> (y) { y(i) = x(at(i)) }")
    assert tcsym_json("run", str(path), "--sizes", "N=9,M=5", "--check")["check"][0]["good"]


def test_a_difference_is_exit_code_1(mm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsym.kernel.kernel import Kernel

    call = Kernel.reference
    monkeypatch.setattr(Kernel, "reference", lambda *a, **k: call(*a, **k) + 1)
    assert "C DIFFERS from the interpreter" in tcsym("run", mm, *SIZES, "--check", code=1).output


# ---- FILE, and how it is compiled


def test_a_name_of_the_library_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = ("--sizes", "N=3,D=4")
    assert tcsym_json("run", "softmax", *sizes, "--check")["check"][0]["good"]
    assert tcsym_json("run", "library:softmax", *sizes)["def"] == "softmax"
    assert "def softmax" in tcsym("show", "softmax", "syntax").output
    wrong = tcsym("run", "softmx", code=2).stderr.replace("\n", " ")
    assert "no file `softmx`, and no kernel `softmx` in the library; did you mean softmax" in wrong
    monkeypatch.chdir(tmp_path)
    (tmp_path / "softmax").write_text(MM)  # a file of this name comes first
    assert tcsym_json("run", "softmax", *SIZES)["def"] == "mm"


def test_standard_input_is_a_file() -> None:
    result = CliRunner().invoke(main, ["run", "-", *SIZES, "--json"], input=MM)
    assert result.exit_code == 0 and json.loads(result.stdout)["def"] == "mm"
    wrong = CliRunner().invoke(main, ["show", "-", "loops"], input="def f(")
    assert wrong.exit_code == 1 and "<stdin>:1:7" in wrong.stderr


def test_strategies(mm: str) -> None:
    for strategy in ("auto", "symbolic", "specialize", "bucket", "pad"):
        given = ("--strategy", strategy, "--within", "M=1..8,K=6,N=1..8")
        assert tcsym_json("run", mm, *SIZES, *given, "--check")["check"][0]["good"]
        shown = tcsym("show", mm, "variants", *given, *SIZES).output
        kind = {"specialize": "specialised", "bucket": "bucket", "pad": "padded"}
        assert shown.startswith(kind.get(strategy, "symbolic"))
    assert "size" in tcsym("run", mm, "--within", "M=1..2", *SIZES, code=1).stderr
    assert "--within" in tcsym("run", mm, "--within", "M=2..1", *SIZES, code=2).stderr
    assert "--strategy" in tcsym("run", mm, "--strategy", "fast", code=2).stderr


@pytest.mark.parametrize(
    "text",
    [
        "vectorize=false,chains=1,bind[K]=before,fusion=min",
        "chains=1 vectorize=False bind[K]=before  fusion=min",
        '{"vectorize": false, "chains": 1, "bind": {"K": "before"}, "fusion": "min"}',
        "FILE.json",
    ],
)
def test_options(mm: str, text: str, tmp_path: Path) -> None:
    wanted = Options(
        vectorize=False,
        chains=1,
        bind={"K": "before"},
        fusion="min",
    )
    if text == "FILE.json":
        text = str(tmp_path / "options.json")
        Path(text).write_text(wanted.to_json())
    given = tcsym("show", mm, "loops", "--options", text, *SIZES).output
    told = "bind=before fusion=min chains=1 vectorize=False"  # of K alone
    assert given.splitlines()[0].endswith(told)
    assert tcsym_json("run", mm, *SIZES, "--options", text, "--check")["check"][0]["good"]
    assert tcsym_json("bench", mm, *SIZES, "--options", text)["def"] == "mm"
    assert options_of(str(wanted)) == wanted and options_of("defaults") == Options()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vectorise=false", "did you mean `vectorize`"),
        ("vectorize", "is not NAME=VALUE"),
        ("vectorize=1", "expected True or False"),
        ("vectorize=false,vectorize=true", "given twice"),
        ("bind[K]=early", "expected one of never"),
        ("{", "not JSON"),
        ("none.json", "cannot read none.json"),
    ],
)
def test_wrong_options_are_wrong_usage(mm: str, text: str, words: str) -> None:
    message = tcsym("run", mm, *SIZES, "--options", text, code=2).stderr
    assert "--options" in message and words in " ".join(message.split())


# ---- arrays from and to files


def test_inputs_and_outputs_are_files(mm: str, tmp_path: Path) -> None:
    a = np.arange(12, dtype=np.float32).reshape(4, 3)
    b = np.asfortranarray(np.arange(15, dtype=np.float32).reshape(3, 5))
    names = [str(tmp_path / f"{x}.npy") for x in "abc"]
    np.save(names[0], a)
    np.save(names[1], b)
    inputs = ("--input", f"A={names[0]}", "--input", f"B={names[1]}")
    made = tcsym_json("run", mm, *inputs, "--output", f"C={names[2]}", "--check")
    assert made["sizes"] == {"M": 4, "K": 3, "N": 5} and made["check"][0]["good"]
    np.testing.assert_array_equal(np.load(names[2]), a @ b)
    one = tcsym_json("run", mm, *inputs[:2], "--sizes", "N=7", "--output", names[2])
    assert one["outputs"]["C"]["shape"] == [4, 7] == list(np.load(names[2]).shape)
    assert "`M` is 9" in tcsym("run", mm, *inputs, "--sizes", "M=9", code=1).stderr
    assert "--sizes N=..." in tcsym("run", mm, *inputs[:2], code=1).stderr


def test_free_sizes_go_with_files(tmp_path: Path) -> None:
    path, x = tmp_path / "pad.tc", str(tmp_path / "x.npy")
    path.write_text("def f(float(N) x) -> (float(P) y) { y(i) = i < N ? x(i) : 0.0 }")
    np.save(x, np.ones(3, np.float32))
    found = tcsym_json("run", str(path), "--input", x, "--sizes", "P=5", "--check")
    assert found["outputs"]["y"]["shape"] == [5] and found["check"][0]["good"]


def test_files_that_do_not_fit(mm: str, tmp_path: Path) -> None:
    a = str(tmp_path / "a.npy")
    np.save(a, np.ones((4, 3)))
    junk = tmp_path / "junk.npy"
    junk.write_bytes(b"junk")
    for given, code, words in (
        (f"Q={a}", 2, "no input `Q`; inputs are A, B"),
        (a, 2, "expected NAME=FILE.npy"),
        ("A=x.csv", 2, "expected NAME=FILE.npy"),
        (f"A={junk}", 1, "cannot read"),
        ("A=none.npy", 1, "cannot read none.npy"),
        (f"A={a}", 1, "float64"),
    ):
        message = tcsym("run", mm, *SIZES, "--input", given, code=code).stderr
        assert words in " ".join(message.split())
    twice = ("--input", f"A={a}", "--input", f"A={a}")
    assert "given twice" in tcsym("run", mm, *SIZES, *twice, code=2).stderr
    assert "no output `Q`" in tcsym("run", mm, *SIZES, "--output", "Q=q.npy", code=2).stderr
    nowhere = f"C={tmp_path}/none/c.npy"
    assert "cannot write" in tcsym("run", mm, *SIZES, "--output", nowhere, code=1).stderr


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


@pytest.mark.parametrize("stage", ["program", "loops", "plan", "mapped", "llvm", "asm", "options"])
def test_show(mm: str, stage: str) -> None:
    assert tcsym("show", mm, stage).output.strip()
    shown = tcsym_json("show", mm, stage, *SIZES)
    assert (shown["def"], shown["stage"]) == ("mm", stage)


def test_show_refuses_unknown_stages(mm: str) -> None:
    refusal = tcsym("show", mm, "nonsense", code=1).stderr
    assert "unknown stage" in refusal and "variants" in refusal
    assert "CUDA" in tcsym("show", mm, "ptx", code=1).stderr


@pytest.mark.skipif(shutil.which("objcopy") is None, reason="needs a C compiler and its tools")
def test_export(mm: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "made")
    found = tcsym_json("export", mm, folder, "--bounds", "M=8", "--level", "novector")
    assert {*found["bytes"]} == {"libmm.so", "manifest.json", "mm.h"}
    assert "cpu:novector" in tcsym("export", mm, folder, "--level", "sse", code=1).stderr
    np.save(b := tmp_path / "b.npy", np.ones((3, 2), np.float32))
    given = "--level", "novector", "--constant", f"B={b}"
    assert "mm.B.npy" in tcsym_json("export", mm, folder, *given)["bytes"]
    assert load(folder)(np.ones((1, 3), np.float32)).tolist() == [[3, 3]]


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
    for name in (
        "features",
        "vectors",
        "threads",
        "OpenMP",
        "CUDA devices",
        "ptxas",
        "TCSYM_CACHE_DIR",
    ):
        assert found[name]["value"], name
    device = found["CUDA devices"]  # nobody needs one, but what is missing is told
    assert device["good"] or (device["good"] is None and "cuda:twin" in device["hint"])
    assert "llvmlite" in tcsym("doctor").output


def test_doctor_tells_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = cli_doctor._version
    monkeypatch.setattr(cli_doctor, "_version", lambda n: None if n == "islpy" else versions(n))
    output = tcsym("doctor", code=1).output
    assert "MISSING" in output
    assert "pip install islpy" in output


def findings(code: int) -> dict[str, Any]:
    cache_module._cache_at.cache_clear()
    return {f["name"]: f for f in tcsym_json("doctor", code=code)}


def test_doctor_tells_which_directories_are_refused(tmp_path: Path) -> None:
    base = tmp_path / "cache"
    found = findings(code=0)
    assert found["code cache"]["value"].endswith(f"in {base / 'code'}")
    assert found["tuned options"]["value"].endswith(f"in {base / 'options'}")
    (base / "options").chmod(0o777)
    found = findings(code=1)
    assert f"chmod 700 {base / 'options'}" in found["tuned options"]["value"]
    assert found["code cache"]["good"] is True
    base.chmod(0o777)
    found = findings(code=1)
    for name in ("code cache", "tuned options"):
        assert f"chmod go-w {base}" in found[name]["value"]
        assert found[name]["good"] is False
    assert f"chmod go-w {base}" in tcsym("cache", "list").output


def test_doctor_survives_bad_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE", "perhaps")
    assert "TCSYM_CACHE is 'perhaps'" in tcsym("doctor", code=1).output


@pytest.mark.parametrize(
    ("words", "hint"), [(("K=4", "N=5"), "sizes are one word"), (("mm",), "FILE:NAME")]
)
def test_a_word_too_many_tells_how_it_is_given(mm: str, words: tuple[str, ...], hint: str) -> None:
    error = tcsym("run", mm, "--sizes", "M=3", *words, code=2).stderr
    assert f"`{' '.join(words)}`" in error
    assert hint in error


def test_usage_and_version() -> None:
    assert "doctor" in tcsym("--help").output
    told = tcsym("--version").output
    assert told == tcsym("version").output == f"tcsym {__version__}\n"
    assert tcsym_json("version") == {"version": __version__}


def test_module_entry_point() -> None:
    command = [sys.executable, "-m", "tcsym", "cache", "list", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def on_terminal(**environment: str) -> bytes:
    """What `tcsym cache list` writes to a terminal."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", "from tcsym.cli.output import print_table as p; p('a', 'b')"]
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
