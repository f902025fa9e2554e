"""Call plan and variant -> LLVM IR of a fast entry: a C function that CPython calls with arguments.

It takes the straight way only: aligned arrays of one library, of the exact types and of the
layouts that the variant is for; sizes that agree; every precondition true; results that can be
allocated, or arrays given for them that overlap nothing. Anything else, at any point, undoes what
was done and calls the next function with the same arguments, in the end the Python one, which finds
out what is wrong. No address is in the code: objects and functions come from `TABLE`, filled at
load time.
"""

from __future__ import annotations

from tcsym.index import Condition, Index, all_of, eq, ge, lt, mod, var
from tcsym.runtime.arena import UNIT
from tcsym.runtime.entering import OPTIONS, SYMBOL, TABLE
from tcsym.runtime.fastcall_arguments import Arguments
from tcsym.runtime.fastcall_arrays import DECLARATIONS as ARRAY_DECLARATIONS
from tcsym.runtime.fastcall_entry import Body, Entry
from tcsym.runtime.fastcall_index import DECLARATIONS, IndexCode
from tcsym.runtime.fastcall_outputs import Outputs
from tcsym.sizes import Dim
from tcsym.threads import MOST_THREADS

_PATIENT_AT = 8  # in the pool: 1 where more threads than processors run
MOST_SHARED, MOST_PRIVATE = 2**46, 2**40
LARGE_WORK = 32768.0  # product of all sizes from which on Python's lock is released

_DECLARATIONS = f"""@PyDict_Type = external global i8
@PyTuple_Type = external global i8
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr) cold
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @PyErr_Clear() cold
declare i64 @PyDict_Size(ptr)
declare ptr @PyDict_GetItem(ptr, ptr)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare i1 @tcsym_match(ptr, i64, ptr, ptr, i64, ptr)
declare i64 @tcsym_integer(ptr, i64, i64)
declare i1 @tcsym_scalar(ptr, ptr, i64, i32, i64, i64, ptr)
declare void @tcsym_span(ptr, i64, ptr, ptr, i64, i64, ptr)
declare i1 @tcsym_is_apart(ptr, i64)
declare i1 @tcsym_is_nested(i64, ptr, ptr, i64, i64)
{ARRAY_DECLARATIONS}{DECLARATIONS}"""


def entry_ir(entry: Entry) -> str:
    """Module with the function `SYMBOL`, of the kind METH_FASTCALL | METH_KEYWORDS."""
    return _Writer(entry).module()


