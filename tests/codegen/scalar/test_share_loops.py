# SPDX-License-Identifier: Apache-2.0
"""Large loops are functions; loops that differ in parameters only share one."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import tcsym
from tcsym.codegen.emit import begin
from tcsym.codegen.scalar.alike import Alike
from tcsym.compiler import analyse
from tcsym.frontend.program import Binary, Read
from tcsym.index.expr import Index, floordiv, index, var
from tcsym.ir.loops import Block, Buffer, Kernel, Loop, Store
from tcsym.options import Options
from tcsym.proved import schedule_program
from tcsym.schedule.map_cpu import map_cpu
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.schedule import naive

AVX2 = resolve_target("cpu:avx2")
F32 = DType.FLOAT32


def product(k: int, a: str, b: str) -> str:
    return f"  Y{k}(m,n) +=! {a}(m,k) * {b}(n,k)\n"


def text(*lines: str) -> str:
    outputs = ", ".join(f"Y{k}" for k in range(len(lines)))
    head = "float(M,K) A, float(M,L) B, float(N,K) C, float(N,K) F, float(N,L) D"
    return f"def several({head}) -> ({outputs}) {{\n{''.join(lines)}}}"


ONCE = text(product(0, "A", "C"))
THRICE = text(product(0, "A", "C"), product(1, "B", "D"), product(2, "A", "F"))


def ir_of(source: str) -> str:
    return tcsym.define(source, target="cpu:avx2", strategy="symbolic").explain("llvm")


def functions(ir: str) -> list[str]:
    return [x for x in ir.split("\n") if x.startswith("define void @part")]


def test_products_of_other_operands_and_sizes_share_their_functions() -> None:
    ir = ir_of(THRICE)
    assert len(functions(ir)) == 3  # tiles, packing, and products along the sum
    assert ir.count("call void @part") == 9
    assert not functions(ir_of(ONCE))


def test_layers_whose_sizes_coincide_share_the_functions_of_those_whose_do_not() -> None:
    square = text(product(0, "A", "C"), "  Y1(m,n) +=! Y0(m,k) * E(n,k)\n")
    square = square.replace("float(N,L) D)", "float(N,N) E)").replace("float(M,L) B, ", "")
    ir = ir_of(square)
    pointers = sorted(x.count("ptr") for x in functions(ir))
    assert pointers == [2, 3]  # packing, and tiles
    assert ir.count("call void @part") == 4


def test_shared_functions_compute_what_the_program_says() -> None:
    kernel = tcsym.define(THRICE, strategy="symbolic")
    rng = np.random.default_rng(0)
    m, n, k, l = 37, 53, 29, 71  # noqa: E741
    shapes = ((m, k), (m, l), (n, k), (n, k), (n, l))
    arrays = [rng.standard_normal(s, dtype=np.float32) for s in shapes]
    for ours, expected in zip(kernel(*arrays), kernel.reference(*arrays)):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def nest(i: str, source: str, target: str, row: Index, factor: float = 2.0) -> Loop:
    """target[i, row] = factor * source[i, row] for i < N."""
    at = (var(i), row)
    value = Binary("mul", naive.con(factor), Read(source, at, F32), F32)
    return Loop(i, index(0), var("N"), Store(target, at, value))


def kernel_of(*loops: Loop) -> Kernel:
    buffers = (
        Buffer("X", F32, (var("N"), var("M"))),
        Buffer("Y", F32, (var("N"), var("M"))),
        Buffer("Z", F32, (var("N"), var("K"))),
    )
    return Kernel("k", ("N", "M", "K"), ("X", "Y", "Z"), buffers, Block(loops))


def alike(a: Loop, b: Loop) -> bool:
    k = kernel_of(a, b)
    buffers = {x.name: x for x in k.buffers}
    forms = []
    for loop in (a, b):
        names = Alike(k, buffers, loop)
        body = names.node(loop)
        forms.append((body, list(names.buffers.values())))
    return forms[0] == forms[1]


def test_alike_are_loops_over_other_names_sizes_and_rows() -> None:
    a = nest("i", "X", "Y", var("N"))
    assert alike(a, nest("j", "X", "Z", var("N")))
    assert alike(a, replace(nest("j", "X", "Y", var("N")), upper=var("K")))
    assert alike(nest("i", "X", "Y", var("s") + 1), nest("j", "X", "Z", var("t") + 1))


@pytest.mark.parametrize(
    "other",
    [
        nest("j", "X", "X", var("N")),
        nest("j", "X", "Y", var("j")),
        nest("j", "X", "Y", var("N"), 3.0),
        replace(nest("j", "X", "Y", var("N")), lower=index(1)),
        replace(nest("j", "X", "Y", var("N")), unroll=2),
    ],
)
def test_not_alike_are_loops_that_do_something_else(other: Loop) -> None:
    assert not alike(nest("i", "X", "Y", var("N")), other)


def test_offsets_are_simplified_before_strides_become_parameters() -> None:
    x = var("i")
    row = floordiv(x, var("M"))
    rows = (row, x - row * var("M"))
    loop = Loop("i", index(0), var("N"), Store("Y", rows, Read("X", rows, F32)))
    k = kernel_of(loop)
    store = Alike(k, {b.name: b for b in k.buffers}, loop).node(loop).body
    (offset,) = store.subscripts
    assert str(offset) == "s2 + v0"


def test_what_may_fail_stays_in_place() -> None:
    source = (
        "def f(float(N,K) X, int32(M) I, float(K,L) W) -> (Y) { Y(m,l) +=! X(I(m),k) * W(k,l) }"
    )
    kernel = tcsym.define(source, strategy="symbolic")
    x = np.ones((3, 40), np.float32)
    w = np.ones((40, 50), np.float32)
    with pytest.raises(tcsym.BoundsError):
        kernel(x, np.full(20, 7, np.int32), w)
    assert float(kernel(x, np.full(20, 2, np.int32), w)[3, 4]) == 40.0


def test_code_without_vectors_stays_one_function() -> None:
    kernel = tcsym.define(THRICE, target="cpu:novector", strategy="symbolic")
    assert not functions(kernel.explain("llvm"))


def test_functions_come_before_those_that_call_them() -> None:
    """Modules are linked in this order; shared functions call what moves clipped blocks."""
    source = """def f(float(D,E,G,A) X, float(G,F,B,C) Y) -> (Z) {
  Z(a,b,c,d,e,f) +=! X(d,e,g,a) * Y(g,f,b,c)
}"""
    target, p = resolve_target("cpu:avx512"), analyse(source)["f"]
    kernel = map_cpu(schedule_program(p, Options(), {}).kernel, target.machine, Options()).kernel
    emission = begin(kernel, target, 1)
    order = {name: k for k, name in enumerate(emission.names)}
    texts = [emission.text(name) for name in emission.names]
    assert any("define void @part" in x and "call void @tcsym_transpose32" in x for x in texts)
    assert all(order[x] < order[name] for name in order for x in emission.calls(name))
