# SPDX-License-Identifier: Apache-2.0
"""Loader and launch: hand-written LLVM IR through `load`, checked against what it must compute."""

from __future__ import annotations

import ctypes
import gc
import math
import re
import struct
import threading
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from tcsym.index.expr import Index, var
from tcsym.ir.archive import pack
from tcsym.ir.compiled import SYMBOL, Compiled
from tcsym.process.system import processors
from tcsym.runtime.jit import LoadedKernel, load
from tcsym.runtime.loader import LoadError, defined_names, load_archive, load_object
from tcsym.runtime.memory import Memory, c_function
from tcsym.target.cpu import SCALAR, host_triple
from tests.assembled import assemble

ZERO = Index()

# y = 2x + 1, on as many tasks as threads, each through its private arena; the shared arena
# is overwritten. Returns 1 for N = 13.
SCALE = f"""
define i32 @{SYMBOL}(ptr %buffers, ptr %sizes, ptr %context) {{
entry:
  %n = load i64, ptr %sizes
  %bad = icmp eq i64 %n, 13
  br i1 %bad, label %fault, label %go
fault:
  ret i32 1
go:
  %frame = alloca [3 x ptr]
  store ptr %buffers, ptr %frame
  %sizes_at = getelementptr ptr, ptr %frame, i64 1
  store ptr %sizes, ptr %sizes_at
  %context_at = getelementptr ptr, ptr %frame, i64 2
  store ptr %context, ptr %context_at
  %shared_at = getelementptr i64, ptr %context, i64 3
  %shared = load ptr, ptr %shared_at
  call void @llvm.memset.p0.i64(ptr %shared, i8 1, i64 4096, i1 false)
  %parallel_for = load ptr, ptr %context
  %pool_at = getelementptr i64, ptr %context, i64 1
  %pool = load ptr, ptr %pool_at
  %threads_at = getelementptr i64, ptr %context, i64 2
  %threads = load i64, ptr %threads_at
  call void %parallel_for(ptr %pool, ptr @task, ptr %frame, i64 %threads, i64 1099511627776)
  ret i32 0
}}
define internal void @task(ptr %frame, i64 %task, i64 %tasks) {{
entry:
  %buffers = load ptr, ptr %frame
  %sizes_at = getelementptr ptr, ptr %frame, i64 1
  %sizes = load ptr, ptr %sizes_at
  %context_at = getelementptr ptr, ptr %frame, i64 2
  %context = load ptr, ptr %context_at
  %arenas_at = getelementptr i64, ptr %context, i64 4
  %arenas = load ptr, ptr %arenas_at
  %stride_at = getelementptr i64, ptr %context, i64 5
  %stride = load i64, ptr %stride_at
  %offset = mul i64 %stride, %task
  %arena = getelementptr i8, ptr %arenas, i64 %offset
  %n = load i64, ptr %sizes
  %x = load ptr, ptr %buffers
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y_at
  br label %test
test:
  %i = phi i64 [ %task, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %x_at = getelementptr double, ptr %x, i64 %i
  %value = load double, ptr %x_at
  store volatile double %value, ptr %arena
  %again = load volatile double, ptr %arena
  %scaled = call double @llvm.fma.f64(double %again, double 2.0, double 1.0)
  %out = getelementptr double, ptr %y, i64 %i
  store double %scaled, ptr %out
  %next = add i64 %i, %tasks
  br label %test
done:
  ret void
}}
declare double @llvm.fma.f64(double, double, double)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def compiled(ir: str, shared: Index = ZERO, private: Index = ZERO) -> Compiled:
    return Compiled(assemble(ir), ("N",), ("x", "y"), (), shared, private)


@pytest.fixture(scope="module")
def scale() -> LoadedKernel:
    return load(compiled(SCALE, var("N") * 8 + 4096, Index((), 24)))


def run(kernel: LoadedKernel, n: int, threads: int) -> np.ndarray:
    x, y = np.arange(n, dtype=float), np.zeros(n)
    assert kernel.run([x.ctypes.data, y.ctypes.data], [n], threads) == 0
    np.testing.assert_array_equal(y, 2 * x + 1)
    return y


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_runs_with_arenas_on_threads(scale: LoadedKernel, n: int, threads: int) -> None:
    run(scale, n, threads)


def test_arenas_grow_and_settle(scale: LoadedKernel) -> None:
    for n in (10, 2_000_000, 10):
        run(scale, n, 2)
    arena = scale.arenas.main
    before = arena.shared_bytes, arena.private_bytes
    for _ in range(20):
        run(scale, 1000, 2)
    assert (arena.shared_bytes, arena.private_bytes) == before
    assert max(before) > 0 and before[0] % (2 << 20) == 0  # large: huge pages


def test_fault_code_is_returned(scale: LoadedKernel) -> None:
    assert scale.run([0, 0], [13], 1) == 1


def test_impossible_scratch_memory_is_a_memory_error() -> None:
    kernel = load(compiled(SCALE, var("N") * 2**40, ZERO))
    with pytest.raises(MemoryError):
        kernel.run([0, 0], [2**30], 1)
    with pytest.raises(MemoryError):
        kernel.run([0, 0], [2**5], 1)


def test_many_python_threads_at_once(scale: LoadedKernel) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for n in (1, 50, 3000, 20000):
                for _ in range(10):
                    run(scale, n, 2)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


# ---- what the loader must know

FEATURES = """
@table = internal constant [4 x double] [double 1.0, double 2.0, double 4.0, double 8.0]
@counter = internal global i64 40
@zeros = internal global [100 x i64] zeroinitializer
declare double @sin(double)
declare double @fmod(double, double)
declare i64 @getpid()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define double @external(double %x) {
  %1 = call double @sin(double %x)
  ret double %1
}
define i64 @count() {
  %1 = load i64, ptr @counter
  %2 = add i64 %1, 1
  store i64 %2, ptr @counter
  %3 = load i64, ptr getelementptr ([100 x i64], ptr @zeros, i64 0, i64 99)
  %4 = add i64 %2, %3
  ret i64 %4
}
define double @lookup(i64 %k) {
  %1 = getelementptr [4 x double], ptr @table, i64 0, i64 %k
  %2 = load double, ptr %1
  ret double %2
}
define ptr @address_of_external() {
  ret ptr @fmod
}
define void @copy(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}
define i64 @jump(i64 %k) {
entry:
  switch i64 %k, label %other [ i64 0, label %a
                                i64 1, label %b
                                i64 2, label %c
                                i64 3, label %d
                                i64 4, label %e ]
a:
  %1 = call i64 @count()
  ret i64 %1
b:
  ret i64 77
c:
  %2 = call i64 @getpid()
  ret i64 %2
d:
  ret i64 5
e:
  ret i64 -9
other:
  ret i64 1000
}
"""


def object_code(ir: str, reloc: str, codemodel: str) -> bytes:
    assemble("")  # initialises LLVM
    triple = host_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=SCALAR[triple], opt=2, reloc=reloc, codemodel=codemodel
    )
    return bytes(machine.emit_object(llvm.parse_assembly(ir)))


@pytest.mark.parametrize("reloc", ["static", "pic"])
@pytest.mark.parametrize("codemodel", ["small", "medium", "large"])
def test_relocation_and_code_models(reloc: str, codemodel: str) -> None:
    if processors() != "x86_64" and (reloc, codemodel) != ("pic", "small"):
        pytest.skip("on others our code has one model only")
    image = load_object(object_code(FEATURES, reloc, codemodel), c_function)

    def function(name: str, result: object, *parameters: object) -> object:
        return ctypes.CFUNCTYPE(result, *parameters)(image.address(name))  # type: ignore

    i64, f64, ptr = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
    assert function("external", f64, f64)(1.5) == math.sin(1.5)  # type: ignore
    count = function("count", i64)
    assert [count(), count()] == [41, 42]  # type: ignore
    lookup = function("lookup", f64, i64)
    assert [lookup(k) for k in range(4)] == [1, 2, 4, 8]  # type: ignore
    assert function("address_of_external", ptr)() == c_function("fmod")  # type: ignore
    to, source = ctypes.create_string_buffer(5000), bytes(range(250)) * 20
    function("copy", None, ptr, ctypes.c_char_p, i64)(to, source, 5000)  # type: ignore
    assert to.raw == source
    jump = function("jump", i64, i64)
    assert [jump(k) for k in (0, 1, 3, 4, 9)] == [43, 77, 5, -9, 1000]  # type: ignore


def modes_of_pages() -> dict[range, str]:
    found = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high, mode = re.findall(r"^(\w+)-(\w+) (\S+)", line)[0]
        found[range(int(low, 16), int(high, 16))] = mode
    return found


def test_no_page_is_writable_and_executable() -> None:
    code = object_code(FEATURES, "pic", "small")
    before = list(modes_of_pages().values()).count("rwxp")  # libffi may have one
    image = load_object(code, c_function)
    modes = modes_of_pages()
    assert list(modes.values()).count("rwxp") == before
    assert next(m for r, m in modes.items() if image.address("count") in r) == "r-xp"


@pytest.mark.parametrize("page", [1 << 14, 1 << 16])
def test_protections_begin_at_pages(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of systems on AArch64 may be larger than here."""
    ends = list[int]()
    protect = Memory.protect

    def noted(memory: Memory, start: int, stop: int, protection: int) -> None:
        ends.extend((start, stop))
        protect(memory, start, stop, protection)

    monkeypatch.setattr(Memory, "protect", noted)
    monkeypatch.setattr("tcsym.runtime.loader.PROTECTED", page)
    image = load_object(object_code(FEATURES, "pic", "small"), c_function)
    assert [e % page for e in ends] == [0] * 6 and len({*ends}) == 4
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(image.address("count"))() == 41


