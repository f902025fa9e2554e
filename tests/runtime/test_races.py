# SPDX-License-Identifier: Apache-2.0
"""Orders of the pool's shared words, as ThreadSanitizer sees them: enough, and none too many.

It follows what C11 promises, so that it finds on x86-64 what only AArch64 would show.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "tcsym" / "native"
POOL = {name: (NATIVE / name).read_text() for name in ("pool.c", "pool.h")}
STRONG = [
    pytest.param(name, m.start(), m.end(), id=f"{name}:{text[: m.start()].count(chr(10)) + 1}")
    for name, text in POOL.items()
    for m in re.finditer(r"memory_order_(?!relaxed)\w+", text)
]


def compiled(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["cc", "-std=gnu11", "-g", "-O2", "-fsanitize=thread", "-pthread", "-o"]
    return subprocess.run(
        [*command, folder / "made", *words], capture_output=True, text=True, cwd=folder
    )


def ran(folder: Path) -> subprocess.CompletedProcess[str]:
    """Up to the first race."""
    options = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}
    return subprocess.run(
        [folder / "made"], capture_output=True, text=True, timeout=100, env=options
    )


def ran_with(folder: Path, pool: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in pool.items():
        (folder / name).write_text(text)
    made = compiled(folder, "pool.c", HERE / "races.c", "-I.", f"-I{NATIVE}")
    assert made.returncode == 0, made.stderr
    return ran(folder)


@pytest.fixture(scope="module", autouse=True)
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("sanitizer")
    (folder / "none.c").write_text("int main(void) { return 0; }\n")
    made = compiled(folder, "none.c")
    if made.returncode or (made := ran(folder)).returncode:
        pytest.skip(f"programs of this compiler run under no ThreadSanitizer: {made.stderr[-200:]}")


def test_no_two_threads_race_for_memory(tmp_path: Path) -> None:
    done = ran_with(tmp_path, POOL)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("name", "begin", "end"), STRONG)
def test_every_order_is_needed(tmp_path: Path, name: str, begin: int, end: int) -> None:
    weaker = POOL[name][:begin] + "memory_order_relaxed" + POOL[name][end:]
    done = ran_with(tmp_path, {**POOL, name: weaker})
    assert "ThreadSanitizer: data race" in done.stderr
