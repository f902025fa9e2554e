"""NVIDIA's assembler, if it is here: on the path, or from the package `nvidia-cuda-nvcc`."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from shutil import which

from msgspec import Struct


class Used(Struct, frozen=True):
    """What a function needs. spills: bytes that are stored for want of registers."""

    registers: int
    spills: int
    stack: int


@lru_cache(None)
def assembler() -> str | None:
    found = which("ptxas")
    if found is None:
        try:
            packed = [f for f in files("nvidia-cuda-nvcc") or () if f.name == "ptxas"]
        except PackageNotFoundError:
            return None
        found = str(packed[0].locate()) if packed else None
    return found


def assembled(ptx: str, device: str, directory: Path) -> dict[str, Used]:
    """What each function of the text needs on that device. AssertionError if it is no PTX."""
    text = directory / "k.ptx"
    text.write_text(ptx)
    command = [
        str(assembler()),
        "-v",
        f"-arch={device}",
        str(text),
        "-o",
        str(directory / "k.cubin"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"Compiling entry function '(\w+)'", done.stderr)[1:]
    return {name: _used(told) for name, told in zip(parts[::2], parts[1::2], strict=True)}


def _used(told: str) -> Used:
    def number(pattern: str) -> int:
        found = re.search(pattern, told)
        assert found, told
        return int(found[1])

    spills = number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")
    return Used(number(r"Used (\d+) registers"), spills, number(r"(\d+) bytes stack frame"))