class _Writer:
    """Writes one entry, from the first check to the result."""

    def __init__(self, entry: Entry) -> None:
        self.body = body = Body(entry)
        for k in range(body.n_outputs):
            body.memory.store("ptr null", "%outputs", 8 * k)
        self.arguments = Arguments(body)
        code = self._check_sizes()
        self._prepare_launch(code)
        self.outputs = Outputs(body, self.arguments)
        self.outputs.prepare(code)
        self._run()
        self._return()

    def module(self) -> str:
        body, plan = self.body, self.body.plan
        inputs = ", ".join(f"{p.dtype}[{p.rank}]" for p in plan.inputs)
        lines = "\n".join(body.out.lines)
        n_arrays = body.n_inputs + body.n_outputs
        return f"""; {inputs}
@{TABLE} = external global [{len(body.places)} x ptr]
@no_options = internal constant [{len(OPTIONS)} x ptr] zeroinitializer
{_DECLARATIONS}{body.library.declarations}
define ptr @{SYMBOL}(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %given = alloca [{body.n_inputs + len(OPTIONS)} x ptr]
  %scalars = alloca [{max(1, body.n_inputs)} x i64]
  %outputs = alloca [{body.n_outputs} x ptr]
  %written = alloca [{body.n_outputs} x ptr]
  %spans = alloca [{2 * n_arrays} x i64]
  %buffers = alloca [{max(1, len(body.entry.pointers))} x ptr]
  %sizes = alloca [{max(1, len(body.entry.slots))} x i64]
  %shape = alloca [{body.most_rank} x i64]
{body.library.allocas}{lines}
undo:
{self._undo()}
  call void @PyErr_Clear()
  br label %slow
slow:
  %slow_at = getelementptr ptr, ptr @{TABLE}, i64 {body.places["slow"]}
  %function = load ptr, ptr %slow_at
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %result
}}
"""

    def _check_sizes(self) -> IndexCode:
        """Declared ranges, then preconditions."""
        plan = self.body.plan
        sizes = {name: v for name, v in zip(plan.sizes, self.body.values) if v is not None}
        code = IndexCode(self.body.out, sizes)
        for slot, promise in plan.promises.items():
            self.body.out.guard(code.condition(_kept(plan.sizes[slot], promise)))
        for check in plan.program.checks:
            self.body.out.guard(code.condition(check.condition))
        return code

    # ---- launch

    def _prepare_launch(self, code: IndexCode) -> None:
        out = self.body.out
        shared = self._bytes(code, "shared", self.body.entry.shared_bytes, MOST_SHARED)
        private = self._bytes(code, "private", self.body.entry.private_bytes, MOST_PRIVATE)
        padded = out.named(f"add i64 {private}, {UNIT - 1}")
        private = out.named(f"and i64 {padded}, {-UNIT}")
        self.launch_arguments = f"i64 {shared}, i64 {private}, i64 {self._threads()}"

    def _threads(self) -> str:
        """The number for this call, else the one in force; 0, not decided yet, goes to `slow`."""
        out, given = self.body.out, self.arguments.options["threads"]
        chosen = out.named(f"load i64, ptr {self.body.table('chosen')}")
        default = out.named(f"icmp eq ptr {given}, null")
        before = out.label("chosen")
        out.line(f"  br label %{before}\n{before}:")
        asked, decided = out.label("asked"), out.label("decided")
        out.line(f"  br i1 {default}, label %{decided}, label %{asked}\n{asked}:")
        number = self.body.integer(given, 1, MOST_THREADS)
        after = out.label("asked")
        out.line(f"  br label %{after}\n{after}:\n  br label %{decided}\n{decided}:")
        threads = out.named(f"phi i64 [ {chosen}, %{before} ], [ {number}, %{after} ]")
        out.guard(out.named(f"icmp sgt i64 {threads}, 0"))
        cores = self.body.number("cores")
        many = out.named(f"icmp sgt i64 {threads}, {cores}")
        patient = out.named(f"zext i1 {many} to i32")
        self.body.memory.store(f"i32 {patient}", self.body.table("pool"), _PATIENT_AT)
        return threads

    def _bytes(self, code: IndexCode, name: str, count: Index, most: int) -> str:
        if count.is_constant:
            return self.body.number(name)
        value = code.index(count)
        text = self.body.out.named(f"call i64 @llvm.smax.i64(i64 {value.text}, i64 0)")
        self.body.out.guard(self.body.out.named(f"icmp sle i64 {text}, {most}"))
        return text

    # ---- run

    def _run(self) -> None:
        """Calls the kernel, without Python's lock if that is likely to take long."""
        out = self.body.out
        written = [
            self.body.memory.load("ptr", "%written", 8 * k) for k in range(self.body.n_outputs)
        ]
        data = [*(array.data for array in self.arguments.arrays), *written]
        for k, place in enumerate(self.body.entry.pointers):
            self.body.memory.store(f"ptr {data[place]}", "%buffers", 8 * k)
        for k, slot in enumerate(self.body.entry.slots):
            self.body.memory.store(f"i64 {self._size(slot)}", "%sizes", 8 * k)
        kernel, arena, pool = (self.body.table(name) for name in ("kernel", "arena", "pool"))
        launch = self.body.table("launch")
        arguments = f"ptr {kernel}, ptr %buffers, ptr %sizes, ptr {arena}"
        call = f"call i32 {launch}({arguments}, {self.launch_arguments}, ptr {pool})"
        large = out.named(f"fcmp oge double {self._work()}, {LARGE_WORK}")
        out.line(f"  br i1 {large}, label %released, label %held\nreleased:")
        state = out.named("call ptr @PyEval_SaveThread()")
        first = out.named(call)
        out.line(f"  call void @PyEval_RestoreThread(ptr {state})\n  br label %ran\nheld:")
        second = out.named(call)
        out.line("  br label %ran\nran:")
        code = out.named(f"phi i32 [ {first}, %released ], [ {second}, %held ]")
        out.guard(out.named(f"icmp eq i32 {code}, 0"), "undo")

    def _size(self, slot: int | tuple[int, int]) -> str:
        if isinstance(slot, int):
            value = self.body.values[slot]
            assert value is not None
            return value.text
        place, axis = slot
        body, k = self.body, place - self.body.n_inputs
        if k < 0:
            strides, dtype = self.arguments.arrays[place].strides, body.inputs[place].dtype
        else:
            strides = body.library.strides(body.memory.load("ptr", "%outputs", 8 * k), place)
            dtype = body.outputs[k].dtype
        stride = body.memory.load("i64", strides, 8 * axis)
        return body.out.named(f"sdiv exact i64 {stride}, {dtype.bytes // body.library.unit(dtype)}")

    def _work(self) -> str:
        """Product of all sizes, as a float: it cannot overflow."""
        product = "1.0"
        for value in self.body.values:
            if value is not None:
                factor = self.body.out.named(f"sitofp i64 {value.text} to double")
                product = self.body.out.named(f"fmul double {product}, {factor}")
        return product

    def _return(self) -> None:
        out, n = self.body.out, self.body.n_outputs
        arrays = [self.body.memory.load("ptr", "%outputs", 8 * k) for k in range(n)]
        self.outputs.note_written(arrays)
        if n == 1:
            self._count()
            out.line(f"  ret ptr {arrays[0]}")
            return
        made = out.named(
            f"call ptr @PyType_GenericAlloc(ptr {self.body.table('results')}, i64 {n})"
        )
        out.guard(out.named(f"icmp ne ptr {made}, null"), "undo")
        for k, array in enumerate(arrays):
            out.line(f"  call i32 @PyTuple_SetItem(ptr {made}, i64 {k}, ptr {array})")
        self._count()
        out.line(f"  ret ptr {made}")

    def _count(self) -> None:
        """One call more was served; Python's lock is held."""
        more = self.body.out.named(f"add i64 {self.body.number('served')}, 1")
        table = f"@{TABLE}"
        self.body.memory.store(f"i64 {more}", table, 8 * self.body.places["served"])

    def _undo(self) -> str:
        lines = []
        for k in range(self.body.n_outputs):
            lines += [
                f"  %undo_at{k} = getelementptr ptr, ptr %outputs, i64 {k}",
                f"  %undone{k} = load ptr, ptr %undo_at{k}",
                f"  call void @Py_DecRef(ptr %undone{k})",
            ]
        return "\n".join(lines)


def _kept(name: str, promise: Dim) -> Condition:
    """The condition that a declared `Dim` promises."""
    size = var(name)
    conditions = [ge(size, promise.lo), eq(mod(size, promise.multiple_of), 0)]
    if promise.hi is not None:
        conditions.append(lt(size, promise.hi + 1))
    return all_of(conditions)
