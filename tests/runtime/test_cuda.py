# SPDX-License-Identifier: Apache-2.0
"""Kernels on the driver, which is emulated: what calls do, and what they refuse.

Each test runs with pycuda, where that is installed, and with the driver alone.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
import threading
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcsym as tc
from tcsym.runtime.cuda import primary as primaries
from tcsym.runtime.cuda.arrays import device_view
from tcsym.runtime.cuda.driver import Module
from tcsym.runtime.cuda.primary import Primary, primary
from tcsym.runtime.entry_image import all_dense, entry_image
from tcsym.runtime.native import native
from tcsym.target import libcuda
from tcsym.target.devices import driver
from tests.emulated_driver import Driver, captured, tensors

SUM = "def sum2(float(N,M) A, float(N,M) B) -> (C) { C(i,j) = A(i,j) + B(i,j) }"
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
ADD = "def add(float(N) A, float(N) B, float s) -> (C) { C(i) = A(i) + s * B(i) }"
PICK = "def pick(float(N) A, int32(M) I) -> (O) { O(i) = A(I(i)) }"
TWICE = "def twice(float(N,M) A) -> (O) { B(i) +=! A(i,j)  S +=! B(i) O(i,j) = A(i,j) * B(i) + S }"
F32 = np.float32
STREAM, OTHER = 0x7730, 0x8840
PRIMARIES: dict[str, dict[int, Primary]] = {"libcuda": {}, "pycuda": {}}  # by ways


@pytest.fixture(params=PRIMARIES, autouse=True)
def way(
    request: pytest.FixtureRequest, emulated: Driver, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """What the driver is called through."""
    if request.param == "libcuda":
        monkeypatch.setitem(sys.modules, "pycuda", None)
    elif find_spec("pycuda") is None:
        pytest.skip("pycuda is not there: ./dev pycuda builds it where CUDA's toolkit is")
    monkeypatch.setattr(primaries, "_primaries", PRIMARIES[request.param])
    driver.cache_clear()
    assert (
        driver().__name__ == {"libcuda": libcuda.__name__, "pycuda": "pycuda.driver"}[request.param]
    )
    yield request.param
    driver.cache_clear()


@pytest.fixture
def gpuarray(way: str) -> Any:
    if way != "pycuda":
        pytest.skip("it is about pycuda's arrays")
    return importlib.import_module("pycuda.gpuarray")


class Memory:
    """An array on a device, which ends at a page without access: `__cuda_array_interface__`."""

    def __init__(self, x: Any, number: int = 0, stream: int | None = 1) -> None:
        self.memory = primary(number).allocate(x.nbytes)
        whole = x if x.base is None else x.base
        with primary(number):
            driver().memcpy_htod(self.memory.pointer, np.ascontiguousarray(whole))
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": x.shape,
            "typestr": x.dtype.str,
            "strides": x.strides,
            "data": (self.memory.pointer, False),
            "stream": stream,
        }


class Exported:
    """The same, through DLPack alone."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.streams: list[object] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None, **settings: Any) -> object:
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream, **settings)


def random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def compiled(text: str) -> Any:
    """The kernel of all tests, as compiling takes a while."""
    return _compiled(text, driver().__name__)


@lru_cache(None)
def _compiled(text: str, way: str) -> Any:
    name = text[4 : text.index("(")]
    return tc.define(text, target="cuda")[name]


def same(device: Any, host: Any) -> None:
    np.testing.assert_allclose(device.copy_to_host(), host, rtol=1e-4, atol=1e-4)


def test_products_of_ragged_sizes(cuda: Driver) -> None:
    mm = compiled(MM)
    for m, k, n in ((5, 7, 9), (64, 33, 65), (0, 3, 4), (3, 0, 4)):
        a, b = random(m, k), random(k, n)
        same(mm(Memory(a), Memory(b)), a @ b)


def test_arrays_have_strides(cuda: Driver) -> None:
    add2, a, b = compiled(SUM), random(6, 8).T, random(8, 6)
    same(add2(Memory(a), Memory(b)), a + b)


