# SPDX-License-Identifier: Apache-2.0
"""Strides of every kind, masks, gathers, scatters: nothing outside the buffers is touched."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tcsym.codegen import emit
from tcsym.codegen.cpu.clipped_blocks import FEW, GATHERED
from tcsym.codegen.object_code import assembly
from tcsym.frontend.program import Binary, Cast, Compare, Const, IndexValue, Read, Select
from tcsym.index.expr import Index, ceildiv, floordiv, ge, lt, minimum, mod, var
from tcsym.ir.loops import (
    Allocate,
    Buffer,
    Holds,
    HorizontalReduce,
    Kernel,
    Loop,
    Node,
    Store,
    TransposeBlock,
    Update,
    Value,
    block,
)
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.codegen.harness import TARGETS, const, load, unrolled, vector
from tests.guarded import guarded

I, J, N, M = var("i"), var("j"), var("N"), var("M")  # noqa: E741
F32 = DType.FLOAT32
TYPES = [DType.BOOL, DType.INT8, DType.FLOAT16, DType.BFLOAT16, F32, DType.FLOAT64, DType.INT64]
EDGES = ("end", "start")
NARROW = [DType.BOOL, DType.INT8, DType.UINT16, DType.FLOAT16, DType.BFLOAT16]
SIDES = {F32: 8, **dict.fromkeys(NARROW, 16)}  # of blocks in registers of 256 bits


def values(dtype: DType, *shape: int) -> Any:
    rng = np.random.default_rng(1)
    return rng.integers(0, 2 if dtype is DType.BOOL else 100, shape).astype(dtype.numpy)


def strided(name: str, dtype: DType, rank: int) -> Buffer:
    shape = (N, M)[:rank]
    strides = tuple(var(f"{name}.stride{d}") for d in range(rank))
    return Buffer(name, dtype, shape, strides=strides)


def in_lanes(body: Node, extent: Index, width: int = 8) -> Loop:
    """A loop over the lanes' variable l and the tile variable t."""
    lanes = vector("l", width, body, extent - var("t") * width)
    return Loop("t", const(0), ceildiv(extent, width), lanes)


AT = var("t") * 8 + var("l")


def rows_added(rows: tuple[int, ...]) -> Kernel:
    """O[i, j] is the sum of X[i + 3 + r, j] over these rows."""
    column = J * 8 + var("l")
    total: Value = Const(0.0, F32)
    for r in rows:
        total = Binary("add", total, Read("X", (I + 3 + r, column), F32), F32)
    lanes = vector("l", 8, Store("O", (I, column), total), M - J * 8)
    body = Loop("i", const(0), N, Loop("j", const(0), ceildiv(M, 8), lanes))
    x = Buffer("X", F32, (N + 9, M))
    return Kernel("k", ("N", "M"), ("X", "O"), (x, Buffer("O", F32, (N, M))), body)


