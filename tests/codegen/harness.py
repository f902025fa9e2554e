# SPDX-License-Identifier: Apache-2.0
"""Runs a loop-IR kernel: emit, compile, load into this process, call with a launch context."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from msgspec import Struct, field

from tcsym.codegen import Generated, emit, object_code
from tcsym.index.expr import Index, ceildiv, var
from tcsym.index.values import evaluate
from tcsym.ir.compiled import SYMBOL
from tcsym.ir.loops import Buffer, Kernel, Loop, Node, Store, Value
from tcsym.ir.traverse import substitute_node
from tcsym.ir.verify import verify
from tcsym.target.host import runs_here
from tcsym.target.names import resolve_target
from tcsym.target.target import Target
from tcsym.types import DType

TARGETS = [t for t in ("cpu:avx2", "cpu:novector", "cpu:avx512") if runs_here(resolve_target(t))]
_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 2)
_FOR = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
# target and width; scalar code of a target with masks is that of one without
WAYS = [(t, w) for t in TARGETS for w in (0, 8) if w or t != "cpu:avx512"]


class Launches(Struct, dict=True):
    """Numbers of tasks of the parallel loops that ran, and their scratch memory, in a row each.

    Memory that no task has written holds 0xFF.
    """

    tasks: list[int] = field(default_factory=list)
    threaded: bool = False
    scratch: Any = None

    def parallel_for(self, _pool: int, function: int, data: int, n_tasks: int, _: int) -> None:
        self.tasks.append(n_tasks)
        task = _TASK(function)
        if not self.threaded:
            for t in reversed(range(n_tasks)):
                task(data, t, n_tasks)
            return
        threads = [threading.Thread(target=task, args=(data, t, n_tasks)) for t in range(n_tasks)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


class Loaded(Struct):
    """A kernel in this process."""

    kernel: Kernel
    generated: Generated
    engine: Any
    function: Any

    def __call__(
        self,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        sizes: Mapping[str, int] | None = None,
        threads: int = 1,
        launches: Launches | None = None,
    ) -> int:
        """The kernel's result: 0 or 1 + the index of a fault. `arrays` are dense or strided."""
        sizes = sizes or {}
        launches = launches or Launches()
        buffers = (ctypes.c_void_p * 64)(*(arrays[n].ctypes.data for n in self.kernel.arguments))
        values = (ctypes.c_int64 * 64)(*(sizes[n] for n in self.kernel.sizes))
        private = evaluate(self.generated.private_bytes, sizes)
        shared = aligned(evaluate(self.generated.shared_bytes, sizes))
        own = aligned(private * threads)
        launches.scratch = own.reshape(threads, private)
        run = _FOR(launches.parallel_for)
        context = (ctypes.c_int64 * 6)(
            ctypes.cast(run, ctypes.c_void_p).value or 0,
            0,
            threads,
            shared.ctypes.data,
            own.ctypes.data,
            private,
        )
        return int(self.function(buffers, values, context))


def aligned(n_bytes: int) -> np.ndarray[Any, Any]:
    """Memory on a 64-byte boundary, full of NaN bits, with its end guarded by a pattern."""
    raw = np.full(n_bytes + 128, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + n_bytes]


_KEEP: list[Any] = []


def load(kernel: Kernel, target: Target | str = "cpu:avx2", min_work: int = 1) -> Loaded:
    verify(kernel)
    target = resolve_target(target) if isinstance(target, str) else target
    generated = emit(kernel, target, min_work)
    llvm.parse_assembly(generated.ir_text).verify()
    return _link(kernel, generated, object_code(generated.ir_text, target))


def _link(kernel: Kernel, generated: Generated, code: bytes) -> Loaded:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(SYMBOL)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(address)
    _KEEP.append(engine)
    return Loaded(kernel, generated, engine, function)


@lru_cache(None)
def _triple() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple()


def _machine() -> Any:
    return _triple().create_target_machine(jit=True)


# ---- building kernels


def const(n: int) -> Index:
    return Index((), n)


def vector(variable: str, width: int, body: Node, mask: Index | None = None) -> Loop:
    return Loop(variable, const(0), const(width), body, "vector", "parallel", mask)


def unrolled(variable: str, count: int, body: Node, mask: Index | None = None) -> Loop:
    return Loop(variable, const(0), const(count), body, "unrolled", "parallel", mask)


def elementwise(value: Value, dtype: DType, inputs: Mapping[str, DType], width: int) -> Kernel:
    """O(i) = value for i < N, where `value` reads inputs at `i`; `width` 0: without vectors."""
    n = var("N")
    store = Store("O", (var("i"),), value, "S")
    body: Node
    if width:
        moved = substitute_node(store, {"i": var("t") * width + var("l")})
        lanes = vector("l", width, moved, n - var("t") * width)
        body = Loop("t", const(0), ceildiv(n, width), lanes)
    else:
        body = Loop("i", const(0), n, store)
    buffers = [Buffer(name, t, (n,)) for name, t in inputs.items()]
    out = Buffer("O", dtype, (n,))
    return Kernel("elementwise", ("N",), (*inputs, "O"), (*buffers, out), body)
