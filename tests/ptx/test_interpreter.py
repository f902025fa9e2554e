# SPDX-License-Identifier: Apache-2.0
"""The interpreter of PTX against the ISA's words: small texts, and what their threads end with."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ptx import warps
from tests.ptx.device import MEMORY_AT
from tests.ptx.machine import Launch, Program
from tests.ptx.memory import READ, WRITE, Fault, Space
from tests.ptx.order import ranks
from tests.ptx.text import Refused

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 shared[];
"""
REGISTERS = ".reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<40>; .reg .b64 %rd<20>;"
# %rd1: where a thread's 8 bytes of the result are; %r1: its number; %r2: its block's.
BEGIN = """
    ld.param.b64 %rd0, [p0];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.s32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd2, %r4, 8;
    add.s64 %rd1, %rd0, %rd2;
"""


def entry(body: str, n_parameters: int = 1) -> str:
    parameters = ",\n".join(f".param .u64 p{k}" for k in range(n_parameters))
    registers = "\n".join(f"{x};" for x in REGISTERS.split(";") if x.strip())
    head = f"{HEAD}.visible .entry f(\n{parameters}\n)\n.maxntid 1024\n"
    return f"{head}{{\n{registers}{BEGIN}{body}\nret;\n}}\n"


def run(
    body: str,
    threads: int = 32,
    blocks: int = 1,
    shared: int = 0,
    more: bytes = b"",
    together: bool = False,
) -> np.ndarray[Any, Any]:
    """What every thread has in its 8 bytes at the end. more: bytes that `p1` points to."""
    program = Program(entry(body, 2))
    memory = Space("global", MEMORY_AT, 1 << 16, program.unit)
    memory.allowed[: 8 * threads * blocks] = READ | WRITE
    memory.bytes[: 8 * threads * blocks] = 0
    memory.bytes[1 << 15 : (1 << 15) + len(more)] = np.frombuffer(more, "u1")
    memory.allowed[1 << 15 : (1 << 15) + len(more)] = READ | WRITE
    words = [MEMORY_AT, MEMORY_AT + (1 << 15)]
    Launch(program, {}, memory, "f", words, (blocks, threads, shared)).run(1, together)
    return memory.views[8][: threads * blocks].copy()


def bits(x: float) -> str:
    return f"0f{struct.pack('>f', x).hex().upper()}"


def bits_64(x: float) -> str:
    return f"0d{struct.pack('>d', x).hex().upper()}"


ONE, NONE, INFINITE = bits(1.0), "0f7FFFFFFF", bits(float("inf"))
# Instruction, operands -> the bits of its result.
VALUES: list[tuple[str, Sequence[str], int]] = [
    ("add.s32", ["2147483647", "1"], 1 << 31),
    ("mul.hi.u32", ["-1", "-1"], 0xFFFFFFFE),
    ("mul.hi.s32", ["-1", "5"], 0xFFFFFFFF),
    ("div.s32", ["-7", "2"], -3 % (1 << 32)),
    ("rem.s32", ["-7", "2"], -1 % (1 << 32)),
    ("div.s32", ["-2147483648", "-1"], 1 << 31),
    ("div.u32", ["7", "0"], 0xFFFFFFFF),
    ("shl.b32", ["1", "32"], 0),
    ("shr.s32", ["-8", "99"], 0xFFFFFFFF),
    ("shr.u32", ["-8", "1"], 0x7FFFFFFC),
    ("prmt.b32", ["0x11223344U", "0x55667788U", "0x7014U"], 0x55443388),
    ("prmt.b32", ["0x0000008FU", "0", "0x8880U"], 0xFFFFFF8F),
    ("shf.l.wrap.b32", ["0x80000001U", "0x1U", "1"], 3),
    ("bfe.s32", ["0xF0U", "4", "4"], 0xFFFFFFFF),
    ("min.relu.s32", ["-3", "5"], 0),
    ("selp.b32", ["4", "5", "%p1"], 5),
    ("max.f32", [ONE, NONE], 0x3F800000),
    ("min.f32", [bits(0.0), bits(-0.0)], 0x80000000),
    ("max.f32", [bits(-0.0), bits(0.0)], 0),
    ("copysign.f32", [bits(-2.0), bits(3.0)], 0xC0400000),
    ("cvt.rzi.s32.f32", [bits(-2.7)], -2 % (1 << 32)),
    ("cvt.rni.s32.f32", [bits(2.5)], 2),
    ("cvt.rzi.s32.f32", [bits(3e9)], 0x7FFFFFFF),
    ("cvt.rzi.u32.f32", [bits(-1.0)], 0),
    ("cvt.rzi.s32.f32", [NONE], 0),
    ("cvt.rn.f32.s32", ["16777217"], 0x4B800000),
    ("cvt.rna.tf32.f32", ["0f3F801000"], 0x3F802000),
    ("cvt.rna.tf32.f32", ["0f3F800FFF"], 0x3F800000),
    ("cvt.rn.bf16x2.f32", [ONE, bits(-2.0)], 0x3F80C000),
    ("fma.rn.f32", ["0f3F800001", "0f3F800001", "0fBF800002"], 0x28800000),
    ("rcp.rn.f32", [bits(0.0)], 0x7F800000),
]


