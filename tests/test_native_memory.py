# SPDX-License-Identifier: Apache-2.0
"""Making code leaves nothing behind in native memory: bytes that the allocator gave are counted.

Without that, whoever makes programs as data come fills the memory of a process that runs long.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import numpy as np
import pytest

import tcsym
from tcsym.target.cpu import X86_64
from tcsym.target.llvm import Module, target_machine

LOOP = """
define void @f(ptr %x, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %at = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %at
  %twice = fmul float %v, 2.0
  store float %twice, ptr %at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


class _Allocated(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = (
        *((f"other{k}", ctypes.c_size_t) for k in range(4)),
        ("mapped", ctypes.c_size_t),
        *((f"other{k}", ctypes.c_size_t) for k in range(5, 7)),
        ("in_arenas", ctypes.c_size_t),
        *((f"other{k}", ctypes.c_size_t) for k in range(8, 10)),
    )


def _in_use() -> int:
    """Bytes that `malloc` gave, and nobody freed."""
    gc.collect()
    counts = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if counts is None:
        pytest.skip("only glibc >= 2.33 says what is in use")
    counts.restype = _Allocated
    now = counts()
    return int(now.in_arenas + now.mapped)


def _left_by(make: Callable[[int], None], first: int, times: int) -> float:
    """Bytes that each call left behind, once `first` of them had made what is made once."""
    for k in range(first):
        make(k)
    before = _in_use()
    for k in range(first, first + times):
        make(k)
    return (_in_use() - before) / times


@pytest.mark.parametrize("passes", ["inline sroa instruction_combine simplify_cfg", ""])
def test_a_module_leaves_nothing_behind(passes: str) -> None:
    made = set[bytes]()

    def make(k: int) -> None:
        with target_machine(X86_64, "x86-64-v3") as machine, Module(LOOP) as module:
            module.target(machine)
            if passes:
                module.run(passes.split(), machine)
            else:
                module.optimise(machine, vectorise=True)
            made.add(module.emitted(machine))

    assert _left_by(make, 32, 64) < 400
    assert len(made) == 1


def test_definitions_leave_nothing_behind() -> None:
    x = np.ones((3, 3), np.float32)

    def make(k: int) -> None:
        program = tcsym.define(f"def f(float(N,M) X) -> (Y) {{ Y(i,j) = {k}.5*X(i,j) }}")
        assert program(x)[0, 0] == k + 0.5
        assert program.stats.compilations

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TCSYM_CACHE", "0")
        assert _left_by(make, 8, 16) < 3000
