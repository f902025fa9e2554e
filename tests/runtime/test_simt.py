# SPDX-License-Identifier: Apache-2.0
"""Blocks of a device on the host: what threads see, and what is found to be wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from tcsym.codegen.object_code import object_code
from tcsym.runtime.kernel_code import _resolve
from tcsym.runtime.loader import load_object
from tcsym.runtime.native import HAS_ENTRIES, native
from tcsym.target.names import resolve_target

pytestmark = pytest.mark.skipif(not HAS_ENTRIES, reason="the native part was not built")

THREADS, FAULT = 64, -5
GRID = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 2, *(ctypes.c_int64,) * 5)
ANNOUNCE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
DECLARED = """
declare void @tcsym_simt_barrier(ptr, i64)
declare void @tcsym_simt_grid_barrier(ptr, ptr, i64)
declare i64 @tcsym_simt_blocks(ptr)
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


class Global(ctypes.Structure):
    """As in simt.h."""

    _fields_ = (
        ("base", ctypes.c_void_p),
        *((n, ctypes.c_int64) for n in ("first", "last", "count", "bytes", "is_written")),
        ("name", ctypes.c_char_p),
    )


@pytest.fixture(autouse=True)
def few_checks() -> None:
    native.simt_check(False)


@pytest.fixture
def all_checks(few_checks: None) -> Iterator[None]:
    native.simt_check(True)
    yield
    native.simt_check(False)


def run(
    body: str,
    blocks: int = 3,
    shared: int = 512,
    backwards: bool = False,
    together: bool = False,
) -> np.ndarray | str:
    """The data after the grid, or what was wrong."""
    text = "; vectors: none\n" + DECLARED + body + END
    image = load_object(object_code(text, resolve_target("cpu:novector")), _resolve)
    data = np.arange(blocks * THREADS)
    n, at = len(data), data.ctypes.data
    ends = blocks, THREADS, shared, together, backwards
    table = (Global * 1)(Global(at, 0, n - 1, n, 8, 1, b"X"))
    ANNOUNCE(native.simt_globals)(ctypes.addressof(table), 1, None)
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
        "  %x = call i64 @tcsym_simt_shuffle(ptr %simt, i64 %v, i64 %to, i64 2)\n"
        "  store i64 %x, ptr %p\n"
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
    assert region(0, 0, 0, THREADS, 0, 0, 0) == 0
    assert region(0, 0, 1, 2000, 0, 0, 0) == FAULT
    assert "2000 threads" in native.simt_report()


# ---- the device's memory: the threads of all blocks have an element each, of `X`

USE = "  call void @tcsym_simt_global(ptr %simt, ptr {}, i64 8, i64 {}, i64 0, i64 7)\n"
AT = "  %j = add i64 %i, {0}\n  %q = getelementptr i64, ptr %data, i64 %j\n"
SET = "  store i64 %i, ptr {}\n"
SAME = "  %q = getelementptr i64, ptr %data, i64 %base\n"  # one element of a block's threads


def test_accesses_end_where_a_buffer_ends() -> None:
    assert isinstance(run(USE.format("%p", 1) + SET.format("%p")), np.ndarray)
    told = "line 7: element {} of `X`, which has elements 0 to 191"
    for by, where, element in ((1, "block 2, thread 63", 192), (-1, "block 0, thread 0", -1)):
        for writes in (0, 1):
            said = run(AT.format(by) + USE.format("%q", writes))
            assert f"{where}, {told.format(element)}" in said


def test_a_grid_without_blocks_leaves_nothing_to_the_next() -> None:
    table = (Global * 1)(Global(0, 0, 0, 1, 8, 1, b"X"))
    ANNOUNCE(native.simt_globals)(ctypes.addressof(table), 1, None)
    assert GRID(native.simt_grid)(0, 0, 0, THREADS, 0, 0, 0) == 0
    body = USE.format("%p", 1) + "  store i64 %i, ptr %p\n"
    text = "; vectors: none\n" + DECLARED + body + END
    image = load_object(object_code(text, resolve_target("cpu:novector")), _resolve)
    data = np.zeros(THREADS, np.int64)
    ends = 1, THREADS, 0, 0, 0
    assert GRID(native.simt_grid)(image.address("region"), data.ctypes.data, *ends) == 0


