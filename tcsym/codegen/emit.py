# SPDX-License-Identifier: Apache-2.0
"""Kernel of the loop IR -> LLVM IR text: the driver of code generation.

`tcsym_kernel(buffers, sizes, context)` (see `tcsym.ir.compiled`) unpacks its arguments and calls
`tcsym_kernel.body`. Its pointer parameters are `noalias`, as outputs overlap nothing and inputs are
only read, unless there are tasks: these find the same pointers in the launch's array.
"""

from __future__ import annotations

from msgspec import Struct

from tcsym.codegen.cpu.clipped_blocks import define_clipped
from tcsym.codegen.cpu.finite import all_finite
from tcsym.codegen.cpu.intrinsics import VectorIntrinsics
from tcsym.codegen.cpu.parallel import Tasks
from tcsym.codegen.cpu.vector_memory import vector_memory
from tcsym.codegen.object_code import pipeline_line
from tcsym.codegen.scalar.backend import Backend
from tcsym.codegen.scalar.choices import chosen
from tcsym.codegen.scalar.context import Bound, Context, Faults, launch_field
from tcsym.codegen.scalar.control import statement
from tcsym.codegen.scalar.extrema_of_terms import extrema_of_terms
from tcsym.codegen.scalar.functions import define
from tcsym.codegen.scalar.index_code import condition
from tcsym.codegen.scalar.least import ranges_of_sizes
from tcsym.codegen.scalar.registers import Registers
from tcsym.codegen.scalar.share_loops import SharedLoops, share_loops
from tcsym.codegen.scalar.text import WEIGHTS, Function, Module
from tcsym.codegen.scalar.values import Code
from tcsym.index.expr import ZERO, Index
from tcsym.ir.allocate import Storage, allocate
from tcsym.ir.compiled import LEFT_OUT, SYMBOL, Fault
from tcsym.ir.loops import LAUNCHED, THREADS, Kernel, Loop
from tcsym.ir.regions import Host, outline
from tcsym.ir.traverse import walk
from tcsym.target.cuda import host_half
from tcsym.target.machine import Machine
from tcsym.target.target import Target

DEVICE = "device"  # the name of the module of what a device runs
APART = 2048  # bytes between two tasks' arenas: what one prefetches ahead are not the other's lines


class Generated(Struct, frozen=True):
    """LLVM IR and what a launch must know; byte counts are expressions over the kernel's sizes.

    `ir_text`: all of it as one module. `modules`: the same as modules that are compiled one by one.
    `device_text`: what a device runs, if that is something else.
    """

    ir_text: str
    modules: tuple[str, ...]
    faults: tuple[Fault, ...]
    shared_bytes: Index
    private_bytes: Index
    device_text: str = ""


def emit(kernel: Kernel, target: Target, min_work_per_thread: int) -> Generated:
    """LLVM IR for the kernel. A parallel loop uses a thread for each `min_work_per_thread`."""
    emission = begin(kernel, target, min_work_per_thread)
    modules = tuple([emission.text(name) for name in emission.names])
    whole, device = emission.main.whole_text(), emission.device
    code = "" if device is None else device.whole_text()
    counts = emission.shared_bytes, emission.private_bytes
    return Generated(whole, modules, emission.faults, *counts, code)


class Emission(Struct):
    """The main module of a kernel, and its parts, each written when it is first asked for.

    `device`: of what a device runs.
    """

    kernel: Kernel
    main: Module
    host: Host
    in_parts: bool
    found: Faults
    shared_bytes: Index
    private_bytes: Index
    device: Module | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the modules: functions before those that call them, the main one last."""
        if self.device is not None:
            return DEVICE, SYMBOL
        return (*self.main.parts, SYMBOL) if self.in_parts else (SYMBOL,)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Of what is written so far; later ones come behind."""
        return tuple(self.found.faults)

    def text(self, name: str) -> str:
        """LLVM IR of a module."""
        if name == DEVICE:
            assert self.device is not None
            return self.device.whole_text()
        if not self.in_parts:
            return self.main.whole_text()
        return self._module(name).text()

    def calls(self, name: str) -> tuple[str, ...]:
        """The modules with functions that this one calls. Tasks are launched, not called."""
        if not self.in_parts:
            return ()
        tasks = {region.name for region in self.host.regions}
        return tuple([n for n in self._module(name).calls() if n not in tasks])

    def _module(self, name: str) -> Module:
        return self.main if name == SYMBOL else self.main.parts[name]


def begin(kernel: Kernel, target: Target, min_work_per_thread: int) -> Emission:
    """Writes the main module.

    Every shared function and every parallel loop is a part of its own. Code without vectors is
    one module: LLVM's pipeline for it looks across functions.
    """
    backend, device = _backend(target, min_work_per_thread)
    has_vectors = backend.has_lanes and _has_vectors(kernel)
    if has_vectors and target.machine.has_masks:  # else compares are as cheap as what they save
        kernel = extrema_of_terms(kernel)
    module = Module(
        pipeline_line(has_vectors), _attributes(target if device is None else host_half(target))
    )
    faults = Faults()
    define_clipped(kernel, module, target.machine)  # first: shared functions call it
    loops = share_loops(kernel) if has_vectors else SharedLoops()
    for function in loops.functions:
        define(function, module, target.machine, backend, statement)
    _entry(module, kernel)
    storage, host = allocate(kernel), outline(kernel)
    _body(kernel, target.machine, module, faults, backend, loops, storage, host)
    shared, private = storage.shared_bytes, storage.private_bytes
    if private != ZERO:
        private += APART
    in_parts = has_vectors and bool(module.parts)
    return Emission(kernel, module, host, in_parts, faults, shared, private, device)


