# SPDX-License-Identifier: Apache-2.0
"""PTX of kernels for NVIDIA's devices: its instructions, and what NVIDIA's assembler says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import tcsym as tc
from tcsym.codegen import emit, object_code
from tcsym.codegen.device.ptxas import assembled, assembler
from tcsym.codegen.object_code import assembly, device_line
from tcsym.compiler import Lowering, analyse
from tcsym.index.expr import TRUE, Condition, all_of, eq, floordiv, mod, var
from tcsym.ir.allocate import block_bytes
from tcsym.ir.loops import Branch, Kernel
from tcsym.ir.traverse import grids
from tcsym.ir.verify import verify
from tcsym.options import Options
from tcsym.target.llvm import LEAST_LLVMLITE
from tcsym.target.names import DEVICES, resolve_target
from tests.ir.device_kernels import CASES, argument, loop, made
from tests.schedule.naive import con, op, rd, st

needs_ptxas = pytest.mark.skipif(
    assembler() is None, reason="NVIDIA's `ptxas` is not here (`./dev ptx` installs it)"
)
# Ceilings of registers of a thread, and instructions that a kernel is made for.
RESOURCES = Path(__file__).parent / "golden" / "resources.json"
OTHER_ASSEMBLERS = 8  # registers that another version of ptxas may take: a unit of them
MATRICES = "ldmatrix.sync.aligned.m8n8"
KERNELS = {
    "matmul": (48, ["bar.sync", "ld.shared.b32", "st.shared.b32", "fma.rn.f32"]),
    "pipelined_3": (64, ["cp.async.ca.shared.global", "cp.async.wait_group", "bar.sync"]),
    "row_sums": (32, ["shfl.sync.idx.b32", "bar.sync", "ld.global.nc.b32"]),
    "transposition": (32, ["bar.sync", "ld.shared.b32"]),
    "instructions_16": (56, ["mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"]),
    "instructions_8": (
        64,
        ["mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "cvt.rna.tf32.f32"],
    ),
    "instructions_8_rows": (72, [f"{MATRICES}.x4.shared.b16", f"{MATRICES}.x2.shared.b16"]),
    "instructions_16_rows": (64, [f"{MATRICES}.x4.shared.b16", f"{MATRICES}.x2.shared.b16"]),
    "instructions_16_columns": (
        64,
        [f"{MATRICES}.x4.trans.shared.b16", f"{MATRICES}.x2.trans.shared.b16"],
    ),
}


def ptx_of(kernel: Kernel, name: str = "cuda:sm_80") -> str:
    target = resolve_target(name)
    return object_code(emit(kernel, target, 1).device_text, target).decode()


@pytest.mark.parametrize("name", KERNELS)
def test_instructions(name: str) -> None:
    ptx = ptx_of(CASES[name].kernel)
    found = set(re.findall(r"^\s*(?:@!?%p\d+ )?([a-z][\w.]+)", ptx, re.MULTILINE))
    assert found.issuperset(KERNELS[name][1]), sorted(found)
    # Memory is known, nothing lies on a stack, and nothing is called.
    assert not [x for x in found if x.startswith(("cvta", "call", "ld.local", "st.local"))]
    assert not re.search(r"\b(ld|st)\.b\d+", ptx) and ptx.count(".extern") == 1
    assert ptx.count(".maxntid ") == ptx.count(".minnctapersm ") == ptx.count(".entry ")


def test_an_instruction_that_llvm_does_not_know_is_refused() -> None:
    """It would be a call of a function of nowhere, which a driver tells when code is loaded."""
    target = resolve_target("cuda:sm_80")
    calls = "  %x = call i32 @llvm.nvvm.of.tomorrow(i32 0)\n  call void @none()\n  ret void\n"
    declared = "declare i32 @llvm.nvvm.of.tomorrow(i32)\ndeclare void @none()\n"
    text = f"{device_line(target.triple)}{declared}define ptx_kernel void @f() {{\n{calls}}}\n"
    for make in (object_code, assembly):
        with pytest.raises(tc.TargetError, match=r"`llvm\.nvvm\.of\.tomorrow`") as error:
            make(text, target)
        assert error.value.hint == f"code for devices needs llvmlite >= {LEAST_LLVMLITE}"


def test_devices_get_code_of_their_own() -> None:
    for name, kind in DEVICES.items():
        head = ptx_of(CASES["transposition"].kernel, name)[:300]
        assert f".target {kind.name}" in head
        assert f".version {kind.ptx[3]}.{kind.ptx[4]}" in head


def scaled(guard: Condition) -> Kernel:
    """A vector of four elements to a thread, of a length that only the guard can promise."""
    first = 1024 * var("b") + 4 * var("t") + var("e")
    store = st("O", (first,), op("mul", rd("X", first), con(2.0)))
    threads = loop("thread", "t", 256, loop("vector", "e", 4, store))
    grid = loop("block", "b", floordiv(var("N"), 1024), threads)
    buffers = [replace(argument(x, "N"), phase=f"{x}.phase") for x in "XO"]
    kernel = made("scaled", "N", buffers, grid if guard == TRUE else Branch(guard, grid))
    verify(kernel, "device")
    return kernel


def aligned(*names: str) -> Condition:
    return all_of(eq(mod(var(f"{x}.phase"), 4), 0) for x in names)


def test_accesses_are_as_wide_as_the_host_promises() -> None:
    wide = ptx_of(scaled(aligned("X", "O")))
    assert "ld.global.nc.v4.b32" in wide and "st.global.v4.b32" in wide
    reads = ptx_of(scaled(aligned("X")))
    assert "ld.global.nc.v4.b32" in reads and ".v4" not in reads.replace("nc.v4", "")
    assert ".v4" not in ptx_of(scaled(TRUE))


GRID_STEPS = """def rnn(float(T,B,H) X, float(B,H) h0, float(H,H) U) -> (float(T+1,B,H) S) {
  S(0,n,h) = h0(n,h)
  for t in T { A(n,h) +=! S(t,n,k) * U(h,k)  S(t+1,n,h) = tanh(A(n,h) + X(t,n,h)) }
}"""


@needs_ptxas
def test_blocks_that_wait_for_each_other() -> None:
    """By a counter that is read until it changes; two of them have room on a multiprocessor."""
    options = Options(plan="GridSteps")
    ptx = tc.define(GRID_STEPS, target="cuda:sm_80", options=options).rnn.explain("ptx")
    for instruction in ("membar.gl", "atom.global.add.u32", "ld.volatile.global.b32", "%nctaid.x"):
        assert instruction in ptx
    (name,) = re.findall(r"\.entry (\w+)\([^{]*\.minnctapersm 2", ptx)
    used = assembled(ptx, "sm_80").used[name]
    assert used.registers <= 128 and (used.spills, used.stack) == (0, 0)


HALVES = {"bfloat16": "cvt.rn.bf16", "float16": "cvt.rn.f16"}


@pytest.mark.parametrize("dtype", HALVES)
def test_short_numbers_are_made_by_one_instruction(dtype: str) -> None:
    """Or two of them by one. What is only moved is not converted."""
    arguments = f"{dtype}(N,M) A, {dtype}(N,M) B"
    text = f"def f({arguments}) -> (C) {{ C(i,j) = A(i,j) * B(i,j) + 1.0 }}"
    ptx = tc.define(text, target="cuda:sm_80").f.explain("ptx")
    single, pairs = (ptx.count(f"{HALVES[dtype]}{x}.f32") for x in ("", "x2"))
    assert single + 2 * pairs == ptx.count("add.rn.f32") > 1
    assert "setp.nan" not in ptx and "32767" not in ptx
    text = f"def f({dtype}(N,M) A) -> (C) {{ C(j,i) = A(i,j) }}"
    assert ".f32" not in tc.define(text, target="cuda:sm_80").f.explain("ptx")


def on_devices(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(name, device) for name in names for device in ("sm_80", "sm_90a")]


@pytest.mark.parametrize(
    ("dtype", "op", "instruction"),
    [
        ("int32", "+=!", "atom.global.add.u32"),
        ("uint64", "max=!", "atom.global.max.u64"),
        ("float", "max=!", "atom.relaxed.gpu.global.cas.b32"),
    ],
)
def test_updates_at_once(dtype: str, op: str, instruction: str) -> None:
    text = f"def f(int32(N) I, {dtype}(N) X) -> ({dtype}(V) H) {{ H(I(n)) {op} X(n) }}"
    ptx = tc.define(text, target="cuda:sm_80").f.explain("ptx")
    assert instruction in ptx and ".sys." not in ptx


@needs_ptxas
@pytest.mark.parametrize(("name", "device"), on_devices(list(KERNELS)))
def test_no_function_spills(name: str, device: str) -> None:
    made = assembled(ptx_of(CASES[name].kernel, f"cuda:{device}"), device)
    (used,) = made.used.values()
    assert made.cubin[:4] == b"\x7fELF"
    assert (used.spills, used.stack) == (0, 0)
    assert used.registers <= KERNELS[name][0]


PRODUCTS = {  # that warps make
    "float16": "def mm(float16(M,K) A, float16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    "bfloat16": "def mm(bfloat16(M,K) A, bfloat16(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
    "tf32": "def mm(float(K,M) A, float(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }",
}


SCATTERED = {  # whose updates are whole
    "largest": "def f(int32(N) I, float(N) X) -> (float(V) H) { H(I(n)) max=! X(n) }",
    "least": "def f(int32(N) I, double(N) X) -> (double(V) H) { H(I(n)) min=! X(n) }",
}


def whole_kernel(name: str, device: str) -> Kernel:
    """For all but huge sizes, all arguments dense."""
    (program,) = analyse((PRODUCTS | SCATTERED).get(name) or tc.library.source(name)).values()
    dense = ("dense",) * (len(program.inputs) + len(program.outputs))
    target, options = resolve_target(f"cuda:{device}"), Options(tf32=name == "tf32")
    stages = Lowering(program, target, options, {}, dense, (), {})
    return stages.mapped(stages.scheduled()).kernel


def most_shared(kernel: Kernel) -> int:
    return max(block_bytes(kernel, region) for region, _ in grids(kernel.body))


def test_steps_of_products_are_unrolled() -> None:
    """Two of 16 products of a warp, or of 8. Whose panels are copied by 16 bytes, that leaves room
    for the blocks that the cost counts with."""
    ptx = ptx_of(whole_kernel("float16", "sm_90a"), "cuda:sm_90a")
    found = re.findall(r"\.minnctapersm (\d+)\n\{(.*?)^\}", ptx, re.MULTILINE | re.DOTALL)
    rooms = {
        (body.count("mma.sync"), "cp.async.cg" in body, int(room))
        for room, body in found
        if "mma.sync" in body
    }
    assert rooms == {(32, True, 2), (32, False, 1), (16, True, 5), (16, False, 1)}
    # Matrices of the right factor are loaded four at once.
    assert f"{MATRICES}.x4.trans" in ptx and f"{MATRICES}.x2" not in ptx


@needs_ptxas
@pytest.mark.slow
@pytest.mark.parametrize(("name", "device"), on_devices([*tc.library.names(), *PRODUCTS]))
def test_the_library_assembles(name: str, device: str, update_golden: bool) -> None:
    """Without spills, in as many registers of a thread and bytes of a block as the table says."""
    kernel = whole_kernel(name, device)
    used = assembled(ptx_of(kernel, f"cuda:{device}"), device).used.values()
    assert {(x.spills, x.stack) for x in used} <= {(0, 0)}
    registers, shared = max(x.registers for x in used), most_shared(kernel)
    table = json.loads(RESOURCES.read_text())
    if update_golden:
        table.setdefault(name, {})[device] = [registers, shared]
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(table.items()))
        RESOURCES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    most, bytes_shared = table[name][device]
    assert registers <= most + OTHER_ASSEMBLERS and shared == bytes_shared