@pytest.mark.parametrize(("name", "operands", "wanted"), VALUES)
def test_values(name: str, operands: Sequence[str], wanted: int) -> None:
    made = run(
        f"setp.eq.b32 %p1, 0, 1;\n{name} %r9, {', '.join(operands)};\nst.global.b32 [%rd1], %r9;"
    )
    assert {hex(x) for x in made.tolist()} == {hex(wanted)}


@pytest.mark.parametrize(
    ("name", "operands", "wanted"),
    [
        ("max.NaN.f32", [ONE, NONE], float("nan")),
        ("div.rn.f32", [ONE, bits(3.0)], np.float32(1) / np.float32(3)),
        ("sqrt.rn.f32", [bits(2.0)], np.sqrt(np.float32(2))),
    ],
)
def test_numbers(name: str, operands: Sequence[str], wanted: float) -> None:
    made = run(f"{name} %r9, {', '.join(operands)};\nst.global.b32 [%rd1], %r9;")
    np.testing.assert_array_equal(made.astype("u4").view("f4"), wanted)


@pytest.mark.parametrize(
    ("relation", "wanted"),
    [("lt", 0), ("ltu", 1), ("ne", 0), ("neu", 1), ("num", 0), ("nan", 1), ("geu", 1)],
)
def test_relations_of_what_is_no_number(relation: str, wanted: int) -> None:
    made = run(
        f"setp.{relation}.f32 %p1, {ONE}, {NONE};\n"
        "selp.b32 %r9, 1, 0, %p1;\nst.global.b32 [%rd1], %r9;"
    )
    assert set(made.tolist()) == {wanted}


def test_numbers_of_bfloat16() -> None:
    made = run("""
    cvt.rn.bf16.f32 %rs1, 0f3F800000;
    cvt.rn.bf16.f32 %rs2, 0f3C000000;
    add.rn.bf16 %rs3, %rs1, %rs2;
    max.NaN.bf16 %rs4, %rs3, %rs2;
    setp.gt.bf16 %p1, %rs4, %rs1;
    cvt.f64.bf16 %rd3, %rs4;
    cvt.rn.bf16.f64 %rs4, %rd3;
    cvt.u32.u16 %r9, %rs4;
    selp.b32 %r10, %r9, 0, %p1;
    st.global.b32 [%rd1], %r10;""")
    assert {hex(x) for x in made.tolist()} == {"0x3f81"}


