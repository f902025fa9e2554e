"""Outputs of a call -> LLVM IR that allocates them or checks those given as `out=`."""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.runtime.fastcall_arguments import Arguments
from tcsym.runtime.fastcall_arrays import Array, NumpyArrays, Wanted
from tcsym.runtime.fastcall_entry import Body
from tcsym.runtime.fastcall_index import IndexCode, Value
from tcsym.types import DType


class Outputs:
    """Writes the code. Afterwards %outputs has the objects, owned; %written their data pointers."""

    def __init__(self, body: Body, arguments: Arguments) -> None:
        self.body = body
        self.arguments = arguments

    def prepare(self, code: IndexCode) -> None:
        """Objects of the outputs, owned, in %outputs; their data pointers in %written."""
        out, given = self.body.out, self.arguments.options["out"]
        shapes = [[code.index(extent) for extent in o.shape] for o in self.body.plan.outputs]
        for extent in dict.fromkeys(e.text for shape in shapes for e in shape):
            out.guard(out.named(f"icmp sge i64 {extent}, 0"))
        none = out.named(f"icmp eq ptr {given}, null")
        out.line(f"  br i1 {none}, label %allocate, label %given_outputs\ngiven_outputs:")
        self._check_given(given, shapes)
        out.line("  br label %prepared\nallocate:")
        if self.body.entry.exact and any(w.layout != "dense" for w in self.body.outputs):
            out.line("  br label %slow")
        else:
            for k, (shape, wanted) in enumerate(zip(shapes, self.body.outputs)):
                array, data = self.body.library.make(shape, wanted, self.body.n_inputs + k)
                self._own(k, array, data)
            out.line("  br label %prepared")
        out.line("prepared:")

    def _own(self, k: int, array: str, data: str) -> None:
        self.body.memory.store(f"ptr {array}", "%outputs", 8 * k)
        self.body.memory.store(f"ptr {data}", "%written", 8 * k)

    def _check_given(self, given: str, shapes: Sequence[Sequence[Value]]) -> None:
        out = self.body.out
        for k, (memory, wanted) in enumerate(zip(self.arguments.arrays, self.body.inputs)):
            self._note_span(k, memory, wanted.dtype)
        arrays: list[str] = [given]
        if self.body.n_outputs > 1:
            kind = self.body.memory.load("ptr", given, NumpyArrays.at.type)
            out.guard(out.named(f"icmp eq ptr {kind}, @PyTuple_Type"))
            count = out.named(f"call i64 @PyTuple_Size(ptr {given})")
            out.guard(out.named(f"icmp eq i64 {count}, {self.body.n_outputs}"))
            arrays = [
                out.named(f"call ptr @PyTuple_GetItem(ptr {given}, i64 {k})")
                for k in range(self.body.n_outputs)
            ]
        found: list[Array] = []
        for k, (array, wanted, shape) in enumerate(zip(arrays, self.body.outputs, shapes)):
            out.guard(self.body.library.has_type(array))
            found.append(self.body.library.read(array, wanted, self.body.n_inputs + k))
            self._check_memory(self.body.n_inputs + k, found[k], wanted, shape)
        for k, array in enumerate(arrays):
            out.line(f"  call void @Py_IncRef(ptr {array})")
            self._own(k, array, found[k].data)

    def _check_memory(
        self, place: int, array: Array, wanted: Wanted, shape: Sequence[Value]
    ) -> None:
        """The shape is right, and no two elements of this and the arrays before share a byte."""
        out = self.body.out
        for axis, extent in enumerate(shape):
            have = self.body.memory.load("i64", array.extents, 8 * axis)
            out.guard(out.named(f"icmp eq i64 {have}, {extent.text}"))
        if wanted.layout != "dense":
            facts = f"i64 {array.rank}, ptr {array.extents}, ptr {array.strides}"
            sizes = f"i64 {array.unit}, i64 {wanted.dtype.bytes}"
            out.guard(out.named(f"call i1 @tcsym_is_nested({facts}, {sizes})"))
        self._note_span(place, array, wanted.dtype)
        out.guard(out.named(f"call i1 @tcsym_is_apart(ptr %spans, i64 {place})"))

    def _note_span(self, place: int, array: Array, dtype: DType) -> None:
        span = self.body.out.named(f"getelementptr i64, ptr %spans, i64 {2 * place}")
        facts = f"i64 {array.rank}, ptr {array.extents}, ptr {array.strides}"
        sizes = f"i64 {array.unit}, i64 {dtype.bytes}"
        self.body.out.line(
            f"  call void @tcsym_span(ptr {array.data}, {facts}, {sizes}, ptr {span})"
        )

    def note_written(self, arrays: Sequence[str]) -> None:
        """Tells the library of those that the caller gave, if it wants to know."""
        out = self.body.out
        if not self.body.library.notes_writes:
            return
        given = out.named(f"icmp ne ptr {self.arguments.options['out']}, null")
        out.line(f"  br i1 {given}, label %note, label %noted\nnote:")
        for array in arrays:
            self.body.library.note_written(array)
        out.line("  br label %noted\nnoted:")