def test_pages_are_freed_with_the_image() -> None:
    def mapped() -> int:
        return sum("r-xp" in line for line in Path("/proc/self/maps").open())

    code = object_code(FEATURES, "pic", "small")
    images = [load_object(code, c_function) for _ in range(20)]
    many = mapped()
    del images
    gc.collect()
    assert mapped() <= many - 10  # neighbours may be shown as one


def test_unknown_symbol_is_named() -> None:
    caller = """
declare void @no_such_function()
define void @f() {
 call void @no_such_function()
 ret void
}"""
    with pytest.raises(NotImplementedError, match="no_such_function"):
        load_object(assemble(caller), c_function)
    with pytest.raises(LoadError, match="does not define"):
        load_object(assemble("define void @f() {\n ret void\n}"), c_function).address("g")


@pytest.mark.parametrize("keep", [0, 3, 63, 64, 200, 1000])
def test_truncated_objects_are_refused(keep: int) -> None:
    with pytest.raises(LoadError):
        load_object(object_code(FEATURES, "pic", "small")[:keep], c_function)


def test_damaged_objects_are_refused_or_lie_in_their_image() -> None:
    """Whatever byte of the tables is wrong: no other error, and nothing beside the sections."""
    good = object_code(FEATURES, "pic", "small")
    (tables,) = struct.unpack_from("<Q", good, 0x28)
    refused = 0
    for at in (*range(64), *range(tables, len(good))):
        for bits in (0x01, 0x80, 0xFF):
            bad = good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :]
            try:
                names = defined_names(bad)
                image = load_object(bad, lambda _: 4096)
            except LoadError:
                refused += 1
            else:
                assert names >= image._symbols.keys()
                (memory,) = image._memories
                addresses = image._symbols.values()
                assert all(0 <= a - memory.address <= memory.size for a in addresses)
    assert refused > 100


def test_names_are_told_without_loading() -> None:
    code = object_code(
        "declare void @g()\ndefine void @f() {\n call void @g()\n ret void\n}", "pic", "small"
    )
    assert defined_names(code) == {"f"}
    assert defined_names(pack([code, object_code(FEATURES, "pic", "small")])) > {"f"}
    for bad in (b"", b"no object", pack([code, code])[:-8]):
        with pytest.raises(LoadError):
            defined_names(bad)


def test_archive_members_call_each_other() -> None:
    text = "define void @task(ptr %p) {\n store i32 7, ptr %p\n ret void\n}"
    task = object_code(text, "pic", "small")
    main = object_code(
        "declare void @task(ptr)\ndefine i32 @run() {\n %p = alloca i32\n call void @task(ptr %p)\n"
        " %x = load i32, ptr %p\n ret i32 %x\n}",
        "pic",
        "small",
    )
    image = load_archive(pack([task, main]), c_function)
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(image.address("run"))() == 7
    with pytest.raises(LoadError, match="damaged archive"):
        load_archive(pack([task, main])[:-4], c_function)
