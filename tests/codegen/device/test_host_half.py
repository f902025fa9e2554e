# SPDX-License-Identifier: Apache-2.0
"""The host's half of kernels for devices: what it launches, told by a run time of our own."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

import tcsym as tc
from tcsym.codegen import emit, object_code
from tcsym.compiler import analyse, compile_program
from tcsym.errors import TargetError
from tcsym.ir.compiled import CONTEXT_FIELDS, SYMBOL, Compiled
from tcsym.options import Options
from tcsym.runtime.loader import load_archive
from tcsym.runtime.memory import c_function
from tcsym.target.names import resolve_target
from tests.ir.device_kernels import CASES

TARGET = resolve_target("cuda:sm_90a")
KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)
LONG, POINTER = ctypes.c_int64, ctypes.c_void_p
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, POINTER, LONG, ctypes.POINTER(LONG), *[LONG] * 4)
MAPS = "def f(float(N,M) X) -> (Y, Z) { Y(i,j) = 2 * X(i,j)\n Z(j) +=! Y(i,j) }"
FAULT_WORD, ARENA, POOL = 0x1000, 0x2000, 0x3000  # of the device: the host does not look there


def compiled(text: str) -> Compiled:
    (program,) = analyse(text).values()
    dense = ("dense",) * (len(program.inputs) + len(program.outputs))
    return compile_program(program, TARGET, Options(), {}, dense)  # type: ignore[arg-type]


def launches(made: Compiled, sizes: list[int], fails: int = 0) -> tuple[int, list[Any]]:
    """The result of a call, and the launches in order, each with its words."""
    image, found = load_archive(made.object_code, c_function), list[Any]()

    def run(pool: int, function: int, words: Any, n: int, *shape: int) -> int:
        assert pool == POOL
        found.append((made.device_functions[function], words[:n], *shape))
        return fails

    kept = RUN(run)
    fields = dict(parallel_for=ctypes.cast(kept, POINTER).value, pool=POOL, threads=1)
    fields |= {"shared_arena": ARENA, "private_arena": 0, "private_bytes": 0}
    fields["fault_word"] = FAULT_WORD
    context = (LONG * len(CONTEXT_FIELDS))(*(fields[name] for name in CONTEXT_FIELDS))
    n = len(made.arguments)
    buffers = (LONG * n)(*(0x10000 * (k + 1) for k in range(n)))
    values = (LONG * len(sizes))(*sizes)
    result = KERNEL(image.address(SYMBOL))(buffers, values, context)
    return result, found


def test_a_launch_passes_words_and_a_shape() -> None:
    kernel = CASES["transposition"].kernel
    made = emit(kernel, TARGET, 1)
    code = object_code(made.ir_text, TARGET)
    rest = kernel.sizes, kernel.arguments, made.faults, made.shared_bytes, made.private_bytes
    host = Compiled(code, *rest, device_functions=("tcsym_task0",))
    words = [FAULT_WORD, 5, 9, 0x10000, 0x20000]
    assert launches(host, [5, 9]) == (0, [("tcsym_task0", words, 2 * 3, 16, 128)])
    assert launches(host, [5, 9], fails=-2)[0] == -2


def test_functions_are_those_of_the_code_for_the_device() -> None:
    made = compiled(MAPS)
    assert all(f".entry {name}(" in made.device_code.decode() for name in made.device_functions)
    result, found = launches(made, [3, 1000])
    assert result == 0 and len(found) == 2
    (_, map_words, *_), (_, sum_words, *_) = found
    assert map_words[-2:] == [0x10000, 0x20000] and sum_words[-2:] == [0x20000, 0x30000]


def test_stages_of_devices() -> None:
    kernel = tc.define(MAPS, target="cuda:sm_90a")
    text = kernel.explain("cuda")
    assert "__global__ void __launch_bounds__(256) tcsym_task0(int32 " in text
    assert "blockIdx.x" in text and "threadIdx.x" in text and "tcsym_task0<<<" in text
    assert ".target sm_90a" in kernel.explain("ptx")
    assert "nvptx64-nvidia-cuda" in kernel.explain("llvm")
    assert SYMBOL in kernel.explain("asm")


def test_stages_that_need_a_device_or_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TargetError, match="`ptxas`, which was not found"):
        tc.define(MAPS, target="cuda:sm_80").explain("sass")
    with pytest.raises(TargetError, match="needs a CUDA target"):
        tc.define(MAPS).explain("ptx")
