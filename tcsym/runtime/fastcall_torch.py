"""torch's tensors in fast entries: LLVM IR that reads and makes them.

A tensor is read through torch's C exchange API for DLPack. That does not tell everything: dispatch
keys tell a plain CPU tensor from all others (sparse, lazily negated, made under inference mode,
being transformed), `requires_grad` whether autograd would miss what is done. New tensors come from
torch's C interface for compiled code. `runtime.torch_facts` finds and tries all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tcsym.runtime.fastcall_arrays import MOST_BYTES, Array, Memory, Table, Wanted, check_strides
from tcsym.runtime.fastcall_index import Lines, Value
from tcsym.types import DType

CPU = 1  # kDLCPU
VIEW_BYTES = 48  # DLTensor: data, device, rank and type, extents, strides, offset in bytes
_TYPE_AT, IMPLEMENTATION_AT = 8, 16  # in a Python tensor
_KIND_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's; bfloat16 has its own, 4


class TorchArrays:
    """`torch.Tensor` and `torch.nn.Parameter` themselves, plain ones on the CPU."""

    fields: tuple[str, ...] = (
        "Tensor",
        "Parameter",
        "view",  # (object, DLTensor) -> 0 if it was filled
        "keys at",  # offset in the implementation, of
        "plain keys",
        "requires_grad",  # (implementation) -> bool
        "grad_is_enabled",  # () -> bool
        "empty",  # (rank, extents, strides, type, device, index, handle) -> 0
        "data_of",  # (handle, data pointer) -> 0
        "wrap",  # (handle) -> new object
        "delete",  # (handle) -> 0
        "bump",  # object that is called with a written tensor
    )
    notes_writes = True
    declarations = "declare ptr @PyObject_CallOneArg(ptr, ptr)\n"

    def __init__(self, out: Lines, table: Table, n_arrays: int, most_rank: int) -> None:
        self.out, self.table, self.most_rank = out, table, most_rank
        self.memory = Memory(out)
        self.allocas = f"""  %views = alloca [{n_arrays * VIEW_BYTES} x i8], align 8
  %made_strides = alloca [{n_arrays * most_rank} x i64]
  %handle = alloca ptr
  %made_data = alloca ptr