def test_softmax(cuda: Driver) -> None:
    x = random(5, 37)
    e = np.exp(x - x.max(1, keepdims=True))
    softmax = tc.define(tc.library.source("softmax"), target="cuda").softmax
    same(softmax(Memory(x)), e / e.sum(1, keepdims=True))


def test_blocks_that_wait_for_each_other_are_launched_together(cuda: Driver) -> None:
    """As many as run at once: four here."""
    text = """def rnn(float(T,B,H) X, float(B,H) h0, float(H,H) U) -> (float(T+1,B,H) S) {
      S(0,n,h) = h0(n,h)
      for t in T { A(n,h) +=! S(t,n,k) * U(h,k)  S(t+1,n,h) = tanh(A(n,h) + X(t,n,h)) }
    }"""
    rnn = tc.define(text, target="cuda", options=tc.Options(plan="GridSteps")).rnn
    for (t, b, h), blocks in (((4, 3, 40), 4), ((2, 1, 3), 1), ((0, 2, 3), 1)):
        given = random(t, b, h), random(b, h), random(h, h)
        before = cuda.launches
        got = rnn(*map(Memory, given))
        assert (cuda.blocks, cuda.together, cuda.launches - before) == (blocks, 1, 3)
        same(got, rnn.reference(*given))


def test_numbers_are_arguments(cuda: Driver) -> None:
    add, a, b = compiled(ADD), random(7), random(7)
    for s in (2.5, np.float32(-1), 3):
        same(add(Memory(a), Memory(b), s), a + F32(s) * b)
    assert cuda.memsets == 3


def test_calls_settle(cuda: Driver) -> None:
    """Once sizes were there, a call allocates nothing and waits for nothing."""
    twice, x = compiled(TWICE), random(9, 70)
    a = Memory(x)
    outputs = [twice(a), twice(a)]
    del outputs[:]
    before = cuda.allocations, cuda.modules, cuda.waits
    outputs = [twice(a), twice(a)]
    assert (cuda.allocations, cuda.modules, cuda.waits) == before
    for out in outputs:
        same(out, x * x.sum(1, keepdims=True) + x.sum())


