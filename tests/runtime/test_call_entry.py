# SPDX-License-Identifier: Apache-2.0
"""Call entries: the same results and references as a Python call; everything odd goes to `slow`."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tcsym.frontend.program import Check, Program, Tensor
from tcsym.index.expr import (
    Condition,
    Index,
    all_of,
    any_of,
    ceildiv,
    choose,
    eq,
    floordiv,
    ge,
    index,
    lt,
    maximum,
    minimum,
    mod,
    negate,
    var,
)
from tcsym.index.values import evaluate, holds
from tcsym.ir.compiled import SYMBOL, Compiled, Layout, serves, stride_name
from tcsym.process.threads import get_num_threads
from tcsym.runtime.arrays import numpy_view
from tcsym.runtime.entering import Slow, load_entry
from tcsym.runtime.entry_image import all_dense, entry_image
from tcsym.runtime.jit import LoadedKernel, load
from tcsym.runtime.overlap import overlaps_itself
from tcsym.runtime.plan import CallPlan, plan_call
from tcsym.runtime.scalars import is_scalar, scalar_array
from tcsym.runtime.variants import layout_of
from tcsym.sizes.dims import Dim
from tcsym.types import DType
from tests.assembled import assemble

M, N, ZERO = var("M"), var("N"), index(0)
F32, F64 = DType.FLOAT32, DType.FLOAT64

# out[i] = a[i] + b[i] for M*N floats; returns 1 for M = 13
ADD = f"""
define i32 @{SYMBOL}(ptr %buffers, ptr %sizes, ptr %context) {{
entry:
  %m = load i64, ptr %sizes
  %bad = icmp eq i64 %m, 13
  br i1 %bad, label %fault, label %go
fault:
  ret i32 1
go:
  %n_at = getelementptr i64, ptr %sizes, i64 1
  %n = load i64, ptr %n_at
  %count = mul i64 %m, %n
  %a = load ptr, ptr %buffers
  %b_at = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b_at
  %c_at = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %c_at
  br label %test
test:
  %i = phi i64 [ 0, %go ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %x_at = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %x_at
  %y_at = getelementptr float, ptr %b, i64 %i
  %y = load float, ptr %y_at
  %sum = fadd float %x, %y
  %z_at = getelementptr float, ptr %c, i64 %i
  store float %sum, ptr %z_at
  %next = add i64 %i, 1
  br label %test
done:
  ret i32 0
}}
"""
NOTHING = f"define i32 @{SYMBOL}(ptr %a, ptr %b, ptr %c) {{\n ret i32 0\n}}"


def tensor(name: str, shape: tuple[Index, ...], role: Any, dtype: DType = F32) -> Tensor:
    return Tensor(name, dtype, shape, role)


def program(*tensors: Tensor, sizes: tuple[str, ...] = ("M", "N"), **more: Any) -> Program:
    facts: dict[str, Any] = {"free_sizes": (), "checks": (), **more}
    return Program("f", sizes, facts["free_sizes"], tensors, (), facts["checks"])


class Recorder:
    """The slow path of the tests: notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "slow"


Made = tuple[Callable[..., Any], Recorder]


def raised(fault: int) -> None:
    raise ValueError(f"fault {fault}")


def fast_entry(
    plan: CallPlan,
    kernel: LoadedKernel,
    pointers: tuple[int, ...],
    slots: Sequence[int | tuple[int, int]],
    slow: Slow,
    layouts: tuple[Layout, ...] | None = None,
    exact: bool = True,
) -> Slow | None:
    """Entry for arrays of these layouts (all dense); None where it is not safe."""
    layouts = layouts or all_dense(plan)
    image = entry_image(plan, kernel.compiled.scratch, pointers, slots, layouts, exact)
    return None if image is None else load_entry(image, kernel, slow, raised, kernel.arenas.main)


def make(
    p: Program,
    ir: str = NOTHING,
    declared: dict[str, Dim | int] | None = None,
    shared: Index = ZERO,
    private: Index = ZERO,
) -> Made:
    plan = plan_call(p, declared or {}, frozenset())
    names = tuple(t.name for t in p.tensors)
    compiled = Compiled(assemble(ir), p.sizes, names, (), shared, private)
    slow = Recorder()
    places = tuple(range(len(names)))
    function = fast_entry(plan, load(compiled), places, tuple(range(len(p.sizes))), slow)
    assert function is not None
    get_num_threads()  # undecided, every call would be slow
    return function, slow


def add_program() -> Program:
    shape = (M, N)
    roles = (("A", "input"), ("B", "input"), ("C", "output"))
    return program(*(tensor(name, shape, role) for name, role in roles))


@pytest.fixture(scope="module")
def add() -> Made:
    return make(add_program(), ADD)


def arrays(m: int = 3, n: int = 4) -> tuple[np.ndarray, np.ndarray]:
    a = np.arange(m * n, dtype=np.float32).reshape(m, n)
    return a, a[::-1].copy()


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0), (0, 0), (1, 1), (300, 500)])
def test_result(add: Made, shape: tuple[int, int]) -> None:
    function, slow = add
    a, b = arrays(*shape)
    slow.calls.clear()
    c = function(a, b)
    assert type(c) is np.ndarray
    assert (c.shape, c.dtype, slow.calls) == (shape, np.dtype(np.float32), [])
    assert c.flags.owndata
    assert c.flags.writeable
    np.testing.assert_array_equal(c, a + b)


