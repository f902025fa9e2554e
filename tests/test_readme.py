"""Every Python snippet and shell command of README.md runs as written."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_snippets_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_CACHE_DIR", str(tmp_path))  # a snippet tunes: no other run sees it
    namespace: dict[str, object] = {}
    for snippet in blocks("python"):
        exec(compile(snippet, "README.md", "exec"), namespace)


def test_commands_exist() -> None:
    commands = [line.split("#")[0].split() for b in blocks("sh") for line in b.splitlines()]
    assert ["./dev", "demo"] in commands
    listing = subprocess.run(
        [str(ROOT / "dev"), "help"], capture_output=True, text=True, check=True
    )
    for command in commands:
        assert command[0] == "./dev"
        assert f"./dev {command[1]} " in listing.stdout


def test_demo_prints_one_compilation_for_each_layer() -> None:
    done = subprocess.run([str(ROOT / "dev"), "demo"], capture_output=True, text=True, check=True)
    counts = re.findall(r"compilations for all (\d+) sizes: (\d+)", done.stdout)
    assert len(counts) == 3
    assert all(int(n) > 1 and int(compilations) == 1 for n, compilations in counts)


def test_commands_named_in_the_text_work(tmp_path: Path) -> None:
    kernel = tmp_path / "mm.tc"
    kernel.write_text("def mm(float(M,K) A, float(K,N) B) -> (C) { C(i,j) +=! A(i,k) * B(k,j) }\n")
    sizes = "M=12,K=6,N=9"
    for command in (
        ["run", str(kernel), "--sizes", sizes, "--check"],
        ["show", str(kernel), "schedule"],
        ["doctor"],
    ):
        done = subprocess.run(
            [str(ROOT / "dev"), "python", "-m", "tcsym", *command], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
