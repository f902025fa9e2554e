# SPDX-License-Identifier: Apache-2.0
"""PTX -> machine code of a device and its text, and what each function needs, by NVIDIA's tools.

It is looked for on the path, and in the package `nvidia-cuda-nvcc`. Nothing needs it: drivers
translate PTX.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from shutil import which

from msgspec import Struct

from tcsym.errors import TargetError


class Used(Struct, frozen=True):
    """What a function needs. registers: of a thread. spills: bytes that are stored for want of
    registers."""

    registers: int
    spills: int
    stack: int


class Assembled(Struct, frozen=True):
    """cubin: machine code. used: by function."""

    cubin: bytes
    used: dict[str, Used]


def assembler() -> str | None:
    found = which("ptxas")
    if found is None:
        try:
            packed = [f for f in files("nvidia-cuda-nvcc") or () if f.name == "ptxas"]
        except PackageNotFoundError:
            return None
        found = str(packed[0].locate()) if packed else None
    return found


def assembled(ptx: str, device: str) -> Assembled:
    """For a device, `sm_80`. Errors: TargetError without the assembler, or for what it refuses."""
    found = assembler()
    if found is None:
        hint = "it comes with the CUDA toolkit, and with the package nvidia-cuda-nvcc"
        raise TargetError("NVIDIA's `ptxas` was not found", hint=hint)
    with tempfile.TemporaryDirectory() as directory:
        text, code = Path(directory) / "k.ptx", Path(directory) / "k.cubin"
        text.write_text(ptx)
        told = _run(found, "-v", f"-arch={device}", str(text), "-o", str(code)).stderr
        parts = re.split(r"Compiling entry function '(\w+)'", told)[1:]
        used = {name: _used(told) for name, told in zip(parts[::2], parts[1::2], strict=True)}
        return Assembled(code.read_bytes(), used)


def disassembled(ptx: str, device: str) -> str:
    """The device's own instructions, by tools of NVIDIA's."""
    reader = which("nvdisasm") or which("cuobjdump")
    if assembler() is None or reader is None:
        missing = "ptxas" if assembler() is None else "nvdisasm"
        raise TargetError(
            f"stage `sass` needs NVIDIA's `{missing}`, which was not found",
            hint="it comes with the CUDA toolkit; `ptx` is there without",
        )
    with tempfile.TemporaryDirectory() as directory:
        code = Path(directory) / "k.cubin"
        code.write_bytes(assembled(ptx, device).cubin)
        return _run(reader, *(["-sass"] if reader.endswith("cuobjdump") else []), str(code)).stdout


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetError(f"`{Path(command[0]).name}` failed: {done.stderr.strip()[:500]}")
    return done


def _used(told: str) -> Used:
    def number(pattern: str) -> int:
        found = re.search(pattern, told)
        assert found, told
        return int(found[1])

    spills = number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads")
    return Used(number(r"Used (\d+) registers"), spills, number(r"(\d+) bytes stack frame"))
