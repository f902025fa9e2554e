# SPDX-License-Identifier: Apache-2.0
"""The printer of the loop IR and its verifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tcsym.codegen import assembly, emit
from tcsym.frontend.program import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    IndexValue,
    Read,
    Select,
    Unary,
)
from tcsym.index.expr import ceildiv, eq, floordiv, ge, maximum, minimum, mod, var
from tcsym.ir.loops import (
    Allocate,
    Branch,
    Buffer,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Verify,
    block,
)
from tcsym.ir.text import kernel_text
from tcsym.ir.verify import InternalError, verify
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.codegen.harness import const, unrolled, vector
from tests.codegen.kernels import matmul

GOLDEN = Path(__file__).parent / "golden"
F32, N = DType.FLOAT32, var("N")
AT = 8 * var("t") + var("l")


def everything() -> Kernel:
    """One of each construct."""
    x = Buffer("X", F32, (N, N), strides=(var("X.stride0"), const(1)))
    p = Buffer("P", DType.INT64, (N,))
    o = Buffer("O", F32, (N, ceildiv(N, 8) * 8), padded=True)
    s = Buffer("S", F32, (N,), space="arena", private=frozenset({"i"}))
    r = Buffer("R", F32, (const(8),), space="register")
    i, k = var("i"), var("k")
    gather = Read("X", (Read("P", (AT,), DType.INT64), i), F32, checked=(True, False))
    value = Select(Holds(ge(AT, 3)), gather, Unary("neg", Const(0.5, F32), F32), F32)
    lanes = vector(
        "l",
        8,
        block(
            Store("R", (var("l"),), Call("exp", (value,), F32), "E"),
            Update("S", (AT,), "max", Read("R", (var("l"),), F32)),
            Branch(eq(mod(AT, 2), 0), Verify(gather)),
        ),
        N - 8 * var("t"),
    )
    across = HorizontalReduce("add", "h", 8, Read("R", (var("h"),), F32), F32)
    both = Binary(
        "and",
        Compare("lt", Read("P", (i,), DType.INT64), IndexValue(N, DType.INT64)),
        Compare("ne", across, Const(0.0, F32)),
        DType.BOOL,
    )
    last = Store("O", (i, const(0)), Cast(Cast(both, DType.FLOAT16), F32))
    rows = Allocate(
        ("R",),
        block(
            Loop("t", const(0), ceildiv(N, 8), lanes, order="reduction"),
            last,
            unrolled(
                "u", 2, Update("O", (i, var("u")), "mul", Read("S", (minimum(i, 7),), F32)), N - i
            ),
        ),
    )
    body = Loop("i", const(0), N, Allocate(("S",), rows), "parallel", "parallel", work=8 * N)
    move = Loop(
        "k", const(0), N, TransposeBlock("O", (k, k), "X", (k, k), N - k, N - k, 8), unroll=2
    )
    sizes = ("N", "X.stride0")
    return Kernel("everything", sizes, ("X", "P", "O"), (x, p, o, s, r), block(body, move))


@pytest.mark.parametrize("kernel", [everything(), matmul(6, 2, 8)], ids=lambda k: k.name)
def test_text(kernel: Kernel, update_golden: bool) -> None:
    verify(kernel)
    path = GOLDEN / f"{kernel.name}.txt"
    if update_golden:
        path.write_text(kernel_text(kernel))
    assert kernel_text(kernel) == path.read_text()


def test_long_formulas_that_occur_again_have_names() -> None:
    panel = maximum(1, minimum(ceildiv(N, 64), 4))
    blocks = ceildiv(N, 16) + panel * var("M") - 1
    row = Store("O", (var("i") + panel,), Const(0.0, F32))
    kernel = Kernel(
        "f",
        ("N", "M"),
        ("O",),
        (Buffer("O", F32, (floordiv(blocks, panel),)),),
        Loop("i", const(0), minimum(floordiv(blocks, panel), 7), row, "serial"),
    )
    assert kernel_text(kernel).splitlines() == [
        "kernel f(N, M) O",
        "  $1 = max(1, min((N + 63)/64, 4))",
        "  $2 = ($1*M + (N + 15)/16 - 1)/$1",
        "  O float32[$2] argument",
        "serial i in 0:min($2, 7)",
        "  O[$1 + i] = 0.0",
    ]


@pytest.mark.parametrize("target", ["cpu:avx512", "cpu:avx2", "cpu:novector"])
def test_everything_compiles_for_every_target(target: str) -> None:
    resolved = resolve_target(target)
    assert "tcsym_kernel" in assembly(emit(everything(), resolved, 1).ir_text, resolved)


def wrong(body: Node, *buffers: Buffer) -> Kernel:
    o = Buffer("O", F32, (N,))
    return Kernel("wrong", ("N",), ("O",), (o, *buffers), body)


def store(subscript: Any, value: Any = None, buffer: str = "O") -> Store:
    return Store(buffer, (subscript,), value or Const(0.0, F32))


I = var("i")  # noqa: E741
REGISTER = Buffer("R", F32, (const(8),), space="register")
BAD = {
    "not unique": block(Loop("i", const(0), N, store(I)), Loop("i", const(0), N, store(I))),
    "unknown \\['j'\\]": Loop("i", const(0), N, store(var("j"))),
    "unknown \\['i'\\]": Loop("i", I, N, store(I)),
    "unknown buffer Q": store(const(0), buffer="Q"),
    "not allocated": store(const(0), buffer="R"),
    "allocated twice": Allocate(("R",), Allocate(("R",), store(const(0)))),
    "an argument is allocated": Allocate(("O",), store(const(0))),
    "rank of O": Store("O", (I, I), Const(0.0, F32)),
    "a float64 value": store(const(0), Const(0.0, DType.FLOAT64)),
    "constant subscripts": Allocate(("R",), Loop("i", const(0), N, store(I, buffer="R"))),
    "not constant from 0": Loop("i", const(0), N, store(I), kind="unrolled"),
    "no power of two": Loop("i", const(0), const(6), store(I), kind="vector"),
    "inside a vector loop": vector("l", 8, vector("m", 8, store(var("m")))),
    "varies with the lane": vector("l", 8, Loop("i", const(0), var("l"), store(I))),
    "a mask on a loop": replace(Loop("i", const(0), N, store(I)), mask=N),
    "unroll factor": Loop("i", const(0), N, store(I), unroll=0),
}


@pytest.mark.parametrize("text", BAD)
def test_ill_formed_kernels_are_refused(text: str) -> None:
    with pytest.raises(InternalError, match=text):
        verify(wrong(BAD[text], REGISTER))


def test_ill_formed_buffers_are_refused() -> None:
    with pytest.raises(InternalError, match="without a constant shape"):
        verify(wrong(store(const(0)), Buffer("S", F32, (N,), space="stack")))
    with pytest.raises(InternalError, match="shape that varies"):
        verify(wrong(store(const(0)), Buffer("S", F32, (I,), space="arena")))
    with pytest.raises(InternalError, match="never passed"):
        verify(wrong(store(const(0)), Buffer("S", F32, (N,))))
