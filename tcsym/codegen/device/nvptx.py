# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's devices: the table of instructions, and how their functions begin.

References: PTX ISA; LLVM, User Guide for NVPTX. Pointers of regions are generic, as the host's are:
LLVM sees which memory each is of from where it begins, and the instructions say so. All is written
as LLVM 20 reads it, which newer ones do, too; what one does not know it makes no error.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.codegen.device.instructions import Fragments, as_bits, of_bits
from tcsym.codegen.device.launch import SHARED
from tcsym.codegen.scalar.addresses import address
from tcsym.codegen.scalar.casts import from_bits, to_bits
from tcsym.codegen.scalar.context import Context
from tcsym.codegen.scalar.text import N_WEIGHTS, Function, Module
from tcsym.codegen.scalar.values import Code, Val, constant
from tcsym.ir.device import WARP, LoadMatrices
from tcsym.ir.loops import Buffer
from tcsym.types import DType

_ALL = "i32 -1"  # threads of a warp
_MMA = {
    DType.BFLOAT16: "m16n8k16.row.col.bf16",
    DType.FLOAT16: "m16n8k16.row.col.f32.f32",
    DType.FLOAT32: "m16n8k8.row.col.tf32",
}


class OfNvptx:
    """LLVM's intrinsics for NVPTX."""

    def entry(
        self, module: Module, name: str, words: Sequence[str], threads: int, resident: int
    ) -> None:
        words = [word.replace("ptr", "ptr addrspace(1)") for word in words]
        kinds = [word.removesuffix(" readonly").removesuffix(" noalias") for word in words]
        given = ", ".join(f"{word} %w{k}" for k, word in enumerate(words))
        f = Function(module, f"define ptx_kernel void @{name}({given}) #0")
        told = [generic(f, kind, f"%w{k}") for k, kind in enumerate(kinds)]
        own = [generic(f, "ptr addrspace(3)", f"@{SHARED}")]
        own += [f"i64 {_special(f, register)}" for register in ("ctaid", "tid")]
        f.do(f"call void @{name}.body({', '.join([told[0], *own, 'ptr null', *told[1:]])})")
        f.do("ret void")
        f.finish()
        bounds = f'!"maxntidx", i32 {threads}, !"minctasm", i32 {resident}'
        k = N_WEIGHTS + list(module.parts).index(name)
        module.functions.append(
            f"!nvvm.annotations = !{{!{k}}}\n!{k} = !{{ptr @{name}, {bounds}}}\n"
        )

    def barrier(self, context: Context) -> None:
        _do(context, "barrier0")

    def blocks(self, context: Context) -> Val:
        return Val(_special(context.function, "nctaid"), "i64")

    def grid_barrier(self, context: Context, counter: str) -> None:
        """The highest bit of the counter changes when the last block has come.

        Reference: CUDA, cooperative_groups/details/sync.h.
        """
        f = context.function
        block, thread, blocks = (_register(f, x) for x in ("ctaid", "tid", "nctaid"))
        last = f.pure(f"sub i32 {1 - (1 << 31)}, {blocks}")
        is_first, speaks = (f.pure(f"icmp eq i32 {x}, 0") for x in (block, thread))
        added = f.pure(f"select i1 {is_first}, i32 {last}, i32 1")
        arrive, wait, seen, end = (f.new_label(x) for x in ("arrive", "wait", "seen", "met"))
        self.barrier(context)
        f.branch(speaks, arrive, end, False)
        f.start_block(arrive)
        _do(context, "membar.gl")
        order = 'syncscope("device") monotonic'
        old = f.result(f"atomicrmw add ptr {counter}, i32 {added} {order}")
        f.jump(wait)
        f.start_block(wait)
        now = f.result(f"load volatile i32, ptr {counter}, align 4")
        changed = f.result(f"xor i32 {old}, {now}")
        f.branch(f.result(f"icmp slt i32 {changed}, 0"), seen, wait)
        f.start_block(seen)
        _do(context, "membar.gl")
        f.jump(end)
        f.start_block(end)
        self.barrier(context)

    def shuffle(self, context: Context, value: Val, lane: Val) -> Val:
        code, source = context.code, context.code.convert("trunc", lane, "i32")
        if value.kind not in ("i64", "double"):
            return of_bits(code, _shuffled(context, as_bits(code, value, 32), source), value.kind)
        whole, half = as_bits(code, value, 64), constant(32, "i64")
        parts = whole, code.binary("lshr", whole, half)
        low, high = (
            code.convert("zext", _shuffled(context, code.convert("trunc", x, "i32"), source), "i64")
            for x in parts
        )
        return of_bits(code, code.binary("or", low, code.binary("shl", high, half)), value.kind)

    def begin_copy(
        self, context: Context, to: str, source: str, n_bytes: int, reads: Val | None
    ) -> None:
        f, cache = context.function, "cg" if n_bytes == 16 else "ca"
        given = [_in_space(f, 3, to), _in_space(f, 1, source)]
        name = f"cp.async.{cache}.shared.global.{n_bytes}"
        if reads is not None:
            some, none = constant(n_bytes, "i32"), constant(0, "i32")
            given.append(context.code.select(reads, some, none).typed)
            name += ".s"
        _do(context, name, *given)

    def commit_copies(self, context: Context) -> None:
        _do(context, "cp.async.commit.group")

    def wait_copies(self, context: Context, pending: int) -> None:
        _do(context, "cp.async.wait.group", f"i32 {pending}")

    def load_matrices(self, context: Context, n: LoadMatrices) -> None:
        code, f, count = context.code, context.function, 1 << len(n.steps)
        source, target = context.buffers[n.source], context.buffers[n.target]
        place = address(context, source, n.row).pointer
        name = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' * n.transposed}.b16"
        words = _several(f, "i32", count, name, _in_space(f, 3, place))
        values = [x for w in words for x in _elements(code, w, source.dtype)]
        for (at, _), x in zip(n.elements(source.dtype.bytes), values, strict=True):
            context.memory.store(context, address(context, target, at), target, x, None)

    def multiply(self, context: Context, held: Fragments, depth: int) -> list[Val]:
        code = context.code
        if held.dtype is DType.FLOAT32:
            factors = [_short(context.function, x) for x in (*held.left, *held.right)]
        else:
            short = [to_bits(code, x, held.dtype) for x in (*held.left, *held.right)]
            pairs = [_pair(code, *short[k : k + 2]) for k in range(0, len(short), 2)]
            if held.dtype is DType.FLOAT16:
                pairs = [code.convert("bitcast", x, "<2 x half>") for x in pairs]
            factors = [x.typed for x in pairs]
        given, name = (*factors, *(x.typed for x in held.sums)), f"mma.{_MMA[held.dtype]}"
        return _several(context.function, "float", len(held.sums), name, *given)

    def touch(self, context: Context, pointer: str, buffer: Buffer, use: int, line: int) -> None:
        """Nobody looks."""


