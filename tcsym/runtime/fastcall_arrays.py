"""Array objects -> LLVM IR that checks one and finds its memory, or makes a new one.

One class for numpy's arrays, one for torch's tensors. Whatever is not exactly as wanted leaves to
label `slow` (`undo` where something may have to be undone).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tcsym.compiled import Layout
from tcsym.runtime.fastcall_index import Lines, Value
from tcsym.runtime.numpy_facts import ArrayOffsets
from tcsym.types import DType

_DENSE, _ALIGNED, _WRITABLE = 0x1, 0x100, 0x400  # numpy's flags
MOST_BYTES = 2**46

DECLARATIONS = """declare i1 @tcsym_is_dense(i64, ptr, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
"""


class Array(NamedTuple):
    """Memory of an array: texts of operands. Strides times `unit` are bytes; no strides: dense."""

    data: str
    rank: int
    extents: str
    strides: str
    unit: int


class Wanted(NamedTuple):
    """What an array must be. `exact`: of that layout and no stricter one."""

    dtype: DType
    rank: int
    layout: Layout
    exact: bool
    type: str  # place in the table of what stands for the element type in the library
    writable: bool = False


class Arrays(Protocol):
    """How arrays of one library are read and made. `place`: number of an array of the call."""

    fields: tuple[str, ...]  # what its code needs of the table
    allocas: str
    declarations: str
    notes_writes: bool

    def has_type(self, array: str) -> str:
        """An i1: the object is an array of this library."""
        ...

    def read(self, array: str, wanted: Wanted, place: int) -> Array:
        """Memory of an object that has the type."""
        ...

    def make(self, shape: Sequence[Value], wanted: Wanted, place: int) -> tuple[str, str]:
        """(object, data) of a new dense array; leaves to `undo` if it cannot be made."""
        ...

    def strides(self, array: str, place: int) -> str:
        """Strides of an array that was read or made."""
        ...

    def unit(self, dtype: DType) -> int:
        """Bytes that strides count."""
        ...

    def note_written(self, array: str) -> None:
        """Tells the library that an array changed."""
        ...


Table = Callable[[str], str]


class Memory:
    """Loads and stores at byte offsets."""

    def __init__(self, out: Lines) -> None:
        self.out = out

    def load(self, kind: str, base: str, offset: int) -> str:
        at = self.out.named(f"getelementptr i8, ptr {base}, i64 {offset}")
        return self.out.named(f"load {kind}, ptr {at}")

    def store(self, value: str, base: str, offset: int) -> None:
        at = self.out.named(f"getelementptr i8, ptr {base}, i64 {offset}")
        self.out.line(f"  store {value}, ptr {at}")


class NumpyArrays:
    """`np.ndarray` itself, no subclass."""

    # array_empty: PyArray_Empty(rank, dimensions, descr, fortran order)
    # blocks: state of `runtime.blocks`: bytes of a large array, the function that makes one
    fields: tuple[str, ...] = ("ndarray", "array_empty", "blocks")
    allocas = ""
    declarations = "declare ptr @tcsym_large_array(ptr, i32, ptr, ptr, i64)\n"
    notes_writes = False
    at = ArrayOffsets()

    def __init__(self, out: Lines, table: Table, n_arrays: int, most_rank: int) -> None:
        self.out, self.table = out, table
        self.memory = Memory(out)

    def has_type(self, array: str) -> str:
        kind = self.memory.load("ptr", array, self.at.type)
        return self.out.named(f"icmp eq ptr {kind}, {self.table('ndarray')}")

    def read(self, array: str, wanted: Wanted, place: int) -> Array:
        out, at, load = self.out, self.at, self.memory.load
        descr = load("ptr", array, at.descr)
        same = out.named(f"icmp eq ptr {descr}, {self.table(wanted.type)}")
        rank = load("i32", array, at.rank)
        fits = out.named(f"icmp eq i32 {rank}, {wanted.rank}")
        needed = _ALIGNED | (_WRITABLE if wanted.writable else 0)
        dense = wanted.layout == "dense"
        tested = needed | (_DENSE if dense or wanted.exact else 0)
        flags = out.named(f"and i32 {load('i32', array, at.flags)}, {tested}")
        flagged = out.named(f"icmp eq i32 {flags}, {needed | (_DENSE if dense else 0)}")
        out.guard(out.named(f"and i1 {out.named(f'and i1 {same}, {fits}')}, {flagged}"))
        extents = load("ptr", array, at.dimensions) if wanted.rank else "null"
        strides = load("ptr", array, at.strides) if wanted.rank else "null"
        found = Array(load("ptr", array, at.data), wanted.rank, extents, strides, 1)
        if not dense:
            check_strides(out, found, wanted)
        return found

    def make(self, shape: Sequence[Value], wanted: Wanted, place: int) -> tuple[str, str]:
        out = self.out
        for axis, extent in enumerate(shape):
            self.memory.store(f"i64 {extent.text}", "%shape", 8 * axis)
        descr, blocks = self.table(wanted.type), self.table("blocks")
        size = self._bytes(shape, wanted.dtype)
        least = out.named(f"sitofp i64 {self.memory.load('i64', blocks, 0)} to double")
        is_large = out.named(f"fcmp oge double {size}, {least}")
        large, plain, made = (out.label(name) for name in ("large", "plain", "made"))
        out.line(f"  br i1 {is_large}, label %{large}, label %{plain}\n{large}:")
        out.guard(out.named(f"fcmp ole double {size}, {float(MOST_BYTES)!r}"), "undo")
        n_bytes = out.named(f"fptosi double {size} to i64")
        facts = f"i32 {len(shape)}, ptr %shape, ptr {descr}"
        call = f"call ptr @tcsym_large_array(ptr {blocks}, {facts}, i64 {n_bytes})"
        recycled = out.named(call)
        has = out.named(f"icmp ne ptr {recycled}, null")
        out.line(f"  br label %{made}_large\n{made}_large:")
        out.line(f"  br i1 {has}, label %{made}, label %{plain}\n{plain}:")
        out.line(f"  call void @Py_IncRef(ptr {descr})")  # the next call steals one
        fresh = out.named(f"call ptr {self.table('array_empty')}({facts}, i32 0)")
        out.line(f"  br label %{made}_plain\n{made}_plain:\n  br label %{made}\n{made}:")
        sources = f"[ {recycled}, %{made}_large ], [ {fresh}, %{made}_plain ]"
        array = out.named(f"phi ptr {sources}")
        out.guard(out.named(f"icmp ne ptr {array}, null"), "undo")
        return array, self.memory.load("ptr", array, self.at.data)

    def _bytes(self, shape: Sequence[Value], dtype: DType) -> str:
        """As a float, which cannot overflow and is exact below 2^53."""
        size = f"{float(dtype.bytes)!r}"
        for extent in shape:
            factor = self.out.named(f"sitofp i64 {extent.text} to double")
            size = self.out.named(f"fmul double {size}, {factor}")
        return size

    def strides(self, array: str, place: int) -> str:
        return self.memory.load("ptr", array, self.at.strides)

    def unit(self, dtype: DType) -> int:
        return 1

    def note_written(self, array: str) -> None:
        raise AssertionError("numpy does not want to know")


def check_strides(out: Lines, array: Array, wanted: Wanted) -> None:
    """Guards: `array`, known not to be dense if `wanted.exact`, has the layout."""
    memory, last = Memory(out), array.rank - 1
    strides = [memory.load("i64", array.strides, 8 * d) for d in range(array.rank)]
    unit_stride = wanted.dtype.bytes // array.unit

    def has_steps(d: int) -> str:
        extent = memory.load("i64", array.extents, 8 * d)
        steps = out.named(f"icmp eq i64 {strides[d]}, {unit_stride}")
        short = out.named(f"icmp sle i64 {extent}, 1")
        return out.named(f"or i1 {steps}, {short}")

    stricter: list[tuple[Layout, int]] = [("rows", last), ("columns", last - 1)]
    for layout, d in stricter[: array.rank]:
        if wanted.layout == layout:
            out.guard(has_steps(d))
            break
        if wanted.exact:
            out.guard(out.named(f"xor i1 {has_steps(d)}, true"))
    if unit_stride > 1:
        joined = strides[0]
        for stride in strides[1:]:
            joined = out.named(f"or i64 {joined}, {stride}")
        rest = out.named(f"and i64 {joined}, {unit_stride - 1}")
        out.guard(out.named(f"icmp eq i64 {rest}, 0"))
