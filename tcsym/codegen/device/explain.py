"""Mapped kernel -> a stage behind it as text: of the host's half, or of the device's."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from shutil import which

from tcsym.codegen.device.c_text import c_text
from tcsym.codegen.device.ptxas import assembled, assembler
from tcsym.codegen.emit import emit
from tcsym.codegen.object_code import assembly
from tcsym.errors import TargetError
from tcsym.ir.loops import Kernel
from tcsym.target.target import Target


def explain_device(stage: str, kernel: Kernel, target: Target, min_work_per_thread: int) -> str:
    """`llvm`: both halves. `asm`: the host's. `cuda`, `ptx`, `sass`: the device's."""
    if stage == "cuda":
        return c_text(kernel)
    made = emit(kernel, target, min_work_per_thread)
    if stage == "llvm":
        return f"{made.device_text}\n{made.ir_text}"
    if stage == "asm":
        return assembly(made.ir_text, target)
    ptx = assembly(made.device_text, target)
    return ptx if stage == "ptx" else _disassembled(ptx, target.cpu)


def _disassembled(ptx: str, device: str) -> str:
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
        options = ["-sass"] if reader.endswith("cuobjdump") else []
        command = [reader, *options, str(code)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TargetError(f"`{Path(reader).name}` failed: {done.stderr.strip()[:500]}")
    return done.stdout