A, B = arrays()
UNALIGNED = np.frombuffer(b"\0" * 49, np.uint8)[1:].view(np.float32).reshape(3, 4)
ODD_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("none", (), {}),
    ("one", (A,), {}),
    ("three", (A, B, B), {}),
    ("unknown keyword", (A, B), {"D": B}),
    ("given twice", (A, B), {"B": B}),
    ("missing", (), {"B": B}),
    ("out overlaps", (A, B), {"out": A}),
    ("out is a list", (A, B), {"out": [A]}),
    ("out is a tuple", (A, B), {"out": (np.zeros((3, 4), np.float32),)}),
    ("out is read-only", (A, B), {"out": np.broadcast_to(np.float32(0), (3, 4))}),
    ("out of another type", (A, B), {"out": np.zeros((3, 4))}),
    ("out of another shape", (A, B), {"out": np.zeros((4, 4), np.float32)}),
    ("out of another rank", (A, B), {"out": np.zeros(12, np.float32)}),
    ("out of another layout", (A, B), {"out": np.zeros((4, 3), np.float32).T}),
    ("no threads", (A, B), {"threads": 0}),
    ("many threads", (A, B), {"threads": 10**6}),
    ("endless threads", (A, B), {"threads": 10**30}),
    ("true threads", (A, B), {"threads": True}),
    ("half a thread", (A, B), {"threads": 0.5}),
    ("sizes", (A, B), {"sizes": {"M": 3}}),
    ("no sizes", (A, B), {"sizes": {}}),
    ("list", ([1.0], B), {}),
    ("None", (None, B), {}),
    ("integer", (1, 2), {}),
    ("float64", (A.astype(float), B), {}),
    ("int32", (A, B.astype(np.int32)), {}),
    ("big endian", (A, B.astype(">f4")), {}),
    ("rank 1", (A[0], B), {}),
    ("rank 3", (A[None], B), {}),
    ("rank 0", (A, np.float32(3)), {}),
    ("transposed", (np.asfortranarray(A), B), {}),
    ("stride", (np.zeros((3, 8), np.float32)[:, ::2], B), {}),
    ("unaligned", (A, UNALIGNED), {}),
    ("other rows", (A, np.zeros((2, 4), np.float32)), {}),
    ("other columns", (A, np.zeros((3, 5), np.float32)), {}),
    ("subclass", (np.ma.masked_array(A), B), {}),
    ("record", (A.view(np.recarray), B), {}),
    ("type", (np.ndarray, np.float32), {}),
]