def test_threads_race_in_global_memory(all_checks: None) -> None:
    both = USE.format("%q", 1) + SET.format("%q")
    assert "a race: thread 0 of block 0 wrote element 0 of `X`" in run(SAME + both)
    read = SAME + USE.format("%q", 0) + "  %s = load i64, ptr %q\n"
    own = USE.format("%p", 1) + "  store i64 %i, ptr %p\n"
    assert "of block 0 read element 0" in run(read + own, blocks=1, backwards=True)
    assert "thread 0 of block 0 wrote element 0" in run(own + read, blocks=1)
    assert isinstance(run(own + BARRIER + read, blocks=1), np.ndarray)  # of one block
    read = USE.format("%q", 0) + "  %s = load i64, ptr %q\n"
    first = "  %k = urem i64 %i, 64\n  %q = getelementptr i64, ptr %data, i64 %k\n"
    assert "of block 0 wrote" in run(first + own + BARRIER + read, blocks=2)


def test_what_nothing_set_is_found_though_it_is_no_float(all_checks: None) -> None:
    body = "  %w = load i64, ptr %own\n" + USE.format("%p", 1) + "  store i64 %w, ptr %p\n"
    assert "element 0 of `X` depends on the order" in run(body)
    unused = body.replace("store i64 %w", "store i64 %i")
    assert isinstance(run(unused), np.ndarray)


def test_barriers_at_different_places_are_told() -> None:
    some = "  %few = icmp slt i64 %thread, 3\n  br i1 %few, label %a, label %b\na:\n"
    body = some + BARRIER + "  br label %z\nb:\n" + BARRIER.replace("i64 1", "i64 2")
    assert "threads 0 and 3 wait at different barriers" in run(body + "  br label %z\nz:\n")


def test_copies_are_seen_by_others_behind_a_barrier_only() -> None:
    last = "  %last = icmp eq i64 %thread, 63\n  br i1 %last, label %a, label %z\na:\n"
    late = COPY + COMMIT + BARRIER + WAIT + last + LOAD + "  br label %z\nz:\n"
    assert "thread 63: a race: thread 0 wrote byte 0" in run(late)


# ---- blocks that run at once: an element of `X` is the counter of their barrier

MEET = """
  %z = mul i64 %n, 64
  %counter = getelementptr i64, ptr %data, i64 {}
  call void @tcsym_simt_grid_barrier(ptr %simt, ptr %counter, i64 1)
"""
OWN = "  store i64 %i, ptr %p\n"
MIRROR = """
  %all = sub i64 %z, 1
  %m = sub i64 %all, %i
  %q = getelementptr i64, ptr %data, i64 %m
"""
READ = USE.format("%q", 0) + "  %w = load i64, ptr %q\n"
BLOCKS = "  %n = call i64 @tcsym_simt_blocks(ptr %simt)\n"


@pytest.mark.parametrize("backwards", [False, True])
def test_blocks_exchange_through_global_memory(all_checks: None, backwards: bool) -> None:
    body = BLOCKS + USE.format("%p", 1) + OWN + MEET.format(0)
    again = "  call void @tcsym_simt_grid_barrier(ptr %simt, ptr %counter, i64 2)\n"
    done = run(
        body + MIRROR + READ + again + USE.format("%p", 1) + "  store i64 %w, ptr %p\n",
        backwards=backwards,
        together=True,
    )
    np.testing.assert_array_equal(done, np.arange(3 * THREADS)[::-1])
    raced = body + MIRROR + READ + USE.format("%p", 1) + "  store i64 %w, ptr %p\n"
    assert "a race: thread" in run(raced, backwards=backwards, together=True)
    apart = raced.replace("grid_barrier(ptr %simt, ptr %counter", "barrier(ptr %simt")
    assert "a race: thread" in run(apart, backwards=backwards, together=True)


def test_blocks_run_at_once_as_far_as_there_are_fibers() -> None:
    body = BLOCKS + MEET.format(0) + "  store i64 %n, ptr %p\n"
    done = run(body, blocks=40, together=True)
    assert done[1] == 16 and done[16 * THREADS] == 16 * THREADS


def test_a_block_that_does_not_come_to_the_barrier_is_told() -> None:
    some = "  %first = icmp eq i64 %block, 0\n  br i1 %first, label %a, label %z\na:\n"
    end = "  br label %z\nz:\n"
    body = BLOCKS + some + MEET.format(0).replace("%z =", "%y =") + end
    assert "1 of 3 blocks wait for the grid, 2 have ended" in run(body, together=True)
    few = some.replace("%block, 0", "%thread, 0")
    body = BLOCKS + few + MEET.format(0).replace("%z =", "%y =") + end
    assert "1 of 64 threads wait at a barrier, 63 have ended" in run(body, together=True)


def test_the_counter_of_a_barrier_is_0_before() -> None:
    assert "whose counter is not 0" in run(BLOCKS + MEET.format(5), together=True)
