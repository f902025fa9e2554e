# SPDX-License-Identifier: Apache-2.0
"""What LLVM makes of vector code: the instructions of hot loops, without spills."""

from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.codegen import assembly, emit
from tcsym.frontend.program import Binary, Call, Const, Read
from tcsym.index.expr import ZERO, floordiv, var
from tcsym.ir.loops import Buffer, Kernel, Loop, Store, Value
from tcsym.ir.traverse import map_node, substitute_value
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.codegen.harness import TARGETS, Launches, elementwise, load, vector
from tests.codegen.kernels import matmul

F32 = DType.FLOAT32
CASES = [
    ("cpu:avx2", 6, 2, DType.FLOAT32),
    ("cpu:avx2", 4, 2, DType.FLOAT64),
    ("cpu:avx512", 6, 4, DType.FLOAT32),
    ("cpu:avx512", 8, 3, DType.FLOAT32),
]


def listing(kernel: object, target: str) -> str:
    resolved = resolve_target(target)
    return assembly(emit(kernel, resolved, 1).ir_text, resolved)  # type: ignore[arg-type]


def vector_name(target: str) -> str:
    return "zmm" if target == "cpu:avx512" else "ymm"


@pytest.mark.parametrize(("target", "rows", "vectors", "dtype"), CASES)
def test_register_tile(target: str, rows: int, vectors: int, dtype: DType) -> None:
    """Fused multiply-adds on whole registers, four copies of k and the rest; no spilled vector."""
    width = resolve_target(target).machine.lanes(dtype.bits)
    register = vector_name(target)
    text = listing(matmul(rows, vectors, width, dtype), target)
    fused = re.findall(rf"vfmadd\d+p[sd]\s.*%{register}", text)
    assert len(fused) == 5 * rows * vectors
    hot = [b for b in re.split(r"^\.LBB", text, flags=re.MULTILINE) if "vfmadd" in b]
    assert len(hot) == 2
    for block in hot:
        loop = block[: block.rindex("vfmadd")]
        assert not re.search(rf"\(%rsp\).*%{register}|%{register}.*\(%rsp\)", loop)
        assert not re.search(rf"vmovap[sd]\s+%{register}", loop)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64], ids=str)
def test_matmul_is_right(dtype: DType, target: str) -> None:
    width = max(resolve_target(target).machine.lanes(dtype.bits), 4)
    run = load(matmul(6, 2, width, dtype), target)
    panel, rng = 2 * width, np.random.default_rng(0)
    for m, n, k in (
        (1, 1, 1),
        (6, 16, 4),
        (7, 17, 5),
        (13, 50, 33),
        (0, 5, 5),
        (5, 0, 5),
        (5, 5, 0),
    ):
        a, b = rng.random((m, k)).astype(dtype.numpy), rng.random((k, n)).astype(dtype.numpy)
        packed = np.zeros((-(-n // panel), k, panel), dtype.numpy)
        for j in range(n):
            packed[j // panel, :, j % panel] = b[:, j]
        c = np.full((m, n), np.nan, dtype.numpy)
        assert run({"A": a, "Bp": packed, "C": c}, {"M": m, "N": n, "K": k}) == 0
        np.testing.assert_allclose(c, a @ b, rtol=1e-5)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_exp_and_maximum_are_vectors(target: str) -> None:
    """No calls, no scalar arithmetic: max(exp(A), B) in whole registers."""
    a, b = (Read(x, (var("i"),), DType.FLOAT32) for x in "AB")
    value: Value = Binary("max", Call("exp", (a,), DType.FLOAT32), b, DType.FLOAT32)
    width = resolve_target(target).machine.lanes(32)
    kernel = elementwise(value, DType.FLOAT32, {"A": DType.FLOAT32, "B": DType.FLOAT32}, width)
    text = listing(kernel, target)
    assert set(re.findall(r"callq\s+(\S+)", text)) <= {"tcsym_kernel.body"}
    assert not re.search(r"v(add|mul|max|min|fmadd\d+)ss\s", text)
    assert f"%{vector_name(target)}" in text


def test_relu_is_one_instruction() -> None:
    """A maximum with a constant, which is not NaN, needs no compare."""
    read = Read("A", (var("i"),), DType.FLOAT32)
    value = Binary("max", read, Const(0.0, DType.FLOAT32), DType.FLOAT32)
    text = listing(elementwise(value, DType.FLOAT32, {"A": DType.FLOAT32}, 8), "cpu:avx2")
    assert "vmaxps" in text and "vcmp" not in text


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_halves_use_the_conversion_instructions(target: str) -> None:
    half = DType.FLOAT16
    value = Binary("add", Read("A", (var("i"),), half), Read("B", (var("i"),), half), half)
    text = listing(elementwise(value, half, {"A": half, "B": half}, 8), target)
    assert "vcvtph2ps" in text and "vcvtps2ph" in text


def test_without_vectors_nothing_wider_than_sse2() -> None:
    text = listing(matmul(4, 1, 4), "cpu:novector")
    assert "%ymm" not in text and "%zmm" not in text and "vfmadd" not in text


def streamed(width: int) -> Kernel:
    """O = X + 1, streamed, on threads. One row a task."""
    value = Binary("add", Read("X", (var("i"), var("j")), F32), Const(1.0, F32), F32)
    place = (var("i"), width * var("s") + var("j"))
    value = substitute_value(value, {"j": place[1]})
    lanes = vector("j", width, Store("O", place, value, streamed=True))
    strips = Loop("s", ZERO, floordiv(var("N"), width), lanes, "serial", "parallel")
    nest = Loop("i", ZERO, var("M"), strips, "parallel", "parallel", work=var("N"))
    shape = (var("M"), var("N"))
    buffers = (Buffer("X", F32, shape), Buffer("O", F32, shape, phase="O.phase"))
    return Kernel("streamed", ("M", "N"), ("X", "O"), buffers, nest)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
def test_streamed_stores_bypass_the_cache_and_are_fenced(target: str) -> None:
    """Quarters of a line, in the loop; one fence at the end of each task."""
    width = resolve_target(target).machine.lanes(32)
    text = listing(streamed(width), target)
    assert len(re.findall(r"vmovntps\s+%xmm", text)) == width // 4
    assert text.count("sfence") == 2  # of the task, and of the kernel
    plain = map_node(
        streamed(width).body, lambda n: replace(n, streamed=False) if isinstance(n, Store) else n
    )
    text = listing(replace(streamed(width), body=plain), target)
    assert "vmovnt" not in text and "sfence" not in text


@pytest.mark.parametrize("target", TARGETS)
def test_streamed_results(target: str) -> None:
    width = max(4, resolve_target(target).machine.lanes(32))
    run, rng = load(streamed(width), target), np.random.default_rng(0)
    for m, n in ((1, width), (5, 4 * width)):
        x = rng.standard_normal((m, n)).astype(np.float32)
        memory = np.zeros(m * n + 16, np.float32)
        start = -memory.ctypes.data // 4 % 4  # 16 bytes, not 32
        out = memory[start : start + m * n].reshape(m, n)
        assert (
            run({"X": x, "O": out}, {"M": m, "N": n}, threads=2, launches=Launches(threaded=True))
            == 0
        )
        np.testing.assert_array_equal(out, x + np.float32(1))