@pytest.mark.parametrize(
    ("rows", "strides"),
    [((0, 1, 2), 0), ((0, 1, 2, 3, 4), 2), ((2, -1, 0, 1), 2), ((-2, 0, 2, 6), 1)],
)
def test_rows_a_stride_apart_have_one_pointer(rows: tuple[int, ...], strides: int) -> None:
    """Four rows or more: one pointer, and multiples of the stride that are no scales."""
    text = emit(rows_added(rows), resolve_target("cpu:avx512"), 1).ir_text
    inside = text[text.rindex("phi") :]
    scaled = set(re.findall(r"getelementptr i(?:8|16|32|64), ptr %t\d+, i64 (%t\d+)", inside))
    bases = set(re.findall(r"getelementptr float, ptr (%\w+), i64 %", inside))
    assert len(scaled) == strides and len(bases) == (2 if strides else len(rows) + 1)
    for target in TARGETS:
        run = load(rows_added(rows), target)
        for n, m in ((0, 3), (1, 8), (3, 21)):
            x, out = values(F32, n + 9, m), guarded(np.zeros((n, m), np.float32), "end")
            assert run({"X": guarded(x, "end"), "O": out}, {"N": n, "M": m}) == 0
            np.testing.assert_array_equal(out, sum(x[3 + r : 3 + r + n] for r in rows))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_copies_touch_only_their_memory(dtype: DType, edge: Any, target: str) -> None:
    """Symbolic strides on both sides, scalar and in lanes, at both edges of a page."""
    x, o = strided("X", dtype, 1), strided("O", dtype, 1)
    sizes = ("N", "X.stride0", "O.stride0")
    scalar = Loop("i", const(0), N, Store("O", (I,), Read("X", (I,), dtype)))
    lanes = in_lanes(Store("O", (AT,), Read("X", (AT,), dtype)), N)
    for body in (scalar, lanes):
        kernel = load(Kernel("copy", sizes, ("X", "O"), (x, o), body), target)
        for n in (0, 1, 7, 8, 21):
            for sx, so in ((1, 1), (-1, 2), (0, -1), (3, 1)):
                a = _with_step(values(dtype, n), sx, edge)
                out = _with_step(np.zeros(n, dtype.numpy), so, edge)
                given = {"N": n, "X.stride0": sx, "O.stride0": so}
                assert kernel({"X": a, "O": out}, given) == 0
                np.testing.assert_array_equal(out, a)


def _with_step(a: Any, step: int, edge: Any) -> Any:
    """The array guarded, with its elements `step` apart (0: all are the first)."""
    if a.size == 0:
        return guarded(a, edge)
    if step == 0:
        return np.lib.stride_tricks.as_strided(guarded(a[:1], edge), a.shape, (0,))
    spaced = np.zeros(a.size * abs(step), a.dtype)[:: abs(step)]
    spaced[...] = a
    return guarded(spaced if step > 0 else spaced[::-1], edge)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [4, 8, 16, 32])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_lanes_take_elements_of_a_vector_in_the_frame(
    dtype: DType, width: int, target: str
) -> None:
    """Permuted where an instruction does that, one by one elsewhere."""
    x, o = (Buffer(n, dtype, (const(width),)) for n in "XO")
    places = Buffer("P", DType.INT32, (const(width),))
    frame = Buffer("T", dtype, (const(width),), "stack")
    fill = vector("k", width, Store("T", (var("k"),), Read("X", (var("k"),), dtype)))
    place = Read("P", (var("l"),), DType.INT32)
    taken = vector("l", width, Store("O", (var("l"),), Read("T", (place,), dtype)))
    body = Allocate(("T",), block(fill, taken))
    kernel = load(Kernel("taken", (), ("X", "P", "O"), (x, places, o, frame), body), target)
    a, p = values(dtype, width), np.random.default_rng(2).integers(0, width, width, np.int32)
    out = np.zeros(width, dtype.numpy)
    assert kernel({"X": a, "P": p, "O": out}, {}) == 0
    np.testing.assert_array_equal(out, a[p])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("wide", "dtype"),
    [
        (DType.INT32, DType.INT8),
        (DType.INT16, DType.UINT8),
        (DType.INT32, DType.INT16),
        (DType.INT64, DType.INT32),
        (F32, DType.BFLOAT16),
        (F32, DType.FLOAT16),
        (F32, DType.BOOL),
    ],
    ids=str,
)
def test_known_numbers_of_lanes_are_stored_alone(
    wide: DType, dtype: DType, width: int, target: str
) -> None:
    """Converted from a wider type, of which LLVM stored the whole element for a single lane."""
    x, o = Buffer("X", wide, (const(32),)), Buffer("O", dtype, (const(32),))
    for n in (1, 2, width - 1):
        value = Cast(Read("X", (var("l"),), wide), dtype)
        body = vector("l", width, Store("O", (var("l"),), value), const(n))
        kernel = load(Kernel("narrow", (), ("X", "O"), (x, o), body), target)
        a, out = values(wide, 32), np.full(32, 1, dtype.numpy)
        assert kernel({"X": a, "O": out}, {}) == 0
        expected = np.concatenate((a[:n].astype(dtype.numpy), np.full(32 - n, 1, dtype.numpy)))
        np.testing.assert_array_equal(out, expected)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("step", [-1, 2, -3])