def test_products_and_sums_are_rounded_once() -> None:
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        from tests.ptx.floats import _fma_32, _fma_64

        for scale in (1, 1e-30, 1e20):
            a, b, c = (rng.standard_normal(3000).astype("f4") * np.float32(scale) for _ in range(3))
            c[::2] = -(a * b)[::2] * (1 + rng.integers(-3, 4, 1500).astype("f4") * 2**-23)
            exact = [
                float(np.longdouble(x) * np.longdouble(y) + np.longdouble(z))
                for x, y, z in zip(a, b, c)
            ]
            same = _fma_32(a, b, c) == np.array(exact, "f8").astype("f4")
            assert same.mean() > 0.999  # long doubles are rounded twice, too
        a, b = rng.standard_normal(2000), rng.standard_normal(2000)
        from fractions import Fraction

        error = [float(Fraction(x) * Fraction(y) - Fraction(x * y)) for x, y in zip(a, b)]
        np.testing.assert_array_equal(_fma_64(a, b, -(a * b)), error)


def test_parts_and_carries() -> None:
    made = run("""
    mov.b64 %rd3, {%r1, %r2};
    mov.b64 {_, %r9}, %rd3;
    add.cc.s64 %rd4, -1, 1;
    addc.cc.s64 %rd5, 5, 0;
    add.s64 %rd5, %rd5, %rd3;
    st.global.b64 [%rd1], %rd5;""")
    assert made.tolist() == [6 + k for k in range(32)]


LOOP = """
    mov.b32 %r9, 0;
    mov.b32 %r10, 0;
$L1:
    setp.ge.s32 %p1, %r10, %r1;
    @%p1 bra $L2;
    and.b32 %r11, %r10, 1;
    setp.eq.b32 %p2, %r11, 0;
    @!%p2 bra $L3;
    add.s32 %r9, %r9, %r10;
    bra.uni $L4;
$L3:
    add.s32 %r9, %r9, 100;
$L4:
    add.s32 %r10, %r10, 1;
    bra.uni $L1;
$L2:
    shfl.sync.bfly.b32 %r12, %r9, 1, 31, -1;
    st.global.b32 [%rd1], %r12;"""


def test_parted_threads_meet_again() -> None:
    """Each goes round as often as its number says; then they shuffle."""
    own = [sum(k if k % 2 == 0 else 100 for k in range(t)) for t in range(64)]
    assert run(LOOP, threads=64).tolist() == [own[t ^ 1] for t in range(64)]


def test_loops_stand_together() -> None:
    blocks = Program(entry(LOOP)).text.function("f").blocks
    order = ranks(blocks)
    ends = next(k for k, b in enumerate(blocks) if b.together)
    assert max(order[:ends]) < order[ends] and sorted(order) == list(range(len(blocks)))