"""

    def has_type(self, array: str) -> str:
        kind = self.memory.load("ptr", array, _TYPE_AT)
        is_tensor, is_parameter = (
            self.out.named(f"icmp eq ptr {kind}, {self.table(name)}")
            for name in ("Tensor", "Parameter")
        )
        return self.out.named(f"or i1 {is_tensor}, {is_parameter}")

    def read(self, array: str, wanted: Wanted, place: int) -> Array:
        out, load = self.out, self.memory.load
        self._check_plain(array)
        view = self._view(place)
        code = out.named(f"call i32 {self.table('view')}(ptr {array}, ptr {view})")
        out.guard(out.named(f"icmp eq i32 {code}, 0"), "undo")
        on_cpu = out.named(f"icmp eq i32 {load('i32', view, 8)}, {CPU}")
        expected = wanted.rank | dlpack_type(wanted.dtype) << 32
        fits = out.named(f"icmp eq i64 {load('i64', view, 16)}, {expected}")
        out.guard(out.named(f"and i1 {on_cpu}, {fits}"))
        start, offset = load("ptr", view, 0), load("i64", view, 40)
        data = out.named(f"getelementptr i8, ptr {start}, i64 {offset}")
        address = out.named(f"ptrtoint ptr {data} to i64")
        rest = out.named(f"and i64 {address}, {wanted.dtype.bytes - 1}")
        out.guard(out.named(f"icmp eq i64 {rest}, 0"))
        extents, strides = load("ptr", view, 24), load("ptr", view, 32)
        found = Array(data, wanted.rank, extents, strides, wanted.dtype.bytes)
        if wanted.rank:
            self._check_layout(found, wanted)
        return found

    def _check_plain(self, array: str) -> None:
        """No other tensor than one in memory, of which autograd need not know."""
        out = self.out
        implementation = self.memory.load("ptr", array, IMPLEMENTATION_AT)
        offset = out.named(f"ptrtoint ptr {self.table('keys at')} to i64")
        keys_at = out.named(f"getelementptr i8, ptr {implementation}, i64 {offset}")
        keys = out.named(f"load ptr, ptr {keys_at}")
        out.guard(out.named(f"icmp eq ptr {keys}, {self.table('plain keys')}"))
        needed = out.named(f"call i8 {self.table('requires_grad')}(ptr {implementation})")
        recorded, plain = out.label("recorded"), out.label("plain")
        without = out.named(f"icmp eq i8 {needed}, 0")
        out.line(f"  br i1 {without}, label %{plain}, label %{recorded}\n{recorded}:")
        enabled = out.named(f"call i8 {self.table('grad_is_enabled')}()")
        out.guard(out.named(f"icmp eq i8 {enabled}, 0"))
        out.line(f"  br label %{plain}\n{plain}:")

    def _check_layout(self, array: Array, wanted: Wanted) -> None:
        dense = wanted.layout == "dense"
        if dense or wanted.exact:
            facts = f"i64 {array.rank}, ptr {array.extents}, ptr {array.strides}"
            is_dense = self.out.named(f"call i1 @tcsym_is_dense({facts})")
            self.out.guard(is_dense if dense else self.out.named(f"xor i1 {is_dense}, true"))
        if not dense:
            check_strides(self.out, array, wanted)

    def make(self, shape: Sequence[Value], wanted: Wanted, place: int) -> tuple[str, str]:
        out, memory = self.out, self.memory
        strides = out.named(f"getelementptr i64, ptr %made_strides, i64 {place * self.most_rank}")
        stride, size = "1", f"{float(wanted.dtype.bytes)!r}"
        for axis in reversed(range(len(shape))):
            extent = shape[axis].text
            memory.store(f"i64 {extent}", "%shape", 8 * axis)
            memory.store(f"i64 {stride}", strides, 8 * axis)
            factor = out.named(f"call i64 @llvm.smax.i64(i64 {extent}, i64 1)")
            stride = out.named(f"mul i64 {stride}, {factor}")
            size = out.named(f"fmul double {size}, {out.named(f'sitofp i64 {factor} to double')}")
        out.guard(out.named(f"fcmp ole double {size}, {float(MOST_BYTES)!r}"), "undo")
        memory.store(f"ptr {strides}", self._view(place), 32)
        dtype = out.named(f"ptrtoint ptr {self.table(wanted.type)} to i32")
        where = f"ptr %shape, ptr {strides}, i32 {dtype}, i32 0, i32 -1, ptr %handle"
        code = out.named(f"call i32 {self.table('empty')}(i64 {len(shape)}, {where})")
        out.guard(out.named(f"icmp eq i32 {code}, 0"), "undo")
        handle = out.named("load ptr, ptr %handle")
        out.line(f"  call i32 {self.table('data_of')}(ptr {handle}, ptr %made_data)")
        array = out.named(f"call ptr {self.table('wrap')}(ptr {handle})")
        out.line(f"  call i32 {self.table('delete')}(ptr {handle})")
        out.guard(out.named(f"icmp ne ptr {array}, null"), "undo")
        return array, out.named("load ptr, ptr %made_data")

    def strides(self, array: str, place: int) -> str:
        return self.memory.load("ptr", self._view(place), 32)

    def unit(self, dtype: DType) -> int:
        return dtype.bytes

    def note_written(self, array: str) -> None:
        """Autograd must not use the tensor as it was."""
        out = self.out
        done = out.named(f"call ptr @PyObject_CallOneArg(ptr {self.table('bump')}, ptr {array})")
        out.guard(out.named(f"icmp ne ptr {done}, null"), "undo")
        out.line(f"  call void @Py_DecRef(ptr {done})")

    def _view(self, place: int) -> str:
        return self.out.named(f"getelementptr i8, ptr %views, i64 {VIEW_BYTES * place}")


def dlpack_type(dtype: DType) -> int:
    """Code, bits and lanes of a DLDataType in one 32-bit word."""
    code = 4 if dtype is DType.BFLOAT16 else _KIND_CODES[dtype.numpy.kind]
    return code | dtype.bytes * 8 << 8 | 1 << 16