def test_known_steps_between_lanes(step: int, dtype: DType, target: str) -> None:
    """Reversed, and gathers and scatters with a constant stride."""
    base = N - 1 if step < 0 else Index()
    x = Buffer("X", dtype, ((N - 1) * abs(step) + 1,))
    o = Buffer("O", dtype, (N,))
    there = AT * step + base * abs(step)
    forth = in_lanes(Store("O", (AT,), Read("X", (there,), dtype)), N)
    back = in_lanes(Store("X", (there,), Read("O", (AT,), dtype)), N)
    forward = load(Kernel("forth", ("N",), ("X", "O"), (x, o), forth), target)
    backward = load(Kernel("back", ("N",), ("O", "X"), (x, o), back), target)
    for edge in EDGES:
        for n in (1, 8, 19):
            a = values(dtype, (n - 1) * abs(step) + 1)
            given = guarded(a, edge)  # type: ignore[arg-type]
            out = guarded(np.zeros(n, dtype.numpy), edge)  # type: ignore[arg-type]
            assert forward({"X": given, "O": out}, {"N": n}) == 0
            np.testing.assert_array_equal(out, a[::step])
            given[...] = 0
            assert backward({"X": given, "O": out}, {"N": n}) == 0
            np.testing.assert_array_equal(given[::step], out)
            assert np.count_nonzero(given) == np.count_nonzero(out)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [2, 4, 16, 32])
def test_widths_and_mixed_types(width: int, target: str) -> None:
    """float64 + float32 + int8 in one vector loop."""
    at = var("t") * width + var("l")
    body: Value = Binary(
        "add",
        Read("A", (at,), DType.FLOAT64),
        Cast(Read("B", (at,), F32), DType.FLOAT64),
        DType.FLOAT64,
    )
    body = Binary("add", body, Cast(Read("C", (at,), DType.INT8), DType.FLOAT64), DType.FLOAT64)
    buffers = [
        Buffer(n, t, (N,))
        for n, t in (("A", DType.FLOAT64), ("B", F32), ("C", DType.INT8), ("O", DType.FLOAT64))
    ]
    lanes = vector("l", width, Store("O", (at,), body), N - var("t") * width)
    loop = Loop("t", const(0), ceildiv(N, width), lanes)
    kernel = load(Kernel("mix", ("N",), ("A", "B", "C", "O"), tuple(buffers), loop), target)
    for n in (0, 1, 31, 64, 67):
        arrays = {b.name: guarded(values(b.dtype, n)) for b in buffers}
        assert kernel(arrays, {"N": n}) == 0
        np.testing.assert_array_equal(arrays["O"], arrays["A"] + arrays["B"] + arrays["C"])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gather_by_data(dtype: DType, target: str) -> None:
    """X[P[i], i mod 3], unchecked and in lanes."""
    x, p, o = (
        Buffer("X", dtype, (M, const(3))),
        Buffer("P", DType.INT32, (N,)),
        Buffer("O", dtype, (N,)),
    )

    def body(at: Index) -> Store:
        place = Cast(Read("P", (at,), DType.INT32), DType.INT64)
        return Store("O", (at,), Read("X", (place, mod(at, 3)), dtype))

    for loop in (Loop("i", const(0), N, body(I)), in_lanes(body(AT), N)):
        kernel = load(Kernel("gather", ("N", "M"), ("X", "P", "O"), (x, p, o), loop), target)
        n, m = 29, 11
        a = guarded(values(dtype, m, 3))
        where = guarded(np.random.default_rng(2).integers(0, m, n).astype(np.int32))
        out = guarded(np.zeros(n, dtype.numpy))
        assert kernel({"X": a, "P": where, "O": out}, {"N": n, "M": m}) == 0
        np.testing.assert_array_equal(out, a[where, np.arange(n) % 3])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("edge", EDGES)