def generic(f: Function, kind: str, value: str) -> str:
    """A value with its type; a pointer to some memory as one to any."""
    if not kind.startswith("ptr"):
        return f"{kind} {value}"
    return f"ptr {f.pure(f'addrspacecast {kind} {value} to ptr')}"


def _special(f: Function, register: str) -> str:
    """A number of the thread in one dimension, as 64 bits."""
    return f.pure(f"zext i32 {_register(f, register)} to i64")


def _register(f: Function, name: str) -> str:
    f.module.declare("i32", f"llvm.nvvm.read.ptx.sreg.{name}.x", "")
    return f.pure(f"call i32 @llvm.nvvm.read.ptx.sreg.{name}.x()")


def _in_space(f: Function, space: int, pointer: str) -> str:
    """A pointer to any memory as one to some, with its type."""
    kind = f"ptr addrspace({space})"
    return f"{kind} {f.pure(f'addrspacecast ptr {pointer} to {kind}')}"


def _do(context: Context, name: str, *arguments: str) -> None:
    context.function.call("void", f"llvm.nvvm.{name}", *arguments)


def _several(f: Function, kind: str, count: int, name: str, *arguments: str) -> list[Val]:
    """All results of an intrinsic that has so many."""
    result = f"{{{', '.join([kind] * count)}}}"
    whole = f.call(result, f"llvm.nvvm.{name}", *arguments)
    return [Val(f.result(f"extractvalue {result} {whole}, {k}"), kind) for k in range(count)]


def _shuffled(context: Context, value: Val, lane: Val) -> Val:
    given = _ALL, value.typed, lane.typed, f"i32 {WARP - 1}"
    return Val(context.function.call("i32", "llvm.nvvm.shfl.sync.idx.i32", *given), "i32")


def _short(f: Function, value: Val) -> str:
    """float32 -> tf32, to nearest: what `mma` is given as it is, it would round toward zero."""
    f.module.declare("i32", "llvm.nvvm.f2tf32.rna", "float")
    return f"i32 {f.pure(f'call i32 @llvm.nvvm.f2tf32.rna({value.typed})')}"


def _elements(code: Code, word: Val, dtype: DType) -> list[Val]:
    """A number of 32 bits, or two of 16 bits, the first in the lower half."""
    if dtype is DType.FLOAT32:
        return [code.convert("bitcast", word, "float")]
    halves = word, code.binary("lshr", word, constant(16, "i32"))
    return [from_bits(code, code.convert("trunc", x, "i16"), dtype) for x in halves]


def _pair(code: Code, first: Val, second: Val) -> Val:
    """Two short numbers as one of 32 bits, the first in its lower half."""
    low, high = (code.convert("zext", x, "i32") for x in (first, second))
    return code.binary("or", low, code.binary("shl", high, constant(16, "i32")))
