"""Call plan -> LLVM IR of its fast entry: a C function that CPython calls with the arguments.

It takes the straight way only: numpy arrays, aligned and row-major, of the exact types; sizes that
agree; every precondition true; results that numpy can allocate. Anything else, at any point, undoes
what was done and calls the Python function with the same arguments, which finds out what is wrong.
No address is in the code: objects and functions come from `TABLE`, an array filled at load time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.index import Condition, Index, all_of, eq, ge, lt, mod, var
from tcsym.records import dataclass
from tcsym.runtime.arena import UNIT
from tcsym.runtime.fastcall_index import DECLARATIONS, SIZE_BOUND, IndexCode, Lines, Value
from tcsym.runtime.plan import CallPlan
from tcsym.sizes import Dim

SYMBOL = "tcsym_entry"
TABLE = "tcsym_table"
# What the table holds; behind these, the descr objects of the inputs, then of the outputs.
TABLE_FIELDS = (
    "ndarray",
    "array_empty",  # PyArray_Empty(rank, dimensions, descr, fortran order)
    "launch",  # tcsym_launch (native.ll)
    "kernel",
    "arena",
    "pool",
    "threads",  # address of the number of threads in force, 0: not known yet
    "slow",  # the Python function for everything else
    "results",  # tuple type of several outputs
)
MOST_SHARED, MOST_PRIVATE = 2**46, 2**40
LARGE_WORK = 32768.0  # product of all sizes from which on Python's lock is released

_DECLARATIONS = f"""declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr) cold
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare void @PyErr_Clear() cold
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyType_GenericAlloc(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
{DECLARATIONS}"""


@dataclass(frozen=True, slots=True)
class ArrayOffsets:
    """Where numpy's array object has its fields, and CPython's object its type."""

    type: int = 8
    data: int = 16
    rank: int = 24
    dimensions: int = 32
    descr: int = 56
    flags: int = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """What an entry is made for: a plan and the dense variant that serves it.

    `pointers`: places of the kernel's arguments among inputs and outputs. `slots`: of its sizes.
    """

    plan: CallPlan
    pointers: tuple[int, ...]
    slots: tuple[int, ...]
    shared_bytes: Index
    private_bytes: Index
    offsets: ArrayOffsets = ArrayOffsets()


def table_index(entry: Entry, name: str, k: int = 0) -> int:
    """Place in the table of a field, or of the `k`-th descr of 'input' or 'output'."""
    if name == "input":
        return len(TABLE_FIELDS) + k
    if name == "output":
        return len(TABLE_FIELDS) + len(entry.plan.inputs) + k
    return TABLE_FIELDS.index(name)


def entry_ir(entry: Entry) -> str:
    """Module with the function `SYMBOL`, of the kind METH_FASTCALL | METH_KEYWORDS."""
    return _Writer(entry).module()


class _Writer:
    """Writes one entry, from the first check to the result."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.plan = entry.plan
        self.out = Lines()
        self.values: list[Value | None] = [
            None if v is None else Value(str(v), v) for v in entry.plan.initial
        ]
        self.data: list[str] = []  # data pointers of inputs, then outputs

    def module(self) -> str:
        n_outputs = len(self.plan.outputs)
        rank = max(len(o.shape) for o in self.plan.outputs)
        size = table_index(self.entry, "output", n_outputs)
        self._check_arguments()
        code = self._check_sizes()
        self._prepare_launch(code)
        self._allocate_outputs(code)
        self._run()
        self._return()
        body = "\n".join(self.out.lines)
        return f"""; {", ".join(f"{p.dtype}[{p.rank}]" for p in self.plan.inputs)}
@{TABLE} = external global [{size} x ptr]
{_DECLARATIONS}
define ptr @{SYMBOL}(ptr %self, ptr %args, i64 %nargs, ptr %kwnames) {{
entry:
  %outputs = alloca [{n_outputs} x ptr]
  %buffers = alloca [{max(1, len(self.entry.pointers))} x ptr]
  %sizes = alloca [{max(1, len(self.entry.slots))} x i64]
  %shape = alloca [{max(1, rank)} x i64]
{body}
undo:
{self._undo()}
  call void @PyErr_Clear()
  br label %slow
slow:
  %slow_at = getelementptr ptr, ptr @{TABLE}, i64 {TABLE_FIELDS.index("slow")}
  %function = load ptr, ptr %slow_at
  %result = call ptr @PyObject_Vectorcall(ptr %function, ptr %args, i64 %nargs, ptr %kwnames)
  ret ptr %result
}}
"""

    # ---- arguments

    def _check_arguments(self) -> None:
        out, n = self.out, len(self.plan.inputs)
        out.guard(out.named("icmp eq ptr %kwnames, null"))
        out.guard(out.named(f"icmp eq i64 %nargs, {n}"))
        arrays = [self._load("ptr", "%args", 8 * k) for k in range(n)]
        array_type = self._table("ndarray") if arrays else ""
        for k, array in enumerate(arrays):
            self._check_array(k, array, array_type)

    def _check_array(self, k: int, array: str, array_type: str) -> None:
        out, at, parameter = self.out, self.entry.offsets, self.plan.inputs[k]
        kind = self._load("ptr", array, at.type)
        out.guard(out.named(f"icmp eq ptr {kind}, {array_type}"))
        descr = self._load("ptr", array, at.descr)
        same = out.named(f"icmp eq ptr {descr}, {self._table('input', k)}")
        rank = self._load("i32", array, at.rank)
        fits = out.named(f"icmp eq i32 {rank}, {parameter.rank}")
        flags = self._load("i32", array, at.flags)
        layout = out.named(f"and i32 {flags}, {0x101}")  # C_CONTIGUOUS | ALIGNED
        dense = out.named(f"icmp eq i32 {layout}, {0x101}")
        out.guard(out.named(f"and i1 {out.named(f'and i1 {same}, {fits}')}, {dense}"))
        dimensions = self._load("ptr", array, at.dimensions) if parameter.rank else ""
        for axis, slot in enumerate(parameter.slots):
            self._check_dimension(slot, self._load("i64", dimensions, 8 * axis))
        self.data.append(self._load("ptr", array, at.data))

    def _check_dimension(self, slot: int, extent: str) -> None:
        known = self.values[slot]
        if known is None:
            self.out.guard(self.out.named(f"icmp ult i64 {extent}, {SIZE_BOUND}"))
            self.values[slot] = Value(extent, SIZE_BOUND)
        else:
            self.out.guard(self.out.named(f"icmp eq i64 {extent}, {known.text}"))

    def _check_sizes(self) -> IndexCode:
        """Declared ranges, then preconditions."""
        plan = self.plan
        sizes = {name: v for name, v in zip(plan.sizes, self.values) if v is not None}
        code = IndexCode(self.out, sizes)
        for slot, promise in plan.promises.items():
            self.out.guard(code.condition(_kept(plan.sizes[slot], promise)))
        for check in plan.program.checks:
            self.out.guard(code.condition(check.condition))
        return code

    # ---- launch

    def _prepare_launch(self, code: IndexCode) -> None:
        out = self.out
        shared = self._bytes(code, self.entry.shared_bytes, MOST_SHARED)
        private = self._bytes(code, self.entry.private_bytes, MOST_PRIVATE)
        padded = out.named(f"add i64 {private}, {UNIT - 1}")
        private = out.named(f"and i64 {padded}, {-UNIT}")
        threads = out.named(f"load i64, ptr {self._table('threads')}")
        out.guard(out.named(f"icmp sgt i64 {threads}, 0"))
        self.launch_arguments = f"i64 {shared}, i64 {private}, i64 {threads}"
        for k, slot in enumerate(self.entry.slots):
            value = self.values[slot]
            assert value is not None
            self._store(f"i64 {value.text}", "%sizes", 8 * k)

    def _bytes(self, code: IndexCode, count: Index, most: int) -> str:
        value = code.index(count)
        text = self.out.named(f"call i64 @llvm.smax.i64(i64 {value.text}, i64 0)")
        self.out.guard(self.out.named(f"icmp sle i64 {text}, {most}"))
        return text

    def _allocate_outputs(self, code: IndexCode) -> None:
        out = self.out
        shapes = [[code.index(extent).text for extent in o.shape] for o in self.plan.outputs]
        for extent in dict.fromkeys(e for shape in shapes for e in shape):
            out.guard(out.named(f"icmp sge i64 {extent}, 0"))
        for k in range(len(shapes)):
            self._store("ptr null", "%outputs", 8 * k)
        empty = self._table("array_empty")
        for k, shape in enumerate(shapes):
            for axis, extent in enumerate(shape):
                self._store(f"i64 {extent}", "%shape", 8 * axis)
            descr = self._table("output", k)
            out.line(f"  call void @Py_IncRef(ptr {descr})")  # the next call steals one
            arguments = f"i32 {len(shape)}, ptr %shape, ptr {descr}, i32 0"
            array = out.named(f"call ptr {empty}({arguments})")
            self._store(f"ptr {array}", "%outputs", 8 * k)
            out.guard(out.named(f"icmp ne ptr {array}, null"), "undo")
            self.data.append(self._load("ptr", array, self.entry.offsets.data))

    def _run(self) -> None:
        """Calls the kernel, without Python's lock if that is likely to take long."""
        out = self.out
        for k, place in enumerate(self.entry.pointers):
            self._store(f"ptr {self.data[place]}", "%buffers", 8 * k)
        kernel, arena, pool = (self._table(name) for name in ("kernel", "arena", "pool"))
        launch = self._table("launch")
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

    def _work(self) -> str:
        """Product of all sizes, as a float: it cannot overflow."""
        product = "1.0"
        for value in self.values:
            if value is not None:
                factor = self.out.named(f"sitofp i64 {value.text} to double")
                product = self.out.named(f"fmul double {product}, {factor}")
        return product

    def _return(self) -> None:
        out, n = self.out, len(self.plan.outputs)
        arrays = [self._load("ptr", "%outputs", 8 * k) for k in range(n)]
        if n == 1:
            out.line(f"  ret ptr {arrays[0]}")
            return
        made = out.named(f"call ptr @PyType_GenericAlloc(ptr {self._table('results')}, i64 {n})")
        out.guard(out.named(f"icmp ne ptr {made}, null"), "undo")
        for k, array in enumerate(arrays):
            out.line(f"  call i32 @PyTuple_SetItem(ptr {made}, i64 {k}, ptr {array})")
        out.line(f"  ret ptr {made}")

    def _undo(self) -> str:
        lines = []
        for k in range(len(self.plan.outputs)):
            lines += [
                f"  %undo_at{k} = getelementptr ptr, ptr %outputs, i64 {k}",
                f"  %undone{k} = load ptr, ptr %undo_at{k}",
                f"  call void @Py_DecRef(ptr %undone{k})",
            ]
        return "\n".join(lines)

    # ---- memory

    def _table(self, name: str, k: int = 0) -> str:
        return self._load("ptr", f"@{TABLE}", 8 * table_index(self.entry, name, k))

    def _load(self, kind: str, base: str, offset: int) -> str:
        at = self.out.named(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.out.named(f"load {kind}, ptr {at}")

    def _store(self, value: str, base: str, offset: int) -> None:
        at = self.out.named(f"getelementptr i8, ptr {base}, i64 {offset}")
        self.out.line(f"  store {value}, ptr {at}")


def _kept(name: str, promise: Dim) -> Condition:
    """The condition that a declared `Dim` promises."""
    size = var(name)
    conditions = [ge(size, promise.lo), eq(mod(size, promise.multiple_of), 0)]
    if promise.hi is not None:
        conditions.append(lt(size, promise.hi + 1))
    return all_of(conditions)


def can_be_entered(plan: CallPlan, slots: Sequence[int | tuple[int, int]]) -> bool:
    """True if a fast entry can serve dense arguments: all sizes come from them or are fixed."""
    known = {s for p in plan.inputs for s in p.slots}
    known |= {k for k, v in enumerate(plan.initial) if v is not None}
    strides = any(not isinstance(s, int) for s in slots)
    return not strides and bool(plan.outputs) and known.issuperset(range(len(plan.sizes)))
