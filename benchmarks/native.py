# SPDX-License-Identifier: Apache-2.0
"""Two loops in machine code: fused multiply-adds in registers, and reading an array."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

_CHAINS = 12  # independent accumulators: more than latency times throughput of any x86 core
_STREAMS = 8
_LOADS = 2 * _STREAMS  # of one block


class Loops(Struct, frozen=True):
    """fma(n, out): n rounds of `flops_per_round`.

    read(p, n, passes, out): `passes` times n blocks of `block_bytes`. All write a vector to `out`.
    """

    fma: Callable[[int, int], None]
    read: Callable[[int, int, int, int], None]
    flops_per_round: int
    block_bytes: int
    engine: Any  # keeps the code alive


def compile_loops(lanes: int) -> Loops:
    """For vectors of `lanes` float32 on this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2
    )
    module = llvm.parse_assembly(_fma_text(lanes) + _read_text(lanes))
    module.verify()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()

    def function(name: str, n_arguments: int) -> Any:
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * n_arguments)
        return kind(engine.get_function_address(name))

    fma, read = function("fma_loop", 2), function("read_loop", 4)
    return Loops(fma, read, 2 * _CHAINS * lanes, 4 * _LOADS * lanes, engine)


def host_lanes() -> int:
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


def _loop(
    name: str,
    parameters: str,
    count: str,
    lanes: int,
    chains: int,
    step: Sequence[str],
    first: Sequence[str] = (),
    carried: Sequence[str] = (),
) -> str:
    """A loop over %i < count that carries `chains` vectors %a and stores their sum to %out."""
    v = f"<{lanes} x float>"
    phis = [f"%a{k} = phi {v} [zeroinitializer, %entry], [%n{k}, %loop]" for k in range(chains)]
    sums = [f"%s{k} = fadd {v} %{'n0' if k == 1 else f's{k - 1}'}, %n{k}" for k in range(1, chains)]
    lines = [
        f"define void @{name}({parameters}) {{",
        "entry:",
        *first,
        "br label %loop",
        "loop:",
        "%i = phi i64 [0, %entry], [%next, %loop]",
        *phis,
        *carried,
        *step,
        "%next = add i64 %i, 1",
        f"%more = icmp slt i64 %next, {count}",
        "br i1 %more, label %loop, label %done",
        "done:",
        *sums,
        "%q = inttoptr i64 %out to ptr",
        f"store {v} %s{chains - 1}, ptr %q, align 4",
        "ret void",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _fma_text(lanes: int) -> str:
    v = f"<{lanes} x float>"
    factor = f"<{', '.join(['float 0x3FEFFFFFC0000000'] * lanes)}>"
    name = f"@llvm.fma.v{lanes}f32"
    step = [
        f"%n{k} = call {v} {name}({v} %a{k}, {v} {factor}, {v} {factor})" for k in range(_CHAINS)
    ]
    declared = f"declare {v} {name}({v}, {v}, {v})\n"
    return declared + _loop("fma_loop", "i64 %n, i64 %out", "%n", lanes, _CHAINS, step)


def _read_text(lanes: int) -> str:
    v = f"<{lanes} x float>"
    step = [
        "%at_end = icmp eq i64 %block, %n",
        "%here = select i1 %at_end, i64 0, i64 %block",
        "%after = add i64 %here, 1",
        f"%o = mul i64 %here, {4 * _LOADS * lanes}",
        "%b = add i64 %p, %o",
    ]
    for k in range(_LOADS):
        before = f"%a{k}" if k < _STREAMS else f"%m{k - _STREAMS}"
        after = f"%m{k}" if k < _STREAMS else f"%n{k - _STREAMS}"
        step += [
            f"%c{k} = add i64 %b, {4 * lanes * k}",
            f"%p{k} = inttoptr i64 %c{k} to ptr",
            f"%x{k} = load {v}, ptr %p{k}, align 4",
            f"{after} = fadd {v} {before}, %x{k}",
        ]
    parameters = "i64 %p, i64 %n, i64 %passes, i64 %out"
    phi = "%block = phi i64 [0, %entry], [%after, %loop]"
    first = ["%count = mul i64 %n, %passes"]
    return _loop("read_loop", parameters, "%count", lanes, _STREAMS, step, first, [phi])