@pytest.mark.parametrize(
    ("mode", "b", "c", "wanted"),
    [
        ("up", 3, 0, [max(t - 3, t if t < 3 else 0) for t in range(32)]),
        ("down", 5, 31, [t + 5 if t + 5 < 32 else t for t in range(32)]),
        ("bfly", 9, 31, [t ^ 9 for t in range(32)]),
        ("idx", 35, 31, [3] * 32),  # of which 5 bits count
        ("idx", 2, 0x181F, [8 * (t // 8) + 2 for t in range(32)]),
    ],
)
def test_shuffles(mode: str, b: int, c: int, wanted: list[int]) -> None:
    made = run(f"shfl.sync.{mode}.b32 %r9, %r1, {b}, {c}, -1;\nst.global.b32 [%rd1], %r9;")
    assert made.tolist() == wanted


EXCHANGE = """
    mul.wide.u32 %rd3, %r1, 4;
    mov.b64 %rd4, shared;
    add.s64 %rd5, %rd4, %rd3;
    st.shared.b32 [%rd5], %r1;
    {barrier}
    xor.b32 %r9, %r1, {other};
    mul.wide.u32 %rd6, %r9, 4;
    add.s64 %rd7, %rd4, %rd6;
    ld.shared.b32 %r10, [%rd7];
    st.global.b32 [%rd1], %r10;"""


def test_barriers() -> None:
    text = EXCHANGE.format(barrier="bar.sync 0;", other=33)
    assert run(text, 64, blocks=3, shared=256).tolist() == [t ^ 33 for t in range(64)] * 3
    with pytest.raises(Fault, match="thread 0 of block 0 reads what thread 33 of block 0 writes"):
        run(EXCHANGE.format(barrier="", other=33), 64, shared=256)
    with pytest.raises(Fault, match=r"is no shared memory|lies in no array"):
        run(text, 64, shared=128)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("setp.eq.b32 %p1, %r1, 3;\n@%p1 bra $L1;\nbar.sync 0;\n$L1:", "wait for what never comes"),
        (
            "setp.eq.b32 %p1, %r1, 3;\n@%p1 bra $L1;\n"
            "bar.sync 0;\nbra.uni $L2;\n$L1:\nbar.sync 0;\n$L2:",
            "different barriers",
        ),
        (
            "setp.eq.b32 %p1, %r1, 3;\n@%p1 bra $L1;\nshfl.sync.idx.b32 %r9, %r1, 0, 31, -1;\n$L1:",
            "wait for",
        ),
        ("st.global.b32 [%rd1+1], %r1;", "no multiple of 4"),
        ("st.global.b32 [%rd1+256], %r1;", "lies in no array"),
        ("ld.global.b32 %r9, [%rd1+-8];", "no global memory"),
        ("st.global.b32 [%rd0], %r1;", "thread . of block 0 writes what thread .* writes"),
        (
            "ld.global.b32 %r9, [%rd0];\nst.global.b32 [%rd1], %r9;",
            "of global memory, and did not wait",
        ),
        ("$L1:\nbra.uni $L1;", "does not end"),
    ],
)
def test_what_a_device_would_not_do(body: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.ptx.machine.MOST_BLOCKS", 1000)
    with pytest.raises(Fault, match=why):
        run(body)


@pytest.mark.parametrize(
    "body",
    [
        "vote.sync.any.pred %p1, %p2, -1;",
        "add.ftz.f32 %r9, %r9, %r9;",
        "ld.local.b32 %r9, [%rd1];",
        "add.s64 %rd3, %r1, %rd2;",
        "shfl.sync.idx.b32 %r9, %r1, 0, 31, 255;",
        "mov.b32 %r9, nothing;",
    ],
)
def test_what_is_not_known_is_refused_with_its_line(body: str) -> None:
    with pytest.raises(Refused, match=r"line \d+: " + body[:8]):
        run(body)


COPY = """
    mul.wide.u32 %rd3, %r1, 16;
    mov.b64 %rd4, shared;
    add.s64 %rd5, %rd4, %rd3;
    ld.param.b64 %rd6, [p1];
    add.s64 %rd7, %rd6, %rd3;
    cp.async.cg.shared.global [%rd5], [%rd7], 16, {count};
    cp.async.commit_group;
    cp.async.ca.shared.global [%rd5+512], [%rd7], 4;
    cp.async.commit_group;
    {wait}
    ld.shared.b32 %r10, [%rd5];
    ld.shared.b32 %r11, [%rd5+512];
    st.global.b32 [%rd1], %r10;
    st.global.b32 [%rd1+4], %r11;"""
NOT_THERE = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("wait", "first", "second"),
    [
        ("", False, False),
        ("cp.async.wait_group 2;", False, False),
        ("cp.async.wait_group 1;", True, False),
        ("cp.async.wait_group 0;", True, True),
        ("bar.sync 0;", False, False),
    ],
)
def test_copies_land_when_they_are_waited_for(wait: str, first: bool, second: bool) -> None:
    source = np.arange(128, dtype="u4") + 7
    made = run(COPY.format(wait=wait, count=16), shared=1024, more=source.tobytes())
    own = source[::4].tolist()
    low, high = (made & np.uint64(NOT_THERE)).tolist(), (made >> np.uint64(32)).tolist()
    assert low == (own if first else [NOT_THERE] * 32)
    assert high == (own if second else [NOT_THERE] * 32)


def test_copies_of_fewer_bytes_end_with_zeros() -> None:
    made = run(COPY.format(wait="cp.async.wait_group 0;", count=0), shared=1024, more=bytes(512))
    assert (made & np.uint64(NOT_THERE)).tolist() == [0] * 32
    with pytest.raises(Fault, match="lies in no array"):
        run(COPY.format(wait="", count=16), shared=1024, more=bytes(256))


def test_atomic_updates() -> None:
    body = (
        "ld.param.b64 %rd3, [p1];\natom.global.add.u32 %r9, [%rd3], 2;\nst.global.b32 [%rd1], %r9;"
    )
    assert sorted(run(body, 64, blocks=2, more=bytes(4)).tolist()) == [2 * k for k in range(128)]


MEET = """
    ld.param.b64 %rd3, [p1];
    st.global.b32 [%rd1], %r2;
    {first}
    setp.ne.b32 %p1, %r1, 0;
    @%p1 bra $L3;
    {release}
    atom.global.add.u32 %r9, [%rd3], 1;
$L1:
    ld.volatile.global.b32 %r10, [%rd3];
    setp.lt.u32 %p2, %r10, 3;
    @%p2 bra $L1;
    {acquire}
$L3:
    {second}
    rem.u32 %r11, %r4, 64;
    mul.wide.u32 %rd5, %r11, 8;
    add.s64 %rd6, %rd0, %rd5;
    ld.global.b32 %r12, [%rd6];"""
WHOLE = {
    "first": "bar.sync 0;",
    "release": "membar.gl;",
    "acquire": "membar.gl;",
    "second": "bar.sync 0;",
}


def test_blocks_that_wait_for_each_other() -> None:
    run(MEET.format(**WHOLE), 64, blocks=3, more=bytes(4), together=True)


@pytest.mark.parametrize("left_out", WHOLE)
def test_what_orders_blocks_is_needed(left_out: str) -> None:
    text = MEET.format(**WHOLE | {left_out: ""})
    with pytest.raises(Fault, match=r"reads what thread .* of block . writes|wait for what"):
        run(text, 64, blocks=3, more=bytes(4), together=True)


def test_fragments_of_matrices_that_are_loaded() -> None:
    """Thread 5 has elements 2 and 3 of row 1; transposed, of column 1."""
    rows = np.arange(64, dtype="u2").reshape(1, 8, 8)
    assert warps.fragments(rows, False)[0, 5] == 10 | 11 << 16
    assert warps.fragments(rows, True)[0, 5] == 17 | 25 << 16


@pytest.mark.parametrize(("kind", "depth"), [("f16", 16), ("bf16", 16), ("tf32", 8)])
def test_products_of_fragments(kind: str, depth: int) -> None:
    """By the tables of the ISA, written out for each thread."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, s).astype("f4") for s in ((16, depth), (depth, 8)))
    c = rng.integers(-8, 9, (16, 8)).astype("f4")

    def pair(x: float, y: float) -> int:
        kept = ml_dtypes.bfloat16 if kind == "bf16" else np.float16
        return int.from_bytes(np.array([x, y], kept).tobytes(), "little")

    left, right, sums = (np.zeros((n, 1, 32), t) for n, t in ((4, "u4"), (2, "u4"), (4, "f4")))
    for lane in range(32):
        g, t = divmod(lane, 4)
        if depth == 16:
            for k, (row, column) in enumerate(((g, 0), (g + 8, 0), (g, 8), (g + 8, 8))):
                left[k, 0, lane] = pair(*a[row, 2 * t + column : 2 * t + column + 2])
            for k in (0, 1):
                right[k, 0, lane] = pair(*b[2 * t + 8 * k : 2 * t + 8 * k + 2, g])
        else:
            for k, x in enumerate((a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4])):
                left[k, 0, lane] = np.array(x, "f4").view("u4")
            for k in (0, 1):
                right[k, 0, lane] = np.array(b[t + 4 * k, g], "f4").view("u4")
        sums[:, 0, lane] = c[g, 2 * t], c[g, 2 * t + 1], c[g + 8, 2 * t], c[g + 8, 2 * t + 1]
    made = warps.product(kind, depth, list(left), list(right), list(sums))
    want = a @ b + c
    for lane in range(32):
        g, t = divmod(lane, 4)
        found = [float(x[0, lane]) for x in made]
        assert found == [
            want[g, 2 * t],
            want[g, 2 * t + 1],
            want[g + 8, 2 * t],
            want[g + 8, 2 * t + 1],
        ]
