# SPDX-License-Identifier: Apache-2.0
"""Shared code serves a target without vectors: regions for one thread, here and as PTX."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tcsym.codegen.object_code import object_code
from tcsym.codegen.scalar.addresses import Address
from tcsym.codegen.scalar.backend import Backend, Memory
from tcsym.codegen.scalar.by_element import by_element
from tcsym.codegen.scalar.context import Context, Faults
from tcsym.codegen.scalar.control import serial_loop, statement
from tcsym.codegen.scalar.least import ranges_of_sizes
from tcsym.codegen.scalar.memory import load_element, store_element
from tcsym.codegen.scalar.regions import inside, received
from tcsym.codegen.scalar.registers import Registers
from tcsym.codegen.scalar.stores import element_of, store_statement, update_statement
from tcsym.codegen.scalar.text import Function, Module
from tcsym.codegen.scalar.values import Code, Val
from tcsym.frontend.program import Binary, Call, Cast, Const, Read
from tcsym.index.expr import of_atom, var
from tcsym.index.values import evaluate
from tcsym.ir.allocate import allocate
from tcsym.ir.device import OnDevice, not_on_a_cpu
from tcsym.ir.loops import (
    Allocate,
    Buffer,
    Kernel,
    Loop,
    Node,
    Shuffle,
    Store,
    TransposeBlock,
    Update,
    block,
)
from tcsym.ir.regions import Host, Region, outline
from tcsym.target.machine import Machine
from tcsym.target.names import resolve_target
from tcsym.types import DType
from tests.codegen.harness import const

F32, F64 = DType.FLOAT32, DType.FLOAT64
PLAIN = resolve_target("cpu:novector")
PTX = 'target triple = "nvptx64-nvidia-cuda"\n'
ATTRIBUTES = (
    "attributes #1 = { nounwind }\n"
    '!0 = !{!"branch_weights", i32 1, i32 1000}\n!1 = !{!"branch_weights", i32 1000, i32 1}'
)


class OneLane:
    """Memory, launcher and intrinsics of a target without vectors."""

    def of_another(self) -> Memory:
        return self

    def load(self, context: Context, at: Address, buffer: Buffer, mask: Val | None) -> Val:
        assert mask is None
        return load_element(context, at, buffer)

    def store(
        self,
        context: Context,
        at: Address,
        buffer: Buffer,
        value: Val,
        mask: Val | None,
        streamed: int = 0,
    ) -> None:
        assert mask is None
        store_element(context, at, buffer, value)

    def read(self, context: Context, r: Read) -> Val | None:
        return None

    def assign(self, context: Context, n: Store | Update) -> None:
        if isinstance(n, Store):
            store_statement(context, n, element_of(context, n))
        else:
            update_statement(context, n)

    def block(self, context: Context, body: tuple[Node, ...]) -> None:
        for n in body:
            statement(context, n)

    def finish(self, context: Context, body: Node) -> None:
        pass

    def launch(self, context: Context, region: Region) -> None:
        raise AssertionError("no host half here")

    def value(self, context: Context, v: Call) -> Val | None:
        return None

    def term(self, context: Context, n: Update) -> Callable[[Val], Val] | None:
        return None

    def shuffle(self, context: Context, v: Shuffle) -> Val:
        raise not_on_a_cpu(v)

    def perform(self, context: Context, n: TransposeBlock | OnDevice) -> None:
        if isinstance(n, TransposeBlock):
            buffers = context.buffers[n.source], context.buffers[n.target]
            statement(context, by_element(n, *buffers))


def memory_of(kernel: Kernel, machine: Machine) -> Memory:
    return OneLane()


def rows() -> Kernel:
    """O[i, k] = exp(X[P[i], k]) / sum over k, by a private row; T[i, 0] = X[i, 0] as a block."""
    n, k, i = var("N"), var("K"), var("i")
    x, o = Buffer("X", F32, (n, k)), Buffer("O", F64, (n, k))
    p, t = Buffer("P", DType.INT64, (n,)), Buffer("T", F32, (n, k))
    row, total = Buffer("E", F32, (k,), space="arena"), Buffer("S", F64, (), space="register")
    k1, k2, k3 = var("k1"), var("k2"), var("k3")
    read = Read("X", (Read("P", (i,), DType.INT64), k1), F32, checked=(True, False))
    body = block(
        Store("S", (), Const(0.0, F64)),
        Loop("k1", const(0), k, Store("E", (k1,), Call("exp", (read,), F32))),
        Loop("k2", const(0), k, Update("S", (), "add", Cast(Read("E", (k2,), F32), F64))),
        Loop(
            "k3",
            const(0),
            k,
            Store(
                "O",
                (i, k3),
                Binary("div", Cast(Read("E", (k3,), F32), F64), Read("S", (), F64), F64),
            ),
        ),
        TransposeBlock("T", (i, const(0)), "X", (i, const(0)), const(1), const(1), 4),
    )
    loop = Loop("i", const(0), n, Allocate(("E",), Allocate(("S",), body)), "parallel", "parallel")
    return Kernel("rows", ("N", "K"), ("X", "P", "T", "O"), (x, p, t, o, row, total), loop)


def written(kernel: Kernel, head: str, define: str) -> tuple[Host, str]:
    """The host half, and LLVM IR of the one region as a function of a range of iterations."""
    host, module = outline(kernel), Module(head, ATTRIBUTES)
    (region,) = host.regions
    lane = OneLane()
    outer = Context(
        kernel=kernel,
        machine=PLAIN.machine,
        module=module,
        buffers={b.name: b for b in kernel.buffers},
        faults=Faults(),
        backend=Backend(memory_of, lane, lane),
        memory=lane,
        code=Code(f := Function(module, ""), PLAIN.machine),
        registers=Registers(f),
        error="",
        storage=allocate(kernel),
        arena="",
        host=host,
        calls={},
        ranges=ranges_of_sizes(kernel),
        facts=ranges_of_sizes(kernel),
    )
    parameters = ["ptr %error", "ptr %arena", "i64 %lower", "i64 %upper", *received(region)]
    f = Function(module, f"{define} void @{region.name}({', '.join(parameters)}) #1")
    serial_loop(inside(outer, region, f), region.loop, Val("%lower", "i64"), Val("%upper", "i64"))
    f.do("ret void")
    f.finish()
    return host, module.text()


def run(text: str, region: Region, arrays: dict[str, Any], sizes: dict[str, int]) -> int:
    """The region for all rows, told what it receives; the fault's code."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(object_code(text, PLAIN)))
    engine.finalize_object()
    error, arena = ctypes.c_int32(0), np.zeros(4096, np.uint8)
    given = [ctypes.byref(error), ctypes.c_void_p(arena.ctypes.data)]
    told = [sizes[n] for n in region.numbers]
    told += [evaluate(of_atom(a), sizes) for a in region.formulas]
    given += [ctypes.c_int64(x) for x in (0, sizes["N"], *told)]
    given += [ctypes.c_void_p(arrays[n].ctypes.data) for n in region.pointers]
    ctypes.CFUNCTYPE(None)(engine.get_function_address(region.name))(*given)
    return error.value


