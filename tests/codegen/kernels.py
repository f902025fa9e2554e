# SPDX-License-Identifier: Apache-2.0
"""Hand-built kernels that several tests use."""

from __future__ import annotations

from tcsym.frontend.program import Binary, Const, Read
from tcsym.index.expr import ceildiv, floordiv, minimum, var
from tcsym.ir.loops import Allocate, Buffer, Kernel, Loop, Store, Update, block
from tcsym.types import DType
from tests.codegen.harness import const, unrolled, vector


def matmul(rows: int, vectors: int, width: int, dtype: DType = DType.FLOAT32) -> Kernel:
    """C = A @ B by register tiles of rows x (vectors * width); B comes as panels Bp[j/w, k, w]."""
    m, n, k = var("M"), var("N"), var("K")
    panel = vectors * width
    a, c = Buffer("A", dtype, (m, k)), Buffer("C", dtype, (m, n))
    b = Buffer("Bp", dtype, (ceildiv(n, panel), k, const(panel)), padded=True)
    r = Buffer("R", dtype, (const(rows), const(panel)), space="register", padded=True)
    i, j, kk = var("i"), var("j"), var("k")

    def tile(tag: str, statement: object) -> Loop:
        p, u, lane = var("p" + tag), var("u" + tag), var("l" + tag)
        body = statement(p, width * u + lane)  # type: ignore[operator]
        mask = None if tag == "0" else n - panel * j - width * u
        lanes = unrolled(u.terms[0][0], vectors, vector(lane.terms[0][0], width, body, mask))  # type: ignore[arg-type]
        return unrolled(p.terms[0][0], rows, lanes, m - rows * i if tag == "2" else None)  # type: ignore[arg-type]

    zero = tile("0", lambda p, q: Store("R", (p, q), Const(0.0, dtype)))
    product = tile(
        "1",
        lambda p, q: Update(
            "R",
            (p, q),
            "add",
            Binary(
                "mul",
                Read("A", (minimum(rows * i + p, m - 1), kk), dtype),
                Read("Bp", (j, kk, q), dtype),
                dtype,
            ),
        ),
    )
    save = tile(
        "2", lambda p, q: Store("C", (rows * i + p, panel * j + q), Read("R", (p, q), dtype))
    )
    body = Allocate(("R",), block(zero, Loop("k", const(0), k, product, unroll=4), save))
    inner = Loop("i", const(0), ceildiv(m, rows), body)
    return Kernel(
        "matmul",
        ("M", "N", "K"),
        ("A", "Bp", "C"),
        (a, b, c, r),
        Loop("j", const(0), floordiv(n + panel - 1, panel), inner),
    )