def test_guarded_reads_are_not_made(edge: Any, target: str) -> None:
    """i >= 3 ? X[i - 3] : 0, i < 5 ? U[0] : 1 with U empty where it is not read."""
    x, o = Buffer("X", F32, (N - 3,)), Buffer("O", F32, (N,))
    u = Buffer("U", F32, (M,))

    def body(at: Index) -> Store:
        shifted = Select(Holds(ge(at, 3)), Read("X", (at - 3,), F32), Const(0.0, F32), F32)
        one = Select(Holds(lt(at, M)), Read("U", (const(0),), F32), Const(1.0, F32), F32)
        return Store("O", (at,), Binary("add", shifted, one, F32))

    for loop in (Loop("i", const(0), N, body(I)), in_lanes(body(AT), N)):
        kernel = load(Kernel("guard", ("N", "M"), ("X", "U", "O"), (x, u, o), loop), target)
        for n in (3, 8, 30):
            for m in (0, 1):
                a = guarded(values(F32, n - 3), edge)
                first = guarded(values(F32, m), edge)
                out = guarded(np.zeros(n, np.float32), edge)
                assert kernel({"X": a, "U": first, "O": out}, {"N": n, "M": m}) == 0
                want = np.concatenate([np.zeros(3), a]) + 1
                want[:m] += first - 1
                np.testing.assert_array_equal(out, want.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_data_dependent_guards(target: str) -> None:
    """P[i] >= 0 && P[i] < M ? X[P[i]] : -1."""
    x, p, o = Buffer("X", F32, (M,)), Buffer("P", DType.INT64, (N,)), Buffer("O", F32, (N,))

    def body(at: Index) -> Store:
        place = Read("P", (at,), DType.INT64)
        low = Compare("ge", place, Const(0, DType.INT64))
        high = Compare("lt", place, IndexValue(M, DType.INT64))
        inside = Binary("and", low, high, DType.BOOL)
        return Store("O", (at,), Select(inside, Read("X", (place,), F32), Const(-1.0, F32), F32))

    for loop in (Loop("i", const(0), N, body(I)), in_lanes(body(AT), N)):
        kernel = load(Kernel("guard", ("N", "M"), ("X", "P", "O"), (x, p, o), loop), target)
        a = guarded(values(F32, 5))
        where = np.array([0, 4, 5, -1, 2**62, -(2**62), 3, 1, 2, 99, 0], np.int64)
        out = np.zeros(11, np.float32)
        assert kernel({"X": a, "P": where, "O": out}, {"N": 11, "M": 5}) == 0
        inside = (where >= 0) & (where < 5)
        np.testing.assert_array_equal(out, np.where(inside, a[np.where(inside, where, 0)], -1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["add", "mul", "min", "max"])
@pytest.mark.parametrize(
    "dtype", [F32, DType.FLOAT64, DType.INT32, DType.UINT8, DType.BOOL], ids=str
)
def test_reductions_over_lanes(dtype: DType, op: Any, target: str) -> None:
    """Updates of registers by the active lanes only, then a horizontal reduction."""
    neutral = {
        "add": 0,
        "mul": 1,
        "min": dtype.highest if not dtype.is_float else np.inf,
        "max": dtype.lowest if not dtype.is_float else -np.inf,
    }[op]
    start = Const(float(neutral) if dtype.is_float else int(neutral), dtype)
    r = Buffer("R", dtype, (const(2), const(8)), space="register")
    two = 16 * var("t") + 8 * var("u") + var("l")
    main = Loop(
        "t",
        const(0),
        ceildiv(N, 16),
        unrolled(
            "u",
            2,
            vector(
                "l",
                8,
                Update("R", (var("u"), var("l")), op, Read("X", (two,), dtype)),
                N - 16 * var("t") - 8 * var("u"),
            ),
        ),
    )
    init = unrolled("u0", 2, vector("l0", 8, Store("R", (var("u0"), var("l0")), start)))
    both = Binary(
        op, Read("R", (const(0), var("h")), dtype), Read("R", (const(1), var("h")), dtype), dtype
    )
    across = Store("O", (const(0),), HorizontalReduce(op, "h", 8, both, dtype))
    registers = Allocate(("R",), block(init, main, across))
    x, o = Buffer("X", dtype, (N,)), Buffer("O", dtype, (const(1),))
    kernel = load(Kernel("reduce", ("N",), ("X", "O"), (x, o, r), registers), target)
    reduce_ = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[op]
    first = np.array(neutral).astype(dtype.numpy)
    for n in (0, 1, 8, 17, 40):
        a = guarded(values(dtype, n)) if op != "mul" else guarded(np.ones(n, dtype.numpy))
        out = np.zeros(1, dtype.numpy)
        assert kernel({"X": a, "O": out}, {"N": n}) == 0
        want = reduce_.reduce(a, initial=first, dtype=dtype.numpy)
        np.testing.assert_array_equal(out[0], want)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("space", ["register", "stack", "arena"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_local_buffers(dtype: DType, space: Any, target: str) -> None:
    """Two vectors go through a local buffer and are read backwards, and element by element."""
    b = Buffer("B", dtype, (const(2), const(8)), space=space)
    fill = unrolled(
        "u",
        2,
        vector(
            "l", 8, Store("B", (var("u"), var("l")), Read("X", (8 * var("u") + var("l"),), dtype))
        ),
    )
    turned = unrolled(
        "v",
        2,
        vector(
            "m",
            8,
            Store("O", (8 * var("v") + var("m"),), Read("B", (1 - var("v"), 7 - var("m")), dtype)),
        ),
    )
    single = unrolled(
        "w", 16, Store("O", (16 + var("w"),), Read("B", (minimum(var("w"), 1), const(3)), dtype))
    )
    x, o = Buffer("X", dtype, (const(16),)), Buffer("O", dtype, (const(32),))
    body = Allocate(("B",), block(fill, turned, single))
    kernel = load(Kernel("local", (), ("X", "O"), (x, o, b), body), target)
    a, out = guarded(values(dtype, 16)), guarded(np.zeros(32, dtype.numpy))
    assert kernel({"X": a, "O": out}) == 0
    np.testing.assert_array_equal(out[:16], a[::-1])
    np.testing.assert_array_equal(out[16:], [a[3], *[a[11]] * 15])


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [*SIDES, DType.FLOAT64], ids=str)
@pytest.mark.parametrize("padded", [True, False])
def test_transposition(padded: bool, dtype: DType, target: str) -> None:
    width = SIDES.get(dtype, 4)
    extent = (ceildiv(M, width) * width, ceildiv(N, width) * width) if padded else (M, N)
    x = Buffer("X", dtype, (N, M))
    o = Buffer("O", dtype, extent, padded=padded)
    r, c = var("r") * width, var("c") * width
    move = TransposeBlock("O", (c, r), "X", (r, c), N - r, M - c, width)
    body = Loop("r", const(0), ceildiv(N, width), Loop("c", const(0), ceildiv(M, width), move))
    kernel = load(Kernel("transpose", ("N", "M"), ("X", "O"), (x, o), body), target)
    for n, m in ((1, 1), (width, width), (3, 2 * width), (2 * width + 1, width + 3), (0, 4)):
        a = guarded(values(dtype, n, m))
        shape = (-(-m // width) * width, -(-n // width) * width) if padded else (m, n)
        out = guarded(np.full(shape, 77).astype(dtype.numpy))
        assert kernel({"X": a, "O": out}, {"N": n, "M": m}) == 0
        np.testing.assert_array_equal(out[:m, :n], a.T)
        if padded and n and m:
            assert not out[m:].any() and not out[:, n:].any()


@pytest.mark.parametrize("dtype", [F32, DType.FLOAT64], ids=str)
def test_a_whole_transposition_shuffles_half_as_often_and_spills_nothing(dtype: DType) -> None:
    """Rows are loaded in halves into their places: no instruction swaps halves of registers."""
    width = 256 // dtype.bits
    x, o = Buffer("X", dtype, (N, M)), Buffer("O", dtype, (M, N))
    r, c = var("r") * width, var("c") * width
    move = TransposeBlock("O", (c, r), "X", (r, c), N - r, M - c, width)
    columns = Loop("c", const(0), floordiv(M, width), move)
    body = Loop("r", const(0), floordiv(N, width), columns)
    loop = Kernel("beside", ("N", "M"), ("X", "O"), (x, o), body)
    target = resolve_target("cpu:avx2")
    lines = assembly(emit(loop, target, 1).ir_text, target).splitlines()
    assert not any("vperm" in line for line in lines)
    assert not any("ymm" in line and "rsp" in line for line in lines)


@pytest.mark.parametrize("target", ["cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_whole_blocks_of_short_elements_are_loads_unpacks_and_stores(
    dtype: DType, target: str
) -> None:
    """Of 16 elements a side, for each round one unpack a register; no element moves by itself."""
    x, o = Buffer("X", dtype, (N, M)), Buffer("O", dtype, (M, N))
    move = TransposeBlock("O", (J, I), "X", (I, J), N - I, M - J, 16)
    whole = replace(move, rows=const(16), columns=const(16))
    k = Kernel("whole", ("N", "M", "i", "j"), ("X", "O"), (x, o), whole)
    resolved = resolve_target(target)
    text = assembly(emit(k, resolved, 1).ir_text, resolved)
    vectors = re.findall(r"^\s+(v[a-z]+)[^%]*.*%[xy]mm", text, re.MULTILINE)
    stores = re.findall(r"^\s+vmov[a-z0-9]+\s+%[xy]mm\d+, [^%]*\(", text, re.MULTILINE)
    unpacks = [v for v in vectors if v.startswith("vpunpck")]
    assert len(unpacks) == (64 if dtype.bytes == 1 else 48)
    assert len(stores) == 16
    others = {v for v in vectors if not v.startswith(("vpunpck", "vmov"))}
    assert others <= {"vinserti", "vinsertf"} and not re.search(r"mm\d+.*\(%rsp|\(%rsp.*mm", text)
    assert not re.search(r"vp(extr|insr)[bw]", text)


@pytest.mark.parametrize("dtype", [F32, DType.FLOAT64, *NARROW], ids=str)
def test_clipped_blocks_move_in_registers_under_masks(dtype: DType) -> None:
    """Nothing outside is touched; the function has each column's store once, and few gathered."""
    target, width = resolve_target("cpu:avx512"), min(16, 512 // dtype.bits)
    few = FEW if dtype.bits >= GATHERED else 0
    x, o = Buffer("X", dtype, (N, M)), Buffer("O", dtype, (M, N))
    r, c = var("r") * width, var("c") * width
    move = TransposeBlock("O", (c, r), "X", (r, c), N - r, M - c, width)
    columns = Loop("c", const(0), ceildiv(M, width), move)
    body = Loop("r", const(0), ceildiv(N, width), columns)
    clipped = Kernel("clipped", ("N", "M"), ("X", "O"), (x, o), body)
    text = emit(clipped, target, 1).ir_text
    assert text.count("call void @llvm.masked.store") == width + few
    assert text.count("call void @llvm.masked.scatter") == few
    if not runs_here(target):
        return
    kernel = load(clipped, "cpu:avx512")
    for n, m in itertools.product((0, 1, 2, 4, width - 1, width, width + 3), repeat=2):
        a, out = guarded(values(dtype, n, m)), guarded(np.zeros((m, n), dtype.numpy))
        assert kernel({"X": a, "O": out}, {"N": n, "M": m}) == 0
        np.testing.assert_array_equal(out, a.T)


@pytest.mark.parametrize("padded", [True, False])
def test_clipped_rows_are_addressed_inside_the_source(padded: bool) -> None:
    """The address of a row beyond the end is the last row's; unpadded targets get no such rows."""
    x, o = Buffer("X", F32, (N, M)), Buffer("O", F32, (const(8), const(8)), padded=padded)
    move = TransposeBlock("O", (const(0), const(0)), "X", (const(0), const(0)), N, M, 8)
    target = resolve_target("cpu:avx2")
    text = emit(Kernel("clipped", ("N", "M"), ("X", "O"), (x, o), move), target, 1).ir_text
    for row in range(8):
        assert text.count(f"@llvm.smin.i64(i64 {row}, ") == padded
    assert ("@llvm.masked.load" in text) == padded and "@llvm.masked.store" not in text


@pytest.mark.parametrize("target", TARGETS)
def test_transposition_across_dimensions(target: str) -> None:
    """O[c,b,r] = X[r,b,c], ragged on both sides."""
    x, o = Buffer("X", F32, (N, const(3), M)), Buffer("O", F32, (M, const(3), N))
    r, c, b = var("r") * 8, var("c") * 8, var("b")
    move = TransposeBlock("O", (c, b, r), "X", (r, b, c), N - r, M - c, 8, -3, -3)
    inner = Loop("b", const(0), const(3), move)
    body = Loop("r", const(0), ceildiv(N, 8), Loop("c", const(0), ceildiv(M, 8), inner))
    kernel = load(Kernel("across", ("N", "M"), ("X", "O"), (x, o), body), target)
    for n, m in ((1, 1), (8, 16), (3, 17), (19, 8)):
        a, out = guarded(values(F32, n, 3, m)), guarded(np.zeros((m, 3, n), np.float32))
        assert kernel({"X": a, "O": out}, {"N": n, "M": m}) == 0
        np.testing.assert_array_equal(out, a.transpose(2, 1, 0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", (F32, DType.FLOAT16, DType.INT8), ids=str)
def test_what_a_masked_store_left_is_not_loaded(dtype: DType, target: str) -> None:
    """The row is doubled in place, then added to another: both hold for inactive lanes."""
    first = Store(
        "O", (AT,), Binary("add", Read("X", (AT,), dtype), Read("X", (AT,), dtype), dtype)
    )
    later = Store("P", (AT,), Binary("add", Read("O", (AT,), dtype), Const(1, dtype), dtype))
    buffers = tuple(Buffer(name, dtype, (N,)) for name in "XOP")
    body = in_lanes(block(first, later), N)
    kernel = Kernel("k", ("N",), ("X", "O", "P"), buffers, body)
    if dtype is F32 and target != "cpu:novector":
        text = emit(kernel, resolve_target(target), 1).ir_text
        assert text.count("@llvm.masked.load") == 2  # the call, and its declaration
    run = load(kernel, target)
    for n in (0, 3, 8, 21):
        x = values(dtype, n) // 4
        o, p = (guarded(np.zeros(n, dtype.numpy), "end") for _ in "OP")
        assert run({"X": guarded(x, "end"), "O": o, "P": p}, {"N": n}) == 0
        np.testing.assert_array_equal(o, x + x)
        np.testing.assert_array_equal(p, x + x + 1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(("step", "width"), ((2, 8), (3, 8), (4, 8), (3, 16), (4, 16)))
def test_lanes_a_few_elements_apart_are_runs(step: int, width: int, edge: Any, target: str) -> None:
    """First and last elements of rows change places, with nothing outside touched."""
    at = var("t") * width + var("l")
    stores = (
        Store("O", (at, const(0)), Read("X", (at, const(step - 1)), F32)),
        Store("O", (at, const(step - 1)), Read("X", (at, const(0)), F32)),
    )
    whole = Loop("t", const(0), floordiv(N, width), vector("l", width, block(*stores)))
    shape = (N, const(step))
    kernel = Kernel(
        "k", ("N",), ("X", "O"), (Buffer("X", F32, shape), Buffer("O", F32, shape)), whole
    )
    resolved = resolve_target(target)
    text = emit(kernel, resolved, 1).ir_text
    assert "masked.gather" not in text and "masked.scatter" not in text
    run = load(kernel, target)
    for n in (0, width, 3 * width):
        x, o = values(F32, n, step), guarded(np.full((n, step), -1.0, np.float32), edge)
        want = o.copy()
        want[:, 0], want[:, -1] = x[:, -1], x[:, 0]
        assert run({"X": guarded(x, edge), "O": o}, {"N": n}) == 0
        np.testing.assert_array_equal(o, want)