def test_a_region_runs_with_what_it_receives() -> None:
    host, text = written(rows(), "; vectors: none\n", "define")
    (region,) = host.regions
    assert region.numbers == ("N", "K") and region.pointers == ("X", "P", "T", "O")
    rng = np.random.default_rng(0)
    n, k = 5, 7
    x = rng.standard_normal((n, k), dtype=np.float32)
    p = np.array([3, 0, 4, 1, 1])
    arrays = {"X": x, "P": p, "T": np.zeros((n, k), np.float32), "O": np.zeros((n, k))}
    assert run(text, region, arrays, {"N": n, "K": k}) == 0
    e = np.exp(x[p].astype(float))
    np.testing.assert_allclose(arrays["O"], e / e.sum(1)[:, None], rtol=1e-5)
    np.testing.assert_array_equal(arrays["T"][:, 0], x[:, 0])
    assert run(text, region, {**arrays, "P": p + 2}, {"N": n, "K": k}) == 1


def test_a_region_is_code_for_a_graphics_processor() -> None:
    _, text = written(rows(), PTX, "define ptx_kernel")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("nvptx64-nvidia-cuda")
    module = llvm.parse_assembly(text)
    module.verify()
    ptx = target.create_target_machine(cpu="sm_80", opt=3).emit_assembly(module)
    assert ".entry tcsym_task0" in ptx
    assert ".extern" not in ptx and "call" not in ptx  # no library has the mathematics
