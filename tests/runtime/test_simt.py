"""Blocks of a device on the host: what threads see, and what is found to be wrong."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tcsym.codegen.object_code import object_code
from tcsym.runtime.kernel_code import _resolve
from tcsym.runtime.loader import load_object
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.target.names import resolve_target

pytestmark = pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")

THREADS, FAULT = 64, -5
GRID = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 2, *(ctypes.c_int64,) * 4)
DECLARED = """
declare void @tcsym_simt_barrier(ptr, i64)
declare i64 @tcsym_simt_shuffle(ptr, i64, i64, i64)
declare void @tcsym_simt_touch(ptr, ptr, i64, i64, i64)
declare void @tcsym_simt_global(ptr, ptr, i64, i64, i64, i64)
declare void @tcsym_simt_copy(ptr, ptr, ptr, i64, i64)
declare void @tcsym_simt_commit(ptr)
declare void @tcsym_simt_wait(ptr, i64)
define void @region(ptr %data, ptr %shared, i64 %block, i64 %thread, ptr %simt) {
  %base = mul i64 %block, 64
  %i = add i64 %base, %thread
  %p = getelementptr i64, ptr %data, i64 %i
  %own = getelementptr i64, ptr %shared, i64 %thread
  %r = sub i64 63, %thread
  %other = getelementptr i64, ptr %shared, i64 %r
"""
STORE = """
  %v = load i64, ptr %p
  call void @tcsym_simt_touch(ptr %simt, ptr %own, i64 8, i64 1, i64 0)
  store i64 %v, ptr %own
"""
BARRIER = "  call void @tcsym_simt_barrier(ptr %simt, i64 1)\n"
LOAD = """
  call void @tcsym_simt_touch(ptr %simt, ptr %other, i64 8, i64 0, i64 0)
  %w = load i64, ptr %other
  store i64 %w, ptr %p
"""
COPY = "  call void @tcsym_simt_copy(ptr %simt, ptr %own, ptr %p, i64 8, i64 1)\n"
COMMIT = "  call void @tcsym_simt_commit(ptr %simt)\n"
WAIT = "  call void @tcsym_simt_wait(ptr %simt, i64 0)\n"
END = "  ret void\n}\n"


def run(body: str, blocks: int = 3, shared: int = 512, backwards: bool = False) -> np.ndarray | str:
    """The data after the grid, or what was wrong."""
    text = "; vectors: none\n" + DECLARED + body + END
    image = load_object(object_code(text, resolve_target("cpu:novector")), _resolve)
    data = np.arange(blocks * THREADS)
    ends = blocks, THREADS, shared, backwards
    result = GRID(native.simt_grid)(image.address("region"), data.ctypes.data, *ends)
    assert result in (0, FAULT)
    return native.simt_report() if result else data


def reversed_blocks(blocks: int = 3) -> np.ndarray:
    return np.arange(blocks * THREADS).reshape(blocks, THREADS)[:, ::-1].reshape(-1)


@pytest.mark.parametrize("backwards", [False, True])
def test_threads_exchange_through_shared_memory(backwards: bool) -> None:
    done = run(STORE + BARRIER + LOAD, backwards=backwards)
    np.testing.assert_array_equal(done, reversed_blocks())


def test_a_missing_barrier_is_a_race() -> None:
    for body in (STORE + LOAD, LOAD + STORE.replace("%v", "%x")):
        assert "a race: thread" in run(body)


def test_a_barrier_that_some_threads_leave_out_is_told() -> None:
    some = "  %few = icmp slt i64 %thread, 3\n  br i1 %few, label %a, label %z\na:\n"
    told = run(some + BARRIER + "  br label %z\nz:\n")
    assert "3 of 64 threads wait at a barrier, 61 have ended" in told


def test_shared_memory_ends_where_it_ends() -> None:
    assert "beside shared memory" in run(STORE, shared=256)


def test_what_nothing_set_is_no_number() -> None:
    bits = run("  %w = load i64, ptr %own\n  store i64 %w, ptr %p\n")
    assert not isinstance(bits, str) and np.isnan(bits.view(np.float64)).all()


@pytest.mark.parametrize(("lane", "moved"), [("xor i64 %thread, 1", 1), ("and i64 %thread, 0", 0)])
def test_shuffles_move_values_within_a_warp(lane: str, moved: int) -> None:
    body = (
        "  %v = load i64, ptr %p\n  %in = and i64 %thread, 31\n"
        f"  %to = {lane.replace('%thread', '%in')}\n"
        "  %x = call i64 @tcsym_simt_shuffle(ptr %simt, i64 %v, i64 %to, i64 2)\n  store i64 %x, ptr %p\n"
    )
    data = np.arange(3 * THREADS)
    expected = data ^ 1 if moved else data // 32 * 32
    np.testing.assert_array_equal(run(body), expected)


def test_a_shuffle_that_some_threads_leave_out_is_told() -> None:
    some = "  %few = icmp slt i64 %thread, 3\n  br i1 %few, label %a, label %z\na:\n"
    shuffle = "  %x = call i64 @tcsym_simt_shuffle(ptr %simt, i64 0, i64 0, i64 2)\n"
    assert "61 have ended" in run(some + shuffle + "  br label %z\nz:\n")


def test_asynchronous_copies_arrive_at_a_wait_and_no_sooner() -> None:
    good = run(COPY + COMMIT + WAIT + BARRIER + LOAD)
    np.testing.assert_array_equal(good, reversed_blocks())
    assert "a copy to it is on its way" in run(COPY + COMMIT + BARRIER + LOAD)
    assert "nothing waits for" in run(COPY + COMMIT)


def test_blocks_and_threads_are_bounded() -> None:
    region = GRID(native.simt_grid)
    assert region(0, 0, 0, THREADS, 0, 0) == 0
    assert region(0, 0, 1, 2000, 0, 0) == FAULT
    assert "2000 threads" in native.simt_report()