def test_graphs_capture_calls(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the first one: code is loaded, and memory is the graph's as long as it is there."""
    monkeypatch.setenv("TCSYM_SYNC", "1")
    text = """def twice(float(N,M) A, float s) -> (O) {
      B(i) +=! A(i,j)  S +=! B(i)  O(i,j) = A(i,j) * B(i) + s * S
    }"""
    kernel = tc.define(text, target="cuda").twice
    x, y = random(9, 70), 2 * random(9, 70)
    a, other = Memory(x, stream=STREAM), Memory(y, stream=STREAM)
    apart = Memory(y, stream=OTHER)

    def expected(x: Any) -> Any:
        return x * x.sum(1, keepdims=True) + 3 * x.sum()

    with captured(STREAM) as graphs:
        out = kernel(kernel(a, 3.0), 3.0)
    assert not cuda.graphs
    for _ in range(2):
        before = cuda.launches, cuda.allocations
        graphs[0].launch(OTHER)
        assert (cuda.launches, cuda.allocations) == before
        np.testing.assert_allclose(out.copy_to_host(), expected(expected(x)), rtol=1e-3)
    same(kernel(other, 3.0), expected(y))  # in memory of its own
    np.testing.assert_allclose(out.copy_to_host(), expected(expected(x)), rtol=1e-3)
    del out
    gc.collect()
    before = cuda.frees
    with captured(OTHER) as more:
        kernel(apart, 3.0)
    assert cuda.frees == before  # the first graph is there
    del graphs[:], more[:]
    with captured(OTHER) as more:
        kernel(apart, 3.0)
    assert cuda.frees > before


def test_steps_are_launched_as_a_graph(cuda: Driver) -> None:
    """From the second call of some sizes on, in one call of the driver. Other addresses have graphs
    of their own, until there are as many as are kept. A graph that somebody captures has all."""
    text = """def scan(float(T,B,H) X, float(B,H) h0, float(H,H) U) -> (float(T+1,B,H) S) {
      S(0,n,h) = h0(n,h)
      for t in T { A(n,h) +=! S(t,n,k) * U(h,k)  S(t+1,n,h) = tanh(A(n,h) + X(t,n,h)) }
    }"""
    kernels = [tc.define(text, target="cuda", options=tc.Options(plan="LaunchSteps")).scan]

    def given(*sizes: int, stream: int = 1) -> tuple[Any, ...]:
        t, b, h = sizes
        return tuple(
            Memory(x, stream=stream) for x in (random(t, b, h), random(b, h), random(h, h))
        )

    def called(arrays: Any) -> tuple[int, int, int, int]:
        fields = "launches", "graphs", "instances", "updates"
        before = [getattr(cuda, f) for f in fields]
        out = kernels[0](*arrays)
        counts = [getattr(cuda, f) - b for f, b in zip(fields, before)]
        same(out, kernels[0].reference(*map(host_of, arrays)))
        return tuple(counts)

    few, some, others = given(1, 3, 8), given(6, 3, 8), [given(6, 3, 8) for _ in range(10)]
    n = called(some)[0]
    assert n >= 6
    assert called(some) == (n, 1, 1, 0)
    assert [called(some) for _ in range(2)] == [(0, 1, 0, 0)] * 2
    assert called(others[0]) == (n, 1, 1, 0)
    assert [called(x) for x in (others[0], some, others[0])] == [(0, 1, 0, 0)] * 3
    assert sum(called(x)[2] for x in others) == 6  # eight are kept
    assert [called(others[k]) for k in (9, 0)] == [(0, 1, 0, 0), (n, 1, 0, 1)]
    assert [called(few)[1] for _ in range(3)] == [0] * 3  # launches are as quick
    for t in range(7, 17):  # as many graphs as are kept, and more
        called(given(t, 3, 8))
    assert called(some)[1] == 0 and called(some)[2] == 1
    on = given(6, 3, 8, stream=STREAM)
    called(on)
    with captured(STREAM) as graphs:
        out = kernels[0](*on)
    before = cuda.graphs
    graphs[0].launch(STREAM)
    assert cuda.graphs == before + 1
    same(out, kernels[0].reference(*map(host_of, on)))
    before = cuda.drops
    kernels.clear()
    gc.collect()
    assert cuda.drops > before  # with the code


def capture_mode(cuda: Driver) -> int:
    """Of this thread: 0 as it begins."""
    exchange, mode = cuda._library.cuThreadExchangeStreamCaptureMode, ctypes.c_int(0)
    assert exchange(ctypes.byref(mode)) == 0
    found = mode.value
    assert exchange(ctypes.byref(mode)) == 0
    return found


@pytest.mark.parametrize("fails", [1, 2], ids=["stream", "capture"])
def test_a_graph_that_cannot_be_made_leaves_the_thread_as_it_was(cuda: Driver, fails: int) -> None:
    """What another library calls in this thread is refused as before while a graph is captured."""
    text = """def steps(float(T,B) X) -> (float(T+1,B) S) {
      S(0,n) = 0
      for t in T { M max=! S(t,n)  S(t+1,n) = S(t,n) * 0.5 + X(t,n) + M }
    }"""
    options = tc.Options(plan="LaunchSteps")
    steps, x = tc.define(text, target="cuda", options=options).steps, random(6, 40)
    given = Memory(x)
    before = cuda.launches
    steps(given)
    assert cuda.launches - before >= 6
    cuda.fail_capture = fails
    with pytest.raises(MemoryError):
        steps(given)
    assert capture_mode(cuda) == 0
    cuda.fail_capture, before = 0, cuda.graphs
    same(steps(given), steps.reference(x))
    assert cuda.graphs == before + 1 and capture_mode(cuda) == 0


def host_of(x: Memory) -> Any:
    view = device_view(x)
    made = np.empty(view.shape, F32)
    with primary(0):
        driver().memcpy_dtoh(made, view.pointer)
    return made


def test_calls_run_on_the_arguments_stream(cuda: Driver) -> None:
    add2, x = compiled(SUM), random(4, 4)
    out = add2(Memory(x, stream=STREAM), Memory(x, stream=STREAM))
    assert (cuda.stream, cuda.orders) == (STREAM, 0)
    assert out.__cuda_array_interface__["stream"] == STREAM
    add2(Memory(x, stream=STREAM), Memory(x, stream=OTHER))
    assert (cuda.stream, cuda.orders) == (STREAM, 1)
    add2(Memory(x, stream=None), Memory(x, stream=OTHER))
    assert (cuda.stream, cuda.orders) == (OTHER, 1)
    out.__dlpack__(stream=OTHER)
    assert cuda.orders == 2


def test_results_come_in_kind(cuda: Driver, gpuarray: Any) -> None:
    add2, x = compiled(SUM), random(5, 5)
    with primary(0):
        a = gpuarray.to_gpu(x)
        out = add2(a, a)
        assert isinstance(out, gpuarray.GPUArray)
        np.testing.assert_allclose(out.get(), 2 * x, rtol=1e-4, atol=1e-4)
        given = gpuarray.empty((5, 5), F32)
        assert add2(a, a, out=given) is given
        np.testing.assert_allclose(given.get(), 2 * x, rtol=1e-4, atol=1e-4)


def test_arrays_pass_through_dlpack(cuda: Driver) -> None:
    add2, x = compiled(SUM), random(5, 5)
    first = add2(Memory(x), Memory(x))
    shown = Exported(first)
    del first
    same(add2(shown, shown), 4 * x)
    assert set(shown.streams) == {1}
    capsule = shown.array.__dlpack__(max_version=(1, 0))
    pointer, shape, strides, code, writable = native.read_capsule(capsule)
    assert (pointer, shape, strides) == (shown.array.view.pointer, (5, 5), (5, 1))
    assert writable and code == 2 | 32 << 8 | 1 << 16
    with pytest.raises(ValueError):
        native.read_capsule(capsule)  # it was taken


def test_bfloat16_passes_through_dlpack(cuda: Driver) -> None:
    half = compiled("def f(float(N) A) -> (O) { O(i) = bfloat16(A(i)) }")
    back = compiled("def f(bfloat16(N) A) -> (O) { O(i) = float(A(i)) * 2 }")
    x = np.arange(9, dtype=F32)
    made = half(Memory(x))
    assert not hasattr(made, "__cuda_array_interface__")
    same(back(Exported(made)), 2 * x)


def test_arguments_have_one_place(cuda: Driver) -> None:
    add2, x = compiled(SUM), random(4, 4)
    with pytest.raises(tc.DeviceError) as error:
        add2(Memory(x), x)
    assert "`B` is on device cpu, this kernel runs on the CUDA device" in error.value.message
    with pytest.raises(tc.DeviceError) as error:
        add2(Memory(x), Memory(x, number=1))
    assert "`B` is on cuda:1, but `A` is on cuda:0" in error.value.message
    with pytest.raises(tc.DeviceError, match="`out` for `C` is on device cpu"):
        add2(Memory(x), Memory(x), out=np.zeros((4, 4), F32))


def test_each_device_has_its_module(cuda: Driver) -> None:
    """Of which blocks may have all shared memory that there is."""
    twofold, x = compiled("def twofold(float(N) A) -> (O) { O(i) = 2 * A(i) }"), random(4)
    for number, modules in ((0, 1), (0, 1), (1, 2), (1, 2)):
        out = twofold(Memory(x, number))
        assert (cuda.device, cuda.modules) == (number, modules)
        assert out.__dlpack_device__() == (2, number)
        same(out, 2 * x)
    assert cuda.allowed == 227 * 1024


def test_a_fault_is_raised_later_and_once(cuda: Driver) -> None:
    pick, add2, a = compiled(PICK), compiled(SUM), random(5)
    good, bad = np.array([4, 0], np.int32), np.array([0, 7], np.int32)
    kept = Memory(a), Memory(bad), Memory(random(4, 4))
    pick(*kept[:2])
    cuda_wait()
    with pytest.raises(tc.BoundsError) as error:
        add2(kept[2], kept[2])
    assert "pick: " in error.value.message and error.value.column == PICK.index("I(i)") + 1 - 2
    assert "TCSYM_SYNC=1" in error.value.hint
    same(add2(kept[2], kept[2]), 2 * random(4, 4))
    same(pick(Memory(a), Memory(good)), a[good])
    pick(*kept[:2])
    with pytest.raises(tc.BoundsError):
        tc.synchronize()
    tc.synchronize()
    out = pick(*kept[:2])
    with pytest.raises(tc.BoundsError):
        out.copy_to_host()
    on = Memory(a, stream=STREAM), Memory(bad, stream=STREAM)
    with captured(STREAM) as graphs:
        pick(*on)
    tc.synchronize()  # nothing ran
    for _ in range(2):
        graphs[0].launch(OTHER)
        with pytest.raises(tc.BoundsError):
            tc.synchronize()


def cuda_wait() -> None:
    with primary(0):
        driver().Context.synchronize()


def test_a_fault_is_raised_at_once(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCSYM_SYNC", "1")
    pick = tc.define(PICK, target="cuda").pick
    with pytest.raises(tc.BoundsError) as error:
        pick(Memory(random(5)), Memory(np.array([5], np.int32)))
    assert error.value.hint == "" and error.value.line == 1
    tc.synchronize()


def test_what_the_driver_says_is_an_error(cuda: Driver) -> None:
    add2, x = compiled(SUM), Memory(random(4, 4))
    add2(x, x)
    cuda.fail_launch = 1
    with pytest.raises(tc.TargetError, match=r"launched: the CUDA driver says: invalid argument"):
        add2(x, x)
    cuda.fail_launch = 2
    with pytest.raises(MemoryError, match="out of memory"):
        add2(x, x)


def test_code_that_does_not_load_is_an_error(emulated: Driver) -> None:
    with primary(0), pytest.raises(tc.TargetError, match="ptxas fatal: a text that nobody"):
        Module(b".version 7.0\n")


def test_threads_call_at_once(cuda: Driver) -> None:
    twice, found = compiled(TWICE), {}
    arrays = {k: random(6, 40) * k for k in range(1, 5)}

    def work(k: int) -> None:
        own = Memory(arrays[k])
        found[k] = [twice(own).copy_to_host() for _ in range(8)]

    threads = [threading.Thread(target=work, args=(k,)) for k in arrays]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for k, x in arrays.items():
        for out in found[k]:
            np.testing.assert_allclose(out, x * x.sum(1, keepdims=True) + x.sum(), rtol=1e-3)


def test_results_memory_is_used_again(cuda: Driver) -> None:
    add2, x = compiled(SUM), Memory(random(4, 4))
    first = add2(x, x)
    pointer = first.view.pointer
    kept = add2(x, x)
    assert kept.view.pointer != pointer
    del first
    assert add2(x, x).view.pointer == pointer


@pytest.fixture
def tensor(cuda: Driver) -> Iterator[Any]:
    """As torch's, which native entries read; the exchange is the process's, as torch's would be."""
    if "torch" in sys.modules:
        pytest.skip("entries read torch's tensors")
    library = tensors()
    level = SimpleNamespace(_current_level=-1)
    given = library.Tensor, library.Tensor, lambda: False, lambda x: None, level
    assert native.set_exchange(library.exchange, *given, (lambda: 0, lambda: 0))
    yield library.Tensor


def filled(tensor: Any, x: Any) -> Any:
    made = tensor(0, *x.shape)
    host(made, *x.shape)[...] = x
    return made


def host(x: Any, *shape: int) -> Any:
    values = (ctypes.c_float * int(np.prod(shape))).from_address(x.pointer)
    return np.frombuffer(values, F32).reshape(shape)


def entered(kernel: Any, x: Any) -> Any:
    """The entry for dense arrays, of a kernel that was called with `x`; it passes on nothing."""
    variant = kernel._serving.dispatcher.versions[0].variants.ready_dense
    dense = all_dense(kernel._serving.plan)
    image = entry_image(
        kernel._serving.plan, variant.compiled.scratch, variant.pointers, variant.slots, dense
    )
    return variant.kernel.whole().enter(image, lambda *args, **options: None, lambda fault: None)


def test_tensors_enter_natively(cuda: Driver, tensor: Any) -> None:
    twice, x = compiled(TWICE), random(6, 50)
    twice(Memory(x))
    entry, a = entered(twice, x), filled(tensor, x)
    before = cuda.allocations, cuda.waits
    tensors().work_on(0)
    outputs = [entry(a), entry(a)]
    assert (cuda.allocations, cuda.waits) == before
    tc.synchronize()
    expected = x * x.sum(1, keepdims=True) + x.sum()
    for out in outputs:
        np.testing.assert_allclose(host(out, 6, 50), expected, rtol=1e-3)
    out = tensor(0, 6, 50)
    assert entry(a, out=out) is out
    tc.synchronize()
    np.testing.assert_allclose(host(out, 6, 50), expected, rtol=1e-3)
    assert entry(tensor(1, 6, 50)) is None  # on another device
    assert entry(x) is None
    tensors().work_on(STREAM)
    assert entry(a) is None  # no scratch memory there yet
    twice(Memory(x, stream=STREAM))
    assert type(entry(a)) is tensor and cuda.stream == STREAM
    cuda.fail_launch = 1
    assert entry(a) is None


class Passed(Exception):
    """A call that no entry served."""


def refuse(*_: Any, **__: Any) -> Any:
    raise Passed


def test_arrays_that_describe_themselves_enter_natively(
    cuda: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once Python served a call with arrays of their type; no call passes through it then."""
    text = """def f(float(N,M) A, float(N,M) B, float s, int8 t) -> (C) {
      C(i,j) = A(i,j) + s * B(i,j) + t
    }"""
    kernel, x, y = tc.define(text, target="cuda").f, random(6, 8), random(6, 8) + 1
    a, b = Memory(x), Memory(y)
    first = kernel(a, b, 2.0, -3)
    kernel(first, first, 1.0, 0)
    monkeypatch.setattr(type(kernel._serving), "call", refuse)
    cuda.memsets = 0
    same(kernel(a, b, 0.5, -3), x + F32(0.5) * y - 3)
    assert cuda.memsets == 2
    out = kernel(first, first, 1.0, 0)
    same(out, 2 * (x + 2 * y - 3))
    assert kernel(first, first, 0.0, 0, out=out) is out
    same(out, x + 2 * y - 3)
    on = Memory(x, stream=STREAM)
    with pytest.raises(Passed):
        kernel(on, on, 1.0, 0)  # there is no scratch memory on that stream yet
    for other in (
        Memory(x, stream=OTHER),  # another stream, whose work has to be waited for
        Memory(x, number=1),
        Memory(x.astype(np.float64)),
        Memory(np.ones((6, 7), F32)),
        x,
        first,  # of another type than the first argument
    ):
        with pytest.raises(Passed):
            kernel(a, other, 1.0, 0)
    with pytest.raises(Passed):
        kernel(a, b, "1", 0)


def test_arrays_of_dlpack_alone_enter_natively(
    cuda: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their capsules live until the kernel is enqueued, and are of either version."""
    kernel, x = tc.define(SUM, target="cuda").sum2, random(6, 8)
    first = kernel(Memory(x), Memory(x))
    a, old = Exported(first), Exported(first)
    kernel(a, a)
    monkeypatch.setattr(type(kernel._serving), "call", refuse)
    show = type(first).__dlpack__
    monkeypatch.setattr(
        old,
        "array",
        SimpleNamespace(__dlpack__=lambda stream, **settings: show(first, stream=stream)),
    )
    count = sys.getrefcount(first)
    a.streams.clear()
    same(kernel(a, old), 4 * x)
    assert a.streams == [1] and sys.getrefcount(first) == count
    on = Exported(kernel(first, first))
    same(kernel(on, on), 8 * x)
    for other in (x, first, Exported(np.zeros((6, 8), F32))):
        with pytest.raises(Passed):
            kernel(a, other)
    assert sys.getrefcount(first) == count
    with pytest.raises(Passed):
        kernel(a, a, out=Exported(first))


@pytest.mark.parametrize("kind", ["host", "device", "managed"])
def test_where_arrays_of_dlpack_alone_are(cuda: Driver, kind: str) -> None:
    x = random(4, 4)
    add2, on_host = compiled(SUM), tc.define(SUM, target="cpu:novector").sum2
    there = Exported(add2(Memory(x), Memory(x)))
    if kind == "host":
        with pytest.raises(
            tc.DeviceError, match="`B` is on device cpu, this kernel runs on the CUDA"
        ):
            add2(there, Exported(x))
    elif kind == "device":
        with pytest.raises(tc.DeviceError, match="`A` is on device"):
            on_host(there, x)
    else:
        there = type("Managed", (Exported,), {"__dlpack_device__": lambda self: (13, 0)})(
            there.array
        )
        same(add2(there, there), 4 * x)


def test_arrays_with_strides_enter_natively(cuda: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, x = tc.define(SUM, target="cuda").sum2, random(6, 8)
    a, b = Memory(x.T), Memory(x)
    with pytest.raises(tc.TCError):
        kernel(a, b)
    kernel(a, Memory(random(8, 6)))
    monkeypatch.setattr(type(kernel._serving), "call", refuse)
    same(kernel(a, Memory(x.T.copy())), 2 * x.T)
    with pytest.raises(Passed):
        kernel(b, b)


def test_results_of_native_calls_come_in_kind(
    cuda: Driver, gpuarray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, x = tc.define(SUM, target="cuda").sum2, random(5, 5)
    with primary(0):
        a = gpuarray.to_gpu(x)
        kernel(a, a)
        monkeypatch.setattr(type(kernel._serving), "call", refuse)
        out = kernel(a, a)
        assert isinstance(out, gpuarray.GPUArray)
        np.testing.assert_allclose(out.get(), 2 * x, rtol=1e-6)


def test_steady_calls_run_little_python(cuda: Driver, way: str) -> None:
    """Two arguments say where they are, and a result is made: nothing of a call is Python else."""
    kernel, x = tc.define(SUM, target="cuda").sum2, random(6, 8)
    ours = kernel(Memory(x), Memory(x))
    on = kernel(Memory(x, stream=STREAM), Memory(x, stream=STREAM))
    all_given = [(ours, 14), (Memory(x), 12), (on, 16), (Exported(ours), 26)]
    if way == "pycuda":
        with primary(0):
            all_given.append((importlib.import_module("pycuda.gpuarray").to_gpu(x), 34))
    for given, most in all_given:
        outputs = [kernel(given, given) for _ in range(2)]
        del outputs[:]
        names = list[str]()

        def note(frame: Any, event: str, argument: Any, names: list[str] = names) -> None:
            if event == "call":
                names.append(frame.f_code.co_qualname)

        sys.setprofile(note)
        out = kernel(given, given)
        sys.setprofile(None)
        assert len(names) <= most, names
        del out


def test_entries_leave_faults_to_python(cuda: Driver, tensor: Any) -> None:
    add2, pick, x = compiled(SUM), compiled(PICK), random(4, 4)
    add2(Memory(x), Memory(x))
    entry, a = entered(add2, x), filled(tensor, x)
    tensors().work_on(0)
    assert type(entry(a, a)) is tensor
    pick(Memory(random(5)), Memory(np.array([9], np.int32)))
    cuda_wait()
    assert entry(a, a) is None
    with pytest.raises(tc.BoundsError):
        add2(Memory(x), Memory(x))
    assert type(entry(a, a)) is tensor
