# SPDX-License-Identifier: Apache-2.0
"""Kernels for devices, written by hand as a mapping would make them; numpy says what they compute.

Tiles are as small as the threads of a warp let them be, so that small sizes are ragged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tcsym.frontend.program import Cast, Expr, Select
from tcsym.index.expr import Condition, Index, all_of, ceildiv, eq, floordiv, index, lt, mod, var
from tcsym.ir.device import (
    WARP,
    Barrier,
    BeginCopy,
    CommitCopies,
    LoadMatrices,
    MatrixMultiply,
    WaitCopies,
    held,
    n_held,
)
from tcsym.ir.loops import (
    Branch,
    Buffer,
    Holds,
    Kernel,
    Loop,
    LoopKind,
    Node,
    Shuffle,
    Space,
    Store,
    Update,
    block,
)
from tcsym.ir.loops import allocated as around
from tcsym.types import DType
from tests.schedule.naive import con, op, rd, st, up, v

F32, BF16 = DType.FLOAT32, DType.BFLOAT16
Arrays = Mapping[str, np.ndarray]


class Case(Struct, frozen=True):
    """A kernel, shapes of its arrays at given sizes, and what its last argument becomes."""

    kernel: Kernel
    shapes: Callable[..., tuple[tuple[int, ...], ...]]
    result: Callable[..., np.ndarray]
    sizes: Sequence[Mapping[str, int]]
    tolerance: float = 1e-5

    def arrays(self, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(7)
        shapes = dict(zip(self.kernel.arguments, self.shapes(**sizes), strict=True))
        types = {b.name: b.dtype.numpy for b in self.kernel.buffers}
        return {n: rng.uniform(-1, 1, s).astype(types[n]) for n, s in shapes.items()}


def loop(kind: LoopKind, name: str, upper: Index | int, *body: Node) -> Loop:
    order = "parallel" if kind == "block" else "sequential"
    return Loop(name, index(0), index(upper), block(*body), kind, order)


def inside(places: Sequence[Index], extents: Sequence[Index]) -> Condition:
    return all_of(lt(p, e) for p, e in zip(places, extents, strict=True))


def temporary(name: str, space: Space, *shape: int, dtype: DType = F32) -> Buffer:
    return Buffer(name, dtype, tuple(map(index, shape)), space)


def argument(name: str, shape: str, dtype: DType = F32) -> Buffer:
    return Buffer(name, dtype, v(shape))


def made(name: str, sizes: str, buffers: Sequence[Buffer], body: Node) -> Kernel:
    arguments = tuple(b.name for b in buffers if b.space == "argument")
    return Kernel(name, tuple(sizes.split()), arguments, tuple(buffers), body)


def allocated(names: str, *body: Node) -> Node:
    node = block(*body)
    for name in reversed(names.split()):
        node = around(name, node)
    return node


def or_zero(condition: Condition, value: Expr) -> Expr:
    return Select(Holds(condition), value, con(0.0), F32)  # type: ignore[arg-type]


M, N, K = v("M N K")
I, J, T = v("i j t")  # noqa: E741
MATMUL_SIZES = [dict(M=m, N=n, K=k) for m, n, k in ((5, 3, 6), (4, 8, 4), (1, 1, 1), (7, 5, 9))]


def matmul() -> Case:
    """Panels of both operands in shared memory, two barriers a step."""
    tile = 4
    row, column, first = tile * var("bi") + I, tile * var("bj") + J, tile * var("ko")
    left, right = (row, first + J), (first + I, column)
    step = loop(
        "serial",
        "ko",
        ceildiv(K, tile),
        st("P", (I, J), or_zero(inside(left, (M, K)), rd("A", *left))),
        st("Q", (I, J), or_zero(inside(right, (K, N)), rd("B", *right))),
        Barrier(),
        loop("serial", "k", tile, up("S", (0,), "add", panel_term())),
        Barrier(),
    )
    work = allocated(
        "S",
        st("S", (0,), con(0.0)),
        step,
        Branch(inside((row, column), (M, N)), st("C", (row, column), rd("S", 0))),
    )
    return in_tiles("matmul", tile, 0, work)


def panel_term(*stage: Index) -> Expr:
    k = var("k")
    return op("mul", rd("P", *stage, I, k), rd("Q", *stage, k, J))


def in_tiles(name: str, tile: int, stages: int, work: Node) -> Case:
    """A product of matrices, a block of threads to a tile of the result."""
    threads = loop("thread", "i", tile, loop("thread", "j", tile, work))
    grid = loop("block", "bj", ceildiv(N, tile), allocated("P Q", threads))
    shape = (stages, tile, tile) if stages else (tile, tile)
    buffers = [
        argument("A", "M K"),
        argument("B", "K N"),
        argument("C", "M N"),
        temporary("P", "shared", *shape),
        temporary("Q", "shared", *shape),
        temporary("S", "register", 1),
    ]
    return Case(
        made(name, "M N K", buffers, loop("block", "bi", ceildiv(M, tile), grid)),
        lambda M, N, K: ((M, K), (K, N), (M, N)),
        lambda A, B, C: A @ B,
        MATMUL_SIZES,
    )


def pipelined(stages: int = 3, pending: int | None = None, ahead: int | None = None) -> Case:
    """As `matmul`, with panels copied `ahead` steps before they are used, one barrier a step."""
    tile = 4
    ahead = stages - 1 if ahead is None else ahead
    row, column = tile * var("bi") + I, tile * var("bj") + J

    def begin(step: Index) -> tuple[Node, ...]:
        stage, first = mod(step, stages), tile * step
        left, right = (row, first + J), (first + I, column)
        return (
            BeginCopy("P", (stage, I, J), "A", left, 1, inside(left, (M, K))),
            BeginCopy("Q", (stage, I, J), "B", right, 1, inside(right, (K, N))),
            CommitCopies(),
        )

    ko = var("ko")
    now = mod(ko, stages)
    work = allocated(
        "S",
        st("S", (0,), con(0.0)),
        loop("serial", "kp", ahead, *begin(var("kp"))),
        loop(
            "serial",
            "ko",
            ceildiv(K, tile),
            WaitCopies(ahead - 1 if pending is None else pending),
            Barrier(),
            *begin(ko + ahead),
            loop("serial", "k", tile, up("S", (0,), "add", panel_term(now))),
        ),
        WaitCopies(),
        Branch(inside((row, column), (M, N)), st("C", (row, column), rd("S", 0))),
    )
    return in_tiles(f"pipelined_{stages}", tile, stages, work)


def row_sums() -> Case:
    """A row of a matrix to a block of two warps: sums by shuffles, then through shared memory."""
    width = 2 * WARP
    row, column = var("r"), width * var("c") + T
    across = [
        Update("S", (index(0),), "add", Shuffle("across", d, rd("S", 0), F32))
        for d in (16, 8, 4, 2, 1)
    ]
    both = op("add", rd("P", 0), rd("P", 1))
    work = allocated(
        "S",
        st("S", (0,), con(0.0)),
        loop(
            "serial",
            "c",
            ceildiv(N, width),
            Branch(lt(column, N), up("S", (0,), "add", rd("X", row, column))),
        ),
        *across,
        Branch(eq(mod(T, WARP), 0), st("P", (floordiv(T, WARP),), rd("S", 0))),
        Barrier(),
        Branch(eq(T, 0), st("O", (row,), both)),
    )
    grid = loop("block", "r", M, allocated("P", loop("thread", "t", width, work)))
    buffers = [
        argument("X", "M N"),
        argument("O", "M"),
        temporary("P", "shared", 2),
        temporary("S", "register", 1),
    ]
    return Case(
        made("row_sums", "M N", buffers, grid),
        lambda M, N: ((M, N), (M,)),
        lambda X, O: X.sum(1),  # noqa: E741
        [dict(M=2, N=n) for n in (1, 31, 64, 150)],
    )


def tree_sums() -> Case:
    """As `row_sums`, with halves of shared memory added to each other between barriers."""
    width = 8
    row, column = var("r"), width * var("c") + T
    halves: list[Node] = []
    for half in (4, 2, 1):
        halves += [Barrier(), Branch(lt(T, half), up("P", (T,), "add", rd("P", T + half)))]
    work = block(
        st("P", (T,), con(0.0)),
        loop(
            "serial",
            "c",
            ceildiv(N, width),
            Branch(lt(column, N), up("P", (T,), "add", rd("X", row, column))),
        ),
        *halves,
        Branch(eq(T, 0), st("O", (row,), rd("P", 0))),
    )
    grid = loop("block", "r", M, allocated("P", loop("thread", "t", width, work)))
    buffers = [argument("X", "M N"), argument("O", "M"), temporary("P", "shared", width)]
    return Case(
        made("tree_sums", "M N", buffers, grid),
        lambda M, N: ((M, N), (M,)),
        lambda X, O: X.sum(1),  # noqa: E741
        [dict(M=3, N=n) for n in (1, 7, 8, 19)],
    )


def transposition() -> Case:
    """Tiles through shared memory, whose rows are one element longer."""
    tile = 4
    bi, bj = tile * var("bi"), tile * var("bj")
    read, write = (bi + I, bj + J), (bj + I, bi + J)
    work = block(
        Branch(inside(read, (M, N)), st("P", (I, J), rd("X", *read))),
        Barrier(),
        Branch(inside(write, (N, M)), st("O", write, rd("P", J, I))),
    )
    threads = loop("thread", "i", tile, loop("thread", "j", tile, work))
    grid = loop("block", "bj", ceildiv(N, tile), allocated("P", threads))
    buffers = [argument("X", "M N"), argument("O", "N M"), temporary("P", "shared", tile, tile + 1)]
    return Case(
        made("transposition", "M N", buffers, loop("block", "bi", ceildiv(M, tile), grid)),
        lambda M, N: ((M, N), (N, M)),
        lambda X, O: X.T,  # noqa: E741
        [dict(M=m, N=n) for m, n in ((5, 3), (4, 4), (1, 9), (7, 6))],
    )


def reversed_tiles() -> Case:
    """Two nests of threads in a block, a barrier between them; the second is masked."""
    tile = 8
    first = tile * var("b")
    u = var("u")
    write = loop("thread", "t", tile, st("P", (T,), or_zero(lt(first + T, N), rd("X", first + T))))
    read = loop("thread", "u", tile, st("O", (first + u,), rd("P", tile - 1 - u)))
    both = block(write, Barrier(), replace(read, mask=N - first))
    grid = loop("block", "b", ceildiv(N, tile), allocated("P", both))
    buffers = [argument("X", "N"), argument("O", "N"), temporary("P", "shared", tile)]

    def result(X: np.ndarray, O: np.ndarray) -> np.ndarray:  # noqa: E741
        whole = np.zeros(-(-len(X) // tile) * tile, np.float32)
        whole[: len(X)] = X
        return whole.reshape(-1, tile)[:, ::-1].ravel()[: len(X)]

    case = made("reversed_tiles", "N", buffers, grid)
    return Case(case, lambda N: ((N,), (N,)), result, [dict(N=n) for n in (1, 8, 21)])


def matrix_instructions(depth: int, panels: str = "") -> Case:
    """A warp to a tile of the result, operands from global memory into what each thread holds.

    panels: rows, or columns, of the operands' panels in shared memory, from where they are loaded.
    """
    dtype = BF16 if depth == 16 else F32
    first, zero = depth * var("ko"), (index(0),)

    def place(operand: str, e: int) -> tuple[Index, Index]:
        row, column = held(operand, depth, T, e)  # type: ignore[arg-type]
        return {
            "left": (16 * var("bi") + row, first + column),
            "right": (first + row, 8 * var("bj") + column),
            "target": (16 * var("bi") + row, 8 * var("bj") + column),
        }[operand]

    def load(operand: str, source: str, extents: tuple[Index, Index]) -> list[Node]:
        out: list[Node] = []
        for e in range(n_held(operand, depth)):  # type: ignore[arg-type]
            at = place(operand, e)
            value = Cast(
                or_zero(inside(at, extents), Cast(rd(source, *at, dtype=dtype), F32)), dtype
            )
            row, column = held(operand, depth, T, e)  # type: ignore[arg-type]
            lies = (row, column) if (operand == "left") == (panels == "rows") else (column, row)
            to = (f"{source}_panel", lies) if panels else (f"{source}_held", (index(e),))
            out.append(Store(*to, value))
        return out

    def matrices(operand: str, source: str) -> Node:
        deeper = (0, 16 // dtype.bytes)
        steps = ((8, 0), deeper) if operand == "left" else (deeper,)
        across = panels == "rows"
        steps = steps if across else tuple((b, a) for a, b in steps)
        at = (f"{source}_held", zero, f"{source}_panel", zero * 2)
        return LoadMatrices(*at, steps, mod(T, WARP), not across)

    step = loop(
        "serial",
        "ko",
        ceildiv(K, depth),
        *load("left", "A", (M, K)),
        *load("right", "B", (K, N)),
        *([Barrier(), matrices("left", "A"), matrices("right", "B")] if panels else []),
        MatrixMultiply("S", zero, "A_held", zero, "B_held", zero, depth),
        *[Barrier()] * bool(panels),
    )
    targets = [place("target", e) for e in range(4)]
    work = allocated(
        "S A_held B_held",
        *(st("S", (e,), con(0.0)) for e in range(4)),
        step,
        *(Branch(inside(p, (M, N)), st("C", p, rd("S", e))) for e, p in enumerate(targets)),
    )
    work = loop("thread", "t", WARP, work)
    if panels:
        work = allocated("A_panel B_panel", work)
    grid = loop("block", "bj", ceildiv(N, 8), work)
    buffers = [
        argument("A", "M K", dtype),
        argument("B", "K N", dtype),
        argument("C", "M N"),
        temporary("S", "register", 4),
        temporary("A_held", "register", n_held("left", depth), dtype=dtype),
        temporary("B_held", "register", n_held("right", depth), dtype=dtype),
    ]
    pad = 16 // dtype.bytes
    for name, side in (("A_panel", 16), ("B_panel", 8)) if panels else ():
        shape = (side, depth + pad) if panels == "rows" else (depth, side + pad)
        buffers.append(temporary(name, "shared", *shape, dtype=dtype))
    return Case(
        made(
            f"instructions_{depth}" + f"_{panels}" * bool(panels),
            "M N K",
            buffers,
            loop("block", "bi", ceildiv(M, 16), grid),
        ),
        lambda M, N, K: ((M, K), (K, N), (M, N)),
        lambda A, B, C: A.astype(np.float32) @ B.astype(np.float32),
        [dict(M=m, N=n, K=k) for m, n, k in ((3, 5, 7), (17, 9, 20))],
        1e-5 if dtype is BF16 else 2e-2,
    )


CASES = {
    c.kernel.name: c
    for c in (
        matmul(),
        pipelined(2),
        pipelined(3),
        row_sums(),
        tree_sums(),
        transposition(),
        reversed_tiles(),
        matrix_instructions(16),
        matrix_instructions(8),
        matrix_instructions(16, "rows"),
        matrix_instructions(16, "columns"),
        matrix_instructions(8, "rows"),
    )
}