def _backend(target: Target, min_work_per_thread: int) -> tuple[Backend, Module | None]:
    """And the module of what a device runs, if it runs that itself."""
    if target.kind not in ("twin", "cuda"):
        return Backend(vector_memory, Tasks(min_work_per_thread), VectorIntrinsics()), None
    from tcsym.codegen.device.backend import device_backend  # code of a CPU needs none of it

    return device_backend(target)


def _body(
    kernel: Kernel,
    machine: Machine,
    module: Module,
    faults: Faults,
    backend: Backend,
    loops: SharedLoops,
    storage: Storage,
    host: Host,
) -> None:
    """Writes the function."""
    f = Function(module, _body_head(kernel))
    context = Context(
        kernel=kernel,
        machine=machine,
        module=module,
        buffers={b.name: b for b in kernel.buffers},
        faults=faults,
        backend=backend,
        memory=backend.memory(kernel, machine),
        code=Code(f, machine),
        registers=Registers(f),
        error="%error",
        storage=storage,
        arena="",
        host=host,
        calls=loops.calls,
        variables={name: Bound(f"%v{i}") for i, name in enumerate(kernel.sizes)},
        ranges=ranges_of_sizes(kernel),
        facts=ranges_of_sizes(kernel),
        pointers={name: f"%p{i}" for i, name in enumerate(kernel.arguments)},
    )
    context.arena = launch_field(context, "shared_arena", "ptr")
    _leave_out(context)
    _bind_launched(context)
    statement(context, host.body)
    context.memory.finish(context, host.body)
    f.do("ret void")
    f.finish()


def _leave_out(context: Context) -> None:
    """Sizes that the kernel has no code for."""
    f, leaves = context.function, condition(context, context.kernel.left_out)
    if isinstance(leaves, bool):
        assert not leaves  # nobody would call it
        return
    leave, serve = f.new_label("leave"), f.new_label("serve")
    f.branch(leaves.text, leave, serve, False)
    f.start_block(leave)
    f.do(f"store i32 {LEFT_OUT}, ptr {context.error}, align 4")
    f.do("ret void")
    f.start_block(serve)


def _body_head(kernel: Kernel) -> str:
    pointer = "ptr" if _has_tasks(kernel) else "ptr noalias"
    parameters = ["ptr noalias %error", "ptr %context", "ptr %buffers", "ptr %sizes"]
    parameters += [f"i64 %v{i}" for i in range(len(kernel.sizes))]
    parameters += [f"{pointer} %p{i}" for i in range(len(kernel.arguments))]
    return f"define internal void @{SYMBOL}.body({', '.join(parameters)}) #1"


def _has_tasks(kernel: Kernel) -> bool:
    return any(isinstance(x, Loop) and x.kind in LAUNCHED for x, _ in walk(kernel.body))


def _bind_launched(context: Context) -> None:
    """The number of threads; of arguments, addresses modulo a cache line's and finite values; what
    is chosen by costs."""
    f = context.function
    several = _has_tasks(context.kernel)  # or else nothing runs on other threads
    context.variables[THREADS] = Bound(launch_field(context, "threads", "i64") if several else "1")
    for buffer in context.kernel.buffers:
        if buffer.phase:
            address = f.pure(f"ptrtoint ptr {context.pointers[buffer.name]} to i64")
            inside = f.pure(f"and i64 {address}, {context.machine.line_bytes - 1}")
            elements = f.pure(f"udiv i64 {inside}, {buffer.dtype.bytes}")
            context.variables[buffer.phase] = Bound(elements)
        if buffer.finite:
            context.variables[buffer.finite] = Bound(all_finite(context, buffer))
    for variable, value in chosen(context).items():
        context.variables[variable] = Bound(value)


def _entry(module: Module, kernel: Kernel) -> None:
    head = f"define i32 @{SYMBOL}(ptr %buffers, ptr %sizes, ptr %context) #0"
    f = Function(module, head)
    error = f.alloca("i32", 4)
    f.do(f"store i32 0, ptr {error}, align 4")
    args = [f"ptr {error}", "ptr %context", "ptr %buffers", "ptr %sizes"]
    for kind, base, names in (
        ("i64", "%sizes", kernel.sizes),
        ("ptr", "%buffers", kernel.arguments),
    ):
        for i in range(len(names)):
            place = f.result(f"getelementptr i64, ptr {base}, i64 {i}")
            args.append(f"{kind} {f.result(f'load {kind}, ptr {place}, align 8')}")
    f.do(f"call void @{SYMBOL}.body({', '.join(args)})")
    code = f.result(f"load i32, ptr {error}, align 4")
    f.do(f"ret i32 {code}")
    f.finish()


def _attributes(target: Target) -> str:
    features = ",".join("+" + x for x in target.features)
    common = f'nounwind "target-cpu"="{target.cpu}" "no-trapping-math"="true"'
    if features:
        common += f' "target-features"="{features}"'
    bits = target.machine.vector_bits
    if bits:
        common += f' "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
    return f"attributes #0 = {{ {common} }}\nattributes #1 = {{ noinline {common} }}\n" + WEIGHTS


def _has_vectors(kernel: Kernel) -> bool:
    return any(isinstance(n, Loop) and n.kind == "vector" for n, _ in walk(kernel.body))
