"""Arguments of a call -> LLVM IR that puts them in order and reads them: arrays, numbers, sizes."""

from __future__ import annotations

from tcsym.runtime.entering import OPTIONS
from tcsym.runtime.fastcall_arrays import Array, NumpyArrays, Wanted
from tcsym.runtime.fastcall_entry import Body
from tcsym.runtime.fastcall_index import SIZE_BOUND, Value
from tcsym.types import DType


class Arguments:
    """Writes the code. `arrays`: the inputs' memory; `options`: objects of the options, or null."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.arrays: list[Array] = []
        self._match()
        self._read_free_sizes()
        self._read_inputs()

    def _match(self) -> None:
        """Objects of inputs and options, in order: straight from the caller where all is plain."""
        out, n = self.body.out, self.body.n_inputs
        unnamed = out.named("icmp eq ptr %kwnames, null")
        plain = out.named(f"and i1 {unnamed}, {out.named(f'icmp eq i64 %nargs, {n}')}")
        out.line(f"  br i1 {plain}, label %plain, label %match\nmatch:")
        names = self.body.table_at(f"name {0}" if n else OPTIONS[0])
        arguments = f"ptr %args, i64 %nargs, ptr %kwnames, ptr {names}, i64 {n}, ptr %given"
        out.guard(out.named(f"call i1 @tcsym_match({arguments})"))
        more = out.named(f"getelementptr ptr, ptr %given, i64 {n}")
        out.line(
            "  br label %matched\nmatched:\n  br label %ready\nplain:\n  br label %ready\nready:"
        )
        args = out.named("phi ptr [ %given, %matched ], [ %args, %plain ]")
        options = out.named(f"phi ptr [ {more}, %matched ], [ @no_options, %plain ]")
        self.objects = [self.body.memory.load("ptr", args, 8 * k) for k in range(n)]
        self.options = {
            name: self.body.memory.load("ptr", options, 8 * k) for k, name in enumerate(OPTIONS)
        }

    def _read_free_sizes(self) -> None:
        """From a `dict` that has just those sizes that must be given."""
        out, given, slots = self.body.out, self.options["sizes"], self.body.entry.free_slots
        if not slots:
            out.guard(out.named(f"icmp eq ptr {given}, null"))
            return
        out.guard(out.named(f"icmp ne ptr {given}, null"))
        kind = self.body.memory.load("ptr", given, NumpyArrays.at.type)
        out.guard(out.named(f"icmp eq ptr {kind}, @PyDict_Type"))
        count = out.named(f"call i64 @PyDict_Size(ptr {given})")
        out.guard(out.named(f"icmp eq i64 {count}, {len(slots)}"))
        for slot in slots:
            name = self.body.table(f"size {slot}")
            number = out.named(f"call ptr @PyDict_GetItem(ptr {given}, ptr {name})")
            out.guard(out.named(f"icmp ne ptr {number}, null"))
            self.body.values[slot] = Value(self.body.integer(number, 0, SIZE_BOUND - 1), SIZE_BOUND)

    def _read_inputs(self) -> None:
        for k, (array, wanted) in enumerate(zip(self.objects, self.body.inputs)):
            is_array = self.body.library.has_type(array)
            if wanted.rank:
                self.body.out.guard(is_array)
                found = self.body.library.read(array, wanted, k)
            else:
                found = self._read_scalar(k, array, wanted, is_array)
            self.arrays.append(found)
            for axis, slot in enumerate(self.body.plan.inputs[k].slots):
                self._check_extent(slot, self.body.memory.load("i64", found.extents, 8 * axis))

    def _read_scalar(self, k: int, given: str, wanted: Wanted, is_array: str) -> Array:
        """A 0-d array, or a number that is stored in place of one."""
        out = self.body.out
        array, number, known = (out.label(name) for name in ("array", "number", "known"))
        slot = out.named(f"getelementptr i64, ptr %scalars, i64 {k}")
        out.line(f"  br i1 {is_array}, label %{array}, label %{number}\n{array}:")
        data = self.body.library.read(given, wanted, k).data
        after = out.label()
        out.line(f"  br label %{after}\n{after}:\n  br label %{known}\n{number}:")
        kind, lowest, highest = number_kind(wanted.dtype)
        facts = f"i64 {wanted.dtype.bytes}, i32 {kind}, i64 {lowest}, i64 {highest}"
        arguments = f"ptr {given}, ptr {self.body.table(f'scalar {k}')}, {facts}, ptr {slot}"
        out.guard(out.named(f"call i1 @tcsym_scalar({arguments})"))
        stored = out.label()
        out.line(f"  br label %{stored}\n{stored}:\n  br label %{known}\n{known}:")
        pointer = out.named(f"phi ptr [ {data}, %{after} ], [ {slot}, %{stored} ]")
        return Array(pointer, 0, "null", "null", 1)

    def _check_extent(self, slot: int, extent: str) -> None:
        known = self.body.values[slot]
        if known is None:
            self.body.out.guard(self.body.out.named(f"icmp ult i64 {extent}, {SIZE_BOUND}"))
            self.body.values[slot] = Value(extent, SIZE_BOUND)
        else:
            self.body.out.guard(self.body.out.named(f"icmp eq i64 {extent}, {known.text}"))


def number_kind(dtype: DType) -> tuple[int, int, int]:
    """What tcsym_scalar needs to know: kind, and the integers that the type surely holds."""
    if dtype is DType.FLOAT32:
        return 32, -(2**24), 2**24
    if dtype is DType.FLOAT64:
        return 64, -(2**53), 2**53
    if dtype.is_float:
        return 0, 0, 0
    lowest, highest = int(dtype.lowest), int(dtype.highest)
    # the value below the lowest must exist: it says that there is none
    return dtype.bytes, max(lowest, -(2**63) + 1), min(highest, 2**63 - 1)