@pytest.mark.parametrize(
    ("args", "kwargs"), [c[1:] for c in ODD_CALLS], ids=[c[0] for c in ODD_CALLS]
)
def test_everything_else_goes_to_the_slow_path_unchanged(
    add: Made, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    function, slow = add
    slow.calls.clear()
    assert function(*args, **kwargs) == "slow"
    ((seen, named),) = slow.calls
    assert len(seen) == len(args)
    assert all(x is y for x, y in zip(seen, args, strict=True))
    assert named.keys() == kwargs.keys()


NEW = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((A,), {"B": B}),
        ((), {"B": B, "A": A}),
        ((A, B), {"out": NEW}),
        ((), {"out": NEW, "B": B, "A": A, "threads": 2}),
        ((A, B), {"threads": 1, "sizes": None, "out": None}),
        ((A, B), {"out": A.copy()}),
    ],
)
def test_names_and_options(add: Made, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    function, slow = add
    slow.calls.clear()
    out = kwargs.get("out")
    before = sys.getrefcount(out)
    result = function(*args, **kwargs)
    assert not slow.calls
    np.testing.assert_array_equal(result, A + B)
    if out is not None:
        assert result is out
        del result
        assert sys.getrefcount(out) == before


def test_a_parameter_named_like_an_option() -> None:
    p = program(tensor("out", (N,), "input"), tensor("y", (N,), "output"), sizes=("N",))
    function, slow = make(p)
    x, y = np.zeros(3, np.float32), np.ones(3, np.float32)
    assert function(x, out=y) is y
    assert function(out=y) == "slow"
    assert len(slow.calls) == 1


def test_errors_of_the_slow_path_come_through(add: Made) -> None:
    def fail(*args: Any) -> None:
        raise ValueError(str(len(args)))

    plan = plan_call(add_program(), {}, frozenset())
    kernel = load(Compiled(assemble(ADD), ("M", "N"), ("A", "B", "C"), (), ZERO, ZERO))
    function = fast_entry(plan, kernel, (0, 1, 2), (0, 1), fail)
    assert function is not None
    with pytest.raises(ValueError, match="3"):
        function(A, B, B)


def test_a_check_that_fails_in_the_kernel_is_raised(add: Made) -> None:
    function, slow = add
    slow.calls.clear()
    with pytest.raises(ValueError, match="fault"):
        function(*(np.zeros((13, 2), np.float32),) * 2)
    assert not slow.calls


def test_references_stay_right(add: Made) -> None:
    function, slow = add
    a, b = arrays()
    bad = a.astype(float)
    fault = np.zeros((13, 2), np.float32)
    watched = (a, b, bad, fault, a.dtype, np.ndarray, function, slow, slow.__call__)

    def calls(n: int) -> None:
        for _ in range(n):
            function(a, b)
        for _ in range(n // 10):
            function(a, bad)
            with suppress(ValueError):
                function(fault, fault)
        slow.calls.clear()

    calls(100)
    gc.collect()
    before, blocks = [sys.getrefcount(x) for x in watched], sys.getallocatedblocks()
    calls(100_000)
    assert [sys.getrefcount(x) for x in watched] == before
    gc.collect()
    assert sys.getallocatedblocks() < blocks + 50


def test_the_result_is_the_callers_alone(add: Made) -> None:
    function, _ = add
    c, lone = function(A, B), object()
    assert sys.getrefcount(c) == sys.getrefcount(lone)
    assert c.base is None


def test_entry_outlives_what_made_it() -> None:
    function, slow = make(add_program(), ADD)
    gc.collect()
    np.testing.assert_array_equal(function(A, B), A + B)
    del function
    gc.collect()
    lone = object()
    assert sys.getrefcount(slow) == sys.getrefcount(lone)


def test_many_threads_at_once(add: Made) -> None:
    function, _ = add
    wrong: list[int] = []

    def work(k: int) -> None:
        a, b = arrays(k + 1, 30_000 if k % 2 else 3)  # large ones run without Python's lock
        for _ in range(100):
            if not np.array_equal(function(a, b), a + b):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- outputs, sizes, conditions


def test_several_outputs_are_the_named_tuple() -> None:
    p = program(
        tensor("A", (M, N), "input"),
        tensor("S", (M + 1,), "output"),
        tensor("T", (N, M, index(2)), "output", F64),
        tensor("U", (), "output", DType.INT32),
    )
    function, slow = make(p)
    result = function(A)
    assert type(result).__name__ == "Results"
    assert result._fields == ("S", "T", "U")
    assert [x.shape for x in result] == [(4,), (4, 3, 2), ()]
    assert [x.dtype.name for x in result] == ["float32", "float64", "int32"]
    lone = tuple([object() for _ in result])
    assert [sys.getrefcount(x) for x in result] == [sys.getrefcount(x) for x in lone]
    assert sys.getrefcount(result) == sys.getrefcount(lone)
    kinds = type(result)
    before = sys.getrefcount(kinds)
    kept = [function(A) for _ in range(100)]
    assert sys.getrefcount(kinds) == before + 100
    del kept, result
    assert sys.getrefcount(kinds) == before - 1
    assert not slow.calls


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_element_type(dtype: DType) -> None:
    p = program(tensor("x", (N,), "input", dtype), tensor("y", (N,), "output", dtype), sizes=("N",))
    function, slow = make(p)
    assert function(np.zeros(5, dtype.numpy)).dtype == dtype.numpy
    assert not slow.calls


def test_zero_dimensional_arguments() -> None:
    p = program(tensor("x", (), "input"), tensor("y", (), "output"), sizes=())
    function, slow = make(p)
    assert function(np.array(1, np.float32)).shape == ()
    assert function(1.5).shape == function(x=True).shape == ()
    assert not slow.calls
    assert function(1j) == "slow"


COPY = f"""
define i32 @{SYMBOL}(ptr %buffers, ptr %sizes, ptr %context) {{
  %x = load ptr, ptr %buffers
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y_at
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %x, i64 BYTES, i1 false)
  ret i32 0
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
NUMBERS: list[Any] = [
    *(0, 1, -1, True, False, 127, 128, -128, -129, 255, 256, 32767, -32769, 65535, 2**31, -(2**31)),
    *(2**24, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**40),
    *(0.0, -0.0, 1.5, 1e-60, 3.4028235e38, 3.5e38, -1e39, 1e300, np.inf, -np.inf, np.nan),
    *(kind(1) for kind in (np.float32, np.float64, np.float16, np.int8, np.uint64, np.bool_)),
    *("1", None, 1j, np.float64(1e300), np.int64(-1), np.array([1.0]), np.datetime64(1, "s")),
]


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_numbers_are_what_the_slow_path_would_make_of_them(dtype: DType) -> None:
    p = program(tensor("x", (), "input", dtype), tensor("y", (), "output", dtype), sizes=())
    function, slow = make(p, COPY.replace("BYTES", str(dtype.bytes)))
    fast = 0
    for x in NUMBERS:
        expected = scalar_array(x, dtype) if is_scalar(x) else None
        result = function(x)
        if isinstance(result, np.ndarray):
            fast += 1
            assert expected is not None, x
            assert result.dtype == expected.dtype
            assert result.tobytes() == expected.tobytes(), x
    slow.calls.clear()
    assert fast >= {DType.BFLOAT16: 0, DType.FLOAT16: 1}.get(dtype, 4)
    assert isinstance(function(dtype.numpy.type(1)), np.ndarray)


def test_literal_fixed_and_promised_sizes() -> None:
    p = program(tensor("x", (M, N, index(3)), "input"), tensor("y", (M,), "output"))
    function, _ = make(p, declared={"M": Dim(2, 8, 2), "N": 5})

    def is_fast(*shape: int) -> bool:
        return isinstance(function(np.zeros(shape, np.float32)), np.ndarray)

    assert [m for m in range(12) if is_fast(m, 5, 3)] == [2, 4, 6, 8]
    assert not is_fast(2, 6, 3)
    assert not is_fast(2, 5, 4)


def test_free_sizes() -> None:
    p = program(tensor("x", (N,), "input"), tensor("y", (M,), "output"), free_sizes=("M",))
    function, _ = make(p)
    x = np.zeros(2, np.float32)
    assert function(x, sizes={"M": 7}).shape == (7,)
    assert function(x, sizes={"M": np.uint8(0)}).shape == (0,)
    odd: list[Any] = [{}, {"M": 7, "N": 2}, {"N": 2}, {"M": -1}, {"M": 2**31}, {"M": 10**30}]
    odd += [{"M": True}, {"M": 7.0}, {"M": np.array(7)}, [("M", 7)], {Odd(): 7}, {1: 2}, None]
    assert [function(x, sizes=sizes) for sizes in odd] == ["slow"] * len(odd)
    assert function(x) == "slow"
    function, _ = make(p, declared={"M": 7})
    assert function(x).shape == (7,)
    assert function(x, sizes={"M": 7}) == "slow"
    function, _ = make(p, declared={"M": Dim(2, 8, 2)})
    shapes = [getattr(function(x, sizes={"M": m}), "shape", None) for m in range(10)]
    assert [m for m, shape in enumerate(shapes) if shape == (m,)] == [2, 4, 6, 8]


class Odd:
    """A key that is not to be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError

    def __hash__(self) -> int:
        return hash("M")


def test_several_arrays_given() -> None:
    p = program(
        tensor("A", (M, N), "input"),
        tensor("S", (M,), "output"),
        tensor("T", (N, M), "output", F64),
    )
    function, slow = make(p)
    S, T = np.zeros(3, np.float32), np.zeros((4, 3))
    result = function(A, out=(S, T))
    assert result.S is S
    assert result.T is T
    del result
    lone = object()
    assert sys.getrefcount(S) == sys.getrefcount(T) == sys.getrefcount(lone)
    assert not slow.calls
    both = np.zeros(100)
    odd: list[Any] = [(S,), (S, T, T), [S, T], (S, None), {"S": S, "T": T}, S, (T, S)]
    odd += [(both.view(np.float32)[22:25], both[:12].reshape(4, 3))]
    before = sys.getrefcount(S), sys.getrefcount(T)
    assert [function(A, out=out) for out in odd] == ["slow"] * len(odd)
    slow.calls.clear()
    assert (sys.getrefcount(S), sys.getrefcount(T)) == before


STRIDES = f"""
define i32 @{SYMBOL}(ptr %buffers, ptr %sizes, ptr %context) {{
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y_at
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %sizes, i64 16, i1 false)
  ret i32 0
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
X = np.zeros((6, 8), np.float32)
WAYS = {
    "dense": X,
    "one column": X[:, :1],
    "no rows": X[:0, 1:5],
    "rows": X[:, :4],
    "rows upwards": X[::-1, 2:],
    "every second row": X[::2],
    "every second column": X[:, ::2],
    "transposed": X.T,
    "one row of a transposed": X[:, 2:3].T[:, ::2],
    "columns backwards": X[:, ::-1],
    "broadcast": np.broadcast_to(X[:, :1], (6, 8)),
    "broadcast rows": np.broadcast_to(X[:1], (6, 8)),
    "half elements": np.zeros((6, 50), np.int8)[:, 2:34].view(np.float32),
    "odd strides": np.zeros(400, np.int8)[: 6 * 50]
    .view(np.dtype({"names": ["x"], "formats": ["f4"], "offsets": [0], "itemsize": 5}))["x"]
    .reshape(6, 10),
    "unaligned": np.frombuffer(b"\0" * 49, np.uint8)[1:].view(np.float32).reshape(3, 4),
}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("layout", ["dense", "rows", "columns", "any"])
def test_each_layout_has_its_entry(layout: Layout, exact: bool) -> None:
    p = program(tensor("x", (M, N), "input"), tensor("y", (index(4),), "output"))
    names = (stride_name("x", 0), stride_name("x", 1))
    compiled = Compiled(assemble(STRIDES), names, ("x", "y"), (), ZERO, ZERO)
    slots = ((0, 0), (0, 1))
    layouts: tuple[Layout, ...] = (layout, "dense")
    kernel = load(compiled)
    plan = plan_call(p, {}, frozenset())
    function = fast_entry(plan, kernel, (0, 1), slots, Recorder(), layouts, exact)
    assert function is not None
    for name, x in WAYS.items():
        view = numpy_view(x)
        served = layout_of(view) == layout if exact else serves(layout, layout_of(view))
        result = function(x)
        if layout == "columns" and not exact:
            served = x.strides[0] == 4 or len(x) <= 1
        if view.aligned and served:
            assert result.view(np.int64).tolist() == [s // 4 for s in x.strides], name
        elif view.aligned or name == "unaligned":
            assert isinstance(result, str), name


@pytest.mark.parametrize("layout", ["rows", "columns", "any"])
def test_memory_given_for_results(layout: Layout) -> None:
    p = program(tensor("x", (M, N), "input"), tensor("y", (M, N), "output"))
    kernel = load(Compiled(assemble(NOTHING), ("M",), ("x", "y"), (), ZERO, ZERO))
    plan, layouts = plan_call(p, {}, frozenset()), ("dense", layout)
    function = fast_entry(plan, kernel, (0, 1), (0,), Recorder(), layouts)  # type: ignore[arg-type]
    assert function is not None
    for name, y in WAYS.items():
        view = numpy_view(y)
        good = view.writable and view.aligned and layout_of(view) == layout
        good = good and not overlaps_itself(view)
        x = np.zeros(y.shape, np.float32)
        assert (function(x, out=y) is y) == good, name
    memory = np.zeros((9, 16), np.float32)
    for x, y in itertools.product((memory[:4], memory[4:8]), repeat=2):
        columns = y.reshape(-1)[:32].reshape(8, 4).T
        there = {"rows": y[:, :8], "columns": columns, "any": y[:, ::2]}[layout]
        dense = x.reshape(-1)[:32].reshape(4, 8)
        assert (function(dense, out=there) is there) == (not np.shares_memory(x, y))
    assert function(np.zeros((4, 8), np.float32)) == "slow"  # new memory is dense


def test_negative_and_impossible_extents_go_to_the_slow_path() -> None:
    p = program(tensor("x", (N,), "input"), tensor("y", (N - 3,), "output"), sizes=("N",))
    function, _ = make(p)
    assert function(np.zeros(3, np.float32)).shape == (0,)
    assert function(np.zeros(2, np.float32)) == "slow"
    huge = program(tensor("x", (N,), "input"), tensor("y", (N * 2**59,), "output"), sizes=("N",))
    function, _ = make(huge)
    assert function(np.zeros(1, np.float32)) == "slow"
    assert function(np.zeros(100, np.float32)) == "slow"  # the product does not fit 64 bits
    assert sys.exc_info()[0] is None


def test_scratch_memory_is_given_and_limited() -> None:
    ir = f"""
define i32 @{SYMBOL}(ptr %buffers, ptr %sizes, ptr %context) {{
  %n = load i64, ptr %sizes
  %shared_at = getelementptr i64, ptr %context, i64 3
  %shared = load ptr, ptr %shared_at
  call void @llvm.memset.p0.i64(ptr %shared, i8 7, i64 %n, i1 false)
  %last = sub i64 %n, 4
  %from = getelementptr i8, ptr %shared, i64 %last
  %value = load float, ptr %from, align 1
  %y_at = getelementptr ptr, ptr %buffers, i64 1
  %y = load ptr, ptr %y_at
  store float %value, ptr %y
  ret i32 0
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""
    p = program(tensor("x", (N,), "input"), tensor("y", (), "output"), sizes=("N",))
    function, slow = make(p, ir, shared=N, private=N * 8)
    for n in (4, 100, 100_000, 5):
        assert function(np.zeros(n, np.float32)).tobytes() == b"\7\7\7\7"
    assert not slow.calls
    function, slow = make(p, ir, shared=N * 2**44)
    assert function(np.zeros(5, np.float32)) == "slow"


def check(condition: Condition) -> Check:
    return Check("size", condition, "")


def test_preconditions() -> None:
    odd_or_small = any_of([eq(mod(N, 2), 1), lt(N, 4)])
    p = program(
        tensor("x", (M,), "input"),
        tensor("z", (N,), "input"),
        tensor("y", (M,), "output"),
        checks=(check(ge(M, N)), check(negate(eq(M, 6))), check(odd_or_small)),
    )
    function, _ = make(p)
    for m, n in itertools.product(range(9), repeat=2):
        result = function(np.zeros(m, np.float32), np.zeros(n, np.float32))
        fast = isinstance(result, np.ndarray)
        assert fast == (m >= n and m != 6 and (n % 2 == 1 or n < 4)), (m, n)


K = var("K")
EXPRESSIONS = [
    index(-7),
    3 * M - 2 * N + 5,
    M * N * K,
    M * N * K * K * 12,
    floordiv(M - N, 3) + mod(N - M, 4),
    floordiv(M, N) + mod(M - 5, N - 2),
    floordiv(M - 7, 3 - N),
    mod(M - 4, 2 - N),
    minimum(M, N, K) - maximum(M - N, K),
    ceildiv(M * 4, 64) * 64,
    choose(all_of([ge(M, N), lt(K, 3)]), M * N, N - K),
    choose(any_of([negate(eq(M, 3)), eq(N, 0)]), M, floordiv(K, M)),
    (M * 2**40) * N,
    M * (2**63 + 1),
]


def is_native(e: Index, value: int, sizes: dict[str, int], kernel: LoadedKernel) -> bool:
    """An entry that requires the expression to have the value serves these sizes."""
    p = program(
        tensor("x", (), "input"),
        tensor("y", (), "output"),
        sizes=tuple(sizes),
        free_sizes=tuple(sizes),
        checks=(check(eq(e, value)),),
    )
    function = fast_entry(plan_call(p, {}, frozenset()), kernel, (), (), Recorder())
    assert function is not None
    return isinstance(function(1.0, sizes=sizes), np.ndarray)


@pytest.mark.parametrize("e", EXPRESSIONS, ids=str)
def test_formulas_agree_with_evaluation(e: Index) -> None:
    kernel = load(Compiled(assemble(NOTHING), (), (), (), ZERO, ZERO))
    large = (2**31 - 1, 2**30, 65537)
    for values in (*itertools.product((0, 1, 2, 5), repeat=3), large, large[::-1]):
        sizes = dict(zip("MNK", values, strict=True))
        expected = evaluate(e, sizes)
        fits = abs(expected) < 2**40 and "9223372036854775809" not in str(e)
        assert is_native(e, expected, sizes, kernel) or not fits, sizes
        assert not is_native(e, expected + 1, sizes, kernel), sizes
    assert holds(ge(M, 0), {"M": 0})
