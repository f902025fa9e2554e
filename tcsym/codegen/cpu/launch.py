# SPDX-License-Identifier: Apache-2.0
"""The two functions by which a kernel runs its tasks, as text: one copy of each, not one a task.

`launch` fills the head of a task's data, decides the number of tasks and runs them; `chunk` finds
the share and the private arena of one task and calls the task's function. Where iterations differ
in what they have to do, tasks take runs of them as they come, by `claim`.
"""

from __future__ import annotations

from tcsym.codegen.scalar.text import Module
from tcsym.ir.compiled import CONTEXT_FIELDS

HEAD = ("error", "buffers", "sizes", "function", "arena", "arena_bytes", "lower", "count", "taken")
ALWAYS_WORTH = 1 << 60  # more work than waking any number of threads
RUNS = 16  # of iterations for each task, where they differ: the last ends that much after the first
_LAUNCH, _CHUNK, _CLAIM = "tcsym_kernel.launch", "tcsym_kernel.chunk", "tcsym_kernel.claim"
_PARAMETERS = (
    *("ptr %data", "ptr %function", "ptr %context", "ptr %buffers", "ptr %sizes", "ptr %error"),
    *("i64 %lower", "i64 %upper", "i64 %work", "ptr %share"),
)


def launch_call(module: Module, arguments: list[str], min_work: int, is_uneven: bool) -> str:
    """Call of `launch` with the values of `_PARAMETERS`, which becomes part of the module.

    `work`: of an iteration, in the unit of `Loop.work`. A task is made for each `min_work` of it,
    with 0 for each thread. is_uneven: iterations differ.
    """
    share = _CLAIM if is_uneven else _CHUNK
    if share not in module.names:
        module.names.add(share)
        module.functions.append(_claim_text() if is_uneven else _chunk_text())
    if _LAUNCH not in module.names:
        module.names.add(_LAUNCH)
        module.functions.append(_launch_text(min_work))
    given = zip(_PARAMETERS, [*arguments, f"@{share}"], strict=True)
    typed = [f"{p.split(' ')[0]} {a}" for p, a in given]
    return f"call void @{_LAUNCH}({', '.join(typed)})"


def _read(name: str, kind: str, array: str, place: int) -> str:
    return (
        f"  %at.{name} = getelementptr i64, ptr {array}, i64 {place}\n"
        f"  %{name} = load {kind}, ptr %at.{name}, align 8\n"
    )


def _context(name: str, field: str, kind: str) -> str:
    return _read(name, kind, "%context", CONTEXT_FIELDS.index(field))


def _head(name: str, kind: str) -> str:
    return _read(name, kind, "%data", HEAD.index(name))


def _launch_text(min_work: int) -> str:
    worth = (
        "  %whole = mul i64 %count, %work\n"
        f"  %worth = sdiv i64 %whole, {min_work}\n"
        "  %one = icmp slt i64 %worth, 1\n"
        "  %wanted = select i1 %one, i64 1, i64 %worth\n"
        "  %enough = icmp slt i64 %wanted, %most\n"
        "  %tasks = select i1 %enough, i64 %wanted, i64 %most\n"
    )
    if not min_work:
        worth = f"  %whole = add i64 0, {ALWAYS_WORTH}\n  %tasks = add i64 0, %most\n"
    stored = "".join(
        f"  %to.{name} = getelementptr i64, ptr %data, i64 {i}\n"
        f"  store {'ptr' if i < 5 else 'i64'} %{name}, ptr %to.{name}, align 8\n"
        for i, name in enumerate(HEAD)
    )
    return (
        f"define internal void @{_LAUNCH}({', '.join(_PARAMETERS)}) #1 {{\nstart:\n"
        "  %count = sub i64 %upper, %lower\n"
        "  %taken = add i64 0, 0\n"
        "  %some = icmp sgt i64 %count, 0\n"
        "  br i1 %some, label %fill, label %end\nfill:\n"
        + _context("arena", "private_arena", "ptr")
        + _context("arena_bytes", "private_bytes", "i64")
        + _context("threads", "threads", "i64")
        + "  %fewer = icmp slt i64 %threads, %count\n"
        "  %most = select i1 %fewer, i64 %threads, i64 %count\n"
        + worth
        + stored
        + "  %several = icmp sgt i64 %tasks, 1\n"
        "  br i1 %several, label %threaded, label %alone\nthreaded:\n"
        + _context("run", "parallel_for", "ptr")
        + _context("pool", "pool", "ptr")
        + "  call void %run(ptr %pool, ptr %share, ptr %data, i64 %tasks, i64 %whole)\n"
        "  br label %end\nalone:\n"
        "  call void %function(ptr %data, ptr %arena, i64 %lower, i64 %upper)\n"
        "  br label %end\nend:\n  ret void\n}\n"
    )


def _share_text(name: str) -> str:
    return (
        f"define internal void @{name}(ptr %data, i64 %task, i64 %tasks) #0 {{\nstart:\n"
        + _head("function", "ptr")
        + _head("arena", "ptr")
        + _head("arena_bytes", "i64")
        + _head("lower", "i64")
        + _head("count", "i64")
        + "  %skip = mul i64 %task, %arena_bytes\n"
        "  %private = getelementptr i8, ptr %arena, i64 %skip\n"
    )


def _chunk_text() -> str:
    return (
        _share_text(_CHUNK) + "  %next = add i64 %task, 1\n"
        "  %share = mul i64 %task, %count\n"
        "  %following = mul i64 %next, %count\n"
        "  %begin = udiv i64 %share, %tasks\n"
        "  %stop = udiv i64 %following, %tasks\n"
        "  %first = add i64 %begin, %lower\n"
        "  %last = add i64 %stop, %lower\n"
        "  call void %function(ptr %data, ptr %private, i64 %first, i64 %last)\n"
        "  ret void\n}\n"
    )


def _claim_text() -> str:
    return (
        _share_text(_CLAIM) + f"  %runs = mul i64 %tasks, {RUNS}\n"
        "  %whole = udiv i64 %count, %runs\n"
        "  %size = add i64 %whole, 1\n"
        f"  %place = getelementptr i64, ptr %data, i64 {HEAD.index('taken')}\n"
        "  br label %claim\nclaim:\n"
        "  %begin = atomicrmw add ptr %place, i64 %size monotonic\n"
        "  %some = icmp slt i64 %begin, %count\n"
        "  br i1 %some, label %run, label %end\nrun:\n"
        "  %after = add i64 %begin, %size\n"
        "  %fewer = icmp slt i64 %after, %count\n"
        "  %stop = select i1 %fewer, i64 %after, i64 %count\n"
        "  %first = add i64 %begin, %lower\n"
        "  %last = add i64 %stop, %lower\n"
        "  call void %function(ptr %data, ptr %private, i64 %first, i64 %last)\n"
        "  br label %claim\nend:\n  ret void\n}\n"
    )
